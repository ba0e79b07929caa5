"""A scheme as a document: all that the registry says about it, and a drawing as data. Read next: `drawing.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gradmux.orchestrator.schemes.drawing import Drawing, context_of, draw
from gradmux.orchestrator.schemes.registry import build_scheme, parse_params
from gradmux.orchestrator.schemes.scheme import Sample, SchemeInfo


def drawn_with(info: SchemeInfo, given: dict[str, str], workers: int | None) -> Drawing | None:
    """The scheme's own sample, with these parameters put over it. Raises: ConfigError when they do not fit."""
    if info.sample is None and not given:
        return None
    sample = sample_with(info, given, workers)
    delay = build_scheme(info.name, sample.params, context_of(sample)).delay
    sample = replace(sample, rounds=max(sample.rounds, delay + 2))
    return draw(build_scheme(info.name, sample.params, context_of(sample)), sample)


def sample_with(info: SchemeInfo, given: dict[str, str], workers: int | None) -> Sample:
    """Its own sample, or one of 4 workers, with these parameters put over it. Raises: ConfigError."""
    sample = info.sample or Sample(4)
    names = {parameter.letter: parameter.name for parameter in info.parameters}
    own = {} if info.sample is None else parse_params(info, sample.params)
    params = parse_params(info, {**own, **{names.get(key, key): value for key, value in given.items()}})
    return replace(sample, params=params, workers=workers or sample.workers)


def described(info: SchemeInfo, drawing: Drawing | None = None) -> dict[str, Any]:
    """Everything that the registry says about one scheme, and what was drawn of it."""
    parameters = [
        {
            "name": p.name,
            "letter": p.letter,
            "type": p.kind.__name__,
            "default": p.default,
            "meaning": p.meaning,
            "choices": list(p.choices),
        }
        for p in info.parameters
    ]
    texts = ("name", "title", "constraints", "load", "delay", "tolerates", "costs", "avoid", "source", "example")
    document = {**{key: getattr(info, key) for key in texts}, "parameters": parameters}
    return document if drawing is None else {**document, "drawing": _drawn_document(drawing)}


def _drawn_document(drawing: Drawing) -> dict[str, Any]:
    """The drawing as data."""
    return {
        "workers": drawing.workers,
        "params": dict(drawing.sample.params),
        "chunk_sizes": list(drawing.chunk_sizes),
        "rounds": [
            {
                "round": each.round,
                "tasks": [
                    {
                        "worker": drawn.worker,
                        "slot": drawn.slot,
                        "job": drawn.task.job,
                        "chunks": list(drawn.task.chunks),
                        "coefficients": list(drawn.task.coefficients),
                        "state": drawn.state.value,
                    }
                    for drawn in each.tasks
                ],
                "decoded": [
                    {
                        "job": decode.job,
                        "missing": decode.missing,
                        "results": [{**key._asdict(), "weight": weight} for key, weight in decode.weights.items()],
                    }
                    for decode in each.decodes
                ],
            }
            for each in drawing.rounds
        ],
    }
