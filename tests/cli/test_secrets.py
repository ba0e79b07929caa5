"""Credentials of a run on (emulated) AWS are written nowhere: not to its folder, bucket or log, nor to the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest

from gradmux.infra.local import Emulator, FaultKind, FaultPlan, FaultRate
from tests.cli.conftest import BUCKET, Gradmux
from tests.cli.test_submit import GC, JOB, MODELS

SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""The access key's id alone is no secret, but nobody's business either; in the emulator, the token is none."""


def bodies(s3: Any) -> dict[str, bytes]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    keys = [each["Key"] for page in pages for each in page.get("Contents", [])]
    return {key: s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}


@pytest.mark.parametrize("faults", ["", "expired"])
def test_no_secret_is_written(gradmux: Gradmux, account: Emulator, tmp_path: Path, home: Path, faults: str) -> None:
    (tmp_path / "small_models.py").write_text(MODELS)
    (tmp_path / "job.toml").write_text(JOB)
    there = ["cluster.backend=aws", f"cluster.bucket={BUCKET}", "cluster.patience_s=0.5", "cluster.attempts=1"]
    words = [word for each in (GC, "training.steps=2", *there) for word in ("--set", each)]
    if faults:
        account.set_faults(FaultPlan(rates=(FaultRate(FaultKind.EXPIRED, 1.0),)))
    ran = gradmux("submit", tmp_path / "job.toml", *words, "-vv")
    written = bodies(boto3.Session().client("s3"))
    assert ran.code == (5 if faults else 0), ran.err
    written |= {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    written |= {"stdout": ran.out.encode(), "stderr": ran.err.encode()}
    assert len(written) > 5
    for secret in (account.environment()[name] for name in SECRETS):
        assert [place for place, body in written.items() if secret.encode() in body] == []
