"""MessageQueue over shared memory: what it offers. How it takes part is in handle.pyx. See queue.pyi."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint64_t

from msgq.impl.base.context cimport CLOSED, LARGE_BYTES
from msgq.impl.base.core cimport mq_copy_out, mq_load_acquire_u64, mq_load_relaxed_u64, mq_now_ns
from msgq.impl.base.liveness cimport fork_generation
from msgq.impl.base.origin cimport current_origin
from msgq.impl.workqueue.core cimport (
    MQ_EVENT_RECEIVED, MQ_EVENT_TAKEN, MQ_LEASE_TICK_NS, MQ_QUEUE_NO_SLOT, MQ_SENDING, MQ_WORD_TAKEN, mq_lease_tick,
    mq_queue_bit_off, mq_queue_bit_on, mq_queue_commit, mq_queue_event_refused, mq_queue_event_sent, mq_queue_free,
    mq_queue_has_free, mq_queue_lease, mq_queue_note_taken, mq_queue_noted, mq_queue_parts, mq_queue_forward_room_wake,
    mq_queue_payload, mq_queue_return, mq_queue_taken, mq_queue_wake_receivers, mq_store_relaxed_u64, mq_word_is_ready,
    mq_word_kind_of, mq_word_priority,
)
from msgq.impl.workqueue.handle cimport NO_WAIT, Handle, Wait
from msgq.impl.workqueue.job cimport new_job
from msgq.impl.workqueue.message cimport new_message
from msgq.impl.workqueue.queuefile import unlink_queue

from msgq.common import naming
from msgq.errors import IpcError, QueueBusyError
from msgq.impl.workqueue import options


cdef extern from "workqueue/peek.h" nogil:
    ctypedef struct mq_queue_waiting:
        uint64_t place, word, length, deliveries, sent_time, origin_time
    bint mq_peek_look(const mq_queue_parts *parts, uint64_t place, mq_queue_waiting *it)
    bint mq_peek_copy(const mq_queue_parts *parts, const mq_queue_waiting *it, uint8_t *room)


def _reopened(name, prefix, trust, read, write, block):
    """Return a handle for one that was pickled."""
    queue = MessageQueue(name, 0, read=read, write=write, prefix=prefix, trust=trust)
    queue.block = block
    return queue


cdef int look_through(message, Py_buffer *view) except -1:
    """Get the bytes of a message."""
    if not PyBytes_CheckExact(message):
        options.refuse_objects(message)
    PyObject_GetBuffer(message, view, PyBUF_SIMPLE)
    return 0


cdef uint64_t rank_of(priority, str name) except? 0:
    """Return a priority that is possible."""
    return 0 if type(priority) is int and not priority else options.checked_priority(priority, name)


cdef uint64_t time_of(origin_time, str name) except? 0:
    """Return an origin time that is possible."""
    return 0 if type(origin_time) is int and not origin_time else options.checked_origin_time(origin_time, name)


@cython.no_gc_clear  # as its base
cdef class MessageQueue(Handle):
    """See queue.pyi."""

    def __repr__(self):
        if self._ticket == CLOSED:
            return f"<msgq MessageQueue {self._endpoint!r}, closed>"
        return f"<msgq MessageQueue {self._endpoint!r}, {self.current_messages} of {self.max_messages} messages>"

    def __reduce__(self):
        return _reopened, (self._endpoint, self._file.prefix, self._file.trust, self._reads, self._writes, self.block)

    def unlink(self):
        with naming.overrides(trust=self._file.trust):
            unlink_queue(self._endpoint, self._file.prefix)

    @staticmethod
    def unlink_name(name, prefix=None):
        unlink_queue(naming.queue_name(name), naming.resolve_prefix(prefix))

    # ---- what is known ----

    @property
    def name(self):
        return self._endpoint

    @property
    def prefix(self):
        return self._file.prefix

    @property
    def path(self):
        return self._file.path

    @property
    def mode(self):
        return self._file.mode

    @property
    def max_messages(self):
        return self._h.parts.max_messages

    @property
    def max_message_size(self):
        return self._h.parts.max_message_size

    @property
    def events(self):
        return options.EVENTS[self._h.parts.events]

    @property
    def schema(self):
        return self._file.schema

    @property
    def identity(self):
        """What no other queue has: its file's device and inode."""
        return self._file.segment.roll.device, self._file.segment.roll.inode

    @property
    def current_messages(self):
        cdef uint64_t place, count = 0
        self._enter()
        for place in range(self._h.parts.max_messages):
            count += mq_word_is_ready(mq_load_relaxed_u64(&self._h.parts.words[place]))
        return count

    @property
    def in_flight(self):
        cdef uint64_t place, count = 0
        self._enter()
        for place in range(self._h.parts.max_messages):
            count += mq_word_kind_of(mq_load_relaxed_u64(&self._h.parts.words[place])) == MQ_WORD_TAKEN
        return count

    # ---- sending ----

    def send(self, message, priority=0, *, timeout=None, deadline=None, origin_time=0):
        cdef Py_buffer view
        cdef int64_t until
        cdef uint64_t rank = rank_of(priority, self._endpoint)
        cdef uint64_t origin = time_of(origin_time, self._endpoint)
        look_through(message, &view)
        try:
            self._need_write()
            until = self._until(timeout, deadline)
            if self._h.log != NULL:
                self._prepare(True)
            if not self._send(&view, rank, origin, until):
                raise options.full_error(self._h.parts.max_messages, until != NO_WAIT, self._endpoint)
            mq_queue_wake_receivers(self._h.parts.queue, 1)
        finally:
            PyBuffer_Release(&view)

    cdef bint _send(self, const Py_buffer *view, uint64_t rank, uint64_t origin, int64_t until) except -1:
        """Send, and wake nobody; False: there was no room in time."""
        cdef int64_t place
        cdef uint64_t key, sent_time
        if <uint64_t> view.len > self._h.parts.max_message_size:
            raise options.too_large_error(view.len, self._h.parts.max_message_size, self._endpoint)
        place = self._find_room(until)
        if place == MQ_QUEUE_NO_SLOT:
            if self._h.log != NULL:
                self._tell_refused(view, rank, origin or current_origin())
            return False
        self._fill(place, view.buf, view.len)
        sent_time, origin = mq_now_ns() + self._h.clock_offset, origin or current_origin()
        key = mq_queue_commit(&self._h, place, view.len, rank, sent_time, origin)
        self._file.check_whole()  # afterwards: a page that was cut off is found when it is touched
        if self._h.log != NULL:
            self._tell_sent(view, key, place, sent_time, origin)
        return True

    cdef void _tell_sent(self, const Py_buffer *view, uint64_t key, uint64_t place, int64_t sent_time,
                         uint64_t origin) noexcept:
        """Publish that a message was sent. Others may have it by now."""
        cdef mq_queue_noted noted = mq_queue_event_sent(&self._outlet.log.c, key, place, view.len, sent_time, origin)
        if view.len < LARGE_BYTES:
            self._outlet.tell(&noted, view)
            return
        self._begin()  # it may be copied without the GIL
        self._outlet.tell(&noted, view)
        self._end()

    cdef void _tell_refused(self, const Py_buffer *view, uint64_t rank, uint64_t origin) noexcept:
        """Publish that there was no room for a message."""
        cdef mq_queue_noted noted = mq_queue_event_refused(&self._outlet.log.c, rank, view.len, origin)
        self._outlet.tell(&noted, NULL)

    def send_many(self, messages, priority=0, *, timeout=None, deadline=None):
        cdef uint64_t rank = rank_of(priority, self._endpoint)
        cdef int count = 0
        cdef Py_buffer view
        cdef bint at_once = isinstance(messages, (list, tuple))  # else the next message may be long in coming
        self._need_write()
        cdef int64_t until = self._until(timeout, deadline)
        try:
            for message in messages:
                look_through(message, &view)
                try:
                    self._need_write()  # all that was Python code
                    if self._h.log != NULL:
                        self._prepare(True)
                    if not self._send(&view, rank, 0, until):
                        break
                    count, self._unwoken = count + 1, self._unwoken + 1
                    if not at_once:
                        self._wake()
                finally:
                    PyBuffer_Release(&view)
        finally:
            self._wake()
        return count

    def wait_space(self, timeout=None, *, deadline=None):
        self._need_write()
        cdef int64_t until = self._until(timeout, deadline)
        cdef bint there = mq_queue_has_free(&self._h.parts)
        cdef Wait wait = None if there or until == NO_WAIT else self._new_wait(MQ_SENDING, False)
        while not there:
            self._file.check_whole()
            self._h.met = True
            in_time = wait is not None and self._sleep(wait, until)
            self._enter()
            if not in_time:
                self._sweep(mq_now_ns())
            there = mq_queue_has_free(&self._h.parts)
            if not in_time:
                break
        if there:
            mq_queue_forward_room_wake(&self._h)  # we only looked: the wake may have been for one who sends
        return there

    # ---- receiving ----

    def receive(self, timeout=None, *, deadline=None):
        cdef mq_queue_taken taken
        cdef bytes data
        made = None
        while self._find(&taken, timeout, deadline):
            data = self._copy(&taken)
            made = new_message(data, mq_word_priority(taken.key), taken.deliveries, taken.sent_time,
                               taken.origin_time)
            if mq_queue_free(&self._h, &taken):  # last, for there may be no memory for the others
                if self._h.log != NULL:
                    self._tell_taken(MQ_EVENT_RECEIVED, &taken)
                break
            made = None
        if self._fd >= 0:
            self._settle_fd()
        return made

    def receive_into(self, buffer, timeout=None, *, deadline=None):
        cdef mq_queue_taken taken
        cdef Py_buffer view
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            while self._find(&taken, timeout, deadline):
                if taken.length > <uint64_t> view.len:
                    self._put_back_untouched(taken)
                    raise options.too_small_error(taken.length, view.len, self._endpoint)
                mq_copy_out(view.buf, mq_queue_payload(&self._h, taken.place), taken.length)
                self._file.check_whole()
                if mq_queue_free(&self._h, &taken):
                    if self._h.log != NULL:
                        self._tell_taken(MQ_EVENT_RECEIVED, &taken)
                    return taken.length, mq_word_priority(taken.key)
            return None
        finally:
            PyBuffer_Release(&view)
            if self._fd >= 0 and self._ticket == fork_generation:
                self._settle_fd()

    cdef void _put_back_untouched(self, mq_queue_taken taken) noexcept:
        """Return a message that nobody has seen."""
        if self._h.log != NULL:
            mq_queue_note_taken(&self._h, MQ_EVENT_TAKEN, &taken)
        mq_store_relaxed_u64(&self._h.parts.heads[taken.place].deliveries, taken.deliveries - 1)
        mq_queue_return(&self._h, taken.place, taken.word)
        if self._h.log != NULL:
            self._tell()

    def receive_many(self, limit=None):
        cdef uint64_t most = options.checked_limit(limit, self._endpoint)
        cdef list messages = []
        self._need_read()
        most = min(most, self.current_messages)  # not what comes meanwhile: that may never end
        while <uint64_t> len(messages) < most:
            try:
                message = self.receive(0.0)
            except (IpcError, MemoryError):  # it was closed in another thread, for example: what we have is ours
                if not messages:
                    raise
                break
            if message is None:
                break
            messages.append(message)
        return messages

    cdef void _lease(self, const mq_queue_taken *taken, int64_t until) noexcept:
        mq_queue_lease(&self._h, taken, mq_lease_tick(until + self._h.clock_offset) + 1)
        self._lease_ends_ns = min(self._lease_ends_ns, until + 2 * MQ_LEASE_TICK_NS)

    def take(self, timeout=None, *, deadline=None, lease=None):
        cdef mq_queue_taken taken
        cdef int64_t lease_ns = options.lease_ns(lease, self._endpoint)
        job = None
        if self._find(&taken, timeout, deadline):
            if self._h.log != NULL:
                self._tell_taken(MQ_EVENT_TAKEN, &taken)
            job = new_job(self, &taken)
            self._enter()  # a finalizer may have closed it just now: then the message is back
            if lease_ns:
                self._lease(&taken, mq_now_ns() + lease_ns)
        if self._fd >= 0:
            self._settle_fd()
        return job

    def __iter__(self):
        return self

    def __next__(self):
        message = self.receive()
        if message is None:  # it does not block
            raise StopIteration
        return message

    def arecv(self):
        from msgq.impl.base import event_loop  # asyncio takes as long to import as all the rest
        self._need_read()
        return event_loop.receive_in_turn(self)

    def areceive(self):
        return self.arecv()

    # ---- looking on, and being told ----

    def peek(self, limit=None):
        cdef uint64_t place, most = options.checked_limit(limit, self._endpoint)
        self._need_read()
        waiting = []
        for place in range(self._h.parts.max_messages):
            word = mq_load_acquire_u64(&self._h.parts.words[place])
            if mq_word_is_ready(word):
                waiting.append((word, place))
        waiting.sort(key=lambda pair: (-pair[0], pair[1]))
        seen = []
        for word, place in waiting:
            if <uint64_t> len(seen) >= most:
                break
            message = self._peek(place, word)
            if message is not None:
                seen.append(message)
        return seen

    cdef object _peek(self, uint64_t place, uint64_t word):
        """Copy a message that waits; None: somebody has taken it meanwhile, or it makes no sense."""
        cdef mq_queue_waiting it
        if not mq_peek_look(&self._h.parts, place, &it) or it.word != word:
            return None  # of what makes no sense whoever takes it is told
        data = PyBytes_FromStringAndSize(NULL, it.length)
        if not mq_peek_copy(&self._h.parts, &it, <uint8_t *> PyBytes_AS_STRING(data)):
            return None
        return new_message(data, mq_word_priority(word), it.deliveries, it.sent_time, it.origin_time)

    def notify(self, how, once=False, *, exclusive=False):
        from msgq.impl.workqueue import notify  # a thread, which few need
        from msgq.impl.workqueue.notice import Notice, exclusive_notice
        wanted = None if how is None else options.notification(how, self._endpoint)
        self._enter()
        self._forget(self._told)
        if wanted is None:
            self._wish(False)
            return
        notice = exclusive_notice(self) if exclusive else Notice(self)
        if notice is None:
            raise QueueBusyError("another process is told already when a message comes to this queue", self._endpoint)
        try:
            told = notify.Registration(self, notice, how, wanted, once)
        except BaseException:
            self._wish(self._told is not None)
            raise
        if self._ticket == CLOSED:  # in another thread, which did not know of this one
            told.cancel()
        self._enter()
        self._forget(self._told)  # of another thread, that was as fast
        self._told = told
        self._wish(True)

    cdef int _wish(self, bint told) except -1:
        """Set the row's bit, which is one for all that this handle ever asked for; a closed one has no row."""
        if self._ticket != fork_generation:
            return 0
        if told:
            mq_queue_bit_on(&self._h.parts.queue.notified, self._h.number)
        else:
            mq_queue_bit_off(&self._h.parts.queue.notified, self._h.number)
        return 0

    def _forget(self, told):
        """Be told no more, by this one."""
        if told is not None and self._told is told:
            self._told = None
            self._wish(False)  # at once: while the rest is done, another thread may ask anew
            told.cancel()
