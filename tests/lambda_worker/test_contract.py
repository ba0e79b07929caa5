"""The contract: round trips, strictness, versions, sizes."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmux.lambda_worker import contract
from gradmux.lambda_worker.codec import cut_texts
from gradmux.lambda_worker.contract import (
    MAX_REPLY_BYTES,
    ContractError,
    Reply,
    ReplyMode,
    Request,
    Result,
    VersionError,
    base64_size,
    cancel_marker,
    cancelled_epoch,
    early_key,
    encode_request,
    encoded_size,
    fits_inline,
    parse_reply,
    parse_request,
    reply_json,
    reply_key,
    request_json,
    result_key,
)
from gradmux.lambda_worker.messages import Rows
from tests.lambda_worker import strategies
from tests.lambda_worker.workbench import ORDER, ROWS, spans

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(strategies.requests)
def test_requests_come_back_as_they_were(request_: Request) -> None:
    assert parse_request(encode_request(request_)) == request_
    assert parse_request(json.loads(json.dumps(request_json(request_)))) == request_


@given(strategies.replies)
def test_replies_come_back_as_they_were(reply: Reply) -> None:
    text = json.dumps(reply_json(reply))
    assert parse_reply(text) == reply
    assert parse_reply(text.encode()) == reply
    assert parse_reply(bytearray(orjson.dumps(reply_json(reply)))) == reply


texts = st.sampled_from(['"buffer":', 'buffer":', "#0", "", 'x"', "AA=="]) | st.text(max_size=8)


@given(
    document=st.recursive(
        st.integers(-9, 9) | st.none() | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("buffer") | texts, inner, max_size=3),
        max_leaves=8,
    ),
    spaced=st.booleans(),
)
def test_texts_cut_out_of_a_message_are_those_under_the_name(document: object, spaced: bool) -> None:
    """Whatever else looks like it: names in texts, marks that were there before, values that are no texts."""
    kept = with_buffers(document, lambda text: text.replace('"', "'"))  # base64 has no quotes
    message = json.dumps(kept).encode() if spaced else orjson.dumps(kept)
    rest, cut = cut_texts(message, "buffer")
    found = {mark: json.loads(b'"%s"' % text) for mark, text in cut.items()}
    assert with_buffers(json.loads(rest), found.pop) == kept
    assert not found


def with_buffers(value: object, change: Callable[[str], str], name: str = "") -> object:
    """The document with every text under "buffer" changed."""
    if isinstance(value, dict):
        return {key: with_buffers(item, change, key) for key, item in value.items()}
    if isinstance(value, list):
        return [with_buffers(item, change) for item in value]
    return change(value) if name == "buffer" and isinstance(value, str) else value


def test_a_long_buffer_is_decoded_in_place() -> None:
    """Nothing but the base64 itself is as long as the buffer."""
    raw = bytes(range(256)) * 4000
    message = json.dumps(reply_json(a_reply(raw))).encode()
    rest, cut = cut_texts(message, "buffer")
    assert len(rest) < 1000
    assert [len(text) for text in cut.values()] == [4 * ((len(raw) + 2) // 3)]
    assert parse_reply(message).results[0].buffer == raw


@pytest.mark.parametrize("text", ["#0", "AA=", "A A=", "QUJ\\u0044"])
def test_buffers_that_are_no_base64_are_contract_errors(text: str) -> None:
    message = json.dumps(reply_json(a_reply(b"abc" * 3000))).replace("YWJj", text, 1).encode()
    with pytest.raises(ContractError, match=r"results\[0\]\.buffer"):
        parse_reply(message)


def a_reply(buffer: bytes) -> Reply:
    return Reply("gradient", "r", 0, 0, 0, 1, (Result(0, 0, "ok", buffer=buffer, size=len(buffer)),))


@given(json_values | st.binary(max_size=40))
def test_anything_else_is_a_contract_error(value: object) -> None:
    for parse in (parse_request, parse_reply):
        with pytest.raises(ContractError):
            parse(value)


@given(st.data())
def test_one_damaged_field_is_a_contract_error_or_a_valid_message(data: st.DataObject) -> None:
    """Whatever a field is replaced by, parsing never fails in another way; and its error is one line."""
    for parse, document in (
        (parse_request, request_json(data.draw(strategies.requests))),
        (parse_reply, reply_json(data.draw(strategies.replies))),
    ):
        damaged = copy.deepcopy(document)
        holder, name = data.draw(st.sampled_from(list(places(damaged))))
        if data.draw(st.booleans()):
            holder[name] = data.draw(json_values)
        elif isinstance(holder, dict):
            del holder[name]
        complaint = complaint_of(parse, damaged)
        assert "\n" not in complaint
        assert len(complaint) < 1000


def complaint_of(parse: Callable[[object], object], document: object) -> str:
    """What parsing says; empty when it has nothing against the message."""
    try:
        parse(document)
    except ContractError as error:
        return str(error)
    return ""


FREE = {"key", "inline", "data", "seed", "skip", "step", "keep", "done", "load", "early", "post", "scale"}
"""fields that may be there or not"""


@given(strategies.requests, st.text(min_size=1, max_size=5).filter(lambda name: name not in FREE))
def test_unknown_fields_are_refused_at_every_level(request_: Request, name: str) -> None:
    document = request_json(request_)
    objects = [document, *(holder[key] for holder, key in places(document) if isinstance(holder[key], dict))]
    for item in objects:
        if name in item:
            continue
        item[name] = 1
        with pytest.raises(ContractError):
            parse_request(document)
        del item[name]


def places(value: Any) -> Any:
    """(holder, name) of everything inside a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in list(pairs):
        yield value, name
        yield from places(inner)


def a_request() -> dict[str, Any]:
    task = contract.Task(0, 1, "m", contract.Weights(key="w"), ORDER, 3, ROWS, spans(0, 4, 8))
    plain = Request("gradient", "run", 0, 1, 2, "bucket", data="d", reply=ReplyMode(prefix="p/"), tasks=(task,))
    return request_json(plain)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("op",), "train", "request.op: expected one of gradient, reduce, steps, warm, got 'train'"),
        (("attempt",), 0, "request.attempt: expected an integer >= 1, got 0"),
        (("attempt",), 2**63, "request.attempt: expected an integer <= 9223372036854775807, got a huge integer"),
        (("epoch",), True, "request.epoch: expected an integer, got True"),
        (("load",), float("nan"), "request.load: expected a number, got None"),
        (("load",), -1.0, "request.load: expected a number >= 0.0, got -1.0"),
        (("run",), "", "request.run: expected a string that is not empty, got ''"),
        (("tasks",), {}, "request.tasks: expected a list, got an object of 0"),
        (("tasks", 0), [1, 2], "request.tasks[0]: expected an object, got a list of 2"),
        (("tasks", 0, "step"), "x", "request.tasks[0].step: expected an integer, got 'x'"),
        (("tasks", 0, "terms", 1), [4], "request.tasks[0].terms[1]: expected a list of length 2 to 3, got a list of 1"),
        (
            ("tasks", 0, "terms", 1),
            [3, 8],
            "request.tasks[0].terms[1]: expected ascending ranges of passes 0 to 40",
        ),
        (("tasks", 0, "terms", 1, 1), 41, "request.tasks[0].terms[1]: expected ascending ranges of passes 0 to 40"),
        (("tasks", 0, "terms", 1, 2), "one", "request.tasks[0].terms[1][2]: expected a number, got 'one'"),
        (("tasks", 0, "passes"), 41, "request.tasks[0].passes: 41 of a batch of 40 rows"),
        (("tasks", 0, "order", "rows"), 39, "request.tasks[0].order.batch_size: 40 rows of a data set that has 39"),
        (("tasks", 0, "weights"), {}, "request.tasks[0].weights.key: expected a key or inline content, and not both"),
        (("tasks", 0, "weights", "kee"), 1, "request.tasks[0].weights: unknown field 'kee'"),
        (
            ("reply", "dtype"),
            "bfloat16",
            "request.reply.dtype: expected one of float16, float32, float64, got 'bfloat16'",
        ),
        (("reply", "prefix"), "", "request.reply.prefix: needed unless everything is answered inline"),
        (("data",), None, "request.data: tasks need a data manifest"),
    ],
)
def test_messages_say_where_and_what(path: tuple[Any, ...], value: object, message: str) -> None:
    document = a_request()
    holder: Any = document
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    with pytest.raises(ContractError) as caught:
        parse_request(document)
    assert str(caught.value) == message


def test_slots_must_differ() -> None:
    document = a_request()
    document["tasks"] *= 2
    with pytest.raises(ContractError, match="slots must differ"):
        parse_request(document)


def test_another_version_names_both() -> None:
    with pytest.raises(VersionError) as caught:
        parse_request(a_request() | {"protocol": 7, "something": "new"})
    assert str(caught.value) == (
        "this worker image speaks contract version 3, the request came in version 7: "
        "redeploy the image, or use the client that made it"
    )
    with pytest.raises(VersionError, match=r"this client speaks contract version 3, the reply came in version 0: "):
        parse_reply({"protocol": 0})
    with pytest.raises(VersionError, match="version -1"):
        parse_reply(b'{"protocol": -1}')


@pytest.mark.parametrize("parse", [parse_request, parse_reply])
def test_messages_of_version_1_are_refused_in_one_line_that_names_both(parse: Callable[[object], object]) -> None:
    """As workers and clients of that version wrote them; theirs refuse version 3 by the same field."""
    old = {"op": "gradient", "run": "r", "epoch": 0, "round": 3, "worker": 1, "attempt": 1, "results": [], "cpu": ""}
    for message in ({"protocol": 1, **old}, json.dumps({"protocol": 1, **old}).encode()):
        with pytest.raises(VersionError, match=r"speaks contract version 3, the \w+ came in version 1: redeploy"):
            parse(message)
    assert json.loads(encode_request(parse_request(a_request())))["protocol"] == 3


@pytest.mark.parametrize("protocol", [None, "2", 2.5, True, []])
def test_a_message_without_a_version_is_refused(protocol: object) -> None:
    document = a_request() | {"protocol": protocol}
    with pytest.raises(ContractError, match=r"request\.protocol: expected"):
        parse_request(document)
    del document["protocol"]
    with pytest.raises(ContractError, match="request: field 'protocol' is missing"):
        parse_request(document)


def test_a_result_has_the_evidence_of_its_status() -> None:
    good = Result(0, 1, "ok", buffer=bytearray(b"xyz"), size=3)
    reply = reply_json(Reply("gradient", "r", 0, 0, 0, 1, (good,)))
    for damage in (
        {"buffer": None},
        {"key": "k"},
        {"status": "failed"},
        {"status": "skipped", "buffer": None},
        {"error": "E: x"},
        {"size": 4},
        {"buffer": "not base64!"},
    ):
        damaged = copy.deepcopy(reply)
        damaged["results"][0].update(damage)
        with pytest.raises(ContractError):
            parse_reply(damaged)
    assert parse_reply(reply).results == (good,)


@given(strategies.replies)
def test_the_encoded_size_is_what_a_lambda_runtime_writes(reply: Reply) -> None:
    assert encoded_size(reply) == len(json.dumps(reply_json(reply)))
    assert encoded_size(reply) >= len(json.dumps(reply_json(reply), ensure_ascii=False).encode())


@given(st.binary(max_size=100))
def test_base64_size(raw: bytes) -> None:
    assert base64_size(len(raw)) == len(contract.to_base64(raw))


@pytest.mark.parametrize("slots", [1, 3])
def test_fits_inline_at_the_limit_and_one_byte_beyond(slots: int) -> None:
    def reply(total: int) -> Reply:
        sizes = [total // slots] * (slots - 1)
        sizes.append(total - sum(sizes))
        results = (Result(slot, 0, "ok", buffer=bytes(size), size=size) for slot, size in enumerate(sizes))
        return Reply("gradient", "r", 0, 0, 0, 1, tuple(results), cpu="x")

    def with_name(total: int, size: int) -> Reply:
        """Base64 comes in fours; the CPU's name takes up the rest."""
        plain = reply(total)
        return Reply(**{**as_fields(plain), "cpu": "x" * (1 + size - encoded_size(plain))})

    room = MAX_REPLY_BYTES - encoded_size(reply(0)) - 100
    total = room // 4 * 3
    for size, fits in ((MAX_REPLY_BYTES - 1, True), (MAX_REPLY_BYTES, True), (MAX_REPLY_BYTES + 1, False)):
        exact = with_name(total, size)
        assert len(json.dumps(reply_json(exact))) == size
        assert fits_inline(exact) is fits
        assert not fits_inline(exact, max_inline=size - 1)


def as_fields(reply: Reply) -> dict[str, Any]:
    return {name: getattr(reply, name) for name in Reply.__struct_fields__}


def test_rows_by_number_and_by_range_agree() -> None:
    assert Rows.of([3, 4, 5]).indices().tolist() == Rows(3, 6).indices().tolist()
    assert Rows.of([2**32 - 1]).indices().tolist() == [2**32 - 1]
    assert Rows.of([3, 3]).count == 2
    assert Rows.ascending(np.array([3, 4, 5], dtype=np.uint32)) == Rows(3, 6)
    assert Rows.ascending(np.array([3, 5], dtype=np.uint32)) == Rows.of([3, 5])


def test_key_names_differ_by_attempt_epoch_and_slot() -> None:
    request = parse_request(a_request())
    again = parse_request(a_request() | {"attempt": 2})
    later = parse_request(a_request() | {"epoch": 1})
    keys = [
        name
        for each in (request, again, later)
        for name in (result_key(each, 0), result_key(each, 1), early_key(each, 0), reply_key(each))
    ]
    assert len(set(keys)) == 12
    assert all(key.startswith("p/") for key in keys)


def test_cancel_marker() -> None:
    assert cancelled_epoch(cancel_marker(12)) == 12
    for damaged in (b"", b"x", b"-1", b"1 ", b"9" * 40):
        with pytest.raises(ContractError):
            cancelled_epoch(damaged)


def test_the_contract_is_light() -> None:
    """The client imports it at its start: no torch, no boto3."""
    program = "import sys, gradmux.lambda_worker.contract\n"
    code = program + "print([m for m in ('torch', 'boto3', 'cloudpickle') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
