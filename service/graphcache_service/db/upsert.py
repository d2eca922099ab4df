"""INSERT ... ON CONFLICT, which both dialects have under the same name."""

from typing import Any

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.models import Base


def upsert(dialect: AsyncSession | str, table: type[Base] | Table) -> Any:
    """An INSERT of the session's dialect, or of the named one: it has ``on_conflict_do_nothing`` and ``..._do_update``.

    Any: the two dialects' classes share these methods but no type that has them.

    Args:
        table: a table alone leaves the session's entities out, which costs less.
    """
    name = dialect if isinstance(dialect, str) else dialect.get_bind().dialect.name
    if name == "sqlite":
        return sqlite.insert(table)
    return postgresql.insert(table)
