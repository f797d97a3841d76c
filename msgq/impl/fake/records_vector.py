"""Vectors of records on the fake backend. The stub msgq/impl/records/core.pyi documents the methods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from msgq.impl.base.argument_checks import timeout_ns
from msgq.impl.base.clock import origin_time
from msgq.impl.base.foreign_names import add_advice
from msgq.impl.fake.records_handle import RecordHandle
from msgq.impl.fake.records_store import VectorHandleRow, VectorStore, open_store
from msgq.impl.records import arrays, options
from msgq.impl.records.values import Changes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from msgq.common.schema import Schema


def _selects_many(selection: Any) -> bool:
    """Return True if a selection means several elements. Otherwise it is a single index, or invalid."""
    return isinstance(selection, (slice, list, range)) or bool(getattr(selection, "ndim", False))


class VectorHandle(RecordHandle):
    """Base of vectors and single records."""

    _store: VectorStore
    _handle_row: VectorHandleRow | None
    schema: Schema

    def _open_store(self, opening: options.VectorOpenOptions) -> None:
        self._store, created = open_store(self._bus, self._prefix, opening, VectorStore, VectorStore)
        store = self._store
        parameters = store.dtype, len(store.elements), store.exclusive, store.copies
        self._length = parameters[1] if created else opening.check_existing(*parameters)
        self._has_stamps = arrays.is_tracked_dtype(store.dtype)
        self._handle_row = VectorHandleRow(store, self._length)
        self._bus.on_member_opened(self)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of an element."""
        return self._store.dtype

    @property
    def exclusive(self) -> bool:
        """True if only one handle writes."""
        return self._store.exclusive

    @property
    def copies(self) -> int:
        """Number of copies of each element."""
        return self._store.copies

    def claim(self) -> None:
        """Register as a writer before the first write."""
        self._store.register_writer(self._get_writable_row())

    def _read_elements(self, indices: npt.NDArray[np.int64], out: Any) -> npt.NDArray[Any]:
        self._get_usable_row()
        if out is None:
            rows: npt.NDArray[Any] = self._store.elements[indices]
            return rows
        target = arrays.check_output_array(out, self._store.dtype, indices.shape, self._endpoint)
        target[...] = self._store.elements[indices]
        return target

    def _read_element(self, index: int) -> Any:
        self._get_usable_row()
        return _make_read_only(self._store.elements[index : index + 1].copy())[0]

    def _write_elements(self, indices: npt.NDArray[np.int64], values: Any, timeout: float | None) -> None:
        timeout_ns(timeout, self._endpoint)
        self._get_writable_row()
        rows = arrays.convert_element_values(values, self._store.dtype, len(indices), self._endpoint)
        row = self._get_writable_row()  # an object's __array__ may run any code
        self._store.register_writer(row)
        if not len(indices):
            return
        clock = self._bus.clock
        now_ns = clock.now_ns
        rows = (
            arrays.copy_with_stamps(rows, now_ns, origin_time() or clock.new_origin_time())
            if self._has_stamps
            else rows.copy()
        )
        self._store.write_change(row, (indices, rows, now_ns), len(indices))

    def _resolve_indices(self, selection: Any) -> npt.NDArray[np.int64]:
        return arrays.resolve_element_indices(selection, self._length, self._endpoint)

    def snapshot(self, atomic: bool = False, out: Any = None, timeout: float | None = 1.0) -> npt.NDArray[Any]:
        """Return all elements. On this backend they are always of one instant."""
        timeout_ns(timeout, self._endpoint)
        return self._read_elements(self._resolve_indices(None), out)

    @property
    def changed(self) -> bool:
        """True if `changes` would return an element."""
        return self._get_usable_row().can_receive()

    def changes(self, limit: int | None = None) -> Changes:
        """Return the elements written since the last call."""
        if limit is not None:
            limit = options.resolve_change_limit(limit, self._length, self._endpoint)
        indices = cast("VectorHandleRow", self._get_usable_row()).take_changed_indices(limit)
        store = self._store
        return Changes(indices, store.elements[indices], store.write_times[indices], store.write_counts[indices])

    _read_newest = changes


@add_advice
class SeqlockVector(VectorHandle):
    """A vector of records. The stub core.pyi documents the methods."""

    def __init__(
        self,
        name: str | bytes | None,
        dtype: npt.DTypeLike | None = None,
        length: int | None = None,
        *,
        exclusive: bool | None = None,
        copies: int | None = None,
        create: bool | None = None,
        mode: int | None = None,
        prefix: str | None = None,
        trust: str | None = None,
        passive: bool = False,
        spin_us: int | None = None,
    ) -> None:
        opening = options.check_vector_options(name, dtype, length, exclusive, copies, create, mode, passive)
        super().__init__(opening.name, prefix, trust, opening.passive, spin_us)
        self._open_store(opening)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._length} of dtype {self.dtype}"
        return f"<msgq fake SeqlockVector {self._endpoint!r}, {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._endpoint:
            raise TypeError("private memory (name=None) cannot be pickled; give a name to share it")
        return _reopen_pickled_vector, (self._endpoint, self._prefix, self._trust, self._length, self._passive)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    # ---- reading ----

    def __getitem__(self, selection: Any) -> Any:
        if _selects_many(selection):
            return _make_read_only(self._read_elements(self._resolve_indices(selection), None))
        return self._read_element(arrays.check_element_index(selection, self._length, self._endpoint))

    def read(self, indices: Any = None, out: Any = None) -> npt.NDArray[Any]:
        """Return some elements."""
        return self._read_elements(self._resolve_indices(indices), out)

    def times(self, indices: Any = None) -> npt.NDArray[np.int64]:
        """Return the times of the last writes."""
        self._get_usable_row()
        return self._store.write_times[self._resolve_indices(indices)]

    def counts(self, indices: Any = None) -> npt.NDArray[np.uint64]:
        """Return the numbers of writes."""
        self._get_usable_row()
        return self._store.write_counts[self._resolve_indices(indices)]

    # ---- writing ----

    def __setitem__(self, selection: Any, values: Any) -> None:
        if _selects_many(selection):
            self.write(selection, values)
        else:
            self.write([arrays.check_element_index(selection, self._length, self._endpoint)], values)

    def write(self, indices: Any, values: Any, *, timeout: float | None = 1.0) -> None:
        """Write elements."""
        self._write_elements(self._resolve_indices(indices), values, timeout)


class Seqlock(VectorHandle):
    """One record: a vector with one element. The stub core.pyi documents the methods."""

    def __init__(
        self,
        name: str | bytes | None,
        dtype: npt.DTypeLike | None = None,
        *,
        exclusive: bool | None = None,
        copies: int | None = None,
        create: bool | None = None,
        mode: int | None = None,
        prefix: str | None = None,
        trust: str | None = None,
        passive: bool = False,
        spin_us: int | None = None,
    ) -> None:
        opening = options.check_vector_options(
            name, dtype, None, exclusive, copies, create, mode, passive, is_single_element=True
        )
        super().__init__(opening.name, prefix, trust, opening.passive, spin_us)
        self._open_store(opening)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"dtype {self.dtype}"
        return f"<msgq fake Seqlock {self._endpoint!r}, {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._endpoint:
            raise TypeError("private memory (name=None) cannot be pickled; give a name to share it")
        return _reopen_pickled_seqlock, (self._endpoint, self._prefix, self._trust, self._passive)

    def read(self, out: Any = None) -> Any:
        """Return the record, or fill an array of shape (1,)."""
        record = self._read_element(0) if out is None else self._read_elements(self._resolve_indices(None), out)
        cast("VectorHandleRow", self._get_usable_row()).mark_all_seen()
        return record

    @property
    def value(self) -> Any:
        """The record."""
        return self.read()

    @value.setter
    def value(self, value: Any) -> None:
        self.write(value)

    def write(self, value: Any, timeout: float | None = 1.0) -> None:
        """Write the record."""
        self._write_elements(self._resolve_indices(None), value, timeout)

    @property
    def time(self) -> int:
        """Time of the last write."""
        self._get_usable_row()
        return int(self._store.write_times[0])

    @property
    def count(self) -> int:
        """Number of writes."""
        self._get_usable_row()
        return int(self._store.write_counts[0])


def _make_read_only(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only copy.

    An assignment such as `vector[i]["field"] = x` would otherwise silently change only the copy.
    """
    rows.flags.writeable = False
    return rows


def _reopen_pickled_vector(name: str, prefix: str, trust: str | None, length: int, passive: bool) -> SeqlockVector:
    """Return a handle for a pickled vector."""
    return SeqlockVector(name, None, length, create=False, prefix=prefix, trust=trust, passive=passive)


def _reopen_pickled_seqlock(name: str, prefix: str, trust: str | None, passive: bool) -> Seqlock:
    """Return a handle for a pickled record."""
    return Seqlock(name, create=False, prefix=prefix, trust=trust, passive=passive)
