"""Origins: one word for each thread, and one that a user's processes share.

See clock.pyi and docs/guides/tracking.md.
"""


cdef extern from * nogil:
    """
    static _Thread_local int64_t mq_thread_origin;
    """
    int64_t mq_thread_origin

_ORIGIN_WORDS = struct.Struct("<QQ48x")

cdef int64_t _FIRST_BOOT_TIME_NS = 1000000000  # 1 s: no program runs earlier, and tests use smaller numbers as origins
cdef int64_t _LAST_BOOT_TIME_NS = 315532800000000000  # 1980, or ten years after a boot

cdef enum:
    ORIGIN_TRIES = 5  # attempts to open or create the file
    ORIGIN_FILE_MODE = 0o600  # private to this user

cdef mq_origin _private_origin  # used if no file is available
cdef mq_u64 *_shared_origin_word = NULL  # the word that allocates origins; NULL: not used yet
_origin_problem = ""


cdef int64_t current_origin() noexcept nogil:
    return mq_thread_origin


cdef void change_origin(int64_t origin) noexcept nogil:
    global mq_thread_origin
    mq_thread_origin = origin


cdef int64_t new_origin(int64_t now_ns) except? -1:
    return mq_origin_allocate(_load_origin_word(), now_ns, 1)


cdef int refuse_foreign_origin(uint64_t origin_time, str endpoint) except -1:
    """Raise InvalidValueError for a time since the boot, which is not a time of the host's clock."""
    if _FIRST_BOOT_TIME_NS <= <int64_t> origin_time < _LAST_BOOT_TIME_NS <= host_offset_ns():
        raise InvalidValueError(f"origin_time is {origin_time}, a time since the boot and not of the host's clock; "
                                "convert it by msgq.to_host_time(time_ns, time.CLOCK_BOOTTIME), or give "
                                "frame.origin_time", endpoint)
    return 0


cdef int prepare_origins() except -1:
    _load_origin_word()
    return 0


cdef mq_u64 *_load_origin_word() except NULL:
    global _shared_origin_word
    if _shared_origin_word == NULL:
        _shared_origin_word = _find_origin_word()
    return _shared_origin_word


def origin_time():
    return mq_thread_origin


def set_origin(int64_t origin_time):
    if origin_time < 0:
        raise InvalidValueError(f"origin_time is {origin_time}; give nanoseconds of the host's clock, or 0 for none")
    change_origin(origin_time)


def new_origin_time(uint64_t count=1):
    return mq_origin_allocate(_load_origin_word(), host_time_ns(), count)


def origin_problem():
    _load_origin_word()
    return _origin_problem


cdef mq_u64 *_find_origin_word() except NULL:
    """Return the user's word; a private one if no file is available."""
    global _origin_problem
    cdef Segment segment
    path = shm_paths.origin_counter_path()
    try:
        # Trust only root in addition: another user's file would show when we allocate origins.
        with settings.overrides(trust=""):
            segment = _map_origin_file(path)
    except (MsgqError, OSError) as error:
        _origin_problem = f"{error}; origins are unique only in this process"
        log_problem("warning", "shared counter of origins", _origin_problem)
        return mq_origin_last_word(&_private_origin)
    Py_INCREF(segment)  # mapped until the process ends: threads may allocate while the interpreter ends
    return mq_origin_last_word(<mq_origin *> segment.address)


cdef Segment _map_origin_file(str path):
    """Map the user's file, created if needed."""
    cdef struct_stat found
    cdef Segment segment
    cdef int fd
    for _ in range(ORIGIN_TRIES):
        fd = open_file("", path, O_RDWR)
        if fd < 0:
            _create_origin_file(path)
            continue
        try:
            check_file(fd, &found, "", path)
            if found.st_size != sizeof(mq_origin):
                raise SegmentError(f"has {found.st_size} bytes, not {sizeof(mq_origin)}; remove it", path=path)
            segment = map_file(fd, &found, found.st_size, "", path)
        finally:
            close(fd)
        if _ORIGIN_WORDS.unpack((<char *> segment.address)[:sizeof(mq_origin)]) != (MQ_ORIGIN_MAGIC, MQ_ORIGIN_VERSION):
            raise SegmentError(f"has no origins of version {MQ_ORIGIN_VERSION}; remove it", path=path)
        return segment
    raise SegmentError("other processes keep creating and removing it", path=path)


def _create_origin_file(str path):
    """Create the file, unless another process was faster."""
    cdef int fd = create_file("", path, 0, ORIGIN_FILE_MODE)
    try:
        os.pwrite(fd, _ORIGIN_WORDS.pack(MQ_ORIGIN_MAGIC, MQ_ORIGIN_VERSION), 0)
        name_file(fd, "", path)
    except OSError as error:  # no space
        raise SegmentError(f"cannot be written: {error.strerror}", path=path, errno=error.errno) from error
    finally:
        close(fd)
