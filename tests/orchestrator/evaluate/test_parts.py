"""The evaluator's parts, each against the plain way of saying the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.evaluate import Batch, Chance, Evaluator, Setting, bits, grids
from gradmux.orchestrator.evaluate.cover import Cover
from gradmux.orchestrator.evaluate.in_flight import InFlight
from gradmux.orchestrator.evaluate.published.models import NEVER, Arbitrary, Bursty, Model
from gradmux.orchestrator.evaluate.published.unions import Past, SlidingUnions
from gradmux.orchestrator.fleets.profile_fleet import LoadModel
from gradmux.orchestrator.policies import Earliest, Limits, Mu
from gradmux.orchestrator.schemes import stragglers
from gradmux.orchestrator.schemes.codes import FractionalCode
from gradmux.orchestrator.schemes.scheme import BoolArray

WORKERS = st.sampled_from([1, 5, 63, 64, 65, 130])


@st.composite
def members(draw: st.DrawFn, sets: int, workers: int) -> BoolArray:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.random((sets, workers)) < draw(st.sampled_from([0.0, 0.05, 0.5, 1.0]))


@given(data=st.data(), workers=WORKERS)
def test_sets_as_bits(data: st.DataObject, workers: int) -> None:
    one, other = data.draw(members(4, workers)), data.draw(members(4, workers))
    np.testing.assert_array_equal(bits.unpack(bits.pack(one), workers), one)
    np.testing.assert_array_equal(bits.size(bits.pack(one)), one.sum(axis=1))
    np.testing.assert_array_equal(bits.meet(bits.pack(one), bits.pack(other)), (one & other).any(axis=1))
    wanted = np.array(data.draw(st.lists(st.integers(0, workers), min_size=4, max_size=4)))
    lowest = one & (np.cumsum(one, axis=1) <= wanted[:, np.newaxis])
    np.testing.assert_array_equal(bits.unpack(bits.lowest(bits.pack(one), wanted), workers), lowest)


@given(order=st.integers(1, 130).flatmap(lambda n: st.permutations(range(n))))
def test_the_last_k_of_an_order(order: list[int]) -> None:
    table = bits.unpack(bits.suffixes(np.array(order)), len(order))
    for k in range(len(order) + 1):
        assert set(np.flatnonzero(table[k])) == set(order[len(order) - k :])


@given(data=st.data())
def test_sliding_unions_with_forks(data: st.DataObject) -> None:
    workers = 9
    lengths = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    unions, past = SlidingUnions(np.array(lengths), workers), Past(5, workers, len(lengths))
    history: list[list[BoolArray]] = [[] for _ in lengths]
    for _ in range(data.draw(st.integers(1, 14))):
        sets = data.draw(members(len(lengths), workers))
        unions.push(bits.pack(sets))
        past.push(bits.pack(sets))
        for row, of in zip(sets, history, strict=True):
            of.append(row)
        parents = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=2))
        unions.fork(np.array(parents, dtype=np.int64), len(lengths))
        past.fork(np.array(parents, dtype=np.int64), len(lengths))
        lengths += [lengths[parent] for parent in parents]
        history += [list(history[parent]) for parent in parents]
        found, ago = bits.unpack(unions.union(), workers), bits.unpack(past.ago(np.array(lengths)), workers)
        for row, (length, of) in enumerate(zip(lengths, history, strict=True)):
            np.testing.assert_array_equal(found[row], np.any(of[-length:], axis=0))
            np.testing.assert_array_equal(ago[row], of[-length] if len(of) >= length else np.zeros(workers, np.bool_))


@given(data=st.data(), kind=st.sampled_from(["bursty", "arbitrary"]))
def test_the_straggler_models_are_those_of_the_schemes(data: st.DataObject, kind: str) -> None:
    workers, burst, times = 7, data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    window, most = burst + times, data.draw(st.integers(0, 7))
    plain: stragglers.Bursty | stragglers.Arbitrary
    model: Model
    if kind == "bursty":
        plain, model = stragglers.Bursty(burst, window, most, workers), Bursty(*np.array([[burst], [window]]), workers)
    else:
        plain, model = (
            stragglers.Arbitrary(burst, window, most, workers),
            Arbitrary(*np.array([[burst], [window]]), workers),
        )
    for _ in range(data.draw(st.integers(1, 12))):
        late = data.draw(members(1, workers))
        least = model.least(bits.pack(late), np.array([0]))[0]
        assert (least <= most) == plain.admits(late[0])
        late &= plain.admits(late[0])
        plain.commit(late[0])
        model.commit(bits.pack(late))
    assert least == NEVER or least <= workers


@given(workers=st.integers(1, 40), seed=st.integers(0, 9), job=st.integers(0, 9), data=st.data())
def test_codes_of_all_sizes_cut_one_line(workers: int, seed: int, job: int, data: st.DataObject) -> None:
    tolerances = np.array(data.draw(st.lists(st.integers(0, workers - 1), min_size=1, max_size=4)))
    cover = Cover(workers, workers // (tolerances + 1))
    line = Chance(workers, seed).line(workers, job)
    answer_s = np.random.default_rng(seed).random((tolerances.size, workers))
    covered_s = cover.covered_at(answer_s[:, line])
    for column, tolerance in enumerate(tolerances.tolist()):
        word = FractionalCode(workers, tolerance, seed).draw(job)
        assert word.covers(answer_s[column] <= covered_s[column])
        assert not word.covers(answer_s[column] < covered_s[column])


@given(data=st.data())
def test_what_is_in_flight(data: st.DataObject) -> None:
    running, plain, now = InFlight(1), [], 0.0
    peak = 0
    for _ in range(data.draw(st.integers(1, 6))):
        new = [now + after for after in data.draw(st.lists(st.integers(1, 9), max_size=4))]
        running.add(np.array([new], dtype=np.float64).reshape(1, -1))
        plain += new
        peak = max(peak, len(plain))
        allowed = data.draw(st.integers(0, 5))
        expected = sorted(plain)[-allowed - 1] if len(plain) > allowed else -np.inf
        assert running.at_most(allowed)[0] == expected
        now += data.draw(st.integers(0, 5))
        assert running.count(np.array([now]))[0] == sum(at > now for at in plain)
        running.drop(np.array([now]))
        plain = [at for at in plain if at > now]
        assert running.row(0) == sorted(plain)
    assert running.peak[0] == peak


def test_one_set_stands_for_all_with_the_same_groups() -> None:
    delays = np.random.default_rng(1).lognormal(0, 1, (9, 24))
    evaluator = Evaluator(Setting(delays, jobs=9, load=LoadModel(0.0)))
    every = evaluator.play(Batch("gc", 24, {"stragglers": np.arange(1, 24)}, 23, "fractional"))
    [few] = grids.for_tuning("gc", 24, models=1, max_load=24)
    assert few.size < 23
    assert set(evaluator.play(few).total_s) == set(every.total_s)


@settings(deadline=None)
@given(
    models=st.integers(1, 5), workers=st.integers(1, 30), scheme=st.sampled_from(["gc", "sr-sgc", "m-sgc", "pipeline"])
)
def test_what_the_tuner_tries_fits_models_and_load(models: int, workers: int, scheme: str) -> None:
    for batch in grids.for_tuning(scheme, workers, models=models, max_load=3.0):
        assert (batch.delay() <= models - 1).all()
        assert (batch.load() * workers <= 3.0 + 1e-6).all()
        assert len({tuple(batch.params(column).items()) for column in range(batch.size)}) == batch.size


REFUSED = {
    "too little concurrency": (Setting(np.ones((2, 4)), limits=Limits(concurrency=3)), {}),
    "late answers under the mu rule": (Setting(np.ones((2, 4)), wait=Mu(1.0)), {"scheme": "sr-sgc"}),
    "lambda = n": (Setting(np.ones((2, 4)), wait=Earliest()), {"scheme": "m-sgc", "most": 4}),
    "lambda = n, invoked": (Setting(np.ones((2, 4)), limits=Limits(invoke_idle=True)), {"most": 4, "load": 0.5}),
    "idle workers": (Setting(np.ones((2, 4)), limits=Limits(invoke_idle=True)), {}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_covered_is_refused(case: str) -> None:
    setting, changes = REFUSED[case]
    values = {name: np.array([value]) for name, value in (("burst", 1), ("window", 2))}
    values["max_stragglers"] = np.array([changes.get("most", 2)])
    loads = np.array([changes["load"]]) if "load" in changes else None
    batch = Batch(str(changes.get("scheme", "m-sgc")), 4, values, 1, "fractional", loads)
    with pytest.raises(ConfigError):
        Evaluator(setting).play(batch)


def test_what_only_the_loop_plays_is_refused() -> None:
    failing = Setting(np.array([[1.0, np.inf]]))
    values = {"share": np.array([0.9]), "mu": np.array([1.0])}
    with pytest.raises(ConfigError, match="backup is not evaluated where calls fail: use simulate"):
        Evaluator(failing).play(Batch("backup", 2, values, 1))
    with pytest.raises(ConfigError, match="use simulate"):
        Setting(np.ones((2, 4)), limits=Limits(deadline_s=1.0))
