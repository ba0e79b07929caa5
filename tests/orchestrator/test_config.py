"""The job file: what is accepted, and that every mistake is one line which names file, key, fault and remedy."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gradmux.orchestrator.config import JobConfig
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.job_file import job_schema, load_job, parse_job

MINIMAL = """
[scheme]
name = "m-sgc"
B = 1
W = 2
lambda = 4
[data]
train = "digits:train"
batch_size = 64
[training]
steps = 3
[[models]]
name = "a"
factory = "mymodels:mlp"
"""


def parsed(text: str) -> JobConfig:
    return parse_job(tomllib.loads(text), source="job.toml")


def refusal(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    assert caught.value.exit_code == 2
    return str(caught.value).splitlines()


@pytest.fixture
def job_path(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(MINIMAL)
    return path


def test_a_minimal_job_gets_the_documented_defaults() -> None:
    job = parsed(MINIMAL)
    assert (job.cluster.backend, job.cluster.workers, job.cluster.memory_mb) == ("local", 64, 2048)
    assert job.scheme.wait == "earliest"
    assert job.training.loss == "cross_entropy"


def test_scheme_parameters_stand_beside_the_name() -> None:
    job = parsed(MINIMAL.replace('name = "m-sgc"', 'name = "m-sgc"\nwait = "mu"\nmu = 0.5'))
    assert job.scheme.parameters == {"B": 1, "W": 2, "lambda": 4}
    assert job.scheme.mu == 0.5


def test_sweep_makes_one_named_model_per_combination() -> None:
    job = parsed(MINIMAL + '[sweep]\n"optimizer.lr" = [1e-2, 1e-3]\n"args.hidden" = [16, 32]\n')
    models = job.expanded_models()
    assert [model.name for model in models] == [
        "a-lr=0.01-hidden=16",
        "a-lr=0.01-hidden=32",
        "a-lr=0.001-hidden=16",
        "a-lr=0.001-hidden=32",
    ]
    assert models[1].optimizer.arguments == {"lr": 0.01}
    assert models[1].args == {"hidden": 32}


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("training.steps=50", lambda job: job.training.steps == 50),
        ("scheme.name=gc", lambda job: job.scheme.name == "gc"),
        ('scheme.name="gc"', lambda job: job.scheme.name == "gc"),
        ("cluster.workers=auto", lambda job: job.cluster.workers == "auto"),
        ("models.0.args.hidden=8", lambda job: job.models[0].args == {"hidden": 8}),
        ('sweep."optimizer.lr"=[0.1, 0.2]', lambda job: len(job.expanded_models()) == 2),
        ("emulator.faults={crash = 0.1}", lambda job: job.emulator.faults == {"crash": 0.1}),
        ('scheme={name="gc", s=1}', lambda job: job.scheme.parameters == {"s": 1}),
        ("cluster.memory_mb=512", lambda job: job.cluster.memory_mb == 512),
        ("scheme.wait=mu", None),
    ],
)
def test_overrides(job_path: Path, override: str, read) -> None:  # type: ignore[no-untyped-def]
    if read is None:
        with pytest.raises(ConfigError, match=r"scheme: wait = \"mu\" needs mu"):
            load_job(job_path, [override])
    else:
        assert read(load_job(job_path, [override]))


def test_the_in_flight_cap_belongs_to_the_rule_that_heeds_it(job_path: Path) -> None:
    assert load_job(job_path, ["scheme.in_flight_cap=0"]).scheme.in_flight_cap == 0
    with pytest.raises(ConfigError, match=r'wait = "mu" closes rounds whatever is in flight: leave out in_flight_cap'):
        load_job(job_path, ["scheme.wait=mu", "scheme.mu=1.0", "scheme.in_flight_cap=0.1"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.steps", "--set training.steps: must be KEY=VALUE"),
        ("=3", "--set =3: must be KEY=VALUE"),
        ("training.steps.x=3", "training.steps is not a table, but 3"),
        ("models.4.name=b", "models is a list of 1; use models.0 to models.0"),
        ("a b=3", "'a b' is not a dotted key"),
        ("training.step=3", "job.toml: training.step: is not a key of this section; did you mean 'steps'?"),
    ],
)
def test_wrong_overrides(job_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_job(job_path, [override])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("steps = 3", "steps = 0", "job.toml: training.steps: must be at least 1 (is 0)"),
        ("steps = 3", "steps = true", "job.toml: training.steps: must be a whole number (is true)"),
        ("steps = 3", 'steps = "3"', 'job.toml: training.steps: must be a whole number (is "3")'),
        ("steps = 3", "seed = 1", "job.toml: training.steps: is missing"),
        ("B = 1", "B = [1]", "job.toml: scheme.B: must be a whole number or a number or a string (is [1])"),
        ('name = "a"', 'name = "a/b"', "must consist of letters, digits and . _ = + - only"),
        (
            '"mymodels:mlp"',
            '"mymodels.mlp"',
            'job.toml: models.0.factory: must be "module:function" (is "mymodels.mlp")',
        ),
        (
            "[data]",
            "[cluster]\nbackend = 'gcp'\n[data]",
            "job.toml: cluster.backend: there is no backend 'gcp'; installed: aws, local",
        ),
        ("[data]", "[cluster]\nworkers = 'many'\n[data]", "job.toml: cluster.workers: must be"),
        ("[data]", "[cluster]\nworkers = 9\nconcurrency = 8\n[data]", "workers = 9 do not fit concurrency = 8"),
        ("[data]", "[clutser]\n[data]", "job.toml: clutser: is not a key of this section; did you mean 'cluster'?"),
        (
            "[data]",
            "[sweep]\n'lr' = [1]\n[data]",
            "sweep: 'lr' is not a key of a model; use args.NAME, optimizer.NAME, ",
        ),
        ("[data]", "[sweep]\n'factory' = ['x']\n[data]", "sweep: factory=x does not give a valid model"),
        ("[data]", "[sweep]\n'optimizer.lr' = []\n[data]", "job.toml: sweep.optimizer.lr: must not be empty"),
        ("[data]", "[emulator]\nfaults = {crash = 2.0}\n[data]", "emulator.faults.crash: must be at most 1 (is 2.0)"),
    ],
)
def test_each_mistake_is_one_line(old: str, new: str, line: str) -> None:
    lines = refusal(MINIMAL.replace(old, new, 1))
    assert len(lines) == 1
    assert line in lines[0]


def test_all_mistakes_are_told_at_once() -> None:
    lines = refusal(MINIMAL.replace("steps = 3", "steps = 0").replace("batch_size = 64", "batch_size = 0"))
    assert [line.split(": ")[1] for line in lines] == ["data.batch_size", "training.steps"]


def test_a_job_is_named_like_a_file() -> None:
    assert "name: must consist of letters, digits and . _ - only" in refusal("name = 'a=b'\n" + MINIMAL)[0]


def test_two_models_of_one_name_are_refused() -> None:
    assert "the name 'a' occurs twice" in refusal(MINIMAL + '[[models]]\nname = "a"\nfactory = "m:f"\n')[0]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    """Some editors begin a file with U+FEFF."""
    (tmp_path / "job.toml").write_text(MINIMAL, encoding="utf-8-sig")
    assert load_job(tmp_path / "job.toml").data.batch_size == 64


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"name = ", "is not valid TOML"), (b"\xff", "is not UTF-8 text")],
)
def test_files_that_do_not_parse(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_job(path)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such job file"):
        load_job(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_job(tmp_path)


def test_a_job_cannot_be_changed() -> None:
    job = parsed(MINIMAL)
    with pytest.raises(ValueError, match="frozen"):
        job.name = "other"  # type: ignore[misc]


def test_the_schema_describes_every_section() -> None:
    schema = job_schema()
    assert set(schema["properties"]) == {*JobConfig.model_fields, "emulator"}
    assert schema["$defs"]["DataConfig"]["required"] == ["train", "batch_size"]
    assert schema["$defs"]["ClusterConfig"]["additionalProperties"] is False
