"""Workers on AWS Lambda over stock boto3 and one thread per call: slower, and what `lambda_fleet.py` is held against.

It costs ten times the processor time per call. Same contract, same outcomes: the tests of the fleets play both. Read
next: `orchestrator/fleets/replies.py`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)
from msgspec.structs import replace

from gradmux.lambda_worker.contract import Request
from gradmux.orchestrator.aws import find_credentials, new_session, resolve_endpoint
from gradmux.orchestrator.errors import PreflightError
from gradmux.orchestrator.fleets.calling import (
    CONNECT_S,
    IMPATIENT,
    OUTCOMES,
    SILENCE_S,
    Backoff,
    Function,
    MakesRequests,
    Patience,
    request_body,
)
from gradmux.orchestrator.fleets.inbox import Inbox
from gradmux.orchestrator.fleets.refusals import Verdict
from gradmux.orchestrator.fleets.replies import Answer, ReplyReader, ended, retry_after_s
from gradmux.orchestrator.ports import Arrival, Invocation, Store


class Boto3Fleet:
    """`ports.Fleet` over boto3's `invoke`. At most `threads` calls are under way, later ones wait for a thread."""

    def __init__(
        self,
        function: Function,
        requests: MakesRequests,
        store: Store,
        *,
        run: str,
        session: botocore.session.Session | None = None,
        endpoint_url: str | None = None,
        patience: Patience | None = None,
        log_tail: bool = True,
        silence_s: float = SILENCE_S,
        threads: int = 256,
        seed: int | None = None,
    ) -> None:
        """Like `LambdaFleet`. Raises PreflightError without region or credentials."""
        session = session or new_session()
        self.endpoint = resolve_endpoint(session, "lambda", endpoint_url)
        find_credentials(session)
        self._client = boto3.Session(botocore_session=session).client(
            "lambda",
            endpoint_url=self.endpoint.url,
            region_name=self.endpoint.region,
            config=_config(function.timeout_s + silence_s, threads),
        )
        self._silence_s = function.timeout_s + silence_s
        self._function, self._requests, self._reader = function, requests, ReplyReader(run, store)
        self._options = {"FunctionName": function.name, "LogType": "Tail" if log_tail else "None"}
        if function.qualifier:
            self._options["Qualifier"] = function.qualifier
        self._patience, self._randomness = patience or Patience(), random.Random(seed)
        self._inbox, self._closing = Inbox(), threading.Event()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="boto3-fleet")

    def now(self) -> float:
        return self._inbox.now()

    def invoke(self, invocations: Sequence[Invocation]) -> float:
        requests = [_whole(self._requests.build(call)) for call in invocations]
        start_s = self._inbox.expect(len(invocations))
        for call, request in zip(invocations, requests, strict=True):
            self._threads.submit(self._call, call, request).add_done_callback(self._arrived)
        return start_s

    def next(self, until_s: float | None) -> Arrival | None:
        return self._inbox.take(until_s)

    def close(self) -> None:
        self._closing.set()
        self._inbox.abandon()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def check(self, connections: int = 1) -> None:
        """Like `LambdaFleet.check`."""
        for answer in self._threads.map(lambda _: self._ask(b"{}", "DryRun", IMPATIENT), range(connections)):
            if answer.verdict is not Verdict.ANSWERED:
                raise PreflightError(f"function {self._function.name} at {self.endpoint.url}: {answer.reason}")

    def warm(self, invocations: Sequence[Invocation]) -> list[Arrival]:
        """Like `LambdaFleet.warm`."""
        requests = [self._requests.warm(call) for call in invocations]
        return list(self._threads.map(self._call, invocations, requests))

    # --- in the threads ------------------------------------------------------------------------------------------

    def _arrived(self, done: Future[Arrival]) -> None:
        """Whatever goes wrong must end the run, not leave it waiting."""
        if done.cancelled() or self._closing.is_set():
            return
        error = done.exception()
        if error is None:
            self._inbox.put(done.result())
        else:
            self._inbox.fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def _call(self, call: Invocation, request: Request) -> Arrival:
        """One attempt, from the request to what came of it."""
        answer = self._ask(request_body(request), "RequestResponse", self._patience)
        if answer.verdict is not Verdict.ANSWERED:
            return ended(call, OUTCOMES[answer.verdict], answer.reason)
        return self._reader.read(call, answer)

    def _ask(self, body: bytes, kind: str, patience: Patience) -> Answer:
        """Invokes until the call has run, or may have, or patience is over."""
        backoff = Backoff(patience, self.now(), self._randomness)
        while True:
            answer = self._invoke(body, kind)
            pause = backoff.pause(answer.verdict, self.now(), answer.wait_s)
            if self._closing.wait(pause.wait_s) or not pause.again:
                return answer

    def _invoke(self, body: bytes, kind: str) -> Answer:
        """Exactly one POST, and what became of it."""
        try:
            response: Any = self._client.invoke(Payload=body, InvocationType=kind, **self._options)
            payload = response["Payload"].read()
        except ClientError as error:
            return _refused(error.response)
        except (NoCredentialsError, CredentialRetrievalError) as error:
            return Answer(Verdict.EXPIRED, f"credentials cannot be renewed: {error}")
        except (ConnectTimeoutError, EndpointConnectionError) as error:
            return Answer(Verdict.UNAVAILABLE, f"no connection to {self.endpoint.url}: {error}")
        except ReadTimeoutError:
            return Answer.silent(self._silence_s)
        except (BotoCoreError, OSError) as error:
            return Answer(Verdict.LOST, f"the connection broke: {type(error).__name__}: {error}")
        about = response["ResponseMetadata"]
        return Answer.from_http(about["HTTPStatusCode"], about["HTTPHeaders"], payload)


def _refused(refusal: Any) -> Answer:
    """What botocore has made of an error; without Lambda's name for it, it was somebody else's."""
    about, told = refusal["ResponseMetadata"], refusal.get("Error", {})
    status, headers = about["HTTPStatusCode"], about["HTTPHeaders"]
    if "x-amzn-errortype" not in headers:
        return Answer.foreign(status, headers, str(told.get("Message", "")).encode())
    wait_s = retry_after_s(headers)
    return Answer.refused(status, told.get("Code", ""), told.get("Message", ""), refusal.get("Reason", ""), wait_s)


def _whole(request: Request) -> Request:
    """With everything in its answer: this fleet looks for nothing in the store besides large results."""
    return replace(request, reply=replace(request.reply, early=False, post=False))


def _config(silence_s: float, threads: int) -> Config:
    """One POST per call, and patience for its answer."""
    return Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=CONNECT_S,
        read_timeout=silence_s,
        max_pool_connections=threads,
        tcp_keepalive=True,
    )
