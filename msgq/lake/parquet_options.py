"""Parquet options of the files that the tables of a lake get, except for messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_ZSTD_LEVEL = 9  # high, because programs read these small files more often than they write them


def choose_parquet_options(columns: pa.Schema) -> dict[str, Any]:
    """Return Parquet options for small files: differences of times, and dictionaries for repeated values."""
    times = [field.name for field in columns if field.name.endswith("time")]
    lists = [leaf for field in columns if pa.types.is_list(field.type) for leaf in _list_leaf_columns(field)]
    dictionary_columns = [
        field.name for field in columns if field.name not in times and not pa.types.is_nested(field.type)
    ]
    return {
        "compression": "zstd",
        "compression_level": _ZSTD_LEVEL,
        "use_dictionary": dictionary_columns + lists,
        "column_encoding": dict.fromkeys(times, "DELTA_BINARY_PACKED"),
        "store_schema": False,
    }


def _list_leaf_columns(column: pa.Field) -> list[str]:
    item_type = column.type.value_type
    names = [f".{field.name}" for field in item_type] if pa.types.is_struct(item_type) else [""]
    return [f"{column.name}.list.element{name}" for name in names]
