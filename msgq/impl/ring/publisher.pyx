"""The publisher's socket: a Python face on publisher.h.

Every call compares the socket's ticket with the fork generation first. One comparison finds a closed socket, a socket
that another thread is using, a socket with an open reservation, and a socket that came through a fork.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_ND, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject_GenericSetAttr
from libc.errno cimport ENOSPC
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset
from posix.unistd cimport usleep

from msgq.impl.ground.clock cimport host_offset_ns
from msgq.impl.ground.context cimport BUSY, CLOSED, LARGE_BYTES, RESERVED, Context, check_open, misuse, remember
from msgq.impl.ground.core cimport MQ_DEAD, mq_copy_in, mq_now_ns, mq_schema_parts, mq_self, mq_thread_life
from msgq.impl.ground.descriptor cimport write_schema
from msgq.impl.ground.origin cimport current_origin, new_origin, prepare_origins
from msgq.impl.ring.core cimport (
    MQ_BRIDGE_NAME, MQ_NOTIFY, MQ_NO_MEMORY, MQ_NO_ROW, MQ_OK, MQ_RING_HEADER, MQ_TOO_LARGE, MQ_TRACK_AS_IT_IS,
    MQ_TRACK_NO, MQ_TRACK_YES, MQ_UNTRACKED, mq_can_track, mq_file_shrank, mq_is_whole, mq_need_max,
    mq_other_send_in_progress, mq_publisher_back, mq_publisher_begin, mq_publisher_claim, mq_publisher_close,
    mq_publisher_commit, mq_publisher_current_pid, mq_publisher_discard, mq_publisher_disown,
    mq_publisher_entry,
    mq_publisher_has_room, mq_publisher_notify, mq_publisher_pid, mq_publisher_row_take, mq_publisher_send,
    mq_publisher_send_tracked, mq_publisher_stage, mq_publisher_stage_rows,
    mq_publisher_start, mq_publisher_survey, mq_publisher_unclaim, mq_readers_count, mq_ring_header,
    mq_side, mq_side_schema, mq_stamps, mq_stamps_put,
)
from msgq.impl.ground.liveness cimport fork_generation, identify, random_word
from msgq.impl.ring.topic cimport latest, open_topic, resized, Topic
from msgq.impl.ground.segment cimport failure
from msgq.impl.ground.wake cimport can_order_stores

from collections.abc import Iterator

from msgq import naming
from msgq.errors import (
    CorruptSegmentError, ForkedSocketError, InvalidValueError, MessageSizeError, MessageTooLargeError,
    MultiplePublishersError, StateError,
)
from msgq.impl.sockets.checks import (
    check_linger, check_origin, check_send_flags, check_sndhwm, check_sndtimeo, option_error, pickle_error,
    untracked_error, wrong_tracking_error,
)


cdef enum:
    BATCH = 64                      # messages that send_many publishes at once
    SEND_IN_PROGRESS_NS = 1000000000
    UNHEARD_SEND_US = 2000


cdef int refuse_objects(data) except -1:
    """The bytes of an array of Python objects are addresses, which mean nothing to anybody else."""
    if getattr(getattr(data, "dtype", None), "hasobject", False):
        raise TypeError(f"an array of dtype {data.dtype} holds Python objects, which cannot be sent as bytes")
    return 0


@cython.no_gc_clear  # __dealloc__ needs the mapping
cdef class PubSocket:
    """Publishes messages on one endpoint. See the type stub (publisher.pyi) for the contract of each method."""

    def __cinit__(self):
        self._ticket = CLOSED
        self._endpoint = ""

    def __dealloc__(self):
        if self._ticket != CLOSED and self._generation == fork_generation:
            mq_publisher_close(&self._publisher)

    def __reduce__(self):
        raise pickle_error(self)

    def __repr__(self):
        state = "closed" if self._ticket == CLOSED else f"{self._publisher.sequence} messages published"
        return f"<msgq PubSocket {self._endpoint!r}, {state}>"

    @property
    def endpoint(self):
        return self._endpoint

    @property
    def closed(self):
        return self._ticket == CLOSED

    @property
    def tracked(self):
        return self._ticket != CLOSED and self._publisher.stamps != 0

    def connect(self, Context context not None, endpoint, segment_size=0, *, mode=None, schema=None, trust=None,
                tracked=None):
        cdef str name = naming.endpoint_name(endpoint)
        check_open(context, name)
        if self._ticket != CLOSED:
            raise StateError("the socket is connected already; close it first", self._endpoint)
        if schema is not None:
            from msgq.schema import require_schema  # late, as what follows from it: it takes longer than connecting
            require_schema(schema)
        self._endpoint, self._prefix = name, naming.prefix()
        self._options = segment_size, mode, schema, trust, tracked
        self._open(CLOSED, fork_generation)
        remember(self)

    cdef int _open(self, int ticket, int generation) except -1:
        """Become the endpoint's publisher as `connect` was asked to; ticket, generation: what stays after an error."""
        cdef Topic topic
        cdef mq_schema_parts at
        segment_size, mode, schema, trust, tracked = self._options
        self._generation, self._ticket = fork_generation, BUSY
        try:
            with naming.chosen(trust=trust):
                topic = open_topic(self._endpoint, self._prefix, segment_size, mode)
            try:
                self._start(topic, tracked)
                try:
                    if schema is not None:
                        at = mq_side_schema(self._publisher.side)
                        write_schema(&at, schema)
                except BaseException:
                    mq_publisher_close(&self._publisher)
                    raise
            finally:
                topic.unlock()
            self._ticket = self._generation
        finally:
            if self._ticket == BUSY:
                self._generation, self._ticket = generation, ticket
        if self._publisher.stamps:
            prepare_origins()  # now, for it runs Python code: not between two steps of a send
        return 0

    cdef int _succeed(self) except -1:
        """In a forked child: take over from the parent, as `close` and `connect` would. See docs/protocol.md, Fork."""
        mq_publisher_disown(&self._publisher)
        return self._open(self._ticket, self._generation)

    cdef int _start(self, Topic topic, tracked) except -1:
        """Become the endpoint's publisher; the topic is locked."""
        cdef int row
        cdef mq_self us
        identify(&us, MQ_BRIDGE_NAME if self._for_bridge else NULL)  # before a row is taken: it may raise
        memset(&self._publisher, 0, sizeof(self._publisher))
        self._publisher.for_bridge = self._for_bridge
        self._ring, self._side = topic.ring, topic.side
        self._publisher.ring = <mq_ring_header *> topic.ring.address
        self._publisher.side = <mq_side *> topic.side.address
        self._publisher.data = topic.ring.address + MQ_RING_HEADER
        self._publisher.data_bytes = topic.data_bytes
        self._publisher.whole = topic.whole
        self._publisher.fences = not can_order_stores()
        self._publisher.roll = &topic.side.roll
        self._publisher.track = MQ_TRACK_AS_IT_IS if tracked is None else MQ_TRACK_YES if tracked else MQ_TRACK_NO
        self._clock_offset_ns = host_offset_ns()
        if not mq_can_track(self._publisher.ring, self._publisher.side, self._publisher.track):
            raise wrong_tracking_error(self._endpoint, tracked)
        row = mq_publisher_row_take(self._publisher.roll, self._publisher.ring, self._publisher.side,
                                    &self._publisher.hold)
        if row == MQ_NO_ROW:
            text = "16 publishers of it are open in living processes; close those that were taken over"
            raise MultiplePublishersError(text, self._endpoint)
        former = mq_publisher_claim(&self._publisher, &us, random_word(), row)
        try:
            self._await_former(former)
            status = mq_publisher_start(&self._publisher, &us)
            if status == MQ_UNTRACKED:
                raise wrong_tracking_error(self._endpoint, tracked)
            if status != MQ_OK:
                self._check_whole()
                text = "its write pointer makes no sense: foreign bytes. Remove it when nobody uses it (msgq clean)"
                raise CorruptSegmentError(text, self._endpoint, topic.ring.path)
        except BaseException:
            mq_publisher_unclaim(&self._publisher, former)
            raise
        return 0

    cdef int _await_former(self, uint64_t uid) except -1:
        """Let a send of the former publisher end; it sees write_uid and starts no other."""
        cdef const mq_publisher_entry *former
        cdef int64_t deadline = mq_now_ns() + SEND_IN_PROGRESS_NS
        cdef bint late = False  # read once a turn: the question and what is made of its answer must agree
        unheard = self._publisher.after_stock and mq_thread_life(<uint32_t> uid) != MQ_DEAD
        if unheard or self._publisher.unordered:
            with nogil:  # it does not say what it does, or that is seen late; it needs microseconds
                usleep(UNHEARD_SEND_US)
        # After a while, only for those that are known to live: of the release before in another PID namespace, one may
        # be dead, and nobody here could ever tell.
        while (former := mq_other_send_in_progress(&self._publisher, late)) != NULL:
            if late:
                text = f"process {mq_publisher_pid(former)} has been in the middle of a send (or a reserve) for 1 s"
                raise MultiplePublishersError(f"{text}; end it, then connect again", self._endpoint)
            with nogil:
                usleep(50)
            PyErr_CheckSignals()
            late = mq_now_ns() > deadline
        return 0

    def close(self, linger=None):
        if linger is not None:
            check_linger(linger, self._endpoint)
        if self._ticket == CLOSED:
            return
        if self._generation == fork_generation:
            if self._ticket != fork_generation:  # somebody still writes into the ring
                raise misuse(self._ticket, self._endpoint)
            mq_publisher_close(&self._publisher)
        else:
            mq_publisher_disown(&self._publisher)
        self._ticket = CLOSED

    def _close_at_exit(self):
        if self._ticket == fork_generation:
            self.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    cdef int _refuse(self) except -1:
        """Called when the ticket is not valid: raise, or take over after a fork."""
        if self._ticket != CLOSED and self._generation != fork_generation:
            return self._succeed()
        raise misuse(self._ticket, self._endpoint)

    cdef int _settle(self, int status, uint64_t size) except -1:
        """Do what a status of the C core asks for."""
        if status == MQ_OK:
            return 0
        if status == MQ_NOTIFY:
            # With the GIL: some 8 us if somebody sleeps. Giving it up could cost a sender 5 ms to get it back.
            mq_publisher_notify(&self._publisher)
            return 0
        if status == MQ_TOO_LARGE:
            raise self._too_large(size)
        self._check_whole()
        if status == MQ_NO_MEMORY:
            raise failure(f"cannot send a message of {size} bytes", self._endpoint, self._ring.path, ENOSPC)
        pid = mq_publisher_current_pid(self._publisher.ring, self._publisher.side)
        who = f"process {pid}" if pid else "a process that does not use this library, or nobody any more"
        text = f"another publisher took over: {who}; nothing was sent. To take the topic back, connect again"
        raise MultiplePublishersError(text, self._endpoint)

    cdef int _have_memory(self) except -1:
        """Have memory for the whole ring now, where a sender could do nothing about it later."""
        if not mq_publisher_back(&self._publisher, 0, self._publisher.data_bytes, 0):
            raise failure("cannot have memory for the ring", self._endpoint, self._ring.path, ENOSPC)
        return 0

    cdef int _check_whole(self) except -1:
        """Ask for the file's size, too: without the SIGBUS handler, `whole` never changes."""
        cdef bint cut = mq_file_shrank(self._ring.file, self._ring.inode, self._ring.size)
        cut = cut or mq_file_shrank(self._side.file, self._side.inode, self._side.size)
        if cut or not mq_is_whole(&self._publisher.whole):
            raise resized(self._endpoint, self._ring, self._side)
        return 0

    cdef object _too_large(self, object size):
        stamps = self._publisher.stamps
        most = mq_need_max(self._publisher.data_bytes) - 8 - stamps
        text = (f"a message of {size} bytes does not fit: at most {most} with segment_size "
                f"{self._publisher.data_bytes}; this one needs {3 * (size + stamps + 15 & ~7)}")
        return MessageTooLargeError(text, self._endpoint)

    @property
    def linger(self):
        return 0

    @linger.setter
    def linger(self, milliseconds):
        check_linger(milliseconds, self._endpoint)

    @property
    def sndhwm(self):
        return 0

    @sndhwm.setter
    def sndhwm(self, messages):
        check_sndhwm(messages, self._endpoint)

    @property
    def sndtimeo(self):
        return 0

    @sndtimeo.setter
    def sndtimeo(self, milliseconds):
        check_sndtimeo(milliseconds, self._endpoint)

    def __setattr__(self, str name, value):
        try:
            PyObject_GenericSetAttr(self, name, value)
        except AttributeError:
            raise option_error(self, name, self._endpoint) from None

    cdef int _fill_stamps(self, mq_stamps *stamps, int64_t origin_time) except -1:
        """What a message begins with that is published now, on a tracked topic."""
        stamps.publish_time = mq_now_ns() + self._clock_offset_ns
        stamps.origin_time = origin_time or current_origin()
        if not stamps.origin_time:  # it is one itself
            stamps.publish_time = stamps.origin_time = new_origin(stamps.publish_time)
        return 0

    cdef int _check_origin(self, int64_t origin_time) except -1:
        if origin_time:
            if not self._publisher.stamps:
                raise untracked_error(self._endpoint)
            check_origin(origin_time, self._endpoint)
        return 0

    def send(self, data, /, int flags=0, copy=True, *, int64_t origin_time=0):
        cdef Py_ssize_t size
        if self._ticket != fork_generation:
            self._refuse()
        if flags:
            check_send_flags(flags, self._endpoint)
        if self._publisher.stamps or origin_time:
            self._check_origin(origin_time)
            self._send_any(data, origin_time)
            return
        if PyBytes_CheckExact(data):
            size = PyBytes_GET_SIZE(data)
            if 0 < size < LARGE_BYTES:
                status = mq_publisher_send(&self._publisher, PyBytes_AS_STRING(data), size)
                latest.header = self._publisher.ring
                if status != MQ_OK:
                    self._settle(status, size)
                return
        self._send_buffer(data, 0)

    cdef int _send_any(self, object data, int64_t origin_time) except -1:
        if self._ticket != fork_generation:
            self._refuse()
        if PyBytes_CheckExact(data):
            return self._send_bytes(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), origin_time)
        return self._send_buffer(data, origin_time)

    cdef int _send_buffer(self, object data, int64_t origin_time) except -1:
        cdef Py_buffer view
        refuse_objects(data)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if self._ticket != fork_generation:  # an exporter may run any code
                self._refuse()
            self._send_bytes(view.buf, view.len, origin_time)
        finally:
            PyBuffer_Release(&view)
        return 0

    cdef int _send_bytes(self, const void *data, uint64_t size, int64_t origin_time) except -1:
        cdef uint8_t *payload = NULL
        cdef mq_stamps stamps
        latest.header = self._publisher.ring
        if size < LARGE_BYTES:
            if self._publisher.stamps:
                self._fill_stamps(&stamps, origin_time)
                return self._settle(mq_publisher_send_tracked(&self._publisher, data, size, &stamps), size)
            if size == 0:
                self._check_empty()
            return self._settle(mq_publisher_send(&self._publisher, data, size), size)
        self._begin_large(data, size, &payload)
        self._finish(payload, size, origin_time)
        return self._settle(mq_publisher_commit(&self._publisher), size)

    cdef int _begin_large(self, const void *data, uint64_t size, uint8_t **payload) except -1:
        """Without the GIL, for to have the memory, and to copy, may take long. data: NULL copies nothing."""
        cdef int status
        self._ticket = BUSY
        with nogil:
            status = mq_publisher_begin(&self._publisher, size, payload)
            if status == MQ_OK and data != NULL:
                mq_copy_in(payload[0], data, size)
        self._ticket = self._generation
        return self._settle(status, size)

    cdef int _finish(self, uint8_t *payload, uint64_t size, int64_t origin_time) except -1:
        """The payload is there: put the stamps before it, if any, and stage the message."""
        cdef mq_stamps stamps
        if self._publisher.stamps:
            self._fill_stamps(&stamps, origin_time)
            mq_stamps_put(payload, &stamps)
        mq_publisher_stage(&self._publisher, size)
        return 0

    cdef int _check_empty(self) except -1:
        """Stock subscribers abort on an empty message."""
        if self._publisher.stamps:
            return 0
        mq_publisher_survey(&self._publisher)
        if self._publisher.stock_count:
            text = "an empty message would abort the stock subscriber that is attached; send at least one byte"
            raise MessageSizeError(text, self._endpoint)
        return 0

    def send_many(self, messages, *, int64_t origin_time=0):
        if self._ticket != fork_generation:
            self._refuse()
        self._check_origin(origin_time)
        try:
            if type(messages) is list or type(messages) is tuple:  # a subclass may run code between two messages
                return self._send_batch(messages, origin_time)
            if not isinstance(messages, Iterator) and PyObject_CheckBuffer(messages):
                return self._send_rows(messages, origin_time)
        finally:
            self._flush()
        count = 0
        for message in messages:  # one by one: the next one may take its time
            self._send_any(message, origin_time)
            count += 1
        return count

    cdef Py_ssize_t _send_batch(self, object messages, int64_t origin_time) except -1:
        cdef Py_ssize_t count = 0
        for message in messages:
            if PyBytes_CheckExact(message):
                self._stage(PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message), origin_time)
            else:
                self._flush()
                self._send_buffer(message, origin_time)
            count += 1
        return count

    cdef Py_ssize_t _send_rows(self, object array, int64_t origin_time) except -1:
        cdef Py_buffer view
        cdef Py_ssize_t i, count, size
        refuse_objects(array)
        PyObject_GetBuffer(array, &view, PyBUF_ND | PyBUF_C_CONTIGUOUS)
        try:
            if view.ndim == 0 or view.ndim == 1 and view.itemsize == 1:
                text = "send_many takes several messages, and these bytes are one; use send, or an array of rows"
                raise TypeError(text)
            if self._ticket != fork_generation:
                self._refuse()
            count = view.shape[0]
            size = view.len // count if count else 0
            if 0 < size < LARGE_BYTES and not self._publisher.stamps:
                self._stage_rows(<const uint8_t *> view.buf, size, count)
            else:
                for i in range(count):
                    self._stage(<const char *> view.buf + i * size, size, origin_time)
        finally:
            PyBuffer_Release(&view)
        return count

    cdef int _stage_rows(self, const uint8_t *rows, uint64_t size, uint64_t count) except -1:
        """What _stage does, for so many messages on a topic without stamps."""
        cdef uint8_t *payload = NULL
        cdef uint64_t done = 0, block
        while done < count:
            if self._publisher.pending == BATCH or not mq_publisher_has_room(&self._publisher, size):
                self._flush()
            self._settle(mq_publisher_begin(&self._publisher, size, &payload), size)
            block = min(count - done, BATCH - self._publisher.pending)
            self._settle(mq_publisher_stage_rows(&self._publisher, rows + done * size, size, &block), size)
            done += block
        return 0

    cdef int _stage(self, const void *data, uint64_t size, int64_t origin_time) except -1:
        """Write a message, to be published with the next flush."""
        cdef uint8_t *payload = NULL
        if not 0 < size < LARGE_BYTES:
            self._flush()
            return self._send_bytes(data, size, origin_time)
        if self._publisher.pending == BATCH or not mq_publisher_has_room(&self._publisher, size):
            self._flush()
        self._settle(mq_publisher_begin(&self._publisher, size, &payload), size)
        mq_copy_in(payload, data, size)
        return self._finish(payload, size, origin_time)

    cdef int _flush(self) except -1:
        """Publish what is staged."""
        if self._publisher.pending:
            self._settle(mq_publisher_commit(&self._publisher), 0)
        return 0

    def reserve(self, size, *, int64_t origin_time=0):
        cdef Reservation reservation = Reservation.__new__(Reservation)
        if self._ticket != fork_generation:
            self._refuse()
        if size < 0:
            raise InvalidValueError(f"a message cannot have {size} bytes", self._endpoint)
        if size >= 2**32:
            raise self._too_large(size)
        self._check_origin(origin_time)
        reservation._socket = self
        reservation._size = size
        reservation._origin_time = origin_time
        return reservation

    def all_readers_updated(self):
        attached, updated = self._count_readers()
        return 0 < attached == updated

    def _count_readers(self):
        cdef int attached = 0, updated = 0
        inherited = self._ticket != CLOSED and self._generation != fork_generation  # to count takes nothing over
        if self._ticket != fork_generation and not inherited:
            self._refuse()
        if not mq_is_whole(&self._publisher.whole):
            raise resized(self._endpoint, self._ring, self._side)
        mq_readers_count(&self._publisher, &attached, &updated)
        return attached, updated

    def _await_count(self):
        """Count for `wait_for_readers`, which would wait for ever if the file was cut without the SIGBUS handler."""
        counts = self._count_readers()
        self._check_whole()
        return counts

    def wait_for_readers(self, timeout=1.0, interval=0.001, n=None):
        from msgq.impl.sockets.publishing import wait_for_readers  # late: importing a socket shall stay short
        wait_for_readers(self._await_count, timeout, interval, n, self._endpoint)

    def stats(self):
        from msgq.figures.topics import PublisherStats
        return PublisherStats(self._endpoint, self._publisher.sequence, self._publisher.bytes)


cdef class Reservation:
    """Room for one message in the ring, to be written in place: ``with pub.reserve(size) as view``. Serves once."""

    def __enter__(self):
        cdef PubSocket socket = self._socket
        if self._ring is not None:  # which keeps the memory of an earlier view mapped
            raise StateError("a reservation serves once; reserve again", socket._endpoint)
        if socket._ticket != fork_generation:
            socket._refuse()
        self._generation = fork_generation
        if self._size == 0:
            socket._check_empty()
        if self._size < LARGE_BYTES:
            socket._settle(mq_publisher_begin(&socket._publisher, self._size, &self._payload), self._size)
        else:
            socket._begin_large(NULL, self._size, &self._payload)
        self._ring = socket._ring
        socket._ticket = RESERVED
        self._view = memoryview(self)
        return self._view

    def __exit__(self, kind, *_):
        cdef PubSocket socket = self._socket
        cdef uint8_t *payload = self._payload
        self._payload = NULL
        try:
            self._view.release()
        except BufferError:
            pass  # an array made from the view still lives; the memory stays mapped for it, but is the ring's again
        self._view = None
        if self._generation != fork_generation:
            text = "the reservation is of the parent process, which alone publishes it; reserve again in this process"
            raise ForkedSocketError(text, socket._endpoint)
        socket._ticket = socket._generation
        if kind is not None:
            mq_publisher_discard(&socket._publisher, MQ_OK)
            return
        socket._finish(payload, self._size, self._origin_time)
        socket._settle(mq_publisher_commit(&socket._publisher), self._size)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if self._payload == NULL:
            raise BufferError("a reservation has a buffer only inside its with block")
        PyBuffer_FillInfo(buffer, self, self._payload, self._size, 0, flags)

    def __releasebuffer__(self, Py_buffer *buffer):
        pass
