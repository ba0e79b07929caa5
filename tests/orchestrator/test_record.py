"""The record on disk: every line comes back as it went, torn and foreign lines are told apart."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmux.orchestrator.record import (
    Beside,
    Decoded,
    EndLine,
    FileRecord,
    Header,
    Heard,
    RecordError,
    RoundLine,
    Sent,
    decode_line,
    encode_line,
    read_record,
)

HEADER = Header(
    "r", "gc", {"stragglers": 2}, 8, 4, 10, 0, {"rule": "earliest"}, {"harvest_late": True}, names=("a", "b")
)
times = st.floats(0, 1e6, allow_nan=False)
heards = st.builds(
    Heard,
    at_s=times,
    round=st.integers(0, 99),
    worker=st.integers(0, 255),
    attempt=st.integers(1, 3),
    outcome=st.sampled_from(["ok", "crashed", "timed_out"]),
    slots=st.lists(st.integers(0, 3), max_size=3).map(tuple),
    skipped=st.just(()),
    final=st.booleans(),
    billed_s=times,
    worker_s=times,
    cold=st.booleans(),
    error=st.text(max_size=20),
)
rounds = st.builds(
    RoundLine,
    round=st.integers(0, 99),
    start_s=times,
    end_s=times,
    load=times,
    late=st.lists(st.integers(0, 255), max_size=4).map(tuple),
    waited=st.booleans(),
    in_flight=st.integers(0, 999),
    sent=st.lists(st.builds(Sent, times, st.integers(0, 9), st.just(1), st.just((0,)), st.just((0.5,)))).map(tuple),
    arrivals=st.lists(heards, max_size=3).map(tuple),
    decoded=st.lists(
        st.builds(Decoded, *[st.integers(0, 9)] * 3, times, st.integers(0, 9), st.integers(0, 2**32 - 1), *[times] * 4,
                  st.integers(0, 9), st.integers(0, 9), times),
        max_size=2,
    ).map(tuple),
    asked=st.lists(st.tuples(st.text(max_size=5), times), max_size=2).map(tuple),
    beside=st.builds(Beside, st.integers(0, 99), times),
)  # fmt: skip


@given(rounds)
def test_a_round_comes_back_to_the_last_bit(line: RoundLine) -> None:
    assert decode_line(encode_line(line)) == line


def test_header_and_end_come_back() -> None:
    end = EndLine("stopped", 3.5, "why", beside=Beside(3, 0.25), cpus=("a CPU", "another"))
    assert decode_line(encode_line(HEADER)) == HEADER
    assert decode_line(encode_line(end)) == end


def test_a_record_from_before_calls_beside_the_rounds_were_counted() -> None:
    fields = json.loads(encode_line(EndLine("done", 1.0)))
    del fields["beside"]
    assert decode_line(json.dumps(fields)) == EndLine("done", 1.0)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)
    )
)
def test_anything_else_is_refused_in_one_line(value: object) -> None:
    for candidate in (json.dumps(value), json.dumps({"kind": "round", "arrivals": value}), "{", ""):
        with pytest.raises(RecordError, match="is not a line of a run's record"):
            decode_line(candidate)


def test_a_torn_last_line_is_left_out_and_cut_off_when_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    first = FileRecord(path)
    first.write(HEADER)
    first.close()
    whole = path.read_bytes()
    path.write_bytes(whole + encode_line(EndLine("done", 1.0))[:17])
    assert list(read_record(path)) == [HEADER]
    again = FileRecord(path)
    again.write(EndLine("done", 2.0))
    again.close()
    assert list(read_record(path)) == [HEADER, EndLine("done", 2.0)]


def test_a_missing_or_foreign_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"cannot read the record .*nothing\.jsonl: No such file"):
        list(read_record(tmp_path / "nothing.jsonl"))
    foreign = tmp_path / "foreign.bin"
    foreign.write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(RecordError, match="it is not text"):
        list(read_record(foreign))


def test_numbers_are_plain_and_finite_and_types_are_what_they_should_be() -> None:
    told = EndLine("done", float(np.float64(1.5)), beside=Beside(1, np.float64(0.25)))
    assert decode_line(encode_line(told)) == EndLine("done", 1.5, beside=Beside(1, 0.25))
    for odd in (math.nan, math.inf, np.float64("nan")):
        with pytest.raises(ValueError, match="not finite"):
            encode_line(EndLine("done", odd, "null"))
    whole = json.loads(encode_line(HEADER))
    assert decode_line(json.dumps({**whole, "extra": {"none": None}})).extra == {"none": None}  # type: ignore[union-attr]
    for name, value in {"workers": "6", "names": "ab", "params": [], "more": 1, "kind": "other"}.items():
        with pytest.raises(RecordError, match="is not a line of a run's record"):
            decode_line(json.dumps({**whole, name: value}))
