"""Argument checks and errors of vectors and boards, for all backends.

`msgq.common.dtypes` checks dtypes, arrays.py checks indexes and values.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgq.common import naming, settings
from msgq.common.dtype_descriptions import record_dtype
from msgq.common.dtypes import struct_dtype, struct_schema
from msgq.common.schema import Schema, require_schema
from msgq.errors import (
    BoardKeyError,
    ConcurrentUseError,
    CorruptSegmentError,
    ForkedSocketError,
    InvalidValueError,
    MessageTooLargeError,
    RecordMismatchError,
    RecordTypeError,
    SegmentError,
    StateError,
    WaitTimeoutError,
)
from msgq.impl.base.argument_checks import check_count, check_limit

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ELEMENTS_MAX = 2**31 - 1
ITEM_BYTES_MAX = 2**30
FILE_BYTES_MAX = 2**40
SCHEMA_DATA_BYTES_MAX = 11840
DEFAULT_COPIES = 2
DEFAULT_KEYS = 256
KEYS_MAX = 65536
KEY_BYTES_MAX = 111
DEFAULT_VALUE_BYTES = 1008
LENGTH_WORD_BYTES = 8  # bytes of the length before a board's value
VALUE_BYTES_MAX = ITEM_BYTES_MAX - LENGTH_WORD_BYTES
READ_TIMEOUT_S = 1  # limit of a reader's attempts while others write faster than it reads


# ---- opening ----


class VectorOpenOptions(NamedTuple):
    """Checked options for opening a vector.

    Attributes:
        name: name of the vector; "": private memory of this process.
        create: True only creates, False only opens, None does either.
        dtype: requested type; None: the existing one. A new vector needs a type.
        length: requested number of elements; None: the existing one. A new vector needs a length.
        exclusive: requested value; None: the existing one.
        copies: requested value; None: the existing one.
        is_single_element: True: the vector must have one element (`Seqlock`).
        mode: permissions of a new vector.
        passive: True: leaves no trace, and cannot write.
    """

    name: str
    create: bool | None
    dtype: np.dtype[Any] | None
    length: int | None
    exclusive: bool | None
    copies: int | None
    is_single_element: bool
    mode: int
    passive: bool

    def fill_defaults(self) -> tuple[np.dtype[Any], int, bool, int]:
        """Return dtype, length, exclusive and copies of a new vector."""
        dtype, length = cast("np.dtype[Any]", self.dtype), cast("int", self.length)
        return dtype, length, bool(self.exclusive), self.copies or DEFAULT_COPIES

    def check_existing(self, dtype: np.dtype[Any], length: int, exclusive: bool, copies: int) -> int:
        """Compare with an existing vector, and return the number of its elements to use, from the first.

        Raises:
            RecordMismatchError: a value differs from the request. The text names both.
        """
        if self.dtype is not None and self.dtype != dtype:
            raise self._mismatch_error(f"has dtype {dtype}, but {self.dtype} was requested")
        if self.is_single_element and length != 1:
            raise self._mismatch_error(f"has {length} elements, but a Seqlock has 1; open it as a SeqlockVector")
        if (self.length or 0) > length:
            raise self._mismatch_error(f"has length {length}, but {self.length} was requested")
        if self.exclusive not in (None, exclusive):
            raise self._mismatch_error(f"has exclusive={exclusive}, but exclusive={self.exclusive} was requested")
        if self.copies not in (None, copies):
            raise self._mismatch_error(f"has copies={copies}, but copies={self.copies} was requested")
        return self.length or length

    def _mismatch_error(self, text: str) -> RecordMismatchError:
        return RecordMismatchError(
            f"{text}; omit the option to use the existing value, or unlink the records", self.name
        )

    def missing_error(self) -> SegmentError:
        """Return the error for a vector that does not exist."""
        advice = "" if self.dtype is not None and self.length is not None else "; to create it, give dtype and length"
        return records_missing_error(self.name, advice)


def check_vector_options(
    name: str | bytes | None,
    dtype: npt.DTypeLike | None,
    length: int | None,
    exclusive: bool | None,
    copies: int | None,
    create: bool | None,
    mode: int | None,
    passive: bool,
    is_single_element: bool = False,
) -> VectorOpenOptions:
    """Return the checked arguments of a `SeqlockVector`, or with `is_single_element` of a `Seqlock`.

    Raises:
        EndpointNameError: the name is not valid in a file name.
        InvalidValueError: a length, number of copies or mode is invalid; dtype or length is missing for a new vector;
            or private memory is passive or must exist.
        RecordTypeError: the dtype is not allowed for records.
        TypeError: a number has another type.
    """
    checked = "" if name is None else naming.validate_records_name(name)
    asked = None if dtype is None else _check_item_dtype(dtype, checked)
    return VectorOpenOptions(
        checked,
        _check_create_option(
            create,
            bool(passive),
            name is None,
            asked is not None and (is_single_element or length is not None),
            checked,
        ),
        asked,
        check_count("length", 1 if is_single_element else length, ELEMENTS_MAX, checked),
        None if exclusive is None else bool(exclusive),
        _check_copy_count(copies, checked),
        is_single_element,
        settings.resolve_file_mode(mode, checked),
        bool(passive),
    )


def _check_create_option(create: bool | None, passive: bool, private: bool, described: bool, name: str) -> bool | None:
    if private and (create is False or passive or not described):
        text = "private memory (name=None) is always new; give dtype and length, without create=False or passive"
        raise InvalidValueError(text, name)
    if create and passive:
        raise InvalidValueError("passive handles cannot create records; omit create or passive", name)
    if create and not described:
        raise InvalidValueError("create=True needs a dtype and a length", name)
    if passive or not described:
        return False
    return True if private else None if create is None else bool(create)


def _check_item_dtype(asked: npt.DTypeLike, name: str) -> np.dtype[Any]:
    dtype = record_dtype(asked, name)
    if dtype.itemsize > ITEM_BYTES_MAX:
        raise RecordTypeError(f"dtype {dtype} has {dtype.itemsize} bytes; give one of at most {ITEM_BYTES_MAX}", name)
    size = len(struct_schema(dtype).data)
    if size > SCHEMA_DATA_BYTES_MAX:
        text = (
            f"description of the dtype has {size} bytes, and at most {SCHEMA_DATA_BYTES_MAX} are allowed; "
            "use fewer fields, or shorter names"
        )
        raise RecordTypeError(text, name)
    return dtype


def _check_copy_count(copies: int | None, name: str) -> int | None:
    if copies not in (None, 2, 4):
        raise InvalidValueError(f"copies is {copies!r}; give 2, or 4 for large items with fast writers", name)
    return copies


def read_schema_dtype(schema: Schema | None, item_bytes: int, name: str) -> np.dtype[Any]:
    """Return the dtype in a vector's header.

    Raises:
        CorruptSegmentError: the header has no dtype, or one of another size.
    """
    try:
        dtype = struct_dtype(schema) if schema is not None else None
    except ValueError as error:
        raise CorruptSegmentError(str(error), name) from None
    if dtype is None or dtype.itemsize != item_bytes:
        text = f"has items of {item_bytes} bytes, but dtype {dtype}: another program wrote into the file"
        raise CorruptSegmentError(text, name)
    return dtype


class BoardOpenOptions(NamedTuple):
    """Checked options for opening a board.

    Attributes:
        name: name of the board.
        create: True only creates, False only opens, None does either.
        keys: requested number; None: the existing one, or the default for a new board.
        value_bytes: requested size; None: the existing one, or the default for a new board.
        schema: schema of a new board.
        mode: permissions of a new board.
        passive: True: leaves no trace, and cannot declare.
    """

    name: str
    create: bool | None
    keys: int | None
    value_bytes: int | None
    schema: Schema | None
    mode: int
    passive: bool

    def fill_defaults(self) -> tuple[int, int]:
        """Return the number of keys and the maximum bytes of a value of a new board."""
        return self.keys or DEFAULT_KEYS, DEFAULT_VALUE_BYTES if self.value_bytes is None else self.value_bytes

    def check_existing(self, keys: int, value_bytes: int) -> None:
        """Compare with an existing board.

        Raises:
            RecordMismatchError: a value differs from the request. The text names both.
        """
        for option, current in (("keys", keys), ("value_bytes", value_bytes)):
            asked = getattr(self, option)
            if asked not in (None, current):
                text = f"has {option}={current}, but {option}={asked} was requested"
                raise RecordMismatchError(
                    f"{text}; omit the option to use the existing value, or unlink the records", self.name
                )

    def missing_error(self) -> SegmentError:
        """Return the error for a board that does not exist."""
        return records_missing_error(self.name)


def check_board_options(
    name: str | bytes,
    keys: int | None,
    value_bytes: int | None,
    schema: Schema | None,
    create: bool | None,
    mode: int | None,
    passive: bool,
) -> BoardOpenOptions:
    """Return the checked arguments of a `Board`.

    Raises:
        EndpointNameError: the name is not valid in a file name.
        InvalidValueError: a number, mode or schema is invalid, or a passive handle must create the board.
        TypeError: a number or the schema has another type.
    """
    checked = naming.validate_records_name(name)
    if schema is not None:
        require_schema(schema)
        if len(schema.data) > SCHEMA_DATA_BYTES_MAX:
            text = f"schema has {len(schema.data)} bytes of data; a board allows at most {SCHEMA_DATA_BYTES_MAX}"
            raise InvalidValueError(text, checked)
    return BoardOpenOptions(
        checked,
        _check_create_option(create, bool(passive), False, True, checked),
        check_count("keys", keys, KEYS_MAX, checked),
        check_count("value_bytes", value_bytes, VALUE_BYTES_MAX, checked),
        schema,
        settings.resolve_file_mode(mode, checked),
        bool(passive),
    )


def resolve_change_limit(limit: int | None, length: int, name: str) -> int:
    """Return the maximum number of changes in a batch, for `length` elements.

    Raises:
        InvalidValueError: `limit` is negative.
    """
    return min(check_limit(limit, name), length)


# ---- boards ----


def validate_key(key: str, name: str) -> bytes:
    """Return a board's key as bytes.

    Raises:
        TypeError: the key is not a str.
        InvalidValueError: the key is empty, longer than 111 bytes, not UTF-8, or contains NUL.
    """
    if not isinstance(key, str):
        raise TypeError(f"key is of type {type(key).__name__}; give a str")
    try:
        data = key.encode()
    except UnicodeError as error:
        raise InvalidValueError(f"key {key!r} is not UTF-8: {error}", name) from None
    if not 1 <= len(data) <= KEY_BYTES_MAX or b"\0" in data:
        text = f"key {key[:40]!r} has {len(data)} bytes; give 1 to {KEY_BYTES_MAX}, without NUL"
        raise InvalidValueError(text, name)
    return data


# ---- errors ----


def records_missing_error(name: str, advice: str = "") -> SegmentError:
    """Return the error for records that do not exist."""
    return SegmentError(f"records not found{advice}", name, errno=errno.ENOENT)


def too_large_file_error(length: int, item_bytes: int, copies: int, name: str) -> InvalidValueError:
    """Return the error for a new file that would exceed the maximum size."""
    text = f"{length} elements of {item_bytes} bytes in {copies} copies do not fit into a file"
    return InvalidValueError(f"{text}; at most {FILE_BYTES_MAX} bytes are allowed", name)


def wrong_records_kind_error(is_board: bool, name: str) -> RecordMismatchError:
    """Return the error for opening a board as a vector, or a vector as a board.

    `is_board`: True for an existing board.
    """
    current, asked = ("a board", "a vector") if is_board else ("a vector", "a board")
    return RecordMismatchError(f"is {current}, but was opened as {asked}", name)


def passive_writer_error(name: str) -> StateError:
    """Return the error for a write with a passive handle."""
    return StateError("is passive, and cannot write; open it without passive=True", name)


def concurrent_changes_error(name: str) -> ConcurrentUseError:
    """Return the error for a second thread in `changes`."""
    return ConcurrentUseError("another thread reads changes with this handle; use one thread at a time", name)


def element_locked_error(index: int, holder: str, waited_s: float, name: str) -> WaitTimeoutError:
    """Return the error for an element that another living writer holds."""
    text = f"element {index} was locked for {waited_s:.6g} s by {holder}, which is stopped or slow"
    return WaitTimeoutError(f"{text}; this element and the following ones were not written", name)


def read_contention_error(index: int, waited_s: float, name: str) -> WaitTimeoutError:
    """Return the error for an element that was written during each attempt to read it."""
    text = f"element {index} was written again during each read for {waited_s:.6g} s"
    return WaitTimeoutError(f"{text}; create the vector with copies=4, or write less often", name)


def no_atomic_snapshot_error(waited_s: float, name: str) -> WaitTimeoutError:
    """Return the error for an atomic snapshot that found no instant without writes."""
    text = f"elements kept changing for {waited_s:.6g} s, so that no snapshot of one instant was possible"
    return WaitTimeoutError(f"{text}; raise the timeout, or take a snapshot that is not atomic", name)


def unwritten_key_error(key: str, name: str) -> BoardKeyError:
    """Return the error for a key without a value."""
    return BoardKeyError(f"key {key!r} has no value yet", name)


def value_too_large_error(size: int, value_bytes: int, name: str) -> MessageTooLargeError:
    """Return the error for a value that exceeds the maximum."""
    text = f"a value of {size} bytes does not fit: at most {value_bytes} are allowed (value_bytes)"
    return MessageTooLargeError(text, name)


def buffer_too_small_error(size: int, room: int, name: str) -> MessageTooLargeError:
    """Return the error for a buffer that is smaller than a value."""
    return MessageTooLargeError(f"value has {size} bytes, but the buffer has {room}", name)


def inherited_entry_error(key: str, name: str) -> ForkedSocketError:
    """Return the error for an `Entry` in a forked child."""
    text = f"key {key!r} belongs to the parent process"
    return ForkedSocketError(f"{text}; to write it here, close the parent's Entry, then declare the key", name)


def closed_entry_error(key: str, name: str) -> StateError:
    """Return the error for a closed `Entry`."""
    return StateError(f"key {key!r} was released; declare it again", name)
