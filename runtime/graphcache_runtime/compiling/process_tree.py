"""What a session of processes takes, and how it is ended. Reads /proc; Linux alone."""

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_SESSION, _RSS = 3, 21
"""Places in /proc/PID/stat behind the command's closing parenthesis; see proc(5)."""


def session_memory_bytes(session: int, proc: Path = Path("/proc")) -> int:
    """Resident memory of all processes of ``session``, shared pages counted for each."""
    return sum(_resident_pages(entry.path, session) for entry in os.scandir(proc) if entry.name.isdigit()) * PAGE_BYTES


def kill_session(leader: int) -> None:
    """Kill the group of a session's leader, which must not have been reaped."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def reap_orphans(leader: int) -> None:
    """Reap what a killed session left to this process: the first process of a container inherits every orphan in it."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-leader, 0)


def _resident_pages(process: str, session: int) -> int:
    """0 where the process is of another session, or has gone."""
    try:
        with open(f"{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return int(fields[_RSS]) if len(fields) > _RSS and int(fields[_SESSION]) == session else 0
