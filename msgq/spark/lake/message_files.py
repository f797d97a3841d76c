"""Parts: Parquet files of messages, written by Python workers without a way through Java.

A part holds one date and class. Its row groups are sorted by run, endpoint, epoch, schema and log_time, so that their
statistics answer for what is not in them.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem

from msgq.spark.source.arrow_batches import gathered
from msgq.spark.tables.pictures import COMPRESSED, IMAGE, MAGIC
from msgq.units import NS_PER_DAY

_LARGE_BYTES = 64 << 10  # payloads from here on are apart: a row group of small ones has many rows
_GROUP_ROWS = 512 << 10
_GROUP_BYTES = 64 << 20  # of payloads
_TEXTS = ("run", "host", "endpoint", "encoding", "schema", "kind", "publisher", "key", "options")
_GROWING = ("sequence", "publish_time", "log_time", "origin_time")  # that grow by little from row to row
LOCAL = "file://"
_Integers = np.ndarray[Any, np.dtype[np.int64]]

#: What bronze has beside the columns of messages.
DERIVED = {"bytes": pa.int64(), "picture": pa.string()}
#: A row for each run, endpoint, epoch and schema of each row group.
RANGES = pa.schema(
    {
        "part": pa.string(),
        "run": pa.string(),
        "endpoint": pa.string(),
        "epoch": pa.int64(),
        "schema_id": pa.int64(),
        "rows": pa.int64(),
        "first_sequence": pa.int64(),
        "last_sequence": pa.int64(),
        "first_time": pa.int64(),
        "last_time": pa.int64(),
        "repeats": pa.bool_(),
    }
)


def open_path(path: str) -> tuple[FileSystem, str]:
    """Return the file system of a path or URI, and the path there.

    What follows file:// is a path as it is, as it is for Spark: neither knows %20.
    """
    if path.startswith(LOCAL):
        return LocalFileSystem(), path.removeprefix(LOCAL)
    found: tuple[FileSystem, str] = FileSystem.from_uri(path)
    return found


def write_parts(batches: Iterable[pa.RecordBatch], directory: str) -> Iterator[pa.RecordBatch]:
    """Write messages into new parts below a directory; give their ranges, `RANGES`, when all are complete.

    batches : with the columns of messages, schema_id and options. directory : a path or URI, in which
    date=.../class=.../ are made.
    """
    writers = _Writers(directory)
    try:
        for table in gathered(batches, _GROUP_ROWS, _GROUP_BYTES):
            writers.write(table)
    finally:
        writers.close()
    if writers.ranges:
        yield pa.concat_batches(writers.ranges)


class _Writers:
    """An open part for each date and class."""

    def __init__(self, directory: str) -> None:
        self._files, self._directory = open_path(directory)
        self._name = uuid4().hex
        self._open: dict[str, pq.ParquetWriter] = {}
        self.ranges: list[pa.RecordBatch] = []

    def write(self, table: pa.Table) -> None:
        """Write a table as one row group of each part to which it has something to say."""
        for name in _TEXTS:
            index = table.schema.get_field_index(name)
            if not pa.types.is_dictionary(table.schema.types[index]):
                table = table.set_column(index, name, table.column(name).dictionary_encode())
        table = table.unify_dictionaries().combine_chunks()
        sizes = pc.binary_length(table.column("data")).cast(pa.int64())
        picture = _picture(table.column("data"), table.column("schema"))
        table = table.append_column("bytes", sizes).append_column("picture", picture)
        day = np.asarray(table.column("log_time"), np.int64) // NS_PER_DAY
        large = np.asarray(sizes) >= _LARGE_BYTES
        for date in np.unique(day).tolist():
            for kind, chosen in (("small", ~large & (day == date)), ("large", large & (day == date))):
                if chosen.any():
                    rows = table if chosen.all() else table.filter(pa.array(chosen))
                    self._write(rows, f"date={np.datetime64(date, 'D')}/class={kind}")

    def _write(self, table: pa.Table, place: str) -> None:
        order, starts, repeats = _order(table)
        table = table.take(pa.array(order))
        part = f"{place}/{self._name}.parquet"
        if place not in self._open:
            self._files.create_dir(f"{self._directory}/{place}")
            self._open[place] = pq.ParquetWriter(
                f"{self._directory}/{part}",
                table.schema,
                filesystem=self._files,
                compression="zstd",
                compression_level=1,
                use_dictionary=[*_TEXTS, "epoch", "schema_id", "bytes", "picture"],
                column_encoding=dict.fromkeys(_GROWING, "DELTA_BINARY_PACKED"),
                store_schema=False,  # a reader wants texts, not the dictionaries of whoever wrote them
                write_statistics=[name for name in table.column_names if name != "data"],
            )
        self._open[place].write_table(table, row_group_size=max(1, table.num_rows))
        self.ranges.append(_ranges(table, part, starts, repeats))

    def close(self) -> None:
        """Complete the parts."""
        for writer in self._open.values():
            writer.close()


def _picture(data: pa.ChunkedArray, schema: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return for each payload which kind of picture it is, by how it begins, or by its schema."""
    heads = pc.binary_slice(data, 0, max(map(len, MAGIC.values())))
    jpeg = pc.or_kleene(pc.starts_with(heads, MAGIC["jpeg"]), pc.equal(schema.cast(pa.string()), COMPRESSED))
    kind: pa.ChunkedArray = pc.if_else(jpeg, "jpeg", pc.if_else(pc.equal(schema.cast(pa.string()), IMAGE), "raw", None))
    return pc.if_else(pc.starts_with(heads, MAGIC["png"]), "png", kind)


def _codes(column: pa.ChunkedArray) -> tuple[_Integers, int]:
    """Return the rank of each value of a dictionary column among them, NULL last, and how many there are."""
    array = column.chunk(0) if column.num_chunks else pa.array([], column.type).dictionary_encode()
    names = array.dictionary
    ranks = np.empty(len(names) + 1, np.int64)
    ranks[np.asarray(pc.sort_indices(names))] = np.arange(len(names))
    ranks[-1] = len(names)
    return ranks[np.asarray(array.indices.fill_null(len(names)))], len(names) + 1


def _order(table: pa.Table) -> tuple[_Integers, _Integers, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Return the rows in order, where each group begins in that, and whether a group has a message twice."""
    run, _ = _codes(table.column("run"))
    endpoint, endpoints = _codes(table.column("endpoint"))
    epochs, epoch = np.unique(np.asarray(table.column("epoch"), np.int64), return_inverse=True)
    schemas, schema = np.unique(np.asarray(table.column("schema_id").fill_null(0), np.int64), return_inverse=True)
    group = ((run * endpoints + endpoint) * len(epochs) + epoch) * len(schemas) + schema
    times = np.asarray(table.column("log_time"), np.int64)
    sequences = np.asarray(table.column("sequence"), np.int64)
    order = np.argsort(group, kind="stable")
    same = np.diff(group[order]) == 0
    if (same & (np.diff(times[order]) <= 0)).any():  # seldom: each endpoint's messages come in order
        order = np.lexsort((sequences, times, group))
    starts = np.concatenate(([0], np.flatnonzero(~same) + 1))
    twice = same & (np.diff(times[order]) == 0) & (np.diff(sequences[order]) == 0)
    return order, starts, np.logical_or.reduceat(np.concatenate((twice, [False])), starts)


def _ranges(
    table: pa.Table, part: str, starts: _Integers, repeats: np.ndarray[Any, np.dtype[np.bool_]]
) -> pa.RecordBatch:
    sequences = np.asarray(table.column("sequence"), np.int64)
    times = np.asarray(table.column("log_time"), np.int64)
    ends = np.append(starts[1:], len(times))
    first = table.select(["run", "endpoint", "epoch", "schema_id"]).take(pa.array(starts))
    columns = [
        pa.array([part] * len(starts)),
        *(first.column(name).cast(RANGES.field(name).type).combine_chunks() for name in first.column_names),
        ends - starts,
        np.minimum.reduceat(sequences, starts),
        np.maximum.reduceat(sequences, starts),
        times[starts],
        times[ends - 1],
        repeats,
    ]
    arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=RANGES)


def overlapping(new: pa.Table, known: pa.Table) -> tuple[set[str], set[str]]:
    """Return the new parts that may have a message which is in another part, and the known parts that may have it.

    Both tables: `RANGES`. Parts whose times meet are told apart by their sequences, so that segments that follow each
    other do not count. More may be returned than share messages, never less.
    """
    if len(new):  # mostly it is the newest there is, and nothing that is known meets it
        reach = (pc.field("last_time") >= pc.min(new.column("first_time"))) & (
            pc.field("first_time") <= pc.max(new.column("last_time"))
        )
        known = known.filter(reach)
    new_parts: set[str] = {part for part, twice in zip(*_columns(new, "part", "repeats"), strict=True) if twice}
    known_parts: set[str] = set()
    for cluster in _clusters(new, known):
        fresh = [one for one in cluster if one.is_new]
        met = zip(fresh, _met(fresh, cluster), strict=True)
        new_parts |= {one.part for one, count in met if count > 1}  # itself is one
        old = [one for one in cluster if not one.is_new]
        known_parts |= {one.part for one, count in zip(old, _met(old, fresh), strict=True) if count}
    return new_parts, known_parts


class _Range(NamedTuple):
    part: str
    is_new: bool
    first: int
    last: int
    begin: int
    end: int


def _clusters(new: pa.Table, known: pa.Table) -> Iterator[list[_Range]]:
    """Give those ranges of one run, endpoint and epoch, two or more, whose times meet in a chain."""
    every = pa.concat_tables(
        [
            new.append_column("new", pa.array(np.ones(len(new), bool))),
            known.append_column("new", pa.array(np.zeros(len(known), bool))),
        ]
    )
    keys = ("run", "endpoint", "epoch")
    every = every.sort_by([(name, "ascending") for name in (*keys, "first_time")])
    names = ("part", "new", "first_sequence", "last_sequence", "first_time", "last_time")
    cluster: list[_Range] = []
    before, until = None, 0
    for *key, part, is_new, first, last, begin, end in zip(*_columns(every, *keys, *names), strict=True):
        if key != before or begin > until:
            if len(cluster) > 1:
                yield cluster
            before, until, cluster = key, end, []
        until = max(until, end)
        cluster.append(_Range(part, is_new, first, last, begin, end))
    if len(cluster) > 1:
        yield cluster


def _met(ranges: list[_Range], others: list[_Range]) -> list[int]:
    """Return how many of the others each range meets, in time and in sequences.

    Those that begin before its end, but for those that end before its begin: so in each of the two, hence four counts.
    """
    until, upto = [one.end for one in ranges], [one.last for one in ranges]
    before, below = [one.begin - 1 for one in ranges], [one.first - 1 for one in ranges]
    begun = _counts([(one.begin, one.first) for one in others], until, upto)
    begun_below = _counts([(one.begin, one.last) for one in others], until, below)
    ended = _counts([(one.end, one.first) for one in others], before, upto)
    ended_below = _counts([(one.end, one.last) for one in others], before, below)
    return [a - b - c + d for a, b, c, d in zip(begun, begun_below, ended, ended_below, strict=True)]


def _counts(points: list[tuple[int, int]], x: list[int], y: list[int]) -> list[int]:
    """Return for each x and y how many points have no larger ones. Takes n log n, as good as."""
    found = [0] * len(x)
    seen: list[int] = []
    points = sorted(points, reverse=True)
    for index in sorted(range(len(x)), key=x.__getitem__):
        while points and points[-1][0] <= x[index]:
            insort(seen, points.pop()[1])
        found[index] = bisect_right(seen, y[index])
    return found


def _columns(table: pa.Table, *names: str) -> Iterator[list[Any]]:
    return (table.column(name).to_pylist() for name in names)
