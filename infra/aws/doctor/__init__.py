"""Whether an account, a function and a bucket are fit for a job: one line each, with what to do about it.

    findings = examine(door, Needs(function="gradmux-worker", bucket="...", workers=64))

Serves AWS and the emulator alike. Read next: `examine.py`.
"""

from gradmux.infra.aws.doctor.examine import examine
from gradmux.infra.aws.doctor.finding import Finding, Level, exit_code
from gradmux.infra.aws.doctor.needs import Needs

__all__ = ["Finding", "Level", "Needs", "examine", "exit_code"]
