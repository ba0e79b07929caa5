"""What can be told without asking anybody: file descriptors, and where calls would go.

Read next: `account.py`.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from urllib.parse import urlsplit

from gradmux.infra.aws.doctor.needs import Needs
from gradmux.infra.aws.door import Door
from gradmux.orchestrator.findings import Finding, failure, warning, well

SERVICES = ("lambda", "s3", "sts")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
OTHER_DESCRIPTORS = 100


def descriptors(needs: Needs) -> Iterator[Finding]:
    """Every invocation in flight is a connection."""
    calls = needs.concurrency or needs.workers
    if calls is None:
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = calls + OTHER_DESCRIPTORS
    if soft < wanted:
        says = f"{soft} file descriptors, {calls} calls in flight need about {wanted}"
        yield warning("descriptors", says, f"ulimit -n {wanted}")
    else:
        yield well("descriptors", f"{soft} file descriptors for {calls} calls in flight")


def endpoints(door: Door, needs: Needs) -> Iterator[Finding]:
    """Where calls really go, and why."""
    urls = {service: door.endpoint(service) for service in SERVICES}
    told = ", ".join(f"{service} {url}" for service, url in urls.items())
    hosts = {service: urlsplit(url).hostname or "" for service, url in urls.items()}
    if needs.local:
        outside = [service for service, host in hosts.items() if host not in LOOPBACK]
        if outside:
            yield failure("endpoints", f"{told}: {', '.join(outside)} would leave this machine", "gradmux local up")
        else:
            yield well("endpoints", told)
        return
    custom = [service for service, host in hosts.items() if not host.endswith(AWS_DOMAINS)]
    if custom:
        why = [name for name in _variables() if os.environ.get(name)]
        do = f"unset {' '.join(why)}" if why else "remove endpoint_url from the AWS profile"
        yield warning("endpoints", f"{told}: {', '.join(custom)} not at AWS", f"meant so? else {do}")
    else:
        yield well("endpoints", told)


def _variables() -> list[str]:
    return ["AWS_ENDPOINT_URL", *(f"AWS_ENDPOINT_URL_{service.upper()}" for service in SERVICES)]
