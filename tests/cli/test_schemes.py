"""`gradmux schemes`: the table, one scheme explained and drawn, and the same as data."""

from __future__ import annotations

import pytest

from gradmux.orchestrator.schemes.registry import REGISTRY
from scripts.scheme_docs import PAGE, render
from tests.cli.conftest import Gradmux


def test_the_list_names_every_scheme_and_what_it_costs(gradmux: Gradmux) -> None:
    ran = gradmux("schemes")
    assert ran.code == 0
    words = ran.out.split()
    assert all(name in words for name in REGISTRY)
    assert all(head in words for head in ("parameters", "load", "delay", "tolerates", "costs", "do"))


def test_auto_is_named_although_it_is_no_scheme(gradmux: Gradmux) -> None:
    assert "auto is no scheme" in " ".join(gradmux("schemes").out.split())
    alone = gradmux("schemes", "auto")
    assert (alone.code, "measures the first rounds" in " ".join(alone.out.split())) == (0, True)
    assert gradmux("schemes", "auto", "--json").document["name"] == "auto"


def test_json_has_every_scheme_with_its_parameters(gradmux: Gradmux) -> None:
    document = {scheme["name"]: scheme for scheme in gradmux("schemes", "--json").document}
    assert set(document) == set(REGISTRY)
    stragglers = document["gc"]["parameters"][0]
    assert (stragglers["name"], stragglers["letter"], stragglers["type"]) == ("stragglers", "s", "int")


def test_one_scheme_is_explained(gradmux: Gradmux) -> None:
    ran = gradmux("schemes", "gc")
    assert ran.code == 0
    for fact in (REGISTRY["gc"].source, "0 <= s < n", "stragglers", "By hand".lower()):
        assert fact in ran.out


M_SGC = """\
worker │ round 0 │ round 1        │ round 2
       │         │ slot 0  slot 1 │ slot 0  slot 1
───────┼─────────┼────────────────┼───────────────
0      │ j0 g0   │ j1 g0   j0 g4  │ j2 g0   j1 g4
1      │ j0 g1 ✗ │ j1 g1   j0 g1  │ j2 g1   j1 g5
2      │ j0 g2   │ j1 g2   j0 g4  │ j2 g2   j1 g5
3      │ j0 g3   │ j1 g3   j0 g5  │ j2 g3   j1 g4
"""


def test_m_sgc_is_drawn_over_three_rounds_with_one_straggler(gradmux: Gradmux) -> None:
    """Worker 1 straggles in round 0, and redoes its chunk of job 0 in round 1 while the others do the coded part."""
    ran = gradmux("schemes", "m-sgc")
    assert M_SGC in ran.out
    assert "after round 1: job 0 = y(0,0,0) + y(1,1,1) + y(0,2,0) + y(0,3,0) + y(1,0,1) + y(1,3,1)\n" in ran.out


def test_the_drawing_as_data(gradmux: Gradmux) -> None:
    drawing = gradmux("schemes", "m-sgc", "--json").document["drawing"]
    assert (drawing["workers"], drawing["params"]["burst"]) == (4, 1)
    assert drawing["chunk_sizes"] == pytest.approx([1 / 6] * 6)
    first = drawing["rounds"][0]["tasks"]
    assert [task["state"] for task in first] == ["answered", "late", "answered", "answered"]
    redone = {"worker": 1, "slot": 1, "job": 0, "chunks": [1], "coefficients": [1.0], "state": "answered"}
    assert redone in drawing["rounds"][1]["tasks"]
    (decoded,) = drawing["rounds"][1]["decoded"]
    assert decoded["job"] == 0
    assert {"round": 1, "worker": 1, "slot": 1, "weight": 1.0} in decoded["results"]


def test_a_scheme_is_drawn_with_other_parameters(gradmux: Gradmux) -> None:
    drawing = gradmux("schemes", "m-sgc", "-p", "W=3", "-p", "burst=2", "--workers", "3", "--json").document["drawing"]
    assert drawing["workers"] == 3
    assert (drawing["params"]["window"], drawing["params"]["burst"], drawing["params"]["max_stragglers"]) == (3, 2, 1)
    assert [decode["job"] for each in drawing["rounds"] for decode in each["decoded"]] == [0, 1]


def test_a_round_that_cannot_do_without_a_straggler_waits_for_it(gradmux: Gradmux) -> None:
    ran = gradmux("schemes", "uncoded")
    assert "2      │ j0 g2   │ j1 g2 ↻\n" in ran.out
    assert "↻ late, and waited for" in ran.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["m-sgc", "-p", "q=4"], "m-sgc has no parameter 'q'"),
        (["gc", "-p", "s=9"], "gc: s (stragglers) = 9 does not fit 4 workers"),
        (["-p", "s=1"], "-p and --workers draw one scheme: give its NAME"),
        (["gcc"], "unknown scheme 'gcc'"),
    ],
)
def test_mistakes_are_one_line(gradmux: Gradmux, words: list[str], says: str) -> None:
    ran = gradmux("schemes", *words)
    assert ran.code == 2
    assert says in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("name", REGISTRY)
def test_every_scheme_is_explained_and_drawn(gradmux: Gradmux, name: str) -> None:
    ran, info = gradmux("schemes", name), REGISTRY[name]
    assert ran.code == 0
    told = "".join(ran.out.split())
    facts = (info.title, info.constraints, info.load, info.delay, info.tolerates, info.costs, info.avoid, info.source)
    for fact in (*facts, info.example, *(parameter.meaning for parameter in info.parameters)):
        assert "".join(fact.split()) in told
    assert "worker │ round 0" in ran.out
    assert "after round" in ran.out


def test_the_page_of_schemes_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run `make docs`"
