"""The trainer with real requests and the real worker's code: what comes out is what ordinary training gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gradmux.lambda_worker.contract import FIXED_SUMS, SumIndex
from gradmux.orchestrator.errors import ConfigError, Diverged, GradmuxError
from gradmux.orchestrator.ports import Invocation
from gradmux.orchestrator.schemes.scheme import Task
from gradmux.orchestrator.training.data import Dataset
from gradmux.orchestrator.training.gradients import CodedResult
from gradmux.orchestrator.training.models import ModelPlan
from gradmux.orchestrator.training.reference import train_reference
from gradmux.orchestrator.training.requests import Wire
from tests.orchestrator.training.bench import Run, make_dataset, mlp, tied

Code = tuple[list[list[float]], list[float]]
UNCODED: Code = ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [1, 1, 1])
CYCLIC: Code = ([[1, 2, 0], [0, 1, 4], [3, 0, 1]], [0.4, 0.2, 0.2])
"""weights x rows = 1, and neither are 0 or 1"""


def plan(name: str = "m", **changes: object) -> ModelPlan:
    values: dict[str, object] = {
        "name": name,
        "factory": mlp,
        "optimizer": "Adam",
        "optimizer_args": {"lr": 0.05},
        "seed": 7,
    }
    return ModelPlan(**{**values, **changes})  # type: ignore[arg-type]


def difference(module: nn.Module, other: nn.Module) -> float:
    """||a - b|| / ||b|| over everything in the state dicts, in float64."""
    a, b = (torch.cat([t.double().flatten() for t in m.state_dict().values()]) for m in (module, other))
    return float((a - b).norm() / b.norm())


def compare(run: Run, *, chunked: bool = False) -> float:
    """The largest difference of a model of the run from ordinary training."""
    found = []
    for index, one in enumerate(run.plans):
        sizes = np.array(run.chunk_sizes) if chunked else None
        module, _ = train_reference(one, run.dataset, run.order, run.steps, chunk_sizes=sizes)
        found.append(difference(run.trainer.module(index), module))
    return max(found)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"optimizer": "SGD", "optimizer_args": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}},
        {
            "optimizer": "AdamW",
            "optimizer_args": {"lr": 0.01},
            "scheduler": "StepLR",
            "scheduler_args": {"step_size": 2},
        },
        {"args": {"norm": True}},
        {"factory": tied},
    ],
    ids=["adam", "sgd", "scheduler", "batch-norm", "tied-and-frozen"],
)
@pytest.mark.parametrize(("dtype", "bound"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("code", [UNCODED, CYCLIC], ids=["uncoded", "cyclic"])
def test_equals_ordinary_training(
    change: dict[str, object], dtype: str, bound: float, code: Code, tmp_path: Path
) -> None:
    wire = Wire(dtype="float64" if code is CYCLIC else dtype)
    plans = [plan("a", dtype=dtype, **change), plan("b", dtype=dtype, **{**change, "seed": 8})]
    run = Run(plans, tmp_path, dataset=make_dataset(dtype=dtype), wire=wire)
    losses = run.play(*code)
    assert compare(run) <= bound
    _, expected = train_reference(plans[1], run.dataset, run.order, run.steps)
    np.testing.assert_allclose(losses[1::2], expected, rtol=max(bound, 1e-6))


def test_equal_plans_begin_with_different_weights(tmp_path: Path) -> None:
    run = Run([plan("a"), plan("b")], tmp_path)
    assert difference(run.trainer.module(0), run.trainer.module(1)) > 0.1


def test_dropout_draws_the_same_masks_for_the_same_chunks(tmp_path: Path) -> None:
    run = Run([plan("a", args={"dropout": 0.5}), plan("b", args={"dropout": 0.5})], tmp_path)
    run.play(*UNCODED)
    assert compare(run, chunked=True) <= 1e-5
    assert compare(run, chunked=False) > 1e-3


def test_large_snapshots_and_results_go_through_the_store_and_are_cleaned_up(tmp_path: Path) -> None:
    run = Run([plan()], tmp_path, steps=70, wire=Wire(mode="s3"), options={"inline_bytes": 10})
    run.play(*UNCODED)
    assert compare(run) <= 1e-5
    weights = run.store.list(f"{run.keys.prefix}weights/")
    assert len(weights) == 70 - 64
    run.trainer.clean()
    assert not run.store.list(f"{run.keys.prefix}weights/")
    assert len(run.store.list(run.keys.results)) == 70 * 3


def test_a_snapshot_never_changes(tmp_path: Path) -> None:
    run = Run([plan()], tmp_path, options={"inline_bytes": 0})
    run.trainer.publish(0)
    key = run.trainer.weights(0).key
    assert key is not None
    before = run.store.get(key)
    run.trainer.retire(0)
    run.play_job(0, *UNCODED)
    assert run.store.get(key) == before
    run.trainer.publish(1)
    assert run.store.get(run.trainer.weights(1).key or "") != before


def test_chunks_without_rows_decode_to_zero(tmp_path: Path) -> None:
    run = Run([plan()], tmp_path, chunk_sizes=[1 / 8] * 8, batch_size=3)
    run.play([[float(i == j) for j in range(8)] for i in range(8)], [1.0] * 8)
    assert compare(run) <= 1e-5


def test_gradients_are_clipped_as_torch_does(tmp_path: Path) -> None:
    sgd = plan(optimizer="SGD", optimizer_args={"lr": 0.5})
    run = Run([replace(sgd, clip_norm=0.1)], tmp_path)
    run.play(*UNCODED)
    clipped, _ = train_reference(replace(sgd, clip_norm=0.1), run.dataset, run.order, run.steps)
    free, _ = train_reference(sgd, run.dataset, run.order, run.steps)
    assert difference(run.trainer.module(0), clipped) <= 1e-6
    assert difference(run.trainer.module(0), free) > 1e-2


def test_a_step_tells_loss_count_correct_and_norm(tmp_path: Path) -> None:
    run = Run([plan()], tmp_path)
    module = run.trainer.module(0)
    rows = run.order.batch(0)
    x, y = torch.from_numpy(run.dataset.x[rows]), torch.from_numpy(run.dataset.y[rows])
    output = module(x)
    loss = nn.functional.cross_entropy(output, y)
    norm = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))]).norm()
    run.trainer.publish(0)
    call = Invocation(0, 0, 1, (Task(0, (0, 1, 2), (1.0, 1.0, 1.0)),), 1.0)
    told = run.trainer.step(0, [(run.answer(call)[0], 1.0)])
    assert told.loss == pytest.approx(loss.item(), rel=1e-6)
    assert (told.count, told.correct) == (20, int((output.argmax(1) == y).sum()))
    assert told.gradient_norm == pytest.approx(float(norm), rel=1e-5)


def test_evaluation_is_in_evaluation_mode_and_changes_nothing(tmp_path: Path) -> None:
    run = Run([plan(args={"dropout": 0.5, "norm": True})], tmp_path)
    run.play(*UNCODED)
    module, before = run.trainer.module(0), run.trainer.state(0)
    told = run.trainer.evaluate(0, run.dataset)
    assert run.trainer.state(0) == before
    assert module.training
    module.eval()
    output, y = module(torch.from_numpy(run.dataset.x)), torch.from_numpy(run.dataset.y)
    assert told.loss == pytest.approx(nn.functional.cross_entropy(output, y).item(), rel=1e-5)
    assert told.accuracy == float((output.argmax(1) == y).double().mean())
    assert told.rows == 60


def test_a_regression_has_no_accuracy(tmp_path: Path) -> None:
    data = make_dataset()
    targets = type(data)(data.x, data.x[:, :3].copy())
    run = Run([plan(loss="mse_loss")], tmp_path, dataset=targets)
    run.play(*UNCODED)
    assert run.trainer.evaluate(0, targets).accuracy is None
    assert compare(run) <= 1e-5


def test_jobs_of_a_model_go_in_order(tmp_path: Path) -> None:
    run = Run([plan()], tmp_path)
    with pytest.raises(AssertionError, match="job 1 is step 1 of model 0, which has done 0"):
        run.trainer.publish(1)


@pytest.mark.parametrize("split", [1, 3])
@pytest.mark.parametrize("scheduler", [None, "CosineAnnealingLR"])
def test_a_resumed_run_has_the_bits_of_one_that_went_through(split: int, scheduler: str | None, tmp_path: Path) -> None:
    arguments = {"T_max": 9} if scheduler else {}
    plans = [plan("a", args={"norm": True}, scheduler=scheduler, scheduler_args=arguments), plan("b", factory=tied)]
    through, first, second = (Run(plans, tmp_path, steps=5) for _ in range(3))
    through.play(*UNCODED)
    for job in range(split * 2):
        first.play_job(job, *UNCODED)
    for model in range(2):
        second.trainer.load_state(model, first.trainer.state(model))
    for job in range(split * 2, 10):
        second.play_job(job, *UNCODED)
    for model in range(2):
        assert second.trainer.state(model).weights == through.trainer.state(model).weights
        assert second.trainer.state(model).steps == 5


class Spare(nn.Module):
    """A layer that takes no part, and one whose gradient is zero all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare, self.silent = nn.Linear(6, 3), nn.Linear(4, 4), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x) + 0.0 * self.silent(x)  # type: ignore[no-any-return]


def test_weight_decay_moves_what_takes_part_and_nothing_else(tmp_path: Path) -> None:
    """As in plain torch: no gradient is not the same as a gradient of zero."""
    args = {"lr": 0.1, "weight_decay": 0.5, "momentum": 0.9}
    run = Run([plan(factory=Spare, optimizer="SGD", optimizer_args=args)], tmp_path)
    run.trainer.check(run.dataset)
    before = {name: tensor.clone() for name, tensor in run.trainer.module(0).state_dict().items()}
    run.play(*UNCODED)
    after = run.trainer.module(0).state_dict()
    moved = {name.partition(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"used", "silent"}
    assert compare(run) < 1e-5


def test_a_snapshot_is_published_once(tmp_path: Path) -> None:
    run = Run([plan()], tmp_path, options={"inline_bytes": 10})
    run.trainer.publish(0)
    first = run.trainer.weights(0)
    run.trainer.publish(0)
    assert run.trainer.weights(0) is first


def mean_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output, target)


def test_models_are_tried_before_anything_is_invoked(tmp_path: Path) -> None:
    run = Run([plan(args={"norm": True, "dropout": 0.5})], tmp_path)
    before, random = run.trainer.state(0), torch.get_rng_state()
    run.trainer.check(run.dataset)
    assert run.trainer.state(0) == before
    assert torch.equal(torch.get_rng_state(), random)
    with pytest.raises(
        ConfigError, match=r"model 'm' cannot be trained on x float32 \(4, 5\) and y int64 \(4,\): RuntimeE"
    ):
        run.trainer.check(make_dataset(features=5))


def test_a_count_that_a_lazy_scheme_cannot_rely_on_is_found_out(tmp_path: Path) -> None:
    def pair(output: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, int]:
        return nn.functional.cross_entropy(output, target, reduction="sum"), len(target)

    steady, other = (Run([plan(loss=loss)], tmp_path) for loss in ("cross_entropy", pair))
    for run in (steady, other):
        run.trainer.check(run.dataset)
    steady.trainer.require_steady_counts("lag-wk")
    with pytest.raises(ConfigError, match=r"lag-wk reuses gradients.*model 'm' returns \(sum, count\)"):
        other.trainer.require_steady_counts("lag-wk")


def test_a_loss_that_is_a_mean_is_found_out(tmp_path: Path) -> None:
    run = Run([plan(loss=mean_loss)], tmp_path)
    with pytest.raises(ConfigError, match="returns a mean over the rows"):
        run.trainer.check(run.dataset)


def test_a_loss_that_is_spread_out_over_other_rows_is_found_out(tmp_path: Path) -> None:
    """Targets (rows,) beside outputs (rows, 1): torch would compare each with each, which is no sum over samples."""
    data = make_dataset()
    targets = Dataset(data.x, data.y.astype(np.float32))
    line = {"in_features": 6, "out_features": 1}
    run = Run([plan(loss="mse_loss", factory="torch.nn:Linear", args=line)], tmp_path)
    with pytest.raises(ConfigError, match=r"cannot be trained on .* y float32 \(4,\): .*target size .* different"):
        run.trainer.check(targets)
    run.trainer.check(Dataset(data.x, targets.y[:, None]))


@pytest.mark.parametrize(("label", "row"), [(3, 17), (-1, 59), (2**40, 4)])
def test_a_label_that_the_model_has_no_output_for_is_found_wherever_it_lies(
    label: int, row: int, tmp_path: Path
) -> None:
    data, run = make_dataset(), Run([plan(args={"norm": True})], tmp_path)
    data.y[row] = label
    before = run.trainer.state(0)
    told = rf"on label {label} \(row {row}\), has 3 outputs, for labels 0 to 2: IndexError"
    with pytest.raises(ConfigError, match=f"model 'm' cannot be trained {told}"):
        run.trainer.check(data)
    with pytest.raises(ConfigError, match=f"model 'm' cannot be evaluated {told}"):
        run.trainer.check(run.dataset, data)
    assert run.trainer.state(0) == before
    assert run.trainer.module(0).training


def test_labels_that_the_loss_ignores_are_no_classes(tmp_path: Path) -> None:
    data, run = make_dataset(), Run([plan()], tmp_path)
    data.y[7::9] = -100
    run.trainer.check(data, data)
    data.y[5] = -50
    with pytest.raises(ConfigError, match=r"on label -50 \(row 5\)"):
        run.trainer.check(data)


def test_rows_to_judge_by_are_tried_as_well(tmp_path: Path) -> None:
    run = Run([plan(args={"norm": True, "dropout": 0.5})], tmp_path)
    run.trainer.check(run.dataset, make_dataset(rows=1))
    with pytest.raises(ConfigError, match=r"model 'm' cannot be evaluated on x float32 \(4, 5\) and y int64 \(4,\)"):
        run.trainer.check(run.dataset, make_dataset(features=5))


def result(gradient: float, loss: float = 1.0, dtype: str = "float32") -> CodedResult:
    """Of ten rows, for `mlp`."""
    sums = np.zeros(FIXED_SUMS)
    sums[[SumIndex.LOSS, SumIndex.SAMPLES, SumIndex.COUNT]] = 10 * loss, 10, 10
    return CodedResult(np.full(sum(p.numel() for p in mlp().parameters()), 10 * gradient, dtype), sums)


def test_a_gradient_whose_square_overflows_has_a_norm_and_is_clipped(tmp_path: Path) -> None:
    """1e30 squared is more than float32 holds, 1e30 is not."""
    sgd = plan(optimizer="SGD", optimizer_args={"lr": 1.0})
    trainer = Run([replace(sgd, clip_norm=0.5)], tmp_path).trainer
    before = trainer.parameters(0)
    told = trainer.step(0, [(result(1e30), 1.0)])
    assert told.gradient_norm == pytest.approx(1e30 * np.sqrt(len(before)), rel=1e-6)
    assert np.linalg.norm(trainer.parameters(0) - before) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize(("gradient", "loss"), [(1e200, 1.0), (0.1, np.inf), (0.1, np.nan)])
def test_what_is_not_finite_is_a_model_that_has_diverged(gradient: float, loss: float, tmp_path: Path) -> None:
    trainer = Run([plan(dtype="float64")], tmp_path, dataset=make_dataset(dtype="float64")).trainer
    before = trainer.state(0)
    with pytest.raises(Diverged, match=r"model 'm', step 0 has diverged: .*lower its optimizer's lr \(now 0.05\)"):
        trainer.step(0, [(result(gradient, loss, "float64"), 1.0)])
    assert trainer.state(0) == before


WRONG_IN_A_STEP = [
    ({"optimizer_args": {"lr": 1e300}}, "optimizer Adam"),
    ({"optimizer": "SparseAdam"}, "optimizer SparseAdam"),
    ({"scheduler": "OneCycleLR", "scheduler_args": {"max_lr": 0.1, "total_steps": 3}}, "scheduler OneCycleLR"),
]


@pytest.mark.parametrize(("changes", "who"), WRONG_IN_A_STEP)
def test_what_an_optimizer_or_scheduler_raises_in_a_step_is_one_line(
    changes: dict[str, object], who: str, tmp_path: Path
) -> None:
    run = Run([plan(**changes)], tmp_path)
    with pytest.raises(GradmuxError, match=rf"^model 'm', step [03]: {who} raised \w+: .*, then submit again$"):
        run.play(*UNCODED)
    trial = Run([plan(**changes)], tmp_path).trainer
    with pytest.raises(ConfigError, match=rf"^model 'm': {who} cannot do step [03]: \w+: "):
        trial.rehearse(4)


def test_a_scheduler_is_rehearsed_for_as_many_steps_as_there_are(tmp_path: Path) -> None:
    for scheduler, arguments in {"OneCycleLR": {"max_lr": 0.1, "total_steps": 3}, "ReduceLROnPlateau": {}}.items():
        plans = [plan(name, scheduler=scheduler, scheduler_args=arguments) for name in "ab"]
        Run(plans, tmp_path).trainer.rehearse(3)


PASSES: list[int] = []


class Counting(nn.Linear):
    """Notes each of its passes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        PASSES.append(len(x))
        return super().forward(x)


def test_labels_cost_no_further_pass_where_all_is_well(tmp_path: Path) -> None:
    run = Run([plan(factory=Counting, args={"in_features": 6, "out_features": 3})], tmp_path)
    PASSES.clear()
    run.trainer.check(run.dataset, run.dataset)
    assert PASSES == [4, 4], "one to train on, one to judge by"


def paired_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Refuses a target that is not of the very row."""
    if not torch.equal(target, output.detach()[:, 0].round().long()):
        raise ValueError("of another row")
    return output.sum(1)


def test_a_loss_that_looks_at_rows_and_targets_together_is_not_refused(tmp_path: Path) -> None:
    """What the short cut takes for wrong is tried with the row itself."""
    data = make_dataset()
    told = type(data)(np.arange(60, dtype=np.float32)[:, None], np.arange(60))
    trainer = Run([plan(factory=Same, loss=paired_loss)], tmp_path, dataset=told).trainer
    trainer.check(told, told)


class Same(nn.Module):
    """Gives what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * x


def test_adding_a_model_changes_no_other(tmp_path: Path) -> None:
    """Random numbers are those of a model's name: initial weights, and what passes draw."""
    plans = [plan(name) for name in ("a", "b", "c")]
    alone, among = Run(plans[1:2], tmp_path / "alone"), Run(plans, tmp_path / "among")
    assert np.array_equal(alone.trainer.parameters(0), among.trainer.parameters(1))
    assert not np.array_equal(among.trainer.parameters(0), among.trainer.parameters(1))
    assert alone.trainer.seeds == among.trainer.seeds[1:2]
    assert len(set(among.trainer.seeds)) == len(plans)
