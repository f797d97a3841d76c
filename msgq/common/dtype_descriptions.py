"""Checks of NumPy dtypes, and their description as JSON. NumPy is imported at the first use."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from msgq.errors import RecordTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

NESTING_MAX = 50  # levels of nested fields: readers of values are recursive
DESCRIPTION_BYTES_MAX = 46608  # limit of a schema's data
#: Errors of NumPy and `json` for invalid values. Other errors are those of signal handlers.
_CONVERSION_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    Warning,
)
_CTYPES_POINTER_CODES = frozenset("PzZXO")  # void pointers, texts, functions and Python objects


def numpy_dtype(asked: npt.DTypeLike, endpoint: str = "") -> np.dtype[Any]:
    """Return the dtype that NumPy creates from a value.

    Raises:
        RecordTypeError: NumPy refuses the value.
    """
    import numpy as np

    if _has_ctypes_pointer(asked):
        text = (
            f"{getattr(asked, '__name__', asked)} has pointers, which are invalid in other processes; use their values"
        )
        raise RecordTypeError(text, endpoint)
    try:
        return np.dtype(asked)
    except _CONVERSION_ERRORS as error:
        raise RecordTypeError(
            f"dtype {asked!r} is not a NumPy dtype: {error or type(error).__name__}", endpoint
        ) from error


def record_dtype(asked: npt.DTypeLike, endpoint: str = "") -> np.dtype[Any]:
    """Return the dtype of records. A record dtype has a fixed size, and a schema can describe the dtype.

    Args:
        asked: any value that NumPy converts to a dtype. Metadata and the alignment flag are ignored, padding is kept.
        endpoint: name of the endpoint, for error texts.

    Raises:
        RecordTypeError: the value is not a dtype; or the dtype has Python objects, has no bytes, or is an array (use a
            field); or its fields overlap or are not in the order of their offsets.
    """
    try:
        return _check_record_dtype(numpy_dtype(asked, endpoint))()
    except ValueError as error:
        raise RecordTypeError(str(error), endpoint) from error.__cause__


# NumPy needs 8 us to list eight fields, and a program opens many vectors with few dtypes.
@lru_cache(maxsize=64)
def _check_record_dtype(dtype: np.dtype[Any]) -> Callable[[], np.dtype[Any]]:
    """Return a function that makes the dtype that a schema describes.

    Raises:
        ValueError: as `RecordTypeError` of `record_dtype`.
    """
    if dtype.hasobject or not dtype.itemsize:
        reason = "holds Python objects" if dtype.hasobject else "has no bytes"
        raise ValueError(f"dtype {dtype} {reason}; give a dtype of fixed size, such as 'f8' or 'S16'")
    if dtype.subdtype is not None:
        raise ValueError(
            f"dtype {dtype} is an array; use a field for it: [('value', {str(dtype.base)!r}, {dtype.shape})]"
        )
    try:
        parsed = parse_dtype_description(describe_dtype(dtype))
    except ValueError as error:
        text = f"dtype {dtype} does not fit into a schema: {error}; give the fields in the order of their offsets"
        raise ValueError(text) from error
    if parsed != dtype:
        raise ValueError(f"a schema describes dtype {dtype} as {parsed}; give dtype {parsed}")
    return _copies_of(parsed)


def _has_ctypes_pointer(asked: object) -> bool:
    """Return True for a type of ctypes that is a pointer, or contains one. NumPy accepts some of them as integers."""
    if not isinstance(asked, type):
        return False
    import ctypes  # late: NumPy needs it, but few programs without NumPy
    from _ctypes import CFuncPtr

    if issubclass(asked, ctypes.Array):
        return _has_ctypes_pointer(asked._type_)
    if issubclass(asked, (ctypes.Structure, ctypes.Union)):
        return any(_has_ctypes_pointer(kind) for _, kind, *_ in getattr(asked, "_fields_", ()))
    if issubclass(asked, ctypes._SimpleCData):
        return getattr(asked, "_type_", "") in _CTYPES_POINTER_CODES
    return issubclass(asked, (ctypes._Pointer, CFuncPtr))


def describe_dtype(dtype: np.dtype[Any]) -> bytes:
    """Return the description of a dtype as JSON.

    Raises:
        ValueError: no description exists: fields overlap or are not in the order of their offsets, a title is not text,
            or the description is too long.
    """
    try:
        data = json.dumps(dtype.str if dtype.names is None else dtype.descr).encode()
    except TypeError as error:  # a title may be any object
        raise ValueError(str(error)) from None
    if len(data) > DESCRIPTION_BYTES_MAX:
        raise ValueError(f"the description has {len(data)} bytes; at most {DESCRIPTION_BYTES_MAX} are allowed")
    return data


def _copies_of(dtype: np.dtype[Any]) -> Callable[[], np.dtype[Any]]:
    """Return a function that copies a cached dtype, because programs rename fields in place.

    `np.dtype(dtype, copy=True)` copies no fields, `newbyteorder` omits titles, and `deepcopy` takes 40 us.
    """
    return partial(deepcopy, dtype) if _has_titles(dtype.base) else partial(dtype.newbyteorder, "|")


def _has_titles(dtype: np.dtype[Any]) -> bool:
    """Return True if a field, also one of a nested dtype, has a title, which is a second key of `fields`."""
    if dtype.names is None or dtype.fields is None:
        return False
    return len(dtype.fields) > len(dtype.names) or any(_has_titles(kind.base) for kind, *_ in dtype.fields.values())


def parse_dtype_description(data: bytes, name: str = "Record") -> np.dtype[Any]:
    """Return the dtype of a description. `name`: name of the schema, for errors.

    Raises:
        ValueError: the data is not a dtype, or is a dtype with Python objects or without bytes.
    """
    return _parse_description(data, name)()


@lru_cache(maxsize=64)
def _parse_description(data: bytes, name: str) -> Callable[[], np.dtype[Any]]:
    import numpy as np

    try:
        descr = json.loads(data)
        fields: Any = descr if isinstance(descr, str) else _convert_fields(descr, NESTING_MAX)
        dtype = np.lib.format.descr_to_dtype(fields)
    except _CONVERSION_ERRORS as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"schema {name!r} does not describe a NumPy dtype: {reason}") from None
    if dtype.hasobject or not dtype.itemsize:
        raise ValueError(f"schema {name!r} describes dtype {dtype}, which has no fixed bytes")
    return _copies_of(dtype)


def _convert_fields(descr: list[Any], levels: int) -> list[tuple[Any, ...]]:
    """Convert the lists of JSON back to the tuples that NumPy requires."""
    if not levels:
        raise ValueError(f"nesting is deeper than {NESTING_MAX} levels")
    return [_convert_field(field, levels) for field in descr]


def _convert_field(field: list[Any], levels: int) -> tuple[Any, ...]:
    name, kind, *shape = field
    name = tuple(name) if isinstance(name, list) else name
    kind = kind if isinstance(kind, str) else _convert_fields(kind, levels - 1)
    return (name, kind, *(tuple(part) if isinstance(part, list) else part for part in shape))
