"""Alignment of endpoints: the latest row of one endpoint at each row of another one, and series at a fixed rate.

Spark's own ASOF JOIN compares all pairs of rows with equal keys. The two strategies here sort instead:

"arrow": one Python worker gets both sides of a key, and searches the sorted times. Faster, if a key and its result fit
in the memory of a worker.

"window": both sides form one sorted series, and the last right row is carried forward. Spark sorts, and uses the disk
if necessary. With a tolerance, a long key is split into spans of time for several tasks. Right rows near the end of a
span are copied to the next span, so that the result does not change.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from msgq.common.choices import list_names
from msgq.errors import InvalidValueError

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

JOIN_STRATEGIES = ("auto", "arrow", "window")
_ARROW_BYTES_MAX = 256 << 20  # bytes of a key for "auto": both sides and their result
_VARIABLE_SIZE_TYPES = (StringType, BinaryType, StructType, ArrayType, MapType)
_VALUE_WORD_BYTES = 8  # bytes of a value, or of its length
_SPAN_NS_MIN = 60_000_000_000  # minimum time of a key for one task
_TOLERANCE_NS_MAX = 1 << 62  # older than all there is; times and this add up to less than 63 bits
_SPAN_TOLERANCE_NS_MAX = 1 << 58
_SPAN_COLUMN = "_span"
_RESAMPLE_TICKS_MAX = 10_000_000  # maximum ticks of one row: 28 hours at 100 Hz


def asof_join(
    left: DataFrame,
    right: DataFrame,
    on: str = "publish_time",
    by: str | Iterable[str] = (),
    tolerance: int | None = None,
    suffix: str = "_right",
    strategy: str = "auto",
) -> DataFrame:
    """Return each left row with the last right row at or before its time.

    The result has the left columns, then the right columns without `by`. Right columns are NULL without a right row. Of
    several right rows with the same time, any one is used.

    Args:
        left: table with `on`, a time in ns (long, not NULL), and the columns of `by`.
        right: table with the same columns.
        by: column or columns that must be equal; NULL equals nothing.
        tolerance: maximum age of a right row in ns; None: any age.
        suffix: suffix of right columns whose names are also left columns, always of `on`.
        strategy: "arrow", "window", or "auto", which runs a job to count the bytes of each key, and then chooses.
    """
    if strategy not in JOIN_STRATEGIES:
        raise InvalidValueError(f"strategy {strategy!r} is unknown; use one of {', '.join(JOIN_STRATEGIES)}")
    if tolerance is not None and tolerance < 0:
        raise InvalidValueError(f"tolerance of {tolerance} ns is negative; use 0 or more, or None")
    tolerance = None if tolerance is None or tolerance > _TOLERANCE_NS_MAX else tolerance
    by = list_names(by, "by", may_be_empty=True)
    values = [name for name in right.columns if name not in by]
    names = {name: name + suffix if name in left.columns else name for name in values}
    renamed = right.select(*by, *(F.col(name).alias(names[name]) for name in values))
    if strategy == "auto":
        strategy = "arrow" if by and _is_key_fit_for_worker(left, right, by) else "window"
    if strategy == "arrow":
        return _join_by_arrow(left, renamed, on, names[on], by, tolerance)
    return _join_by_window(left, renamed, on, names[on], by, tolerance)


def _is_key_fit_for_worker(left: DataFrame, right: DataFrame, by: Sequence[str]) -> bool:
    """Return True if each key is small: both sides, and a right row of average size for each left row."""
    sides = []
    for side, table in enumerate((left, right)):
        size = reduce(
            operator.add, (_make_size_column(F.col(f"`{field.name}`"), field.dataType) for field in table.schema)
        )
        sides.append(table.select(*by, F.lit(side).alias("_side"), size.alias("_size_column")))
    is_right = F.col("_side") == 1
    lefts, rights = F.count_if(~is_right), F.greatest(F.count_if(is_right), F.lit(1))
    right_bytes = F.coalesce(F.sum(F.when(is_right, F.col("_size_column"))), F.lit(0))
    used = F.sum("_size_column") + lefts * right_bytes / rights
    largest = sides[0].unionByName(sides[1]).groupBy(*by).agg(used.alias("used")).agg(F.max("used")).first()
    return largest is None or (largest[0] or 0) <= _ARROW_BYTES_MAX


def _make_size_column(value: Column, kind: DataType) -> Column:
    """Return the estimated bytes of each value in a worker."""
    if isinstance(kind, StringType | BinaryType):
        return F.coalesce(F.octet_length(value), F.lit(0)) + _VALUE_WORD_BYTES
    if isinstance(kind, StructType):
        return reduce(operator.add, (_make_size_column(value[field.name], field.dataType) for field in kind), F.lit(0))
    if isinstance(kind, MapType):
        sides = (F.map_keys(value), kind.keyType), (F.map_values(value), kind.valueType)
        return reduce(operator.add, (_make_size_column(side, ArrayType(inside)) for side, inside in sides))
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, _VARIABLE_SIZE_TYPES):
        each = F.aggregate(
            value, F.lit(0).cast("long"), lambda sum, field: sum + _make_size_column(field, kind.elementType)
        )
        return F.coalesce(each, F.lit(0)) + _VALUE_WORD_BYTES
    if isinstance(kind, ArrayType):
        return (F.coalesce(F.array_size(value), F.lit(0)) + 1).cast("long") * _VALUE_WORD_BYTES
    return F.lit(_VALUE_WORD_BYTES)


def _join_by_window(
    left: DataFrame, right: DataFrame, on: str, right_on: str, by: Sequence[str], tolerance: int | None
) -> DataFrame:
    """Carry the last right row forward through the union of both sides."""
    kept = [name for name in left.columns if name not in by]
    right_columns = [name for name in right.columns if name not in by]
    left_rows = left.select(
        *by,
        F.struct(*kept).alias("_left"),
        F.lit(None).alias("_right"),
        F.col(on).alias("_time"),
        F.lit(1).alias("_side"),
    )
    right_rows = right.select(
        *by,
        F.lit(None).alias("_left"),
        F.struct(*right_columns).alias("_right"),
        F.col(right_on).alias("_time"),
        F.lit(0).alias("_side"),
    )
    both = left_rows.unionByName(right_rows)
    keys = list(by)
    if tolerance is not None and tolerance < _SPAN_TOLERANCE_NS_MAX:
        both = both.withColumn(_SPAN_COLUMN, _make_span_column(tolerance))
        keys.append(_SPAN_COLUMN)
    past = Window.partitionBy(*keys).orderBy("_time", "_side").rowsBetween(Window.unboundedPreceding, 0)
    joined = both.withColumn("_right", F.last("_right", ignorenulls=True).over(past)).where(F.col("_side") == 1)
    good = F.lit(True)
    for name in by:  # NULL is a group of its own for a window; it equals nothing here
        good = good & F.col(name).isNotNull()
    if tolerance is not None:
        good = good & (F.col("_time") - F.col(f"_right.{right_on}") <= tolerance)
    chosen = F.when(good, F.col("_right"))
    columns = [F.col(name) if name in by else F.col(f"_left.{name}").alias(name) for name in left.columns]
    return joined.select(*columns, *(chosen[name].alias(name) for name in right_columns))


def _make_span_column(tolerance: int) -> Column:
    """Return the span of each left row. A right row has a copy for each span in which it may match."""
    length = max(_SPAN_NS_MIN, 10 * tolerance)
    first = F.floor(F.col("_time") / length)
    return F.explode(
        F.when(F.col("_side") == 1, F.array(first)).otherwise(
            F.array_distinct(F.array(first, F.floor((F.col("_time") + tolerance) / length)))
        )
    )


def _join_by_arrow(
    left: DataFrame, right: DataFrame, on: str, right_on: str, by: Sequence[str], tolerance: int | None
) -> DataFrame:
    """Search the sorted times of the right side for those of the left side, key by key."""
    from pyspark.sql.types import StructType

    right_columns = [name for name in right.columns if name not in by]
    schema = StructType([*left.schema.fields, *(right.schema[name] for name in right_columns)])
    for field in schema.fields:
        field.nullable = True

    def join_groups(left_rows: pyarrow.Table, right_rows: pyarrow.Table) -> pyarrow.Table:
        return _join_sorted_tables(left_rows, right_rows, on, right_on, right_columns, tolerance)

    columns = [F.col(name) for name in by]
    with_key = right.where(" AND ".join(f"`{name}` IS NOT NULL" for name in by)) if by else right
    return left.groupBy(*columns).cogroup(with_key.groupBy(*columns)).applyInArrow(join_groups, schema)


def _join_sorted_tables(
    left: pyarrow.Table,
    right: pyarrow.Table,
    on: str,
    right_on: str,
    right_columns: Sequence[str],
    tolerance: int | None,
) -> pyarrow.Table:
    import numpy as np
    import pyarrow as pa

    times = np.asarray(right.column(right_on), np.int64)
    order = np.argsort(times, kind="stable")
    times = times[order]
    left_times = np.asarray(left.column(on), np.int64)
    index = np.searchsorted(times, left_times, side="right") - 1
    missing = index < 0
    if tolerance is not None and len(times):
        missing |= left_times - times[np.maximum(index, 0)] > tolerance
    rows: Any = order[np.maximum(index, 0)] if len(times) else np.zeros(len(left_times), np.int64)
    matches = right.select(list(right_columns)).take(pa.array(rows, mask=missing))
    return pa.Table.from_arrays(left.columns + matches.columns, left.column_names + matches.column_names)


def forward_fill(
    series: DataFrame, columns: str | Iterable[str], on: str = "publish_time", by: str | Iterable[str] = ()
) -> DataFrame:
    """Return the rows with NULL in `columns` replaced by the previous value.

    Input: `on`, ns; `by`: each combination of these columns, or of this one, is a separate series; `columns`: one or
    several. Output: the same columns. NULL at the beginning of a series stays NULL.
    """
    by, columns = list_names(by, "by", may_be_empty=True), list_names(columns, "columns")
    past = Window.partitionBy(*by).orderBy(on).rowsBetween(Window.unboundedPreceding, 0)
    return series.withColumns({name: F.last(name, ignorenulls=True).over(past) for name in columns})


def resample(
    series: DataFrame,
    period: int,
    on: str = "publish_time",
    by: str | Iterable[str] = (),
    tolerance: int | None = None,
) -> DataFrame:
    """Return each series at a fixed rate: for each tick, the last row at or before the tick.

    The result has the same columns, in which `on` is the tick, then `age`: ns from the row's own time to the tick. If a
    row would fill more than 10,000,000 ticks, for example before a jump of the clock, reading the table raises an
    error. A tolerance prevents the error.

    Args:
        series: table with `on` in ns, the columns of `by`, and any other columns.
        period: ns between two ticks. Ticks are multiples of the period since the epoch, so all series have the same
            ticks. The ticks of a series range from the first tick at or after the first row of a series to the first
            tick at or after its last row.
        tolerance: maximum age of a row in ns. A tick without such a row is omitted. None: any age.
    """
    if period < 1:
        raise InvalidValueError(f"period of {period} ns is too short; use 1 ns or more")
    by = list_names(by, "by", may_be_empty=True)
    tick = F.expr(f"(`{on}` - pmod(`{on}`, {period})) div {period} + if(pmod(`{on}`, {period}) = 0, 0, 1)")
    other_columns = [name for name in series.columns if name not in (*by, on)]
    newest = series.groupBy(*by, tick.alias("_tick")).agg(F.max_by(F.struct(on, *other_columns), on).alias("_row"))
    following = F.lead("_tick").over(Window.partitionBy(*by).orderBy("_tick"))
    last = F.coalesce(following - 1, F.col("_tick"))
    if tolerance is not None and tolerance <= _TOLERANCE_NS_MAX:
        last = F.least(last, F.expr(f"(_row.`{on}` + {tolerance}) div {period}"))
    ticks = newest.withColumn("_last", last).where(F.col("_last") >= F.col("_tick"))
    text = F.format_string(
        f"row at {on} %s ns would fill %s ticks of {period} ns until the next row; the maximum is {_RESAMPLE_TICKS_MAX}"
        " ticks. A clock may have jumped: use a tolerance or a longer period",
        F.col(f"_row.{on}"),
        F.col("_last") - F.col("_tick"),
    )
    few = F.col("_last") - F.col("_tick") < _RESAMPLE_TICKS_MAX
    each = ticks.withColumn("_at", F.explode(F.when(few, F.sequence("_tick", "_last")).otherwise(F.raise_error(text))))
    filled = each.withColumn("_at", F.col("_at") * period)
    source = {on: "_at"} | {name: name for name in by}
    columns = [F.col(source.get(name, f"_row.{name}")).alias(name) for name in series.columns]
    return filled.select(*columns, (F.col("_at") - F.col(f"_row.{on}")).alias("age"))
