"""HTTP API of the judging service."""
