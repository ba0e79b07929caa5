"""`deploy` and `destroy` as commands, through boto3 to moto's control plane; the image is one that is there already."""

from __future__ import annotations

import logging
import os
import urllib.request
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

from tests.cli.conftest import Gradmux

pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse:UserWarning")

ACCOUNT = "123456789012"
BUCKET = f"gradmux-{ACCOUNT}-eu-central-1"
IMAGE = f"{ACCOUNT}.dkr.ecr.eu-central-1.amazonaws.com/mine:1"


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def _account(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty account, found as AWS's own tools find one: by variables alone."""
    urllib.request.urlopen(urllib.request.Request(f"{moto}/moto-api/reset", method="POST")).close()
    variables = {
        "AWS_ENDPOINT_URL": moto,
        "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "s3cret-key",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("_account")
def test_deploy_and_destroy(gradmux: Gradmux) -> None:
    planned = gradmux("deploy", "--image", IMAGE, "--dry-run", "--json")
    assert planned.code == 0, planned.err
    assert planned.document["steps"][0]["step"] == "cloudformation.create_stack"
    assert gradmux("doctor").err.startswith(
        "gradmux: there is no deployment gradmux in eu-central-1: run `gradmux deploy`"
    )

    deployed = gradmux("deploy", "--image", IMAGE)
    assert deployed.code == 0, deployed.err
    assert f'function = "gradmux-worker"\nbucket = "{BUCKET}"' in deployed.out
    assert "[1/3] cloudformation.create_stack: everything" in deployed.err

    again = gradmux("deploy", "--image", IMAGE, "--json")
    assert (again.document["steps"], again.document["bucket"]) == ([], BUCKET)
    assert "already" not in again.err

    shown = gradmux("destroy", "--dry-run")
    assert "1. cloudformation.delete_stack gradmux" in shown.out
    assert f"stays: s3://{BUCKET}" in shown.out
    destroyed = gradmux("destroy", "--delete-data", "--json")
    assert destroyed.code == 0, destroyed.err
    assert destroyed.document["leaves"] == []
    assert gradmux("destroy").out == "There was nothing to remove.\n"


@pytest.mark.usefixtures("_account")
def test_policies_for_an_administrator(gradmux: Gradmux) -> None:
    ran = gradmux("deploy", "--policies", "--bucket", "theirs")
    assert set(ran.document) == {"worker_trust", "worker", "client"}
    assert "arn:aws:s3:::theirs/runs/*/results/*" in ran.out
    assert f"arn:aws:lambda:eu-central-1:{ACCOUNT}:function:gradmux-worker" in ran.out


def test_policies_need_no_account(gradmux: Gradmux, monkeypatch: pytest.MonkeyPatch) -> None:
    for region, missing in ((None, "<account> and <region> stand for"), ("eu-central-1", "<account> stand for")):
        if region:
            monkeypatch.setenv("AWS_REGION", region)
        ran = gradmux("deploy", "--policies")
        assert (ran.code, ran.err.count("\n")) == (0, 1)
        assert missing in ran.err
        shown = region or "<region>"
        assert f"arn:aws:lambda:{shown}:<account>:function:gradmux-worker" in ran.out
        assert f"arn:aws:s3:::gradmux-<account>-{shown}/" in ran.out


@pytest.mark.usefixtures("_account")
def test_no_secret_is_printed(gradmux: Gradmux) -> None:
    for arguments in (["deploy", "--dry-run"], ["deploy", "--dry-run", "--json"], ["doctor", "--name", "none", "-vv"]):
        ran = gradmux(*arguments)
        assert "s3cret-key" not in ran.out + ran.err


@pytest.mark.usefixtures("_account")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--memory", "100"], 2, "memory must be from 512 to 10,240 MB, got 100"),
        (["--name", "Upper"], 2, "name 'Upper': use lower-case letters"),
        (["--role", "arn:aws:iam::1:role/r"], 2, "give --bucket"),
        (["--requirements", "none.txt"], 2, "does not exist"),
        (["--bucket", "b", "--builder", "docker", "--dry-run"], 2, "start docker, or use --builder cloud"),
    ],
)
def test_what_cannot_be_is_one_line(gradmux: Gradmux, arguments: list[str], code: int, message: str) -> None:
    ran = gradmux("deploy", *arguments)
    assert ran.code == code
    assert len(ran.err.splitlines()) == 1
    assert message in ran.err


def test_without_an_account_it_is_one_line_and_exit_code_3(gradmux: Gradmux, monkeypatch: pytest.MonkeyPatch) -> None:
    none, emulator = "no AWS region: set AWS_REGION, or region in the AWS profile", "`gradmux doctor --local`"
    for command, more in (("deploy", ""), ("destroy", ""), ("doctor", f"; or look at the emulator: {emulator}")):
        ran = gradmux(command)
        assert (ran.code, ran.err) == (3, f"gradmux: {none}{more}\n")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    ran = gradmux("deploy", "--json")
    assert ran.code == 3
    assert "Unable to locate credentials" in ran.document["error"]


@pytest.mark.usefixtures("_account")
def test_deploying_again_keeps_what_is_not_asked_for_and_asks_before_a_loss(gradmux: Gradmux) -> None:
    first = gradmux(
        "deploy",
        "--image",
        IMAGE,
        "--memory",
        "4096",
        "--keep-days",
        "0",
        "--reserved",
        "5",
        "--requirements",
        os.devnull,
    )
    assert first.code == 0, first.err
    planned = gradmux("deploy", "--timeout", "300", "--dry-run", "--json").document
    assert [(each["name"], each["old"], each["new"]) for each in planned["changes"]] == [("timeout", "60 s", "300 s")]
    again = gradmux("deploy", "--timeout", "300")
    assert again.code == 0, again.err
    assert "timeout: 60 s -> 300 s" in again.err
    refused = gradmux("deploy", "--keep-days", "30")
    assert (refused.code, refused.err.splitlines()[-1].count("repeat with --yes")) == (2, 1)
    assert gradmux("deploy", "--reserved", "none", "--dry-run", "--json").document["changes"][0]["new"] == "none"
    sure = gradmux("deploy", "--keep-days", "30", "--yes", "--json")
    assert sure.code == 0, sure.err
    assert gradmux("deploy", "--json").document["steps"] == []
