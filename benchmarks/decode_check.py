"""What it costs to check a scheme instead of trusting it: of a round, against what its calls cost the client.

    python -m benchmarks.decode_check

A round of n calls takes at least n times the processor time of one call (0.094 ms, `benchmarks/dispatch.py`) and the
time of one warm call that computes nothing; the check may take 2 % of that. What it takes is processor time without a
fleet: that of the scheme behind `Checked`, less that of the scheme alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from gradmux.orchestrator.schemes.checked import Checked
from gradmux.orchestrator.schemes.registry import build_scheme
from gradmux.orchestrator.schemes.scheme import Context, Key, Params, Scheme

CALL_S = 0.094e-3
"""processor time of one call, measured"""
WARM_S = 0.03
"""a warm call that computes nothing, less than measured traces have"""
BOUND = 0.02
SCHEMES: tuple[tuple[str, Params], ...] = (
    ("uncoded", {}),
    ("gc", {"s": 3}),
    ("gc", {"s": 3, "code": "cyclic"}),
    ("m-sgc", {"B": 1, "W": 2, "lambda": 27}),
    ("sr-sgc", {"B": 1, "W": 2, "lambda": 30}),
    ("pipeline", {"s": 3}),
)
ROUNDS, REPEATS = 20, 15


def main() -> int:
    """Prints a line for each scheme; 1 when the check takes more than it may."""
    worst = 0.0
    for workers in (256, 1000):
        for name, params in SCHEMES:
            own = {**params, "n": workers} if name == "pipeline" else params
            # In turn, so that what else the machine does meets both alike.
            took_s = [
                [_round_s(name, own, workers, checked=checked) for checked in (False, True)] for _ in range(REPEATS)
            ]
            plain_s, checked_s = map(min, zip(*took_s, strict=True))
            share = (checked_s - plain_s) / (workers * CALL_S + WARM_S)
            worst = max(worst, share)
            told = " ".join(f"{key}={value}" for key, value in params.items())
            took = f"{1e3 * plain_s:8.3f} ms a round, {1e3 * checked_s:8.3f} checked"
            print(f"n={workers:<5} {name + ' ' + told:<32} {took}: {share:6.2%} of a round")
    print(f"worst {worst:.2%}, bound {BOUND:.0%}")
    return int(worst > BOUND)


def _round_s(name: str, params: Mapping[str, int | float | str], workers: int, *, checked: bool) -> float:
    """Seconds of processor time of one round: assign, every answer, decode."""
    scheme: Scheme = build_scheme(name, params, Context(workers, ROUNDS, models=4, concurrency=4 * workers))
    if checked:
        scheme = Checked.of(scheme)
    start_s = time.process_time()
    for t in range(scheme.rounds):
        for worker, slots in scheme.assign(t).items():
            for slot, task in enumerate(slots):
                if task is not None:
                    scheme.heard(Key(t, worker, slot))
        for job in scheme.end_round(t):
            scheme.decode(job)
    return (time.process_time() - start_s) / scheme.rounds


if __name__ == "__main__":
    raise SystemExit(main())
