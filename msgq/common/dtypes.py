"""Conversion between NumPy dtypes and schemas of the encoding "struct". NumPy is imported at the first use."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgq.common.dtype_descriptions import describe_dtype, parse_dtype_description
from msgq.common.schema import Schema

if TYPE_CHECKING:
    import numpy as np


@lru_cache(maxsize=64)
def struct_schema(dtype: np.dtype[Any], name: str = "Record") -> Schema:
    """Return a schema for a dtype. `Schema.of` also checks the dtype.

    Raises:
        ValueError: as `describe_dtype`.
    """
    return Schema(name, "struct", describe_dtype(dtype))


def struct_dtype(schema: Schema) -> np.dtype[Any]:
    """Return the dtype of messages with the encoding "struct".

    Raises:
        ValueError: the schema's data is not a dtype, or is a dtype with Python objects or without bytes.
    """
    return parse_dtype_description(schema.data, schema.name)
