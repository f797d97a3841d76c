"""Rounds of a stage. See rounds.pyi."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t

from msgq.impl.base.clock cimport host_time_ns
from msgq.impl.base.origin cimport change_origin, current_origin
from msgq.impl.base.waiting cimport Waitable

from msgq.errors import (
    ConcurrentUseError, EndpointClosedError, ForkedSocketError, MultiplePublishersError, SegmentError,
)


cdef enum:
    WHEN_TAKEN = -1     # stamps of what begins when it is taken


cdef class Desk:
    """See rounds.pyi."""

    def __cinit__(self, str name not None, now):
        self._name, self._now = name, now

    cdef int64_t _time(self) except? -1:
        return host_time_ns() if self._now is None else self._now()

    cdef int _check(self) except -1:
        cdef long here = PyThread_get_thread_ident()
        if self._newest is not None and self._thread != here:
            raise ConcurrentUseError("another thread handles a message with this tracker; make one for each",
                                     self._name)
        return 0

    cdef int _begin(self, Round this, int64_t origin) except -1:
        cdef long thread = PyThread_get_thread_ident()
        if self._newest is None:
            if not (self._left and self._thread == thread and self._left == current_origin()):
                self._outer = current_origin()
            self._thread, self._left = thread, 0
        this._before, self._newest = self._newest, this
        change_origin(origin)
        return 0

    cdef int _end(self, Round this) except -1:
        """Have the origin of the round before again: the newest that is open, for tasks end in any order."""
        cdef Round after = self._newest
        cdef long here = PyThread_get_thread_ident()
        if after is this:
            self._newest = this._before
        else:
            while after._before is not this:
                after = after._before
            after._before = this._before
        this._before = None
        if self._thread == here:
            change_origin(self._outer if self._newest is None else self._newest._origin)
        elif self._newest is None:  # it is dropped elsewhere, and that one's is its own
            self._left = this._origin
        return 0


cdef class Round:
    """See rounds.pyi."""

    def __cinit__(self, Desk desk not None, send, reader=None):
        self._desk, self._send = desk, send
        if isinstance(reader, Waitable):
            self._reader = reader

    def of(self, int64_t published, int64_t origin_time):
        self._published, self._told_origin = published, origin_time
        return self

    cdef int begin(self) except -1:
        cdef int64_t sent = self._published, origin = self._told_origin
        self._desk._check()
        if self._is_open:
            raise ConcurrentUseError("this round is open already; make another one", self._desk._name)
        self._received = self._desk._time()
        if sent == WHEN_TAKEN:
            sent, origin = self._received, current_origin()
        else:
            if self._reader is not None:
                self._reader._stamps_of_last(&sent, &origin)
            if origin == 0:
                origin = sent  # it is an origin itself
        self._desk._begin(self, origin)
        self._sent, self._origin, self._is_open = sent, origin, True
        return 0

    cdef int end(self) except -1:
        cdef int64_t record[4]
        cdef bytes said
        if not self._is_open:
            return 0
        self._is_open = False
        self._desk._end(self)
        if self.untold:
            return 0
        record[0], record[1] = self._desk._time(), self._origin
        record[2], record[3] = self._received, self._sent
        said = PyBytes_FromStringAndSize(<char *> record, sizeof(record))
        try:
            self._send(said)
        except (MultiplePublishersError, ForkedSocketError, EndpointClosedError):
            self.untold = True  # a stage's work does not end because nobody is told how long it takes
        except SegmentError:
            pass  # nor for want of memory
        return 0

    def __enter__(self):
        self.begin()
        return self

    def __exit__(self, *_):
        self.end()


cdef class Rounds:
    """See rounds.pyi."""

    def __cinit__(self, take, timeout, stamps, Round this not None, later=None):
        self._take, self._timeout, self._stamps, self._round = take, timeout, stamps, this
        self._later = later

    def __del__(self):  # the loop was left
        self._round.end()

    def __iter__(self):
        return self

    def __next__(self):
        self._round.end()
        self._round._desk._check()  # before a message is taken: what is not handled would be gone
        if self._later is not None:
            known = self._later()
            if known is None:
                raise StopIteration
            self._take, self._stamps = known
            self._later = None
        message = self._take(self._timeout)
        if message is None:
            raise StopIteration
        if self._stamps is None:
            self._round._published = self._round._told_origin = 0  # unless the reader knows better
        else:
            self._round._published, self._round._told_origin = self._stamps(message)
        self._round.begin()
        return message

    def end(self):
        self._round.end()
