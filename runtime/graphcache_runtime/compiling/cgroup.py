"""What the kernel says of memory in this process's control group: its limit, and kills for want of it. v1 and v2."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")
VMSTAT: Final = Path("/proc/vmstat")
LIMITS: Final = ("memory.max", "memory.limit_in_bytes")
"""Of v2 and of v1. Without a limit v2 says max, and v1 a number above any memory."""
KILLS: Final = ("memory.events", "memory.oom_control")
"""Files of v2 and v1 with a line oom_kill: processes of this group that were killed, whoever ran out of memory."""


@dataclass(frozen=True, slots=True)
class OomKills:
    """How many processes the kernel has killed for want of memory, and the file that says so."""

    count: int
    source: Path


def oom_kills(root: Path = ROOT, own: Path = OWN, vmstat: Path = VMSTAT) -> OomKills:
    """Of this process's group; of the whole machine where the group does not say; 0 where nothing does."""
    group = next(_groups(root, own), None)
    files = [group / name for name in KILLS] if group else []
    found = (OomKills(count, file) for file in [*files, vmstat] if (count := _oom_kill(file)) is not None)
    return next(found, OomKills(0, vmstat))


def memory_limit_bytes(root: Path = ROOT, own: Path = OWN) -> int | None:
    """The smallest limit of this process's group and of those that it is in; None without one."""
    texts = [_text(group / name).strip() for group in _groups(root, own) for name in LIMITS]
    return min((int(text) for text in texts if text.isdigit()), default=None)


def _groups(root: Path, own: Path) -> Iterator[Path]:
    """The folder of this process's memory group, then those above it up to the mount.

    A container often sees its own group as the mount, and its path only as the host names it: then the mount it is.
    """
    for line in _text(own).splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            mount = root / "memory"
        elif number == "0" and (root / "cgroup.controllers").exists():
            mount = root
        else:
            continue
        group = mount / path.lstrip("/")
        if not group.is_dir():
            group = mount
        yield group
        yield from (above for above in group.parents if above.is_relative_to(mount))
        return


def _oom_kill(file: Path) -> int | None:
    lines = (line.split() for line in _text(file).splitlines())
    return next((int(words[1]) for words in lines if words and words[0] == "oom_kill"), None)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
