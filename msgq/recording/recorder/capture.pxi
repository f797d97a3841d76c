"""Records sources into chunks: the Python side of capture.h."""


cdef enum:
    MAPPED_POOLS_MAX = 256  # maximum pools that one run maps after its time limit: corrupt data could name more pools


CAPTURE_BATCH_MAX = MQ_CAPTURE_BATCH_MAX
NO_CHANNEL_REASON = (f"{MQ_CAPTURE_CHANNEL_IDS - 1} channels (of endpoints, publishers, keys and epochs) are the "
                     "maximum of an MCAP file; start another recording")


cdef class Capture:
    """See core.pyi."""

    cdef mq_capture _capture
    cdef list _sources, _free_numbers
    cdef FileWatcher _file_watcher

    def __cinit__(self):
        memset(&self._capture, 0, sizeof(self._capture))
        self._capture.interrupt_fd = -1
        self._capture.channels = <mq_capture_channel *> calloc(MQ_CAPTURE_CHANNEL_IDS, sizeof(mq_capture_channel))
        if self._capture.channels == NULL:
            raise MemoryError()
        self._capture.clock_offset_ns = host_offset_ns()
        self._capture.interrupt_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self._capture.interrupt_fd < 0:
            raise RecordingError(f"an eventfd cannot be created: {os.strerror(errno)}; raise ulimit -n", errno=errno)
        self._sources, self._free_numbers = [], []

    def __dealloc__(self):
        if self._capture.interrupt_fd >= 0:
            close(self._capture.interrupt_fd)
        for i in range(self._capture.source_count):
            free(self._capture.sources[i].part_channels)
        free(self._capture.channels)
        PyMem_Free(self._capture.sources)

    @property
    def clock_offset_ns(self):
        return self._capture.clock_offset_ns

    @property
    def needed_bytes(self):
        return self._capture.needed_bytes

    def set_file_watcher(self, FileWatcher watcher):
        self._capture.watcher = NULL if watcher is None else &watcher._watcher
        self._file_watcher = watcher

    def add_source(self, EndpointSource source not None, int64_t publish_offset=-1, bint follows_publisher=False):
        cdef uint32_t number = self._free_numbers.pop() if self._free_numbers else self._append_source()
        cdef mq_capture_source *captured = &self._capture.sources[number]
        source.prepare_to_take()
        self._sources[number] = source
        captured.source, captured.publish_offset = source.c, publish_offset
        captured.has_numbering_per_part = isinstance(source, RecordSource)
        captured.has_numbering = captured.is_ended = captured.lacks_channel_id = captured.states_unknown_loss = False
        captured.last_channel, captured.skipped_count, captured.stored_losses = 0, 0, 0
        captured.publisher_changes_left = MQ_CAPTURE_PUBLISHER_CHANGES_MAX if follows_publisher else 0
        return number

    cdef uint32_t _append_source(self) except? 0:
        cdef uint32_t count = self._capture.source_count
        cdef mq_capture_source *grown = <mq_capture_source *> PyMem_Realloc(
            self._capture.sources, (count + 1) * sizeof(mq_capture_source))
        if grown == NULL:
            raise MemoryError()
        memset(&grown[count], 0, sizeof(mq_capture_source))
        grown[count].is_ended = True  # the new element has no source yet
        self._capture.sources = grown
        self._sources.append(None)
        self._capture.source_count = count + 1
        return count

    def remove_source(self, uint32_t source):
        self._get_source(source).is_ended = True
        self._sources[source] = None
        self._free_numbers.append(source)

    cdef mq_capture_source *_get_source(self, uint32_t source) except NULL:
        if source >= self._capture.source_count:
            raise InvalidValueError(f"source {source} is out of range for {self._capture.source_count} sources")
        return &self._capture.sources[source]

    def list_sources_with_new_schema(self):
        return [i for i in range(self._capture.source_count) if not self._capture.sources[i].is_ended
                and not mq_source_schema_is_seen(&self._capture.sources[i].source)]

    def accept_schema(self, uint32_t source, int64_t publish_offset=-1):
        cdef mq_capture_source *captured = self._get_source(source)
        captured.publish_offset = publish_offset
        captured.source.schema_seq_seen = (<EndpointSource> self._sources[source]).c.schema_seq_seen

    def list_sources_with_new_publisher(self):
        return [i for i in range(self._capture.source_count) if not self._capture.sources[i].is_ended
                and mq_capture_has_new_publisher(&self._capture.sources[i])]

    def accept_publisher(self, uint32_t source):
        cdef mq_capture_source *captured = self._get_source(source)
        captured.publisher_changes_left -= 1
        captured.source.write_uid_seen = (<EndpointSource> self._sources[source]).c.write_uid_seen

    def begin_epoch(self, uint32_t source):
        self._get_source(source).has_numbering = False

    def begin_new_channels(self, uint32_t source):
        mq_capture_source_forget_channels(self._get_source(source))

    def reserve_channel_id(self):
        if self._capture.channel_count + 1 >= MQ_CAPTURE_CHANNEL_IDS:
            raise RecordingError(NO_CHANNEL_REASON)
        self._capture.channel_count += 1
        self._capture.channels[self._capture.channel_count].source = UINT32_MAX
        return self._capture.channel_count

    def read_host_clock_ns(self):
        return mq_monotonic_ns() + self._capture.clock_offset_ns

    def capture_messages(self, ChunkBuffer chunk not None, double seconds):
        cdef int64_t until = mq_monotonic_ns() + <int64_t> (min(max(seconds, 0.0), 3600.0) * 1e9)
        cdef mq_capture_stop_reason end = MQ_CAPTURE_UNMAPPED_POOL
        cdef int mapped = 0
        cdef eventfd_t interrupts
        for source in self._sources:
            if source is not None:
                (<EndpointSource> source).prepare_to_take()
        while end == MQ_CAPTURE_UNMAPPED_POOL and (mapped < MAPPED_POOLS_MAX or mq_monotonic_ns() < until):
            with nogil:
                end = mq_capture_run(&self._capture, &chunk._chunk, until)
            if end == MQ_CAPTURE_UNMAPPED_POOL:
                (<EndpointSource> self._sources[self._capture.stopped_source]).map_missing_pool()
                mapped += 1
        if end == MQ_CAPTURE_CORRUPT_SOURCE:
            self._repair_source(self._capture.stopped_source)
        if end == MQ_CAPTURE_INTERRUPTED:
            eventfd_read(self._capture.interrupt_fd, &interrupts)
        return end == MQ_CAPTURE_CHUNK_FULL

    def interrupt_capture(self):
        eventfd_write(self._capture.interrupt_fd, 1)

    cdef int _repair_source(self, uint32_t number) except -1:
        try:
            (<EndpointSource> self._sources[number]).handle_corruption()
        except SegmentSizeError:
            self._capture.sources[number].is_ended = True
            raise
        return 0

    def list_channels(self, uint32_t start=1):
        return [(i, channel.source, channel.epoch, channel.part, channel.has_publisher_sequence, channel.tracked,
                 channel.first_sequence & UINT32_MAX,
                 None if channel.lost_before == MQ_CAPTURE_LOST_UNKNOWN else channel.lost_before)
                for i in range(start, self._capture.channel_count + 1)
                for channel in [self._capture.channels[i]] if channel.source != UINT32_MAX]

    def is_source_ended(self, uint32_t source):
        return self._capture.sources[source].is_ended

    def count_skipped_messages(self, uint32_t source):
        return self._capture.sources[source].skipped_count

    def lacks_channel_id(self, uint32_t source):
        return self._capture.sources[source].lacks_channel_id
