"""Checks that several schemes make of their parameters, as one-line errors that name the value and what would fit."""

from __future__ import annotations

import numpy as np

from gradmux.orchestrator.errors import ConfigError
from gradmux.orchestrator.schemes.facts import BoolArray, IntArray


def window_fits(burst: IntArray | int, window: IntArray | int) -> BoolArray:
    """1 <= B <= W - 1, of each pair."""
    return np.logical_and(np.greater_equal(burst, 1), np.less(burst, window))


def burst_divides(burst: IntArray | int, window: IntArray | int) -> BoolArray:
    """Does B divide W - 1, for each pair with B >= 1?"""
    return np.equal(np.remainder(np.subtract(window, 1), burst), 0)


def most_fits(max_stragglers: IntArray | int, workers: int) -> BoolArray:
    """0 <= lambda <= n, of each."""
    return np.logical_and(np.greater_equal(max_stragglers, 0), np.less_equal(max_stragglers, workers))


def require_tolerance(scheme: str, stragglers: int, workers: int) -> None:
    """0 <= s < n."""
    if not 0 <= stragglers < workers:
        raise ConfigError(
            f"{scheme}: s (stragglers) = {stragglers} does not fit {workers} workers: use 0 <= s <= {workers - 1}"
        )


def require_max_stragglers(scheme: str, max_stragglers: int, workers: int) -> None:
    """0 <= lambda <= n."""
    if not most_fits(max_stragglers, workers):
        raise ConfigError(
            f"{scheme}: lambda (max_stragglers) = {max_stragglers} does not fit {workers} workers: "
            f"use 0 <= lambda <= {workers}"
        )


def require_burst(scheme: str, burst: int, window: int) -> None:
    """1 <= B <= W - 1."""
    if window_fits(burst, window):
        return
    if window < 2:
        raise ConfigError(
            f"{scheme}: W (window) = {window} is too small: use W >= 2, for instance W = {max(burst, 1) + 1}"
        )
    if burst < 1:
        raise ConfigError(f"{scheme}: B (burst) = {burst} is too small: use 1 <= B <= W - 1 = {window - 1}")
    raise ConfigError(
        f"{scheme}: B (burst) = {burst} exceeds W - 1 = {window - 1}: use B <= {window - 1}, or W >= {burst + 1}"
    )


def require_divides(scheme: str, burst: int, window: int) -> None:
    """B divides W - 1."""
    if burst_divides(burst, window):
        return
    below = (window - 1) // burst * burst + 1
    divisors = [str(b) for b in range(1, window) if (window - 1) % b == 0]
    fits = f"{', '.join(divisors[:-1])} or {divisors[-1]}"
    raise ConfigError(
        f"{scheme}: B (burst) = {burst} does not divide W - 1 = {window - 1}: with B = {burst} use W (window) = "
        f"{below} or {below + burst}, or with W = {window} use B = {fits}"
    )
