"""SQL on running totals: appended to the journal by whoever changes something, added up here, read with the journal."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from typing import cast as as_type

from sqlalchemy import ColumnElement, Row, Select, String, Table, cast, delete, func, insert, select, text, union_all
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import GraphKeyRow, JournalRow, PeriodRow, TallyRow
from graphcache_service.db.upsert import upsert

PERIOD_S: Final = 60
"""The resolution of ``since``."""
HOUR_S: Final = 3_600
DAY_S: Final = 86_400
DIGESTS_A_QUERY: Final = 1_000

_JOURNAL: Final = as_type(Table, JournalRow.__table__)
_TALLIES: Final = as_type(Table, TallyRow.__table__)
_PERIODS: Final = as_type(Table, PeriodRow.__table__)
"""Without the session's entities, which cost more than the rows."""

Group = tuple[str, ...]
"""The values of a filter's columns, as text."""
_MINUTES: Final = text("period_start % 86400 <> 0")
"""Rows that are no day yet, as their index says it."""


class TallyKey(NamedTuple):
    """What is counted apart. The order of its fields is that in which rows are locked."""

    namespace: str
    toolchain: str
    kind: str
    bucket: int
    what: str


@dataclass(slots=True)
class Sum:
    """How many, and the seconds or bytes of all of them."""

    number: int = 0
    amount: float = 0.0

    def add(self, number: int, amount: float) -> None:
        """Some more."""
        self.number += number
        self.amount += amount


@dataclass(frozen=True, slots=True)
class Filter:
    """Which totals are read, and by which columns of the key they are grouped. ``since``: None for all time."""

    namespaces: tuple[str, ...]
    since: int | None
    columns: tuple[str, ...]


def period_of(at: float) -> int:
    """The begin of the minute that a time lies in."""
    return int(at // PERIOD_S) * PERIOD_S


def day_of(at: float) -> int:
    """The begin of the day (UTC) that a time lies in."""
    return int(at // DAY_S) * DAY_S


async def append_usage(session: AsyncSession, counts: Iterable[tuple[str, str, str, int, float]], now: float) -> None:
    """Count events of keys: namespace, key digest, event, how often, and the seconds saved."""
    counted = list(counts)
    groups = await _groups_of(session, sorted({one[1] for one in counted}))
    sums: dict[TallyKey, Sum] = defaultdict(Sum)
    for namespace, key_digest, event, number, saved_s in counted:
        if key_digest in groups:
            sums[TallyKey(namespace, *groups[key_digest], event)].add(number, saved_s)
    if sums:
        await session.execute(insert(_JOURNAL), [{"at": now} | _values(key, one) for key, one in sums.items()])


async def _groups_of(session: AsyncSession, key_digests: Sequence[str]) -> dict[str, tuple[str, str, int]]:
    groups: dict[str, tuple[str, str, int]] = {}
    for first in range(0, len(key_digests), DIGESTS_A_QUERY):
        part = key_digests[first : first + DIGESTS_A_QUERY]
        rows = await session.execute(
            select(GraphKeyRow.key_digest, GraphKeyRow.toolchain, GraphKeyRow.kind, GraphKeyRow.bucket).where(
                GraphKeyRow.key_digest.in_(part)
            )
        )
        groups |= {row.key_digest: (row.toolchain, row.kind, row.bucket) for row in rows}
    return groups


def _values(key: TallyKey, one: Sum) -> dict[str, Any]:
    return key._asdict() | {"number": one.number, "amount": one.amount}


async def fold(session: AsyncSession, limit: int) -> int:
    """Add up to ``limit`` rows of the journal to the totals; returns how many. Rows that another folds are skipped."""
    ids = select(JournalRow.id).order_by(JournalRow.id).limit(limit).with_for_update(skip_locked=True)
    rows = (await session.execute(delete(_JOURNAL).where(_JOURNAL.c.id.in_(ids)).returning(*_JOURNAL.c))).all()
    tallies: dict[TallyKey, Sum] = defaultdict(Sum)
    periods: dict[tuple[int, TallyKey], Sum] = defaultdict(Sum)
    for row in rows:
        key = _key_of(row)
        tallies[key].add(row.number, row.amount)
        if row.at is not None:
            periods[period_of(row.at), key].add(row.number, row.amount)
    await _add(session, _TALLIES, [_values(key, one) for key, one in sorted(tallies.items(), key=_place)])
    await _add_periods(session, periods)
    return len(rows)


def _key_of(row: Row[Any]) -> TallyKey:
    return TallyKey(row.namespace, row.toolchain, row.kind, row.bucket, row.what)


def _place(item: tuple[Any, Sum]) -> Any:
    return item[0]


async def _add_periods(session: AsyncSession, periods: Mapping[tuple[int, TallyKey], Sum]) -> None:
    ordered = sorted(periods.items(), key=_place)
    await _add(session, _PERIODS, [{"period_start": start} | _values(key, one) for (start, key), one in ordered])


async def _add(session: AsyncSession, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    columns = table.c
    statement = upsert(session, table)
    statement = statement.on_conflict_do_update(
        index_elements=[column for column in columns if column.primary_key],
        set_={
            "number": columns.number + statement.excluded.number,
            "amount": columns.amount + statement.excluded.amount,
        },
    )
    await session.execute(statement, rows)


async def fold_hour(session: AsyncSession, before: int) -> int:
    """Turn the minutes of the oldest hour before a day's begin into their day; returns how many rows they were."""
    oldest = await session.scalar(
        select(func.min(_PERIODS.c.period_start)).where(_PERIODS.c.period_start < before, _MINUTES)
    )
    if oldest is None:
        return 0
    first = int(oldest) // HOUR_S * HOUR_S
    hour = _PERIODS.c.period_start.between(first, first + HOUR_S - 1)
    rows = (await session.execute(delete(_PERIODS).where(hour, _MINUTES).returning(*_PERIODS.c))).all()
    days: dict[tuple[int, TallyKey], Sum] = defaultdict(Sum)
    for row in rows:
        days[day_of(row.period_start), _key_of(row)].add(row.number, row.amount)
    await _add_periods(session, days)
    return len(rows)


async def forget_before(session: AsyncSession, before: float) -> None:
    """Remove periods that begin before a time; the totals of all time stay."""
    await session.execute(delete(_PERIODS).where(_PERIODS.c.period_start < day_of(before)))


def _source(table: Table, which: Filter) -> Select[Any]:
    columns = table.c
    asked: list[ColumnElement[Any]] = [
        *(cast(columns[name], String).label(name) for name in which.columns),
        columns.what,
        columns.number,
        columns.amount,
    ]
    return select(*asked).where(columns.namespace.in_(which.namespaces))


def sums_statement(which: Filter) -> Select[Any]:
    """One statement, so that what is folded meanwhile is counted once."""
    journal = _source(_JOURNAL, which)
    if which.since is None:
        parts = [_source(_TALLIES, which), journal]
    else:
        # How many there are now has no time.
        now = _source(_TALLIES, which).where(TallyRow.what.like("compile_%") | TallyRow.what.like("artifact_%"))
        later = _source(_PERIODS, which).where(PeriodRow.period_start >= which.since)
        parts = [now, later, journal.where(JournalRow.at.is_(None) | (JournalRow.at >= which.since))]
    found = union_all(*parts).subquery()
    by = [found.c[name] for name in which.columns] + [found.c.what]
    return select(*by, func.sum(found.c.number), func.sum(found.c.amount)).group_by(*by)


async def sums(session: AsyncSession, which: Filter) -> list[tuple[Group, str, int, float]]:
    """Group, what, how many, and seconds or bytes, up to this moment."""
    depth = len(which.columns)
    rows = await session.execute(sums_statement(which))
    return [(tuple(row[:depth]), str(row[depth]), int(row[depth + 1]), float(row[depth + 2])) for row in rows]


async def compiles_by_toolchain(session: AsyncSession) -> list[tuple[str, str, int]]:
    """Toolchain, state, number of keys, of all namespaces."""
    parts = union_all(
        *(
            select(table.toolchain, table.what, table.number).where(table.what.like("compile_%"))
            for table in (TallyRow, JournalRow)
        )
    ).subquery()
    rows = await session.execute(
        select(parts.c.toolchain, parts.c.what, func.sum(parts.c.number)).group_by(parts.c.toolchain, parts.c.what)
    )
    return [(str(toolchain), str(what).removeprefix("compile_"), int(number)) for toolchain, what, number in rows]
