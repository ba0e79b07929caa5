"""Writes docs/schemes.md from the registry: `make docs`. A test holds the file to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gradmux.orchestrator.schemes.drawing import context_of, draw
from gradmux.orchestrator.schemes.registry import REGISTRY, build_scheme
from gradmux.orchestrator.schemes.scheme import Parameter, SchemeInfo
from gradmux.orchestrator.schemes.text import drawn

PAGE = Path(__file__).resolve().parent.parent / "docs" / "schemes.md"
HEAD = """# The schemes

Written by `make docs` from the registry; `gradmux schemes` prints the same, and `gradmux schemes NAME -p KEY=VALUE
--workers N` draws one with other parameters.

`n`: workers. `s`, `lambda`: stragglers. `B`: rounds in a row that a worker may straggle. `W`: rounds of a window.
Load: fraction of the batch that one worker processes in one round. `T`: rounds from the start of a job to its decode,
at most; a scheme needs at least `T + 1` models side by side. Parameters can be given by letter or by long name.

`auto` is no scheme but a name that `scheme.name` of a job accepts (and `gradmux simulate --scheme`): the job begins
uncoded, measures its first rounds, goes on with the scheme, parameters and number of workers that suit these delays,
and changes them when the delays do. It says on the screen and in the record what it chose and why.

"""
OPTIONS = (
    ("option", "default", "meaning"),
    ("`wait`", "`earliest`", "`earliest`, or `mu`: the papers' rule"),
    ("`mu`", "", "for `mu`: who takes longer than `1 + mu` times the fastest is a straggler"),
    ("`in_flight_cap`", "none", "for `earliest`: a round closes only when at most this share of n is still running"),
    ("`harvest_late`", "`true`", "an answer that comes when its round has closed counts until its job is due"),
    (
        "`wait_out`",
        "`until`",
        "for `mu`, when the pattern is outside the model: wait `until` it is inside, or for `all`",
    ),
    ("`straggler_model`", "the widest", "for `mu`: `bursty`, `arbitrary` or `either`"),
    ("`deadline_s`", "none", "after so long what is missing is invoked once more, then the job stops, resumably"),
    ("`approximate`", "`false`", "go on with the least-squares decode where the deadline would stop the job"),
)
CLOSING = """
## When a round closes

By default, `earliest`: as soon as the job that is due decodes, and all others still will if no worker straggles from
then on. These options stand beside a scheme's own parameters, under `[scheme]` in a job file, or as
`--set scheme.KEY=VALUE` of `gradmux submit`. `gradmux simulate` has all but the last two as options of its own,
`gradmux tune` the first four.

"""
SPECIAL = """
`pipeline`, `pipeline-auto` and `stretch` have no rounds that wait for each other: each job is dispatched when
its model is ready and the concurrency limit allows, and neither the cap nor late answers concern them.

`sr-sgc` waits for more than `earliest` asks of the others: until job t - 1 decodes, or at most lambda answers to its
round are missing. Repeats alone could save a job that no worker has answered, but they would take all workers from the
next job, and so on for ever. No pattern that it tolerates has to wait.
"""


def render() -> str:
    """The whole page."""
    sections = "".join(map(_section, REGISTRY.values()))
    return HEAD + _overview(REGISTRY.values()) + sections + CLOSING + _table(OPTIONS[0], OPTIONS[1:]) + SPECIAL


def _overview(infos: Iterable[SchemeInfo]) -> str:
    rows = [
        (
            f"[`{info.name}`](#{info.name})",
            ", ".join(f"`{parameter.letter}`" for parameter in info.parameters),
            info.load,
            info.delay,
            info.tolerates,
            info.costs,
            info.avoid,
        )
        for info in infos
    ]
    return _table(("scheme", "parameters", "load", "delay T", "tolerates", "costs", "do not use it"), rows)


def _section(info: SchemeInfo) -> str:
    facts = [
        ("Constraints", info.constraints),
        ("Load", info.load),
        ("Delay T", info.delay),
        ("Tolerates", info.tolerates),
        ("Costs", info.costs),
        ("Do not use it", info.avoid),
        ("Source", info.source),
        ("By hand", info.example),
    ]
    listed = "".join(f"- **{label}:** {_escaped(text)}\n" for label, text in facts)
    return f"\n## {info.name}\n\n{_escaped(info.title)}.\n\n{listed}{_parameters(info.parameters)}{_drawing(info)}"


def _parameters(parameters: Sequence[Parameter]) -> str:
    if not parameters:
        return "\nIt takes no parameters.\n"
    rows = [
        (
            f"`{p.letter}`",
            f"`{p.name}`",
            p.kind.__name__,
            "must be given" if p.default is None else f"`{p.default}`",
            f"{p.meaning} ({', '.join(p.choices)})" if p.choices else p.meaning,
        )
        for p in parameters
    ]
    return "\n" + _table(("letter", "name", "type", "default", "meaning"), rows)


def _drawing(info: SchemeInfo) -> str:
    if info.sample is None:
        return ""
    scheme = build_scheme(info.name, info.sample.params, context_of(info.sample))
    params = ", ".join(f"{key} = {value}" for key, value in info.sample.params.items())
    given = f" with {params}" if params else ""
    return f"\nDrawn{given}:\n\n```text\n{drawn(draw(scheme, info.sample))}\n```\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(_escaped(cell) for cell in line) + " |\n" for line in lines)


def _escaped(text: str) -> str:
    """Text that Markdown leaves alone."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_") if "`" not in text else text


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
    print(f"wrote {PAGE}")
