"""Host kernels: the same numbers, whichever is chosen, and no memory of others read."""

from pathlib import Path

import pytest
import torch
from fakes.dense_reference import Problem, error, problem, reference

from graphcache_runtime.host import kernels
from graphcache_runtime.host.arena import Arena
from graphcache_runtime.host.compiled import Compiled
from graphcache_runtime.host.experts import Grouped, HostKernel, PerExpert, can_group, group_offsets
from graphcache_runtime.host.kernels import choose
from graphcache_runtime.host.products import Arithmetic, ProductsMissing, compiled_products, load_products
from graphcache_runtime.host.weight_gradients import WeightGradients
from graphcache_runtime.routing import HostRows, Routing, make_plan


def compiled(how: Arithmetic) -> Compiled:
    products = compiled_products()
    assert products is not None
    if not products.has(how):
        pytest.skip(f"this CPU has no arithmetic {how!r}")
    return Compiled(products, how, Arena())


KERNELS = {"per-expert": lambda: PerExpert(Arena()), "grouped": lambda: Grouped(Arena())}
BF16 = {**KERNELS, "widened": lambda: compiled("widened"), "pairs": lambda: compiled("pairs")}
FP32 = {**KERNELS, "compiled": lambda: compiled("fp32")}
CASES = [(torch.float32, 1e-5, name) for name in FP32] + [(torch.bfloat16, 3e-2, name) for name in BF16]


@pytest.mark.parametrize("tokens", [40, 400], ids=lambda tokens: f"{tokens} tokens")
@pytest.mark.parametrize(("dtype", "bound", "name"), CASES, ids=str)
def test_each_kernel_agrees_with_the_oracle(dtype: torch.dtype, bound: float, name: str, tokens: int) -> None:
    p = problem(tokens, top_k=1, h=96, f=48, dtype=dtype)
    check(p, (FP32 if dtype is torch.float32 else BF16)[name](), bound)


@pytest.mark.parametrize(("h", "f"), [(70, 22), (33, 17), (200, 104)], ids=str)
@pytest.mark.parametrize("how", ["fp32", "widened", "pairs"])
def test_compiled_products_take_sizes_that_fill_no_vector(how: Arithmetic, h: int, f: int) -> None:
    if how == "pairs" and h % 2:
        pytest.skip("bf16 arithmetic takes values by twos")
    dtype, bound = (torch.float32, 1e-5) if how == "fp32" else (torch.bfloat16, 3e-2)
    for tokens in (3, 90):
        check(problem(tokens, experts=2, top_k=1, h=h, f=f, dtype=dtype), compiled(how), bound)


def check(p: Problem, kernel: HostKernel, bound: float) -> None:
    """Forward, gradient of rows and of weights against the oracle."""
    want, experts = reference(p), p.down.shape[0]
    rows = make_plan(Routing(p.index_TK, experts), (), ()).host
    weights_C = p.weights_TK.flatten()[rows.assignment_C, None]
    dtype = kernel.rows_dtype(p.down.dtype)
    x, dy = (t.to(dtype) for t in (p.x_TH[rows.token_C], p.dout_TH[rows.token_C] * weights_C))
    ran, grads = kernel.forward(x, rows, p.gate_up, p.down), WeightGradients(p.gate_up, p.down)
    dx = kernel.backward(x, ran.h_C2F, dy, rows, p.gate_up, p.down, grads)
    assert error(ran.y_CH * weights_C, want.out[rows.token_C]) < bound
    assert error(dx, want.dx[rows.token_C]) < bound
    for got, wanted in zip(grads.finish(), (want.dgate_up, want.ddown), strict=True):
        assert error(got, wanted) < bound


@pytest.mark.parametrize("how", ["fp32", "widened", "pairs"])
def test_compiled_products_are_the_same_to_the_bit_on_one_thread_and_on_three(how: Arithmetic) -> None:
    p = problem(60, top_k=1, h=256, f=160, dtype=torch.float32 if how == "fp32" else torch.bfloat16)
    kernel, rows, threads = compiled(how), make_plan(Routing(p.index_TK, 8), (), ()).host, torch.get_num_threads()
    x, results = p.x_TH[rows.token_C].to(kernel.rows_dtype(p.down.dtype)), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            ran, grads = kernel.forward(x, rows, p.gate_up, p.down), WeightGradients(p.gate_up, p.down)
            dx = kernel.backward(x, ran.h_C2F, x, rows, p.gate_up, p.down, grads)
            results.append((ran.y_CH.clone(), dx.clone(), *grads.finish()))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, three) for one, three in zip(*results, strict=True))


@pytest.mark.parametrize("how", ["fp32", "widened", "pairs"])
def test_a_row_that_is_nan_stays_so_and_touches_no_other(how: Arithmetic) -> None:
    p = problem(30, experts=1, top_k=1, h=96, f=64, dtype=torch.float32 if how == "fp32" else torch.bfloat16)
    kernel, rows = compiled(how), make_plan(Routing(p.index_TK, 1), (), ()).host
    x = p.x_TH.to(kernel.rows_dtype(p.down.dtype))
    clean = kernel.forward(x, rows, p.gate_up, p.down).y_CH.clone()
    x[7] = float("nan")
    dirty = kernel.forward(x, rows, p.gate_up, p.down).y_CH
    others = torch.arange(30) != 7
    assert dirty[7].isnan().all()
    assert torch.equal(dirty[others], clean[others])


def test_compiled_products_add_a_second_part_of_a_gradient() -> None:
    p = problem(20, experts=2, top_k=1, h=64, f=32)
    kernel, rows = compiled("fp32"), make_plan(Routing(p.index_TK, 2), (), ()).host
    x, grads = p.x_TH[rows.token_C], WeightGradients(p.gate_up, p.down)
    h = kernel.forward(x, rows, p.gate_up, p.down).h_C2F
    once = WeightGradients(p.gate_up, p.down)
    kernel.backward(x, h, x, rows, p.gate_up, p.down, once)
    for _ in range(2):
        kernel.backward(x, h, x, rows, p.gate_up, p.down, grads)
    for twice, single in zip(grads.finish(), once.finish(), strict=True):
        assert torch.equal(twice, single * 2)


def test_compiled_products_refuse_counts_that_do_not_add_up_to_the_rows() -> None:
    rows = HostRows(torch.zeros(5, dtype=torch.int64), torch.zeros(5, dtype=torch.int64), (1, 3), (2, 2))
    with pytest.raises(ValueError, match="5 host rows, but the experts' counts add up to 4"):
        compiled("fp32").forward(torch.zeros(5, 4), rows, torch.zeros(4, 4, 4), torch.zeros(4, 4, 2))


def test_without_a_compiler_torchs_own_products_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ProductsMissing, match="no C\\+\\+ compiler on PATH"):
        load_products(tmp_path)
    monkeypatch.setattr(kernels, "compiled_products", lambda: None)
    assert not isinstance(choose(torch.zeros(2, 8, 8), torch.zeros(2, 8, 4), Arena()), Compiled)


def test_products_are_not_loaded_from_a_folder_that_others_may_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ProductsMissing, match="others may write"):
        load_products(tmp_path)


def test_a_compiler_that_refuses_the_code_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cxx"
    compiler.write_text("#!/bin/sh\n[ $1 = --version ] || { echo unknown dialect >&2; exit 1; }\n")
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(ProductsMissing, match="unknown dialect"):
        load_products(tmp_path / "kept")


def test_offsets_that_do_not_add_up_to_the_rows_are_refused() -> None:
    rows = HostRows(torch.zeros(5, dtype=torch.int64), torch.zeros(5, dtype=torch.int64), (1, 3), (2, 2))
    with pytest.raises(ValueError, match="5 host rows, but the experts' counts add up to 4"):
        group_offsets(rows, 4)


def test_offsets_end_each_experts_rows() -> None:
    rows = HostRows(torch.zeros(5, dtype=torch.int64), torch.zeros(5, dtype=torch.int64), (1, 3), (2, 3))
    assert group_offsets(rows, 4).tolist() == [0, 2, 2, 5]
    assert group_offsets(rows, 4).dtype == torch.int32


def test_weights_that_the_grouped_product_cannot_take_run_an_expert_at_a_time() -> None:
    odd, transposed = torch.zeros(2, 4, 5), torch.zeros(2, 8, 8).transpose(1, 2)
    assert not can_group(odd)
    assert not can_group(transposed)
    assert isinstance(choose(transposed, transposed, Arena()), PerExpert)


def test_a_second_part_of_an_experts_gradient_is_added() -> None:
    grads = WeightGradients(torch.zeros(2, 4, 3), torch.zeros(2, 3, 2))
    for _ in range(2):
        grads.add(1, torch.ones(4, 3), torch.ones(3, 2))
    gate_up, down = grads.finish()
    assert gate_up.tolist() == [[[0.0] * 3] * 4, [[2.0] * 3] * 4]
    assert down[1].unique().tolist() == [2.0]
