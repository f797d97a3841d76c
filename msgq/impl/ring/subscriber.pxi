"""The subscriber's socket: the Python interface to subscriber.h.

Everything except receiving is in sub_connection.pxi.
"""


cdef enum:
    BLOCK_BYTES = 32768  # bytes that receive_array validates at once: many, but copied quickly

cdef object _tracked_class = None
cdef object _frame_class = None


cdef object _load_tracked_class():
    """Return the class that `receive_tracked` returns.

    Imported late, because the import takes as long as that of sockets.
    """
    global _tracked_class
    from msgq.common.stats.topic import Tracked
    _tracked_class = Tracked
    return Tracked


cdef object _load_frame_class():
    """Load the class at the first call, because few programs use pyzmq's names."""
    global _frame_class
    if _frame_class is None:
        from msgq.impl.sockets.pyzmq_names import Frame
        _frame_class = Frame
    return _frame_class


cdef object _again_error(str endpoint):
    from msgq.impl.sockets.pyzmq_names import make_again_error  # imported late, as the class above
    return make_again_error(endpoint)


cdef inline bytes copy_message(SubSocket self, const mq_ring_message *message):
    cdef bytes out
    if message.size >= LARGE_BYTES:
        return self._copy_large_message(message)
    out = PyBytes_FromStringAndSize(NULL, message.size)
    mq_copy_from_shared(PyBytes_AS_STRING(out), message.payload, message.size)
    return out


cdef inline bint parse_non_blocking(SubSocket self, non_blocking) except -1:
    """Return the `non_blocking` argument of a receive as a bool. Raise if it is a time."""
    if non_blocking is True or non_blocking is False:
        return non_blocking is True
    check_non_blocking(non_blocking, self._endpoint)
    return bool(non_blocking)


cdef inline int64_t default_wait_ns(SubSocket self, bint non_blocking) noexcept:
    """Return how long a receive without a timeout argument waits: -1 forever."""
    return 0 if non_blocking else WAIT_FOREVER if self._timeout_ms < 0 else <int64_t> self._timeout_ms * MQ_NS_PER_MS


cdef inline int begin_receive(SubSocket self) except -1:
    """Check that the socket may be used, and pass the gate if one may exist."""
    check_usable(self)
    if self._gate is not None:
        self._pass_gate_once()
    return 0


@cython.auto_pickle(False)  # the base class refuses pickling
cdef class SubSocket(SubConnection):
    """Receives the messages of one endpoint. See the type stub (core.pyi) for the contract of each method."""

    def __cinit__(self, *arguments):
        if arguments:
            raise constructor_error("sub_sock", arguments)

    def __reduce__(self):
        raise pickle_error(self)

    def __setattr__(self, str name, value):
        try:
            PyObject_GenericSetAttr(self, name, value)
        except AttributeError:
            raise option_error(self, name, self._endpoint) from None

    @property
    def conflate(self):
        return self._conflate

    @conflate.setter
    def conflate(self, bint value):
        check_before_connect("conflate", self._use_state == CLOSED, self._endpoint)
        self._conflate = self._conflate_default = value

    @property
    def lost(self):
        return None if self._subscriber.lost_unknown else self._subscriber.lost

    @property
    def tracked(self):
        cdef bint connected = self._use_state != CLOSED and self._subscriber.side != NULL
        return connected and mq_ring_side_is_tracked(self._subscriber.side)

    def stats(self):
        from msgq.common.stats.topic import SubscriberStats  # imported late, as `_tracked_class`
        return SubscriberStats(self._endpoint, self._subscriber.received, self.lost, self._subscriber.resets)

    def setTimeout(self, timeout):
        self._timeout_ms = parse_timeout_ms(timeout, self._endpoint)

    cdef bint _pass_gate_once(self) except -1:
        """Pass the gate at the beginning of a receive. Return True if an enabled gate was passed."""
        if self._view is not None:
            self._advance_view()
            return False
        if self._gate_passed:
            self._gate_passed = False
            return True
        return self._pass_gate()

    def receive(self, non_blocking=False, *, timeout=None):
        cdef bint at_once = non_blocking is not False and parse_non_blocking(self, non_blocking)
        cdef int64_t wait_ns = default_wait_ns(self, at_once)
        if timeout is not None:
            wait_ns = parse_timeout_ns(timeout, self._endpoint)
            wait_ns = 0 if at_once else wait_ns
        begin_receive(self)
        return self._receive_message(wait_ns)

    def __iter__(self):
        return self

    def __next__(self):
        cdef mq_ring_message known
        cdef bytes message
        begin_receive(self)
        # The usual case, without calls of functions. _receive_message handles all other cases.
        if (self._fd < 0 and not self._conflate and mq_ring_subscriber_peek_known_message(&self._subscriber, &known)
                and known.size < LARGE_BYTES):
            message = PyBytes_FromStringAndSize(NULL, known.size)
            mq_copy_from_shared(PyBytes_AS_STRING(message), known.payload, known.size)
            if mq_ring_subscriber_accept_known_copy(&self._subscriber, &known):
                return message
        message = self._receive_message(default_wait_ns(self, False))
        if message is None:
            raise StopIteration
        return message

    cdef bytes take_message(self, bint non_blocking):
        begin_receive(self)
        return self._receive_message(default_wait_ns(self, non_blocking))

    cdef bytes take_message_within(self, int64_t wait_ns):
        begin_receive(self)
        return self._receive_message(wait_ns)

    cdef bytes _receive_message(self, int64_t wait_ns):
        cdef mq_ring_message message
        cdef bytes out
        while True:
            status = mq_ring_subscriber_next_message(&self._subscriber, self._conflate, &message)
            if status != MQ_RING_OK:
                if status == MQ_RING_EMPTY and wait_ns == 0 and self._view is None:
                    # The subscriber took this cache line from the publisher, and the next send reads the line first.
                    mq_prefetch(last_ring.header)
                    if self._fd >= 0:  # rarely true; this check avoids a call for each empty ring
                        self._rearm_fd()
                    return None
                if not self._wait_for_message(&message, wait_ns):
                    self._rearm_fd()
                    return None
            out = copy_message(self, &message)
            if mq_ring_subscriber_accept_copy(&self._subscriber, &message):
                if self._fd >= 0:
                    self._rearm_fd()
                return out
            self._skip_torn_message()

    def receive_tracked(self, non_blocking=False):
        cdef mq_ring_message message
        cdef mq_stamps stamps
        cdef bint at_once = parse_non_blocking(self, non_blocking)
        Tracked = _tracked_class or _load_tracked_class()
        begin_receive(self)
        try:
            while self._wait_for_message(&message, default_wait_ns(self, at_once)):
                if not self._subscriber.stamps:
                    raise untracked_topic_error(self._endpoint)
                mq_stamps_read(&stamps, message.payload)
                out = copy_message(self, &message)
                if mq_ring_subscriber_accept_copy(&self._subscriber, &message):
                    return Tracked(out, stamps.publish_time, stamps.origin_time)
                self._skip_torn_message()
            return None
        finally:
            self._rearm_fd()

    cdef bytes _copy_large_message(self, const mq_ring_message *message):
        cdef bytes out = PyBytes_FromStringAndSize(NULL, message.size)
        cdef char *target = PyBytes_AS_STRING(out)
        self._begin_use()
        with nogil:
            mq_copy_from_shared(target, message.payload, message.size)
        self._use_state = self._fork_generation
        return out

    cdef int _wait_for_message(self, mq_ring_message *message, int64_t wait_ns) except -1:
        """Return an intact message at the cursor, waiting up to `wait_ns`. Return False if there is none."""
        cdef int64_t deadline = wait_ns if wait_ns <= 0 else self._now_ns() + wait_ns
        cdef mq_ring_status status
        while True:
            status = mq_ring_subscriber_next_intact_message(&self._subscriber, self._conflate, message)
            if status == MQ_RING_OK:
                return True
            if status != MQ_RING_EMPTY:
                self._handle_corruption()
                continue
            if self._view is not None and self._advance_view():
                continue
            mq_prefetch(last_ring.header)  # see _receive_message
            if deadline == 0 or not wait_until_ready((self,), deadline):
                return False
            check_usable(self)  # a signal handler may have forked

    cdef int _skip_torn_message(self) except -1:
        """Continue at the newest position after the message was overwritten during its copy."""
        PyErr_CheckSignals()  # handle signals even if a publisher laps the subscriber repeatedly
        check_usable(self)  # a handler may have closed the socket
        if not self._conflate and mq_ring_subscriber_recover_from_lap(&self._subscriber) != MQ_RING_OK:
            self._handle_corruption()
        return 0

    cdef int _handle_corruption(self) except -1:
        """Raise, unless the ring has grown. Then return, to try again."""
        cdef uint64_t cursor = self._subscriber.cursor
        if self._remap_if_grown():
            return 0
        mq_ring_subscriber_recover_from_lap(&self._subscriber)  # after a valid write, the next call can continue
        text = (f"no message at offset {<uint32_t> cursor}, lap {cursor >> 32} of {self._subscriber.data_bytes} bytes: "
                "another program wrote into the ring")
        raise CorruptSegmentError(text, self._endpoint, self._ring.path)

    def receive_many(self, limit=None, bint wait_for_one=False):
        cdef list messages = []
        cdef uint64_t most = UINT64_MAX if limit is None else check_limit(limit, self._endpoint)
        check_usable(self)
        if self._gate is not None and most and self._pass_gate_once():
            return self._receive_gated(most, wait_for_one, None)
        if wait_for_one:
            if (first := self._receive_message(default_wait_ns(self, False)) if most else None) is None:
                return messages
            messages.append(first)
        if mq_ring_subscriber_refresh_published(&self._subscriber) == MQ_RING_CORRUPT:
            self._handle_corruption()
        # The next call receives messages that arrive later.
        while <uint64_t> len(messages) < most and (
                self._subscriber.cursor != self._subscriber.published or self._have_more_arrived()):
            check_usable(self)  # a large copy releases the GIL, so a signal handler may have run
            message = self._receive_following() if messages else self._receive_message(0)
            if message is None:
                break
            messages.append(message)
        self._rearm_fd()
        return messages

    cdef bint _have_more_arrived(self) except -1:
        """In a simulation: True if there are messages after those that the last load of the position covers."""
        return (self._view is not None and self._advance_view()
                and mq_ring_subscriber_refresh_published(&self._subscriber) == MQ_RING_OK)

    cdef bytes _receive_following(self):
        """Return the message that follows the received ones; None if the next call must count a loss or raise."""
        cdef mq_ring_message message
        if not mq_ring_subscriber_peek_following_message(&self._subscriber, &message):
            return None
        out = copy_message(self, &message)
        return out if mq_ring_subscriber_accept_copy(&self._subscriber, &message) else None

    cdef list _receive_gated(self, uint64_t most, bint wait_for_one, dtype):
        """Take messages at an enabled gate, which was passed for the first; with a dtype, as arrays of one element.

        As in stock's loops, each message is one receive that stops at the gate. So is the last receive, which finds
        none. The controller therefore decides which messages are taken together.
        """
        cdef list messages = []
        cdef uint64_t received_count, pending_max
        try:
            while <uint64_t> len(messages) < most:
                if messages:
                    check_usable(self)
                    if not self._pass_gate_once():  # the gate is disabled: take only the messages that are present now
                        mq_ring_subscriber_refresh_published(&self._subscriber)
                        pending_max = mq_ring_subscriber_pending_bytes(&self._subscriber) // mq_ring_frame_bytes(0)
                        most = min(most, len(messages) + pending_max)
                wait_ns = default_wait_ns(self, bool(messages) or not wait_for_one)
                message = self._receive_message(wait_ns) if dtype is None else self._receive_element(dtype, wait_ns)
                if message is None:
                    break
                messages.append(message)
        except IpcError:
            if not messages:  # if messages were taken, return them; the next call finds the error again
                raise
        except BaseException:  # raised by a signal handler, so the program does not get the messages: they are lost
            received_count = len(messages)
            self._subscriber.received -= received_count
            self._subscriber.lost += received_count
            self._subscriber.sequence_base += received_count
            raise
        return messages

    cdef object _receive_element(self, dtype, int64_t wait_ns):
        """Return the next message as an array of one element, waiting if requested. Return None if there is none."""
        import numpy
        cdef mq_ring_message message
        while self._wait_for_message(&message, wait_ns):
            element = self._receive_pending_array(numpy, dtype, dtype.itemsize, 1)
            if len(element):
                return element
        return None

    def receive_into(self, buffer, non_blocking=False):
        cdef mq_ring_message message
        cdef Py_buffer view
        cdef bint at_once = parse_non_blocking(self, non_blocking)
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            begin_receive(self)
            while self._wait_for_message(&message, default_wait_ns(self, at_once)):
                if message.size > <uint64_t> view.len:
                    text = (f"message has {message.size} bytes, but the buffer has {view.len}; the message stays for "
                            "the next call")
                    raise MessageTooLargeError(text, self._endpoint)
                mq_copy_from_shared(view.buf, message.payload, message.size)
                if mq_ring_subscriber_accept_copy(&self._subscriber, &message):
                    return message.size
                self._skip_torn_message()
            return None
        finally:
            self._rearm_fd()
            PyBuffer_Release(&view)

    def receive_array(self, dtype, limit=None, bint wait_for_one=False):
        import numpy  # the only method that needs NumPy
        cdef mq_ring_message message
        cdef uint64_t size, most = UINT64_MAX if limit is None else check_limit(limit, self._endpoint)
        dtype = numpy.dtype(dtype)
        size = dtype.itemsize
        if size == 0 or dtype.hasobject:
            raise InvalidValueError(f"dtype {dtype} has no fixed size; give one with a fixed size", self._endpoint)
        check_usable(self)
        if self._gate is not None and most and self._pass_gate_once():
            elements = self._receive_gated(most, wait_for_one, dtype)
            out = numpy.empty(len(elements), dtype)
            for i, element in enumerate(elements):
                out[i:i + 1] = element
            self._rearm_fd()
            return out
        while True:
            if wait_for_one and most and not self._wait_for_message(&message, default_wait_ns(self, False)):
                return numpy.empty(0, dtype)
            out = self._receive_pending_array(numpy, dtype, size, most)
            self._rearm_fd()
            if len(out) or not wait_for_one or not most:
                return out

    cdef object _receive_pending_array(self, numpy, dtype, uint64_t size, uint64_t most):
        """Take up to `most` pending messages.

        Return an empty array if there are none, or the socket was just lapped.
        """
        cdef mq_ring_message message
        cdef mq_ring_status status
        cdef uint64_t need
        cdef Py_buffer view
        self._advance_view()
        if self._conflate:  # skips all messages except the newest
            status = mq_ring_subscriber_next_message(&self._subscriber, True, &message)
            most = min(most, <uint64_t> (status == MQ_RING_OK))
        elif mq_ring_subscriber_refresh_published(&self._subscriber) == MQ_RING_CORRUPT:
            self._handle_corruption()
        need = mq_ring_subscriber_frame_bytes(&self._subscriber, size)
        out = numpy.empty(min(most, mq_ring_subscriber_pending_bytes(&self._subscriber) // need), dtype)
        PyObject_GetBuffer(out, &view, PyBUF_WRITABLE)
        PyBuffer_Release(&view)  # no other code has the array, so its memory stays
        check_usable(self)  # Python code may have run
        received_count = self._copy_batches(<uint8_t *> view.buf, size, len(out))
        if received_count < len(out):
            out.resize((received_count, *dtype.shape), refcheck=False)
        if not received_count and most:
            self._check_next_size(size)
        return out

    cdef uint64_t _count_ready_messages(self, uint64_t size) noexcept:
        """Return the number of messages of `size` bytes that may be present. 0: none, or a call must wait or raise."""
        if self._use_state != fork_generation or self._subscriber.side == NULL or self._gate is not None:
            return 0
        if self._conflate or mq_ring_subscriber_refresh_published(&self._subscriber) == MQ_RING_CORRUPT:
            return 0
        return (mq_ring_subscriber_pending_bytes(&self._subscriber)
                // mq_ring_subscriber_frame_bytes(&self._subscriber, size))

    cdef int64_t _copy_batches(self, uint8_t *out, uint64_t size, int64_t most) except -1:
        """Take up to `most` messages of `size` bytes, validated block by block. Return their number."""
        cdef int64_t received_count = 0, block = 0
        cdef int64_t fitting = BLOCK_BYTES // mq_ring_subscriber_frame_bytes(&self._subscriber, size)
        cdef int64_t block_most = max(fitting, 1)
        while received_count < most:
            block = mq_ring_subscriber_receive_batch(&self._subscriber, out + received_count * size, size,
                                                     min(block_most, most - received_count))
            if block <= 0:
                break
            received_count += block
        if block < 0 and not received_count:
            self._skip_torn_message()
        return received_count  # after the first block, the next call reports any error again

    cdef int _check_next_size(self, uint64_t size) except -1:
        """Raise if the next message has another size."""
        cdef mq_ring_message message
        cdef mq_ring_status status = mq_ring_subscriber_peek_message(&self._subscriber, &message)
        if status == MQ_RING_OK and message.size == size:
            return 0
        if status == MQ_RING_OK:
            status = mq_ring_subscriber_revalidate_cursor(&self._subscriber)
        if status == MQ_RING_CORRUPT:
            self._handle_corruption()
        elif status == MQ_RING_OK:
            text = f"next message has {message.size} bytes, but the dtype has {size}; use receive() instead"
            raise MessageSizeError(text, self._endpoint)
        return 0

    def _receive_now(self):
        return self.take_message(True)

    # ---- pyzmq's names ----

    def recv(self, flags=0, bint copy=True):
        message = self.take_message(parse_receive_flags(flags, self._endpoint) if flags else False)
        if message is None:
            raise _again_error(self._endpoint)
        return message if copy else _load_frame_class()(message)

    def recv_into(self, buffer, flags=0):
        size = self.receive_into(buffer, parse_receive_flags(flags, self._endpoint))
        if size is None:
            raise _again_error(self._endpoint)
        return size

    @property
    def rcvtimeo(self):
        return self._timeout_ms

    @rcvtimeo.setter
    def rcvtimeo(self, timeout):
        self.setTimeout(timeout)

    @property
    def rcvhwm(self):
        return 0

    @rcvhwm.setter
    def rcvhwm(self, messages):
        check_rcvhwm(messages, self._endpoint)

    @property
    def linger(self):
        return 0

    @linger.setter
    def linger(self, milliseconds):
        check_linger(milliseconds, self._endpoint)

    def close(self, linger=None):
        if linger is not None:
            check_linger(linger, self._endpoint)
        SubConnection.close(self)
