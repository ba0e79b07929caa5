"""What is in the bucket is used only when it is what the signed request names; code is named only where it belongs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from torch import nn

from gradmux.lambda_worker.contract import Task, Weights
from gradmux.lambda_worker.digests import DigestError, checked, checked_pieces
from gradmux.lambda_worker.models import ModelError, ModelSpec, build, encode_spec
from tests.lambda_worker.workbench import ORDER, ROWS, Workbench, initial, spans, spec

RUNS_A_COMMAND = ModelSpec("subprocess:run", {"args": ["/bin/true"]}, "cross_entropy")


@given(content=st.binary(max_size=99), at=st.integers(0, 98), flip=st.integers(1, 255))
def test_any_changed_byte_is_found(content: bytes, at: int, flip: int) -> None:
    from gradmux.orchestrator.store import Keys

    changed = bytearray(content or b"x")
    changed[at % len(changed)] ^= flip
    for key in (Keys.model_spec(content), Keys("run").weights(3, 0, 7, content)):
        assert checked(key, content) == content
        assert b"".join(checked_pieces(key, [content[:5], content[5:]])) == content
        with pytest.raises(DigestError, match="it was changed"):
            checked(key, bytes(changed))
        with pytest.raises(DigestError, match="it was changed"):
            list(checked_pieces(key, [bytes(changed)]))


@pytest.mark.parametrize("key", ["", "specs/0.json", "weights/0", "a" * 63, "x" + "a" * 64, "a" * 64 + "/", "A" * 64])
def test_a_key_that_names_no_content_is_refused(key: str) -> None:
    with pytest.raises(DigestError, match="does not end in the SHA-256"):
        checked(key, b"")


def test_a_spec_that_somebody_put_in_the_place_of_another_is_not_run(bench: Workbench, tmp_path: Path) -> None:
    wanted = bench.request(bench_task(bench))
    touched = tmp_path / "touched"
    (task,) = wanted.tasks
    bench.objects.put(task.model, encode_spec(replace(RUNS_A_COMMAND, args={"args": ["touch", str(touched)]})))
    (result,) = bench.ask(wanted).results
    assert result.status == "failed"
    assert "DigestError" in (result.error or "")
    assert not touched.exists()


def test_changed_snapshots_manifests_and_rows_are_not_computed_with(bench: Workbench) -> None:
    task = bench_task(bench)
    assert task.weights.key is not None
    manifest = bench.objects.objects[bench.data]
    for key in (task.weights.key, bench.data, *(key for key in bench.objects.objects if _is_rows(bench, key))):
        kept = bench.objects.objects[key]
        bench.objects.put(key, kept[:-1] + bytes([kept[-1] ^ 1]))
        (result,) = bench.ask(bench.request(task), bench.new_worker()).results
        assert result.status == "failed", key
        assert "DigestError" in (result.error or ""), key
        bench.objects.put(key, kept)
    (result,) = bench.ask(bench.request(task), bench.new_worker()).results
    assert result.status == "ok"
    assert bench.objects.objects[bench.data] == manifest


def test_a_snapshot_without_a_digest_is_refused(bench: Workbench) -> None:
    task = bench_task(bench)
    bench.objects.put("weights/0", bench.objects.objects[task.weights.key or ""])
    (result,) = bench.ask(bench.request(structs.replace(task, weights=Weights(key="weights/0")))).results
    assert "does not end in the SHA-256" in (result.error or "")


# --- which names lead to code -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "subprocess:run", "subprocess:Popen", "os:system", "posix:system", "builtins:exec", "builtins:eval",
        "importlib:import_module", "runpy:run_path", "pickle:loads", "code:interact", "os.path:join",
        "torch:os.system", "torch:sys.exit", "gradmux.lambda_worker.models:inspect.getsource",
        "gradmux.lambda_worker.models:pickle.loads", "functools:partial", "ctypes:CDLL",
    ],
)  # fmt: skip
@pytest.mark.parametrize("role", ["factory", "loss"])
def test_nothing_of_the_standard_library_is_called(name: str, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[object] = []
    monkeypatch.setattr(subprocess, "run", lambda *words, **_: called.append(words))
    named = ModelSpec(name, {"args": ["/bin/true"]}) if role == "factory" else replace(spec(), loss=name)
    with pytest.raises(ModelError, match="standard library"):
        build(named)
    assert called == []


def test_a_package_that_only_imports_a_command_does_not_offer_it(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("gradmux.lambda_worker.pretends")
    package.run = subprocess.run  # type: ignore[attr-defined]
    package.half = partial(subprocess.run, ["/bin/true"])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    for name in ("run", "half"):
        with pytest.raises(ModelError, match="subprocess's own"):
            build(ModelSpec(f"{package.__name__}:{name}"))


@pytest.mark.parametrize("name", ["torch:tensor", "numpy:ndarray", "torch.nn:Parameter", "torch:__version__"])
def test_what_can_make_no_module_is_not_called(name: str) -> None:
    with pytest.raises(ModelError, match=r"built-in function|no torch\.nn\.Module|expected a function"):
        build(ModelSpec(name))


def test_a_module_that_lies_about_is_not_even_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its folder is one of shipped code."""
    (tmp_path / "lies_about.py").write_text("from torch import nn\n\ndef make():\n    return nn.Linear(2, 2)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModelError, match="neither an installed package nor shipped code"):
        build(ModelSpec("lies_about:make"))
    assert "lies_about" not in sys.modules
    monkeypatch.setenv("GRADMUX_CODE", str(tmp_path))
    assert isinstance(build(ModelSpec("lies_about:make")).module, nn.Linear)
    monkeypatch.delitem(sys.modules, "lies_about")


def test_where_nothing_is_set_the_images_own_folder_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_the_image.py").write_text("from torch import nn\n\ndef make():\n    return nn.Linear(2, 2)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("GRADMUX_CODE")
    monkeypatch.setenv("LAMBDA_TASK_ROOT", str(tmp_path))
    assert isinstance(build(ModelSpec("of_the_image:make")).module, nn.Linear)
    monkeypatch.delitem(sys.modules, "of_the_image")


def test_installed_packages_may_be_named() -> None:
    made = build(
        ModelSpec("torch.nn:Linear", {"in_features": 2, "out_features": 3}, "torch.nn.functional:cross_entropy")
    )
    assert isinstance(made.module, nn.Linear)


def bench_task(bench: Workbench) -> Task:
    return Task(0, 0, bench.put_model(), bench.put_weights(initial()), ORDER, 0, ROWS, spans(0, 10))


def _is_rows(bench: Workbench, key: str) -> bool:
    return bench.objects.objects[key] in (bench.x.tobytes(), bench.y.tobytes())
