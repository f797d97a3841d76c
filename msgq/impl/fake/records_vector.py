"""Vectors of records on the fake backend. See core.pyi of msgq/impl/records for the contract of each method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from msgq.impl.base.argument_checks import timeout_ns
from msgq.impl.base.origin import origin_time
from msgq.impl.fake.records_handle import RecordHandle
from msgq.impl.fake.records_store import VectorRow, VectorStore, open_store
from msgq.impl.records import arrays, options
from msgq.impl.records.values import Changes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from msgq.common.schema import Schema


def _is_many(selection: Any) -> bool:
    """Return whether it selects elements; all else is one index, or none."""
    return isinstance(selection, (slice, list, range)) or bool(getattr(selection, "ndim", False))


class Elements(RecordHandle):
    """What has elements: a vector, or its only one."""

    _store: VectorStore
    _row: VectorRow | None
    schema: Schema

    def _open(self, wanted: options.VectorOpenOptions) -> None:
        self._store, made = open_store(self._bus, self._prefix, wanted, VectorStore, VectorStore)
        store = self._store
        parameters = store.dtype, len(store.items), store.exclusive, store.copies
        self._length = parameters[1] if made else wanted.check_existing(*parameters)
        self._tracked = arrays.is_tracked_dtype(store.dtype)
        self._row = VectorRow(store, self._length)
        self._bus.on_member_opened(self)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of an element."""
        return self._store.dtype

    @property
    def exclusive(self) -> bool:
        """Whether one handle writes."""
        return self._store.exclusive

    @property
    def copies(self) -> int:
        """Of each element."""
        return self._store.copies

    def claim(self) -> None:
        """Become a writer before the first write."""
        self._store.admit(self._may_write())

    def _rows(self, indices: npt.NDArray[np.int64], out: Any) -> npt.NDArray[Any]:
        self._use()
        if out is None:
            rows: npt.NDArray[Any] = self._store.items[indices]
            return rows
        target = arrays.check_output_array(out, self._store.dtype, indices.shape, self._endpoint)
        target[...] = self._store.items[indices]
        return target

    def _one(self, index: int) -> Any:
        self._use()
        return _read_only(self._store.items[index : index + 1].copy())[0]

    def _write(self, indices: npt.NDArray[np.int64], values: Any, timeout: float | None) -> None:
        timeout_ns(timeout, self._endpoint)
        self._may_write()
        rows = arrays.convert_element_values(values, self._store.dtype, len(indices), self._endpoint)
        row = self._may_write()  # an object's __array__ may run any code
        self._store.admit(row)
        if not len(indices):
            return
        clock = self._bus.clock
        now = clock.now_ns
        rows = (
            arrays.copy_with_stamps(rows, now, origin_time() or clock.new_origin_time())
            if self._tracked
            else rows.copy()
        )
        self._store.write(row, (indices, rows, now), len(indices))

    def _resolve_indices(self, selection: Any) -> npt.NDArray[np.int64]:
        return arrays.resolve_element_indices(selection, self._length, self._endpoint)

    def snapshot(self, atomic: bool = False, out: Any = None, timeout: float | None = 1.0) -> npt.NDArray[Any]:
        """Return all elements; here they always are of one instant."""
        timeout_ns(timeout, self._endpoint)
        return self._rows(self._resolve_indices(None), out)

    @property
    def changed(self) -> bool:
        """Whether `changes` would return something."""
        return self._use().can_receive()

    def changes(self, limit: int | None = None) -> Changes:
        """Return what was written since the last call."""
        if limit is not None:
            limit = options.resolve_change_limit(limit, self._length, self._endpoint)
        indices = cast("VectorRow", self._use()).take_changed(limit)
        store = self._store
        return Changes(indices, store.items[indices], store.times[indices], store.counts[indices])

    _newest = changes


class SeqlockVector(Elements):
    """A vector of records. See core.pyi for the contract of each method."""

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
        wanted = options.check_vector_options(name, dtype, length, exclusive, copies, create, mode, passive)
        super().__init__(wanted.name, prefix, trust, wanted.passive, spin_us)
        self._open(wanted)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._length} of dtype {self.dtype}"
        return f"<msgq fake SeqlockVector {self._endpoint!r}, {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._endpoint:
            raise TypeError("private memory (name=None) cannot be pickled")
        return _vector, (self._endpoint, self._prefix, self._trust, self._length, self._passive)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    # ---- reading ----

    def __getitem__(self, selection: Any) -> Any:
        if _is_many(selection):
            return _read_only(self._rows(self._resolve_indices(selection), None))
        return self._one(arrays.check_element_index(selection, self._length, self._endpoint))

    def read(self, indices: Any = None, out: Any = None) -> npt.NDArray[Any]:
        """Return elements."""
        return self._rows(self._resolve_indices(indices), out)

    def times(self, indices: Any = None) -> npt.NDArray[np.int64]:
        """Return when elements were written last."""
        self._use()
        return self._store.times[self._resolve_indices(indices)]

    def counts(self, indices: Any = None) -> npt.NDArray[np.uint64]:
        """Return how often elements were written."""
        self._use()
        return self._store.counts[self._resolve_indices(indices)]

    # ---- writing ----

    def __setitem__(self, selection: Any, values: Any) -> None:
        if _is_many(selection):
            self.write(selection, values)
        else:
            self.write([arrays.check_element_index(selection, self._length, self._endpoint)], values)

    def write(self, indices: Any, values: Any, *, timeout: float | None = 1.0) -> None:
        """Write elements."""
        self._write(self._resolve_indices(indices), values, timeout)


class Seqlock(Elements):
    """One record: a vector of one. See core.pyi for the contract of each method."""

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
        wanted = options.check_vector_options(
            name, dtype, None, exclusive, copies, create, mode, passive, is_single_element=True
        )
        super().__init__(wanted.name, prefix, trust, wanted.passive, spin_us)
        self._open(wanted)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"dtype {self.dtype}"
        return f"<msgq fake Seqlock {self._endpoint!r}, {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._endpoint:
            raise TypeError("private memory (name=None) cannot be pickled")
        return _seqlock, (self._endpoint, self._prefix, self._trust, self._passive)

    def read(self, out: Any = None) -> Any:
        """Return the record, or fill an array of one with it."""
        record = self._one(0) if out is None else self._rows(self._resolve_indices(None), out)
        cast("VectorRow", self._use()).mark_seen()
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
        self._write(self._resolve_indices(None), value, timeout)

    @property
    def time(self) -> int:
        """When it was written last."""
        self._use()
        return int(self._store.times[0])

    @property
    def count(self) -> int:
        """How often it was written."""
        self._use()
        return int(self._store.counts[0])


def _read_only(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy such that `vector[i]["field"] = x`, which would write nothing, is an error."""
    rows.flags.writeable = False
    return rows


def _vector(name: str, prefix: str, trust: str | None, length: int, passive: bool) -> SeqlockVector:
    """Return a handle like one that was pickled."""
    return SeqlockVector(name, None, length, create=False, prefix=prefix, trust=trust, passive=passive)


def _seqlock(name: str, prefix: str, trust: str | None, passive: bool) -> Seqlock:
    """As `_vector`."""
    return Seqlock(name, create=False, prefix=prefix, trust=trust, passive=passive)
