"""The publisher's socket: the Python interface to publisher.h. Everything except sending is in pub_connection.pxi.

Every call compares the socket's use state with the fork generation first. One comparison finds a closed socket, a
socket that another thread is using, a socket with an open reservation, and a socket that came through a fork.
"""


cdef struct LastRing:
    const void *header  # ring of this process's last send. The address is only a hint: the ring may be unmapped

cdef LastRing last_ring


cdef enum:
    BATCH_MESSAGES = 64                      # maximum messages that send_many publishes at once


cdef int _fill_stamps_on_bus(clock, mq_stamps *stamps, int64_t origin_time) except -1:
    """Do the same as `PubSocket._fill_stamps`, by the time of a bus. Apart, to keep that function short."""
    stamps.publish_time = clock.now_ns
    stamps.origin_time = origin_time or current_origin()
    if not stamps.origin_time:
        stamps.publish_time = stamps.origin_time = clock.new_origin_time()
    return 0


@cython.no_gc_clear  # same as the base class
cdef class PubSocket(PubConnection):
    """Publishes messages on one endpoint. See the type stub (core.pyi) for the contract of each method."""

    def __cinit__(self, *arguments):
        if arguments:
            raise constructor_error("pub_sock", arguments)

    def __reduce__(self):
        raise pickle_error(self)

    def __repr__(self):
        state = "closed" if self._use_state == CLOSED else f"{self._publisher.sequence} messages published"
        return f"<msgq PubSocket {self._endpoint!r}, {state}>"

    @property
    def tracked(self):
        return self._use_state != CLOSED and self._publisher.stamps != 0

    @property
    def _sent_count(self):
        return self._publisher.sequence

    cdef int _handle_status(self, int status, uint64_t size) except -1:
        """Raise the error of a status, or notify subscribers."""
        if status == MQ_RING_OK:
            return 0
        if status == MQ_RING_NOTIFY:
            # Keep the GIL: a wake takes about 8 us, and releasing the GIL could delay the sender by 5 ms.
            if self._is_observed:
                self._bus.on_published(self)
            else:
                mq_ring_publisher_notify_subscribers(&self._publisher)
            return 0
        if status == MQ_RING_TOO_LARGE:
            raise self._message_too_large_error(size)
        self._check_truncation()
        if status == MQ_RING_NO_MEMORY:
            raise segment_error(f"cannot send a message of {size} bytes", self._endpoint, self._ring.path, ENOSPC)
        pid = mq_ring_current_publisher_pid(self._publisher.ring, self._publisher.side)
        raise takeover_error(self._endpoint, pid)

    def _observe(self):
        """Tell the bus about each message from now on."""
        self._is_observed, self._published_to = True, self._publisher.position
        self._publisher.readers_seen = UINT64_MAX  # unlike any number of readers, so that each send notifies

    def _read_published(self):
        return read_published(self)

    cdef int _populate_ring(self) except -1:
        """Populate the whole ring now, because the caller cannot handle missing memory later."""
        if not mq_ring_publisher_populate_range(&self._publisher, 0, self._publisher.data_bytes, 0):
            raise segment_error("cannot allocate memory for the ring", self._endpoint, self._ring.path, ENOSPC)
        return 0

    cdef object _message_too_large_error(self, object size):
        stamps = self._publisher.stamps
        most = mq_ring_frame_bytes_max(self._publisher.data_bytes) - 8 - stamps
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
        """Store the stamps of a message published now on a tracked topic."""
        if self._bus is not None:
            return _fill_stamps_on_bus(self._bus.clock, stamps, origin_time)
        stamps.publish_time = mq_monotonic_ns() + self._clock_offset_ns
        stamps.origin_time = origin_time or current_origin()
        if not stamps.origin_time:  # without an origin, the message itself is an origin
            stamps.publish_time = stamps.origin_time = new_origin(stamps.publish_time)
        return 0

    cdef int _check_origin(self, int64_t origin_time) except -1:
        if origin_time:
            if not self._publisher.stamps:
                raise untracked_topic_error(self._endpoint)
            check_origin(origin_time, self._endpoint)
            if self._bus is None:
                refuse_foreign_origin(origin_time, self._endpoint)
        return 0

    def send(self, data, /, int flags=0, copy=True, *, int64_t origin_time=0):
        cdef Py_ssize_t size
        if self._use_state != fork_generation:
            self._reopen_or_raise()
        if flags:
            check_send_flags(flags, self._endpoint)
        if self._publisher.stamps or origin_time:
            self._check_origin(origin_time)
            self._send_object(data, origin_time)
            return
        if PyBytes_CheckExact(data):
            size = PyBytes_GET_SIZE(data)
            if 0 < size < LARGE_BYTES:
                status = mq_ring_publisher_send(&self._publisher, PyBytes_AS_STRING(data), size)
                last_ring.header = self._publisher.ring
                if status != MQ_RING_OK:
                    self._handle_status(status, size)
                return
        self._send_buffer(data, 0)

    cdef int _send_object(self, object data, int64_t origin_time) except -1:
        if self._use_state != fork_generation:
            self._reopen_or_raise()
        if PyBytes_CheckExact(data):
            return self._send_bytes(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), origin_time)
        return self._send_buffer(data, origin_time)

    cdef int _send_buffer(self, object data, int64_t origin_time) except -1:
        cdef Py_buffer view
        get_message_buffer(data, &view, self._endpoint, True)
        try:
            if self._use_state != fork_generation:  # the object that exports the buffer may have run any code
                self._reopen_or_raise()
            self._send_bytes(view.buf, view.len, origin_time)
        finally:
            PyBuffer_Release(&view)
        return 0

    cdef int _send_bytes(self, const void *data, uint64_t size, int64_t origin_time) except -1:
        cdef uint8_t *payload = NULL
        cdef mq_stamps stamps
        last_ring.header = self._publisher.ring
        if size < LARGE_BYTES:
            if self._publisher.stamps:
                self._fill_stamps(&stamps, origin_time)
                return self._handle_status(mq_ring_publisher_send_tracked(&self._publisher, data, size, &stamps), size)
            if size == 0:
                self._check_empty_message()
            return self._handle_status(mq_ring_publisher_send(&self._publisher, data, size), size)
        self._begin_large_message(data, size, &payload)
        self._stage_payload(payload, size, origin_time)
        return self._handle_status(mq_ring_publisher_commit_staged(&self._publisher), size)

    cdef int _begin_large_message(self, const void *data, uint64_t size, uint8_t **payload) except -1:
        """Begin a message without the GIL, because populating and copying may take long.

        A NULL `data` copies nothing.
        """
        cdef int status
        self._use_state = BUSY
        with nogil:
            status = mq_ring_publisher_begin_message(&self._publisher, size, payload)
            if status == MQ_RING_OK and data != NULL:
                mq_copy_to_shared(payload[0], data, size)
        self._use_state = self._fork_generation
        return self._handle_status(status, size)

    cdef int _stage_payload(self, uint8_t *payload, uint64_t size, int64_t origin_time) except -1:
        """Stage a message whose payload is written. Write its stamps, if any."""
        cdef mq_stamps stamps
        if self._publisher.stamps:
            self._fill_stamps(&stamps, origin_time)
            mq_stamps_write(payload, &stamps)
        mq_ring_publisher_stage_message(&self._publisher, size)
        return 0

    cdef int _check_empty_message(self) except -1:
        """Reject an empty message if a stock subscriber is attached, because it would abort."""
        if self._publisher.stamps:
            return 0
        mq_ring_publisher_scan_stock_readers(&self._publisher)
        if self._publisher.stock_count:
            text = "empty message would abort the attached stock subscriber; send at least one byte"
            raise MessageSizeError(text, self._endpoint)
        return 0

    def send_many(self, messages, *, int64_t origin_time=0):
        if self._use_state != fork_generation:
            self._reopen_or_raise()
        self._check_origin(origin_time)
        try:
            if type(messages) is list or type(messages) is tuple:  # a subclass may run code between two messages
                return self._send_batch(messages, origin_time)
            if not isinstance(messages, Iterator) and PyObject_CheckBuffer(messages):
                return self._send_array(messages, origin_time)
        finally:
            self._publish_staged()
        count = 0
        for message in messages:  # send one message at a time, because the iterator may delay the next message
            self._send_object(message, origin_time)
            count += 1
        return count

    cdef Py_ssize_t _send_batch(self, object messages, int64_t origin_time) except -1:
        cdef Py_ssize_t count = 0
        for message in messages:
            if PyBytes_CheckExact(message):
                self._stage_message(PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message), origin_time)
            else:
                self._publish_staged()
                self._send_buffer(message, origin_time)
                if self._use_state != fork_generation:  # the release of the buffer may have run any code
                    self._reopen_or_raise()
            count += 1
        return count

    cdef Py_ssize_t _send_array(self, object array, int64_t origin_time) except -1:
        cdef Py_buffer view
        cdef Py_ssize_t i, count, size
        get_message_buffer(array, &view, self._endpoint, True, PyBUF_ND | PyBUF_C_CONTIGUOUS)
        try:
            if view.ndim == 0 or view.ndim == 1 and view.itemsize == 1:
                text = "send_many needs several messages, but got one bytes object; use send, or an array of rows"
                raise TypeError(text)
            if self._use_state != fork_generation:
                self._reopen_or_raise()
            count = view.shape[0]
            size = view.len // count if count else 0
            if 0 < size < LARGE_BYTES and not self._publisher.stamps:
                self._stage_batch(<const uint8_t *> view.buf, size, count)
            else:
                for i in range(count):
                    self._stage_message(<const char *> view.buf + i * size, size, origin_time)
        finally:
            PyBuffer_Release(&view)
        return count

    cdef int _stage_batch(self, const uint8_t *rows, uint64_t size, uint64_t count) except -1:
        """Stage `count` messages of one size, on a topic without stamps."""
        cdef uint8_t *payload = NULL
        cdef uint64_t done = 0, block
        while done < count:
            if self._publisher.pending == BATCH_MESSAGES or not mq_ring_publisher_has_room(&self._publisher, size):
                self._publish_staged()
            self._handle_status(mq_ring_publisher_begin_message(&self._publisher, size, &payload), size)
            block = min(count - done, BATCH_MESSAGES - self._publisher.pending)
            self._handle_status(mq_ring_publisher_stage_batch(&self._publisher, rows + done * size, size, &block), size)
            done += block
        return 0

    cdef int _stage_message(self, const void *data, uint64_t size, int64_t origin_time) except -1:
        """Write and stage a message, to be published by the next flush."""
        cdef uint8_t *payload = NULL
        if not 0 < size < LARGE_BYTES:
            self._publish_staged()
            return self._send_bytes(data, size, origin_time)
        if self._publisher.pending == BATCH_MESSAGES or not mq_ring_publisher_has_room(&self._publisher, size):
            self._publish_staged()
        self._handle_status(mq_ring_publisher_begin_message(&self._publisher, size, &payload), size)
        mq_copy_to_shared(payload, data, size)
        return self._stage_payload(payload, size, origin_time)

    cdef int _publish_staged(self) except -1:
        """Publish the staged messages."""
        if self._publisher.pending:
            self._handle_status(mq_ring_publisher_commit_staged(&self._publisher), 0)
        return 0

    def reserve(self, size, *, int64_t origin_time=0):
        cdef Reservation reservation = Reservation.__new__(Reservation)
        if self._use_state != fork_generation:
            self._reopen_or_raise()
        if size < 0:
            raise InvalidValueError(f"message size {size} is invalid; give 0 or more bytes", self._endpoint)
        if size >= 2**32:
            raise self._message_too_large_error(size)
        self._check_origin(origin_time)
        reservation._socket = self
        reservation._size = size
        reservation._origin_time = origin_time
        return reservation

    def loan(self, size, *, int64_t origin_time=0):
        return self.reserve(size, origin_time=origin_time)

    def all_readers_updated(self):
        attached, updated = self._count_readers()
        return 0 < attached == updated

    def _count_readers(self):
        cdef int attached = 0, updated = 0
        # Count for an inherited publisher, too: counting must not take over the topic.
        inherited = self._use_state != CLOSED and self._fork_generation != fork_generation and self._bus is None
        if self._use_state != fork_generation and not inherited:
            self._reopen_or_raise()
        if not mq_canary_is_intact(&self._publisher.canary):
            raise size_changed_error(self._endpoint, self._ring, self._side)
        mq_ring_count_subscribers(&self._publisher, &attached, &updated)
        return attached, updated

    def _count_readers_or_raise(self):
        """Count for `wait_for_readers`.

        Raise if the file was truncated, because the wait would otherwise never end without the SIGBUS handler.
        """
        counts = self._count_readers()
        self._check_truncation()
        return counts

    def wait_for_readers(self, timeout=1.0, interval=0.001, n=None):
        from msgq.impl.sockets.publishing import wait_for_readers  # imported late, to keep the import of sockets fast
        wait_for_readers(self._count_readers_or_raise, timeout, interval, n, self._endpoint, self._bus)

    def stats(self):
        from msgq.common.stats.topic import PublisherStats
        return PublisherStats(self._endpoint, self._publisher.sequence, self._publisher.bytes)


cdef class Reservation:
    """Room for one message in the ring: ``with pub.reserve(size) as view``. Usable once."""

    cdef PubSocket _socket
    cdef object _memory  # keeps the ring while a view of it exists
    cdef bint _was_used
    cdef Py_ssize_t _buffer_exports
    cdef uint8_t *_payload
    cdef uint64_t _size
    cdef int _fork_generation  # fork generation of the process that entered the block
    cdef int64_t _origin_time
    cdef object _view

    def __enter__(self):
        if self._was_used:
            raise StateError("reservation was already used; reserve again", self._socket._endpoint)
        with cython.critical_section(self._socket):
            self._begin_message(self._socket)
        self._view = memoryview(self)
        return self._view

    cdef int _begin_message(self, PubSocket socket) except -1:
        cdef mq_ring_status status
        if socket._use_state != fork_generation:
            socket._reopen_or_raise()
        self._fork_generation = fork_generation
        if self._size == 0:
            socket._check_empty_message()
        if self._size < LARGE_BYTES:
            status = mq_ring_publisher_begin_message(&socket._publisher, self._size, &self._payload)
            socket._handle_status(status, self._size)
        else:
            socket._begin_large_message(NULL, self._size, &self._payload)
        self._was_used, self._memory = True, socket._memory
        socket._use_state = RESERVED
        return 0

    def __exit__(self, kind, *_):
        cdef uint8_t *payload = self._payload
        self._payload = NULL
        try:
            self._view.release()
        except BufferError:
            pass  # an array made from the view keeps the memory mapped, but the ring reuses the memory
        self._view = None
        if self._fork_generation != fork_generation:
            text = "reservation belongs to the parent process, which publishes it; reserve again in this process"
            raise ForkedSocketError(text, self._socket._endpoint)
        with cython.critical_section(self._socket):
            self._end_message(self._socket, payload, kind is None)

    cdef int _end_message(self, PubSocket socket, uint8_t *payload, bint publishes) except -1:
        socket._use_state = socket._fork_generation
        if not publishes:
            mq_ring_publisher_discard_staged(&socket._publisher, MQ_RING_OK)
            return 0
        socket._stage_payload(payload, self._size, self._origin_time)
        return socket._handle_status(mq_ring_publisher_commit_staged(&socket._publisher), self._size)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if self._payload == NULL:
            raise BufferError("a reservation has a buffer only inside its with block")
        PyBuffer_FillInfo(buffer, self, self._payload, self._size, 0, flags)
        self._buffer_exports += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self._buffer_exports -= 1
        if not self._buffer_exports:
            self._memory = None
