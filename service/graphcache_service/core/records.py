"""Records: what a lost database needs to know of each graph, stored beside its bytes.

A record says what the database says, so it is written from there: :func:`settle` looks at a key and writes or removes
its record. The database comes first; a record that could not be written is written by the next round of maintenance.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, Literal

import structlog
from pydantic import ValidationError

from graphcache_service.blobs.records import key_digest_of, record_name
from graphcache_service.core.errors import ServiceError
from graphcache_service.core.outcomes import as_artifact
from graphcache_service.core.services import Services
from graphcache_service.core.usage import KeyId
from graphcache_service.db import artifacts
from graphcache_service.db.artifacts import StandingGraph
from graphcache_wire import Artifact, GraphKey
from graphcache_wire.base import Name, WireModel

log = structlog.get_logger()

AT_ONCE: Final = 16
"""Records that are read or written together."""
LOOKS: Final = 3
"""A key that changes while its record is written is looked at again; more often, and maintenance has it."""
STANDING_AT_ONCE: Final = 500


class Record(WireModel):
    """One published graph. A later version of this text is passed over by whoever does not know it."""

    record_version: Literal[1] = 1
    namespace: Name
    key: GraphKey
    artifact: Artifact

    def name(self) -> str:
        """Where it is stored."""
        return record_name(self.namespace, self.artifact.key_digest)


def as_record(graph: StandingGraph) -> Record:
    """The record of a standing artifact."""
    key = GraphKey.model_validate_json(graph.key_json)
    return Record(namespace=graph.artifact.namespace, key=key, artifact=as_artifact(graph.artifact))


def parse_record(name: str, content: bytes) -> Record | None:
    """The record, if it is whole, of a version that is known, and of the key that its name says."""
    try:
        record = Record.model_validate_json(content)
    except ValidationError:
        return None
    own = record.key.digest == record.artifact.key_digest == key_digest_of(name)
    return record if own and record.name() == name else None


async def settle(services: Services, keys: Iterable[KeyId]) -> None:
    """Make the records of some keys say what the database says. Never raises what the store or the database refuse:
    the keys stay in ``services.unsettled`` then.
    """
    waiting = sorted(keys)
    for first in range(0, len(waiting), AT_ONCE):
        await asyncio.gather(*(_settle_one(services, key_id) for key_id in waiting[first : first + AT_ONCE]))


async def _settle_one(services: Services, key_id: KeyId) -> None:
    services.unsettled.add(key_id)
    try:
        if await _settled(services, key_id):
            services.unsettled.discard(key_id)
    except ServiceError as error:
        log.warning("record_not_written", namespace=key_id[0], key_digest=key_id[1], error=error.message)


async def _settled(services: Services, key_id: KeyId) -> bool:
    """Whether the database still says what was written once it is written."""
    name, store = record_name(*key_id), services.blobs.records
    wanted = await _wanted(services, key_id)
    for _ in range(LOOKS):
        if wanted is None:
            await store.delete(name)
        else:
            await store.put(name, wanted)
        before, wanted = wanted, await _wanted(services, key_id)
        if wanted == before:
            return True
    return False


async def _wanted(services: Services, key_id: KeyId) -> bytes | None:
    async with services.database.read() as session:
        graph = await artifacts.standing_graph(session, *key_id)
    return None if graph is None else as_record(graph).model_dump_json().encode()


async def all_standing(services: Services) -> AsyncIterator[StandingGraph]:
    """Every standing artifact with its key, oldest first."""
    last = 0
    while True:
        async with services.database.scan() as session:
            graphs = await artifacts.standing_after(session, last, STANDING_AT_ONCE)
        for graph in graphs:
            yield graph
        if len(graphs) < STANDING_AT_ONCE:
            return
        last = graphs[-1].artifact.id


async def read_records(services: Services, names: Iterable[str]) -> AsyncIterator[tuple[str, Record | None]]:
    """Records by name, some at once; None for what is none. Names that are gone meanwhile are passed over."""
    waiting = sorted(names)
    for first in range(0, len(waiting), AT_ONCE):
        part = waiting[first : first + AT_ONCE]
        contents = await asyncio.gather(*(services.blobs.records.get(name) for name in part))
        for name, content in zip(part, contents, strict=True):
            if content is not None:
                yield name, parse_record(name, content)
