"""Two requests that once ran a command as the owner of a run: from a page in a real browser, and from another user."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gradmux.infra.local import Emulator, EmulatorConfig, detached
from gradmux.infra.local.processes import child_environment
from gradmux.lambda_worker.models import ModelSpec, encode_spec
from tests.infra.local.conftest import SAMPLES, client_of
from tests.infra.local.door import INVOKE

BUCKET = "bucket-of-the-victim"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
NOBODY = 65534
SPEC = encode_spec(ModelSpec("subprocess:run", {"args": ["touch", "/tmp/never"]}))
KEY = f"specs/{hashlib.sha256(SPEC).hexdigest()}.json"
EVENT = '{"do": "describe"}'

PAGE = """<!doctype html><meta charset="utf-8"><script>
const form = new FormData()
form.append("key", KEY)
form.append("file", new Blob([SPEC]))
const outcome = {}
async function attempt(name, url, options) {
  for (const mode of ["cors", "no-cors"]) {
    try {
      const answer = await fetch(url, {...options, mode})
      outcome[name + " " + mode] = answer.type + answer.status
    }
    catch (error) { outcome[name + " " + mode] = "refused" }
  }
}
async function attack() {
  await attempt("form", S3, {method: "POST", body: form})
  await attempt("invoke", LAMBDA, {method: "POST", headers: {"Content-Type": "text/plain"}, body: EVENT})
  await attempt("read", ADMIN, {})
  await fetch("/done", {method: "POST", body: JSON.stringify(outcome)})
}
attack()
</script>"""


class Site(http.server.BaseHTTPRequestHandler):
    """A web site that attacks whoever looks at it."""

    page = b""
    done: threading.Event
    heard: dict[str, str]

    def do_GET(self) -> None:
        self._answer(self.page)

    def do_POST(self) -> None:
        self.heard.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(b"")
        self.done.set()

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *words: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def victim() -> Iterator[Emulator]:
    config = EmulatorConfig(handler=SAMPLES, preload=(), timeout_s=5.0)
    with Emulator(config) as emulator:
        client_of(emulator, "s3").create_bucket(Bucket=BUCKET)
        yield emulator


def unharmed(victim: Emulator) -> bool:
    """Nothing was invoked, and nothing put into the bucket."""
    kept = client_of(victim, "s3").list_objects_v2(Bucket=BUCKET)["KeyCount"]
    return kept == 0 and victim.statistics()["invocations"] == 0


@pytest.mark.parametrize("origin", ["another site", "another port of this machine"])
def test_a_page_in_a_browser_gets_nowhere(victim: Emulator, tmp_path: Path, origin: str) -> None:
    """Scripts of other sites; and pages that another program of this machine serves, which have no key either."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs a Chromium: apt-get install chromium")
    values = {
        "KEY": KEY, "SPEC": SPEC.decode(), "EVENT": EVENT, "S3": f"{victim.s3_endpoint}/{BUCKET}",
        "LAMBDA": victim.lambda_endpoint + INVOKE, "ADMIN": f"{victim.lambda_endpoint}/_emulator/journal",
    }  # fmt: skip
    given = "".join(f"const {name} = {json.dumps(value)}\n" for name, value in values.items())
    heard: dict[str, str] = {}
    page = PAGE.replace("<script>", f"<script>{given}", 1).encode()
    done = threading.Event()
    site = type("ThisSite", (Site,), {"page": page, "done": done, "heard": heard})
    name = "attacker.example" if origin == "another site" else "127.0.0.1"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        process = subprocess.Popen(
            [browser, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"--host-resolver-rules=MAP {name} 127.0.0.1",
             "--remote-debugging-port=0", f"--log-net-log={tmp_path / 'net.json'}", f"http://{name}:{server.server_port}/"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            assert done.wait(90), "the page did not come to its end"
        finally:
            process.terminate()  # it writes the rest of its log
            process.wait()
            server.shutdown()
    assert set(heard) == {f"{what} {mode}" for what in ("form", "invoke", "read") for mode in ("cors", "no-cors")}
    assert all(each in ("refused", "opaque0") for each in heard.values()), heard
    ports = {str(urlsplit(each).port) for each in (victim.s3_endpoint, victim.lambda_endpoint)}
    got = {each for each in statuses(tmp_path / "net.json") if str(urlsplit(each[0]).port) in ports}
    assert got == {(values[name], 403) for name in ("S3", "LAMBDA", "ADMIN")}
    assert unharmed(victim)


def statuses(log: Path) -> Iterator[tuple[str, int]]:
    """(URL, HTTP status) of every answer that the browser's own log of its network has, one event a line."""
    urls: dict[int, str] = {}
    for line in log.read_text(errors="replace").splitlines():
        try:
            event = json.loads(line.rstrip(","))
        except ValueError:
            continue
        if not isinstance(event, dict) or "source" not in event:
            continue
        source, told = event["source"]["id"], event.get("params", {})
        if "url" in told:
            urls[source] = told["url"]
        first = next(iter(told.get("headers", ())), "")
        if isinstance(first, str) and first.startswith("HTTP/1.1 ") and source in urls:
            yield urls[source], int(first.split()[1])


def as_nobody(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as a user who owns nothing."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to become another user")
    ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return subprocess.run(["setpriv", *ids, *words], capture_output=True, text=True, check=False, cwd="/")


def curl(*words: str) -> str:
    """The HTTP status that another user gets."""
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    return as_nobody("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "*", *words).stdout


def test_another_user_gets_nowhere(victim: Emulator, tmp_path: Path) -> None:
    foreign = ["-H", "Host: attacker.example", "-H", "Origin: http://attacker.example"]
    form = ["-F", f"key={KEY}", "-F", f"file={SPEC.decode()};type=text/plain"]
    text = ["-H", "Content-Type: text/plain", "--data", EVENT]
    for more in ([], foreign):
        assert curl(f"{victim.s3_endpoint}/{BUCKET}", *form, *more) == "403"
        assert curl(f"{victim.s3_endpoint}/{BUCKET}/{KEY}", "-X", "PUT", "--data-binary", "x", *more) == "403"
        assert curl(victim.lambda_endpoint + INVOKE, *text, *more) == "403"
        assert curl(f"{victim.lambda_endpoint}/_emulator/faults", "--data", "{}", *more) == "403"
        assert curl(f"{victim.lambda_endpoint}/_emulator/statistics", *more) == "403"
        guessed = ["--aws-sigv4", "aws:amz:us-east-1:lambda", "--user", "local:local"]
        assert curl(victim.lambda_endpoint + INVOKE, *guessed, *text, *more) == "403"
    assert unharmed(victim)


def test_another_user_cannot_read_the_key(tmp_path: Path) -> None:
    home = tmp_path / "home"
    before = os.umask(0)
    try:
        state = detached.up(home, EmulatorConfig(handler=SAMPLES, preload=()))
    finally:
        os.umask(before)
    try:
        opened = [home, *home.rglob("*")]
        modes: Mapping[str, int] = {path.name: stat.S_IMODE(path.stat().st_mode) for path in opened}
        assert modes == {"home": 0o700} | dict.fromkeys(("local.env", "local.json", "local.lock", "local.log"), 0o600)
        assert state.started.secret.secret_key in state.environment_file.read_text()
        for folder in (tmp_path, *tmp_path.parents[:-2]):
            folder.chmod(folder.stat().st_mode | 0o055)
        home.chmod(0o755)  # the file itself must not be readable, whoever opens its folder
        told = as_nobody("cat", str(state.environment_file), f"/proc/{state.pid}/environ")
        assert told.stdout == ""
        assert told.stderr.count("Permission denied") == 2
        seen = as_nobody("sh", "-c", "cat /proc/[0-9]*/cmdline").stdout
        assert state.started.secret.secret_key not in seen
    finally:
        assert detached.down(home)
    assert not state.environment_file.exists()


@pytest.mark.parametrize("module", ["json", "gradmux", "moto"])
def test_files_in_the_working_directory_are_not_taken_for_modules(tmp_path: Path, module: str) -> None:
    """Whatever lies in the folder in which an emulator is started, its processes import nothing from there."""
    (tmp_path / f"{module}.py").write_text("from pathlib import Path\nPath('taken').touch()\nraise SystemExit(9)\n")
    code = (
        "from gradmux.infra.local import Emulator, EmulatorConfig\n"
        "with Emulator(EmulatorConfig(preload=())) as emulator:\n"
        "    print(emulator.statistics()['invocations'])\n"
    )
    words = [sys.executable, "-P", "-c", code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert not (tmp_path / "taken").exists()


def test_an_empty_entry_of_the_python_path_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """`PYTHONPATH=$PYTHONPATH:/x` makes one; Python would take the working directory for it."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "/x", "", "packages", ""]))
    assert child_environment({}, ("/mine",))["PYTHONPATH"].split(os.pathsep) == ["/mine", "/x", "packages"]
