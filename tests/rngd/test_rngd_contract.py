"""rngd keeps the promises of every toolchain, with the real compiler; its graphs run in their lowered form."""

import hashlib

import pytest
from fakes.compiles import ignore

from graphcache_runtime.compiling.check import check_graph
from graphcache_runtime.compiling.run import CompileDied, run_compile
from graphcache_runtime.toolchains.base import CompileRejected
from graphcache_runtime.toolchains.container import read_description, read_parts
from graphcache_runtime.toolchains.contract import ToolchainContract
from graphcache_wire import FailureClass, GraphKey, Kind


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

    def test_gradients_of_fp32_are_exact_to_fp32(self, toolchain, tmp_path):
        fields = {"kind": Kind.EXPERTS_BACKWARD_LORA, "e_hot": 1, "h": 16, "f": 8, "bucket": 1}
        key = GraphKey(**fields, toolchain=toolchain.version(), options={"dtype": "fp32"})
        compiled = toolchain.compile(key, tmp_path, ignore)
        assert check_graph(toolchain.load(compiled.path, key), key, seed=3).rms_error < 1e-5

    @pytest.mark.parametrize(
        ("value", "said"),
        [
            ("many", "'many' is no value of the compiler's setting max_num_unique_shapes"),
            ("-1", "does not take these settings .*max_num_unique_shapes.*: can't convert negative int"),
        ],
    )
    def test_a_value_that_a_setting_does_not_have_is_refused(self, toolchain, tmp_path, value, said):
        key = self.key(toolchain, max_num_unique_shapes=value)
        with pytest.raises(CompileRejected, match=said):
            toolchain.compile(key, tmp_path, ignore)

    def test_the_compilers_own_refusal_is_rejected_and_its_cause_comes_first(self, toolchain, tmp_path):
        key = self.key(toolchain, padding_policy_small="nan")
        with pytest.raises(CompileDied) as caught:
            run_compile("rngd", key, tmp_path, ignore)
        assert caught.value.failure_class is FailureClass.REJECTED
        assert caught.value.message.endswith(
            "refused the graph: invalid compiler config: invalid type: null, expected f32"
        )
        assert "torch.ops.aten.bmm.default" in caught.value.log_tail
