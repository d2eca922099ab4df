"""What all tables share. Times are seconds since 1970 by the database's clock, sizes bytes, digests lower-case hex."""

from sqlalchemy import BigInteger, Integer, MetaData, String
from sqlalchemy.orm import DeclarativeBase

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}

Id = String(32)
Digest = String(64)
NameText = String(128)
Rowid = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only in a column of type INTEGER."""


class Base(DeclarativeBase):
    """All tables of the service."""

    metadata = MetaData(naming_convention=NAMING)
