"""The host's clock: CLOCK_MONOTONIC plus one offset. See clock.pyi, and docs/internals/clock.md for the file.

The origins (origin.pxi) are in the same module, because a further module would delay the first socket by 0.1 ms.
"""

from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint64_t
from posix.fcntl cimport O_RDONLY, O_RDWR
from posix.stat cimport S_IWGRP, S_IWOTH, struct_stat
from posix.time cimport CLOCK_REALTIME
from posix.unistd cimport close

from msgq.impl.base.core cimport (
    check_file, create_file, map_file, mq_clock, MQ_CLOCK_MAGIC, mq_read_clock_ns, MQ_CLOCK_VERSION, mq_monotonic_ns,
    MQ_NS_PER_S, mq_origin, mq_origin_allocate, mq_origin_last_word, MQ_ORIGIN_MAGIC, MQ_ORIGIN_VERSION, mq_u64,
    name_file, open_file, Segment,
)

import contextlib
import os
import struct
from time import clock_gettime_ns as _clock_gettime_ns

from msgq.common import settings, shm_paths
from msgq.errors import InvalidValueError, MsgqError, SegmentError

_CLOCK_WORDS = struct.Struct("<QQq40x")

cdef enum:
    CLOCK_TRIES = 5  # readings of both clocks; also attempts to open or create the file
    # Two readings of a clock differ by nanoseconds, but all processes must convert a time to the same origin.
    OFFSET_STEP_NS = 1000000
    CLOCK_FILE_MODE = 0o444  # all users may read the file, and no one may change it

_MAX_TIME_NS = 1 << 62  # later times are invalid
_FIRST_TIME_NAMESPACE = "time:[4026531834]"

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


def time_ns():
    return host_time_ns()


def offset_ns():
    return host_offset_ns()


def clock_problem():
    host_offset_ns()
    return _clock_problem


def wall_offset_ns():
    return _offset_from_monotonic_ns(CLOCK_REALTIME)


cdef int64_t _offset_from_monotonic_ns(int clock_id) noexcept:
    cdef int64_t before, reading, after, narrowest = -1, offset = 0
    for _ in range(CLOCK_TRIES):  # the kernel may preempt the thread between two readings
        before = mq_monotonic_ns()
        reading = mq_read_clock_ns(clock_id)
        after = mq_monotonic_ns()
        if narrowest < 0 or after - before < narrowest:
            narrowest = after - before
            offset = reading - (before + narrowest // 2)
    return offset


cdef int64_t host_time_of(int64_t time_ns, int clock_id) except? -1:
    cdef int64_t ahead = _offset_from_monotonic_ns(clock_id) + OFFSET_STEP_NS // 2
    return time_ns - ahead // OFFSET_STEP_NS * OFFSET_STEP_NS + host_offset_ns()


def to_host_time(int64_t time_ns, int clock):
    try:
        _clock_gettime_ns(clock)
    except OSError as error:
        raise InvalidValueError(f"clock is {clock}, which this system does not have; give time.CLOCK_BOOTTIME or "
                                "another clock of the module time") from error
    return host_time_of(time_ns, clock)


def _find_offset():
    """Return the offset of the host's clock for this process; a private one if no file is available."""
    global _clock_problem
    shared, own = shm_paths.clock_paths()
    try:
        ahead = _namespace_offset_ns()
        # Use the trust of the process, not the `trust=` of the connect that happens to need the clock first.
        with settings.overrides(trust=settings.get_process_trust()):
            try:
                return _agree_on_offset(shared, own, ahead) - ahead
            except SegmentError as error:
                _clock_problem = f"{error}; processes of this user share a separate clock"
                offset = _agree_on_offset(own, shared, ahead) - ahead
                log_problem("info", "clock of the host", _clock_problem)
                return offset
    except (MsgqError, OSError) as error:
        _clock_problem = f"{error}; this process uses a separate clock"
        log_problem("warning", "clock of the host", _clock_problem)
        return wall_offset_ns()


cdef int log_problem(str level, str what, str trouble) except -1:
    with contextlib.suppress(OSError):  # even if no file can be opened, `clock_problem()` returns the text
        import logging  # imported late, because the import takes as long as that of sockets
        getattr(logging.getLogger("msgq"), level)("%s cannot be used: %s", what, trouble)
    return 0


def _agree_on_offset(str path, str other, int64_t ahead):
    """Return the offset of the file at `path`, created if needed.

    A new file gets the other file's offset if that is valid.
    """
    for _ in range(CLOCK_TRIES):
        found = _read_clock_file(path, ahead)
        if found is not None:
            return found
        wanted = None
        with contextlib.suppress(SegmentError):
            wanted = _read_clock_file(other, ahead)
        wanted = wall_offset_ns() + ahead if wanted is None else wanted
        if _create_clock_file(path, wanted):
            return wanted
    raise SegmentError("other processes keep creating and removing it", path=path)


def _read_clock_file(str path, int64_t ahead):
    """Return the offset in a file, or None if the file does not exist."""
    cdef struct_stat found
    cdef int fd = open_file("", path, O_RDONLY)
    if fd < 0:
        return None
    try:
        check_file(fd, &found, "", path)
        if found.st_mode & (S_IWGRP | S_IWOTH):
            raise SegmentError("is not a trusted clock, because others can write it; remove it", path=path)
        words = os.pread(fd, sizeof(mq_clock) + 1, 0)
    finally:
        close(fd)
    if len(words) != sizeof(mq_clock):
        raise SegmentError(f"has {len(words)} bytes or more, not {sizeof(mq_clock)}; remove it", path=path)
    magic, version, offset = _CLOCK_WORDS.unpack(words)
    if (magic, version) != (MQ_CLOCK_MAGIC, MQ_CLOCK_VERSION):
        raise SegmentError(f"is not a clock of version {MQ_CLOCK_VERSION}; remove it", path=path)
    if not 0 <= mq_monotonic_ns() - ahead + offset < _MAX_TIME_NS:
        raise SegmentError(f"has the invalid offset {offset} ns; remove it", path=path)
    return offset


def _create_clock_file(str path, int64_t offset):
    """Create the file. Return False if another process was faster."""
    cdef int fd = create_file("", path, 0, CLOCK_FILE_MODE)
    try:
        os.pwrite(fd, _CLOCK_WORDS.pack(MQ_CLOCK_MAGIC, MQ_CLOCK_VERSION, offset), 0)
        return name_file(fd, "", path)
    except OSError as error:  # no space
        raise SegmentError(f"cannot be written: {error.strerror}", path=path, errno=error.errno) from error
    finally:
        close(fd)


def _namespace_offset_ns():
    """Return how far CLOCK_MONOTONIC of this time namespace is ahead of the first namespace's.

    Raises
    ------
    SegmentError : the offset is unknown.
    """
    try:
        ours, childrens = os.readlink("/proc/self/ns/time"), os.readlink("/proc/self/ns/time_for_children")
        if ours == _FIRST_TIME_NAMESPACE:
            return 0
        with open("/proc/self/timens_offsets") as file:  # of the namespace of future children
            offsets = dict([line.split(maxsplit=1) for line in file])  # a generator makes the import slower
        seconds, nanoseconds = map(int, offsets["monotonic"].split())
    except FileNotFoundError:
        return 0  # a kernel without time namespaces
    except (OSError, KeyError, ValueError) as error:
        raise SegmentError(f"no offset of this time namespace: {error}", path="/proc/self/timens_offsets") from error
    if ours != childrens:
        raise SegmentError("clock offset of this namespace is unknown", path="/proc/self/ns/time")
    return seconds * MQ_NS_PER_S + nanoseconds


include "origin.pxi"
