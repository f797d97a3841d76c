"""An open queue, the base of MessageQueue: joins, leaves and waits, by the steps of sender.h, receiver.h, recovery.h.

Any thread may use a handle, also several at the same time: Python's lock is held wherever the handle's own fields are
used. A thread that waits, or copies without the lock, is one of its users (`_begin`, `_end`); a handle that is closed
is left when the last of them is gone.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset
from posix.unistd cimport usleep

from msgq.impl.base.clock cimport host_offset_ns
from msgq.impl.base.context cimport CLOSED, LARGE_BYTES, check_real, misuse, remember
from msgq.impl.base.core cimport (
    MQ_NO_ROW, mq_clock_ns, mq_copy_in, mq_copy_out, mq_futex_wake_all, mq_futex_word, mq_load_relaxed_u64, mq_poll_ops,
    mq_now_ns, mq_row_table, mq_row_table_reserve, mq_self, mq_u32,
)
from msgq.impl.base.liveness cimport fork_generation, identify, new_uid
from msgq.impl.base.segment cimport unlock_file
from msgq.impl.base.waiting cimport FOR_EVER, Waitable, wait_ready, watcher_lock, watcher_unlock
from msgq.impl.workqueue.core cimport (
    MQ_EVENT_RECEIVED, MQ_QUEUE_NO_SLOT, MQ_NO_TICKET, MQ_QUEUE_EMPTY, MQ_QUEUE_RECOVER_NS,
    MQ_QUEUE_RECOVER_BUSY_NS, MQ_QUEUE_OK, MQ_QUEUE_OVERTAKEN_MAX, MQ_QUEUE_ROWS, MQ_RECEIVING, MQ_SENDING,
    MQ_WATCHING, mq_queue_count, mq_queue_event_kind, mq_queue_cache_invalidate_all, mq_queue_free,
    mq_queue_finish_sleep, mq_queue_has_ready, mq_queue_hold, mq_queue_join, mq_queue_leave, mq_queue_recover,
    mq_queue_block_cache, mq_queue_note_taken, mq_queue_poll_prepare_wait, mq_queue_poll_end_wait,
    mq_queue_poll_has_more, mq_queue_debt_add, mq_queue_debt_clear, mq_queue_forward_message_wake,
    mq_queue_forward_room_wake, mq_queue_payload, mq_queue_return, mq_queue_row_table, mq_queue_sleep,
    mq_queue_eventcount, mq_queue_reclaim_due, mq_queue_take, mq_queue_notify_if_not_empty, mq_queue_unwatch,
    mq_queue_wait_begin, mq_queue_wait_end, mq_queue_wait_is_over, mq_queue_wait_lie_down, mq_queue_wait_nap,
    mq_queue_wait_overtaken, mq_queue_wake_receivers, mq_queue_watch, mq_store_relaxed_u64,
)
from msgq.impl.workqueue.events cimport new_outlet
from msgq.impl.workqueue.queuefile cimport QueueFile, queue_file

from msgq.common import naming
from msgq.errors import CorruptSegmentError
from msgq.impl.workqueue import options


cdef extern from "time.h" nogil:
    enum:
        CLOCK_MONOTONIC_COARSE


@cython.no_gc_clear  # __dealloc__ needs the mapping
cdef class Handle(Waitable):
    """See handle.pxd."""

    def __cinit__(self, name, flags=None, mode=None, max_messages=None, max_message_size=None, *, read=True,
                  write=True, schema=None, prefix=None, trust=None, spin_us=None, events=None):
        cdef QueueFile file
        wanted = options.opening(name, flags, mode, max_messages, max_message_size, read, write, events)
        self._endpoint, self._reads, self._writes, self.block = wanted.name, read, write, wanted.block
        self._spin_us = naming.spin_us(spin_us, wanted.name, options.SPIN_US)
        options.check_schema(schema, wanted.name)
        check_real(wanted.name)
        in_prefix = naming.resolve_prefix(prefix)
        self._h.clock_offset = host_offset_ns()
        while True:
            with naming.overrides(trust=trust):
                file = queue_file(wanted.name, in_prefix, trust, wanted)
                file.obtain(wanted.create, wanted.mode)
                self._adopt(file, schema)
            self._join()
            if self._file.has_name():
                break
            self._give_back()  # it was removed before anybody could see that we have it open
        remember(self)

    cdef int _adopt(self, QueueFile file, schema) except -1:
        self._file, self._h.parts, self._h.roll = file, file.parts, file.roll()
        PyMem_Free(self._h.blocks)
        self._h.blocks = <mq_queue_block_cache *> PyMem_Calloc(file.parts.blocks, sizeof(mq_queue_block_cache))
        if self._h.blocks == NULL:
            raise MemoryError()
        self._outlet = new_outlet(file)
        self._h.log = &self._outlet.log.c if self._outlet is not None else NULL
        if schema is not None:
            file.describe(schema)
        return 0

    def __del__(self):
        # Not in __dealloc__: there the weak reference of the thread that tells gives it a handle that is just freed.
        told, self._told = self._told, None
        if told is not None and self._generation == fork_generation:
            told.cancel()

    def __dealloc__(self):
        if self._joined and self._generation == fork_generation:
            self._leave()
        PyMem_Free(self._h.blocks)

    # ---- coming and going ----

    cdef int _join(self) except -1:
        """Take a row, here or in a forked child; then bring back what its dead owners had."""
        cdef mq_self us
        cdef mq_row_table roster = mq_queue_row_table(self._h.parts.queue)
        cdef int row, ticket = self._ticket, fd = self._file.lock()
        if self._ticket != ticket:  # another thread, or a signal handler, joined or closed it while we waited
            unlock_file(fd)
            return self._enter()
        try:
            identify(&us, NULL)
            self._waits, self._threads, self._held = [], [], NULL
            self._fd, self._waiting, self._closing, self._told = -1, None, False, None
            memset(self._asleep, 0, sizeof(self._asleep))
            memset(&self._outlook, 0, sizeof(self._outlook))
            row = mq_row_table_reserve(&roster, self._h.roll, &self._held)
            if row == MQ_NO_ROW:
                raise options.handles_error(self._endpoint)
            self._uid = new_uid()
            mq_queue_join(&self._h, row, &us, self._uid, self._held != NULL)
        finally:
            unlock_file(fd)
        self._h.next = row * (self._h.parts.max_messages // MQ_QUEUE_ROWS)
        self._outlook.h = self._h
        if self._outlet is not None:
            self._outlet.restart(&self._h)
            self._outlook.h.log = &self._outlet.watched.c
        self._generation, self._joined = fork_generation, True
        self._ticket = fork_generation
        self._sweep(mq_now_ns())
        return 0

    cdef int _enter(self) except -1:
        if self._ticket != fork_generation:
            self._refuse()
        return 0

    cdef int _refuse(self) except -1:
        """Raise when it was closed; in a forked child take a row of one's own: descriptors are inherited, too."""
        if self._ticket == CLOSED:
            raise misuse(CLOSED, self._endpoint)
        return self._join()

    cdef void _begin(self) noexcept:
        self._threads.append(PyThread_get_thread_ident())

    cdef void _end(self) noexcept:
        if PyThread_get_thread_ident() in self._threads:  # not in a child, forked by a handler that used it
            self._threads.remove(PyThread_get_thread_ident())

    cdef void _occupy(self) noexcept:
        self._begin()  # others may use it meanwhile

    cdef void _vacate(self) noexcept:
        self._end()

    def close(self):
        cdef Wait wait
        self._ticket = CLOSED
        if self._generation != fork_generation:
            self._joined = False  # in a forked child the row is the parent's
            return
        self._closing = True
        while self._threads:
            for wait in self._waits:
                wait._closing = True
            self._rouse()
            if PyThread_get_thread_ident() in self._threads:
                return  # in a signal handler, on top of our own wait: that leaves
            with nogil:
                usleep(200)
            PyErr_CheckSignals()
        self._leave()

    cdef void _rouse(self) noexcept:
        for kind in (MQ_RECEIVING, MQ_WATCHING, MQ_SENDING):
            mq_futex_wake_all(mq_futex_word(mq_queue_eventcount(&self._h, kind)))

    cdef int _leave(self) except -1:
        if self._threads or not self._joined:
            return 0
        return Waitable._leave(self)

    cdef int _give_back(self) except -1:
        self._joined = False
        told, self._told = self._told, None
        try:
            if told is not None:
                told.cancel()
        finally:  # a signal's handler may raise there
            mq_queue_leave(&self._h, self._uid, &self._held)
            if self._h.log != NULL:
                self._outlet.tell_noted()
                self._outlet.close()
        return 0

    def _close_at_exit(self):
        if self._joined and self._generation == fork_generation:
            self.close()

    # ---- waiting ----

    cdef bint _is_cut(self) noexcept:
        """Return whether the file was truncated, so that a wait ends with an error."""
        return self._file.whole != NULL and mq_load_relaxed_u64(self._file.whole) != 1

    cdef uint64_t _oldest(self, mq_queue_sleep kind) noexcept:
        """Return the smallest ticket of the threads that wait in this handle."""
        cdef Wait wait
        cdef uint64_t oldest = MQ_NO_TICKET
        for wait in self._waits:
            if wait._c.kind == kind:
                oldest = min(oldest, wait._c.ticket)
        return oldest

    cdef int _sweep(self, int64_t now) except -1:
        """Bring back what the dead left, and what leases gave up."""
        mq_queue_cache_invalidate_all(&self._h)  # a stranger may have put back what we remember a block by
        self._lease_ends_ns = now + mq_queue_recover(&self._h, now)
        if self._h.log != NULL and self._outlet.has_noted():
            self._prepare(False)
            self._tell()
        return 0

    cdef int64_t _doze_ns(self) except -2:
        """How long to sleep at most; before that, look for the dead if it is time."""
        cdef int64_t now = mq_now_ns()
        if mq_queue_reclaim_due(&self._h, now):
            self._sweep(now)
        elif self._h.met:
            return MQ_QUEUE_RECOVER_BUSY_NS  # then it is time, and we know when the first lease ends
        return min(<int64_t> MQ_QUEUE_RECOVER_NS, max(self._lease_ends_ns - now, <int64_t> MQ_QUEUE_RECOVER_BUSY_NS))

    cdef Wait _new_wait(self, mq_queue_sleep kind, bint takes):
        """Begin a wait; the caller ends it with Wait._end. `takes`: it takes the message (or place) of its wake."""
        cdef Wait wait = Wait.__new__(Wait)
        wait._queue, wait._endpoint, wait._spin_us = self, self._endpoint, self._spin_us
        wait._ticket = wait._generation = fork_generation
        wait._signals_end = self.signals_end_waits
        wait._c = mq_queue_wait_begin(&self._h, kind, takes)
        return wait

    cdef bint _sleep(self, Wait wait, int64_t until) except -1:
        """Sleep until there may be a message, or room; False: the time is over. A signal handler may run, and fork."""
        cdef mq_queue_sleep kind = wait._c.kind
        if until != FOR_EVER and mq_now_ns() >= until:
            return False  # there may always be something that others take before us
        if wait._generation != fork_generation:  # after a fork in a handler, the ticket is the parent's
            wait._c = mq_queue_wait_begin(&self._h, kind, wait._c.takes)
        wait._ticket = wait._generation = fork_generation
        wait._closing = False
        if wait._c.overtaken >= MQ_QUEUE_OVERTAKEN_MAX:
            wait._spin_us = 0  # a spin announces nothing, so it takes no turn
        self._waits.append(wait)
        self._begin()
        try:
            return wait_ready([wait], until)
        except BaseException:
            if wait._generation == fork_generation:  # the wake may have been for us
                if kind == MQ_RECEIVING:
                    mq_queue_forward_message_wake(&self._h)
                    mq_queue_debt_clear(self._h.row, 1)
                else:
                    mq_queue_forward_room_wake(&self._h)
            raise
        finally:
            if wait._generation == fork_generation:
                self._waits.remove(wait)
                if self._asleep[<int> kind]:  # other threads sleep
                    mq_store_relaxed_u64(&self._h.row.since[<int> kind], self._oldest(kind))
                self._end()
                if self._closing:
                    self._leave()

    cdef int64_t _until(self, timeout, deadline) except -2:
        """When a call gives up, in CLOCK_MONOTONIC ns; NO_WAIT, or FOR_EVER."""
        cdef int64_t patience
        if timeout is None and deadline is None:
            return FOR_EVER if self.block else NO_WAIT
        if deadline is None and type(timeout) in (int, float) and timeout == 0:  # most of all
            return NO_WAIT
        patience = options.patience_ns(timeout, deadline, self.block, self._endpoint)
        self._enter()  # the arguments may be of any kind, and run anything
        return mq_now_ns() + patience if patience > 0 else patience

    # ---- events, where self._h.log is not NULL ----

    cdef int _prepare(self, bint sends) except -1:
        """Open the channel of events if it is needed: before anything changes, for a signal's handler may raise."""
        if self._outlet.is_ready(sends):
            return 0
        self._begin()
        try:
            self._outlet.open(sends)
        finally:
            self._end()
            if self._closing:
                self._leave()
        return self._enter()

    cdef int _prepare_to_take(self) except -1:
        """Open the channel of events if there is something to be told soon; who finds nothing takes no place there."""
        if not self._outlet.is_ready(False) and (mq_queue_has_ready(&self._h.parts) or self._outlet.has_noted()):
            self._prepare(False)
        self._tell()
        return 0

    cdef void _tell(self) noexcept:
        """Publish what was noted."""
        self._outlet.tell_noted()

    cdef void _tell_taken(self, mq_queue_event_kind kind, const mq_queue_taken *taken) noexcept:
        """Publish what was done to a message that was taken."""
        mq_queue_note_taken(&self._h, kind, taken)
        self._outlet.tell_noted()

    # What is asked of it when it is watched: by a Poller, an event loop.

    cdef bint _has_more(self) noexcept:
        return self._is_cut() or mq_queue_has_ready(&self._h.parts)

    cdef mq_u32 *_word(self) noexcept:
        return mq_queue_eventcount(&self._h, MQ_WATCHING)

    cdef uint32_t _announce(self) noexcept:
        watcher_lock()
        expected = mq_queue_watch(&self._outlook)
        watcher_unlock()
        return expected

    cdef void _awake(self) noexcept:
        watcher_lock()
        mq_queue_unwatch(&self._outlook)
        watcher_unlock()

    cdef void _announce_fd(self) noexcept:
        watcher_lock()
        mq_queue_poll_prepare_wait(&self._outlook, self._word())
        watcher_unlock()

    cdef int64_t _nap_ns(self, int64_t slept_ns) except -2:
        if not slept_ns and self._h.met:  # for the watcher, who keeps to the answer: it shall be when a lease ends
            self._sweep(mq_now_ns())
            self._h.met = False
        return self._doze_ns()

    cdef mq_poll_ops _lookout(self) noexcept:
        return mq_poll_ops(mq_queue_poll_has_more, &self._outlook, self._word(), mq_queue_poll_prepare_wait,
                           mq_queue_poll_end_wait, True)

    cdef bint _ready(self) except -1:
        self._need_read()
        return self._has_more()

    def fileno(self):
        self._need_read()
        return Waitable.fileno(self)

    # ---- places ----

    cdef int _need_write(self) except -1:
        self._enter()
        if not self._writes:
            raise options.access_error("write", self._endpoint)
        return 0

    cdef void _wake(self) noexcept:
        """Wake receivers for what was sent in one go."""
        if self._unwoken and self._joined:
            mq_queue_wake_receivers(self._h.parts.queue, self._unwoken)
        self._unwoken = 0

    cdef int64_t _find_room(self, int64_t until) except -2:
        """A place to fill; MQ_QUEUE_NO_SLOT: there was none in time."""
        cdef int64_t now, place = mq_queue_hold(&self._h, MQ_NO_TICKET)
        if place != MQ_QUEUE_NO_SLOT:
            return place
        self._wake()  # before we wait for them
        self._file.check_whole()
        self._h.met = True  # every place is somebody's
        now = mq_now_ns()
        if mq_queue_reclaim_due(&self._h, now):
            self._sweep(now)
            place = mq_queue_hold(&self._h, MQ_NO_TICKET)
        if place == MQ_QUEUE_NO_SLOT and until != NO_WAIT:
            place = self._await_room(until)
        if place == MQ_QUEUE_NO_SLOT:
            mq_queue_count(&self._h.row.counts.refused, 1)
        return place

    cdef int64_t _await_room(self, int64_t until) except -2:
        """Sleep until there is a place to fill, and take it; MQ_QUEUE_NO_SLOT at the time-out."""
        cdef int64_t place
        cdef Wait wait = self._new_wait(MQ_SENDING, True)
        try:
            while True:
                in_time = self._sleep(wait, until)
                self._enter()  # a signal handler may have closed it, or forked
                self._file.check_whole()
                place = mq_queue_hold(&self._h, wait._c.ticket)
                if place != MQ_QUEUE_NO_SLOT or not in_time:
                    return place
                self._h.met = True
                mq_queue_wait_overtaken(&wait._c)
        finally:
            wait._end()

    cdef int _fill(self, uint64_t place, const void *source, uint64_t size) noexcept:
        cdef void *room = mq_queue_payload(&self._h, place)
        if size < LARGE_BYTES:
            mq_copy_in(room, source, size)
            return 0
        self._begin()
        with nogil:
            mq_copy_in(room, source, size)
        self._end()
        return 0

    cdef int _need_read(self) except -1:
        self._enter()
        if not self._reads:
            raise options.access_error("read", self._endpoint)
        return 0

    cdef bint _look(self, uint64_t ticket, mq_queue_taken *taken) except -1:
        """Take the best message; False: there is none."""
        cdef int64_t now = mq_clock_ns(CLOCK_MONOTONIC_COARSE)  # 4 ms old at most, 20 ns faster
        if self._h.log != NULL:
            self._prepare_to_take()
        if mq_queue_reclaim_due(&self._h, now):
            self._sweep(now)
        status = mq_queue_take(&self._h, ticket, taken)
        if status == MQ_QUEUE_EMPTY and mq_queue_reclaim_due(&self._h, now):
            self._sweep(now)
            status = mq_queue_take(&self._h, ticket, taken)
        if status == MQ_QUEUE_OK:
            if self._outlook.ticket:
                watcher_lock()
                self._outlook.ticket = 0  # other watchers have waited longer now
                watcher_unlock()
            return True
        self._file.check_whole()
        if status == MQ_QUEUE_EMPTY:
            return False
        if not taken.word:
            raise CorruptSegmentError("its words change without end: another program writes there", self._endpoint,
                                      self._file.path)
        if mq_queue_free(&self._h, taken) and self._h.log != NULL:
            self._tell_taken(MQ_EVENT_RECEIVED, taken)
        text = f"a message of {taken.length} bytes was there, more than it can hold: another program wrote there"
        raise CorruptSegmentError(text, self._endpoint, self._file.path)

    cdef bint _find(self, mq_queue_taken *taken, timeout, deadline) except -1:
        """Take the best message, waiting for it; False: there was none in time."""
        cdef int64_t until
        self._need_read()
        until = self._until(timeout, deadline)
        if self._look(MQ_NO_TICKET, taken):
            return True
        return until != NO_WAIT and self._await_message(taken, until)

    cdef bint _await_message(self, mq_queue_taken *taken, int64_t until) except -1:
        """Sleep until there is a message, and take it; False at the time-out."""
        cdef uint64_t uid
        cdef Wait wait = self._new_wait(MQ_RECEIVING, True)
        try:
            while True:
                uid = self._uid
                mq_queue_debt_add(self._h.row, 1)  # senders leave notifications to this waiter
                in_time = self._sleep(wait, until)
                self._enter()  # a signal handler may have closed it, or forked
                found = self._look(wait._c.ticket, taken)
                if found:
                    mq_queue_notify_if_not_empty(&self._h.parts)
                if uid == self._uid:
                    mq_queue_debt_clear(self._h.row, 1)
                if found or not in_time:
                    return found
                mq_queue_cache_invalidate_all(&self._h)  # the cache is wrong if another program wrote words
                mq_queue_wait_overtaken(&wait._c)
        finally:
            wait._end()

    cdef bytes _copy(self, const mq_queue_taken *taken):
        """Copy a taken message; if there is no memory for that, it goes back."""
        cdef bytes out
        cdef char *target
        cdef const void *source = mq_queue_payload(&self._h, taken.place)
        try:
            out = PyBytes_FromStringAndSize(NULL, taken.length)
        except MemoryError:
            mq_queue_return(&self._h, taken.place, taken.word)
            raise
        target = PyBytes_AS_STRING(out)
        if taken.length < LARGE_BYTES:
            mq_copy_out(target, source, taken.length)
        else:
            self._begin()
            with nogil:
                mq_copy_out(target, source, taken.length)
            self._end()
        self._file.check_whole()  # afterwards: a page that was cut off is found when it is touched
        return out


@cython.no_gc_clear  # the queue is needed to the last
cdef class Wait(Waitable):
    """See handle.pxd."""

    cdef bint _has_more(self) noexcept:
        return self._queue._is_cut() or mq_queue_wait_is_over(&self._queue._h, &self._c)

    cdef mq_u32 *_word(self) noexcept:
        return mq_queue_eventcount(&self._queue._h, self._c.kind)

    cdef uint32_t _announce(self) noexcept:
        self._queue._asleep[<int> self._c.kind] += 1
        return mq_queue_wait_lie_down(&self._queue._h, &self._c, self._queue._oldest(self._c.kind))

    cdef void _awake(self) noexcept:
        if self._generation == fork_generation:
            self._queue._asleep[<int> self._c.kind] -= 1
            if not self._queue._asleep[<int> self._c.kind]:
                mq_queue_finish_sleep(&self._queue._h, self._c.kind)

    cdef int64_t _nap_ns(self, int64_t slept_ns) except -2:
        return mq_queue_wait_nap(&self._queue._h, &self._c, self._queue._doze_ns())

    cdef void _end(self) noexcept:
        """End the wait, and its turn if it has one."""
        if self._generation == fork_generation and self._queue._joined:
            mq_queue_wait_end(&self._queue._h, &self._c)
