"""A channel's publisher: a Python face on publisher.h. Its row and pool are in ownpool.pyx."""

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_ND, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport PyThread_get_thread_ident
from cython cimport no_gc_clear
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from posix.unistd cimport usleep

from msgq.impl.channel.core cimport (
    MQ_CHANNEL_CORRUPT, MQ_CHANNEL_NOTIFY, MQ_NO_SLOT, MQ_VIEWERS, mq_channel_clear_dead, mq_channel_give_back,
    mq_channel_payload, mq_channel_publish, mq_channel_publish_rows, mq_channel_refuse, mq_channel_take,
    mq_channel_used, mq_channel_used_slot, mq_pin_holders, mq_pool_stride, mq_store_release_u64,
)
from msgq.impl.channel.hub cimport Hub, is_whole
from msgq.impl.channel.ownpool cimport OwnPool, enter_channel
from msgq.impl.base.context cimport BUSY, CLOSED, LARGE_BYTES, misuse, remember
from msgq.impl.base.core cimport (
    mq_eventcount_prepare_wait_mp, mq_eventcount_has_waiters_mp, mq_eventcount_notify_mp, mq_copy_in, mq_futex_wait,
    mq_futex_wake_all, mq_futex_word, mq_now_ns,
)
from msgq.impl.base.liveness cimport fork_generation
from msgq.impl.base.origin cimport current_origin
from msgq.impl.base.waiting cimport require_time

from msgq.errors import (
    CorruptSegmentError, EndpointClosedError, ForkedSocketError, InvalidValueError, MessageTooLargeError,
    PoolExhaustedError, StateError,
)
from msgq.impl.sockets.checks import pickle_error, timeout_ns


cdef enum:
    FEW_SLOTS = 4               # as many as a pool that grows should have, rather than larger ones
    BLOCK_ROWS = 256            # of an array: so many are published before those who sleep are woken
    LOOK_AGAIN_NS = 100000000   # while it waits for a slot: nobody tells that a holder died


cdef bint rows_of(messages, Py_buffer *view) except -1:
    """Get the bytes of an array of several messages; False: it is something else, or has gaps."""
    if not PyObject_CheckBuffer(messages) or getattr(getattr(messages, "dtype", None), "hasobject", False):
        return False
    try:
        PyObject_GetBuffer(messages, view, PyBUF_ND | PyBUF_C_CONTIGUOUS)
    except (BufferError, ValueError):
        return False
    if view.ndim > 1 or view.ndim == 1 and view.itemsize > 1:
        return True
    PyBuffer_Release(view)
    return False


@no_gc_clear  # a queue's handle that is collected with it has events to publish
cdef class Publisher:
    """See publisher.pyi."""

    def __cinit__(self, Hub hub not None, str name not None, slots, slot_bytes, uint64_t max_bytes):
        self._ticket = CLOSED
        self.endpoint, self.name, self._hub = hub.name, name, hub
        self._slots, self._max_bytes = slots, max_bytes
        self._own = enter_channel(hub, name, slots, slot_bytes, max_bytes, True)
        self._generation = self._ticket = fork_generation
        remember(self)

    def __reduce__(self):
        raise pickle_error(self)

    def __repr__(self):
        state = "closed" if self._ticket == CLOSED else f"{self.sent} messages published"
        return f"<msgq channel Publisher {self.endpoint!r}, {state}>"

    # ---- what it counts ----

    @property
    def closed(self):
        return self._ticket == CLOSED

    @property
    def sent(self):
        return self._sent + self._own.c.sent

    @property
    def bytes(self):
        return self._bytes + self._own.c.bytes

    @property
    def refused(self):
        return self._refused + self._own.c.refused

    @property
    def withdrawn(self):
        return self._withdrawn + self._own.c.withdrawn

    @property
    def slots(self):
        return self._own.c.slots.slots

    @property
    def slot_bytes(self):
        return self._own.c.slots.slot_bytes

    # ---- coming and going ----

    def close(self):
        cdef bint ours = self._generation == fork_generation
        if self._ticket == CLOSED:
            return
        if ours and self._waiter:
            self._interrupt_wait()
            return
        if ours and self._ticket != fork_generation:
            raise misuse(self._ticket, self.endpoint)
        self._ticket = CLOSED  # before it leaves, which may be interrupted: then the row may be another's
        if ours:
            self._own.superseded = True  # loans that are open end it
            self._own.leave(True)

    cdef int _interrupt_wait(self) except -1:
        """End the wait for a slot, which closes the publisher. A signal handler of the waiting thread never blocks."""
        self._closing = True
        while self._closing and self._waiter != PyThread_get_thread_ident():
            mq_futex_wake_all(mq_futex_word(&self._own.c.slots.pool.released))
            with nogil:
                usleep(200)
            PyErr_CheckSignals()
        return 0

    def _close_at_exit(self):
        if self._ticket == fork_generation:
            self.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    cdef int _refuse(self) except -1:
        """Called when the ticket is not valid: raise, or join again after a fork."""
        if self._ticket != CLOSED and self._generation != fork_generation:
            return self._rejoin()
        raise misuse(self._ticket, self.endpoint)

    cdef int _rejoin(self) except -1:
        """In a forked child: take a row and create a pool. Open loans stay the parent's."""
        cdef OwnPool inherited = self._own
        cdef int ticket = self._ticket, generation = self._generation
        self._generation, self._ticket = fork_generation, BUSY
        self._waiter, self._closing = 0, False  # the waiting thread may not exist in the child
        try:
            self._replace(enter_channel(self._hub, self.name, self._slots, inherited.c.slots.slot_bytes,
                                        self._max_bytes, True))
            if self._hub.own[inherited.c.number] == inherited.c.slots.uid:
                self._hub.own[inherited.c.number] = 0  # with `own=False`, receive the parent's messages
            self._ticket = self._generation
        finally:
            if self._ticket == BUSY:
                self._generation, self._ticket = generation, ticket
        remember(self)
        return 0

    cdef int _refuse_inherited(self) except -1:
        """Raise in the child when a signal handler forked in the middle of a call."""
        if self._generation != fork_generation:
            text = "a signal handler forked the process during this call, which its parent ends; call again here"
            raise ForkedSocketError(text, self.endpoint)
        return 0

    cdef int _replace(self, OwnPool own) except -1:
        """Publish from another pool from now on, and keep the counts."""
        self._sent += self._own.c.sent
        self._bytes += self._own.c.bytes
        self._refused += self._own.c.refused
        self._withdrawn += self._own.c.withdrawn
        self._own = own
        return 0

    # ---- sending ----

    def send(self, data, /, *, timeout=0.0, uint64_t origin_time=0):
        if self._ticket != fork_generation:
            self._refuse()
        require_time(timeout, self.endpoint)
        return self._send(data, timeout, origin_time)

    def send_many(self, messages, /, *, uint64_t origin_time=0):
        cdef Py_ssize_t count = 0
        cdef Py_buffer view
        if rows_of(messages, &view):
            try:
                return self._send_rows(&view, origin_time)
            finally:
                PyBuffer_Release(&view)
        for message in messages:
            if self._ticket != fork_generation:
                self._refuse()
            self._send(message, 0.0, origin_time)
            count += 1
        return count

    cdef Py_ssize_t _send_rows(self, const Py_buffer *view, uint64_t origin_time) except -1:
        """Publish the rows of an array, block by block, each of which wakes those who sleep once."""
        cdef const uint8_t *data = <const uint8_t *> view.buf
        cdef uint64_t done = 0, count = view.shape[0], size = view.len // count if count else 0, block, wanted
        if self._ticket != fork_generation:
            self._refuse()
        if size > self._own.c.slots.slot_bytes:
            self._grow(size)
        cdef uint64_t origin = origin_time or current_origin()
        block = max(<uint64_t> 1, min(<uint64_t> BLOCK_ROWS, <uint64_t> LARGE_BYTES // max(size, <uint64_t> 1)))
        while done < count:
            wanted = min(block, count - done)
            if size >= LARGE_BYTES or not self._publish_rows(data + done * size, size, wanted, origin, &done):
                self._send_bytes(data + done * size, size, 0.0, origin)  # which copes with what stands in the way
                done += 1
        return count

    cdef bint _publish_rows(self, const uint8_t *rows, uint64_t size, uint64_t count, uint64_t origin_time,
                            uint64_t *done) except -1:
        """Publish so many rows, and add how many were to `done`; False: not all."""
        cdef uint64_t first = 0
        cdef uint64_t sent = mq_channel_publish_rows(&self._own.c, rows, size, count, origin_time, &first)
        done[0] += sent
        if sent and mq_eventcount_has_waiters_mp(&self._own.c.hub.attention):
            mq_eventcount_notify_mp(&self._own.c.hub.attention)
        if not (is_whole(self._hub.whole) and is_whole(self._own.pool.whole)):
            self._hub.check_whole()
            self._own.pool.check_whole(self.endpoint)
        return sent == count

    cdef object _send(self, object data, object timeout, uint64_t origin_time):
        cdef Py_buffer view
        if PyBytes_CheckExact(data):
            return self._send_bytes(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), timeout, origin_time)
        if getattr(getattr(data, "dtype", None), "hasobject", False):
            raise TypeError(f"an array of dtype {data.dtype} holds Python objects, which cannot be sent as bytes")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if self._ticket != fork_generation:  # an exporter may run any code
                self._refuse()
            return self._send_bytes(view.buf, view.len, timeout, origin_time)
        finally:
            PyBuffer_Release(&view)

    cdef object _send_bytes(self, const void *data, uint64_t size, object timeout, uint64_t origin_time):
        cdef int slot
        cdef uint8_t *payload
        if size > self._own.c.slots.slot_bytes:
            self._grow(size)
        slot = mq_channel_take(&self._own.c)
        if slot == MQ_NO_SLOT:
            slot = self._take(timeout)
        payload = mq_channel_payload(&self._own.c, slot)
        if size < LARGE_BYTES:
            mq_copy_in(payload, data, size)
        else:
            self._ticket = BUSY
            with nogil:
                mq_copy_in(payload, data, size)
            self._ticket = self._generation
        return self._publish(self._own, slot, size, origin_time)

    cdef object _publish(self, OwnPool own, uint64_t slot, uint64_t size, uint64_t origin_time):
        cdef uint64_t position = 0
        status = mq_channel_publish(&own.c, slot, size, origin_time or current_origin(), &position)
        if not (is_whole(self._hub.whole) and is_whole(own.pool.whole)):
            self._hub.check_whole()  # afterwards: a page that was cut off is found when it is touched
            own.pool.check_whole(self.endpoint)
        if status == MQ_CHANNEL_NOTIFY:
            mq_eventcount_notify_mp(&own.c.hub.attention)
        elif status == MQ_CHANNEL_CORRUPT:
            mq_channel_give_back(&own.c, slot)
            text = "the order of its messages makes no sense: foreign bytes; remove the channel (msgq clean)"
            raise CorruptSegmentError(text, self.endpoint, self._hub.path)
        if own is not self._own:  # a loan of a pool that was outgrown since
            self._sent += 1
            self._bytes += size
        return position

    # ---- slots ----

    cdef int _take(self, object timeout) except -1:
        """A slot, when none was to be had at once: what the dead hold, or waiting for one."""
        cdef int slot = MQ_NO_SLOT
        if mq_channel_clear_dead(&self._own.c):
            slot = mq_channel_take(&self._own.c)
        if slot == MQ_NO_SLOT and timeout != 0:
            slot = self._await_slot(timeout)
        if slot == MQ_NO_SLOT:
            mq_channel_refuse(&self._own.c)
            raise self._exhausted()
        return slot

    cdef int _await_slot(self, object timeout) except -2:
        """Sleep until a holder lets go; -1: the time is over."""
        cdef int64_t now, until, deadline = -1
        cdef uint32_t expected
        cdef int slot = MQ_NO_SLOT
        cdef OwnPool own
        limit = timeout_ns(timeout, self.endpoint)
        if limit >= 0:
            deadline = mq_now_ns() + <int64_t> limit
        if self._ticket != fork_generation:  # a signal handler may have closed it meanwhile
            self._refuse()
        own = self._own
        self._ticket, self._waiter = BUSY, PyThread_get_thread_ident()
        try:
            while slot == MQ_NO_SLOT:
                PyErr_CheckSignals()
                if self._closing or self._generation != fork_generation:
                    break  # closed, or this is the child of a handler's fork
                expected = mq_eventcount_prepare_wait_mp(&own.c.slots.pool.released)
                slot = mq_channel_take(&own.c)
                if slot == MQ_NO_SLOT and mq_channel_clear_dead(&own.c):
                    slot = mq_channel_take(&own.c)
                now = mq_now_ns()
                if slot != MQ_NO_SLOT or 0 <= deadline <= now:
                    break
                until = now + LOOK_AGAIN_NS
                if 0 <= deadline < until:
                    until = deadline
                with nogil:
                    mq_futex_wait(mq_futex_word(&own.c.slots.pool.released), expected, until)
        finally:
            self._ticket, self._waiter = self._generation, 0
            closed = self._end_waiting(own, slot)
        if closed:
            raise EndpointClosedError("was closed while it waited for a slot", self.endpoint)
        self._refuse_inherited()
        return slot

    cdef bint _end_waiting(self, OwnPool own, int slot) except -1:
        """Close the publisher if `close` was called during the wait; return whether it was."""
        if not self._closing or self._generation != fork_generation:
            return False
        if slot != MQ_NO_SLOT:
            mq_channel_give_back(&own.c, slot)
        try:
            self.close()
        finally:
            self._closing = False  # last: `_interrupt_wait` then returns
        return True

    cdef object _exhausted(self):
        """Say who holds the slots."""
        cdef uint64_t holders
        cdef OwnPool own = self._own
        cdef list held = [0] * MQ_VIEWERS
        for i in range(mq_channel_used(&own.c)):
            holders = mq_pin_holders(&own.c.slots, mq_channel_used_slot(&own.c, i))
            for viewer in range(MQ_VIEWERS):
                held[viewer] += holders >> viewer & 1
        who = [f"{self._hub.viewer(viewer)} holds {count}" for viewer, count in enumerate(held) if count]
        if own.lent:
            who.append(f"{own.lent} are lent here")
        text = (f"all {own.c.slots.slots} slots of this publisher are in use: {', '.join(who)}; release views sooner, "
                "give the publisher more slots, or a timeout to wait for one. Nothing was sent")
        return PoolExhaustedError(text, self.endpoint)

    cdef int _grow(self, uint64_t size) except -1:
        """Publish from a pool of larger slots from now on."""
        cdef OwnPool former = self._own, larger
        cdef uint64_t wanted = max(size, 2 * former.c.slots.slot_bytes)
        cdef uint64_t least = self._slots or 1
        if size > self._max_bytes:  # what is computed below does not overflow then
            text = f"a message of {size} bytes does not fit: the pool may have {self._max_bytes} (max_bytes)"
            raise MessageTooLargeError(text, self.endpoint)
        if (self._slots or FEW_SLOTS) * mq_pool_stride(wanted) > self._max_bytes:
            wanted = size
        if least * mq_pool_stride(wanted) > self._max_bytes:
            text = (f"a message of {size} bytes does not fit: {least} slots of it need {least * mq_pool_stride(size)} "
                    f"bytes, and the pool may have {self._max_bytes} (max_bytes)")
            raise MessageTooLargeError(text, self.endpoint)
        self._ticket = BUSY
        try:
            larger = enter_channel(self._hub, self.name, self._slots, wanted, self._max_bytes, False)
            if self._generation == fork_generation:
                self._replace(larger)
                mq_store_release_u64(&former.c.row.superseded, 1)
                former.superseded = True
                former.leave(True)
        finally:
            self._ticket = self._generation
        return self._refuse_inherited()

    def loan(self, size, /, *, timeout=0.0):
        cdef Loan loan = Loan.__new__(Loan)
        cdef uint64_t wanted
        require_time(timeout, self.endpoint)
        if size < 0:
            raise InvalidValueError(f"a message cannot have {size} bytes", self.endpoint)
        wanted = size  # may be Python code, as the comparison
        if self._ticket != fork_generation:
            self._refuse()
        if wanted > self._own.c.slots.slot_bytes:
            self._grow(wanted)
        slot = mq_channel_take(&self._own.c)
        loan._slot = self._take(timeout) if slot == MQ_NO_SLOT else slot
        loan._publisher, loan._own, loan._size, loan._generation = self, self._own, wanted, fork_generation
        loan._own.lent += 1
        mq_channel_payload(&loan._own.c, loan._slot)  # from now on its bytes may change
        return loan


@no_gc_clear  # __dealloc__ needs the pool
cdef class Loan:
    """See publisher.pyi."""

    def __cinit__(self):
        self._slot = MQ_NO_SLOT

    def __init__(self):
        raise TypeError("a loan comes from a publisher's loan()")

    def __dealloc__(self):  # each buffer keeps it, so none is left
        if self._slot != MQ_NO_SLOT and self._generation == fork_generation:
            self._own.drop(self._slot, False)

    def __len__(self):
        return self._size

    def __enter__(self):
        self._check()
        return self

    def __exit__(self, kind, *_):
        if self._over:
            return
        if kind is None:
            self.publish()
        else:
            self.discard()

    cdef int _check(self) except -1:
        if self._own is None:
            raise TypeError("a loan comes from a publisher's loan()")
        if self._over:
            raise StateError("a loan serves once; this one was published or discarded", self._publisher.endpoint)
        if self._generation != fork_generation:
            text = "the loan belongs to the parent process, which alone may write and publish it; take another one here"
            raise ForkedSocketError(text, self._publisher.endpoint)
        if self._publisher._ticket != fork_generation:
            self._publisher._refuse()
        return 0

    def publish(self, size=None):
        cdef uint64_t wanted = self._size if size is None else size
        self._check()
        cdef uint64_t slot = self._slot
        if wanted > self._size:
            raise InvalidValueError(f"the loan has {self._size} bytes, and {wanted} were to be published",
                                    self._publisher.endpoint)
        if self._exports:
            raise BufferError(f"{self._exports} buffers still look into this loan (a memoryview, an array), and could "
                              "change what was published; release or delete them first")
        self._over, self._slot = True, MQ_NO_SLOT
        try:
            self.position = self._publisher._publish(self._own, slot, wanted, self.origin_time)
        finally:
            self._own.returned(True)
        return self.position

    def discard(self):
        if self._over or self._own is None:
            return
        self._over = True
        if not self._exports and self._generation == fork_generation:  # else when the last buffer goes
            slot, self._slot = self._slot, MQ_NO_SLOT
            self._own.drop(slot, True)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        self._check()
        PyBuffer_FillInfo(buffer, self, mq_channel_payload(&self._own.c, self._slot), self._size, 0, flags)
        self._exports += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self._exports -= 1
