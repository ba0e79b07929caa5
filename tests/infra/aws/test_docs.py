"""What docs/aws.md says is so: its commands parse, its costs follow from the price table, its names exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from gradmux.cli.main import gradmux
from gradmux.cli.options import Settings
from gradmux.infra.aws.doctor.needs import LEAST_SHARE
from gradmux.infra.aws.image import BASES
from gradmux.infra.aws.settings import DeploySettings
from gradmux.infra.aws.template import template
from gradmux.orchestrator.config import ClusterConfig
from gradmux.orchestrator.prices import PRICES
from tests.infra.aws.fakes import NAMES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "aws.md"
TEXT = PAGE.read_text(encoding="utf-8")
JOB = re.compile(r"^\| (\d+) workers, ([\d,]+) rounds, ([\d.]+) s each \| ([\d,]+) \| ([\d,]+) GB-s \| \$([\d.]+) \|$")


def commands() -> list[str]:
    """Every `gradmux ...` line of the shell blocks, and every one in the text that stands for itself."""
    blocks = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    inline = re.findall(r"`(gradmux [a-z]+ --[^`]*)`", TEXT)
    complete = [line for line in inline if not re.search(r"--(memory|timeout)$", line)]
    return [line for line in (*lines, *complete) if line.startswith("gradmux ")]


@pytest.mark.parametrize("line", commands())
def test_its_commands_parse(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requirements.txt").write_text("")
    words = shlex.split(line)[1:]
    context = click.Context(gradmux, obj=Settings())
    _, command, rest = gradmux.resolve_command(context, words)
    assert command is not None
    command.make_context(words[0], rest, parent=context)


def test_its_costs_follow_from_the_price_table() -> None:
    rows = [found for line in TEXT.splitlines() if (found := JOB.match(line))]
    assert len(rows) == 3
    for row in rows:
        workers, rounds, seconds, calls, gb_s, usd = (float(text.replace(",", "")) for text in row.groups())
        assert calls == workers * rounds
        assert gb_s == calls * seconds * DeploySettings().memory_mb / 1024
        costs = PRICES.compute_usd(calls * seconds, DeploySettings().memory_mb) + PRICES.requests_usd(int(calls))
        assert usd == pytest.approx(costs, abs=0.005)
    for said in (f"us-east-1 of {PRICES.date}", f"${PRICES.gb_s:.10f}", f"${PRICES.thousand_puts:g}"):
        assert said in TEXT
    assert f"${PRICES.thousand_gets:.4f}" in TEXT


def test_its_job_file_names_what_deploy_makes() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    cluster = ClusterConfig.model_validate(tomllib.loads(block)["cluster"])
    assert (cluster.function, cluster.bucket) == (NAMES.function, NAMES.bucket)


def test_its_defaults_are_the_settings() -> None:
    settings, declared = DeploySettings(), template()["Parameters"]
    assert f"logs kept {settings.log_days} days" in TEXT
    assert f"deleted after {settings.keep_days} days" in TEXT
    assert declared["LogDays"]["Default"] == settings.log_days
    assert declared["KeepDays"]["Default"] == settings.keep_days
    assert f"below {LEAST_SHARE} MB" in TEXT
    assert {"3.11", "3.12", "3.14"} <= set(BASES)


def test_its_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", TEXT) if not link.startswith("http")]
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
