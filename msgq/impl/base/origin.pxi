"""Origins: one word for each thread, and one that a user's processes share.

See clock.pyi and docs/guides/tracking.md.
"""


cdef extern from * nogil:
    """
    static _Thread_local int64_t mq_thread_origin;
    """
    int64_t mq_thread_origin

cdef int64_t _FIRST_BOOT_TIME_NS = 1000000000  # 1 s: no program runs earlier, and tests use smaller numbers as origins
cdef int64_t _LAST_BOOT_TIME_NS = 315532800000000000  # 1980, or ten years after a boot

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
    cdef mq_file_policy policy
    cdef mq_mapping *mapping  # mapped until the process ends: threads may allocate while the interpreter ends
    cdef mq_error error
    try:
        # Trust only root in addition: another user's file would show when we allocate origins.
        with settings.overrides(trust=""):
            load_file_policy(&policy, "")
        if mq_open_origins(&policy, os.fsencode(shm_paths.origin_counter_path()), &mapping, &error):
            raise_error(&error, "")
        return mq_origin_last_word(<mq_origin *> mapping.address)
    except MsgqError as problem:
        _origin_problem = f"{problem}; origins are unique only in this process"
        log_problem("warning", "shared counter of origins", _origin_problem)
        return mq_origin_last_word(&_private_origin)
