"""Decisions about compiles, without compiles: limits, deaths, environments, the check's bounds."""

import signal
from pathlib import Path

import pytest
import torch
from fakes.compiles import stub_key

from graphcache_runtime.compiling.check import WrongGraph, check_graph
from graphcache_runtime.compiling.end import Death, Killed, Usage, judged
from graphcache_runtime.compiling.run import CompileLimits, child_environment, reason_to_kill
from graphcache_runtime.experts import graph_definition
from graphcache_wire import FailureClass

USAGE = Usage(1.0, 1)
LIMITS = CompileLimits(time_limit_s=60, memory_limit_bytes=1000)


@pytest.mark.parametrize(
    ("elapsed_s", "memory_bytes", "cancelled", "expected"),
    [
        (59, 1000, False, None),
        (61, 0, False, FailureClass.TIME_LIMIT),
        (1, 1001, False, FailureClass.OUT_OF_MEMORY),
        (61, 1001, True, FailureClass.CANCELLED),
    ],
)
def test_a_compile_is_killed_for_its_limits_and_not_before(elapsed_s, memory_bytes, cancelled, expected):
    killed = reason_to_kill(elapsed_s, memory_bytes, cancelled, LIMITS)
    assert (killed and killed.failure_class) == expected


def test_a_compile_of_three_quarters_of_an_hour_is_within_the_default_limit():
    assert reason_to_kill(45 * 60, 2**40, False, CompileLimits()) is None


@pytest.mark.parametrize(
    ("exit_code", "oom_counted_in", "expected"),
    [
        (-signal.SIGKILL, Path("/proc/vmstat"), FailureClass.OUT_OF_MEMORY),
        (-signal.SIGKILL, None, FailureClass.CRASHED),
        (-signal.SIGSEGV, Path("/proc/vmstat"), FailureClass.CRASHED),
        (0, None, FailureClass.CRASHED),
    ],
)
def test_a_death_without_a_result_is_classed_by_signal_and_system(exit_code, oom_counted_in, expected):
    failure = judged(Death(exit_code, None, oom_counted_in, USAGE), {})
    assert failure is not None
    assert failure.failure_class is expected


def test_a_good_result_counts_though_a_limit_was_reached_behind_it():
    killed = Killed(FailureClass.TIME_LIMIT, "late")
    assert judged(Death(-9, killed, None, USAGE), {"failure_class": None}) is None


def test_settings_of_a_users_shell_do_not_reach_the_compiler(tmp_path):
    shell = {"PATH": "/bin", "TORCHINDUCTOR_MAX_AUTOTUNE": "1", "AOT_INDUCTOR_DEBUG_COMPILE": "1", "CXX": "clang++"}
    child = child_environment(shell, tmp_path, threads=2)
    assert child["PATH"] == "/bin"
    assert child["CXX"] == "clang++"
    assert child["OMP_NUM_THREADS"] == "2"
    assert not [name for name in child if "INDUCTOR" in name]
    assert Path(child["TMPDIR"]).is_relative_to(tmp_path)


class Changed:
    """PyTorch's result, changed by a function."""

    device = torch.device("cpu")

    def __init__(self, key, change) -> None:
        self._module, self._change = graph_definition(key).module, change

    def __call__(self, *inputs):
        return (self._change(self._module(*inputs)),)


def one_value(y):
    y[1, 2, 3] += y.abs().max() / 2
    return y


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda y: y * 1.01, "rms"),
        (one_value, "largest"),
        (lambda y: torch.where(y == 0, y, float("nan")), "nan"),
        (lambda y: y.to(torch.bfloat16), "torch.bfloat16"),
        (lambda y: y[:, :4], r"\(2, 4, 16\)"),
        (lambda y: y + 1e-9, "padded row"),
    ],
)
def test_the_check_refuses_what_is_wrong(change, said):
    key = stub_key()
    with pytest.raises(WrongGraph, match=said):
        check_graph(Changed(key, change), key, seed=1)


@pytest.mark.parametrize("kind", ["moe-experts-fwd", "moe-experts-bwd-lora", "moe-experts-bwd-full"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_the_check_accepts_pytorchs_own_rounding(kind, dtype):
    key = stub_key(kind=kind, h=256, f=96, options={"dtype": dtype})
    definition = graph_definition(key)

    class Eager:
        device = torch.device("cpu")

        def __call__(self, *inputs):
            outputs = definition.module(*inputs)
            return (outputs,) if isinstance(outputs, torch.Tensor) else outputs

    checked = check_graph(Eager(), key, seed=1)
    assert checked.rms_error < checked.rms_bound / 2
