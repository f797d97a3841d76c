"""The host's clock: CLOCK_MONOTONIC plus one offset. See clock.pyi, and docs/internals/clock.md for the file.

The origins (origin.pxi) are in the same module, because a further module would delay the first socket by 0.1 ms.
"""

from libc.errno cimport EMFILE, ENFILE
from libc.stdint cimport int64_t, uint64_t
from posix.time cimport CLOCK_REALTIME

from msgq.impl.base.core cimport (
    Bus, exception_of, load_file_policy, mq_error, mq_file_policy, mq_mapping, mq_monotonic_ns, mq_origin,
    mq_origin_allocate, mq_origin_last_word, mq_u64, raise_error,
)

import os
from time import clock_gettime_ns as _clock_gettime_ns

from msgq.common import settings, shm_paths
from msgq.errors import InvalidValueError, MsgqError


cdef extern from "base/clock_file.h" nogil:
    int64_t mq_offset_from_monotonic_ns(int clock)
    int mq_namespace_offset_ns(int64_t *ahead, mq_error *error)
    int mq_agree_on_clock_offset(const mq_file_policy *policy, const char *path, const char *other, int64_t ahead,
                                 int64_t *offset, mq_error *error)
    int mq_open_origins(const mq_file_policy *policy, const char *path, mq_mapping **mapping, mq_error *error)


cdef enum:
    # Two readings of a clock differ by nanoseconds, but all processes must convert a time to the same origin.
    OFFSET_STEP_NS = 1000000

cdef bint _is_offset_known = False
cdef int64_t _offset_ns = 0
_clock_problem = ""


cdef int64_t host_offset_ns() except? -1:
    global _is_offset_known, _offset_ns
    cdef int64_t found
    if not _is_offset_known:
        found = _find_offset()
        if not _is_offset_known:  # another thread may have been faster
            _offset_ns, _is_offset_known = found, True
    return _offset_ns


cdef int64_t host_time_ns() except? -1:
    return mq_monotonic_ns() + host_offset_ns()


cdef int64_t bus_time_ns(Bus bus) except? -1:
    return host_time_ns() if bus is None else bus.clock.now_ns


def time_ns():
    return host_time_ns()


def offset_ns():
    return host_offset_ns()


def clock_problem():
    host_offset_ns()
    return _clock_problem


def wall_offset_ns():
    return mq_offset_from_monotonic_ns(CLOCK_REALTIME)


cdef int64_t host_time_of(int64_t time_ns, int clock_id) except? -1:
    cdef int64_t ahead = mq_offset_from_monotonic_ns(clock_id) + OFFSET_STEP_NS // 2
    return time_ns - ahead // OFFSET_STEP_NS * OFFSET_STEP_NS + host_offset_ns()


def to_host_time(int64_t time_ns, int clock):
    try:
        _clock_gettime_ns(clock)
    except OSError as error:
        raise InvalidValueError(f"clock is {clock}, which this system does not have; give time.CLOCK_BOOTTIME or "
                                "another clock of the module time") from error
    return host_time_of(time_ns, clock)


cdef int64_t _find_offset() except? -1:
    """Return the offset of the host's clock for this process; a private one if no file is available."""
    global _clock_problem
    cdef mq_file_policy policy
    cdef mq_error error
    cdef int64_t ahead = 0, offset = 0
    cdef bytes shared, own
    shared, own = map(os.fsencode, shm_paths.clock_paths())
    try:
        # Use the trust of the process, not the `trust=` of the connect that happens to need the clock first.
        with settings.overrides(trust=settings.get_process_trust()):
            load_file_policy(&policy, "")
        if mq_namespace_offset_ns(&ahead, &error):
            raise_error(&error, "")
        if mq_agree_on_clock_offset(&policy, shared, own, ahead, &offset, &error):
            _clock_problem = f"{exception_of(&error, "")}; processes of this user share a separate clock"
            if mq_agree_on_clock_offset(&policy, own, shared, ahead, &offset, &error):
                raise_error(&error, "")
            log_problem("info", "clock of the host", _clock_problem)
        return offset - ahead
    except MsgqError as problem:
        if problem.errno in (EMFILE, ENFILE):  # the next call may find a descriptor
            raise
        _clock_problem = f"{problem}; this process uses a separate clock"
        log_problem("warning", "clock of the host", _clock_problem)
        return mq_offset_from_monotonic_ns(CLOCK_REALTIME)


cdef int log_problem(str level, str what, str trouble) except -1:
    try:
        import logging  # imported late, because the import takes as long as that of sockets
        getattr(logging.getLogger("msgq"), level)("%s cannot be used: %s", what, trouble)
    except OSError:  # no descriptor is free, so no module can be imported; `clock_problem()` returns the text
        pass
    return 0


include "origin.pxi"
