"""doctor: which toolchains can compile on this machine, which can only load, what is missing, and where graphs run."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from graphcache_runtime.toolchains.base import ToolchainError
from graphcache_runtime.toolchains.registry import toolchain_named, toolchain_names


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One toolchain: its version where it can compile, else one sentence for each missing piece.

    ``loads``: graphs that others compiled can be loaded and run here. ``runs_on``: where, as far as it is known.
    """

    name: str
    version: str | None
    missing: list[str] = field(default_factory=list)
    loads: bool = False
    runs_on: str = ""

    @property
    def usable(self) -> bool:
        return self.version is not None


def diagnoses(names: Iterable[str]) -> list[Diagnosis]:
    """Of the toolchains named, or of all. A plug-in that cannot even be imported is a diagnosis too."""
    return [diagnosis(name) for name in names or toolchain_names()]


def diagnosis(name: str) -> Diagnosis:
    try:
        toolchain = toolchain_named(name)
        missing = toolchain.missing()
        loads = not toolchain.missing_to_load()
        version = None if missing else toolchain.version()
        return Diagnosis(name, version, missing, loads, toolchain.runs_on() if loads else "")
    except ToolchainError as error:
        return Diagnosis(name, None, [str(error)])


def print_diagnoses(found: Iterable[Diagnosis], console: Console) -> None:
    table = Table("toolchain", "compiles here", "loads here", "runs on")
    table.add_column("version, or what is missing", overflow="fold")
    for one in found:
        told = one.version or "\n".join(f"- {reason}" for reason in one.missing)
        compiles, loads = ("yes" if can else "no" for can in (one.usable, one.loads))
        table.add_row(one.name, compiles, loads, one.runs_on or "-", told)
    console.print(table)
