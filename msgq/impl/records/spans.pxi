"""Spans of a stage. See core.pyi."""


cdef enum:
    AT_BEGIN = -1     # stamps of what begins when it is taken


cdef class SpanStack:
    """See core.pyi."""
    cdef str _name
    cdef object _now            # None: the host's clock
    cdef Span _newest          # that is open; each has the one before it
    cdef long _thread  # whose they are
    cdef int64_t _outer         # its origin without them
    cdef int64_t _leftover_origin          # what another thread, which ended the last one, could not take from it

    def __cinit__(self, str name not None, now):
        self._name, self._now = name, now

    cdef int64_t _time(self) except? -1:
        return host_time_ns() if self._now is None else self._now()

    cdef int _check(self) except -1:
        cdef long this_thread = PyThread_get_thread_ident()
        if self._newest is not None and self._thread != this_thread:
            raise ConcurrentUseError("another thread handles a message with this tracer; make one for each",
                                     self._name)
        return 0

    cdef int _begin(self, Span span, int64_t origin) except -1:
        cdef long thread = PyThread_get_thread_ident()
        if self._newest is None:
            if not (self._leftover_origin and self._thread == thread and self._leftover_origin == current_origin()):
                self._outer = current_origin()
            self._thread, self._leftover_origin = thread, 0
        span._before, self._newest = self._newest, span
        change_origin(origin)
        return 0

    cdef int _end(self, Span span) except -1:
        """Have the origin of the round before again: the newest that is open, for tasks end in any order."""
        cdef Span after = self._newest
        cdef long this_thread = PyThread_get_thread_ident()
        if after is span:
            self._newest = span._before
        else:
            while after._before is not span:
                after = after._before
            after._before = span._before
        span._before = None
        if self._thread == this_thread:
            change_origin(self._outer if self._newest is None else self._newest._origin)
        elif self._newest is None:  # it is dropped elsewhere, and that one's is its own
            self._leftover_origin = span._origin
        return 0


cdef class Span:
    """See core.pyi."""
    cdef SpanStack _stack
    cdef object _send
    cdef Waitable _reader
    cdef Span _before          # that is open as well
    cdef bint _is_open
    cdef public bint superseded
    cdef int64_t _published, _given_origin   # of the next message, as `with_stamps` said
    cdef int64_t _sent, _origin, _received  # of that which is handled

    def __cinit__(self, SpanStack stack not None, send, reader=None):
        self._stack, self._send = stack, send
        if isinstance(reader, Waitable):
            self._reader = reader

    def with_stamps(self, int64_t published, int64_t origin_time):
        self._published, self._given_origin = published, origin_time
        return self

    cdef int begin(self) except -1:
        cdef int64_t sent = self._published, origin = self._given_origin
        self._stack._check()
        if self._is_open:
            raise ConcurrentUseError("this round is open already; make another one", self._stack._name)
        self._received = self._stack._time()
        if sent == AT_BEGIN:
            sent, origin = self._received, current_origin()
        else:
            if self._reader is not None:
                self._reader._stamps_of_last(&sent, &origin)
            if origin == 0:
                origin = sent  # it is an origin itself
        self._stack._begin(self, origin)
        self._sent, self._origin, self._is_open = sent, origin, True
        return 0

    cdef int end(self) except -1:
        cdef int64_t record[4]
        cdef bytes data
        if not self._is_open:
            return 0
        self._is_open = False
        self._stack._end(self)
        if self.superseded:
            return 0
        record[0], record[1] = self._stack._time(), self._origin
        record[2], record[3] = self._received, self._sent
        data = PyBytes_FromStringAndSize(<char *> record, sizeof(record))
        try:
            self._send(data)
        except (MultiplePublishersError, ForkedSocketError, EndpointClosedError):
            self.superseded = True  # a stage's work does not end because nobody is told how long it takes
        except SegmentError:
            pass  # nor for want of memory
        return 0

    def __enter__(self):
        self.begin()
        return self

    def __exit__(self, *_):
        self.end()


cdef class Spans:
    """See core.pyi."""
    cdef object _receive, _choose_take, _timeout, _stamps
    cdef Span _span

    def __cinit__(self, take, timeout, stamps, Span span not None, later=None):
        self._receive, self._timeout, self._stamps, self._span = take, timeout, stamps, span
        self._choose_take = later

    def __del__(self):  # the loop was left
        self._span.end()

    def __iter__(self):
        return self

    def __next__(self):
        self._span.end()
        self._span._stack._check()  # before a message is taken: what is not handled would be gone
        if self._choose_take is not None:
            chosen = self._choose_take()
            if chosen is None:
                raise StopIteration
            self._receive, self._stamps = chosen
            self._choose_take = None
        message = self._receive(self._timeout)
        if message is None:
            raise StopIteration
        if self._stamps is None:
            self._span._published = self._span._given_origin = 0  # unless the reader knows better
        else:
            self._span._published, self._span._given_origin = self._stamps(message)
        self._span.begin()
        return message

    def end(self):
        self._span.end()
