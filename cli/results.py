"""The result of a run as people read it: what `submit`, `resume` and `results` end with.

Takes the document that --json prints, so that a result read from a file looks the same. Knows no command.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradmux.cli.options import Settings
from gradmux.cli.output import facts, print_json, stdout, table


def tell_result(settings: Settings, result: Mapping[str, Any]) -> None:
    """Prints the result: a table and a few facts, or one JSON document."""
    if settings.json:
        print_json(result)
        return
    from gradmux.orchestrator.results import not_back, stayed
    from gradmux.orchestrator.schemes.codes.code import noise

    rows = [
        (model["name"], str(model["steps"]), _loss(model["train_loss"]), _percent(model["eval"].get("accuracy")))
        for model in result["models"]
    ]
    console, cost, decode = stdout(), result["cost"], result["decode"]
    console.print(table(("model", "steps", "train loss", "accuracy"), rows, right=("steps", "train loss", "accuracy")))
    parameters = ", ".join(f"{key}={value}" for key, value in result["params"].items()) or "none"
    told = [
        ("run", f"{result['run']} ({result['scheme']} {parameters}, {result['workers']} workers)"),
        ("time", f"{result['wall_s']:.2f} s for {result['rounds']} rounds"),
        ("billed", f"{cost['billed_s']:.1f} s in {cost['invocations']} invocations"),
        *not_back(cost),
        (
            "decode",
            f"residual at most {decode['max_residual']:.1e}, amplification at most {decode['max_amplification']:.2f}",
        ),
        *noise(decode["max_amplification"]),
        *stayed(decode.get("buffers_stayed", 0)),
        ("processors", ", ".join(result.get("cpus", ())) or "not known"),
        ("record", result["record"]),
        ("weights", str(Path(result["models"][0]["checkpoint"]).parent)),
    ]
    console.print(facts(told))


def _loss(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.4f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
