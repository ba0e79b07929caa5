"""The table of docs/exactness.md in its short form: one case of each kind, and that the page is what the code says."""

from __future__ import annotations

import pytest

from scripts.exactness.here import SCHEMES, Case, judge
from scripts.exactness_table import EXACT, PAGE, all_cases

LEAST = 60
CASES, SKIPPED = all_cases()
SHORT = ("Dropout", "BatchNorm1d", "LSTM", "MultiheadAttention", "EmbeddingBag", "(sum, count)", "codebook in buffers")
REFUSED = {
    "Embedding, max_norm": "its forward changes parameter",
    "GAN-like pair": "sum",
    "counts its passes": "its forward changes calls",
    "os.urandom in a forward": "give other results",
    "a mean of one's own": "a mean over the rows",
    "dropout under lag-wk": "lag-wk uses old gradients again",
}


@pytest.mark.parametrize("name", SHORT)
def test_a_case_of_each_kind_is_exact(name: str) -> None:
    verdict = judge(_case(name), SCHEMES[-2:])
    assert not verdict.refused
    assert verdict.difference < EXACT


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exact_is_refused_in_one_line(name: str) -> None:
    verdict = judge(_case(name))
    assert REFUSED[name] in verdict.refused
    assert "\n" not in verdict.refused


def test_the_page_has_every_case() -> None:
    page = PAGE.read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= LEAST
    for case in CASES:
        assert f"| {case.kind} | {case.name} |" in page, "run python -m scripts.exactness_table"


def _case(name: str) -> Case:
    (found,) = (case for case in CASES if case.name == name)
    return found
