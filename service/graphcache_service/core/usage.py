"""Usage: who hit, missed and waited, counted in memory and written in batches, so that a hit costs no write.

A kill loses at most what was counted since the last flush (``usage_flush_s``).
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final, Literal

Event = Literal[
    "hit_memory", "hit_disk", "hit_service", "miss", "error", "joined_ready", "joined_failed", "joined_timed_out"
]
HITS: Final = ("hit_memory", "hit_disk", "hit_service")

FORGOTTEN_AFTER_S: Final = 120.0
"""An asker that was answered "pending" and is not back after two long polls gave up."""

KeyId = tuple[str, str]
"""Namespace and key digest."""


@dataclass(slots=True)
class Tally:
    """How often, and the seconds of compile that were saved."""

    count: int = 0
    saved_s: float = 0.0


@dataclass(slots=True)
class OpenWait:
    """One asker's wait for one key, over as many polls as it takes."""

    since: float
    last_seen: float
    joined: bool
    """False for the asker whose miss queued or began the compile: it waits for its own wish."""


@dataclass(frozen=True, slots=True)
class EndedWait:
    """A joined wait, for the percentiles."""

    key: KeyId
    wait_s: float
    outcome: Literal["ready", "failed", "timed_out"]


@dataclass(slots=True)
class Batch:
    """What is written at once."""

    events: dict[tuple[KeyId, Event], Tally] = field(default_factory=lambda: defaultdict(Tally))
    used: set[KeyId] = field(default_factory=set)
    fetched: set[str] = field(default_factory=set)
    waits: list[EndedWait] = field(default_factory=list)
    offers: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """Owner and toolchain of a claim, to its namespace and holder."""

    def __bool__(self) -> bool:
        return bool(self.events or self.used or self.fetched or self.waits or self.offers)


class Usage:
    """The counters of this process since the last flush, and the waits under way."""

    def __init__(self) -> None:
        self._batch = Batch()
        self._open: dict[tuple[KeyId, str], OpenWait] = {}

    def count(self, key: KeyId, event: Event, *, saved_s: float = 0.0, count: int = 1) -> None:
        """Count an event; ``saved_s`` is for all of ``count``."""
        tally = self._batch.events[key, event]
        tally.count += count
        tally.saved_s += saved_s
        if event in HITS:
            self._batch.used.add(key)

    def fetched(self, digest: str) -> None:
        """A blob's bytes were asked for: it is in use."""
        self._batch.fetched.add(digest)

    def offered(self, owner: str, holder: str, namespace: str, toolchains: list[str]) -> None:
        """A worker asked for something to compile."""
        for toolchain in toolchains:
            self._batch.offers[owner, toolchain] = (namespace, holder)

    def answered_ready(self, key: KeyId, owner: str, compile_s: float, now: float) -> bool:
        """A graph was handed out: a hit, or the end of a wait. Whether it was a wait for another's compile."""
        wait = self._open.pop((key, owner), None)
        if wait is None:
            self.count(key, "hit_service", saved_s=compile_s)
        elif wait.joined:
            self._end(key, wait, "ready", now, compile_s)
        self._batch.used.add(key)
        return wait is not None and wait.joined

    def answered_failed(self, key: KeyId, owner: str, now: float) -> None:
        """A kept failure was handed out: an error, or the end of a wait."""
        wait = self._open.pop((key, owner), None)
        if wait is None:
            self.count(key, "error")
        elif wait.joined:
            self._end(key, wait, "failed", now, 0.0)

    def missed(self, key: KeyId, owner: str, now: float) -> None:
        """This asker's question queued or began a compile."""
        wait = self._open.get((key, owner))
        if wait is None or wait.joined:
            self.count(key, "miss")
        self._open[key, owner] = OpenWait(since=now, last_seen=now, joined=False)

    def granted(self, key: KeyId, owner: str, now: float) -> None:
        """The asker compiles by itself: a miss, and no wait any more."""
        self.missed(key, owner, now)
        self._open.pop((key, owner), None)

    def waits(self, key: KeyId, owner: str, now: float) -> None:
        """The asker waits for a compile that is under way or queued."""
        wait = self._open.setdefault((key, owner), OpenWait(since=now, last_seen=now, joined=True))
        wait.last_seen = now

    def forget_lost_waits(self, now: float) -> None:
        """Count waits whose askers did not come back."""
        for (key, owner), wait in list(self._open.items()):
            if now - wait.last_seen > FORGOTTEN_AFTER_S:
                del self._open[key, owner]
                if wait.joined:
                    self._end(key, wait, "timed_out", wait.last_seen, 0.0)

    def _end(
        self, key: KeyId, wait: OpenWait, outcome: Literal["ready", "failed", "timed_out"], now: float, saved_s: float
    ) -> None:
        event: Final[Event] = (
            "joined_ready" if outcome == "ready" else "joined_failed" if outcome == "failed" else "joined_timed_out"
        )
        self.count(key, event, saved_s=saved_s)
        self._batch.waits.append(EndedWait(key, max(0.0, now - wait.since), outcome))

    def take(self) -> Batch:
        """What was counted since the last call."""
        batch, self._batch = self._batch, Batch()
        return batch

    def put_back(self, batch: Batch) -> None:
        """A batch that could not be written counts again."""
        for (key, event), tally in batch.events.items():
            mine = self._batch.events[key, event]
            mine.count += tally.count
            mine.saved_s += tally.saved_s
        self._batch.used |= batch.used
        self._batch.fetched |= batch.fetched
        self._batch.waits = batch.waits + self._batch.waits
        self._batch.offers = batch.offers | self._batch.offers
