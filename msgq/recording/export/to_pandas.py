"""Arrow tables as pandas frames."""

from __future__ import annotations

import pandas
import pyarrow as pa
import pyarrow.types as kinds

_TIME_COLUMNS = ("log_time", "publish_time", "origin_time")


def build_pandas_frame(rows: pa.Table, datetimes: bool) -> pandas.DataFrame:
    """Return a pandas frame with a column for each field of a struct. A dot separates the names.

    Integer columns with missing values become pandas' Int64, because floating point would lose digits. `datetimes`:
    convert the times of the messages to datetime64[ns].
    """
    while any(kinds.is_struct(field.type) for field in rows.schema):
        rows = rows.flatten()
    frame: pandas.DataFrame = rows.to_pandas()
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if kinds.is_integer(field.type) and column.null_count:
            sign = "U" if kinds.is_unsigned_integer(field.type) else ""
            dtype = pandas.api.types.pandas_dtype(f"{sign}Int{field.type.bit_width}")
            frame[field.name] = column.to_pandas(types_mapper={field.type: dtype}.get)
    for name in _TIME_COLUMNS if datetimes else ():
        frame[name] = pandas.to_datetime(frame[name].where(frame[name] != 0))  # 0: unknown
    return frame
