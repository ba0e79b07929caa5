"""A run on (emulated) AWS that is lost with its machine goes on on another one, from the bucket alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import boto3
import pytest

from gradmux.orchestrator.backends import open_place
from gradmux.orchestrator.errors import Interrupted
from gradmux.orchestrator.record import Decoded
from gradmux.orchestrator.runs.keep import keep_job
from gradmux.orchestrator.runs.life import store_name
from gradmux.orchestrator.runs.paths import find_run
from gradmux.orchestrator.runs.prepare import Prepared
from gradmux.orchestrator.runs.stopping import Stop
from gradmux.orchestrator.runs.train import run_job
from gradmux.orchestrator.store import Keys, S3Store
from tests.cli.conftest import BUCKET, ON_AWS, Gradmux
from tests.cli.going_on import Small, saved


def on_aws(folder: Path) -> Prepared:
    """A small job in the emulated account."""
    prepared = Small(folder, None).prepared({"name": "gc", "s": 1})  # type: ignore[arg-type]
    cluster = prepared.config.cluster.model_copy(update=ON_AWS)
    return replace(prepared, config=prepared.config.model_copy(update={"cluster": cluster}))


@pytest.mark.usefixtures("account")
def test_what_a_killed_run_left_for_its_workers_goes_when_it_is_cancelled(
    tmp_path: Path, gradmux: Gradmux, home: Path
) -> None:
    job, stop = on_aws(tmp_path), Stop()
    stop.ask("as if it were killed")
    killed = keep_job(job, home, tmp_path)
    with open_place(job.config) as place, pytest.raises(Interrupted):
        run_job(job, place, killed, stop=stop)
    store, keys = S3Store(BUCKET), Keys(store_name(killed))
    kept = keys.weights(1, 0, 0, b"w"), keys.folder("job.json")
    for key in (keys.weights(0, 0, 0, b"w"), f"{keys.spill(0, 1)}0-0-1-1/0", keys.reduced(0, 0, 0, 1), kept[0]):
        store.put(key, b"left behind")
    ran = gradmux("cancel", killed.run)
    assert ran.code == 0, ran.err
    left = store.list(keys.prefix)
    assert set(kept) <= set(left), "what a later life needs stays"
    assert [key for key in left if key.startswith((keys.snapshots, keys.results))] == [kept[0]]
    store.close()


@pytest.mark.usefixtures("account")
def test_the_folder_of_a_run_is_in_its_bucket(tmp_path: Path, gradmux: Gradmux, home: Path) -> None:
    first = tmp_path / "first"
    job = on_aws(first)
    stop, count = Stop(), 0

    def on_step(_: Decoded) -> None:
        nonlocal count
        count += 1
        if count == 5:
            stop.ask("interrupted")

    with open_place(job.config) as place:
        through, lost = (keep_job(job, first, tmp_path) for _ in range(2))
        run_job(job, place, through)
        with pytest.raises(Interrupted):
            run_job(job, place, lost, on_step, stop)
    expected, name = saved(through), store_name(lost)
    shutil.rmtree(first)
    strangers = ("materials/../../../../x.safetensors", "weights//x", "record/000000000000-000000000000-000000", "/x")
    for stranger in strangers:  # whose keys one of our clients cannot even read
        boto3.client("s3").put_object(Bucket=BUCKET, Key=f"runs/{name}/folder/{stranger}", Body=b"")

    ran = gradmux("resume", f"s3://{BUCKET}/runs/{name}", "--json")
    assert ran.code == 0, ran.err
    assert f"warning: the functions of s3://{BUCKET}/runs/{name} come from that bucket and run with your" in ran.err
    assert "and 1 more: no run has anything of that name" in ran.err
    assert (ran.document["state"], ran.document["run"]) == ("done", "small-1")
    assert saved(find_run(home, "small-1")) == expected
    assert gradmux("resume", f"s3://{BUCKET}/runs/{name}", "--json").document == ran.document

    shutil.rmtree(home)
    told = gradmux("resume", f"s3://{BUCKET}/runs/{name}", "--json").document
    assert told["cost"] == ran.document["cost"]
    assert saved(find_run(home, "small-1")) == expected, "a run that is done comes with its weights"

    for url, message in (
        (f"s3://{BUCKET}/runs/nothing-there", "there is no run under runs/nothing-there/"),
        (f"s3://{BUCKET}/other/place", "a run in S3 is s3://BUCKET/runs/NAME"),
        ("s3://no-such-bucket/runs/a", "there is no bucket no-such-bucket"),
    ):
        ran = gradmux("resume", url)
        assert ran.code in (2, 3)
        assert len(ran.err.splitlines()) == 1
        assert message in ran.err
