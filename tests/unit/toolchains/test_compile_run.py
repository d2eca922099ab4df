"""One compile in a child process: what it gives, and how each death is classed."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from fakes.compiles import environment, ignore, is_alive, pids_in, session_of, stub_key, until

from graphcache_runtime.compiling.run import CompileDied, CompileLimits, compile_here, run_compile
from graphcache_wire import FailureClass

MIB = 2**20


def death_of(folder, behave: str, limits: CompileLimits | None = None, **more) -> CompileDied:
    with pytest.raises(CompileDied) as caught:
        run_compile("stub", stub_key(behave), folder, ignore, limits or CompileLimits(), **more)
    return caught.value


def test_a_compile_gives_a_checked_graph_its_phases_and_what_it_took(tmp_path):
    phases = []
    compiled = run_compile("stub", stub_key(), tmp_path, lambda phase, progress: phases.append((phase, progress)))
    assert compiled.path.is_file()
    assert compiled.path.is_relative_to(tmp_path)
    assert phases[:3] == [("starting", None), ("lower", 0.25), ("compile", 0.5)]
    assert "stub compiler at work" in compiled.log_tail
    assert compiled.cpu_s > 0
    assert compiled.peak_memory_bytes > 50 * MIB
    assert float(compiled.facts["max_error"]) < 1e-4


def test_the_compilers_refusal_is_rejected_with_its_message(tmp_path):
    death = death_of(tmp_path, "reject")
    assert death.failure_class is FailureClass.REJECTED
    assert "no tactic found for this graph" in death.message
    assert "stub compiler at work" in death.log_tail


def test_a_wrong_graph_is_rejected_before_anybody_gets_it(tmp_path):
    death = death_of(tmp_path, "wrong")
    assert death.failure_class is FailureClass.REJECTED
    assert "output y" in death.message


def test_a_signal_is_a_crash_that_names_it(tmp_path):
    death = death_of(tmp_path, "crash")
    assert death.failure_class is FailureClass.CRASHED
    assert "SIGSEGV" in death.message


@pytest.mark.parametrize(
    ("behave", "said"), [("vanish", "status 3"), ("raise", "RuntimeError: an error of the compiler itself")]
)
def test_an_end_without_a_result_is_a_crash(tmp_path, behave, said):
    death = death_of(tmp_path, behave)
    assert death.failure_class is FailureClass.CRASHED
    assert said in death.message


def test_a_failed_allocation_is_out_of_memory(tmp_path):
    assert death_of(tmp_path, "no-memory").failure_class is FailureClass.OUT_OF_MEMORY


def test_above_its_memory_limit_a_compile_is_killed_and_the_limit_named(tmp_path):
    death = death_of(tmp_path, "hog", CompileLimits(memory_limit_bytes=800 * MIB))
    assert death.failure_class is FailureClass.OUT_OF_MEMORY
    assert "limit of 800 MiB" in death.message
    assert death.usage.peak_memory_bytes > 800 * MIB


def test_above_its_time_limit_a_compile_is_killed_and_the_limit_named(tmp_path):
    death = death_of(tmp_path, "hang", CompileLimits(time_limit_s=0.5))
    assert death.failure_class is FailureClass.TIME_LIMIT
    assert "limit of 0.5 s" in death.message


def test_a_cancelled_compile_is_killed_with_all_that_it_started(tmp_path):
    cancelled = threading.Event()
    canceller = threading.Thread(target=lambda: (pids_in(tmp_path / "pids"), cancelled.set()))
    canceller.start()
    death = death_of(tmp_path, "hang", cancelled=cancelled)
    canceller.join()
    assert death.failure_class is FailureClass.CANCELLED
    until(lambda: not any(map(is_alive, pids_in(tmp_path / "pids"))), "the compile's processes are gone")


def python_with_stub(code: str, folder) -> subprocess.Popen:
    """A process that runs ``code`` with what a compile needs imported, and ``folder``."""
    imports = (
        "import ctypes, os, sys; from pathlib import Path; sys.path[:0] = [sys.argv[2]]; folder = Path(sys.argv[1])\n"
        "from fakes.compiles import ignore, stub_key\n"
        "from graphcache_runtime.compiling.run import CompileDied, CompileLimits, run_compile\n"
    )
    tests = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    command = [sys.executable, "-c", imports + code, str(folder), tests]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)


def test_after_its_parent_is_killed_nothing_of_a_compiles_session_lives(tmp_path):
    parent = python_with_stub("run_compile('stub', stub_key('hang'), folder, ignore)", tmp_path)
    compiler, started = pids_in(tmp_path / "pids")
    assert {compiler, started} < set(session_of(compiler))
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    until(lambda: not session_of(compiler), "the compile and what it started are gone")


def test_the_first_process_of_a_container_is_left_no_zombies(tmp_path):
    code = """
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
try:
    run_compile('stub', stub_key('hang'), folder, ignore, CompileLimits(time_limit_s=4))
except CompileDied as death:
    print(death.failure_class, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
"""
    printed, _ = python_with_stub(code, tmp_path).communicate(timeout=60)
    assert printed.strip() == "time_limit []"


def test_another_version_than_the_keys_is_never_compiled(tmp_path):
    with pytest.raises(CompileDied) as caught:
        run_compile("stub", stub_key(toolchain="stub-2.0"), tmp_path, ignore)
    assert "the key asks for stub-2.0; here is stub-1.0" in caught.value.message


def test_a_baked_graph_without_its_weights_says_where_they_are(tmp_path):
    key = stub_key(options={"mode": "baked", "weights": "0" * 64})
    with pytest.raises(CompileDied) as caught:
        compile_here("stub")(key, tmp_path, ignore)
    assert caught.value.failure_class is FailureClass.REJECTED
    assert "where its weights are" in caught.value.message
