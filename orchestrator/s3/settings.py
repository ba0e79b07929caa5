"""Every setting of the S3 library, said explicitly: it reads the environment behind our back where we say nothing.

The library (obstore, over Rust's object_store) takes each variable AWS_* that it knows for a setting, whatever AWS's
own tools make of it, and so may go elsewhere, sign nothing or refuse to begin. Two settings cannot be said in a neutral
way; their variables are hidden while a client is made. Where requests go, through which proxy and whom they trust comes
from botocore alone. Read next: `store.py`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import botocore.session
from botocore.utils import get_environ_proxies
from obstore.store import S3Store as ObstoreS3

from gradmux.orchestrator.aws import Endpoint, authorities

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config

LOOPBACK = ("127.0.0.1", "localhost", "::1")
NOWHERE = "http://127.0.0.1:9"
"""A proxy for nothing: the discard port."""
REQUEST_S = 600.0
"""A whole request may take so long, however slowly its bytes drip."""
CONNECT_S = 10.0
HIDDEN = frozenset({"AWS_CHECKSUM_ALGORITHM", "AWS_SERVER_SIDE_ENCRYPTION"})
"""Variables of settings that have no neutral value."""
_MAKING = threading.Lock()


def client(bucket: str, endpoint: Endpoint, session: botocore.session.Session, **more: Any) -> ObstoreS3:
    """An S3 client that the environment says nothing to. `more` goes to obstore's constructor as it is."""
    with _MAKING, _hidden():
        return ObstoreS3(
            bucket, config=config(bucket, endpoint), client_options=client_options(endpoint, session), **more
        )


def config(bucket: str, endpoint: Endpoint) -> S3Config:
    """Of S3 itself."""
    virtual = not endpoint.custom and "." not in bucket  # a wildcard in a certificate covers no dots
    host = urlsplit(endpoint.url)
    return {
        "region": endpoint.region,
        "default_region": endpoint.region,
        # Not `endpoint`: AWS_ENDPOINT_URL_S3 in the environment would go before it.
        "aws_endpoint_url_s3": f"{host.scheme}://{bucket}.{host.netloc}" if virtual else endpoint.url,
        "virtual_hosted_style_request": virtual,
        "s3_express": False,
        "skip_signature": False,
        "unsigned_payload": False,
        "imdsv1_fallback": False,
        "request_payer": False,
        "conditional_put": "etag",
        "copy_if_not_exists": "multipart",
        "disable_tagging": False,
        "disable_bulk_delete": False,
        "sse_bucket_key_enabled": False,
    }


def client_options(endpoint: Endpoint, session: botocore.session.Session) -> ClientConfig:
    """Of HTTP: a store on this machine is reached past every proxy, and nothing else is reached at all."""
    plain = endpoint.url.startswith("http://")
    options: ClientConfig = {
        "allow_http": plain,
        "allow_invalid_certificates": False,
        "timeout": timedelta(seconds=REQUEST_S),
        "connect_timeout": timedelta(seconds=CONNECT_S),
        "default_content_type": "application/octet-stream",
    }
    named = None if plain else authorities(session)
    if named is not None:  # beside the usual ones
        options["root_certificate"] = Path(named).read_bytes()
    options.update(_way(endpoint))
    return options


def _way(endpoint: Endpoint) -> ClientConfig:
    """The proxy that AWS's own tools would take, or none, said so that no variable adds one."""
    parts = urlsplit(endpoint.url)
    if parts.hostname in LOOPBACK:
        return {"proxy_url": NOWHERE, "proxy_excludes": ",".join(LOOPBACK)}
    proxy = get_environ_proxies(endpoint.url).get(parts.scheme)
    if proxy is not None:
        return {"proxy_url": proxy if "//" in proxy else f"http://{proxy}"}
    return {"proxy_url": NOWHERE, "proxy_excludes": parts.hostname or ""}


@contextmanager
def _hidden() -> Iterator[None]:
    """Takes the variables away that cannot be answered by a setting; does nothing where there are none, as a rule."""
    taken = {name: os.environ.pop(name) for name in tuple(os.environ) if name.upper() in HIDDEN}
    try:
        yield
    finally:
        os.environ.update(taken)
