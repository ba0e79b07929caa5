"""Hypothesis strategies for everything that the contract carries."""

from __future__ import annotations

from hypothesis import strategies as st

from gradmux.lambda_worker.contract import (
    DTYPES,
    Chunk,
    Reduction,
    Reply,
    ReplyMode,
    Request,
    Result,
    Rows,
    Skip,
    Source,
    Task,
    Timing,
    Weights,
)

numbers = st.integers(0, 2**63 - 1)
small = st.integers(0, 1000)
finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(0, allow_nan=False, allow_infinity=False)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)

weights = st.one_of(st.builds(Weights, key=names), st.builds(Weights, inline=st.binary(max_size=40)))
rows = st.one_of(
    st.tuples(small, st.integers(1, 50)).map(lambda pair: Rows(pair[0], pair[0] + pair[1])),
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8).map(Rows.of),
)
chunks = st.builds(Chunk, rows=rows, coefficient=finite, seed=numbers)
skips = st.builds(Skip, weights=weights, threshold=positive)
tasks = st.builds(
    Task,
    slot=small,
    job=numbers,
    model=names,
    weights=weights,
    chunks=st.lists(chunks, min_size=1, max_size=4).map(tuple),
    message=st.integers(0, 3),
    seed=numbers,
    skip=st.none() | skips,
)
reply_modes = st.builds(
    ReplyMode,
    mode=st.sampled_from(("auto", "inline", "s3")),
    dtype=st.sampled_from(DTYPES),
    prefix=names,
    max_inline=numbers,
    early=st.booleans(),
    post=st.booleans(),
)
reductions = st.builds(
    Reduction,
    job=numbers,
    sources=st.lists(
        st.builds(Source, key=names, weight=finite, offset=numbers, scale=finite), min_size=1, max_size=4
    ).map(tuple),
    lo=st.just(3),
    hi=st.integers(4, 99),
    out=names,
    dtype=st.sampled_from(DTYPES),
)
requests = st.builds(
    Request,
    op=st.sampled_from(("gradient", "warm")),
    run=names,
    epoch=numbers,
    round=numbers,
    worker=numbers,
    bucket=names,
    attempt=st.integers(1, 2**63 - 1),
    load=positive,
    cancel=st.none() | names,
    data=names,
    reply=reply_modes,
    tasks=st.lists(tasks, max_size=4, unique_by=lambda task: task.slot).map(tuple),
) | st.builds(
    Request,
    op=st.just("reduce"),
    run=names,
    epoch=numbers,
    round=numbers,
    worker=numbers,
    bucket=names,
    reply=reply_modes,
    reduce=reductions,
)

sums = st.lists(finite, max_size=5).map(tuple)
results = st.one_of(
    st.builds(
        lambda slot, job, raw: Result(slot, job, "ok", buffer=raw, size=len(raw)),
        small,
        numbers,
        st.binary(max_size=60),
    ),
    st.builds(
        Result,
        slot=small,
        job=numbers,
        status=st.just("ok"),
        key=names,
        size=numbers,
        offset=small,
        scale=finite,
        sums=sums,
    ),
    st.builds(Result, slot=small, job=numbers, status=st.just("skipped"), distance=positive, sums=sums),
    st.builds(Result, slot=small, job=numbers, status=st.just("failed"), error=names, message=small),
    st.builds(Result, slot=small, job=numbers, status=st.just("cancelled")),
)
replies = st.builds(
    Reply,
    op=st.sampled_from(("gradient", "warm", "reduce")),
    run=names,
    epoch=numbers,
    round=numbers,
    worker=numbers,
    attempt=st.integers(1, 99),
    results=st.lists(results, max_size=4).map(tuple),
    timing=st.builds(Timing, compute_s=positive, read_s=positive, write_s=positive, cold=st.booleans()),
    cpu=st.text(st.characters(codec="utf-8"), max_size=20),
)
