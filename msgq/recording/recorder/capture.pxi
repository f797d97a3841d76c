"""Sources into chunks: the Python side of capture.h."""


cdef enum:
    MAPPED_MAX = 256  # pools in one run, beyond its time: bytes of others could lead from one to the next


CAPTURE_BATCH_MAX = MQ_CAPTURE_BATCH_MAX
NO_CHANNEL_REASON = (f"{MQ_CAPTURE_CHANNELS - 1} endpoints, publishers, keys and epochs are all that MCAP can number; "
                     "begin another recording")


cdef class Capture:
    """See core.pyi."""

    cdef mq_capture _capture
    cdef list _sources, _free
    cdef FileWatcher _file_watcher

    def __cinit__(self):
        memset(&self._capture, 0, sizeof(self._capture))
        self._capture.interrupt = -1
        self._capture.channels = <mq_capture_channel *> calloc(MQ_CAPTURE_CHANNELS, sizeof(mq_capture_channel))
        if self._capture.channels == NULL:
            raise MemoryError()
        self._capture.clock_offset_ns = host_offset_ns()
        self._capture.interrupt = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self._capture.interrupt < 0:
            raise RecordingError(f"cannot make an eventfd: {os.strerror(errno)}; raise ulimit -n", errno=errno)
        self._sources, self._free = [], []

    def __dealloc__(self):
        if self._capture.interrupt >= 0:
            close(self._capture.interrupt)
        for i in range(self._capture.tap_count):
            free(self._capture.taps[i].channels)
        free(self._capture.channels)
        PyMem_Free(self._capture.taps)

    @property
    def clock_offset_ns(self):
        return self._capture.clock_offset_ns

    @property
    def needed_bytes(self):
        return self._capture.needed

    def watch(self, FileWatcher watcher):
        self._capture.watcher = NULL if watcher is None else &watcher.c
        self._file_watcher = watcher

    def add(self, Source source not None, int64_t publish_offset=-1):
        cdef uint32_t number = self._free.pop() if self._free else self._new_tap()
        cdef mq_tap *tap = &self._capture.taps[number]
        source.prepare()
        self._sources[number] = source
        tap.from_, tap.publish_offset, tap.separate = source.c, publish_offset, isinstance(source, RecordSource)
        tap.has_numbering = tap.ended = tap.lacks_channel_id = tap.states_unknown_loss = False
        tap.channel, tap.skipped_count, tap.stored_losses = 0, 0, 0
        return number

    cdef uint32_t _new_tap(self) except? 0:
        cdef uint32_t count = self._capture.tap_count
        cdef mq_tap *grown = <mq_tap *> PyMem_Realloc(self._capture.taps, (count + 1) * sizeof(mq_tap))
        if grown == NULL:
            raise MemoryError()
        memset(&grown[count], 0, sizeof(mq_tap))
        grown[count].ended = True  # there is nothing in it so far
        self._capture.taps = grown
        self._sources.append(None)
        self._capture.tap_count = count + 1
        return count

    def remove(self, uint32_t source):
        self._tap(source).ended = True
        self._sources[source] = None
        self._free.append(source)

    cdef mq_tap *_tap(self, uint32_t source) except NULL:
        if source >= self._capture.tap_count:
            raise InvalidValueError(f"source {source} of {self._capture.tap_count}")
        return &self._capture.taps[source]

    def sources_with_new_schema(self):
        return [i for i in range(self._capture.tap_count)
                if not (self._capture.taps[i].ended or mq_source_schema_is_seen(&self._capture.taps[i].from_))]

    def describe(self, uint32_t source, int64_t publish_offset=-1):
        cdef mq_tap *tap = self._tap(source)
        tap.publish_offset = publish_offset
        tap.from_.schema_seq_seen = (<Source> self._sources[source]).c.schema_seq_seen

    def begin_epoch(self, uint32_t source):
        self._tap(source).has_numbering = False

    def begin_channels(self, uint32_t source):
        mq_tap_forget_channels(self._tap(source))

    def new_channel(self):
        if self._capture.channel_count + 1 >= MQ_CAPTURE_CHANNELS:
            raise RecordingError(NO_CHANNEL_REASON)
        self._capture.channel_count += 1
        self._capture.channels[self._capture.channel_count].source = UINT32_MAX
        return self._capture.channel_count

    def now(self):
        return mq_monotonic_ns() + self._capture.clock_offset_ns

    def run(self, ChunkBuffer chunk not None, double seconds):
        cdef int64_t until = mq_monotonic_ns() + <int64_t> (min(max(seconds, 0.0), 3600.0) * 1e9)
        cdef mq_capture_end end = MQ_CAPTURE_UNMAPPED
        cdef int mapped = 0
        cdef eventfd_t interrupts
        for source in self._sources:
            if source is not None:
                (<Source> source).prepare()
        while end == MQ_CAPTURE_UNMAPPED and (mapped < MAPPED_MAX or mq_monotonic_ns() < until):
            with nogil:
                end = mq_capture_run(&self._capture, &chunk._chunk, until)
            if end == MQ_CAPTURE_UNMAPPED:
                (<Source> self._sources[self._capture.stuck]).map_missing()
                mapped += 1
        if end == MQ_CAPTURE_CORRUPT:
            self._resume(self._capture.stuck)
        if end == MQ_CAPTURE_INTERRUPTED:
            eventfd_read(self._capture.interrupt, &interrupts)
        return end == MQ_CAPTURE_FULL

    def interrupt(self):
        eventfd_write(self._capture.interrupt, 1)

    cdef int _resume(self, uint32_t number) except -1:
        try:
            (<Source> self._sources[number]).repair()
        except SegmentSizeError:
            self._capture.taps[number].ended = True
            raise
        return 0

    def channels(self, uint32_t start=1):
        return [(i, channel.source, channel.epoch, channel.part, channel.counted, channel.tracked,
                 channel.first & UINT32_MAX,
                 None if channel.lost_before == MQ_CAPTURE_LOST_UNKNOWN else channel.lost_before)
                for i in range(start, self._capture.channel_count + 1)
                for channel in [self._capture.channels[i]] if channel.source != UINT32_MAX]

    def is_ended(self, uint32_t source):
        return self._capture.taps[source].ended

    def count_skipped(self, uint32_t source):
        return self._capture.taps[source].skipped_count

    def lacks_channel(self, uint32_t source):
        return self._capture.taps[source].lacks_channel_id
