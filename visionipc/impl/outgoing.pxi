"""Frames of a server: `OutgoingFrame`, and the streams and servers that publish frames."""


cdef str CONSTRUCTOR_HINT = "a frame to render into comes from VisionIpcServer.frame"


cdef class OutgoingStream:
    """See core.pyi."""

    cdef readonly str endpoint
    cdef PubSocket _publisher
    cdef ServerLeases _leases
    cdef list _views
    cdef size_t _size
    cdef uint64_t _server_id
    cdef bint _is_rendering
    cdef uint8_t *_buffers[MQ_FRAME_BUFFERS_MAX]

    def __init__(self, str endpoint, PubSocket publisher not None, ServerLeases leases not None, list regions not None,
                 size_t size, uint64_t server_id):
        if len(regions) > MQ_FRAME_BUFFERS_MAX:
            raise SegmentError(f"{len(regions)} buffers; a stream has {MQ_FRAME_BUFFERS_MAX} at most", endpoint)
        self.endpoint = endpoint
        self._publisher = publisher
        publisher._populate_ring()  # populate the ring, so that a rendered frame can always be sent
        self._leases = leases
        self._views = [MappedView(region, size, True) for region in regions]
        for buffer, region in enumerate(regions):
            self._buffers[buffer] = (<DescriptorMapping?> region).address
        self._size = size
        self._server_id = server_id

    @property
    def published(self):
        return self._leases._state.published

    @property
    def dropped(self):
        return self._leases._state.dropped

    def scratch(self):
        raise NotImplementedError

    def grow(self):
        raise NotImplementedError

    def release_buffers(self):
        if not self._is_rendering:
            self._views = []

    @final
    cdef inline int _begin_frame(self, int64_t now_ns) except -2:
        """Take a buffer, or return -1 if clients hold all. `now_ns`: CLOCK_BOOTTIME.

        The caller has the lock of this object, and clears `_is_rendering` at the end of the frame.
        """
        cdef int buffer
        cdef bint stock, may_grow
        cdef Py_ssize_t views = len(self._views)
        cdef mq_object_lock lock
        self._check_open()
        if self._is_rendering:
            raise ConcurrentUseError("another frame of this stream is open; end its with block first", self.endpoint)
        self._is_rendering = True  # before other locks, which may suspend this one: now the memory stays mapped
        mq_lock_object(&lock, <PyObject *> self._publisher)
        stock = mq_ring_publisher_may_have_stock_readers(&self._publisher._publisher)
        mq_unlock_object(&lock)
        mq_lock_object(&lock, <PyObject *> self._leases)
        may_grow = self._leases._state.mru.buffers < <uint32_t> views
        buffer = self._leases.take(stock, may_grow, now_ns)
        mq_unlock_object(&lock)
        if buffer < 0 and may_grow or buffer == NOT_SENDER:
            try:
                buffer = self._take_after_growth(buffer, stock, now_ns)
            except BaseException:
                self._is_rendering = False
                raise
        return buffer

    @final
    cdef int _take_after_growth(self, int buffer, bint stock, int64_t now_ns) except -2:
        cdef mq_object_lock lock
        if buffer != NOT_SENDER:
            self.grow()  # other threads and signal handlers may run during the call
            mq_lock_object(&lock, <PyObject *> self._leases)
            buffer = self._leases.take(stock, False, now_ns)  # also without memory for another buffer
            mq_unlock_object(&lock)
        if buffer == NOT_SENDER:
            raise self._replaced_error()
        return buffer

    @final
    cdef object _replaced_error(self):
        text = ("another process, which was forked from the same server, sends this stream now; send each stream from "
                "one process")
        return MultiplePublishersError(text, self.endpoint)

    @final
    cdef inline int _check_open(self) except -1:
        while self._publisher._use_state != fork_generation:
            with critical_section(self._publisher):
                self._check_open_or_reopen()
        return 0

    @final
    cdef int _check_open_or_reopen(self) except -1:
        """Raise, or reopen the publisher. The caller has the lock of the publisher."""
        if self._publisher._use_state == fork_generation:
            return 0  # another thread was faster
        cdef bint is_inherited = self._publisher._fork_generation != fork_generation
        if self._publisher._use_state == CLOSED or self._leases._state.is_replaced:
            raise EndpointClosedError("server is closed, or has created the stream again", self.endpoint)
        if is_inherited:
            self._is_rendering = False  # a thread of the parent may have rendered during the fork
        self._publisher._reopen_or_raise()
        if is_inherited:  # the topic is this process's now, so its buffers must be, too
            with critical_section(self._leases):
                self._leases.become_sender()
        return 0

    @final
    cdef int _fill_packet(self, FramePacket *packet, frame_id, sof, eof) except -1:
        try:
            packet.frame_id, packet.timestamp_sof, packet.timestamp_eof = frame_id, sof, eof
        except OverflowError:
            text = (f"frame_id {frame_id} must fit in 32 bits, and the timestamps {sof} and {eof} in 64; nothing was "
                    "sent")
            raise InvalidValueError(text, self.endpoint) from None
        return 0

    @final
    cdef inline int _publish_frame(self, int buffer, FramePacket *packet) except -1:
        """Publish the frame in the buffer. The packet has the values of the program."""
        cdef uint64_t word = packet.frame_id
        cdef mq_object_lock lock
        if buffer < 0:
            mq_lock_object(&lock, <PyObject *> self._leases)
            self._leases.count_dropped_frame()
            mq_unlock_object(&lock)
            return 0
        self._check_open()
        mq_copy_to_shared(self._buffers[buffer] + self._size, &word, sizeof(word))
        packet.server_id, packet.buffer = self._server_id, buffer
        mq_lock_object(&lock, <PyObject *> self._leases)
        packet.generation = self._leases.publish(buffer)
        mq_unlock_object(&lock)
        if packet.generation == 0:
            raise self._replaced_error()
        mq_lock_object(&lock, <PyObject *> self._publisher)
        try:
            self._check_open()  # another thread may have closed the publisher before the lock
            return self._publisher._send_bytes(packet, sizeof(packet[0]), 0)
        finally:
            mq_unlock_object(&lock)

    def send(self, data, frame_id, sof, eof):
        cdef FramePacket packet
        cdef Py_buffer source
        cdef int buffer
        memset(&packet, 0, sizeof(packet))
        PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
        try:
            if <size_t> source.len != self._size:
                text = f"frame has {source.len} bytes, but the buffers of the stream have {self._size}"
                raise MessageSizeError(text, self.endpoint)
            buffer = self._begin_frame(mq_read_clock_ns(CLOCK_BOOTTIME))
            try:
                if buffer >= 0:
                    address = self._buffers[buffer]
                    with nogil:
                        mq_copy_to_shared(address, source.buf, source.len)
                self._fill_packet(&packet, frame_id, sof, eof)
                packet.valid = True
                self._publish_frame(buffer, &packet)
                return buffer >= 0
            finally:
                self._is_rendering = False
        finally:
            PyBuffer_Release(&source)


@freelist(8)
cdef class OutgoingFrame:
    """See core.pyi."""

    cdef OutgoingStream _stream
    cdef MappedView _scratch  # memory of a dropped frame
    cdef int _buffer  # -1: the frame will be dropped
    cdef int _fork_generation  # fork generation of the process that entered the block
    cdef bint _entered
    cdef bint _is_open
    cdef bint _has_values  # False: the defaults apply, and no Python int exists
    cdef readonly bint dropped
    cdef uint64_t _default_frame_id
    cdef int64_t _began_ns
    cdef object _frame_id
    cdef object _timestamp_sof
    cdef object _timestamp_eof
    cdef public object valid

    def __init__(self):
        raise TypeError(CONSTRUCTOR_HINT)

    @final
    cdef int _create_values(self) except -1:
        """Create the Python values of the defaults, before the program reads or sets one of the values."""
        if self._entered and not self._has_values:
            self._frame_id, self._timestamp_sof, self._timestamp_eof = self._default_frame_id, self._began_ns, 0
            self._has_values = True
        return 0

    @property
    def frame_id(self):
        self._create_values()
        return self._frame_id

    @frame_id.setter
    def frame_id(self, value):
        self._create_values()
        self._frame_id = value

    @property
    def timestamp_sof(self):
        self._create_values()
        return self._timestamp_sof

    @timestamp_sof.setter
    def timestamp_sof(self, value):
        self._create_values()
        self._timestamp_sof = value

    @property
    def timestamp_eof(self):
        self._create_values()
        return self._timestamp_eof

    @timestamp_eof.setter
    def timestamp_eof(self, value):
        self._create_values()
        self._timestamp_eof = value

    @property
    def data(self):
        if not self._is_open:
            endpoint = "" if self._stream is None else self._stream.endpoint
            raise EndpointClosedError("frame can be rendered only in its with block", endpoint)
        return PyMemoryView_FromObject(self._scratch if self._buffer < 0 else self._stream._views[self._buffer])

    @property
    def array(self):
        return bytes_as_array(self.data)

    @property
    def image(self):
        data = self.data
        return (<object> self._stream).geometry.image(data)

    @property
    def planes(self):
        data = self.data
        return (<object> self._stream).geometry.planes(data)

    def __enter__(self):
        cdef OutgoingStream stream = self._stream
        cdef mq_object_lock lock
        cdef int64_t now_ns
        if stream is None:  # the object was created without its constructor
            raise TypeError(CONSTRUCTOR_HINT)
        now_ns = mq_read_clock_ns(CLOCK_BOOTTIME)
        mq_lock_object(&lock, <PyObject *> stream)
        try:
            if self._entered:
                raise ConcurrentUseError("frame is open in another with block; ask the server for another "
                                         "frame", stream.endpoint)
            self._buffer = stream._begin_frame(now_ns)
            self._entered = True
        finally:
            mq_unlock_object(&lock)
        self.dropped = self._buffer < 0
        if self.dropped:
            try:
                self._scratch = <MappedView?> stream.scratch()
            except BaseException:
                stream._is_rendering = False
                raise
        self._is_open, self._fork_generation = True, fork_generation
        self._default_frame_id = stream._leases._state.published + stream._leases._state.dropped
        self._began_ns = now_ns
        return self

    def __exit__(self, kind, error, trace):
        cdef mq_object_lock lock
        if not self._is_open:
            endpoint = "" if self._stream is None else self._stream.endpoint
            raise StateError("with block of this frame has ended, or was not entered; ask the server for another "
                             "frame", endpoint)
        self._is_open = False
        if self._fork_generation != fork_generation:
            raise ForkedSocketError("frame belongs to the parent process, which publishes it; ask the server for "
                                    "another frame here", self._stream.endpoint)
        mq_lock_object(&lock, <PyObject *> self._stream)
        try:
            if kind is None:
                self._publish_rendered_frame()
        finally:
            self._stream._is_rendering = False
            mq_unlock_object(&lock)

    @final
    cdef inline int _publish_rendered_frame(self) except -1:
        cdef FramePacket packet
        cdef int64_t now_ns = mq_read_clock_ns(CLOCK_BOOTTIME)
        memset(&packet, 0, sizeof(packet))
        if not self._has_values and self._default_frame_id <= UINT32_MAX:
            packet.frame_id = <uint32_t> self._default_frame_id
            packet.timestamp_sof, packet.timestamp_eof = self._began_ns, now_ns
        else:
            self._stream._fill_packet(&packet, self.frame_id, self.timestamp_sof, self.timestamp_eof or now_ns)
        packet.valid = <bint> self.valid
        return self._stream._publish_frame(self._buffer, &packet)


cdef class StreamSender:
    """See core.pyi."""

    cdef readonly dict _streams

    def __init__(self):
        self._streams = {}

    def frame(self, type):
        cdef OutgoingFrame frame
        cdef OutgoingStream stream = self._streams.get(type)
        if stream is None:
            stream = <OutgoingStream?> self._stream(type)
        stream._check_open()
        frame = OutgoingFrame.__new__(OutgoingFrame)
        frame._stream = stream
        frame.valid = True
        return frame

    def _stream(self, kind):
        raise NotImplementedError
