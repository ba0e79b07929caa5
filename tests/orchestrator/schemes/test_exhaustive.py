"""Every straggler pattern of the declared models, n <= 4 and W <= 4: each due job decodes, and no round has to wait.

M-SGC's jobs do not influence each other, so one job shows all; SR-SGC takes workers from job B for job 0, so it plays
B + 1 jobs. "either" holds the patterns of both models.

At W = 4 and n = 3 or 4 M-SGC is played up to permutations of workers that are alike: those that share a group in all
its shared parts (fractional), or all of them (lambda = n, where nothing is shared; cyclic codes, which only count).
What a cyclic code solves for does depend on who answered: every set of answers to its shared parts is decoded besides.
Smaller sizes are played in full, and the reduced play is held to them: it must stand for just as many rounds.
Complete in this sense: 331,626 rounds (a state and a pattern each), which stand for all 1,582,520.
EXHAUSTIVE=1 plays every one of these itself: none failed, in nine minutes of processor time on a busy machine.
Without it the longest games are left out: n = W = 4 with bursts of 3 under 3 or 4 stragglers, seven schemes, of which
each number alone is also that of shorter games.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from itertools import combinations, product

import pytest

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.codes import Codeword, FractionalCode, Row
from gradmux.orchestrator.schemes.multiplexed import Multiplexed
from gradmux.orchestrator.schemes.scheme import Scheme
from gradmux.orchestrator.schemes.stragglers import Bursty
from tests.orchestrator.schemes.cases import Case, Session, Values, check, estimate_error
from tests.orchestrator.schemes.exploring import explore
from tests.orchestrator.schemes.playing import Play, make, mask

CODES = ("fractional", "cyclic")
IN_FULL = "EXHAUSTIVE" in os.environ
REDUCED = ((3, 4), (4, 4))
"""(n, W) of M-SGC"""
LONGEST = [(4, 4, 3, 3), (4, 4, 3, 4)]
"""(n, W, B, lambda)"""


def sequential(name: str, workers: int, window: int, burst: int, most: int, code: str) -> Scheme:
    jobs = 1 if name == "m-sgc" else burst + 1
    return make(name, workers, jobs, burst=burst, window=window, max_stragglers=most, code=code)


def cases() -> Iterator[tuple[str, int, int, int, int, str]]:
    """Name, n, W, B, lambda and code of all that exist; without shared part the code makes no difference."""
    for name, workers, window, code in product(("sr-sgc", "m-sgc"), (1, 2, 3, 4), (2, 3, 4), CODES):
        for burst, most in product(range(1, window), range(workers + 1)):
            if name == "m-sgc" and most == workers and code != CODES[0]:
                continue
            try:
                sequential(name, workers, window, burst, most, code)
            except ConfigError:
                continue
            if IN_FULL or (workers, window, burst, most) not in LONGEST:
                yield name, workers, window, burst, most, code


def alike(scheme: Scheme) -> list[list[int]]:
    """Sets of workers whose permutations make no difference to the only job of M-SGC."""
    assert isinstance(scheme, Multiplexed)
    if not isinstance(scheme.code, FractionalCode):
        return [list(range(scheme.workers))]
    words = [scheme.code.draw(0, part) for part in range(scheme.burst)]
    groups: dict[tuple[int, ...], list[int]] = {}
    for worker in range(scheme.workers):
        groups.setdefault(tuple(word.group[worker] for word in words), []).append(worker)
    return list(groups.values())


@pytest.mark.parametrize(("name", "workers", "window", "burst", "most", "code"), [*cases()])
def test_every_pattern_of_the_sequential_schemes_decodes(
    name: str, workers: int, window: int, burst: int, most: int, code: str
) -> None:
    scheme = sequential(name, workers, window, burst, most, code)
    model = scheme.straggler_model
    if name == "sr-sgc":
        assert explore(scheme, model("either")).rounds >= scheme.rounds
        return
    reduced = explore(scheme, model("either"), alike=alike(scheme))
    assert reduced.stands_for >= reduced.rounds >= scheme.rounds
    if IN_FULL or (workers, window) not in REDUCED:
        full = explore(scheme, model("either"))
        assert full.rounds == full.stands_for == reduced.stands_for, "one for each that it stands for"


@pytest.mark.parametrize("most", [0, 1, 2, 3])
@pytest.mark.parametrize("burst", [1, 2, 3])
def test_m_sgc_decodes_from_every_set_of_answers_to_its_shared_parts(burst: int, most: int) -> None:
    """n = W = 4 over a cyclic code: any n - lambda or more answer for each part, after all private chunks have come."""
    enough = [chosen for size in range(4 - most, 5) for chosen in combinations(range(4), size)]
    for answering in product(enough, repeat=burst):
        play = Play(sequential("m-sgc", 4, 4, burst, most, "cyclic"))
        for t in range(play.scheme.rounds):
            play.start()
            play.answer(range(4) if t < 3 else answering[t - 3])
            play.end()
        assert set(play.decoded) == {0}


@pytest.mark.parametrize("code", [*CODES, "dft"])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 6])
def test_every_pattern_of_gradient_coding_decodes(workers: int, code: str) -> None:
    for stragglers in range(workers):
        if code == "dft" and stragglers and (workers - stragglers) % 2 == 0:
            continue
        scheme = make("gc", workers, 1, stragglers=stragglers, code=code)
        assert explore(scheme, scheme.straggler_model("either")).rounds >= 1


# --- schemes of one round ---------------------------------------------------------------------------------------------


def one_round_cases() -> Iterator[tuple[str, int, Values]]:
    """Name, n and parameters of all that exist for n <= 4, but for gc, which is played above."""
    for workers in (1, 2, 3, 4):
        upto, below = range(1, workers + 1), range(workers)
        yield from ((name, workers, {}) for name in ("uncoded", "backup", "lag-ps", "lag-wk"))
        yield from (("grouping", workers, {"groups": groups}) for groups in upto)
        yield from (("fastest-k", workers, {"responses": responses}) for responses in upto)
        yield from (("g-lag", workers, {"stragglers": s}) for s in below)
        yield from (("pipeline", workers, {"per_job": workers, "stragglers": s}) for s in below)
        for s, responses, flag in product(below, upto, ("false", "true")):
            yield "agc", workers, {"stragglers": s, "responses": responses, "unbiased": flag}
        for s, code in product(below, CODES):
            yield from (("gc-partial", workers, {"private": m, "stragglers": s, "code": code}) for m in (0, 1, 2))
            groups = (groups for groups in upto if s < workers // groups)
            yield from (("lagc", workers, {"groups": g, "stragglers": s, "code": code}) for g in groups)


@pytest.mark.parametrize("name", sorted({name for name, _, _ in one_round_cases()}))
def test_every_set_of_answers_decodes_rightly_or_not_at_all(name: str) -> None:
    """Each worker sends none, some or all of its messages, in order. What the widest model admits does decode."""
    for case in (Case(name, workers, 1, params) for other, workers, params in one_round_cases() if other == name):
        opening = Session(case.build())
        opening.start()
        opened, admitted, decoded = pickle.dumps(opening), 0, 0
        owed = [opening.keys(0, worker) for worker in range(case.workers)]
        for sent in product(*(range(len(keys) + 1) for keys in owed)):
            session: Session = pickle.loads(opened)
            session.hear(key for count, keys in zip(sent, owed, strict=True) for key in keys[:count])
            late = [worker for worker, keys in enumerate(owed) if sent[worker] < len(keys)]
            admits = session.scheme.straggler_model("either").admits(mask(case.workers, late))
            assert session.scheme.may_start(1) == session.scheme.decodable(0) >= admits
            if session.scheme.decodable(0):
                check(session, 0, session.scheme.decode(0))
            elif not session.scheme.reuses_results:
                assert estimate_error(session) > 1e-9, "these answers do suffice"
            admitted, decoded = admitted + admits, decoded + session.scheme.decodable(0)
        assert decoded >= admitted >= 1


# --- what must fail --------------------------------------------------------------------------------------------------

WEAKER = [
    # n, W, B, lambda of what is promised; what the scheme is built for instead; codes that must not bear it (one
    # group of all workers does)
    ((4, 2, 1, 1), {"most": 0}, CODES),
    ((4, 2, 1, 2), {"most": 1}, CODES),
    ((4, 3, 1, 3), {"most": 2}, ("cyclic",)),
    ((3, 3, 2, 2), {"most": 1}, ("cyclic",)),
    ((3, 3, 2, 2), {"burst": 1}, ("cyclic",)),
    ((4, 3, 2, 4), {"burst": 1}, CODES),
]


@pytest.mark.parametrize(("promised", "built", "code"), [(p, b, code) for p, b, codes in WEAKER for code in codes])
@pytest.mark.parametrize("name", ["sr-sgc", "m-sgc"])
def test_a_weaker_scheme_is_found_out(
    name: str, promised: tuple[int, int, int, int], built: dict[str, int], code: str
) -> None:
    """Built for one straggler less, or for shorter bursts: no play of what it does not promise goes through."""
    workers, window, burst, most = promised
    weaker = sequential(name, workers, window, **{"burst": burst, "most": most, **built}, code=code)
    if name == "m-sgc":
        with pytest.raises(AssertionError, match=r"may not end|does not decode"):
            explore(weaker, Bursty(burst, window, most, workers), alike=alike(weaker))
    with pytest.raises(AssertionError, match=r"may not end|does not decode"):
        explore(weaker, Bursty(burst, window, most, workers))


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("name", ["sr-sgc", "m-sgc"])
def test_a_wrong_coefficient_is_found_out(name: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker computes 1 + 1e-9 times what it should: everything is in time, and some decodes are wrong."""
    scheme = sequential(name, 3, 3, 1, 2, code)
    word = type(scheme.code.draw(0))
    row = word.row

    def spoilt(self: Codeword, worker: int) -> Row:
        chunks, coefficients = row(self, worker)
        return chunks, tuple(c * (1 + 1e-9 * (worker == 2)) for c in coefficients)

    monkeypatch.setattr(word, "row", spoilt)
    with pytest.raises(AssertionError, match="misses 1 by"):
        explore(scheme, scheme.straggler_model("either"))
