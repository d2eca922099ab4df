"""Running totals: what statistics tell is added up where it changes

What is stored is added up here; usage was counted by key until now, and is by the key's group from now on.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

JOURNAL = "INSERT INTO journal (at, namespace, toolchain, kind, bucket, what, number, amount) SELECT"
OF_KEY = "FROM graph_keys k WHERE k.key_digest"
ENTRY = "{at}, {row}.namespace, k.toolchain, k.kind, k.bucket, {what}, {count}, {amount}"


def _entry(what: str, *, row: str = "NEW", at: str = "NULL", count: int = 1, amount: str = "0") -> str:
    values = ENTRY.format(row=row, at=at, what=what, count=count, amount=amount)
    return f"{JOURNAL} {values} {OF_KEY} = {row}.key_digest;"


ENDED = _entry(
    "'attempt_' || coalesce(NEW.failure_class, NEW.outcome)",
    at="NEW.ended_at",
    amount="coalesce(NEW.compile_s, NEW.ended_at - NEW.started_at)",
)
ARTIFACT_NOW = _entry("'artifact_' || NEW.state", amount="NEW.size_bytes")
ARTIFACT_BEFORE = _entry("'artifact_' || OLD.state", row="OLD", count=-1, amount="-OLD.size_bytes")
COMPILE_NOW = _entry("'compile_' || NEW.state")
COMPILE_BEFORE = _entry("'compile_' || OLD.state", row="OLD", count=-1)

TRIGGERS = {
    "compiles_added": ("INSERT ON compiles", None, COMPILE_NOW),
    "compiles_moved": ("UPDATE OF state ON compiles", "OLD.state <> NEW.state", COMPILE_BEFORE + COMPILE_NOW),
    "compiles_removed": ("DELETE ON compiles", None, COMPILE_BEFORE),
    "artifacts_added": ("INSERT ON artifacts", None, ARTIFACT_NOW),
    "artifacts_moved": ("UPDATE OF state ON artifacts", "OLD.state <> NEW.state", ARTIFACT_BEFORE + ARTIFACT_NOW),
    "attempts_added": ("INSERT ON attempts", "NEW.ended_at IS NOT NULL", ENDED),
    "attempts_ended": ("UPDATE OF ended_at ON attempts", "OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL", ENDED),
    "evictions_added": ("INSERT ON evictions", None, _entry("'evicted'", at="NEW.evicted_at", amount="NEW.size_bytes")),
}
"""Name, to the event, the condition, and what is done then: the same SQL in both databases."""

EVENTS = """
    SELECT ended_at AS at, namespace, key_digest, 'attempt_' || coalesce(failure_class, outcome) AS what,
        1 AS count, coalesce(compile_s, ended_at - started_at) AS amount FROM attempts WHERE ended_at IS NOT NULL
    UNION ALL SELECT evicted_at, namespace, key_digest, 'evicted', 1, size_bytes FROM evictions
    UNION ALL SELECT period_start, namespace, key_digest, event, count, saved_s FROM usage_counts
"""
LEVELS = """
    SELECT 0 AS at, namespace, key_digest, 'compile_' || state AS what, 1 AS count, 0 AS amount FROM compiles
    UNION ALL SELECT 0, namespace, key_digest, 'artifact_' || state, 1, size_bytes FROM artifacts
"""


def _totals(*columns: sa.Column[Any]) -> list[Any]:
    key = [
        *columns,
        sa.Column("namespace", sa.String(length=128), nullable=False),
        sa.Column("toolchain", sa.String(length=160), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("bucket", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("what", sa.String(length=32), nullable=False),
    ]
    sums = [
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("amount", sa.Double(), nullable=False),
    ]
    return [*key, *sums]


def _names(columns: list[Any]) -> list[str]:
    return [column.name for column in columns[:-2]]


def _create_tables() -> None:
    rowid = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    journal = [sa.Column("id", rowid, nullable=False), sa.Column("at", sa.Double(), nullable=True)]
    op.create_table("journal", *_totals(*journal), sa.PrimaryKeyConstraint("id", name=op.f("pk_journal")))
    tallies = _totals()
    op.create_table("tallies", *tallies, sa.PrimaryKeyConstraint(*_names(tallies), name=op.f("pk_tallies")))
    periods = _totals(sa.Column("period_start", sa.BigInteger(), autoincrement=False, nullable=False))
    op.create_table("periods", *periods, sa.PrimaryKeyConstraint(*_names(periods), name=op.f("pk_periods")))
    minutes = sa.text("period_start % 86400 <> 0")
    op.create_index("ix_periods_minutes", "periods", ["period_start"], sqlite_where=minutes, postgresql_where=minutes)


def _add_up() -> None:
    of_key = "k.toolchain, k.kind, k.bucket, e.what, sum(e.count), sum(e.amount)"
    joined = "e JOIN graph_keys k ON k.key_digest = e.key_digest"
    group = "k.toolchain, k.kind, k.bucket, e.what"
    op.execute(
        f"INSERT INTO tallies SELECT e.namespace, {of_key} FROM ({LEVELS} UNION ALL {EVENTS}) {joined} "
        f"GROUP BY e.namespace, {group}"
    )
    sqlite = op.get_bind().dialect.name == "sqlite"
    minute = "CAST(e.at / 60 AS INTEGER) * 60" if sqlite else "CAST(floor(e.at / 60) AS BIGINT) * 60"
    op.execute(
        f"INSERT INTO periods SELECT {minute}, e.namespace, {of_key} FROM ({EVENTS}) {joined} "
        f"GROUP BY {minute}, e.namespace, {group}"
    )


def _create_triggers() -> None:
    sqlite = op.get_bind().dialect.name == "sqlite"
    for name, (event, condition, body) in TRIGGERS.items():
        when = "" if condition is None else f"WHEN ({condition})"
        if sqlite:
            op.execute(f"CREATE TRIGGER {name} AFTER {event} {when} BEGIN {body} END")
            continue
        op.execute(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NULL; END $$")
        op.execute(f"CREATE TRIGGER {name} AFTER {event} FOR EACH ROW {when} EXECUTE FUNCTION {name}()")


def upgrade() -> None:
    _create_tables()
    _add_up()
    _create_triggers()
    op.drop_index("ix_usage_counts_key", table_name="usage_counts")
    op.drop_table("usage_counts")
    paused = sa.text("not_before IS NOT NULL")
    op.create_index("ix_compiles_backoff", "compiles", ["not_before"], sqlite_where=paused, postgresql_where=paused)


def downgrade() -> None:
    op.drop_index("ix_compiles_backoff", table_name="compiles")
    for name, (event, _, _) in TRIGGERS.items():
        table = event.rpartition(" ")[2]
        if op.get_bind().dialect.name == "sqlite":
            op.execute(f"DROP TRIGGER {name}")
        else:
            op.execute(f"DROP TRIGGER {name} ON {table}")
            op.execute(f"DROP FUNCTION {name}()")
    op.drop_index("ix_periods_minutes", table_name="periods")
    for table in ("periods", "tallies", "journal"):
        op.drop_table(table)
    op.create_table(
        "usage_counts",
        sa.Column("period_start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("namespace", sa.String(length=128), nullable=False),
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("event", sa.String(length=20), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("saved_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("period_start", "namespace", "key_digest", "event", name=op.f("pk_usage_counts")),
    )
    op.create_index("ix_usage_counts_key", "usage_counts", ["key_digest"], unique=False)
