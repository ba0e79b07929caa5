"""`python -m benchmarks`: every benchmark is announced, none stops the others, and the end says what became of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.__main__ import LONG, USUAL, main, purpose

HELPERS = {"__main__", "aiohttp_fleet", "boto3_fleet", "handlers", "light_lambda", "peers"}


def never(name: str) -> int:
    raise AssertionError(f"{name} was run")


def test_it_knows_every_benchmark_there_is() -> None:
    files = {path.stem for path in Path(peers.__file__).parent.glob("*.py")}
    assert files - HELPERS == {*USUAL, *LONG}
    assert all(purpose(name).endswith((".", ":", "`.")) for name in {*USUAL, *LONG}), "a line that says it all"


def test_one_that_fails_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[str] = []

    def run(name: str) -> int:
        ran.append(name)
        return {"combine": 1, "lazy": -9}.get(name, 0)

    assert main(["combine", "lazy", "scaling"], run) == 1
    assert ran == ["combine", "lazy", "scaling"]
    out = capsys.readouterr().out
    assert f"== lazy (2 of 3): {purpose('lazy')}" in out
    assert "-- scaling: done, 0 s" in out
    assert out.endswith(
        "3 of 3 benchmarks took 0 min; 2 missed a bound or failed\n"
        "  combine: missed its bound or failed, 0 s\n  lazy: failed (exit status -9), 0 s\n"
    )


def test_all_the_usual_ones_run_when_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[str] = []
    assert main([], lambda name: ran.append(name) or 0) == 0
    assert ran == list(USUAL)
    assert "0 missed a bound or failed" in capsys.readouterr().out


def test_ctrl_c_ends_them_all_and_says_how_far_they_came(capsys: pytest.CaptureFixture[str]) -> None:
    def run(name: str) -> int:
        if name == "lazy":
            raise KeyboardInterrupt
        return 0

    assert main(["combine", "lazy", "scaling"], run) == 130
    assert "\n1 of 3 benchmarks took 0 min" in capsys.readouterr().out


def test_names_are_checked_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["combine", "fast"], never) == 2
    assert capsys.readouterr().err.startswith("there is no benchmark 'fast'; choose from workers_ready, ")


def test_what_there_is_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"], never) == 0
    assert capsys.readouterr().out.count("\n") == len(USUAL) + len(LONG)


def test_a_peer_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    here = Path(sys.executable)
    assert peers.run_program("print('found 7')", "found", here) == ("7", "")
    assert peers.run_program("import no_such_peer", "found", here) == (
        None,
        "not measured: ModuleNotFoundError: No module named 'no_such_peer'",
    )
    assert peers.run_program("", "found", tmp_path / "python")[1] == (
        "not measured: `python -m benchmarks.peers` installs it"
    )
