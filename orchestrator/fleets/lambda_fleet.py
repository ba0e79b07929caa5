"""Workers on AWS Lambda, or on the emulator, over one fast HTTP client: the client must never be the straggler.

One event loop in a thread of its own sends one POST per attempt. What did not run, and may run later (429, most 5xx, no
connection: `refusals.py`), is repeated there within the fleet's patience; what may have run is never sent again, but
reported, and the loop decides. botocore gives credentials and endpoint, `signing.py` signs, `replies.py` says what an
answer means. Knows neither schemes nor tensors. Read next: `replies.py`.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import botocore.session
from botocore.utils import get_environ_proxies

from gradmux.lambda_worker.contract import Request, reply_key
from gradmux.orchestrator.aws import CredentialTrouble, find_credentials, new_session, resolve_endpoint, tls_context
from gradmux.orchestrator.clock import DATE_REFUSALS, Clock
from gradmux.orchestrator.errors import PreflightError
from gradmux.orchestrator.fleets.background import BackgroundLoop
from gradmux.orchestrator.fleets.calling import (
    IMPATIENT,
    OUTCOMES,
    SILENCE_S,
    Backoff,
    Function,
    MakesRequests,
    Patience,
    Ramp,
    request_body,
)
from gradmux.orchestrator.fleets.early import EarlyMessages
from gradmux.orchestrator.fleets.http_client import Broken, HttpClient, NoConnection, Silent
from gradmux.orchestrator.fleets.http_dial import Dialer, Route
from gradmux.orchestrator.fleets.http_reader import Response
from gradmux.orchestrator.fleets.inbox import Inbox
from gradmux.orchestrator.fleets.mailbox import Mailbox
from gradmux.orchestrator.fleets.refusals import Verdict
from gradmux.orchestrator.fleets.replies import Answer, ReplyReader, ended
from gradmux.orchestrator.fleets.signing import CredentialSource, Signer, Target
from gradmux.orchestrator.ports import Arrival, Invocation, Store
from gradmux.orchestrator.training.stored import Shelf

HEAVY_BYTES = 65_536
"""Replies from this size on are read in a thread, so that they do not hold up the others."""
READERS = 4
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class LambdaFleet:
    """`ports.Fleet` over Lambda's Invoke API."""

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
        shelf: Shelf | None = None,
        log_tail: bool = True,
        silence_s: float = SILENCE_S,
        ramp: Ramp | None = None,
        seed: int | None = None,
    ) -> None:
        """Opens no connection yet.

        `store` is where workers spill results, and put what they answer to requests whose reply is to be posted: these
        are invoked as events. With a `shelf` spilled results are left there. `endpoint_url` None: what
        AWS_ENDPOINT_URL_LAMBDA, AWS_ENDPOINT_URL or the profile say, or AWS itself. `log_tail` asks for Lambda's own
        account of time and memory with every answer; without it, and of events, bills are estimated from the workers'
        clocks. `silence_s` is how long beyond the function's timeout an answer is waited for; `ramp` paces calls that
        need new sandboxes, at AWS's rate unless given; `seed` is that of the jitter.
        Raises: PreflightError without region or credentials.
        """
        session = session or new_session()
        self.endpoint = resolve_endpoint(session, "lambda", endpoint_url)
        self._function, self._requests, self._reader = function, requests, ReplyReader(run, store, shelf)
        self._target = self._target_of("RequestResponse", log_tail)
        self._event = self._target_of("Event", False)
        self._silence_s = function.timeout_s + silence_s
        self._route = _route(session, self.endpoint.url)
        self._signer, self._clock = Signer("lambda", self.endpoint.region), Clock()
        self._patience, self._randomness = patience or Patience(), random.Random(seed)
        self._inbox, self._ramp = Inbox(), ramp or Ramp()
        self._climbing = asyncio.Lock()
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrived: list[Arrival] = []
        """what goes to the inbox when this turn of the event loop is over"""
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="reply")
        self._credentials = CredentialSource(find_credentials(session))
        self._mailbox = Mailbox(store)
        self._background = BackgroundLoop("lambda-fleet")
        self._http = self._background.run(self._open())

    # --- ports.Fleet ---------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self._inbox.now()

    def invoke(self, invocations: Sequence[Invocation]) -> float:
        requests = [self._requests.build(call) for call in invocations]
        start_s = self._inbox.expect(len(invocations))
        self._background.post(self._start, invocations, requests)
        return start_s

    def next(self, until_s: float | None) -> Arrival | None:
        return self._inbox.take(until_s)

    def close(self) -> None:
        self._inbox.abandon()
        self._background.post(self._http.close)
        self._background.post(self._mailbox.close)
        self._background.stop()
        self._readers.shutdown(wait=False, cancel_futures=True)

    @property
    def cpus(self) -> tuple[str, ...]:
        """Models of the processors that workers have had so far."""
        return tuple(sorted(self._reader.cpus))

    @property
    def traffic_bytes(self) -> tuple[int, int]:
        """(sent to Lambda, received from it) so far, before TLS."""
        return self._http.sent_bytes, self._http.received_bytes

    # --- before the first round ----------------------------------------------------------------------------------

    def check(self, connections: int = 1) -> None:
        """Asks Lambda whether it would run the function (a dry run, free). Raises PreflightError that says why not.

        Asks over so many connections at once; they stay open, for the first round.
        """
        target = self._target_of("DryRun", False)

        async def ask_all() -> list[Answer]:
            return await asyncio.gather(*(self._ask(b"{}", target, IMPATIENT) for _ in range(connections)))

        for answer in self._background.run(ask_all()):
            if answer.verdict is not Verdict.ANSWERED:
                raise PreflightError(f"function {self._function.name} at {self.endpoint.url}: {answer.reason}")

    def warm(self, invocations: Sequence[Invocation]) -> list[Arrival]:
        """Has workers started, connections opened, models and data read, as these invocations will need them.

        Their jobs must be published. Returns when all have answered.
        """
        return self.run([(call, self._requests.warm(call)) for call in invocations])

    def run(self, calls: Sequence[tuple[Invocation, Request]]) -> list[Arrival]:
        """Has these requests answered, beside whatever is in flight; what came of each, in this order."""

        async def run_all() -> list[Arrival]:
            return await asyncio.gather(*(self._call(call, request) for call, request in calls))

        return self._background.run(run_all())

    def _target_of(self, kind: str, log_tail: bool) -> Target:
        headers = {"X-Amz-Invocation-Type": kind, "X-Amz-Log-Type": "Tail" if log_tail else "None"}
        return Target.of(f"{self.endpoint.url}{self._function.path()}", headers)

    # --- in the event loop's thread ------------------------------------------------------------------------------

    def _start(self, invocations: Sequence[Invocation], requests: Sequence[Request]) -> None:
        for call, request in zip(invocations, requests, strict=True):
            task = asyncio.create_task(self._serve(self._call(call, request)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, arriving: Coroutine[Any, Any, Arrival]) -> None:
        """Whatever goes wrong here must end the run, not leave it waiting."""
        try:
            self._deliver(await arriving)
        except Exception as error:
            self._inbox.fail(error)

    def _deliver(self, arrival: Arrival) -> None:
        """Gives what came at one instant to the inbox at once: to wake the other thread takes longer than the rest."""
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._empty)
        self._arrived.append(arrival)

    def _empty(self) -> None:
        self._inbox.put(*self._arrived)
        self._arrived.clear()

    async def _call(self, call: Invocation, request: Request) -> Arrival:
        """One attempt, from the request to what came of it."""
        body, early = request_body(request), None
        await self._climb()
        try:
            if request.reply.early:
                early = EarlyMessages(request, self._mailbox, partial(self._read_bytes, call), self._deliver)
            answer = await self._answered(body, request)
        finally:
            self._running -= 1
        if early is not None:
            await early.finish()
        if answer.verdict is not Verdict.ANSWERED:
            return ended(call, OUTCOMES[answer.verdict], answer.reason)
        return await self._read(call, answer)

    async def _answered(self, body: bytes, request: Request) -> Answer:
        """The answer: at once, or, when the reply is posted to the store, from there."""
        if not request.reply.post:
            return await self._ask(body, self._target, self._patience)
        accepted = await self._ask(body, self._event, self._patience)
        if accepted.verdict is not Verdict.ANSWERED:
            return accepted
        key = reply_key(request)
        try:
            async with asyncio.timeout(self._silence_s):
                reply = await self._mailbox.get(key)
        except TimeoutError:
            return Answer.silent(self._silence_s)
        self._mailbox.drop([key])
        return Answer(Verdict.ANSWERED, body=reply)

    async def _climb(self) -> None:
        """Counts one more call, as soon as it would not grow the function faster than AWS lets it.

        In order, and only the first one watches the clock, whose timers count whole milliseconds: thousands that all
        did, or one that slept less, would keep the event loop busy.
        """
        async with self._climbing:
            while (wait_s := self._ramp.wait_s(self._running + 1, self.now())) > 0:
                await asyncio.sleep(math.ceil(wait_s * 1e3) / 1e3)
            self._running += 1

    async def _ask(self, body: bytes, target: Target, patience: Patience) -> Answer:
        """Posts until the call has run, or may have, or patience is over."""
        start_s, backoff = self.now(), None
        while (answer := await self._post(body, target)).verdict is not Verdict.ANSWERED:
            backoff = backoff or Backoff(patience, start_s, self._randomness)
            pause = backoff.pause(answer.verdict, self.now(), answer.wait_s)
            await asyncio.sleep(pause.wait_s)
            if not pause.again:
                break
        return answer

    async def _post(self, body: bytes, target: Target) -> Answer:
        """Exactly one POST, and what became of it."""
        try:
            credentials = await self._credentials.get()
            signed_s = self._clock.now()
            signed = self._signer.sign(target, body, credentials, signed_s)
            response = await self._send(target, signed, body)
        except CredentialTrouble as error:
            return Answer(Verdict.EXPIRED, str(error))
        except NoConnection as error:
            return Answer(Verdict.UNAVAILABLE, f"no connection to {self.endpoint.url}: {error}")
        except Silent:
            return Answer.silent(self._silence_s)
        except Broken as error:
            return Answer(Verdict.LOST, f"the connection broke: {error}")
        answer = Answer.from_http(response.status, response.headers, response.body)
        if answer.verdict is Verdict.EXPIRED:
            self._credentials.forget(credentials)
        date = response.headers.get("date", "")
        if answer.reason.startswith(DATE_REFUSALS) and self._clock.corrected(date, signed_s):
            return Answer(Verdict.UNAVAILABLE, f"{answer.reason} (this machine's clock was wrong)")
        return answer

    def _send(self, target: Target, headers: Mapping[str, str], body: bytes) -> Awaitable[Response]:
        """One request, over the connections of this fleet."""
        return self._http.post(request_head(self._route.request_line(target.path), headers, len(body)), body)

    async def _read_bytes(self, call: Invocation, reply: bytes) -> Arrival:
        return await self._read(call, Answer(Verdict.ANSWERED, body=reply))

    async def _read(self, call: Invocation, answer: Answer) -> Arrival:
        """Reads a reply; a large one, or one whose results lie in the store, in a thread."""
        if len(answer.body) >= HEAVY_BYTES:
            arrival = await self._in_thread(self._reader.read, call, answer)
            if isinstance(answer.body, bytearray):
                self._http.bodies.give(answer.body)
            return arrival
        parsed = self._reader.parse(call, answer)
        if isinstance(parsed, Arrival):
            return parsed
        if any(result.key is not None for result in parsed.results):
            return await self._in_thread(self._reader.finish, call, parsed, answer.log_result)
        return self._reader.finish(call, parsed, answer.log_result)

    def _in_thread(self, read: Callable[..., Arrival], *arguments: Any) -> Awaitable[Arrival]:
        return asyncio.get_running_loop().run_in_executor(self._readers, read, *arguments)

    async def _open(self) -> HttpClient:
        return HttpClient(Dialer(self._route), self._silence_s)


def request_head(line: str, headers: Mapping[str, str], length: int) -> bytes:
    """All of a request but its body."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return f"{line}{lines}Content-Length: {length}\r\n\r\n".encode("latin-1")


def _route(session: botocore.session.Session, url: str) -> Route:
    """Whom to trust, and through which proxy to go, as AWS's own tools find it."""
    parts = urlsplit(url)
    proxy = None if parts.hostname in LOOPBACK else get_environ_proxies(url).get(parts.scheme)
    return Route.to(url, tls_context(session, url), proxy)
