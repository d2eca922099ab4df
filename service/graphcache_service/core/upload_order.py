"""What a holder wants to store, and under which lease."""

from dataclasses import dataclass

from graphcache_service.core import leases
from graphcache_service.core.callers import Caller
from graphcache_service.core.errors import InvalidRequest, LengthMismatch, TooLarge
from graphcache_service.db.models import LeasedRow
from graphcache_service.settings import Settings
from graphcache_wire.base import is_sha256


class UploadCut(LengthMismatch):
    """The connection ended before the body did."""

    def __init__(self) -> None:
        super().__init__("the connection ended before the announced length: nothing was stored")


@dataclass(frozen=True, slots=True)
class UploadOrder:
    """What a holder wants to store, and the lease it does so under."""

    caller: Caller
    digest: str
    size_bytes: int
    compile_id: str
    generation: int

    def check(self, settings: Settings) -> None:
        """Refuses what needs no look at the database.

        Raises:
            Forbidden, InvalidRequest, TooLarge.
        """
        self.caller.require("compile")
        if not is_sha256(self.digest):
            raise InvalidRequest("a blob is named by its sha256: 64 lower-case hexadecimal digits", field="digest")
        if self.size_bytes == 0:
            raise InvalidRequest("a compiled graph has at least one byte", field="Content-Length")
        if self.size_bytes > settings.max_blob_bytes:
            raise TooLarge(
                f"{self.size_bytes} bytes announced, the largest blob may have {settings.max_blob_bytes}",
                field="Content-Length",
                hint="raise max_blob_bytes of the service if such graphs are meant to be stored",
            )

    def check_lease(self, row: LeasedRow | None, now: float) -> None:
        """Refuses a lease that is not live; ``row`` is what it was granted on.

        Raises:
            NotFound, LeaseExpired.
        """
        leased = leases.check_own(row, self.caller, self.compile_id)
        if not leases.is_live(leased, self.generation, now):
            raise leases.why_not_live(leased, self.generation, now)

    def deadline_s(self, settings: Settings) -> float:
        """Seconds that the body may take: a fixed time, and more for more bytes."""
        return settings.upload_grace_s + self.size_bytes / settings.upload_min_bytes_per_s

    def unfinished(self) -> tuple[str, int, str]:
        """Names the upload in parts that this order continues."""
        return self.compile_id, self.generation, self.digest


@dataclass(frozen=True, slots=True)
class Progress:
    """Where an upload stands. ``stored``: it is a blob now. ``existing``: it had been one before."""

    received_bytes: int
    stored: bool = False
    existing: bool = False
