"""Pictures of a profile: in the format of the suffix, with what they must show; refused before they are drawn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gradmux.orchestrator.delays import DelayProfile, generate
from gradmux.orchestrator.delays.plots import save_heat_map, save_tail_plot
from gradmux.orchestrator.errors import ConfigError

pytest.importorskip("matplotlib")

PROFILE = generate("persistent", 12, 32, 1)


def test_png_and_svg_by_suffix(tmp_path: Path) -> None:
    save_heat_map(PROFILE, tmp_path / "heat.png")
    save_tail_plot([PROFILE, generate("steady", 12, 32, 1)], tmp_path / "tail.SVG")
    assert (tmp_path / "heat.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "tail.SVG").read_text(encoding="utf-8")
    assert "<svg" in drawn
    assert "<!-- persistent -->" in drawn
    assert "<!-- steady -->" in drawn


def test_failed_invocations_are_red_and_even_profiles_are_drawn(tmp_path: Path) -> None:
    import matplotlib.image

    save_heat_map(DelayProfile(np.array([[1.0, np.inf], [1.0, 1.0]])), tmp_path / "failed.png")
    save_heat_map(DelayProfile(np.ones((2, 2))), tmp_path / "even.png")
    red = [0xD6 / 255, 0x27 / 255, 0x28 / 255]
    for name, expected in (("failed.png", True), ("even.png", False)):
        pixels = matplotlib.image.imread(tmp_path / name)[..., :3]
        assert (np.abs(pixels - red).max(axis=-1) < 0.01).any() == expected


def test_other_suffixes_and_missing_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"written as \.png or \.svg"):
        save_heat_map(PROFILE, tmp_path / "heat.gif")
    with pytest.raises(ConfigError, match="there is no folder"):
        save_tail_plot([PROFILE], tmp_path / "nowhere" / "tail.png")


def test_the_package_and_this_module_load_without_matplotlib() -> None:
    check = "import sys, gradmux.orchestrator.delays, orchestrator.delays.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False, timeout=60).returncode == 0
