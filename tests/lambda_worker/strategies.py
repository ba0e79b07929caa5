"""Hypothesis strategies for everything that the contract carries."""

from __future__ import annotations

from hypothesis import strategies as st

from gradmux.lambda_worker.contract import (
    DTYPES,
    Divergence,
    Figures,
    Order,
    Reduction,
    Reply,
    ReplyMode,
    Request,
    Result,
    Skip,
    Source,
    State,
    Stretch,
    Stretched,
    Task,
    Term,
    Timing,
    Weights,
)

numbers = st.integers(0, 2**63 - 1)
small = st.integers(0, 1000)
finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(0, allow_nan=False, allow_infinity=False)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)

inline = st.binary(min_size=1, max_size=40)
weights = st.one_of(st.builds(Weights, key=names), inline.map(Weights.of))
states = st.one_of(st.builds(State, key=names), inline.map(State.of))


@st.composite
def orders(draw: st.DrawFn) -> tuple[Order, int]:
    """An order, and into how many passes its batches are cut."""
    batch_size = draw(st.integers(1, 50))
    order = Order(batch_size + draw(small), batch_size, draw(numbers), draw(st.booleans()))
    return order, draw(st.integers(1, batch_size))


@st.composite
def terms(draw: st.DrawFn, passes: int) -> tuple[Term, ...]:
    """Ranges of some of the passes, ascending."""
    edges = sorted(draw(st.sets(st.integers(0, passes), max_size=8)))
    return tuple(Term(lo, hi, draw(finite)) for lo, hi in zip(edges[::2], edges[1::2], strict=False))


skips = st.builds(Skip, weights=weights, threshold=positive)


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    order, passes = draw(orders())
    return Task(
        slot=draw(small),
        job=draw(numbers),
        model=draw(names),
        weights=draw(weights),
        order=order,
        step=draw(numbers),
        passes=passes,
        terms=draw(terms(passes)),
        message=draw(st.integers(0, 3)),
        seed=draw(numbers),
        skip=draw(st.none() | skips),
    )


@st.composite
def stretches(draw: st.DrawFn) -> Stretch:
    order, passes = draw(orders())
    first, steps = draw(small), draw(st.integers(1, 9))
    return Stretch(
        slot=draw(small),
        job=draw(numbers),
        model=draw(names),
        state=draw(states),
        order=order,
        first=first,
        steps=steps,
        passes=passes,
        seed=draw(numbers),
        keep=tuple(sorted(draw(st.sets(st.integers(first, first + steps - 1), max_size=3)))),
        done=draw(st.none() | names),
        budget_s=draw(st.none() | positive),
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
requests = (
    st.builds(
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
        tasks=st.lists(tasks(), max_size=4, unique_by=lambda task: task.slot).map(tuple),
    )
    | st.builds(
        Request,
        op=st.just("steps"),
        run=names,
        epoch=numbers,
        round=numbers,
        worker=numbers,
        bucket=names,
        data=names,
        reply=reply_modes,
        stretches=st.lists(stretches(), max_size=3, unique_by=lambda stretch: stretch.slot).map(tuple),
    )
    | st.builds(
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
)

sums = st.lists(finite, max_size=5).map(tuple)


@st.composite
def stretched(draw: st.DrawFn) -> Stretched:
    steps = draw(st.integers(0, 5))

    def column(values: st.SearchStrategy[float]) -> tuple[float, ...]:
        return tuple(draw(st.lists(values, min_size=steps, max_size=steps)))

    pairs = st.lists(st.tuples(finite, positive), min_size=steps, max_size=steps).map(tuple)
    figures = Figures(
        loss=column(finite),
        count=column(positive),
        rows=column(numbers),
        gradient_norm=column(positive),
        metrics=draw(st.dictionaries(names, pairs, max_size=2)),
    )
    diverged = st.none() | st.builds(Divergence, step=numbers, what=names)
    return Stretched(steps, figures, draw(diverged), draw(st.dictionaries(numbers.map(str), names, max_size=2)))


results = st.one_of(
    st.builds(
        lambda slot, job, raw, stretch: Result(slot, job, "ok", buffer=raw, size=len(raw), stretch=stretch),
        small,
        numbers,
        st.binary(max_size=60).map(bytearray),
        st.none() | stretched(),
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
        buffers=small,
        sums=sums,
    ),
    st.builds(Result, slot=small, job=numbers, status=st.just("ok"), key=names, stretch=stretched()),
    st.builds(Result, slot=small, job=numbers, status=st.just("skipped"), distance=positive, sums=sums),
    st.builds(Result, slot=small, job=numbers, status=st.just("failed"), error=names, message=small),
    st.builds(Result, slot=small, job=numbers, status=st.just("cancelled")),
)
replies = st.builds(
    Reply,
    op=st.sampled_from(("gradient", "steps", "warm", "reduce")),
    run=names,
    epoch=numbers,
    round=numbers,
    worker=numbers,
    attempt=st.integers(1, 99),
    results=st.lists(results, max_size=4).map(tuple),
    timing=st.builds(Timing, compute_s=positive, read_s=positive, write_s=positive, cold=st.booleans()),
    cpu=st.text(st.characters(codec="utf-8"), max_size=20),
)
