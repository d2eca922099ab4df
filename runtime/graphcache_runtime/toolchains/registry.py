"""The toolchains of this machine, found by their entry points: built-in ones and plug-ins alike."""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from graphcache_runtime.toolchains.base import Toolchain, ToolchainError

GROUP = "graphcache.toolchains"


class UnknownToolchain(ToolchainError):
    """No toolchain has this name, or makes versions that begin so; the message lists what there is."""


def toolchain_names() -> list[str]:
    """The names of all registered toolchains, installed compilers or not."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def toolchain_named(name: str) -> Toolchain:
    """The toolchain of this name. Its compiler may be missing: ask ``missing()``.

    Raises:
        UnknownToolchain: lists every registered toolchain, and why each that cannot compile here cannot.
    """
    for point in entry_points(group=GROUP):
        if point.name == name:
            return _loaded(point)
    raise UnknownToolchain(f"no toolchain is named {name!r}. {_what_there_is()}")


def toolchain_of(version: str) -> Toolchain:
    """The toolchain that made graphs of this version, the string of ``GraphKey.toolchain``.

    Raises:
        UnknownToolchain: lists every registered toolchain.
    """
    for toolchain in _all_loaded():
        if version.startswith(toolchain.prefix):
            return toolchain
    raise UnknownToolchain(f"no toolchain here makes or loads graphs of {version!r}. {_what_there_is()}")


def describe(toolchain: Toolchain) -> str:
    """One line: its version where it can compile, else what is missing."""
    missing = toolchain.missing()
    return f"{toolchain.name} ({'; '.join(missing)})" if missing else f"{toolchain.name} ({toolchain.version()})"


def _loaded(point: EntryPoint) -> Toolchain:
    try:
        toolchain: Toolchain = point.load()()
    except ImportError as error:
        raise UnknownToolchain(f"toolchain {point.name} ({point.value}) cannot be imported: {error}") from error
    return toolchain


def _all_loaded() -> Iterable[Toolchain]:
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            yield _loaded(point)
        except UnknownToolchain:
            continue


def _what_there_is() -> str:
    found = {toolchain.name: describe(toolchain) for toolchain in _all_loaded()}
    lines = [found.get(name, f"{name} (cannot be imported)") for name in toolchain_names()]
    return f"Registered are: {', '.join(lines) or 'none'}."
