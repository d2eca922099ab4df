"""The service as a process: it says where it listens, stops gracefully, and survives kill -9."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.replica import NODE, OTHER, key, sha256

PROGRAM = [sys.executable, "-m", "graphcache_client"]
START_S = 60.0


class Process:
    """``graphcache serve`` on a free port."""

    def __init__(self, folder: Path, *options: str, data_dir: Path | None = None) -> None:
        self._ready = folder / "ready"
        self._ready.unlink(missing_ok=True)
        place = ["--port", "0", "--ready-file", str(self._ready), "--data-dir", str(data_dir or folder / "data")]
        self.process = subprocess.Popen(
            [*PROGRAM, "serve", *place, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline().strip()
        self.http = httpx.Client(base_url=self.line.rpartition(" ")[2], timeout=START_S)

    def resolve(self, owner: str = NODE, **fields: Any) -> dict[str, Any]:
        body = {"key": key(), "owner": owner, "holder": "n"} | fields
        outcome: dict[str, Any] = self.http.post("/v1/graphs/resolve", json=body).raise_for_status().json()
        return outcome

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(START_S)


@pytest.fixture
def started() -> Iterator[list[Process]]:
    """Whatever a test starts is ended with it."""
    processes: list[Process] = []
    yield processes
    for one in processes:
        if one.process.poll() is None:
            one.stop(signal.SIGKILL)
        one.process.communicate()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=START_S, check=False)


def test_address_is_printed_and_written_once_it_answers(tmp_path: Path, started: list[Process]) -> None:
    started.append(Process(tmp_path))
    assert started[0].line.startswith("graphcache serves on http://127.0.0.1:")
    assert (tmp_path / "ready").read_text().strip() == started[0].line.rpartition(" ")[2]
    assert started[0].http.get("/readyz").status_code == 200


def test_stop_answers_long_polls_and_ends_with_status_0(tmp_path: Path, started: list[Process]) -> None:
    started.append(Process(tmp_path))
    started[0].resolve(can_compile=True)
    answers: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: answers.append(started[0].resolve(OTHER, wait_s=50.0)))
    waiting.start()
    while started[0].http.get("/metrics").text.find("graphcache_held_requests 1.0") < 0:
        pass
    assert started[0].stop() == 0
    waiting.join(START_S)
    assert answers[0]["state"] == "pending"


def test_killed_service_keeps_its_leases_for_their_holders(tmp_path: Path, started: list[Process]) -> None:
    started.append(Process(tmp_path))
    lease = started[0].resolve(can_compile=True)["lease"]
    started[0].stop(signal.SIGKILL)
    started.append(Process(tmp_path))
    body = {"generation": lease["generation"], "phase": "compile"}
    assert started[1].http.post(f"/v1/leases/{lease['compile_id']}/heartbeat", json=body).status_code == 200
    assert started[1].resolve(OTHER)["holder"] == "n"


def test_two_processes_on_one_file_wake_each_other(tmp_path: Path, started: list[Process]) -> None:
    (tmp_path / "other").mkdir()
    started.append(Process(tmp_path))
    started.append(Process(tmp_path / "other", data_dir=tmp_path / "data"))
    here, there = started
    lease = here.resolve(can_compile=True)["lease"]
    answers: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: answers.append(there.resolve(OTHER, wait_s=55.0)))
    waiting.start()
    place = {"compile_id": lease["compile_id"], "generation": lease["generation"]}
    here.http.put(f"/v1/blobs/{sha256(b'graph')}", params=place, content=b"graph").raise_for_status()
    published = {"blob": sha256(b"graph"), "size_bytes": 5, "toolchain": key()["toolchain"], "compile_s": 1.0}
    body = {"generation": lease["generation"], "published": published}
    here.http.post(f"/v1/leases/{lease['compile_id']}/complete", json=body).raise_for_status()
    waiting.join(50.0)
    assert answers[0]["state"] == "ready"


def test_tokens_are_made_listed_and_revoked_by_command(tmp_path: Path) -> None:
    place = ("--data-dir", str(tmp_path))
    made = run("token", "create", "ci", "--scope", "compile", "--namespace", "trial", *place)
    assert made.stdout.startswith("gct_")
    listed = run("token", "list", *place).stdout
    assert "ci  compile  trial  live" in listed
    assert made.stdout.strip() not in listed
    assert run("token", "revoke", "ci", *place).stdout == "revoked 1\n"
    assert "revoked" in run("token", "list", *place).stdout


def test_serve_beyond_loopback_without_tokens_ends_with_one_line(tmp_path: Path) -> None:
    ended = run("serve", "--host", "0.0.0.0", "--port", "0", "--data-dir", str(tmp_path), "--log-format", "console")
    assert ended.returncode == 2
    assert "without tokens" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_unknown_setting_ends_with_one_line_that_names_it(tmp_path: Path) -> None:
    config = tmp_path / "service.toml"
    config.write_text("lease_ttl = 30\n")
    ended = run("serve", "--config", str(config))
    assert ended.returncode == 2
    assert "lease_ttl" in ended.stderr
    assert "lease_ttl_s" in ended.stderr


def test_fsck_and_evict_say_what_they_found(tmp_path: Path) -> None:
    place = ("--data-dir", str(tmp_path))
    assert run("fsck", *place).stdout == "checked 0 blobs\nclean\n"
    assert "no quota is set" in run("evict", *place).stderr


def test_database_that_cannot_be_reached_is_an_error_not_a_start(tmp_path: Path) -> None:
    url = "postgresql://nobody:secret@127.0.0.1:1/none?sslmode=disable"
    ended = run("serve", "--port", "0", "--data-dir", str(tmp_path), "--database-url", url)
    assert ended.returncode == 2
    assert "cannot be reached" in ended.stderr
    assert "secret" not in ended.stderr
    assert ended.stderr.count("\n") == 1
