"""Starting processes that never outlive us and can never reach AWS, and telling a process from another with its pid.

Linux only. Knows nothing of Lambda. Used by `server.py`, `zygote.py`, `parts.py`, `launch.py` and `detached.py`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from gradmux.infra.local.secret import Secret

PR_SET_PDEATHSIG = 1
prctl = ctypes.CDLL(None).prctl  # looked up once: a forked worker copies every page that it touches
NOT_INHERITED = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def die_with_parent(parent: int, signal_number: int = signal.SIGKILL) -> None:
    """Makes the kernel end this process when `parent` (its pid) ends; ends it now when that has already happened.

    The kernel watches the parent's *thread* that forked, so use this only below single-threaded parents.
    """
    prctl(PR_SET_PDEATHSIG, int(signal_number))
    if os.getppid() != parent:
        os._exit(1)


def wake_at_end_of(parent: int) -> bool:
    """Makes the kernel continue this process when `parent` (its pid) ends, should it be stopped then; False: it has.

    For those that clean up after their parent: one that is stopped would not notice, and stay for ever. The signal does
    nothing to a process that runs, so it does not matter that each thread of the parent may send it when it ends.
    """
    prctl(PR_SET_PDEATHSIG, int(signal.SIGCONT))
    return os.getppid() == parent


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when there is no such process, or only its zombie.

    A pid is reused, a pair (pid, start time) is not.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB (2^20 bytes); 0 when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def local_variables(region: str, lambda_url: str, s3_url: str, secret: Secret) -> dict[str, str]:
    """AWS_* variables with which every AWS client talks to the emulator, and to nothing else."""
    return {
        **secret.variables(),
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_ENDPOINT_URL": s3_url,
        "AWS_ENDPOINT_URL_S3": s3_url,
        "AWS_ENDPOINT_URL_LAMBDA": lambda_url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1,localhost",
    }


def child_environment(added: Mapping[str, str], python_path: tuple[str, ...] = ()) -> dict[str, str]:
    """Our environment without the user's AWS settings and proxies, plus `added`."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("AWS_") and name not in NOT_INHERITED
    }
    inherited = kept.get("PYTHONPATH", "").split(os.pathsep)
    paths = [*python_path, *filter(None, inherited)]  # an empty entry would be the working directory
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", **added}


def python_module(module: str, *arguments: str) -> list[str]:
    """The command line that runs one of our modules under this interpreter.

    `-P`: without the working directory on its path, in which a `json.py` would be taken for Python's own.
    """
    return [sys.executable, "-P", "-m", module, *arguments]
