"""Engines that run passes of a model over shards: in local threads, streaming from disk, or on a Dask cluster."""
