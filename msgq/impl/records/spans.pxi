"""TracedMessageIterator of a stage. See core.pyi."""


cdef enum:
    STAMP_AT_BEGIN = -1  # marker: the span sets the stamps when the message is taken


cdef class SpanStack:
    """See core.pyi. Spans of other threads use it, so each of them locks it."""
    cdef str _name
    cdef object _time_function  # None: the host's clock
    cdef Span _newest_span  # newest open span; each span refers to the previous span
    cdef long _owner_thread  # thread of the spans
    cdef int64_t _outer_origin  # origin of the thread outside the spans
    cdef int64_t _leftover_origin  # origin that another thread left when it ended the last span

    def __cinit__(self, str name not None, now):
        self._name, self._time_function = name, now

    cdef int64_t _read_time_ns(self) except? -1:
        return host_time_ns() if self._time_function is None else self._time_function()

    cdef int _check_owner_thread(self) except -1:
        cdef long this_thread = PyThread_get_thread_ident()
        if self._newest_span is not None and self._owner_thread != this_thread:
            raise ConcurrentUseError("another thread traces a message with this tracer; create one for each thread",
                                     self._name)
        return 0

    cdef int _push_span(self, Span span, int64_t origin) except -1:
        cdef long thread = PyThread_get_thread_ident()
        if self._newest_span is None:
            if not (self._leftover_origin and self._owner_thread == thread and
                    self._leftover_origin == current_origin()):
                self._outer_origin = current_origin()
            self._owner_thread, self._leftover_origin = thread, 0
        span._previous_span, self._newest_span = self._newest_span, span
        change_origin(origin)
        return 0

    cdef void _pop_span(self, Span span) noexcept:
        """Restore the origin of the newest open span, because tasks end in any order."""
        cdef Span after = self._newest_span
        cdef long this_thread = PyThread_get_thread_ident()
        if after is span:
            self._newest_span = span._previous_span
        else:
            while after._previous_span is not span:
                after = after._previous_span
            after._previous_span = span._previous_span
        span._previous_span = None
        if self._owner_thread == this_thread:
            change_origin(self._outer_origin if self._newest_span is None else self._newest_span._origin)
        elif self._newest_span is None:  # another thread ends the span, and that thread has its own origin
            self._leftover_origin = span._origin


cdef class Span:
    """See core.pyi."""
    cdef SpanStack _span_stack
    cdef object _send_record
    cdef Waitable _reader
    cdef Span _previous_span  # previous span, which is also open
    cdef bint _is_open
    cdef public bint superseded
    cdef int64_t _next_publish_time, _next_origin  # stamps of the next message, from `set_stamps`
    cdef int64_t _publish_time, _origin, _receive_time  # stamps of the current message

    def __cinit__(self, SpanStack stack not None, send, reader=None):
        self._span_stack, self._send_record = stack, send
        if isinstance(reader, Waitable):
            self._reader = reader

    def set_stamps(self, int64_t published, int64_t origin_time):
        self._next_publish_time, self._next_origin = published, origin_time
        return self

    cdef int begin_span(self) except -1:
        cdef int64_t sent = self._next_publish_time, origin = self._next_origin
        cdef int64_t received = self._span_stack._read_time_ns()
        cdef mq_object_lock lock
        if sent == STAMP_AT_BEGIN:
            sent, origin = received, current_origin()
        else:
            if self._reader is not None:
                mq_lock_object(&lock, <PyObject *> self._reader)
                self._reader._read_last_stamps(&sent, &origin)
                mq_unlock_object(&lock)
            if origin == 0:
                origin = sent  # without an origin, the message itself is an origin
        mq_lock_object(&lock, <PyObject *> self._span_stack)
        try:
            self._span_stack._check_owner_thread()
            if self._is_open:
                raise ConcurrentUseError("span is open already; create another one", self._span_stack._name)
            self._span_stack._push_span(self, origin)
            self._receive_time, self._publish_time, self._origin, self._is_open = received, sent, origin, True
        finally:
            mq_unlock_object(&lock)
        return 0

    cdef int end_span(self) except -1:
        cdef int64_t record[4]
        cdef bytes data
        cdef mq_object_lock lock
        mq_lock_object(&lock, <PyObject *> self._span_stack)
        cdef bint was_open = self._is_open
        if was_open:
            self._is_open = False
            self._span_stack._pop_span(self)
            record[1], record[2], record[3] = self._origin, self._receive_time, self._publish_time
        mq_unlock_object(&lock)
        if not was_open or self.superseded:
            return 0
        record[0] = self._span_stack._read_time_ns()
        data = PyBytes_FromStringAndSize(<char *> record, sizeof(record))
        try:
            self._send_record(data)
        except (MultiplePublishersError, ForkedSocketError, EndpointClosedError):
            self.superseded = True  # the stage continues even if its timing cannot be published
        except SegmentError:
            pass  # memory is missing: the stage continues without this timing
        return 0

    def __enter__(self):
        self.begin_span()
        return self

    def __exit__(self, *_):
        self.end_span()


cdef class TracedMessageIterator:
    """See core.pyi."""
    cdef object _receive_message, _wait_for_reader, _timeout, _read_stamps
    cdef Span _span

    def __cinit__(self, take, timeout, stamps, Span span not None, later=None):
        self._receive_message, self._timeout, self._read_stamps, self._span = take, timeout, stamps, span
        self._wait_for_reader = later

    def __del__(self):  # the program left the loop
        self._span.end_span()

    def __iter__(self):
        return self

    def __next__(self):
        self._span.end_span()
        # Check this before taking a message, because an unhandled message would be lost.
        self._check_owner_thread()
        if self._wait_for_reader is not None:
            chosen = self._wait_for_reader()
            if chosen is None:
                raise StopIteration
            self._receive_message, self._read_stamps = chosen
            self._wait_for_reader = None
        message = self._receive_message(self._timeout)
        if message is None:
            raise StopIteration
        if self._read_stamps is None:
            self._span._next_publish_time = self._span._next_origin = 0  # 0: the span asks its reader for the stamps
        else:
            self._span._next_publish_time, self._span._next_origin = self._read_stamps(message)
        self._span.begin_span()
        return message

    cdef int _check_owner_thread(self) except -1:
        with cython.critical_section(self._span._span_stack):
            return self._span._span_stack._check_owner_thread()

    def end_span(self):
        self._span.end_span()
