"""`gradmux schemes` tells what the registry holds."""

from __future__ import annotations

from orchestrator.schemes.registry import REGISTRY
from tests.cli.conftest import Gradmux


def test_the_list_names_every_scheme(gradmux: Gradmux) -> None:
    ran = gradmux("schemes")
    assert ran.code == 0
    words = ran.out.split()
    assert all(name in words for name in REGISTRY)


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
