"""Judgments larger than memory: partitioned Parquet files, distributed to shards on disk."""
