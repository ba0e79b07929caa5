"""`gradmux replay` of real runs: whole, stopped and resumed, automatic; and of a record that was changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradmux import train
from gradmux.infra.local import Emulator
from gradmux.infra.local.backend import emulator_errors, local_place, start_emulator
from gradmux.orchestrator.errors import RunStopped
from gradmux.orchestrator.job_file import parse_job
from gradmux.orchestrator.record import Header, RoundLine, decode_line
from tests.cli.conftest import Gradmux
from tests.cli.going_on import Small, hurt
from tests.cli.test_auto import heavy_tailed, job_of
from tests.cli.test_going_on import TREE


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with emulator_errors(), start_emulator(parse_job(TREE, "test")) as emulator:
        yield emulator


SCHEMES = [
    {"name": "gc", "s": 1},
    {"name": "m-sgc", "B": 1, "W": 2, "lambda": 1, "wait": "mu", "mu": 0.5},
    {"name": "pipeline", "n": 3, "s": 1},
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme["name"])
def test_a_run_that_was_stopped_and_resumed(
    scheme: dict[str, object], emulator: Emulator, home: Path, gradmux: Gradmux
) -> None:
    """Under faults; then with one decode changed in its second life."""
    small = Small(home, local_place(emulator))
    paths = small.submit(small.prepared(scheme))
    with hurt(emulator, crash=0.03, throttle=0.1), pytest.raises(RunStopped):
        small.run(paths, stop_after=3)
    stopped = gradmux("replay", paths.run, "--json")
    assert stopped.code == 0, stopped
    small.run(paths)
    done = gradmux("replay", paths.run, "--json")
    assert done.code == 0, done
    assert done.document["same"]
    assert (done.document["lives"], done.document["difference"]) == (2, None)
    assert f"{paths.run}: the same decisions" in gradmux("replay", paths.run).out

    lines = paths.record.read_text().splitlines()
    second = [i for i, text in enumerate(lines) if isinstance(decode_line(text), Header)][1]
    at = next(i for i in range(second, len(lines)) if '"weights_crc"' in lines[i])
    fields = json.loads(lines[at])
    fields["decoded"][0]["weights_crc"] ^= 1
    lines[at] = json.dumps(fields)
    paths.record.write_text("\n".join(lines) + "\n")
    differs = gradmux("replay", paths.run, "--json")
    assert differs.code == 1
    found = differs.document["difference"]
    assert (found["life"], found["job"], found["what"]) == (2, fields["decoded"][0]["job"], "its decode")
    told = gradmux("replay", paths.run)
    assert told.code == 1
    assert told.out.startswith("life 2, round ")
    assert told.out.count("\n") == 1


def test_all_segments_of_an_automatic_run(tmp_path: Path, home: Path, gradmux: Gradmux) -> None:
    trained = train(job_of(heavy_tailed(tmp_path / "tail.npz")), home=home)
    lines = [decode_line(text) for text in trained.run.record.read_text().splitlines()]
    told = gradmux("replay", trained.run.record.parent.name, "--json")
    assert told.code == 0, told
    assert told.document["stretches"] == sum(isinstance(line, Header) for line in lines) > 1
    assert told.document["rounds"] == sum(isinstance(line, RoundLine) for line in lines)


def test_a_run_that_is_not_there(gradmux: Gradmux) -> None:
    assert gradmux("replay", "nothing-1").code == 2
