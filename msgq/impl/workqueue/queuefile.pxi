"""A queue's file. See base/endpointfile.pxi for opening and creating it."""


@no_gc_clear  # same as the base class
cdef class QueueFile(EndpointFile):
    """See core.pxd.

    A notification uses the file of its handle in another thread. The file's lock therefore guards the change of the
    parts, when the slots are mapped.
    """

    cdef str _kind_name(self):
        return "queue"

    cdef size_t _min_file_bytes(self) noexcept:
        return sizeof(mq_queue)

    cdef int _check_header(self) except -1:
        cdef mq_error error
        if mq_queue_check_file(<mq_queue *> self.segment.address, self.segment.size, self.segment.file, &self.parts,
                               &error):
            raise_error(&error, self.name)
        return 0

    cdef size_t _new_file_bytes(self) except 0:
        return mq_queue_compute_new_file_bytes(&self.request)

    cdef int _init_header(self) except -1:
        mq_queue_init_file(<mq_queue *> self.segment.address, &self.request, bus_time_ns(self.bus), this_process())
        return 0

    cdef int _check_requested_options(self) except -1:
        if not self.adopt_sizes() and not self.parts.max_messages and self.request.names_sizes:
            self.choose_sizes()
        if self.wanted.strict and (self.request.names_sizes or self.wanted.events is not None):
            self.wanted.check(self.parts.max_messages, self.parts.max_message_size, self.parts.events, self.creator)
        return 0

    cdef int choose_sizes(self) except -1:
        """Choose the sizes of the queue, unless another process has chosen them. Then map the slots."""
        cdef mq_process_identity us
        cdef mq_error error
        cdef mq_file_lock lock
        self.lock(&lock)
        try:
            read_own_identity(&us, NULL)
            with nogil:
                failed = mq_queue_choose_sizes(self.parts.queue, &self.policy, &lock, &self.request, &us, &error)
        finally:
            self.unlock(&lock)
        if failed:
            raise_error(&error, self.name)
        with cython.critical_section(self):
            return self._map_slots()  # unless another thread has done so during the wait for the lock

    cdef bint adopt_sizes(self) except -1:
        """Map the slots if the sizes were chosen since this file was mapped. Return False if they were not."""
        with cython.critical_section(self):
            if self.parts.max_messages or not mq_queue_has_sizes(self.parts.queue):
                return False
            self._map_slots()
            return True

    cdef int _map_slots(self) except -1:
        """Map the whole file after its sizes were chosen, read-only for observers.

        After an error, the handle keeps its previous mapping.
        """
        cdef struct_stat found
        cdef Segment sized
        cdef mq_error error
        if self.parts.max_messages:
            return 0
        check_file(self.fd, &found, self.name, self.path)
        writable_bytes = 0 if self.wanted is None else found.st_size
        sized = map_file(self.fd, &found, writable_bytes, self.name, self.path)
        if self.parts.max_messages:  # another thread was faster
            return 0
        if mq_queue_check_sized_file(<mq_queue *> sized.address, sized.size, sized.file, &self.parts, &error):
            raise_error(&error, self.name)
        self.unsized_segment, self.unsized_memory = self.segment, self.memory
        self._use_segment(sized)
        self.not_truncated = sized.not_truncated
        return 0

    cdef void release(self) noexcept:
        with cython.critical_section(self):
            EndpointFile.release(self)
            self.unsized_memory = None

    # ---- information ----

    @property
    def creator(self):
        cdef mq_queue *queue = self.parts.queue
        return text(queue.creator, MQ_QUEUE_CREATOR_BYTES), mq_load_relaxed_u64(&queue.creator_pid)

    @property
    def created_ns(self):
        return mq_load_relaxed_u64(&self.parts.queue.created_ns)

    @property
    def schema(self):
        cdef mq_schema_parts at = self.schema_parts()
        return read_full_schema(&at)

    cdef mq_schema_parts schema_parts(self) noexcept:
        cdef mq_queue *queue = self.parts.queue
        return mq_schema_parts_from_block(&queue.schema, queue.schema_data, MQ_QUEUE_SCHEMA_DATA_BYTES)


cdef QueueFile queue_file(str name, str in_prefix, object trust, object wanted):
    """Return the file of a queue, not opened. wanted: an options.OpenRequest; None for observers."""
    cdef QueueFile file = QueueFile.__new__(QueueFile)
    file.name, file.prefix, file.trust, file.wanted = name, in_prefix, trust, wanted
    file.path, file.bus = shm_paths.queue_path(name, in_prefix), find_bus(in_prefix)
    if wanted is not None:
        file.request = mq_queue_make_request(wanted.max_messages or 0, wanted.max_message_size or 0,
                                             <mq_queue_events_mode> <int> wanted.new_events())
    return file


cdef QueueFile open_queue_file(str name, str in_prefix):
    """Return an existing file, mapped read-only for an observer."""
    file = queue_file(name, in_prefix, None, None)
    file.open_existing()
    return file


def unlink_queue(str name, str in_prefix):
    """See core.pyi."""
    file = queue_file(name, in_prefix, None, None)
    if read_file_status(file.path) is not None:
        remove_events(name, in_prefix)  # first, so that a process that creates the queue again does not find the events
    if not remove_file(name, file.path):
        raise file.missing_error()
