"""The version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("npu-graphcache")
except PackageNotFoundError:  # A checkout on the path that was never installed.
    VERSION = "0+unknown"
