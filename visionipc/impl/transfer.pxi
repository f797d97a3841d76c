"""Work for each frame on both sides. In C, because most frames arrive after a sleep, when the caches are cold."""


cdef tuple EMPTY_ARGUMENTS = ()
cdef str CONSTRUCTOR_HINT = "a frame to render into comes from VisionIpcServer.frame"


cdef inline object new_without_init(type kind):
    """As kind.__new__(kind), without the attribute lookup. `__init__` is not called."""
    return (<PyTypeObject *> kind).tp_new(kind, <PyObject *> EMPTY_ARGUMENTS, NULL)


cdef struct FramePacket:  # as wire.FRAME_PACKET_STRUCT
    uint64_t server_id
    uint64_t buffer
    uint32_t frame_id
    uint32_t generation
    uint64_t timestamp_sof
    uint64_t timestamp_eof
    uint8_t valid
    uint8_t padding[7]


cdef class OutgoingStream:
    """See core.pyi."""

    cdef readonly str endpoint
    cdef readonly uint64_t published
    cdef readonly uint64_t dropped
    cdef PubSocket _publisher
    cdef ServerLeases _leases
    cdef list _mappings
    cdef list _views
    cdef size_t _size
    cdef uint64_t _server_id
    cdef bint _is_rendering

    def __init__(self, str endpoint, PubSocket publisher not None, ServerLeases leases not None, list regions not None,
                 size_t size, uint64_t server_id):
        self.endpoint = endpoint
        self._publisher = publisher
        publisher._populate_ring()  # populate the ring, so that a rendered frame can always be sent
        self._leases = leases
        self._mappings = regions
        self._views = [MappedView(region, size, True) for region in regions]
        self._size = size
        self._server_id = server_id

    def scratch(self):
        raise NotImplementedError

    def grow(self):
        raise NotImplementedError

    cdef int _begin_frame(self) except -2:
        """Take a buffer, or return -1 if clients hold all.

        The caller clears `_is_rendering` at the end of the frame.
        """
        cdef int buffer
        cdef bint stock
        if self._is_rendering:
            raise ConcurrentUseError("another frame of this stream is open; end its with block first", self.endpoint)
        self._check_open()
        stock = mq_ring_publisher_may_have_stock_readers(&self._publisher._publisher)
        buffer = self._leases.take(stock)
        self._is_rendering = True
        if buffer < 0:
            try:
                if self.grow():  # other threads and signal handlers may run during the call
                    buffer = self._leases.take(stock)
            except BaseException:
                self._is_rendering = False
                raise
        return buffer

    cdef int _check_open(self) except -1:
        if self._publisher._use_state == CLOSED:
            raise EndpointClosedError("server is closed, or has created the stream again", self.endpoint)
        if self._publisher._fork_generation != fork_generation:  # the parent process has the same leases
            raise ForkedSocketError("server belongs to the parent process; create one with another name "
                                    "here", self.endpoint)
        if self._publisher._use_state != fork_generation:
            self._publisher._reopen_or_raise()
        return 0

    cdef int _publish_frame(self, int buffer, frame_id, sof, eof, bint valid) except -1:
        """Publish the frame in the buffer."""
        cdef FramePacket packet
        cdef uint64_t word
        memset(&packet, 0, sizeof(packet))
        try:
            packet.frame_id, packet.timestamp_sof, packet.timestamp_eof = frame_id, sof, eof
        except OverflowError:
            text = (f"frame_id {frame_id} must fit in 32 bits, and the timestamps {sof} and {eof} in 64; nothing was "
                    "sent")
            raise InvalidValueError(text, self.endpoint) from None
        if buffer < 0:
            self.dropped += 1
            self._leases.store_dropped_count(self.dropped)
            return 0
        self._check_open()
        word = packet.frame_id
        mq_copy_to_shared((<DescriptorMapping> self._mappings[buffer]).address + self._size, &word, sizeof(word))
        packet.server_id, packet.buffer, packet.valid = self._server_id, buffer, valid
        packet.generation = self._leases.publish(buffer)
        self._publisher._send_bytes(&packet, sizeof(packet), 0)
        self.published += 1
        return 0

    def send(self, data, frame_id, sof, eof):
        cdef Py_buffer source
        cdef int buffer
        PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
        try:
            if <size_t> source.len != self._size:
                text = f"frame has {source.len} bytes, but the buffers of the stream have {self._size}"
                raise MessageSizeError(text, self.endpoint)
            buffer = self._begin_frame()
            try:
                if buffer >= 0:
                    address = (<DescriptorMapping> self._mappings[buffer]).address
                    with nogil:
                        mq_copy_to_shared(address, source.buf, source.len)
                self._publish_frame(buffer, frame_id, sof, eof, True)
                return buffer >= 0
            finally:
                self._is_rendering = False
        finally:
            PyBuffer_Release(&source)


cdef class FrameDraft:
    """See core.pyi."""

    cdef readonly OutgoingStream _stream
    cdef readonly MappedView _view
    cdef int _buffer
    cdef bint _entered
    cdef readonly bint dropped
    cdef public object frame_id
    cdef public object timestamp_sof
    cdef public object timestamp_eof
    cdef public object valid

    def __init__(self):
        raise TypeError(CONSTRUCTOR_HINT)

    def __enter__(self):
        cdef OutgoingStream stream = self._stream
        if stream is None:  # the object was created without its constructor
            raise TypeError(CONSTRUCTOR_HINT)
        if self._entered:
            raise ConcurrentUseError("frame is open in another with block; ask the server for another "
                                     "frame", stream.endpoint)
        self._buffer = stream._begin_frame()
        self._entered = True
        self.dropped = self._buffer < 0
        if self.dropped:
            try:
                self._view = <MappedView?> stream.scratch()
            except BaseException:
                stream._is_rendering = False
                raise
        else:
            self._view = stream._views[self._buffer]
        self.frame_id = stream.published + stream.dropped
        self.timestamp_sof = mq_read_clock_ns(CLOCK_BOOTTIME)
        self.timestamp_eof = 0
        return self

    def __exit__(self, kind, error, trace):
        if self._view is None:
            endpoint = "" if self._stream is None else self._stream.endpoint
            raise StateError("with block of this frame has ended, or was not entered; ask the server for another "
                             "frame", endpoint)
        self._view = None
        try:
            if kind is None:  # user-defined properties may raise
                eof = self.timestamp_eof or mq_read_clock_ns(CLOCK_BOOTTIME)
                self._stream._publish_frame(self._buffer, self.frame_id, self.timestamp_sof, eof, self.valid)
        finally:
            self._stream._is_rendering = False


cdef class StreamSender:
    """See core.pyi."""

    cdef readonly dict _streams
    cdef type _kind

    def __init__(self, type kind not None):
        self._streams = {}
        self._kind = kind

    def frame(self, type):
        cdef FrameDraft draft
        cdef OutgoingStream stream = self._streams.get(type)
        if stream is None:
            stream = <OutgoingStream?> self._stream(type)
        stream._check_open()
        draft = <FrameDraft?> new_without_init(self._kind)
        draft._stream = stream
        draft.valid = True
        return draft

    def _stream(self, kind):
        raise NotImplementedError


cdef class Frame:
    """See core.pyi."""

    cdef readonly object _record
    cdef readonly DescriptorMapping _region
    cdef public MappedView _view
    cdef readonly int fd
    cdef readonly bint leased
    cdef readonly uint32_t frame_id
    cdef readonly uint64_t timestamp_sof
    cdef readonly uint64_t timestamp_eof
    cdef readonly bint valid_frame

    def __init__(self):  # gives the class a signature
        pass


cdef class IncomingStream:
    """See core.pyi."""

    cdef readonly list records
    cdef readonly list regions
    cdef readonly list fds
    cdef readonly ClientLeases leases
    cdef readonly uint64_t server_id
    cdef size_t _size
    cdef int _fork_generation

    def __init__(self, list records not None, list regions not None, list fds not None, ClientLeases leases):
        cdef size_t size
        cdef DescriptorMapping region
        if not records or not len(records) == len(regions) == len(fds):
            raise InvalidValueError(f"{len(records)} records, {len(regions)} regions and {len(fds)} descriptors")
        size = records[0].geometry.size
        for region in regions:
            if region is None or region.size < size:
                raise SegmentError(f"frames of {size} bytes in a buffer of {region and region.size}")
        self._fork_generation = fork_generation
        self.records, self.regions, self.fds, self.leases = records, regions, fds, leases
        self.server_id = records[0].server_id
        self._size = size

    def take(self, bytes packet not None, type kind not None):
        return self._take(packet, kind)

    cdef Frame _take(self, bytes packet, type kind):
        cdef FramePacket p
        cdef DescriptorMapping region
        cdef MappedView view
        cdef Frame frame
        if PyBytes_GET_SIZE(packet) != sizeof(p) or self._fork_generation != fork_generation:
            return None
        memcpy(&p, PyBytes_AS_STRING(packet), sizeof(p))
        if p.server_id != self.server_id or p.buffer >= <uint64_t> len(self.fds):
            return None
        region = self.regions[p.buffer]
        if self.leases is not None:
            view = lease(self.leases, region, self._size, p.buffer, p.generation)
            if view is None:
                return None
        else:
            view = MappedView.__new__(MappedView)
            expose_buffer(view, region, region.address, self._size, False)
        frame = <Frame?> new_without_init(kind)
        frame._record, frame._region, frame._view = self.records[p.buffer], region, view
        frame.fd, frame.leased = self.fds[p.buffer], self.leases is not None
        frame.frame_id, frame.valid_frame = p.frame_id, p.valid != 0
        frame.timestamp_sof, frame.timestamp_eof = p.timestamp_sof, p.timestamp_eof
        return frame


cdef class StreamReceiver:
    """See core.pyi."""

    cdef public object _subscriber  # subscriber of the ring, or of the bus in a simulation
    cdef public IncomingStream _stream
    cdef public uint32_t frame_id
    cdef public uint64_t timestamp_sof
    cdef public uint64_t timestamp_eof
    cdef public bint valid
    cdef type _kind

    def __init__(self, type kind not None):
        self._kind = kind

    def recv(self, timeout_ms=100):
        cdef bytes packet
        cdef Frame frame
        cdef double began = mq_monotonic_ns() / 1e9
        cdef bint non_blocking = timeout_ms == 0
        subscriber = self._subscriber
        if subscriber is None:
            return self._recv_disconnected(timeout_ms)
        if not non_blocking or not PyLong_CheckExact(timeout_ms):  # PyLong_CheckExact rejects False, too
            subscriber.setTimeout(timeout_ms)
        if isinstance(subscriber, SubSocket):
            packet = (<SubSocket> subscriber).take_message(non_blocking)
        else:
            packet = subscriber.receive(non_blocking)
        if packet is None:
            return None
        frame = self._take_frame(packet)
        return self._continue_recv(packet, timeout_ms, began) if frame is None else frame

    def _recv_disconnected(self, timeout_ms):
        raise NotImplementedError

    def _continue_recv(self, packet, timeout_ms, began):
        raise NotImplementedError

    cpdef Frame _take_frame(self, bytes packet):
        cdef IncomingStream stream = self._stream  # another thread may end the stream during the call
        cdef Frame frame = None if stream is None else stream._take(packet, self._kind)
        if frame is not None:
            self.frame_id, self.valid = frame.frame_id, frame.valid_frame
            self.timestamp_sof, self.timestamp_eof = frame.timestamp_sof, frame.timestamp_eof
        return frame
