"""The database: models, engine, migrations, and all SQL."""
