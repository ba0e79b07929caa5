"""What is lost by parameters (n included) tuned on one measured profile and run on another, for all pairs of profiles.

    python -m benchmarks.tuning_transfer [FOLDER] [--schemes pipeline,gc,uncoded] [--scale 1] [--jobs 200]

FOLDER holds profiles of several jobs (one model, batch size and region each, read off the names MODEL-REGION-BATCH-...)
at several loads. Every profile is tuned as it is, with the slope of its own job (Theil-Sen over the job's loads, times
`--scale`); the choice then runs on every other profile, with the slope of the place where it runs, beside the best of
all that was tried there. Two profiles of one job are that job measured at another load, on another day: what a user
tunes on, and what he then meets. Two of different jobs differ in what computing costs as well, so that no one choice
can suit both: the last lines say how well the best compromise of all would do, which is found with all profiles known.

Three designs are compared: the best fixed parameters of the one profile that was tuned; fixed parameters that do best,
on average or at worst, over all profiles of the other jobs, each relative to its own best; and what `tune` chooses
when pipeline-auto, which fits itself to the delays of the run, is among its choices.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from gradmux.orchestrator.delays import DelayProfile, load_profile
from gradmux.orchestrator.delays.load_fit import fit_load
from gradmux.orchestrator.schemes.scheme import FloatArray
from gradmux.orchestrator.tune import Choice, TuneOptions, tune
from gradmux.orchestrator.tune.fitting import play_fitting
from gradmux.orchestrator.tune.material import prepare
from gradmux.orchestrator.tune.options import FITTING
from gradmux.orchestrator.tune.search import Tried, batches, try_all

FOLDER = Path(__file__).resolve().parents[1].parent / "shared" / "profiles"
MODELS, CONCURRENCY = 4, 256
TARGET = 0.05
Name = tuple[str, int, tuple[tuple[str, object], ...]]
"""scheme, n and parameters"""
AUTO_NAME: Name = (FITTING, 0, ())


@dataclass(frozen=True)
class Place:
    """One profile, what is chosen on it, and what everything takes on it."""

    job: str
    name: str
    chosen: Name
    """with pipeline-auto among the choices"""
    fixed: Name
    """without"""
    taken_s: dict[Name, float]
    """of pipeline-auto too"""

    @property
    def least_s(self) -> float:
        """The best fixed choice there."""
        return min(total_s for name, total_s in self.taken_s.items() if name != AUTO_NAME)

    def loss(self, chosen: Name) -> float:
        """What `chosen` takes here beyond the best, as a share of that."""
        return self.taken_s[chosen] / self.least_s - 1.0


def job_of(profile: DelayProfile) -> str:
    """Model, region and batch size, from the profile's name."""
    return "-".join(profile.name.split("-")[:3])


def places(profiles: Sequence[DelayProfile], schemes: tuple[str, ...], scale: float, jobs: int) -> list[Place]:
    """All profiles tuned; those of a job that was measured at one load count as free of computing."""
    found = []
    for job, group in groupby(sorted(profiles, key=job_of), job_of):
        members = list(group)
        slope_s = fit_load(members).slope_s if len({profile.load for profile in members}) > 1 else 0.0
        for profile in (costlier(member, slope_s, scale) for member in members):
            options = TuneOptions(
                jobs=jobs, models=MODELS, concurrency=CONCURRENCY, slope_s=scale * max(slope_s, 0.0), schemes=schemes
            )
            fixed = tune(profile, options).best
            best = tune(profile, replace(options, schemes=(*schemes, FITTING))).best
            material = prepare(profile, options)
            tried = try_all(batches(material, options), material, options)
            taken_s = taken(tried) | {AUTO_NAME: play_fitting(material, options).total_s}
            found.append(Place(job, profile.name, named(best), named(fixed), taken_s))
            told = ", ".join(f"{key}={value}" for key, value in fixed.params.items() if key != "per_job")
            print(
                f"{profile.name:36} slope {options.slope_s:6.3f} s   fixed: {fixed.scheme} n={fixed.workers} {told:12} "
                f"{FITTING} loses {found[-1].loss(AUTO_NAME):6.1%} here   chosen: {best.scheme}",
                flush=True,
            )
    return found


def named(choice: Choice) -> Name:
    """Its name; pipeline-auto has but one."""
    return AUTO_NAME if choice.scheme == FITTING else (choice.scheme, choice.workers, tuple(choice.params.items()))


def costlier(profile: DelayProfile, slope_s: float, scale: float) -> DelayProfile:
    """The profile, had computing cost `scale` times as much when it was measured."""
    delays_s = profile.delays_s + (scale - 1.0) * slope_s * profile.load
    return DelayProfile(delays_s, load=profile.load, name=profile.name)


def taken(tried: Sequence[Tried]) -> dict[Name, float]:
    """Seconds of all sets, by name."""
    return {
        (each.batch.scheme, each.batch.workers, tuple(each.batch.params(column).items())): float(each.total_s[column])
        for each in tried
        for column in range(each.batch.size)
    }


def losses(found: Sequence[Place], choose: Callable[[Place], Name]) -> FloatArray:
    """(tuned on, run on)"""
    return np.array([[there.loss(choose(here)) for there in found] for here in found])


def pooled(found: Sequence[Place], over: Callable[[FloatArray], float]) -> FloatArray:
    """(run on,) the loss of what is best over all profiles of the other jobs, each relative to its own best."""
    everywhere = sorted(set.intersection(*(set(place.taken_s) for place in found)) - {AUTO_NAME})
    lost = np.array([[place.loss(name) for name in everywhere] for place in found])
    jobs = np.array([place.job for place in found])
    chosen = [int(np.argmin([over(column) for column in lost[jobs != place.job].T])) for place in found]
    return lost[np.arange(len(found)), chosen]


def tell(label: str, values: FloatArray) -> None:
    """One line of the summary."""
    if values.size:
        print(
            f"{label:48} {values.size:4} pairs   mean {values.mean():6.1%}   median {np.median(values):6.1%}   "
            f"worst {values.max():6.1%}   within {TARGET:.0%}: {np.mean(values <= TARGET):6.1%}"
        )


def tell_compromise(label: str, found: Sequence[Place]) -> None:
    """The one choice that loses least where it loses most, of all that was tried everywhere."""
    everywhere = set.intersection(*(set(place.taken_s) for place in found)) - {AUTO_NAME}
    chosen = min(everywhere, key=lambda name: max(place.loss(name) for place in found))
    worst = max(place.loss(chosen) for place in found)
    params = ", ".join(f"{key}={value}" for key, value in chosen[2] if key != "per_job")
    print(f"{label:48} {chosen[0]} n={chosen[1]} {params}: worst {worst:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--schemes", default="pipeline,gc,uncoded")
    parser.add_argument("--scale", type=float, default=1.0, help="computing costs so many times what was measured")
    parser.add_argument("--jobs", type=int, default=200, help="gradients that everything is judged by")
    arguments = parser.parse_args()
    files = sorted(arguments.folder.glob("*.npz"))
    if not files:
        print(f"no profiles in {arguments.folder}: nothing to compare")
        return
    schemes = tuple(arguments.schemes.split(","))
    found = places([load_profile(path) for path in files], schemes, arguments.scale, arguments.jobs)
    jobs = np.array([place.job for place in found])
    other = jobs[:, np.newaxis] != jobs
    same = ~other & ~np.eye(len(found), dtype=np.bool_)
    fixed, chosen = losses(found, lambda place: place.fixed), losses(found, lambda place: place.chosen)
    print()
    tell("fixed, another load of the same job", fixed[same])
    tell("fixed, another job", fixed[other])
    tell("fixed, best on average over the other jobs", pooled(found, lambda lost: float(lost.mean())))
    tell("fixed, best at worst over the other jobs", pooled(found, lambda lost: float(lost.max())))
    tell("as tune chooses, another load of the same job", chosen[same])
    tell("as tune chooses, another job", chosen[other])
    for job in dict.fromkeys(jobs.tolist()):
        tell_compromise(f"best compromise within {job}", [place for place in found if place.job == job])
    tell_compromise("best compromise of all", found)


if __name__ == "__main__":
    main()
