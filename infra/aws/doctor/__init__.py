"""Whether an account, a function and a bucket are fit for a job: one line each, with what to do about it.

    findings = examine_account(door, Needs(function="gradmux-worker", bucket="...", workers=64))

Serves AWS and the emulator alike. Read next: `examine.py`.
"""

from gradmux.infra.aws.doctor.examine import examine_account
from gradmux.infra.aws.doctor.needs import Needs
from gradmux.orchestrator.findings import Finding, Level, exit_code

__all__ = ["Finding", "Level", "Needs", "examine_account", "exit_code"]
