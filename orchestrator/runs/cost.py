"""What a run has cost, from its record: all lives, late and redundant answers included.

Seconds are those that were billed for answers that came back; what never came back is counted, and bounded by the
timeout, not priced. An answer's
bill is shared out evenly over its slots: slot m of round t is job t - m. (A repeat of `sr-sgc` counts for its round.)
Knows no backend. Read next: `orchestrator/prices.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from gradmux.orchestrator.prices import Prices
from gradmux.orchestrator.record import EndLine, Header, Heard, Line, RoundLine
from gradmux.orchestrator.runs.history import ROUNDS


@dataclass(slots=True)
class Bill:
    """So many calls, so many seconds."""

    invocations: int = 0
    returned: int = 0
    billed_s: float = 0.0
    late_s: float = 0.0
    """billed for answers that came after their round had closed"""
    failed_s: float = 0.0
    """billed for calls that brought nothing"""
    beside: int = 0
    """further calls, not of a round: workers that were started, gradients that were summed"""
    beside_s: float = 0.0
    """billed for these"""

    def add(self, arrival: Heard, late: bool) -> None:
        self.returned += 1
        self.billed_s += arrival.billed_s
        self.late_s += arrival.billed_s if late else 0.0
        self.failed_s += 0.0 if arrival.slots else arrival.billed_s

    def usd(self, prices: Prices, memory_mb: int) -> float:
        seconds, calls = self.billed_s + self.beside_s, self.invocations + self.beside
        return prices.compute_usd(seconds, memory_mb) + prices.requests_usd(calls)


@dataclass(slots=True)
class RunCost:
    """The bill of a run, in total, by life and by model; by round where it was asked for."""

    memory_mb: int
    total: Bill = field(default_factory=Bill)
    lives: list[Bill] = field(default_factory=list)
    models: dict[str, float] = field(default_factory=dict)
    """name -> billed seconds"""
    rounds: dict[tuple[int, int], Bill] = field(default_factory=dict)
    """(epoch, round) -> bill"""

    def to_dict(self, prices: Prices) -> dict[str, Any]:
        """For --json."""
        rounds = [
            {"epoch": epoch, "round": index, **asdict(bill), "usd": bill.usd(prices, self.memory_mb)}
            for (epoch, index), bill in self.rounds.items()
        ]
        return {
            "memory_mb": self.memory_mb,
            "prices": asdict(prices),
            "total": {**asdict(self.total), "usd": self.total.usd(prices, self.memory_mb)},
            "lives": [{**asdict(bill), "usd": bill.usd(prices, self.memory_mb)} for bill in self.lives],
            "models": [
                {"name": name, "billed_s": seconds, "usd": prices.compute_usd(seconds, self.memory_mb)}
                for name, seconds in self.models.items()
            ],
            "rounds": rounds,
        }


def cost_of(lines: Iterable[Line], memory_mb: int) -> RunCost:
    """The bill of the run that these lines record."""
    cost = RunCost(memory_mb)
    header: Header | None = None
    closed: set[int] = set()
    models: dict[int, int] = {}
    for line in lines:
        if isinstance(line, Header):
            if header is None or header.epoch != line.epoch:
                cost.lives.append(Bill())
            header, closed, models = line, set(), {}
        elif header is not None:
            models |= {each.job: each.model for each in line.begun}
            _take(cost, header, line, closed, models)
    return cost


def _take(cost: RunCost, header: Header, line: RoundLine | EndLine, closed: set[int], models: dict[int, int]) -> None:
    """`models`: job -> its model, as far as the record says."""
    bills = (cost.total, cost.lives[-1])
    for bill in bills:
        bill.beside += line.beside.calls
        bill.beside_s += line.beside.billed_s
    for group in line.sent:
        for bill in (*bills, _round(cost, header, group.round)):
            bill.invocations += len(group.workers)
    for arrival in line.arrivals:
        if not arrival.final:
            continue
        late = arrival.round in closed
        for bill in (*bills, _round(cost, header, arrival.round)):
            bill.add(arrival, late)
        _share(cost, header, arrival, models)
    if isinstance(line, RoundLine):
        closed.add(line.round)


def _round(cost: RunCost, header: Header, index: int) -> Bill:
    number = index + int(header.extra.get(ROUNDS, 0))
    return cost.rounds.setdefault((header.epoch, number), Bill())


def _share(cost: RunCost, header: Header, arrival: Heard, models: dict[int, int]) -> None:
    """A worker's slots serve the job of its round and those before it; one slot is one job."""
    slots = arrival.slots or (0,)
    for slot in slots:
        job = max(0, arrival.round - slot) if len(slots) > 1 else arrival.round
        model = models.get(job, (job + header.first) % header.models)
        name = header.names[model] if header.names else str(model)
        cost.models[name] = cost.models.get(name, 0.0) + arrival.billed_s / len(slots)
