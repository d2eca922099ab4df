"""SQL on tokens. Only hashes are stored and only hashes are asked for."""

import json
import secrets
from collections.abc import Sequence
from typing import Final, cast

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from graphcache_service.db.clock import database_now
from graphcache_service.db.engine import Database
from graphcache_service.db.models import TokenRow

_LIVE_TOKEN: Final = select(TokenRow.__table__).where(
    TokenRow.__table__.c.token_sha256 == bindparam("token_sha256"),
    TokenRow.__table__.c.revoked_at.is_(None),
    TokenRow.__table__.c.expires_at.is_(None) | (TokenRow.__table__.c.expires_at > database_now()),
)


async def live_token(database: Database, token_sha256: str) -> TokenRow | None:
    """The columns of the token of this hash, unless it was revoked or has expired."""
    found = await database.rows(_LIVE_TOKEN, {"token_sha256": token_sha256})
    return cast(TokenRow, found[0]) if found else None


async def any_live_token(session: AsyncSession) -> bool:
    """Whether some token would be accepted."""
    found = await session.scalar(
        select(TokenRow.id)
        .where(TokenRow.revoked_at.is_(None), TokenRow.expires_at.is_(None) | (TokenRow.expires_at > database_now()))
        .limit(1)
    )
    return found is not None


async def insert_token(
    session: AsyncSession,
    *,
    name: str,
    token_sha256: str,
    scope: str,
    namespace: str,
    reads: Sequence[str],
    now: float,
    expires_at: float | None,
) -> str:
    """Store a token's hash and rights; returns its id."""
    token_id = secrets.token_hex(16)
    await session.execute(
        insert(TokenRow).values(
            id=token_id,
            name=name,
            token_sha256=token_sha256,
            scope=scope,
            namespace=namespace,
            reads_json=json.dumps(list(reads)),
            created_at=now,
            expires_at=expires_at,
        )
    )
    return token_id


async def all_tokens(session: AsyncSession) -> Sequence[TokenRow]:
    """Every token, revoked ones too, oldest first."""
    return (await session.scalars(select(TokenRow).order_by(TokenRow.created_at, TokenRow.id))).all()


async def revoke(session: AsyncSession, id_or_name: str, now: float) -> int:
    """Revoke the live tokens of this id or name; returns how many there were."""
    rows = await session.scalars(
        update(TokenRow)
        .where((TokenRow.id == id_or_name) | (TokenRow.name == id_or_name), TokenRow.revoked_at.is_(None))
        .values(revoked_at=now)
        .returning(TokenRow.id)
        .execution_options(synchronize_session=False)
    )
    return len(rows.all())
