"""Environment in which Alembic runs the versions; `upgrade` passes it the connection of a transaction."""

from alembic import context

from crowdrank.service.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transaction_per_migration=False,
)
context.run_migrations()
