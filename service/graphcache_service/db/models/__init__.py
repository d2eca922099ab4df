"""The tables, a file for each group of them."""

from graphcache_service.db.models.access import TokenRow
from graphcache_service.db.models.base import Base
from graphcache_service.db.models.blobs import BlobRow, TotalsRow, UploadRow
from graphcache_service.db.models.compiles import AttemptRow, CompileRow, HedgeRow, LeasedRow, WorkerRow
from graphcache_service.db.models.graphs import ArtifactRow, EvictionRow, GraphKeyRow, ReportRow
from graphcache_service.db.models.manifests import ManifestKeyRow, ManifestRow
from graphcache_service.db.models.signals import ClockRow, WakeupRow
from graphcache_service.db.models.tallies import JournalRow, PeriodRow, TallyRow
from graphcache_service.db.models.usage import UsageBatchRow, WaitRow

__all__ = [
    "ArtifactRow",
    "AttemptRow",
    "Base",
    "BlobRow",
    "ClockRow",
    "CompileRow",
    "EvictionRow",
    "GraphKeyRow",
    "HedgeRow",
    "JournalRow",
    "LeasedRow",
    "ManifestKeyRow",
    "ManifestRow",
    "PeriodRow",
    "ReportRow",
    "TallyRow",
    "TokenRow",
    "TotalsRow",
    "UploadRow",
    "UsageBatchRow",
    "WaitRow",
    "WakeupRow",
    "WorkerRow",
]
