"""The file of a vector or board, or private memory. See base/endpointfile.pxi for opening and creating a file."""


@no_gc_clear  # same as the base class
cdef class RecordFile(EndpointFile):
    """See core.pxd."""

    cdef str _kind_name(self):
        return "vector or board"

    cdef size_t _min_file_bytes(self) noexcept:
        return sizeof(mq_record_header)

    cdef int _check_header(self) except -1:
        cdef mq_error error
        if mq_record_check_file(<mq_record_header *> self.segment.address, self.segment.size, self.segment.file,
                                &self.parts, &error):
            raise_error(&error, self.name)
        return 0

    cdef size_t _new_file_bytes(self) except 0:
        cdef mq_record_config config = self._make_new_config()
        cdef uint64_t size = mq_record_compute_file_bytes(&config)
        if not size:
            raise options.too_large_file_error(config.length, config.item_bytes, config.copies, self.name)
        return size

    cdef mq_record_config _make_new_config(self) except *:
        """Return the configuration of a new file."""
        cdef mq_record_config config
        if isinstance(self.open_options, options.BoardOpenOptions):
            keys, value_bytes = self.open_options.fill_defaults()
            config.length, config.item_bytes = keys, options.LENGTH_WORD_BYTES + value_bytes
            config.copies, config.flags = options.DEFAULT_COPIES, MQ_RECORD_BOARD
        else:
            dtype, length, exclusive, copies = self.open_options.fill_defaults()
            config.length, config.item_bytes, config.copies = length, dtype.itemsize, copies
            config.flags = MQ_RECORD_EXCLUSIVE if exclusive else 0
        return config

    cdef int _init_header(self) except -1:
        cdef char creator[MQ_RECORD_CREATOR_BYTES]
        cdef mq_record_header *header = <mq_record_header *> self.segment.address
        cdef mq_record_config config = self._make_new_config()
        cdef mq_schema_parts at = mq_schema_parts_from_block(&header.schema, header.schema_data, MQ_RECORD_SCHEMA_BYTES)
        memset(creator, 0, sizeof(creator))
        memcpy(creator, this_process().name, sizeof(this_process().name))
        if config.flags & MQ_RECORD_BOARD:
            schema = self.open_options.schema
        else:
            schema = struct_schema(self.open_options.fill_defaults()[0])
        if schema is not None:
            write_full_schema(&at, schema)
        mq_record_header_init(header, &config, bus_time_ns(self.bus), this_process().pid, creator)
        return 0

    cdef object missing_error(self):
        return EndpointFile.missing_error(self) if self.open_options is None else self.open_options.missing_error()

    cdef int _check_requested_options(self) except -1:
        """Compare only the type. The opener, which needs the dtype, compares the rest (`check_existing`)."""
        if self.is_board() != isinstance(self.open_options, options.BoardOpenOptions):
            raise options.wrong_records_kind_error(self.is_board(), self.name)
        return 0

    # ---- information ----

    cdef bint is_board(self) noexcept:
        return self.parts.config.flags & MQ_RECORD_BOARD != 0

    @property
    def creator(self):
        cdef mq_record_header *header = self.parts.header
        return text(header.creator, MQ_RECORD_CREATOR_BYTES), mq_load_relaxed_u64(&header.creator_pid)

    @property
    def created_ns(self):
        return mq_load_relaxed_u64(&self.parts.header.created_ns)

    @property
    def schema(self):
        cdef mq_record_header *header = self.parts.header
        cdef mq_schema_parts at = mq_schema_parts_from_block(&header.schema, header.schema_data, MQ_RECORD_SCHEMA_BYTES)
        return read_full_schema(&at)


cdef RecordFile make_record_file(str name, str in_prefix, object trust, object wanted):
    """Return the file of a vector or board, not opened."""
    cdef RecordFile file = RecordFile.__new__(RecordFile)
    file.name, file.prefix, file.trust, file.open_options = name, in_prefix, trust, wanted
    file.path, file.bus = shm_paths.records_path(name, in_prefix), find_bus(in_prefix)
    return file


cdef RecordFile open_record_file(str name, str in_prefix):
    """Return an existing file, mapped read-only for an observer."""
    file = make_record_file(name, in_prefix, None, None)
    file.open_existing()
    return file


cdef RecordFile make_private_record_file(object wanted, Bus bus):
    """Return a new vector in memory of this process."""
    cdef RecordFile file = RecordFile.__new__(RecordFile)
    cdef mq_mapping *mapping
    file.name, file.prefix, file.path, file.open_options, file.mode = "", "", "", wanted, 0o600
    file.bus = bus
    cdef size_t size = file._new_file_bytes()
    cdef void *address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if address == MAP_FAILED:
        raise segment_error(f"cannot allocate {size} bytes of memory", "", "", errno)
    mapping = mq_mapping_new(address, size)
    if mapping == NULL:
        munmap(address, size)
        raise MemoryError()
    file._use_segment(adopt_mapping(mapping, ""))
    file._init_header()
    file._check_header()
    return file


def is_board(str name, str in_prefix):
    return open_record_file(name, in_prefix).is_board()


def unlink_records(str name, str in_prefix):
    file = make_record_file(name, in_prefix, None, None)
    if not remove_file(name, file.path):
        raise options.records_missing_error(name)
