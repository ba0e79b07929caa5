"""A store that was stopped is noticed though nothing here asks it: a small question now and then says that it lives."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import botocore.session
import pytest

from gradmux.orchestrator.errors import PreflightError, RunStopped
from gradmux.orchestrator.runs.patience import PatientStore
from gradmux.orchestrator.runs.pulse import EVERY_S, Pulse
from gradmux.orchestrator.store import MemoryStore, S3Store


class Questions:
    """Begins no thread: a question is answered when the test says so."""

    def __init__(self, trouble: Exception | None = None) -> None:
        self.now_s, self.asked, self.trouble = 0.0, 0, trouble
        self.open: list[Callable[[], None]] = []
        self.pulse = Pulse(self.question, lambda: self.now_s, self.open.append)

    def question(self) -> None:
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble

    def answer(self) -> None:
        self.open.pop()()


@pytest.mark.parametrize("trouble", [None, PreflightError("refused"), OSError("reset")])
def test_one_question_at_a_time_and_any_answer_counts(trouble: Exception | None) -> None:
    this = Questions(trouble)
    assert this.pulse.silent_s() == 0.0
    this.now_s = 7.0
    assert this.pulse.silent_s() == 7.0
    assert len(this.open) == 1
    this.answer()
    assert this.pulse.silent_s() == 0.0
    assert this.open == [], "an answer lasts a while: questions cost money"
    this.now_s += EVERY_S
    assert this.pulse.silent_s() == 0.0
    this.now_s += 3.0
    assert this.pulse.silent_s() == 3.0
    assert this.asked == 1


class Stopped(MemoryStore):
    """Answers nothing until it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()

    def exists(self, key: str) -> bool:
        assert self.goes_on.wait(60)
        return False


@pytest.fixture
def stopped() -> Iterator[Stopped]:
    client = Stopped()
    yield client
    client.goes_on.set()


def look(store: PatientStore, times: int) -> None:
    waiting = threading.Event()
    for _ in range(times):
        store.check()
        waiting.wait(0.05)


def test_a_stopped_store_ends_a_run_that_waits_for_its_workers(stopped: Stopped) -> None:
    store = PatientStore(lambda: stopped, patience_s=0.3, should_stop=lambda: None)
    with pytest.raises(RunStopped, match=r"has not answered for .* waited 0\.3 s, then gave up") as caught:
        look(store, 400)
    assert caught.value.exit_code == 5
    assert "\n" not in str(caught.value)
    assert not store.at_once(lambda client: client.put("x", b""), limit_s=60.0), "it is not asked again"
    store.close()


def test_one_that_goes_on_in_time_is_no_trouble(stopped: Stopped) -> None:
    store = PatientStore(lambda: stopped, patience_s=30.0, should_stop=lambda: None)
    look(store, 2)
    stopped.goes_on.set()
    look(store, 4)
    store.close()


def test_without_patience_only_what_is_asked_counts(stopped: Stopped) -> None:
    store = PatientStore(lambda: stopped, patience_s=0.0, should_stop=lambda: None)
    look(store, 3)
    store.close()


def test_a_server_that_takes_connections_and_is_silent() -> None:
    """What SIGSTOP makes of a real one: the kernel still takes its connections."""
    session = botocore.session.Session()
    session.set_credentials("key", "secret")
    session.set_config_variable("region", "us-east-1")
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"

        def connect() -> S3Store:
            return S3Store("bucket", endpoint_url=url, session=session, patience_s=20.0)

        store = PatientStore(connect, patience_s=0.5, should_stop=lambda: None)
        with pytest.raises(RunStopped, match="has not answered for"):
            look(store, 400)
        store.close()
