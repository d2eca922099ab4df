"""The folders that compiles work in: one a worker, locked while it lives, so that a killed one's can be removed."""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LOCK: Final = "in-use.lock"
PREFIX: Final = "worker-"


@contextmanager
def work_folder(root: Path) -> Iterator[Path]:
    """A folder of this process under ``root``; removed at the end, and after a crash by the next worker that starts."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    for left in root.glob(f"{PREFIX}*"):
        _remove_unless_in_use(left)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_unless_in_use(folder: Path) -> None:
    """A folder without its lock file is one that is just being made: leave it."""
    try:
        with (folder / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return
