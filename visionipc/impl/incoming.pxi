"""Frames of a client: `VisionBuf`, and the streams and receivers that create frames."""


@freelist(8)
cdef class VisionBuf:
    """See core.pyi."""

    cdef object _geometry
    cdef DescriptorMapping _region  # None: the bytes belong to the frame, or the frame was released
    cdef object _view
    cdef readonly uint32_t idx
    cdef readonly int fd
    cdef readonly bint leased
    cdef readonly uint32_t frame_id
    cdef readonly uint64_t timestamp_sof
    cdef readonly uint64_t timestamp_eof
    cdef readonly bint valid_frame
    cdef bint _is_virtual  # True: a frame of the fake backend, which has one clock

    def __init__(self):  # gives the class a signature
        pass

    def __repr__(self):
        state = ", released" if self._view is None else ""
        return f"<VisionBuf {self.frame_id}, {self.format.name} {self.width} x {self.height}{state}>"

    @property
    def width(self):
        return self._geometry.width

    @property
    def height(self):
        return self._geometry.height

    @property
    def stride(self):
        return self._geometry.stride

    @property
    def uv_offset(self):
        return self._geometry.uv_offset

    @property
    def format(self):
        return self._geometry.format

    @property
    def data(self):
        if self._view is None:
            raise EndpointClosedError(f"frame {self.frame_id} was released; take arrays before the release")
        return PyMemoryView_FromObject(self._view)

    @property
    def array(self):
        return bytes_as_array(self.data)

    @property
    def image(self):
        return self._valid_layout().image(self.data)

    @property
    def planes(self):
        return self._valid_layout().planes(self.data)

    @property
    def origin_time(self):
        return self._host_time(self.timestamp_sof)

    @property
    def publish_time(self):
        return self._host_time(self.timestamp_eof)

    cdef int64_t _host_time(self, uint64_t timestamp) except? -1:
        """Return a timestamp of CLOCK_BOOTTIME on the host's clock; 0: it is not a time of CLOCK_BOOTTIME."""
        if self._is_virtual:
            return timestamp
        if not 0 < timestamp <= <uint64_t> mq_read_clock_ns(CLOCK_BOOTTIME):
            return 0
        return host_time_of(timestamp, CLOCK_BOOTTIME)

    def _valid_layout(self):
        if not self.leased:  # a stock server may send any layout. Layouts of this library were checked by the client
            self._geometry.check("")
        return self._geometry

    def to_rgb(self):
        from visionipc.convert import to_rgb  # imported late: most programs do not convert
        return to_rgb(self.data, self._geometry)

    def valid(self):
        if self.leased:
            return True
        # In this order: if the server has truncated the buffer, the read detects it.
        size = len(self.data)  # raises if the frame was released
        return self._region.read_u64(size) == self.frame_id and not self._region.lost

    def release(self):
        self._view = self._region = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._view = self._region = None


def make_frame(geometry, view, uint32_t frame_id, uint64_t sof, uint64_t eof, bint valid):
    cdef VisionBuf frame = VisionBuf.__new__(VisionBuf)
    frame._is_virtual = True
    frame._geometry, frame._view, frame.fd, frame.leased = geometry, view, -1, True
    frame.frame_id, frame.timestamp_sof, frame.timestamp_eof, frame.valid_frame = frame_id, sof, eof, valid
    return frame


@no_gc_clear  # __dealloc__ needs the leases
cdef class IncomingStream:
    """See core.pyi."""

    cdef readonly list records
    cdef readonly list regions
    cdef readonly list fds
    cdef readonly ClientLeases leases
    cdef readonly uint64_t server_id
    cdef object _geometry  # the same for all buffers
    cdef size_t _size
    cdef int _fork_generation
    cdef int _fd_numbers[MQ_FRAME_BUFFERS_MAX]  # the same as `fds`
    cdef int _fd_count

    def __init__(self, list records not None, list regions not None, list fds not None, ClientLeases leases):
        cdef DescriptorMapping region
        if not 0 < len(records) == len(regions) == len(fds) <= MQ_FRAME_BUFFERS_MAX:
            raise InvalidValueError(f"{len(records)} records, {len(regions)} regions and {len(fds)} descriptors")
        self._geometry = records[0].geometry
        self._size = self._geometry.size
        for region in regions:
            if region is None or region.size < self._size:
                raise SegmentError(f"frames of {self._size} bytes in a buffer of {region and region.size}")
        self._fork_generation = fork_generation
        self.records, self.regions, self.fds, self.leases = records, regions, list(fds), leases
        self.server_id = records[0].server_id
        for buffer, fd in enumerate(fds):
            self._fd_numbers[buffer] = fd
        self._fd_count = len(fds)
        fds.clear()  # from now on, this object closes them

    def __dealloc__(self):  # C code, because a signal handler may raise in `__del__`, whose rest Python then skips
        if self.leases is not None:
            self.leases.end()  # held frames keep the row
        for buffer in range(self._fd_count):
            close(self._fd_numbers[buffer])

    def take(self, bytes packet not None):
        return self._take(packet)

    @final
    cdef VisionBuf _take(self, bytes packet):
        cdef FramePacket p
        cdef DescriptorMapping region
        cdef MappedView view
        cdef VisionBuf frame
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
        frame = VisionBuf.__new__(VisionBuf)
        frame._geometry, frame._region, frame._view = self._geometry, region, view
        frame.idx, frame.fd, frame.leased = <uint32_t> p.buffer, self._fd_numbers[p.buffer], self.leases is not None
        frame.frame_id, frame.valid_frame = p.frame_id, p.valid != 0
        frame.timestamp_sof, frame.timestamp_eof = p.timestamp_sof, p.timestamp_eof
        return frame


cdef bytes _take_packet(SubSocket subscriber, timeout_ms, bint non_blocking):
    cdef mq_object_lock lock
    mq_lock_object(&lock, <PyObject *> subscriber)  # pollers use it, too
    try:
        subscriber._timeout_ms = parse_timeout_ms(timeout_ms, subscriber._endpoint)
        return subscriber.take_message(non_blocking)
    finally:
        mq_unlock_object(&lock)


cdef class StreamReceiver:
    """See core.pyi."""

    cdef public object _subscriber  # subscriber of the ring, or of the bus in a simulation
    cdef public IncomingStream _stream
    cdef public uint32_t frame_id
    cdef public uint64_t timestamp_sof
    cdef public uint64_t timestamp_eof
    cdef public bint valid

    def recv(self, timeout_ms=100):
        cdef bytes packet
        cdef VisionBuf frame
        cdef bint non_blocking = timeout_ms == 0
        cdef int64_t began_ns = 0 if non_blocking else mq_monotonic_ns()
        subscriber = self._subscriber
        if subscriber is None:
            return self._recv_disconnected(timeout_ms)
        if isinstance(subscriber, SubSocket):
            packet = _take_packet(subscriber, timeout_ms, non_blocking)
        else:
            subscriber.setTimeout(timeout_ms)
            packet = subscriber.receive(non_blocking)
        if packet is None:
            return None
        frame = self._take_stream_frame(packet)
        if frame is None:
            return self._continue_recv(packet, timeout_ms, (began_ns or mq_monotonic_ns()) / 1e9)
        return frame

    def _recv_disconnected(self, timeout_ms):
        raise NotImplementedError

    def _continue_recv(self, packet, timeout_ms, began):
        raise NotImplementedError

    def _take_frame(self, bytes packet not None):
        return self._take_stream_frame(packet)

    @final
    cdef VisionBuf _take_stream_frame(self, bytes packet):
        cdef IncomingStream stream = self._stream  # another thread may end the stream during the call
        cdef VisionBuf frame = None if stream is None else stream._take(packet)
        if frame is not None:
            self.frame_id, self.valid = frame.frame_id, frame.valid_frame
            self.timestamp_sof, self.timestamp_eof = frame.timestamp_sof, frame.timestamp_eof
        return frame
