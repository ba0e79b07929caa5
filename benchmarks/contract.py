"""What a request and a reply cost in this process: made, parsed, decoded; beside those of another checkout, if given.

A request of five tasks and a reply of 1.3 MB. The other checkout is measured by its own code in a process of its own,
in turns with this one, so that both meet the same load.

    python -m benchmarks.contract [--against FOLDER]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import timeit
from pathlib import Path
from typing import Any

TURNS, REPEATS = 5, 200
CODE = "import json, benchmarks.contract as b; print(json.dumps(b.measure()))"


def measure() -> dict[str, float]:
    """Microseconds of each, the best of some."""
    import numpy as np
    import orjson

    from gradmux.lambda_worker import contract

    made, mode = [task(contract, slot) for slot in range(5)], contract.ReplyMode(prefix="runs/digits/results/")
    request = contract.Request(
        "gradient", "digits-20261130", 1, 12, 3, "gradmux", data="data/0", tasks=tuple(made), reply=mode
    )
    body, event = contract.encode_request(request), orjson.loads(contract.encode_request(request))
    buffer = contract.encode_result(np.ones(243_750, np.float32), np.ones(5))
    answer = contract.Result(0, 0, "ok", buffer=buffer, size=len(buffer))
    reply = contract.Reply("gradient", "r", 0, 0, 0, 1, (answer,))
    sent = json.dumps(contract.reply_json(reply)).encode()
    parts: dict[str, Any] = {
        f"request made, {len(body):,} bytes": lambda: contract.encode_request(request),
        "request parsed, from bytes": lambda: contract.parse_request(body),
        "request parsed, from an event": lambda: contract.parse_request(event),
        f"reply parsed, {len(sent):,} bytes": lambda: contract.parse_reply(sent),
        "reply made": lambda: contract.reply_json(reply),
        "result encoded": lambda: contract.encode_result(np.ones(243_750, np.float32), np.ones(5)),
        "result decoded": lambda: contract.decode_result(buffer),
    }
    return {name: best_us(call) for name, call in parts.items()}


def task(contract: Any, slot: int) -> Any:
    """A task of either version of the contract."""
    weights = contract.Weights(key=f"runs/digits-20261130/snapshots/1/{slot}/12-" + "a" * 64)
    spec = "specs/" + "b" * 64 + ".json"
    if hasattr(contract, "Chunk"):
        chunk = contract.Chunk(contract.Rows(lo=3, hi=9), seed=slot)
        return contract.Task(slot, 12, spec, weights, (chunk,), seed=7)
    return contract.Task(
        slot, 12, spec, weights, contract.Order(60_000, 512, 1), 3, 512, (contract.Term(3, 9),), seed=7
    )


def best_us(call: Any) -> float:
    number = max(1, int(0.002 / max(1e-7, timeit.timeit(call, number=1))))
    return min(timeit.repeat(call, number=number, repeat=max(5, REPEATS // number))) / number * 1e6


def measured_in(folder: Path) -> dict[str, float]:
    script = CODE if folder == Path.cwd() else f"import sys; sys.path.insert(0, {str(folder)!r})\n{OTHER}"
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


OTHER = f"""
import importlib.util, json
spec = importlib.util.spec_from_file_location("bench", {str(Path(__file__).resolve())!r})
bench = importlib.util.module_from_spec(spec); spec.loader.exec_module(bench)
print(json.dumps(bench.measure()))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout")
    other = parser.parse_args().against
    folders = [Path.cwd(), *([] if other is None else [other.resolve()])]
    runs = [[measured_in(folder) for folder in folders] for _ in range(TURNS)]
    columns = [[min(turn[index][name] for turn in runs) for name in runs[0][index]] for index in range(len(folders))]
    print(f"{'us, the best of ' + str(TURNS):36} " + "  ".join(f"{folder.name:>12}" for folder in folders))
    for row, name in enumerate(runs[0][0]):
        print(f"{name:36} " + "  ".join(f"{column[row]:12,.1f}" for column in columns))


if __name__ == "__main__":
    main()
