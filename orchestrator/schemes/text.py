"""A drawing of a scheme in characters: workers downwards, rounds and slots to the right, and below how jobs decode.

Knows no terminal: it returns text, and the caller prints it. Read next: `drawing.py`, which plays what is drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from gradmux.orchestrator.schemes.drawing import Drawing, DrawnDecode, DrawnRound, DrawnTask, State
from gradmux.orchestrator.schemes.scheme import Key, Task

IDLE = "·"
MARKS = {State.ANSWERED: "", State.LATE: " ✗", State.AWAITED: " ↻", State.UNCHANGED: " ="}
LEGEND = {
    State.LATE: "✗ does not answer",
    State.AWAITED: "↻ late, and waited for or invoked again: nothing could do without it",
    State.UNCHANGED: "= nothing new, not sent",
}

MADE_UP = "distances are made up: weights move by 1 in every step, the first third's gradients with them"


def drawn(drawing: Drawing) -> str:
    """The whole drawing: legend, grid, decodes."""
    grid = _grid(drawing)
    return "\n".join([*_legend(drawing), "", *grid, "", *_decodes(drawing.rounds)])


def _legend(drawing: Drawing) -> list[str]:
    """What the letters mean here."""
    seen = {drawn_task.state for each in drawing.rounds for drawn_task in each.tasks}
    marks = [text for state, text in LEGEND.items() if state in seen]
    marks += [MADE_UP] if drawing.lazy else []
    marks += [f"a job is {drawing.steps} steps of its model in a row"] if drawing.steps > 1 else []
    chunks = len(drawing.chunk_sizes)
    whole = "g0: gradient of the whole batch"
    parts = whole if chunks == 1 else f"g0..g{chunks - 1}: gradients of {_sizes(drawing.chunk_sizes)} of the batch"
    return [f"n = {drawing.workers} workers; {parts}; jK: of job K", *(["; ".join(marks)] if marks else [])]


def _sizes(sizes: Sequence[float]) -> str:
    """`1/6 each`, or each size once with how often it occurs."""
    counts = Counter(str(Fraction(size).limit_denominator(1000)) for size in sizes)
    if len(counts) == 1:
        return f"{next(iter(counts))} each"
    return ", ".join(f"{size} ({count} times)" for size, count in counts.items())


def _grid(drawing: Drawing) -> list[str]:
    """Head, rule, and a line for every worker."""
    rounds = [_columns(each, drawing.workers) for each in drawing.rounds]
    labels = ["", *map(str, range(drawing.workers))]
    margin = len("worker")
    tops, lines = ["worker"], [f"{label:<{margin}}" for label in labels]
    for index, columns in enumerate(rounds):
        widths = [max(map(len, column)) for column in columns]
        width = max(sum(widths) + 2 * (len(widths) - 1), len(f"round {index}"))
        tops.append(f"{f'round {index}':<{width}}")
        for row in range(len(lines)):
            cells = "  ".join(f"{column[row]:<{w}}" for column, w in zip(columns, widths, strict=True))
            lines[row] += f" │ {cells:<{width}}"
    rule = "─┼─".join("─" * len(part) for part in tops)
    slots = [lines[0]] if any(column[0] for columns in rounds for column in columns) else []
    return [line.rstrip() for line in [" │ ".join(tops), *slots, rule, *lines[1:]]]


def _columns(drawn_round: DrawnRound, workers: int) -> list[list[str]]:
    """One column for each slot that is used in any row: its head, then a cell for every worker."""
    cells = {(each.worker, each.slot): _cell(each) for each in drawn_round.tasks}
    slots = sorted({slot for _, slot in cells}) or [0]
    heads = [f"slot {slot}" if slots != [0] else "" for slot in slots]
    return [
        [head, *(cells.get((worker, slot), IDLE) for worker in range(workers))]
        for head, slot in zip(heads, slots, strict=True)
    ]


def _cell(drawn_task: DrawnTask) -> str:
    return f"j{drawn_task.task.job} {_combination(drawn_task.task)}{MARKS[drawn_task.state]}"


def _combination(task: Task) -> str:
    """`g0+g3`, `g2..g5`, `g0-1.5g1`."""
    run = all(after == before + 1 for before, after in pairwise(task.chunks))
    if run and len(task.chunks) > 2 and set(task.coefficients) == {1.0}:
        return f"g{task.chunks[0]}..g{task.chunks[-1]}"
    return _sum((f"g{chunk}", factor) for chunk, factor in zip(task.chunks, task.coefficients, strict=True))


def _decodes(rounds: Iterable[DrawnRound]) -> list[str]:
    lines = [(each.round, decode) for each in rounds for decode in each.decodes]
    if not lines:
        return ["no job decodes yet"]
    several = any(key.slot for _, decode in lines for key in decode.weights)
    names = "y(round, worker, slot)" if several else "y(round, worker)"
    return [f"decoded, from the answers {names}:", *(_decode(t, decode, several) for t, decode in lines)]


def _decode(t: int, decode: DrawnDecode, several: bool) -> str:
    total = _weighted(decode.weights, several)
    sign, note = ("=", "") if decode.missing < 1e-12 else ("~", f"   (squared error {decode.missing:.2g})")
    return f"  after round {t}: job {decode.job} {sign} {total}{note}"


def _weighted(weights: Mapping[Key, float], several: bool) -> str:
    def name(key: Key) -> str:
        return f"y({key.round},{key.worker},{key.slot})" if several else f"y({key.round},{key.worker})"

    return _sum(((name(key), weight) for key, weight in weights.items()), gap=" ") or "0"


def _sum(terms: Iterable[tuple[str, float]], gap: str = "") -> str:
    """Terms with their factors, where these are not 1; those of factor 0 are left out."""
    text = ""
    for name, factor in terms:
        if abs(factor) < 1e-12:
            continue
        sign = "-" if factor < 0 else "+" if text else ""
        size = "" if abs(abs(factor) - 1.0) < 1e-9 else f"{abs(factor):.3g} " if gap else f"{abs(factor):.3g}"
        text += f"{gap}{sign}{gap}{size}{name}" if text else f"{sign}{size}{name}"
    return text
