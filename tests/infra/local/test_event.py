"""Reading the placement of an event from its first bytes agrees with parsing all of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmux.infra.local.event import EventFields, event_fields

VALUES = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(0, 2) | st.text(max_size=12)
NESTED = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
NAMES = st.sampled_from(["op", "round", "worker", "attempt", "load", "run", "tasks", 'x"round":9,"', "{", "[", ","])


def request(**changes: Any) -> dict[str, Any]:
    fields = {"protocol": 3, "op": "gradient", "run": "digits-1", "epoch": 0, "round": 12, "worker": 3, "attempt": 2}
    return {**fields, "load": 0.25, "bucket": "b", "tasks": [{"slot": 0, "round": 99, "worker": 98}], **changes}


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n", " :\t")])
def test_the_contract_s_fields_are_found(separators: tuple[str, str]) -> None:
    payload = json.dumps(request(), separators=separators).encode()
    assert event_fields(payload) == EventFields(round=12, worker=3, attempt=2, load=0.25)


def test_megabytes_behind_the_fields_do_not_matter() -> None:
    payload = json.dumps(request(tasks=["x" * 1_000_000])).encode()
    assert event_fields(payload) == EventFields(round=12, worker=3, attempt=2, load=0.25)


def test_fields_behind_something_nested_are_found_too() -> None:
    payload = json.dumps({"tasks": [{"round": 99}], **request()}).encode()
    assert event_fields(payload) == EventFields(round=12, worker=3, attempt=2, load=0.25)


@pytest.mark.parametrize("run", ['"round":7,', ',"round":7,"', "{", "[", "\\", '\\","round":7,"x":"', "é\n"])
def test_a_text_cannot_pretend_to_be_a_field(run: str) -> None:
    assert event_fields(json.dumps(request(run=run)).encode()) == EventFields(12, 3, 2, 0.25)


@pytest.mark.parametrize(
    "payload", [b"", b"{}", b"[]", b"3", b"null", b"{", b"\xff\xfe", b'{"round": 1}', b'{"round":"1"}']
)
def test_other_events_stand_nowhere(payload: bytes) -> None:
    assert event_fields(payload) is None


def test_a_warm_request_stands_nowhere() -> None:
    assert event_fields(json.dumps(request(op="warm")).encode()) is None
    assert event_fields(json.dumps(request(op="reduce")).encode()) is None


def test_attempt_and_load_have_defaults() -> None:
    assert event_fields(b'{"round": 1, "worker": 2}') == EventFields(round=1, worker=2, attempt=1, load=0.0)


@given(st.lists(st.tuples(NAMES, NESTED), max_size=8))
def test_it_agrees_with_a_full_parse(items: list[tuple[str, Any]]) -> None:
    event = dict(items)
    whole = json.dumps({"pad": [], **event}).encode()  # begins with something nested: the slow way
    assert event_fields(json.dumps(event).encode()) == event_fields(whole)


def messages(*terms: tuple[int, list[int | float]]) -> list[dict[str, Any]]:
    """One task for each (message, term) of 80 passes; message 0 is the default, which does not travel."""
    numbers = [{"message": message} if message else {} for message, _ in terms]
    return [{"slot": 0, "passes": 80, "terms": [term], **n} for n, (_, term) in zip(numbers, terms, strict=True)]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_the_load_of_the_first_of_several_messages(separators: tuple[str, str]) -> None:
    """20 passes of 80, of a load of 0.25."""
    tasks = messages((1, [0, 30, 1.0]), (0, [30, 50, -1.0]), (2, [50, 80, 1.0]))
    early = json.dumps(request(reply={"early": True}, tasks=tasks), separators=separators).encode()
    assert event_fields(early) == EventFields(12, 3, 2, 0.25, early_load=0.25 * 20 / 80)
    assert event_fields(early.replace(b"true", b"false")) == EventFields(12, 3, 2, 0.25, early_load=None)


@pytest.mark.parametrize("tasks", [None, [], [{"message": 0}], [{"terms": "?"}], [{"passes": 0, "terms": []}]])
def test_messages_that_say_nothing_of_their_passes_come_at_the_end(tasks: Any) -> None:
    payload = json.dumps(request(reply={"early": True}, tasks=tasks)).encode()
    assert event_fields(payload) == EventFields(12, 3, 2, 0.25, early_load=0.25)
