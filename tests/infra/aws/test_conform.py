"""`conform` against the emulator, where all is as assumed, and against endpoints that are not as AWS is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradmux.infra.aws.conform import Place, Result, State, conform, document, lines
from gradmux.infra.closed_session import closed_session
from gradmux.infra.local.examine import emulated
from tests.orchestrator.standin import Asked, Said, page, passed_on, standing_in


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with emulated() as place:
        yield place


@pytest.fixture(scope="module")
def results(place: Place) -> list[Result]:
    return list(conform(place))


def test_the_emulator_is_as_assumed(results: list[Result]) -> None:
    assert [line for line in lines(results) if not line.startswith("ok")] == []
    assert len(results) > 25


def test_the_report_can_be_sent(place: Place, results: list[Result]) -> None:
    told = json.loads(json.dumps(document(place, results)))
    assert told["differs"] == []
    assert told["versions"]["gradmux"]
    credentials = place.session.get_credentials()
    assert credentials is not None
    assert credentials.secret_key not in json.dumps(told)


def test_nothing_is_left_in_the_bucket(place: Place, results: list[Result]) -> None:
    from gradmux.orchestrator.store import S3Store

    store = S3Store(place.bucket, endpoint_url=place.s3_url, session=place.session)
    assert store.list("runs/conform-") == []


def test_a_store_without_conditions_and_signatures_differs_in_just_that(place: Place) -> None:
    """The same server, behind one that drops a header and signs for everybody."""
    assert place.s3_url is not None
    s3_url = place.s3_url

    def behave(asked: Asked) -> Said:
        return passed_on(s3_url, asked, leaving_out=("if-none-match",))

    with standing_in(behave) as url:
        found = {
            result.name
            for result in conform(Place(place.session, None, url, "", place.bucket))
            if result.state is State.DIFFERS
        }
    assert "s3.condition" in found


def test_a_web_page_differs_in_everything_and_breaks_nothing() -> None:
    with standing_in(lambda asked: page(403)) as url:
        found = list(conform(Place(closed_session("us-east-1"), url, "", "function", "")))
    assert {result.state for result in found} >= {State.DIFFERS}
    assert all("\n" not in result.says for result in found)


def test_the_command_writes_its_report(tmp_path: Path) -> None:
    from gradmux.cli.main import run

    assert run(["conform", "--json"]) == 2
    report = tmp_path / "report.json"
    assert run(["conform", "--local", "--report", str(report)]) == 0
    assert json.loads(report.read_text())["differs"] == []
