"""Turns: of those who upload the same bytes at the same time, one writes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

TURN_S: Final = 10.0
"""How long an upload waits for another one of the same bytes before it goes on by itself."""


@dataclass(slots=True)
class Turn:
    """What those who upload the same bytes at the same time share."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    stored: bool = False
    """One of them stored the bytes since the others began."""

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """One after the other, so that one write reaches the store; a slow one holds up the others for TURN_S."""
        held = False
        try:
            if not self.lock.locked():
                held = await self.lock.acquire()
            else:
                with suppress(TimeoutError):
                    held = await asyncio.wait_for(self.lock.acquire(), TURN_S)
            yield
        finally:
            if held:
                self.lock.release()


class Turns:
    """All turns of this process, by digest."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}

    @contextmanager
    def of(self, digest: str) -> Iterator[Turn]:
        """The turn that those share who upload these bytes now."""
        turn = self._turns.setdefault(digest, Turn())
        turn.users += 1
        try:
            yield turn
        finally:
            turn.users -= 1
            if turn.users == 0:
                self._turns.pop(digest, None)
