"""inductor keeps the promises of every toolchain, with real compiles."""

from graphcache_runtime.toolchains.contract import ToolchainContract


class TestInductor(ToolchainContract):
    toolchain_name = "inductor"
