"""The one door to boto3: a call by its API name, a wait by its waiter's name, AWS's refusals as `ApiError`.

`Door` is what everything here asks for; tests put a recording or scripted one in its place. Endpoints, credentials and
region are the session's, so that AWS's own variables and profiles hold. Read next: `names.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoRegionError, WaiterError
from botocore.parsers import ResponseParserError

from gradmux.infra.aws.errors import NO_REGION, ApiError, AwsError
from gradmux.infra.closed_session import closed_session
from gradmux.orchestrator.strangers import is_page, page_told, told_of

LONGEST_CALL_S = 960
"""Above 900 s, the longest that a function may run, so that no invocation is given up and sent again."""
POLL_S = 5


PROVIDERS_OWN = (RuntimeError, ValueError, KeyError, OSError)
"""What credentials' providers raise beside botocore's errors."""


AWSS_HEADERS = {"x-amzn-requestid", "x-amz-request-id"}
"""An answer with one of these is AWS's, whatever it calls its content."""


class Door(Protocol):
    """AWS's API."""

    @property
    def region(self) -> str: ...

    def call(self, service: str, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """One call, by boto3's names. Raises ApiError when AWS refuses, AwsError when it cannot be asked."""
        ...

    def wait(self, service: str, waiter: str, arguments: Mapping[str, Any], limit_s: float) -> None:
        """Until boto3's waiter of that name is content. Raises AwsError when it never will be, or not in time."""
        ...

    def endpoint(self, service: str) -> str:
        """URL that calls of a service go to."""
        ...


class BotoDoor:
    """AWS through boto3; or, by `closed`, nothing but the endpoints that are given."""

    @classmethod
    def closed(cls, region: str, endpoints: Mapping[str, str], *access: str) -> Self:
        """A door that cannot lead to AWS: it reads no profile, no variable and no credentials of the user's.

        `access`: the key of an emulator, id and secret.
        """
        return cls(boto3.Session(botocore_session=closed_session(region, *access)), endpoints, open_to_others=False)

    def __init__(
        self, session: boto3.Session, endpoints: Mapping[str, str] | None = None, *, open_to_others: bool = True
    ) -> None:
        """`endpoints`: service -> URL, for those that are not where the session says; or for all that there are."""
        self._session = session
        self._endpoints = dict(endpoints or {})
        self._open_to_others = open_to_others
        self._clients: dict[str, Any] = {}

    @property
    def region(self) -> str:
        return self._session.region_name or ""

    def call(self, service: str, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        client = self._client(service)
        name = f"{service}.{operation}"
        try:
            answer: dict[str, Any] = getattr(client, operation)(**arguments)
        except ClientError as error:
            _require_aws(name, error.response, str(error.response.get("Error", {}).get("Message", "")))
            told, reason = error.response.get("Error", {}), error.response.get("Reason")
            message = told.get("Message", "") + (f" ({reason})" if reason else "")
            raise ApiError(name, told.get("Code", "Unknown"), message) from error
        except (BotoCoreError, ResponseParserError) as error:
            raise AwsError(f"{name}: {one_line(error)}") from error
        except (*PROVIDERS_OWN,) as error:  # a provider of credentials has failed
            raise AwsError(f"{name}: {type(error).__name__}: {one_line(error)}") from error
        _require_aws(name, answer, str(answer.get("message", "")))
        return answer

    def wait(self, service: str, waiter: str, arguments: Mapping[str, Any], limit_s: float) -> None:
        config = {"Delay": POLL_S, "MaxAttempts": max(1, round(limit_s / POLL_S))}
        try:
            self._client(service).get_waiter(waiter).wait(**arguments, WaiterConfig=config)
        except WaiterError as error:
            last: Any = error.last_response
            _require_aws(f"{service}.{waiter}", last, str(last.get("Error", {}).get("Message", "")))
            raise AwsError(one_line(error)) from error
        except (BotoCoreError, ClientError, ResponseParserError) as error:
            raise AwsError(f"{service}.{waiter}: {one_line(error)}") from error

    def endpoint(self, service: str) -> str:
        return str(self._client(service).meta.endpoint_url)

    def _client(self, service: str) -> Any:
        if service not in self._endpoints and not self._open_to_others:
            raise AwsError(f"{service}: not part of the emulator")
        if service not in self._clients:
            # An invocation that got no answer is not sent twice; calls of the other services may be.
            attempts = 1 if service == "lambda" else 5
            config = Config(
                retries={"total_max_attempts": attempts, "mode": "standard"},
                connect_timeout=10,
                read_timeout=LONGEST_CALL_S,
                proxies=None if self._open_to_others else {},
            )
            try:
                self._clients[service] = self._session.client(  # type: ignore[call-overload]
                    service, config=config, endpoint_url=self._endpoints.get(service)
                )
            except NoRegionError as error:
                raise AwsError(NO_REGION) from error
            except (BotoCoreError, ValueError) as error:
                raise AwsError(f"{service}: {error}") from error
        return self._clients[service]


def one_line(error: Exception) -> str:
    """An error's text; of a web page in it what the page says."""
    text = str(error)
    return page_told(text) or " ".join(text.split())


def _require_aws(name: str, answer: Mapping[str, Any], text: str) -> None:
    """Raises AwsError where it is a web page, and so not AWS's."""
    about = answer.get("ResponseMetadata", {})
    headers, status = about.get("HTTPHeaders", {}), about.get("HTTPStatusCode", 200)
    if AWSS_HEADERS & headers.keys():
        return
    if is_page(headers, text.encode()) and ("content-type" in headers or text):
        raise AwsError(f"{name}: {told_of(status, headers, text.encode(), 'AWS')}")
