"""The door to botocore: whose credentials, which region, which endpoint, whom to trust. All else is said elsewhere.

Honours what AWS's own tools honour: profiles, `AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_LAMBDA` and `_S3`,
`AWS_CA_BUNDLE`, container and instance roles. Makes no request. Used by `store.py` and `fleets/lambda_fleet.py`.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, NoRegionError
from botocore.httpsession import get_cert_path
from botocore.loaders import Loader, create_loader

from gradmux.orchestrator.errors import PreflightError

PROBES: Mapping[str, tuple[str, dict[str, str]]] = MappingProxyType(
    {
        "lambda": ("invoke", {"FunctionName": "f"}),
        "s3": ("get_object", {"Bucket": "b", "Key": "k"}),  # too short a name to become part of the host's
    }
)
"""service -> a request that tells where requests of that service go; it is never sent"""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one AWS service is reached."""

    service: str
    url: str
    """No slash at its end."""
    region: str

    @property
    def custom(self) -> bool:
        """Not the region's ordinary public endpoint: an emulator, a compatible store, a VPC or FIPS endpoint."""
        public = (f"https://{self.service}.{self.region}.amazonaws.com", f"https://{self.service}.amazonaws.com")
        return self.url not in public


def new_session(profile: str | None = None) -> botocore.session.Session:
    """A botocore session of its own, so that threads share none. Raises PreflightError for an unknown profile.

    AWS_REGION goes before AWS_DEFAULT_REGION and the profile, as in AWS's command line; botocore itself overlooks it.
    """
    session = botocore.session.Session(profile=profile)
    if region := os.environ.get("AWS_REGION"):
        session.set_config_variable("region", region)
    try:
        session.get_scoped_config()
        session.register_component("data_loader", service_models(session.get_config_variable("data_path")))
    except BotoCoreError as error:
        raise PreflightError(f"AWS configuration: {error}") from error
    return session


@cache
def service_models(data_path: str | None = None) -> Loader:
    """botocore's descriptions of services, read once: they take a session of its own a twentieth of a second."""
    loader: Loader = create_loader(data_path)
    return loader


def resolve_endpoint(session: botocore.session.Session, service: str, url: str | None = None) -> Endpoint:
    """The endpoint that a stock boto3 client of `service` would use, or `url` in its place.

    Raises: PreflightError when no region is set, or the configuration is not usable.
    """
    try:
        client: Any = session.create_client(service, endpoint_url=url, config=Config(signature_version=UNSIGNED))
        asked = _asked(client, service)
    except NoRegionError as error:
        raise PreflightError("no AWS region: set AWS_REGION, or region in the AWS profile") from error
    except (BotoCoreError, ValueError) as error:
        raise PreflightError(f"{service} endpoint: {error}") from error
    known = client.meta.endpoint_url.rstrip("/")
    same = urlsplit(known).netloc == urlsplit(asked).netloc
    return Endpoint(service, known if same else asked, client.meta.region_name)


class _NotSent(Exception):
    """Instead of a request."""


def _asked(client: Any, service: str) -> str:
    """Scheme and host that the client would send a request to.

    botocore decides that anew at each request. What a client says of itself follows older rules, and is no endpoint at
    all in some places (S3 under FIPS in us-east-1, dual stack in several partitions).
    """

    def stop(request: Any, **_: Any) -> None:
        raise _NotSent(request.url)

    operation, arguments = PROBES[service]
    client.meta.events.register(f"before-send.{service}", stop)
    try:
        getattr(client, operation)(**arguments)
    except _NotSent as sent:
        parts = urlsplit(str(sent))
        return f"{parts.scheme}://{parts.netloc}"
    raise AssertionError("the request was to be stopped")


def find_credentials(session: botocore.session.Session) -> Credentials:
    """The session's credentials, refreshable ones included. Raises PreflightError when there are none."""
    try:
        with renewing():
            credentials = session.get_credentials()
    except CredentialTrouble as error:
        raise PreflightError(f"AWS {error}") from error
    if credentials is None:
        raise PreflightError("no AWS credentials found: run `aws configure`, or set AWS_PROFILE")
    return credentials


class CredentialTrouble(Exception):
    """New credentials could not be had. One line."""


@contextmanager
def renewing() -> Iterator[None]:
    """Within it, whatever a provider raises is CredentialTrouble: STS refuses, a login is over, a program fails, ..."""
    try:
        yield
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise CredentialTrouble(f"credentials cannot be renewed: {text}") from error


def tls_context(session: botocore.session.Session, url: str) -> ssl.SSLContext | None:
    """How a server is to prove who it is; None when nobody has to. Raises PreflightError as `authorities` does."""
    if urlsplit(url).scheme != "https":
        return None
    named = authorities(session)
    return ssl.create_default_context(cafile=named or get_cert_path(True))


def authorities(session: botocore.session.Session) -> str | None:
    """The file of authorities that the user wants to be trusted; None: the usual ones.

    Raises: PreflightError when it cannot be used.
    """
    named: str | None = session.get_config_variable("ca_bundle")
    if named is not None:
        try:
            ssl.create_default_context(cafile=named)
        except OSError as error:  # ssl.SSLError is one
            raise PreflightError(
                f"AWS_CA_BUNDLE (ca_bundle in the profile) = {named}: not a file of certificates in PEM: {error}"
            ) from error
    return named
