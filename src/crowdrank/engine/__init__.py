"""Where sums run: passes over shards, here in threads. Knows no model."""
