"""The database of the judging service: tables, connections, backup and migrations."""
