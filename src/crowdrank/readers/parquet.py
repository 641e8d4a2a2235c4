"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from crowdrank.errors import InputError
from crowdrank.judgments import frames
from crowdrank.readers.files import MAX_BYTES, FileHead, FileSource, arrow_file, too_large_error
from crowdrank.readers.sources import BadRows

if TYPE_CHECKING:
    import pyarrow.parquet as pq

DICTIONARY_BYTES_PER_ROW = 0.1
"""Maximum size of a Parquet dictionary, in bytes per row, for which a column is read as dictionary codes."""
READ_BUFFER_BYTES = 1 << 16
"""Number of bytes of each column that are read at a time if the file is read in batches."""
MIN_BYTES_PER_CELL = 4
"""Minimum memory for a cell: the size of a code."""


class ParquetSource(FileSource):
    """A Parquet file; columns with few distinct values are read as dictionary codes."""

    has_user_columns = True

    def __init__(self, file: str | Path | FileHead, max_bytes: int = MAX_BYTES) -> None:
        import pyarrow.parquet as pq

        super().__init__(file)
        self.max_bytes = max_bytes
        with self._open_seekable() as stream:
            self.names = pq.read_schema(stream).names

    @contextmanager
    def _open_seekable(self) -> Iterator[pa.NativeFile]:
        """Open the file for random access."""
        with arrow_file(self.head, text=False) as rewind:
            file = rewind()
            # Parquet seeks, which gzip does by unpacking from the start each time.
            yield file if file.seekable() else pa.BufferReader(file.read_buffer())

    @staticmethod
    def _dictionary_columns(metadata: pq.FileMetaData, names: Sequence[str]) -> list[str]:
        """Return the names of the text columns that have few distinct values, to read them as dictionary codes.

        A column with many values has a large dictionary in every row group; merging these takes longer than encoding
        the text.
        """
        coded: dict[str, bool] = {}
        for chunk in _column_chunks(metadata, names):
            start, max_size = chunk.dictionary_page_offset, DICTIONARY_BYTES_PER_ROW * chunk.num_values
            is_small = start is not None and chunk.data_page_offset - start <= max_size
            is_coded = chunk.physical_type == "BYTE_ARRAY" and is_small
            coded[chunk.path_in_schema] = coded.get(chunk.path_in_schema, True) and is_coded
        return [name for name, is_coded in coded.items() if is_coded]

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names`."""
        import pyarrow.parquet as pq

        with self._open_seekable() as file:
            parquet_file = pq.ParquetFile(file, pre_buffer=True)
            self._require_size(parquet_file, names)
            coded = self._dictionary_columns(parquet_file.metadata, names)
            # pq.read_table would take twice the time and more memory.
            reader = pq.ParquetFile(file, metadata=parquet_file.metadata, read_dictionary=coded, pre_buffer=True)
            table = reader.read(list(names))
            if len(table) != parquet_file.metadata.num_rows:
                raise damaged_rows_error(self.name)
        return self._to_plain_values(table, names)

    def _require_size(self, parquet_file: pq.ParquetFile, names: Sequence[str]) -> None:
        """Raise InputError if the file is damaged, or larger than the limit."""
        require_parquet_rows(parquet_file.metadata, names, self.max_bytes, self.name)
        # Reading the metadata of a damaged column aborts the process; reading a row raises an error first.
        next(parquet_file.iter_batches(batch_size=1, columns=list(names)), None)
        require_parquet_size(parquet_file.metadata, names, self.max_bytes, self.name)

    def _to_plain_values(self, table: pa.Table, names: Sequence[str]) -> pa.Table:
        return pa.table({name: frames.to_plain_values(table[name], self.name, name) for name in names})

    def read_batches(self, names: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        """Yield the columns `names` in tables of at most `n_rows` rows."""
        return self._count_rows(self._plain_batches(list(names), n_rows))

    def _plain_batches(self, names: list[str], n_rows: int) -> Iterator[pa.Table]:
        import pyarrow.parquet as pq

        with self._open_seekable() as file:
            # With a buffer, columns of a row group are not read as a whole.
            parquet_file = pq.ParquetFile(file, pre_buffer=False, buffer_size=READ_BUFFER_BYTES)
            self._require_size(parquet_file, names)
            n_read = 0
            for batch in parquet_file.iter_batches(batch_size=n_rows, columns=names, use_threads=False):
                n_read += len(batch)
                yield self._to_plain_values(pa.Table.from_batches([batch]), names)
            if n_read != parquet_file.metadata.num_rows:
                raise damaged_rows_error(self.name)


def require_parquet_rows(metadata: pq.FileMetaData, names: Sequence[str], max_bytes: int, source_name: str) -> None:
    """Raise InputError if the row counts of a Parquet file contradict each other or exceed the limit."""
    rows_per_group = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if sum(rows_per_group) != metadata.num_rows or min(rows_per_group, default=0) < 0:
        raise damaged_rows_error(source_name)
    if metadata.num_rows * len(names) * MIN_BYTES_PER_CELL > max_bytes:
        raise too_large_error(source_name, "it", max_bytes)


def require_parquet_size(metadata: pq.FileMetaData, names: Sequence[str], max_bytes: int, source_name: str) -> None:
    """Raise InputError if the columns `names` of a Parquet file take more than `max_bytes` decompressed."""
    if sum(chunk.total_uncompressed_size for chunk in _column_chunks(metadata, names)) > max_bytes:
        raise too_large_error(source_name, "decompressed, it", max_bytes)


def _column_chunks(metadata: pq.FileMetaData, names: Sequence[str]) -> Iterator[pq.ColumnChunkMetaData]:
    """Yield the metadata of the columns `names` in each row group."""
    columns = [column for column in range(metadata.num_columns) if metadata.schema.column(column).path in set(names)]
    for group in range(metadata.num_row_groups):
        for column in columns:
            yield metadata.row_group(group).column(column)


def damaged_rows_error(source_name: str) -> InputError:
    """Return the error for a Parquet file whose rows contradict its footer."""
    problem = "it does not hold the rows that its footer states"
    return InputError(problem, source=source_name, kind="damaged", fix="it is damaged: download or write it again")
