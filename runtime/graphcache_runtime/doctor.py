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
    """A table of what can be done here, then what is missing for the rest."""
    found = list(found)
    table = Table("toolchain", "compiles here", "loads here")
    table.add_column("version", overflow="fold")
    for one in found:
        compiles, loads = ("yes" if can else "no" for can in (one.usable, one.loads))
        table.add_row(one.name, compiles, loads, one.version or "-")
    console.print(table)
    for one in found:
        if one.runs_on:
            _say(console, f"{one.name}: graphs run on {one.runs_on}")
        for reason in one.missing:
            _say(console, f"{one.name} cannot compile: {reason}")


def _say(console: Console, line: str) -> None:
    console.print(line, soft_wrap=True, markup=False, highlight=False)
