"""`submit --dry-run` tells what a job will cost, calls no worker, and agrees with what the run then costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradmux.infra.aws.backend import AWS as AWS_BACKEND
from gradmux.infra.aws.backend import S3_BYTES_PER_S, S3_FIRST_BYTE_S
from gradmux.infra.local.backend import LOCAL
from gradmux.orchestrator.delays import DelayProfile
from gradmux.orchestrator.delays.formats import save_profile
from gradmux.orchestrator.estimate.calls import ROUNDED_S
from gradmux.orchestrator.estimate.job import at_pace
from gradmux.orchestrator.estimate.share import Share
from gradmux.orchestrator.job_file import parse_job
from tests.cli.conftest import Gradmux, Ran
from tests.cli.test_submit import GC, JOB, MODELS
from tests.orchestrator.fleets.fake_lambda import FakeLambda

UNCODED = 'scheme={name="uncoded"}'
AWS = ("cluster.backend=aws", "cluster.bucket=somewhere")
WORKERS, JOBS = 6, 8
ROWS, ROW_BYTES = 1437, 64 * 4 + 8
FETCH_S = (ROWS * ROW_BYTES + 32) / S3_BYTES_PER_S + S3_FIRST_BYTE_S
"""what a worker takes for all rows of digits, which lie in one shard; 32 bytes of it are between the two arrays"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "small_models.py").write_text(MODELS)
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Every call takes 2 s at the load of uncoded, and a quarter of a second more for each further worker's share."""
    path = tmp_path / "measured.npz"
    save_profile(DelayProfile(np.full((3, WORKERS), 2.0), load=1 / WORKERS, slope_s=0.25 * WORKERS), path)
    return path


def dry(gradmux: Gradmux, job: Path, *sets: str, more: tuple[str, ...] = ()) -> Ran:
    words = [word for each in sets for word in ("--set", each)]
    return gradmux("submit", job, "--dry-run", "--json", *words, *more)


def estimate(gradmux: Gradmux, job: Path, *sets: str, more: tuple[str, ...] = ()) -> Any:
    ran = dry(gradmux, job, *sets, more=more)
    assert ran.code == 0, ran.err
    assert ran.document["no_estimate"] == ""
    return ran.document["estimate"]


def test_a_measured_profile_is_taken_as_it_is(gradmux: Gradmux, job: Path, profile: Path) -> None:
    whole = ("--delays", str(profile))
    told = estimate(gradmux, job, UNCODED, *AWS, more=whole)
    calls = JOBS * WORKERS
    assert told["invocations"] == calls
    assert told["billed_s"] == pytest.approx(calls * (2.0 + ROUNDED_S) + WORKERS * FETCH_S)
    assert told["gb_s"] == pytest.approx(2 * told["billed_s"])
    assert told["compute_usd"] == pytest.approx(told["gb_s"] * 0.0000166667)
    assert told["requests_usd"] == pytest.approx(calls * 0.2e-6)
    assert told["usd"] == pytest.approx(told["lambda_usd"] + told["s3_usd"] + told["out_usd"])
    assert told["out_usd"] > 0, "gradients come back to a client elsewhere"
    assert told["wall_s"] == pytest.approx(JOBS * 2.0)
    assert f"every call takes what {profile} says for its load, all of it billed" in told["assumes"]
    twice = estimate(gradmux, job, GC, *AWS, more=whole)
    assert twice["billed_s"] == pytest.approx(calls * (2.25 + ROUNDED_S) + WORKERS * FETCH_S)
    assert "every worker fetches the rows once (0.4 MB, 1 request)" in told["assumes"]


def test_the_estimate_of_an_emulated_job_is_what_it_costs(gradmux: Gradmux, job: Path, profile: Path) -> None:
    """Delays that outlast any computation here make the bill; a busy machine can only add to it."""
    sets = (UNCODED, f'emulator={{delays="{profile}", time_scale=0.2}}', "training.steps=2")
    told = estimate(gradmux, job, *sets)
    assert "the emulator's delay" in told["assumes"]
    assert told["billed_s"] == pytest.approx(4 * WORKERS * (0.4 + ROUNDED_S))
    ran = gradmux("submit", job, "--json", *(word for each in sets for word in ("--set", each)))
    assert ran.code == 0, ran.err
    total = gradmux("cost", ran.document["run"], "--json").document["total"]
    assert total["invocations"] == told["invocations"]
    assert total["billed_s"] > 4 * WORKERS * 0.4 - 1e-9
    assert total["usd"] > 0.99 * told["lambda_usd"]


def test_nobody_is_called_and_nothing_is_kept(
    gradmux: Gradmux, job: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_REGION", "eu-west-1")):
        monkeypatch.setenv(name, value)
    with FakeLambda() as everything:
        monkeypatch.setenv("AWS_ENDPOINT_URL", everything.url)
        told = estimate(gradmux, job, *AWS)
    assert everything.posts == []
    assert told["usd"] > 0
    assert not home.exists()


def test_on_aws_lambdas_delays_come_on_top_of_what_a_share_takes_here(gradmux: Gradmux, job: Path) -> None:
    told = estimate(gradmux, job, *AWS)
    assert [share["model"] for share in told["shares"]] == ["mlp-lr=0.01", "mlp-lr=0.001"]
    assert told["shares"][0]["seconds"] == told["shares"][1]["seconds"] > 0, "models that compute the same, once"
    assert "a delay of 'lambda-like' on top, all of it billed; no cold starts, no faults" in told["assumes"]
    text = gradmux("submit", job, "--dry-run", "--set", AWS[0], "--set", AWS[1]).out
    assert "about $0.0" in text
    assert "rests on" in text
    assert "BUDGET" not in text


def test_calls_that_fail_are_priced_and_named(gradmux: Gradmux, job: Path, tmp_path: Path) -> None:
    """Of six workers one fails in every other round, found after 2 s, and answers at the second or third attempt."""
    (tmp_path / "whole.csv").write_text("1,1,1,1,1,1\n" * 8)
    (tmp_path / "failing.csv").write_text("1,1,1,1,1,1\n1,1,,1,1,1\n" * 4)
    sets = (UNCODED, *AWS, "cluster.timeout_s=2", "cluster.attempts=9")
    whole = estimate(gradmux, job, *sets, more=("--delays", str(tmp_path / "whole.csv")))
    failing = estimate(gradmux, job, *sets, more=("--delays", str(tmp_path / "failing.csv")))
    again = failing["invocations"] - whole["invocations"]
    assert again >= JOBS / 2
    assert failing["billed_s"] == pytest.approx(whole["billed_s"] + 2 * again, abs=0.01)
    assert "8.3% of them fail as the delays say and are repeated" in failing["assumes"]
    assert "no faults" in whole["assumes"]


TREE = {
    "scheme": {"name": "uncoded"},
    "data": {"train": "digits:train", "batch_size": 64},
    "training": {"steps": 1},
    "models": [{"name": "mlp", "factory": "here:mlp"}],
}


def test_a_share_on_lambda() -> None:
    share = Share(load=0.25, seconds=0.1, parameters=1000, moved_bytes=round(S3_BYTES_PER_S))

    def seconds(memory_mb: int, moved_bytes: int = share.moved_bytes) -> float:
        cluster = {"backend": "aws", "bucket": "b", "memory_mb": memory_mb}
        config = parse_job({**TREE, "cluster": cluster}, "test")
        return at_pace(replace(share, moved_bytes=moved_bytes), AWS_BACKEND.pace(config)).seconds

    assert at_pace(share, LOCAL.pace(parse_job(TREE, "test"))) == share
    assert seconds(1769) == pytest.approx(0.1 + 1.0)
    assert seconds(1769 // 2, moved_bytes=0) == pytest.approx(0.2, rel=1e-3), "half of a processor"
    assert seconds(10_240) == pytest.approx(1.1)
    assert share.of(4000).seconds == pytest.approx(0.4)
    cluster = {"backend": "aws", "bucket": "b", "memory_mb": 1769}
    pace = AWS_BACKEND.pace(parse_job({**TREE, "cluster": cluster}, "test"))
    assert at_pace(replace(share, waits=5), pace).seconds == pytest.approx(1.1 + 5 * S3_FIRST_BYTE_S)


def test_a_budget_that_will_not_do_is_told(gradmux: Gradmux, job: Path, home: Path, profile: Path) -> None:
    home.mkdir()
    (home / "prices.toml").write_text('date = "tomorrow"\nmillion_requests = 1000000\ngb_s = 0\n')
    whole = ("--delays", str(profile))
    told = estimate(gradmux, job, UNCODED, *AWS, "cluster.max_cost_usd=12", more=whole)
    assert (told["lambda_usd"], told["exceeds_budget"], told["prices"]) == (48.0, True, "tomorrow")
    assert not estimate(gradmux, job, UNCODED, *AWS, "cluster.max_cost_usd=49", more=whole)["exceeds_budget"]
    words = ("--set", UNCODED, "--set", "cluster.max_cost_usd=12", *whole)
    text = " ".join(gradmux("submit", job, "--dry-run", *words).out.split())
    assert "more than max_cost_usd = 12: the run would stop, resumably, after about 25% of its gradients" in text


def test_a_long_run_is_played_in_part(gradmux: Gradmux, job: Path, profile: Path) -> None:
    told = estimate(gradmux, job, UNCODED, *AWS, "training.steps=1000000", more=("--delays", str(profile)))
    assert told["invocations"] == 2_000_000 * WORKERS
    assert told["billed_s"] == pytest.approx(2_000_000 * WORKERS * (2.0 + ROUNDED_S))
    assert "of 2,000,000 gradients played" in told["assumes"]


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (['scheme={name="auto"}', "training.steps=40"], "; auto going on as "),
        (['scheme={name="pipeline-auto"}', "cluster.concurrency=12"], "list prices"),
        (['scheme={name="gc-partial", s=1}'], "list prices"),
        (['scheme={name="fastest-k", k=3}'], "list prices"),
        (['scheme={name="backup", q=0.5}'], "list prices"),
        (
            ['scheme={name="lag-wk", alpha=0.1}', "models.0.optimizer={name='SGD', lr=0.1}", "sweep={}",
             "data.batch_size=1437"],
            "; every result sent anew",
        ),
        (["cluster.invoke=event"], "list prices"),
        (["cluster.aggregate=cloud"], "list prices"),
    ],
)  # fmt: skip
def test_jobs_of_every_kind_have_an_estimate(gradmux: Gradmux, job: Path, sets: list[str], says: str) -> None:
    told = estimate(gradmux, job, *AWS, *sets)
    assert says in told["assumes"]
    assert told["invocations"] >= told["billed_s"] / 100 > 0
    assert told["scheme"] != "auto"


def test_gradients_through_s3_cost_requests_and_calls(gradmux: Gradmux, job: Path, profile: Path) -> None:
    whole = ("--delays", str(profile))
    plain = estimate(gradmux, job, UNCODED, *AWS, more=whole)
    cloud = estimate(gradmux, job, UNCODED, *AWS, "cluster.aggregate=cloud", more=whole)
    mailed = estimate(gradmux, job, UNCODED, *AWS, "cluster.invoke=event", more=whole)
    assert cloud["invocations"] == plain["invocations"] + JOBS, "one slice of so small a gradient"
    puts = JOBS * WORKERS + JOBS
    gets = JOBS * WORKERS + JOBS
    assert cloud["s3_usd"] - plain["s3_usd"] == pytest.approx(puts * 5e-6 + gets * 0.4e-6)
    assert mailed["s3_usd"] > plain["s3_usd"] + JOBS * WORKERS * 5e-6


def test_what_only_a_whole_share_shows_is_told_before_anything_starts(gradmux: Gradmux, job: Path) -> None:
    ran = dry(gradmux, job, "training.loss=small_models:nan_later")
    assert ran.code == 2
    assert ran.err.startswith("gradmux: model 'mlp-lr=0.01' cannot compute 12 rows: NonFiniteResult")
    assert len(ran.err.splitlines()) == 1


def test_calls_made_again_at_a_deadline_are_counted(gradmux: Gradmux, job: Path, profile: Path) -> None:
    sets = ('scheme={name="uncoded", deadline_s=1.5}', *AWS)
    assert estimate(gradmux, job, *sets, more=("--delays", str(profile)))["invocations"] == 2 * JOBS * WORKERS


def test_a_run_that_would_stop_under_these_delays(gradmux: Gradmux, job: Path, profile: Path) -> None:
    sets = ('scheme={name="uncoded", deadline_s=0.5}', *AWS)
    ran = dry(gradmux, job, *sets, more=("--delays", str(profile)))
    assert (ran.code, ran.document["estimate"]) == (0, None)
    assert ran.document["no_estimate"].startswith(f"under the delays of {profile} the run would stop: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--delays", "lambda-like"], "needs --dry-run"),
        (["--dry-run", "--delays", "nowhere.npz"], "nowhere.npz: is neither a profile file nor a generator"),
    ],
)
def test_delays_that_cannot_be_are_one_line(gradmux: Gradmux, job: Path, words: list[str], message: str) -> None:
    ran = gradmux("submit", job, *words)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert message in ran.err


def test_rows_that_are_read_by_ranges_are_requests_that_are_waited_for(
    gradmux: Gradmux, job: Path, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too large to be kept by workers: each call reads its rows, spread over the set, up to eight requests at once."""
    monkeypatch.setattr("gradmux.lambda_worker.data.WHOLE_BYTES", 0)
    told = estimate(gradmux, job, UNCODED, *AWS)
    assert "fetches the rows once" not in told["assumes"]
    assert "a call moves" in told["assumes"]
    assert told["shares"][0]["seconds"] > S3_FIRST_BYTE_S
