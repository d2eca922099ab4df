"""A real service that starts in a moment, on either pair of database and store, and may die at a given step.

python forked_service.py
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from fakes.forker import LIMIT_S, Forked, Forker, Step, serve_orders

Result = TypeVar("Result")


class ForkedService:
    """A service of one folder; ``start`` after its death keeps its data.

    Args:
        places: the settings that say where its database and its store are, where they are not in its folder.
    """

    def __init__(self, forker: Forker, folder: Path, places: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self.url = ""
        self.settings: dict[str, Any] = {"data_dir": str(folder / "data")} | (places or {})
        self._forker = forker
        self._process: Forked | None = None
        folder.mkdir(parents=True)

    def start(self, die_at: Step | None = None) -> None:
        ready = self.folder / f"ready-{uuid4().hex}"
        order = {"settings": self.settings, "ready_file": str(ready), "log": str(self.folder / "log")}
        self._process = self._forker.fork(order, die_at)
        deadline = time.monotonic() + LIMIT_S
        while not ready.exists():
            if not self._process.lives() or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text(errors="replace")[-3000:])
            time.sleep(0.01)
        self.url = ready.read_text().strip()

    def wait_for_death(self) -> None:
        assert self._process is not None
        self._process.wait_for_death()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def with_services(self, work: Callable[[Any], Awaitable[Result]]) -> Result:
        """Run ``work`` on the same database and store, as a command of an administrator does."""
        from graphcache_service.commands import with_services
        from graphcache_service.settings import load_settings

        return with_services(load_settings(environment={}, **self.settings), work)

    def advance_clock(self, seconds: float) -> None:
        """Move the database's clock; no process sleeps."""
        from graphcache_service.db import clock

        async def advance(services: Any) -> None:
            async with services.database.write() as session:
                await clock.advance(session, seconds)

        self.with_services(advance)

    def assert_every_blob_is_whole(self) -> None:
        """Whatever lies in the store under a digest's name has this digest."""

        async def check(services: Any) -> list[str]:
            names = [stored.digest async for stored in services.blobs.iter_digests()]
            return [digest for digest in names if not await services.blobs.verify(digest)]

        assert self.with_services(check) == []


def serve(order: dict[str, Any]) -> None:
    from graphcache_service.serving import loop_factory, run
    from graphcache_service.settings import load_settings

    settings = load_settings(environment={}, port=0, **order["settings"])
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run(settings, Path(order["ready_file"])))


def main() -> None:
    # Loaded once; a fork then has it.
    import alembic.command  # noqa: F401
    import asyncpg  # noqa: F401
    import uvloop  # noqa: F401

    import graphcache_service.serving  # noqa: F401

    serve_orders(serve)


if __name__ == "__main__":
    main()
