"""Runs one compile in a child process: its phases, its limits, and the class of its death.

The child is a fresh interpreter and leads a session of its own, so that it is killed with all that it started; the end
of its standard input tells it that this process is gone. A compiler may start others (g++), so the memory limit watches
the resident memory of the whole session: a limit set on the process (RLIMIT_AS, RLIMIT_DATA) would count reserved
address space, of which a compiler's libraries take many gigabytes.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Protocol

from graphcache_client import CompileAttemptFailed, CompileHere
from graphcache_runtime.compiling.cgroup import oom_kills
from graphcache_runtime.compiling.child import RESULT, CompileSpec, ReportPhase
from graphcache_runtime.compiling.end import Death, Killed, Usage, judged
from graphcache_runtime.compiling.process_tree import kill_session, reap_orphans, session_memory_bytes
from graphcache_wire import FailureClass, GraphKey

POLL_S: Final = 0.2
"""How often limits are looked at. A fast compiler takes some 100 MB in that time."""
DEFAULT_TIME_LIMIT_S: Final = 3 * 3600.0
"""Real graphs take 5 to 40 minutes; a compiler that hangs is given up in an afternoon."""
LOG_TAIL_BYTES: Final = 16_000
FOREIGN_SETTINGS: Final = ("TORCHINDUCTOR_", "AOT_INDUCTOR_", "AOTINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_")
"""Variables of a user's shell that change what a compiler makes, and are in no key."""


@dataclass(frozen=True, slots=True)
class CompileLimits:
    """``memory_limit_bytes``: resident memory of all processes of the compile. ``threads``: of the compiler."""

    time_limit_s: float = DEFAULT_TIME_LIMIT_S
    memory_limit_bytes: int | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class CompileResult:
    """A compiled and checked graph, and what it took. ``cpu_s`` and ``peak_memory_bytes`` count all its processes."""

    path: Path
    compile_s: float
    cpu_s: float
    peak_memory_bytes: int
    log_tail: str
    facts: dict[str, str] = field(default_factory=dict)


class CompileDied(CompileAttemptFailed):
    """A compile in a child that gave no graph: class, message, log, and what it used until then."""

    def __init__(
        self, failure_class: FailureClass, message: str, log_tail: str, compile_s: float, usage: Usage
    ) -> None:
        super().__init__(failure_class, message, log_tail)
        self.compile_s = compile_s
        self.usage = usage


class WeightsFile(Protocol):
    """Writes the weights of a baked key into the folder: a ``torch.save`` of a dict of gate_up and down."""

    def __call__(self, key: GraphKey, folder: Path) -> Path: ...


def compile_here(
    toolchain: str, limits: CompileLimits = CompileLimits(), weights: WeightsFile | None = None
) -> CompileHere:
    """What ``GraphCache`` calls to compile on this machine: the same child process that a worker uses."""

    def compile_key(key: GraphKey, folder: Path, report: ReportPhase) -> Path:
        saved = weights(key, folder) if weights and key.mode == "baked" else None
        return run_compile(toolchain, key, folder, report, limits, weights=saved).path

    return compile_key


def run_compile(
    toolchain: str,
    key: GraphKey,
    folder: Path,
    report: ReportPhase,
    limits: CompileLimits = CompileLimits(),
    *,
    cancelled: threading.Event | None = None,
    weights: Path | None = None,
) -> CompileResult:
    """Compile and check ``key`` in a child process inside ``folder``, which is this compile's own.

    Args:
        cancelled: set it, from any thread, to kill the compile.

    Raises:
        CompileDied: the compiler refused, died, reached a limit, made a wrong graph, or was cancelled.
    """
    report("starting", None)
    began = time.monotonic()
    child = _Child(toolchain, key, folder, limits, weights)
    try:
        death = child.watch(report, limits, cancelled or threading.Event(), began)
    finally:
        child.end()
    return _result(death, folder, time.monotonic() - began)


class _Child:
    """The running child: its process, its pipe of events and its log."""

    def __init__(
        self, toolchain: str, key: GraphKey, folder: Path, limits: CompileLimits, weights: Path | None
    ) -> None:
        self._oom_kills_before = oom_kills()
        self._events, writer = os.pipe()
        spec = CompileSpec(toolchain, key, folder, writer, int(key.digest[:8], 16), weights)
        (folder / "spec.json").write_text(spec.to_json())
        try:
            with (folder / "log.txt").open("wb") as log:
                self._process = self._start(folder, writer, log, limits)
        except BaseException:
            os.close(self._events)
            raise
        finally:
            os.close(writer)
        self._partial = b""
        self._peak_memory_bytes = 0
        self._usage = Usage(0.0, 0)

    def _start(self, folder: Path, writer: int, log: IO[bytes], limits: CompileLimits) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "graphcache_runtime.compiling.child", str(folder / "spec.json")],
            cwd=folder,
            env=child_environment(os.environ, folder, limits.threads),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(writer,),
            start_new_session=True,
        )

    def watch(self, report: ReportPhase, limits: CompileLimits, cancelled: threading.Event, began: float) -> Death:
        """Pass on phases until the child ends or has to be ended."""
        killed: Killed | None = None
        while not self._has_ended() and killed is None:
            self._pass_on_phases(report)
            memory_bytes = session_memory_bytes(self._process.pid)
            self._peak_memory_bytes = max(self._peak_memory_bytes, memory_bytes)
            killed = reason_to_kill(time.monotonic() - began, memory_bytes, cancelled.is_set(), limits)
        self.end()
        kills = oom_kills()
        counted_in = kills.source if kills.count > self._oom_kills_before.count else None
        return Death(self._process.returncode, killed, counted_in, self._usage)

    def end(self) -> None:
        """Kill what still runs of the session, and reap the child. Safe to repeat."""
        if self._process.returncode is not None:
            return
        kill_session(self._process.pid)
        _, status, used = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        reap_orphans(self._process.pid)
        os.close(self._events)
        if self._process.stdin:
            self._process.stdin.close()
        # Not ru_maxrss: it begins with what this process held when it forked.
        self._usage = Usage(used.ru_utime + used.ru_stime, self._peak_memory_bytes)

    def _has_ended(self) -> bool:
        # WNOWAIT leaves it unreaped: until then no other process can get its number, and its session can be killed.
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _pass_on_phases(self, report: ReportPhase) -> None:
        readable, _, _ = select.select([self._events], [], [], POLL_S)
        if not readable:
            return
        received = os.read(self._events, 65_536)
        if not received:
            # The child has closed its end and is about to leave: do not spin until it has.
            time.sleep(POLL_S)
        *lines, self._partial = (self._partial + received).split(b"\n")
        for line in lines:
            event = json.loads(line)
            report(event["phase"], event["progress"])


def reason_to_kill(elapsed_s: float, memory_bytes: int, cancelled: bool, limits: CompileLimits) -> Killed | None:
    """Why a running compile must be ended now; None while it may go on."""
    if cancelled:
        return Killed(FailureClass.CANCELLED, "the compile was cancelled")
    if elapsed_s > limits.time_limit_s:
        return Killed(FailureClass.TIME_LIMIT, f"the compile took longer than its limit of {limits.time_limit_s:g} s")
    limit_bytes = limits.memory_limit_bytes
    if limit_bytes is not None and memory_bytes > limit_bytes:
        said = f"the compile took {memory_bytes / 2**20:.0f} MiB, above its limit of {limit_bytes / 2**20:.0f} MiB"
        return Killed(FailureClass.OUT_OF_MEMORY, said)
    return None


def child_environment(environment: Mapping[str, str], folder: Path, threads: int | None) -> dict[str, str]:
    """The variables of a compile: its caches and temporary files are its own, and no setting of a shell reaches it."""
    kept = {name: value for name, value in environment.items() if not name.startswith(FOREIGN_SETTINGS)}
    for name, own in {"TMPDIR": folder / "tmp", "XDG_CACHE_HOME": folder / "cache"}.items():
        own.mkdir(exist_ok=True)
        kept[name] = str(own)
    if threads is not None:
        kept["OMP_NUM_THREADS"] = str(threads)
    return kept


def _result(death: Death, folder: Path, elapsed_s: float) -> CompileResult:
    log_tail = _log_tail(folder / "log.txt")
    said = _said(folder / RESULT)
    failure = judged(death, said)
    if failure is not None:
        raise CompileDied(failure.failure_class, failure.message, log_tail, elapsed_s, death.usage)
    return CompileResult(
        path=Path(said["path"]),
        compile_s=said["compile_s"],
        cpu_s=death.usage.cpu_s,
        peak_memory_bytes=death.usage.peak_memory_bytes,
        log_tail=log_tail,
        facts=said["facts"],
    )


def _said(result: Path) -> dict[str, Any]:
    """What the child wrote at its end; empty where it died before."""
    try:
        said: dict[str, Any] = json.loads(result.read_text())
    except FileNotFoundError:
        return {}
    return said


def _log_tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        return file.read().decode(errors="replace")
