"""Tokens: made here, stored as sha256, and looked up once in a while instead of once a request."""

import hashlib
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from graphcache_service.core.callers import OPEN_CALLER, SCOPES, Caller, Scope
from graphcache_service.core.errors import Unauthenticated
from graphcache_service.db import clock
from graphcache_service.db import tokens as rows
from graphcache_service.db.engine import Database
from graphcache_service.db.models import TokenRow

PREFIX: Final = "gct_"
"""Lets a scanner of repositories and logs recognise a leaked token."""
REMEMBERED_S: Final = 5.0
"""A revoked token is refused by every replica after this long at the latest."""
MAX_REMEMBERED: Final = 4_096


def token_sha256(token: str) -> str:
    """What is stored. A token has 256 random bits, so a fast hash without salt keeps it."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_token() -> str:
    """A token that nobody can guess."""
    return PREFIX + secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class _Remembered:
    caller: Caller
    until: float


class TokenCache:
    """Callers by the hash of their token, for a few seconds each."""

    def __init__(self, database: Database, *, required: bool) -> None:
        self._database = database
        self._required = required
        self._remembered: dict[str, _Remembered] = {}

    def remembered(self, authorization: str | None) -> Caller | None:
        """The caller, where no look at the database is needed: the cheap path of every request."""
        if authorization is None:
            return None if self._required else OPEN_CALLER
        known = self._remembered.get(token_sha256(_bearer(authorization)))
        return known.caller if known is not None and known.until > time.monotonic() else None

    async def caller(self, authorization: str | None) -> Caller:
        """Whose request this is.

        Args:
            authorization: the header's value, None where it is missing.

        Raises:
            Unauthenticated: no token where one is needed, or one that is unknown, revoked or expired.
            DatabaseUnavailable: nobody can say.
        """
        known = self.remembered(authorization)
        if known is not None:
            return known
        if authorization is None:
            raise Unauthenticated("this service needs a token")
        digest = token_sha256(_bearer(authorization))
        row = await rows.live_token(self._database, digest)
        if row is None:
            raise Unauthenticated("the token is unknown, revoked or expired")
        caller = _caller_of(row)
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[digest] = _Remembered(caller, time.monotonic() + REMEMBERED_S)
        return caller


async def tokens_exist(database: Database) -> bool:
    """Whether some token would be accepted."""
    async with database.read() as session:
        return await rows.any_live_token(session)


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """A token as it is listed: never the token itself, which only its maker has seen."""

    token_id: str
    name: str
    scope: Scope
    namespace: str
    reads: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


async def create_token(
    database: Database, *, name: str, scope: Scope, namespace: str, reads: Sequence[str], days: float | None
) -> str:
    """Make a token; only its hash is stored, so this is the one time that it is seen.

    Args:
        days: until it expires; None for never.
    """
    token = new_token()
    async with database.write() as session:
        now = await clock.now(session)
        await rows.insert_token(
            session,
            name=name,
            token_sha256=token_sha256(token),
            scope=scope,
            namespace=namespace,
            reads=reads,
            now=now,
            expires_at=None if days is None else now + days * 86_400.0,
        )
    return token


async def list_tokens(database: Database) -> list[TokenFacts]:
    """All tokens, revoked ones too."""
    async with database.read() as session:
        found = await rows.all_tokens(session)
    return [
        TokenFacts(
            row.id,
            row.name,
            _scope_of(row),
            row.namespace,
            tuple(json.loads(row.reads_json)),
            _at(row.created_at),
            None if row.expires_at is None else _at(row.expires_at),
            None if row.revoked_at is None else _at(row.revoked_at),
        )
        for row in found
    ]


async def revoke_token(database: Database, id_or_name: str) -> int:
    """Revoke the live tokens of an id or a name; returns how many there were."""
    async with database.write() as session:
        return await rows.revoke(session, id_or_name, await clock.now(session))


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _scope_of(row: TokenRow) -> Scope:
    return next(scope for scope in SCOPES if scope == row.scope)


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("the header Authorization is not of the form: Bearer <token>")
    return token.strip()


def _caller_of(row: TokenRow) -> Caller:
    return Caller(row.namespace, _scope_of(row), tuple(json.loads(row.reads_json)), row.id)
