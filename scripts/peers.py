"""`make peers`: `gradmux conform` against an S3 that is not ours, npm's s3rver; and whether it differs where we know.

What differs is listed in docs/aws.md. Skipped, with the reason, where Node is missing. Packages go into .peers/, which
git ignores. Servers listen on 127.0.0.1 and end with this script.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
FOLDER = PROJECT / ".peers"
S3RVER = "s3rver@3.7.1"
KNOWN = {"s3rver": {"s3.condition", "s3.signature"}}
"""peer -> the checks in which it does otherwise than AWS"""
READY_S = 30.0
KEY = "S3RVER"


def main() -> int:
    """0: as known, or skipped; 1: otherwise."""
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        print(f"peers: skipped: {' and '.join(missing)} missing (Node 18 or newer)")
        return 0
    install(S3RVER)
    with s3rver() as url:
        report = conform(url)
    return judged("s3rver", report)


def install(package: str) -> None:
    """Into .peers/, unless it is there."""
    FOLDER.mkdir(exist_ok=True)
    name, _, version = package.rpartition("@")
    installed = FOLDER / "node_modules" / name / "package.json"
    if installed.exists() and json.loads(installed.read_text())["version"] == version:
        return
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--silent", "--no-save", package], cwd=FOLDER, check=True
    )


@contextmanager
def s3rver() -> Iterator[str]:
    """Its URL, with a bucket "gradmux"."""
    port = free_port()
    command = [str(FOLDER / "node_modules" / ".bin" / "s3rver"), "-a", "127.0.0.1", "-p", str(port)]
    with tempfile.TemporaryDirectory(prefix="gradmux-s3rver-") as folder:
        process = subprocess.Popen(
            [*command, "-d", folder, "--configure-bucket", "gradmux"],
            env={**os.environ, "NODE_OPTIONS": "--openssl-legacy-provider"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def conform(url: str) -> dict[str, Any]:
    """The report of `gradmux conform` on an S3 alone."""
    variables = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY, "AWS_REGION": "us-east-1"}
    command = [sys.executable, "-m", "gradmux", "conform", "--s3-url", url, "--bucket", "gradmux", "--json"]
    ran = subprocess.run(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, check=False)
    report: dict[str, Any] = json.loads(ran.stdout)
    return report


def judged(peer: str, report: dict[str, Any]) -> int:
    """Prints what differs, and whether that is news."""
    for check in report["checks"]:
        print(f"{peer}: {check['state']:7} {check['name']}: {check['says']}")
    differs = set(report["differs"])
    for name in sorted(differs - KNOWN[peer]):
        print(f"{peer}: {name} differs, which was not known")
    for name in sorted(KNOWN[peer] - differs):
        print(f"{peer}: {name} does not differ any more: correct KNOWN and docs/aws.md")
    return int(differs != KNOWN[peer])


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


def wait_for(port: int) -> None:
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on port {port} after {READY_S:g} s")


if __name__ == "__main__":
    sys.exit(main())
