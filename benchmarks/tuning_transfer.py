"""What is lost by parameters (n included) tuned on one measured profile and run on another, for all pairs of profiles.

    python -m benchmarks.tuning_transfer [FOLDER] [--schemes pipeline,gc,uncoded] [--scale 1]

FOLDER holds profiles of several jobs (one model, batch size and region each, read off the names MODEL-REGION-BATCH-...)
at several loads. Every profile is tuned as it is, with the slope of its own job (Theil-Sen over the job's loads, times
`--scale`); the choice then runs on every other profile, with the slope of the place where it runs, beside the best of
all that was tried there. Two profiles of one job are that job measured at another load, on another day: what a user
tunes on, and what he then meets. Two of different jobs differ in what computing costs as well, so that no one choice
can suit both: the last lines say how well the best compromise of all would do, which is found with all profiles known.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from orchestrator.delays import DelayProfile, load_profile
from orchestrator.delays.load_fit import fit_load
from orchestrator.schemes.scheme import FloatArray
from orchestrator.tune import TuneOptions, tune
from orchestrator.tune.material import prepare
from orchestrator.tune.search import Tried, batches, try_all

FOLDER = Path(__file__).resolve().parents[1].parent / "shared" / "profiles"
MODELS, CONCURRENCY = 4, 256
TARGET = 0.05
Name = tuple[str, int, tuple[tuple[str, object], ...]]
"""scheme, n and parameters"""


@dataclass(frozen=True)
class Place:
    """One profile, what is chosen on it, and what everything takes on it."""

    job: str
    name: str
    chosen: Name
    taken_s: dict[Name, float]

    @property
    def least_s(self) -> float:
        """The best that there is."""
        return min(self.taken_s.values())

    def loss(self, chosen: Name) -> float:
        """What `chosen` takes here beyond the best, as a share of that."""
        return self.taken_s[chosen] / self.least_s - 1.0


def job_of(profile: DelayProfile) -> str:
    """Model, region and batch size, from the profile's name."""
    return "-".join(profile.name.split("-")[:3])


def places(profiles: Sequence[DelayProfile], schemes: tuple[str, ...], scale: float) -> list[Place]:
    """All profiles tuned; those of a job that was measured at one load count as free of computing."""
    found = []
    for job, group in groupby(sorted(profiles, key=job_of), job_of):
        members = list(group)
        slope_s = fit_load(members).slope_s if len({profile.load for profile in members}) > 1 else 0.0
        for profile in (costlier(member, slope_s, scale) for member in members):
            options = TuneOptions(
                models=MODELS, concurrency=CONCURRENCY, slope_s=scale * max(slope_s, 0.0), schemes=schemes
            )
            best = tune(profile, options).best
            material = prepare(profile, options)
            tried = try_all(batches(material, options), material, options)
            chosen = (best.scheme, best.workers, tuple(best.params.items()))
            found.append(Place(job, profile.name, chosen, taken(tried)))
            told = ", ".join(f"{key}={value}" for key, value in best.params.items() if key != "per_job")
            print(
                f"{profile.name:36} slope {options.slope_s:6.3f} s   {best.scheme} n={best.workers} {told}", flush=True
            )
    return found


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


def losses(found: Sequence[Place]) -> FloatArray:
    """(tuned on, run on)"""
    return np.array([[there.loss(here.chosen) for there in found] for here in found])


def tell(label: str, values: FloatArray) -> None:
    """One line of the summary."""
    if values.size:
        print(
            f"{label:44} {values.size:4} pairs   mean {values.mean():6.1%}   median {np.median(values):6.1%}   "
            f"worst {values.max():6.1%}   within {TARGET:.0%}: {np.mean(values <= TARGET):6.1%}"
        )


def tell_compromise(label: str, found: Sequence[Place]) -> None:
    """The one choice that loses least where it loses most, of all that was tried everywhere."""
    everywhere = set.intersection(*(set(place.taken_s) for place in found))
    chosen = min(everywhere, key=lambda name: max(place.loss(name) for place in found))
    worst = max(place.loss(chosen) for place in found)
    params = ", ".join(f"{key}={value}" for key, value in chosen[2] if key != "per_job")
    print(f"{label:44} {chosen[0]} n={chosen[1]} {params}: worst {worst:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--schemes", default="pipeline,gc,uncoded")
    parser.add_argument("--scale", type=float, default=1.0, help="computing costs so many times what was measured")
    arguments = parser.parse_args()
    files = sorted(arguments.folder.glob("*.npz"))
    if not files:
        print(f"no profiles in {arguments.folder}: nothing to compare")
        return
    found = places([load_profile(path) for path in files], tuple(arguments.schemes.split(",")), arguments.scale)
    lost = losses(found)
    jobs = np.array([place.job for place in found])
    same = (jobs[:, np.newaxis] == jobs) & ~np.eye(len(found), dtype=np.bool_)
    print()
    tell("another load of the same job", lost[same])
    tell("another job", lost[jobs[:, np.newaxis] != jobs])
    for job in dict.fromkeys(jobs.tolist()):
        tell_compromise(f"best compromise within {job}", [place for place in found if place.job == job])
    tell_compromise("best compromise of all", found)


if __name__ == "__main__":
    main()
