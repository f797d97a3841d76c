"""Checks and conversions of indexes and values of vectors, for all backends. NumPy is imported at the first use."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgq.common.texts import format_count_noun
from msgq.errors import InvalidValueError, RecordIndexError, RecordTypeError
from msgq.impl.records.integer_fields import make_integer_check

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

STAMP_FIELDS = ("publish_time", "origin_time")


# ---- selection of elements ----


def check_element_index(index: Any, length: int, name: str) -> int:
    """Return a checked index of one element.

    Raises:
        RecordIndexError: the index is out of range, negative, or not an integer.
    """
    try:
        number = -1 if isinstance(index, bool) else operator.index(index)
    except TypeError:
        number = -1
    if not 0 <= number < length:
        raise element_index_error(index, length, name)
    return number


def resolve_element_indices(selection: Any, length: int, name: str) -> npt.NDArray[np.int64]:
    """Return the selected indexes, shape (k,), contiguous. The array is private, so that checked indexes cannot change.

    Args:
        selection: None for all; a slice, whose ends may be negative; integers or a mask of `length` bools, as a
            one-dimensional list or array.

    Raises:
        RecordIndexError: the selection has another type, or an index is out of range or negative.
    """
    import numpy as np

    if selection is None:
        return np.arange(length, dtype=np.int64)
    if isinstance(selection, slice):
        try:
            return np.arange(*selection.indices(length), dtype=np.int64)
        except (TypeError, ValueError) as error:
            raise RecordIndexError(f"{selection}: {error}", name) from None
    array = _copy_index_array(selection, name)
    if array.dtype == bool:
        if len(array) != length:
            raise RecordIndexError(
                f"mask has {format_count_noun(len(array), 'element')}, but the vector has {length}", name
            )
        return np.flatnonzero(array).astype(np.int64, copy=False)
    wrong = array[(array < 0) | (array >= length)]
    if len(wrong):
        raise element_index_error(int(wrong[0]), length, name)
    return array.astype(np.int64, copy=False)


def _copy_index_array(selection: Any, name: str) -> npt.NDArray[Any]:
    """Return a one-dimensional copy of indexes or of a mask."""
    import numpy as np

    try:
        array = np.array(None if isinstance(selection, tuple) else selection)
    except Exception as error:  # lists of several lengths; and whatever an object's __array__ raises
        raise RecordIndexError(f"{type(selection).__name__} is not a selection: {error}", name) from None
    if isinstance(selection, list) and not array.size and array.ndim == 1:
        array = array.astype(np.int64)  # NumPy takes [] for floats
    if array.ndim == 0 and array.dtype.kind in "iu":
        raise RecordIndexError(f"{selection!r} is a single index, but this call needs several; give [{array}]", name)
    if array.ndim != 1 or array.dtype.kind not in "biu":
        shown = repr(selection) if isinstance(selection, (tuple, str)) else f"of dtype {array.dtype}, {array.shape}"
        text = f"selection is {shown}; give whole numbers or a mask, as a list or an array of one dimension"
        raise RecordIndexError(text, name)
    return array


# ---- values ----


def convert_element_values(source: Any, dtype: np.dtype[Any], count: int, name: str) -> npt.NDArray[Any]:
    """Return values for `count` elements, shape (count,), contiguous. Suitable arrays are returned without a copy.

    Args:
        source: an array, or values that NumPy converts to an array; repeated by NumPy's broadcasting. An array must be
            castable within its kind (``same_kind``) and have the same fields. A mapping needs a value for each field.
            Other values are converted as in NumPy's assignments, but integer fields refuse floats and texts.

    Raises:
        RecordTypeError: the values have another kind or other fields. The text shows both dtypes or the fields.
        InvalidValueError: the number of values differs, or a value cannot be converted.
    """
    import numpy as np

    array = _convert_to_array(source, dtype, name)
    if array.shape != (count,) and (array.ndim or count != 1):  # `ascontiguousarray` makes shape (1,) of one value
        try:
            array = np.broadcast_to(array, (count,))
        except ValueError:
            needed = "1 value" if count == 1 else f"1 value or {count} values"
            hint = "" if dtype.names is None else " (a record is a tuple, not a list)"
            raise InvalidValueError(
                f"values have shape {array.shape}, but the call needs {needed}{hint}", name
            ) from None
    return np.ascontiguousarray(array, dtype)


def convert_records(source: Any, dtype: np.dtype[Any], name: str) -> npt.NDArray[Any]:
    """Return one record or several, shape (n,), contiguous. Suitable arrays are returned without a copy.

    Args:
        source: as in `convert_element_values`, with no dimension or one.

    Raises:
        Exception: errors of `convert_element_values`. InvalidValueError also for more dimensions.
    """
    import numpy as np

    array = _convert_to_array(source, dtype, name)
    if array.ndim > 1:
        raise InvalidValueError(
            f"records have shape {array.shape}; give one record, or an array of one dimension", name
        )
    return np.ascontiguousarray(array, dtype).reshape(-1)


def _convert_to_array(source: Any, dtype: np.dtype[Any], name: str) -> npt.NDArray[Any]:
    import numpy as np

    if source is None:  # NumPy makes NaN of it, so a function that forgot its return would write that
        raise RecordTypeError(f"NoneType cannot be converted to {dtype}; give a value", name)
    has_dtype = hasattr(source, "dtype")
    if isinstance(source, Mapping):
        source = _order_fields(source, dtype, name)
    elif isinstance(source, list) and dtype.names is not None:
        source = [_order_fields(item, dtype, name) if isinstance(item, Mapping) else item for item in source]
    try:
        array = np.asarray(source) if has_dtype else np.array(source, dtype)
    except TypeError as error:
        raise RecordTypeError(f"{type(source).__name__} cannot become {dtype}: {error}", name) from None
    except (ValueError, OverflowError) as error:
        raise InvalidValueError(f"{type(source).__name__} cannot become {dtype}: {error}", name) from None
    if not has_dtype and (check := make_integer_check(dtype)) is not None:
        check.check_records(source, array.ndim, name)
    given_dtype = array.dtype
    if given_dtype != dtype and not (
        _has_same_fields(given_dtype, dtype) and np.can_cast(given_dtype, dtype, "same_kind")
    ):
        text = f"values of dtype {given_dtype} cannot be converted to {dtype}; convert them with astype"
        raise RecordTypeError(text, name)
    return array


def _order_fields(values: Mapping[str, Any], dtype: np.dtype[Any], name: str) -> tuple[Any, ...]:
    """Return the values of a mapping in the order of the fields."""
    names = dtype.names or ()
    if values.keys() != set(names):
        missing, unknown = set(names) - values.keys(), values.keys() - set(names)
        text = f"lacks the fields {sorted(missing)}" if missing else f"has unknown fields {sorted(unknown)}"
        raise RecordTypeError(f"mapping {text}; the fields are {', '.join(names) or 'unnamed'}", name)
    return tuple(values[field] for field in names)


def _has_same_fields(first: np.dtype[Any], second: np.dtype[Any]) -> bool:
    """Return True if two dtypes have the same field names on all levels."""
    if first.names is None or second.names is None:
        return first.names is second.names
    return first.names == second.names and all(
        _has_same_fields(first[each].base, second[each].base) for each in first.names
    )


def is_tracked_dtype(dtype: np.dtype[Any]) -> bool:
    """Return True if records begin with publishing time and origin, as in `msgq.tracked`."""
    if dtype.names is None or dtype.names[:2] != STAMP_FIELDS or dtype.fields is None:
        return False
    return all(
        dtype[name].str == "<i8" and dtype.fields[name][1] == 8 * place for place, name in enumerate(STAMP_FIELDS)
    )


def check_output_array(out: Any, dtype: np.dtype[Any], shape: tuple[int, ...], name: str) -> npt.NDArray[Any]:
    """Return the checked output array of a reader.

    Raises:
        RecordTypeError: the object is not an array, or has another dtype.
        InvalidValueError: the array has another shape, is not C-contiguous, or is read-only.
    """
    import numpy as np

    if not isinstance(out, np.ndarray):
        raise RecordTypeError(f"out is of type {type(out).__name__}; give an array of dtype {dtype}", name)
    if out.dtype != dtype:
        raise RecordTypeError(f"out is of dtype {out.dtype}; give an array of dtype {dtype}", name)
    if out.shape != shape:
        raise InvalidValueError(f"out has shape {out.shape}; give an array of shape {shape}", name)
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise InvalidValueError("out is not C-contiguous, or is read-only; give another array", name)
    return out


def element_index_error(index: Any, length: int, name: str) -> RecordIndexError:
    """Return the error for an invalid element index."""
    return RecordIndexError(f"{index!r} is not an index; give whole numbers, 0 to {length - 1}", name)
