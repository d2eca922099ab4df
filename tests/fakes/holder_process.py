"""A process that holds leases as a training node does: granted, heartbeating, until it is killed or told to publish.

    python holder_process.py URL KEY_JSON

Prints ``granted`` or the other state; a line on standard input makes it publish, and it prints what became of that.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from graphcache_wire import GraphKey


class HolderProcess:
    """The process, as tests use it. ``started`` is the state that its resolve came to."""

    def __init__(self, url: str, key: GraphKey) -> None:
        command = [sys.executable, __file__, url, key.model_dump_json()]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started = self._line()

    def publish(self) -> str:
        """``published``, or the name of the error."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._line()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def main(url: str, key_json: str) -> None:
    from graphcache_client import GraphcacheError, HeldLease, ServiceClient
    from graphcache_wire import Granted, ResolveRequest

    key = GraphKey.model_validate_json(key_json)
    with ServiceClient(url) as service:
        outcome = service.resolve(ResolveRequest(key=key, owner=service.owner, holder=service.holder, can_compile=True))
        if not isinstance(outcome, Granted):
            print(outcome.state, flush=True)
            return
        with HeldLease(service, outcome.lease) as held, tempfile.TemporaryDirectory() as folder:
            held.report("compile")
            print("granted", flush=True)
            sys.stdin.readline()
            path = Path(folder) / "graph"
            path.write_bytes(service.owner.encode())
            try:
                held.publish(path, toolchain=key.toolchain, compile_s=1.0)
                print("published", flush=True)
            except GraphcacheError as error:
                print(type(error).__name__, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
