"""Tables of Arrow as frames of pandas."""

from __future__ import annotations

import pandas
import pyarrow as pa
import pyarrow.types as kinds


def build_pandas_frame(rows: pa.Table) -> pandas.DataFrame:
    """Return rows with a column for each field of structs, with a dot between the names.

    Whole numbers stay what they are where some are missing, as pandas' Int64: as floating point they would lose digits.
    """
    while any(kinds.is_struct(field.type) for field in rows.schema):
        rows = rows.flatten()
    frame: pandas.DataFrame = rows.to_pandas()
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if kinds.is_integer(field.type) and column.null_count:
            sign = "U" if kinds.is_unsigned_integer(field.type) else ""
            dtype = pandas.api.types.pandas_dtype(f"{sign}Int{field.type.bit_width}")
            frame[field.name] = column.to_pandas(types_mapper={field.type: dtype}.get)
    return frame
