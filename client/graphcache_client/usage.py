"""UsageCounter: hits that this process served from its own memory and disk, told to the service in batches."""

import logging
import threading
from collections import Counter

from graphcache_client.errors import GraphcacheError
from graphcache_client.identity import new_owner
from graphcache_client.transport import ServiceClient
from graphcache_wire import UsageHit, UsageRequest

logger = logging.getLogger(__name__)

FLUSH_EVERY_S = 30.0
MAX_KEYS_A_BATCH = 4_096


class UsageCounter:
    """Counts in memory; a daemon thread sends every ``FLUSH_EVERY_S``. A hit costs one dictionary update.

    A batch that does not arrive is kept and sent again under the same id, so that it counts once.
    """

    def __init__(self, service: ServiceClient, *, flush_every_s: float = FLUSH_EVERY_S) -> None:
        self._service = service
        self._flush_every_s = flush_every_s
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._hits: Counter[tuple[str, str]] = Counter()
        self._unsent: UsageRequest | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def hit(self, key_digest: str, tier: str) -> None:
        with self._lock:
            self._hits[key_digest, tier] += 1
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="graphcache usage", daemon=True)
                self._thread.start()

    def flush(self) -> bool:
        """Send what was counted. False where the service could not be told; the counts are kept."""
        with self._sending:
            while (batch := self._unsent or self._next_batch()) is not None:
                self._unsent = batch
                try:
                    self._service.usage(batch)
                except GraphcacheError as error:
                    logger.info("usage of %d graphs is kept for later: %s", len(batch.hits), error)
                    return False
                self._unsent = None
        return True

    def close(self) -> None:
        self._closed.set()
        self.flush()

    def _next_batch(self) -> UsageRequest | None:
        with self._lock:
            taken = list(self._hits.items())[:MAX_KEYS_A_BATCH]
            for counted, _ in taken:
                del self._hits[counted]
        if not taken:
            return None
        hits = [UsageHit.model_validate({"key_digest": key, "tier": tier, "count": n}) for (key, tier), n in taken]
        return UsageRequest(owner=self._service.owner, batch=new_owner(), hits=hits)

    def _run(self) -> None:
        while not self._closed.wait(self._flush_every_s):
            self.flush()
