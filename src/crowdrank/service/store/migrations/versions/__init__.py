"""Versions of the schema, oldest first."""
