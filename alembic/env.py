"""How alembic runs: on the connection and in the transaction that the service gives it."""

from alembic import context

from graphcache_service.db.models import Base

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("migrations run at the start of graphcache serve, or through graphcache_service.db.migrate")
context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=False, compare_type=True)
with context.begin_transaction():
    context.run_migrations()
