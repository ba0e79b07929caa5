"""Models that cannot be trained are told in one line; user code reaches workers that do not have it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gradmux.lambda_worker.models import build, encode_spec, parse_spec
from gradmux.lambda_worker.state import encode_state
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.ports import ModelState
from gradmux.orchestrator.training.checkpoint import load_state, save_state
from gradmux.orchestrator.training.code import find_code, importing_from, ship_code
from gradmux.orchestrator.training.models import ModelPlan, make_spec, prepare
from tests.orchestrator.training.bench import mlp, tied


def plan(**changes: Any) -> ModelPlan:
    return ModelPlan(**{"name": "net", "factory": mlp, **changes})


def raising() -> nn.Module:
    raise RuntimeError("no such size\nsecond line")


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(2, dtype=torch.int64), requires_grad=False)
        self.b = nn.Parameter(torch.zeros(2))


def frozen() -> nn.Module:
    return mlp().requires_grad_(False)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"factory": raising}, "its factory raised RuntimeError: no such size$"),
        ({"args": {"size": 3}}, "its factory raised TypeError: .*unexpected keyword argument 'size'"),
        ({"factory": lambda: 3}, "its factory returned int, expected a torch.nn.Module"),
        ({"factory": "nowhere.at:all"}, "factory 'nowhere.at:all': there is no module 'nowhere.at'"),
        ({"factory": "math:sine"}, "math has no 'sine', did you mean 'sin'"),
        ({"factory": "math:pi"}, "is no function, but float"),
        ({"factory": "math"}, "expected module:function"),
        ({"factory": frozen}, "no parameter that is trained"),
        ({"factory": lambda: nn.BatchNorm1d(3, track_running_stats=False)}, "track_running_stats"),
        ({"dtype": "float16"}, "dtype 'float16', expected float32 or float64"),
        ({"optimizer": "Adamm"}, "torch.optim has no optimizer 'Adamm'"),
        ({"optimizer": "lr_scheduler"}, "torch.optim has no optimizer 'lr_scheduler'"),
        ({"optimizer": "LBFGS"}, "LBFGS evaluates the loss by itself"),
        ({"optimizer_args": {"lr": -1.0}}, "optimizer SGD: Invalid learning rate: -1.0"),
        ({"optimizer_args": {"rate": 1.0}}, "optimizer SGD: .*unexpected keyword argument 'rate'"),
        ({"scheduler": "StepLRR"}, "torch.optim.lr_scheduler has no scheduler 'StepLRR'"),
        ({"scheduler": "StepLR"}, "scheduler StepLR: .*step_size"),
        ({"loss": "cros_entropy"}, "torch.nn.functional has no loss 'cros_entropy'"),
        ({"loss": "math:nothing"}, "loss 'math:nothing': math has no 'nothing'"),
    ],
)
def test_models_that_cannot_be_trained(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        prepare(plan(**changes))
    assert str(caught.value).startswith("model 'net': ")
    assert "\n" not in str(caught.value)


def test_parameters_must_be_floats() -> None:
    with pytest.raises(ConfigError, match=r"parameters of type torch\.int64"):
        prepare(plan(factory=Complex))


def test_the_seed_gives_the_weights_and_leaves_torchs_random_numbers_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, same, other = (prepare(plan(seed=seed)).module for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one[0].weight, same[0].weight)  # type: ignore[index]
    assert not torch.equal(one[0].weight, other[0].weight)  # type: ignore[index]


def test_two_threads_that_build_models_draw_no_numbers_of_each_other() -> None:
    """The second one begins while the first one is within its factory, if it can."""
    within = [threading.Event(), threading.Event()]

    def first() -> nn.Module:
        within[0].set()
        within[1].wait(0.2)
        return mlp()

    def second() -> nn.Module:
        within[1].set()
        return mlp()

    def build_second() -> None:
        within[0].wait()
        built.append(prepare(plan(factory=second, seed=4)).module)

    built: list[nn.Module] = []
    thread = threading.Thread(target=build_second)
    thread.start()
    built.insert(0, prepare(plan(factory=first, seed=3)).module)
    thread.join()
    for module in built:
        assert any(torch.equal(module[0].weight, prepare(plan(seed=seed)).module[0].weight) for seed in (3, 4))  # type: ignore[index]
    assert not torch.equal(built[0][0].weight, built[1][0].weight)  # type: ignore[index]


def test_a_worker_builds_the_same_model() -> None:
    for factory in (mlp, tied):
        described = plan(factory=factory, seed=3, dtype="float64", loss=nn.functional.cross_entropy)
        there, here = build(parse_spec(encode_spec(make_spec(described)))), prepare(described).model
        assert there.dtype == here.dtype
        for (name, a), (other, b) in zip(
            there.module.state_dict().items(), here.module.state_dict().items(), strict=True
        ):
            assert name == other
            assert torch.equal(a, b)


def test_what_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"model 'net': factory .*locked.* cannot be sent to workers"):
        make_spec(plan(factory=named("locked", lambda: (lock, mlp())[1])))
    with pytest.raises(ConfigError, match="model 'net': args must be JSON values"):
        make_spec(plan(args={"hidden": object()}))


def named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    function.__qualname__ = name
    return function


@pytest.fixture
def users_files(tmp_path: Path) -> Iterator[Path]:
    """Two modules of a user: one imports the other."""
    (tmp_path / "gm_layers.py").write_text(
        "import torch\n"
        "class Twice(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        return 2 * super().forward(x)\n"
    )
    (tmp_path / "gm_models.py").write_text(
        "import gm_layers\nSIZE = 3\ndef make(out=2):\n    return gm_layers.Twice(SIZE, out)\n"
    )
    (tmp_path / "gm_broken.py").write_text("1 / 0\n")
    (tmp_path / "gm_needy.py").write_text("import gm_not_there\n")
    with importing_from(tmp_path):
        yield tmp_path
    for name in [name for name in sys.modules if name.startswith("gm_")]:
        del sys.modules[name]


def test_a_worker_needs_none_of_the_users_files(users_files: Path, tmp_path: Path) -> None:
    spec = make_spec(plan(factory="gm_models:make", args={"out": 4}))
    (tmp_path / "spec.json").write_bytes(encode_spec(spec))
    code = (
        "import sys\nfrom gradmux.lambda_worker.models import build, parse_spec\n"
        "model = build(parse_spec(open(sys.argv[1], 'rb').read()))\n"
        "print(type(model.module).__name__, tuple(model.module.weight.shape), 'gm_layers' in sys.modules)\n"
    )
    project = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "spec.json")],
        cwd=project, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "Twice (4, 3) False\n", done.stderr


def test_installed_functions_travel_by_name() -> None:
    assert ship_code("torch.nn:Linear", "factory") == "torch.nn:Linear"


def test_modules_that_fail_are_told(users_files: Path) -> None:
    with pytest.raises(ConfigError, match="importing gm_broken raised ZeroDivisionError: division by zero"):
        find_code("gm_broken:make", "factory")
    with pytest.raises(ConfigError, match="importing gm_needy needs gm_not_there, which is not installed"):
        find_code("gm_needy:make", "factory")


def test_checkpoints_hold_tied_weights_once_and_torch_users_can_load_them(tmp_path: Path) -> None:
    from safetensors.torch import load_model

    state = save_state(prepare(plan(factory=tied, seed=1)))
    (tmp_path / "m.safetensors").write_bytes(state.weights)
    module = tied()
    load_model(module, tmp_path / "m.safetensors")
    for name, tensor in prepare(plan(factory=tied, seed=1)).module.state_dict().items():
        assert torch.equal(module.state_dict()[name], tensor)


def test_checkpoints_of_channels_last_models() -> None:
    def conv() -> nn.Module:
        return nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    saved, fresh = prepare(plan(factory=conv, seed=1)), prepare(plan(factory=conv, seed=2))
    load_state(fresh, save_state(saved))
    assert torch.equal(saved.module.weight, fresh.module.weight)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"args": {"hidden": 6}}, r"0.weight is torch.float32 \(5, 6\) there and torch.float32 \(6, 6\) here"),
        ({"factory": tied}, "of another model, .* is in one of them only"),
        ({"dtype": "float64"}, "torch.float32 .* there and torch.float64 .* here"),
    ],
)
def test_checkpoints_of_other_models_are_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        load_state(prepare(plan(**change)), save_state(prepare(plan())))


NO_PROGRESS: list[dict[str, Any]] = [
    {},
    {"optimizer": {}},
    {"kinds": 5},
    {"kinds": "\x1b[2J"},
    {"kinds": "Adam", "buffers": [1]},
    {"kinds": "Adam", "buffers": {"a": 1}},
]


@pytest.mark.parametrize(
    "progress",
    [b"", b"junk", b"\x80\x02cos\nsystem\n(S'true'\ntR.", b"\xff" * 8, *map(encode_state, NO_PROGRESS)],
)
def test_damaged_checkpoints_are_refused(progress: bytes) -> None:
    good = save_state(prepare(plan(optimizer="Adam")))
    with pytest.raises(ConfigError, match="its optimizer state cannot be read"):
        load_state(prepare(plan(optimizer="Adam")), ModelState(1, good.weights, progress))
    with pytest.raises(ConfigError, match="not safetensors"):
        load_state(prepare(plan()), ModelState(1, good.weights[:-3], good.progress))


@pytest.mark.parametrize(
    "optimizer", [None, {}, [], 7, {"state": 5}, {"state": {}, "param_groups": [{}]}, {"state": [], "param_groups": {}}]
)
def test_states_of_the_wrong_kind_are_refused(optimizer: Any) -> None:
    good = save_state(prepare(plan(optimizer="Adam")))
    progress = encode_state({"kinds": "Adam", "buffers": {}, "optimizer": optimizer})
    with pytest.raises(ConfigError, match="not this optimizer's state"):
        load_state(prepare(plan(optimizer="Adam")), ModelState(1, good.weights, progress))


def test_an_optimizer_takes_its_own_state_alone() -> None:
    saved = save_state(prepare(plan(optimizer="Adam")))
    with pytest.raises(ConfigError, match="it was stepped by Adam, not by SGD with ConstantLR"):
        load_state(prepare(plan(scheduler="ConstantLR")), saved)
    wider = save_state(prepare(plan(optimizer="Adam", args={"norm": True})))
    with pytest.raises(ConfigError, match="not this optimizer's state"):
        load_state(prepare(plan(optimizer="Adam")), ModelState(1, saved.weights, wider.progress))
