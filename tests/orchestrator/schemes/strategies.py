"""Random schemes and straggler patterns for hypothesis."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from gradmux.orchestrator.schemes.scheme import BoolArray, Scheme, StragglerModel
from gradmux.orchestrator.schemes.stragglers import MODELS
from tests.orchestrator.schemes.playing import Play, make, mask

CODES = st.sampled_from(["fractional", "cyclic", "dft"])


@dataclass(frozen=True)
class Setting:
    """One scheme with its parameters; `build` makes a new object of it each time."""

    name: str
    workers: int
    jobs: int
    params: dict[str, int | str]
    seed: int = 0

    def build(self) -> Scheme:
        """A new run of this scheme."""
        return make(self.name, self.workers, self.jobs, seed=self.seed, **self.params)

    @property
    def tolerance(self) -> int:
        """s of the code that the scheme uses."""
        if self.name != "sr-sgc":
            return int(self.params.get("stragglers", self.params.get("max_stragglers", 0)))
        burst, window, most = (int(self.params[key]) for key in ("burst", "window", "max_stragglers"))
        return -(-burst * most // (window - 1 + burst))

    def exists(self) -> bool:
        """s < n, and dft needs n - s odd."""
        odd = (self.workers - self.tolerance) % 2 == 1
        uncoded = self.name == "m-sgc" and self.tolerance == self.workers
        fits = self.params.get("code") != "dft" or odd or self.tolerance == 0
        return uncoded or (self.tolerance < self.workers and fits)


@st.composite
def settings_of(draw: st.DrawFn, name: str, max_workers: int = 9) -> Setting:
    """A random setting of the scheme `name`."""
    workers = draw(st.integers(1, max_workers))
    jobs = draw(st.integers(1, 7))
    seed = draw(st.integers(0, 3))
    params: dict[str, int | str] = {}
    if name in ("gc", "gc-partial"):
        params = {"stragglers": draw(st.integers(0, workers - 1))}
        params |= {"private": draw(st.integers(0, 2))} if name == "gc-partial" else {}
    elif name == "pipeline":
        params = {"per_job": workers, "stragglers": draw(st.integers(0, workers - 1))}
    elif name == "stretch":
        params = {"copies": workers, "steps": draw(st.integers(1, 5))}
    elif name == "grouping":
        params = {"groups": draw(st.integers(1, workers))}
    elif name in ("sr-sgc", "m-sgc"):
        burst, times = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        window = times * burst + 1 if name == "sr-sgc" else burst + times
        params = {"burst": burst, "window": window, "max_stragglers": draw(st.integers(0, workers))}
    if name in WITH_CODE:
        params["code"] = draw(CODES)
    return Setting(name, workers, jobs, params, seed)


WITH_CODE = ("gc", "gc-partial", "sr-sgc", "m-sgc")
NAMES = (*WITH_CODE, "uncoded", "backup", "grouping", "pipeline", "pipeline-auto", "stretch")
ANY_SCHEME = st.sampled_from(NAMES).flatmap(settings_of).filter(Setting.exists)
MODEL_NAMES = st.sampled_from(MODELS)


@st.composite
def wishes(draw: st.DrawFn, rounds: int = 20) -> list[int]:
    """Who would like to straggle, as one bit mask per round; see `conform`."""
    return draw(st.lists(st.integers(0, 2**9 - 1), min_size=rounds, max_size=rounds))


def conform(play: Play, model: StragglerModel, wish: int) -> BoolArray:
    """Opens a round in which as many workers of `wish` straggle as the model admits, one by one; all others answer."""
    invoked = play.start()
    late = admitted(invoked, model, wish, play.scheme.workers)
    play.answer(worker for worker in invoked if not late[worker])
    return late


def admitted(invoked: list[int], model: StragglerModel, wish: int, workers: int) -> BoolArray:
    """(workers,) as many workers of `wish` as the model lets straggle, one by one."""
    late = mask(workers, [])
    for worker in invoked:
        if wish >> worker & 1:
            late[worker] = True
            late[worker] = model.admits(late)
    return late
