"""From names and text to schemes: letters, long names, types, plugins, and one clear line for every mistake."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.registry import REGISTRY, build_scheme, get, load_plugins, parse_params, register
from gradmux.orchestrator.schemes.scheme import Context, Parameter

EXTRA = replace(
    REGISTRY["uncoded"],
    name="extra",
    parameters=(
        Parameter("slack", "mu", float, 0.5, "a share"),
        Parameter("mode", "mode", str, None, "one of two", ("fast", "slow")),
    ),
)


@pytest.fixture
def restored_registry() -> Iterator[None]:
    """Whatever a test registers is gone afterwards."""
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


@pytest.mark.parametrize(
    "given",
    [
        {"B": 1, "W": 2, "lambda": 3},
        {"burst": "1", "window": "2", "max_stragglers": "3"},
        {"B": 1.0, "window": "2", "lambda": "3.0", "code": "fractional"},
    ],
)
def test_letters_long_names_text_and_numbers_are_the_same(given: dict[str, str | int | float]) -> None:
    parsed = parse_params(get("m-sgc"), given)
    assert parsed == {"burst": 1, "window": 2, "max_stragglers": 3, "code": "fractional"}
    assert [type(value) for value in parsed.values()] == [int, int, int, str]


def test_floats_and_choices() -> None:
    assert parse_params(EXTRA, {"mode": "fast"}) == {"slack": 0.5, "mode": "fast"}
    assert parse_params(EXTRA, {"mode": "slow", "mu": "1e-1"}) == {"slack": 0.1, "mode": "slow"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"s": 1, "lamda": 2}, "gc has no parameter 'lamda'; it takes s (stragglers), code"),
        (
            {"straglers": 1},
            "gc has no parameter 'straglers' (did you mean 'stragglers'?); it takes s (stragglers), code",
        ),
        ({}, "gc needs s (stragglers): stragglers that every round tolerates; it takes s (stragglers), code"),
        ({"s": 1, "stragglers": 1}, "gc: s (stragglers) is given twice: keep one of s and stragglers"),
        ({"s": "two"}, "gc: s (stragglers) = 'two' is not a whole number"),
        ({"s": 1.5}, "gc: s (stragglers) = 1.5 is not a whole number"),
        ({"s": True}, "gc: s (stragglers) = True is not a whole number"),
        ({"s": "inf"}, "gc: s (stragglers) = 'inf' is not a whole number"),
        ({"s": "nan"}, "gc: s (stragglers) = 'nan' is not a whole number"),
        ({"s": 1, "code": "cycic"}, "gc: code = 'cycic' is not one of fractional, cyclic, dft"),
    ],
)
def test_mistakes_in_parameters_are_one_clear_line(given: dict[str, str | int | float], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_params(get("gc"), given)
    assert str(error.value) == says


def test_an_unknown_scheme_gets_the_closest_name_and_all_names() -> None:
    with pytest.raises(ConfigError, match=r"unknown scheme 'msgc' \(did you mean 'm-sgc'\?\); schemes: uncoded, .*gc"):
        get("msgc")


@pytest.mark.parametrize(
    ("context", "says"),
    [
        (Context(0, 1), r"workers \(n\) = 0"),
        (Context(4, 0), r"jobs \(J\) = 0"),
        (Context(4, 1, seed=-1), "seed = -1"),
    ],
)
def test_contexts_that_cannot_be(context: Context, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build_scheme("uncoded", {}, context)


def test_every_scheme_of_the_registry_explains_itself() -> None:
    for name, info in REGISTRY.items():
        assert info.name == name
        texts = (
            info.title,
            info.constraints,
            info.load,
            info.delay,
            info.tolerates,
            info.costs,
            info.avoid,
            info.source,
        )
        assert all(texts), name
        assert info.example, name
        keys = [key for parameter in info.parameters for key in {parameter.name, parameter.letter}]
        assert len(keys) == len(set(keys)), name


@pytest.mark.usefixtures("restored_registry")
def test_a_scheme_from_elsewhere_is_registered_and_built() -> None:
    register(EXTRA)
    register(EXTRA)
    assert get("extra") is EXTRA
    with pytest.raises(ConfigError, match="'extra' is already registered"):
        register(replace(EXTRA, title="another"))


def _distribution(folder: Path, points: str, module: str) -> None:
    """Writes an installed distribution with one module and entry points."""
    (folder / "far_schemes.py").write_text(module)
    info = folder / "far_schemes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: far-schemes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[gradmux.schemes]\n{points}\n")


@pytest.mark.usefixtures("restored_registry")
def test_installed_distributions_bring_schemes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ["from dataclasses import replace", "from gradmux.orchestrator.schemes.uncoded import INFO"]
    module.append("FAR = replace(INFO, name='far')")
    _distribution(tmp_path, "far = far_schemes:FAR", "\n".join(module))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert build_scheme("far", {}, Context(3, 1)).workers == 3


@pytest.mark.usefixtures("restored_registry")
@pytest.mark.parametrize(
    ("point", "says"),
    [
        ("no_such_module_anywhere:FAR", "cannot be loaded from no_such_module_anywhere:FAR: ModuleNotFoundError: "),
        ("math:tau", "math:tau is a float, not a SchemeInfo"),
        ("math:no_such_name", "cannot be loaded from math:no_such_name: AttributeError: "),
        ("unclosed:FAR", "cannot be loaded from unclosed:FAR: SyntaxError: "),
        ("angry:FAR", "cannot be loaded from angry:FAR: ZeroDivisionError: division by zero"),
        ("far_schemes:TWICE", "scheme 'gc' is already registered"),
        ("former:FAR", "gradmux called cli in version 0.1.0 is gradmux.cli now"),
    ],
)
def test_a_broken_plugin_is_named_and_no_other_suffers(
    point: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ["from dataclasses import replace", "from gradmux.orchestrator.schemes.uncoded import INFO"]
    module += ["FAR = replace(INFO, name='far')", "TWICE = replace(INFO, name='gc')"]
    _distribution(tmp_path, f"bad = {point}\nfar = far_schemes:FAR", "\n".join(module))
    (tmp_path / "unclosed.py").write_text("FAR = (")
    (tmp_path / "angry.py").write_text("1 / 0")
    (tmp_path / "former.py").write_text("raise ModuleNotFoundError(\"No module named 'cli'\", name='cli')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "far_schemes", raising=False)
    (trouble,) = load_plugins()
    assert trouble.startswith("scheme 'bad' of far-schemes 1.0")
    assert says in trouble
    assert "far" in REGISTRY
    with pytest.raises(ConfigError) as refused:
        get("bad")
    assert str(refused.value).splitlines()[0] == trouble
