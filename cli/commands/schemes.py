"""`gradmux schemes`: the table of schemes, or one of them explained and drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gradmux.cli.options import Settings, command, pass_settings
from gradmux.cli.output import facts, print_json, stdout, table, warn

if TYPE_CHECKING:
    from gradmux.orchestrator.schemes.drawing import Drawing
    from gradmux.orchestrator.schemes.scheme import Parameter, SchemeInfo

MOST_DRAWN = 24
"""workers"""
LETTERS = (
    "n: workers; s, lambda: stragglers; B: rounds in a row that a worker straggles; W: window of rounds; "
    "load: fraction of the batch that a worker processes in one round; T: rounds from a job's start to its decode."
)


AUTO = (
    "auto is no scheme but a name that a job's scheme.name accepts (and simulate's --scheme): it measures the first "
    "rounds, chooses scheme, parameters and n, and changes them when the delays do."
)


@command("schemes", example="gradmux schemes\ngradmux schemes m-sgc -p B=1 -p W=3 -p lambda=2 --workers 5")
@click.argument("name", required=False)
@click.option("-p", "parameters", multiple=True, metavar="KEY=VALUE", help="With NAME: draw it with this parameter.")
@click.option("--workers", type=click.IntRange(1, MOST_DRAWN), help="With NAME: draw it for n workers.")
@click.option("--check", is_flag=True, help="With NAME: play it, and say which of its promises it breaks.")
@pass_settings
def schemes_command(
    settings: Settings, name: str | None, parameters: tuple[str, ...], workers: int | None, check: bool
) -> None:
    """List every scheme with parameters, load, delay, tolerance and cost; with NAME explain, draw or check one."""
    from gradmux.cli.arguments import parse_parameters
    from gradmux.orchestrator.errors import ConfigError
    from gradmux.orchestrator.schemes import registry
    from gradmux.orchestrator.schemes.document import described, drawn_with

    if name == "auto" and not parameters and workers is None:
        print_json({"name": name, "title": AUTO}) if settings.json else stdout().print(AUTO)
        return
    if check and name is None:
        raise ConfigError("--check plays one scheme: give its NAME")
    if name is not None:
        info = registry.get(name)
        if check:
            _check(settings, info, parse_parameters(parameters), workers)
            return
        drawing = drawn_with(info, parse_parameters(parameters), workers)
        print_json(described(info, drawing)) if settings.json else _explain(info, drawing)
        return
    if parameters or workers:
        raise ConfigError("-p and --workers draw one scheme: give its NAME")
    for trouble in registry.load_plugins():
        warn(trouble)
    infos = list(registry.REGISTRY.values())
    print_json([described(info) for info in infos]) if settings.json else _list(infos)


def _check(settings: Settings, info: SchemeInfo, given: dict[str, str], workers: int | None) -> None:
    from gradmux.orchestrator.rehearsal import rehearse_sample

    found = rehearse_sample(info, given, workers)
    print_json(found.to_dict()) if settings.json else stdout().print(found.describe())


def _list(infos: list[SchemeInfo]) -> None:
    rows = [
        (info.name, _spelled(info.parameters), info.load, info.delay, info.tolerates, info.costs, info.avoid)
        for info in infos
    ]
    made = table(("scheme", "parameters", "load", "delay T", "tolerates", "costs", "do not use"), rows)
    made.leading = 1
    console = stdout()
    console.print(made)
    console.print(LETTERS)
    console.print(AUTO)
    console.print("More, and a drawing: gradmux schemes NAME")


def _explain(info: SchemeInfo, drawing: Drawing | None) -> None:
    from gradmux.orchestrator.schemes.text import drawn

    told = [
        (info.name, info.title),
        ("constraints", info.constraints),
        ("load", info.load),
        ("delay T", info.delay),
        ("tolerates", info.tolerates),
        ("costs", info.costs),
        ("do not use", info.avoid),
        ("source", info.source),
        ("by hand", info.example),
    ]
    console = stdout()
    console.print(facts([(label, text) for label, text in told if text]))
    if info.parameters:
        rows = [(p.letter, p.name, p.kind.__name__, _default(p), _meaning(p)) for p in info.parameters]
        console.print()
        console.print(table(("letter", "name", "type", "default", "meaning"), rows))
    if drawing is not None:
        console.print()
        console.print(f"drawn with {_given(drawing)}")
        console.print(drawn(drawing), soft_wrap=True)


def _given(drawing: Drawing) -> str:
    params = ", ".join(f"{key} = {value}" for key, value in drawing.sample.params.items())
    return params or "no parameters"


def _spelled(parameters: tuple[Parameter, ...]) -> str:
    return ", ".join(p.letter if p.letter == p.name else f"{p.letter} ({p.name})" for p in parameters)


def _default(parameter: Parameter) -> str:
    return "must be given" if parameter.default is None else str(parameter.default)


def _meaning(parameter: Parameter) -> str:
    return f"{parameter.meaning} ({', '.join(parameter.choices)})" if parameter.choices else parameter.meaning
