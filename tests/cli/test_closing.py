"""A key that says when rounds close is added in one place: the job file, the commands and the tuner take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import click
import pytest
from click.testing import CliRunner

from gradmux.cli.closing import closing_options
from gradmux.orchestrator.closing import Closing, key, keys
from gradmux.orchestrator.config import SchemeConfig
from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.job_file import job_schema
from gradmux.orchestrator.policies import Earliest, Mu, limits_of, wait_policy
from gradmux.orchestrator.tune import TuneOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient(Closing):
    """With four more keys."""

    grace_s: float | None = key(None, "seconds that a round waits beyond its end", least=0, most=9)
    tries: int = key(2, "how often that is tried", least=1)
    drift_s: float = key(0.0, "seconds, of either sign")
    tone: Literal["calm", "stern"] = key("calm", "how it is told")


def told(*words: str) -> str:
    @click.command()
    @closing_options(Patient)
    def command(closing: Patient) -> None:
        click.echo(f"{closing.grace_s} {closing.tries} {closing.drift_s} {closing.tone} {wait_policy(closing)}")

    result = CliRunner().invoke(command, list(words))
    return result.output + (str(result.exception) if result.exception else "")


def test_a_new_field_is_an_option_with_its_bounds_its_choices_and_its_text() -> None:
    assert told() == f"None 2 0.0 calm {Earliest()}\n"
    assert told("--grace-s", "1.5", "--tries", "3", "--tone", "stern", "--wait", "mu") == f"1.5 3 0.0 stern {Mu(1.0)}\n"
    assert "0.0<=x<=9" in told("--grace-s", "10").replace("0<=", "0.0<=")
    assert told("--drift-s", "-2.5") == f"None 2 -2.5 calm {Earliest()}\n"
    for name, value in (("--tries", "0"), ("--drift-s", "nan"), ("--wait", "never"), ("--in-flight-cap", "x")):
        assert f"Invalid value for '{name}'" in told(name, value)
    assert "'loud' is not one of 'calm', 'stern'" in told("--tone", "loud")
    assert "Seconds that a round waits beyond its end." in told("--help")


def test_python_has_the_same_bounds() -> None:
    with pytest.raises(ConfigError, match="grace_s is 10, but must be a number: 0 to 9"):
        Patient(grace_s=10)
    with pytest.raises(ConfigError, match=r"in_flight_cap is 1\.5, but must be a share of the workers: 0 to 1"):
        TuneOptions(closing=Closing(in_flight_cap=1.5))
    with pytest.raises(ConfigError, match="mu is -1, but must be a number: at least 0"):
        Closing(wait="mu", mu=-1)


def test_every_field_is_a_key_of_the_job_file_an_option_and_part_of_what_the_loop_is_told() -> None:
    described = job_schema()["$defs"]["SchemeConfig"]["properties"]

    @click.command()
    @closing_options()
    def command(closing: Closing) -> None:
        click.echo(str(closing))

    options = {option.name: option for option in command.params}
    for name, each in keys().items():
        assert described[name]["description"] == each.meaning
        assert described[name].get("default") == each.default
        assert options[name].default == each.default
    given = {"wait": "mu", "mu": 0.5, "wait_out": "all", "straggler_model": "bursty", "harvest_late": False}
    closing = SchemeConfig.model_validate({"name": "gc", "s": 1, **given}).closing
    assert closing == Closing(**given)
    assert wait_policy(closing) == Mu(0.5, "all", "bursty")
    assert not limits_of(closing, 8).harvest_late
