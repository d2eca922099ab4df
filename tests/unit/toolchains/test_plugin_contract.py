"""The contract suite holds for a plug-in too; the stub is PyTorch itself, so this shows that the suite can be kept."""

from graphcache_runtime.toolchains.contract import ToolchainContract


class TestStub(ToolchainContract):
    toolchain_name = "stub"
