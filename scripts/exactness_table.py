"""Writes the table of docs/exactness.md anew: every case in `scripts/exactness`, trained here or refused.

`python -m scripts.exactness_table FILE` takes the shared cases from there. It takes some minutes, and ends without
writing when a case that was not refused is not exact.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from scripts.exactness.cases import own_cases
from scripts.exactness.conditioning import EXACT, is_exact, precise_of
from scripts.exactness.here import SCHEMES, Case, Verdict, judge
from scripts.exactness.libraries import library_cases
from scripts.exactness.shared_cases import FILE, shared_cases

PAGE = Path(__file__).resolve().parent.parent / "docs" / "exactness.md"
HEAD = """# How exact, model by model

Written by `python -m scripts.exactness_table`. Every row is a small model that was trained for {steps} steps by the
real trainer and worker in one process, under {schemes} combinations of scheme and number of workers ({told}), with one
late worker in every round, and compared with a plain torch loop that shares no code with them
(`gradmux.train_reference`). The difference is the largest over all of them of |weights - plain| / |plain|, buffers
included; where it is beyond {limit:g}, which rounding that a model amplifies may be, the case is trained in float64
as well. *Free* passes: rows do not interact, nothing random is drawn and no buffer changes, so workers take their
whole share at once. *Fixed* passes: of at most 32 rows, whichever worker computes them. What is refused is refused
before any worker is invoked, by the line that stands here.

{count} cases: {exact} exact, {refused} refused, {skipped} not tried.

"""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    case: Case
    verdict: Verdict
    precise: Verdict | None = None
    """in float64, where float32 leaves it open"""


def all_cases(shared_file: Path = FILE) -> tuple[list[Case], list[tuple[str, str]]]:
    """Every case, and what cannot be tried here, with the reason."""
    shared, missing = shared_cases(shared_file)
    libraries, absent = library_cases()
    return [*own_cases(), *libraries, *shared], [*missing, *absent]


def table(rows: Sequence[Row], skipped: Sequence[tuple[str, str]]) -> str:
    """The page."""
    exact = [row for row in rows if not row.verdict.refused]
    told = ", ".join(sorted({f"`{each.told}`" for each in SCHEMES}))
    head = HEAD.format(
        steps=3,
        schemes=len(SCHEMES),
        told=told,
        count=len(rows) + len(skipped),
        exact=len(exact),
        limit=EXACT,
        refused=len(rows) - len(exact),
        skipped=len(skipped),
    )
    lines = ["| kind | case | passes | difference | what is said |", "| --- | --- | --- | --- | --- |"]
    lines += [_line(row) for row in rows]
    lines += [f"| not tried | {name} | | | {reason} |" for name, reason in skipped]
    return head + "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    case, verdict = row.case, row.verdict
    if verdict.refused:
        return f"| {case.kind} | {case.name} | | refused | {_cell(verdict.refused)} |"
    passes = "fixed" if verdict.fixed else "free"
    found = f"{verdict.difference:.0e}"
    if row.precise is not None:
        found += f" ({row.precise.difference:.0e} in float64)"
    return f"| {case.kind} | {case.name} | {passes} | {found} | {_cell(verdict.warning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> None:
    torch.set_num_threads(1)
    cases, skipped = all_cases(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
    rows = []
    for number, case in enumerate(cases, start=1):
        verdict = judge(case)
        rows.append(Row(case, verdict, precise_of(case, verdict, SCHEMES)))
        print(f"{number}/{len(cases)}", _line(rows[-1]), flush=True)
    wrong = [row.case.name for row in rows if not row.verdict.refused and not is_exact(row.verdict, row.precise)]
    if wrong:
        sys.exit(f"not exact: {', '.join(wrong)}")
    PAGE.write_text(table(rows, skipped))
    print("wrote", PAGE)


if __name__ == "__main__":
    main()
