"""What can go wrong between us and an AWS account.

    AwsError             anything; its text says what to do
    ├── SettingsError    the user asked for something that cannot be
    ├── ApiError         AWS refused a call: its code and message
    └── StepFailed       a step of a plan failed: what was done, what exists, how to go on

Knows nothing of plans. `cli` turns these into exit codes. Read next: `door.py`.
"""

from __future__ import annotations

NO_REGION = "no AWS region: set AWS_REGION, or region in the AWS profile"


DENIED = frozenset(
    {"403", "AccessDenied", "AccessDeniedException", "Forbidden", "UnauthorizedOperation", "AllAccessDisabled"}
)
"""Codes that say: these credentials may not ask."""


class AwsError(Exception):
    """AWS cannot be reached, refuses, or is not in the state that is needed."""


class SettingsError(AwsError):
    """The settings do not go together, or ask for what AWS does not have."""


class ApiError(AwsError):
    """AWS refused one call."""

    def __init__(self, operation: str, code: str, message: str) -> None:
        self.operation, self.code, self.message = operation, code, message
        super().__init__(f"{operation}: {code}: {message}")


class StepFailed(AwsError):
    """A step of a plan failed."""
