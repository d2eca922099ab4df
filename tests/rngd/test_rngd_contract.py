"""rngd keeps the promises of every toolchain, with the real compiler; its graphs run in their lowered form."""

import hashlib

import pytest
from fakes.compiles import ignore

from graphcache_runtime.compiling.check import check_graph
from graphcache_runtime.toolchains.base import CompileRejected
from graphcache_runtime.toolchains.container import read_description, read_parts
from graphcache_runtime.toolchains.contract import ToolchainContract


class TestRngd(ToolchainContract):
    toolchain_name = "rngd"
    dtypes = ("bf16",)

    def test_the_runnable_is_the_vendors_own_byte_for_byte(self, toolchain, compiles, fixtures):
        path = compiles.path(toolchain, self.key(toolchain))
        vendors_own = (fixtures / "moe-experts-fwd_E2_H64_F32_B8.runnable").read_bytes()
        assert read_parts(path, ["runnable"])["runnable"] == vendors_own
        assert read_description(path).parts["runnable"].sha256 == hashlib.sha256(vendors_own).hexdigest()

    def test_the_description_names_order_shapes_versions_and_seconds(self, toolchain, compiles):
        described = read_description(compiles.path(toolchain, self.key(toolchain)))
        assert [(spec.name, spec.shape) for spec in described.inputs] == [
            ("x", (2, 8, 64)), ("gate_up", (2, 64, 64)), ("down", (2, 64, 32)),
        ]  # fmt: skip
        assert [spec.name for spec in described.outputs] == ["y"]
        assert described.toolchain == toolchain.version()
        assert described.versions.keys() >= {"torch", "furiosa-torch", "furiosa-tcc"}
        assert described.seconds.keys() == {"export", "lower", "compile"}

    def test_without_an_npu_it_says_that_graphs_run_on_the_cpu(self, toolchain, compiles):
        loaded = toolchain.load(compiles.path(toolchain, self.key(toolchain)), self.key(toolchain))
        if loaded.on_device:
            pytest.skip("an RNGD answers here")
        assert "host CPU, by its lowered graph: no RNGD answers here" in toolchain.runs_on()
        assert loaded.device.type == "cpu"

    def test_a_graph_of_fp32_is_exact_to_fp32(self, toolchain, compiles):
        key = self.key(toolchain, dtype="fp32")
        path = compiles.path(toolchain, key)
        assert read_description(path).settings == {"implicit_type_casting": "false"}
        assert check_graph(toolchain.load(path, key), key, seed=3).rms_error < 1e-5

    def test_a_value_that_a_setting_does_not_have_is_refused(self, toolchain, tmp_path):
        key = self.key(toolchain, max_num_unique_shapes="many")
        with pytest.raises(CompileRejected, match="'many' is no value of the compiler's setting max_num_unique_shapes"):
            toolchain.compile(key, tmp_path, ignore)
