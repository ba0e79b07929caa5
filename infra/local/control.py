"""The few reads of Lambda's control plane that a client needs to check a function before it uses it.

Pure. Everything else of the control plane is moto's, behind the S3 endpoint. Used by `endpoint.py`.
"""

from __future__ import annotations

from typing import Any

from gradmux.infra.local.config import EmulatorConfig
from gradmux.infra.local.names import function_arn

CODE_LIMIT_BYTES = 262_144_000


def function_configuration(config: EmulatorConfig, version: str) -> dict[str, Any]:
    """GetFunctionConfiguration's answer."""
    return {
        "FunctionName": config.function,
        "FunctionArn": function_arn(config.region, config.function),
        "Version": version,
        "PackageType": "Image",
        "MemorySize": config.memory_mb,
        "Timeout": max(1, round(config.timeout_s)),
        "State": "Active",
        "LastUpdateStatus": "Successful",
        "Architectures": ["x86_64"],
        "EphemeralStorage": {"Size": 512},
        "Environment": {"Variables": dict(config.variables)},
    }


def account_settings(config: EmulatorConfig) -> dict[str, Any]:
    """GetAccountSettings' answer: how many invocations may be in flight."""
    limits = {
        "TotalCodeSize": 80_530_636_800,
        "CodeSizeUnzipped": CODE_LIMIT_BYTES,
        "CodeSizeZipped": 52_428_800,
        "ConcurrentExecutions": config.concurrency,
        "UnreservedConcurrentExecutions": config.concurrency,
    }
    return {"AccountLimit": limits, "AccountUsage": {"TotalCodeSize": 0, "FunctionCount": 1}}
