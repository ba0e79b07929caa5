"""What a practitioner would do without any of this: a plain map over the models, or this machine alone.

`map`: one call for each model, which trains it from start to end; as few stretches of steps as fit into the longest
call that Lambda allows, where one is not enough; 1 to 6 copies of each, of which the first to answer counts. `here`:
one model after the other on this machine, for nothing. Nothing may be praised before it was compared with these. Cold
starts are in none of the choices. Read next: `tuner.py`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gradmux.orchestrator.evaluate import Batch
from gradmux.orchestrator.schemes.stretch import INFO as STRETCH
from gradmux.orchestrator.tune.material import Material
from gradmux.orchestrator.tune.options import TuneOptions
from gradmux.orchestrator.tune.result import Choice

LONGEST_CALL_S = 900.0
"""of Lambda"""
MOST_COPIES = 6


def map_batches(material: Material, options: TuneOptions) -> list[Batch]:
    """A plain map with so many copies, one batch each; none where a single step does not fit into a call."""
    steps = steps_in_a_call(material, -(-options.jobs // options.models))
    if not steps:
        return []
    most = min(MOST_COPIES, material.concurrency, material.columns)
    return [
        Batch(STRETCH.name, n, {"copies": np.array([n]), "steps": np.array([steps]), "quantile": np.ones(1)}, 1)
        for n in range(1, most + 1)
    ]


def steps_in_a_call(material: Material, steps: int) -> int:
    """How many of so many steps of one model a call makes, so that all calls are about equally long; 0: none."""
    slowest_s = float(material.answered_s.max())
    slope_s = slowest_s / material.load.base_load if material.load.scales else material.load.slope_s
    slowest_s = 0.0 if material.load.scales else slowest_s + material.load.shift_s(0.0)
    most = steps if slope_s <= 0 else min(steps, int((LONGEST_CALL_S - slowest_s) / slope_s))
    return math.ceil(steps / math.ceil(steps / most)) if most >= 1 else 0


def here(options: TuneOptions) -> Choice | None:
    """This machine alone, if that was measured."""
    if options.here_s is None:
        return None
    return Choice("here", {}, 1, options.jobs * options.here_s, 1.0, 0, 0.0, 0.0)


def named_map(choice: Choice) -> Choice:
    """A stretch as what it is."""
    return replace(choice, scheme="map", params={name: choice.params[name] for name in ("copies", "steps")})


def advice(best: Choice, plain: Choice | None, alone: Choice | None, options: TuneOptions) -> tuple[str, ...]:
    """Where something simpler is the better choice: one sentence for each."""
    least = options.value(best.cost_usd, best.total_s)
    told = []
    if plain is not None and options.value(plain.cost_usd, plain.total_s) <= least:
        copies = plain.params["copies"]
        told.append(
            f"a plain map is the better choice: {plain.params['steps']} steps of a model in one call"
            f"{f', {copies} copies of each' if copies > 1 else ''}, {plain.total_s:.2f} s for ${plain.cost_usd:.4f}"
        )
    if alone is not None and options.value(0.0, alone.total_s) <= least:
        told.append(
            f"this machine alone is the better choice: about {alone.total_s:.2f} s for nothing, instead of "
            f"{best.total_s:.2f} s for ${best.cost_usd:.4f} on AWS"
        )
    return tuple(told)
