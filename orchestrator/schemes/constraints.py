"""Checks that several schemes make of their parameters, as one-line errors that name the value and what would fit."""

from __future__ import annotations

from gradmux.orchestrator.errors import ConfigError


def require_tolerance(scheme: str, stragglers: int, workers: int) -> None:
    """0 <= s < n."""
    if not 0 <= stragglers < workers:
        raise ConfigError(
            f"{scheme}: s (stragglers) = {stragglers} does not fit {workers} workers: use 0 <= s <= {workers - 1}"
        )


def require_max_stragglers(scheme: str, max_stragglers: int, workers: int) -> None:
    """0 <= lambda <= n."""
    if not 0 <= max_stragglers <= workers:
        raise ConfigError(
            f"{scheme}: lambda (max_stragglers) = {max_stragglers} does not fit {workers} workers: "
            f"use 0 <= lambda <= {workers}"
        )


def require_burst(scheme: str, burst: int, window: int) -> None:
    """1 <= B <= W - 1."""
    if window < 2:
        raise ConfigError(
            f"{scheme}: W (window) = {window} is too small: use W >= 2, for instance W = {max(burst, 1) + 1}"
        )
    if burst < 1:
        raise ConfigError(f"{scheme}: B (burst) = {burst} is too small: use 1 <= B <= W - 1 = {window - 1}")
    if burst > window - 1:
        raise ConfigError(
            f"{scheme}: B (burst) = {burst} exceeds W - 1 = {window - 1}: use B <= {window - 1}, or W >= {burst + 1}"
        )


def require_divides(scheme: str, burst: int, window: int) -> None:
    """B divides W - 1."""
    if (window - 1) % burst == 0:
        return
    below = (window - 1) // burst * burst + 1
    divisors = [str(b) for b in range(1, window) if (window - 1) % b == 0]
    fits = f"{', '.join(divisors[:-1])} or {divisors[-1]}"
    raise ConfigError(
        f"{scheme}: B (burst) = {burst} does not divide W - 1 = {window - 1}: with B = {burst} use W (window) = "
        f"{below} or {below + burst}, or with W = {window} use B = {fits}"
    )
