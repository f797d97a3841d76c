"""Receives the messages of a SubMaster, and sets the states of its topics. See the type stub (topic_receiver.pyi)."""

from cpython.dict cimport PyDict_SetItem
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.math cimport INFINITY
from libc.stdint cimport int64_t

import time

from msgq.errors import InvalidValueError

ALIVE_PERIODS = 10
RATE_WINDOW_SECONDS = 10


cdef class RateCheck:
    """See the type stub."""

    cdef double _alive_seconds, _low, _high, _alive_until_s, _rate_ok_until_s
    cdef int64_t _receipts, _capacity
    cdef int64_t[2] _intervals  # intervals of each window when it is full
    cdef double *_receipt_times  # times of the newest messages: number i is at i % _capacity

    def __cinit__(self, double rate, double expected, double low, double high):
        self._alive_seconds, self._low, self._high = ALIVE_PERIODS / rate, low, high
        self._alive_until_s = self._rate_ok_until_s = -INFINITY
        self._intervals[0] = round(RATE_WINDOW_SECONDS * expected)
        self._intervals[1] = max(1, self._intervals[0] // 10)
        self._capacity = max(self._intervals[0], self._intervals[1]) + 1
        self._receipt_times = <double *> PyMem_Malloc(self._capacity * sizeof(double))
        if self._receipt_times == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._receipt_times)

    cdef void _add_receipt(self, double now) noexcept:
        """Add a message that arrived at `now` seconds. Times must not go back."""
        cdef int64_t intervals
        cdef double oldest, span, until
        self._receipt_times[self._receipts % self._capacity] = now
        self._alive_until_s = now + self._alive_seconds
        self._rate_ok_until_s = -INFINITY
        for window in range(2):
            intervals = min(self._receipts, self._intervals[window])
            oldest = self._receipt_times[(self._receipts - intervals) % self._capacity]
            span = now - oldest
            # Multiplied, not divided: messages that were drained together have no time between them.
            if intervals and self._low * span <= intervals <= self._high * span:
                until = oldest + (intervals + 1) / self._low
                self._rate_ok_until_s = max(self._rate_ok_until_s, until)
        self._receipts += 1


cdef class MasterTopic:
    """See the type stub."""

    cdef readonly object name
    cdef readonly bint is_polled, keep_all
    cdef RateCheck _rate_check
    cdef object _decoder, _validator
    cdef object _receive  # method of the socket

    def __init__(self, name, RateCheck rate_check, bint is_polled, bint keep_all, decoder, validator):
        self.name, self.is_polled, self.keep_all = name, is_polled, keep_all
        self._rate_check, self._decoder, self._validator = rate_check, decoder, validator


cdef class TopicReceiver:
    """See the type stub."""

    cdef object _updated, _seen, _alive, _freq_ok, _valid, _recv_time, _recv_frame, _data, _messages, _decode_errors
    cdef object _topics  # MasterTopic objects by name
    cdef dict _topics_by_socket
    cdef list _updated_topics, _unpolled_topics
    cdef readonly object frame
    cdef object _last_update_s
    cdef double _next_expiry_s  # time of the clock until which all states in `alive` and `freq_ok` stay

    def __init__(self, master, topics):
        self._updated, self._seen, self._valid = master.updated, master.seen, master.valid
        self._alive, self._freq_ok = master.alive, master.freq_ok
        self._recv_time, self._recv_frame = master.recv_time, master.recv_frame
        self._data, self._messages, self._decode_errors = master.data, master.messages, master.decode_errors
        self._topics, self._updated_topics = topics, []
        self._unpolled_topics, self._topics_by_socket = [], {}
        self.frame, self._last_update_s, self._next_expiry_s = 0, -INFINITY, INFINITY

    def add_socket(self, MasterTopic topic not None, socket):
        topic._receive = socket.receive_many if topic.keep_all else socket.receive
        self._topics_by_socket[socket] = topic
        if not topic.is_polled:
            self._unpolled_topics.append(topic)

    def update(self, list ready not None, clock):
        cdef list topics = [], messages = []
        try:
            for socket in ready:
                _receive_topic(self._topics_by_socket[socket], topics, messages)
            for topic in self._unpolled_topics:
                _receive_topic(topic, topics, messages)
        finally:  # otherwise, messages that were received before an error would be lost
            # The module's function is looked up in each update, because simulations replace it.
            self._store_arrived(time.monotonic() if clock is None else clock(), topics, messages)

    def update_msgs(self, now, messages):
        cdef MasterTopic topic
        cdef dict pending = {}
        for name, message in messages:
            topic = self._topics[name]
            if topic.keep_all:
                pending.setdefault(topic, []).append(message)
            else:
                pending[topic] = message
        self._store_arrived(now, list(pending), list(pending.values()))

    cdef int _store_arrived(self, now, list topics, list messages) except -1:
        cdef MasterTopic topic
        cdef Py_ssize_t i
        if not now >= self._last_update_s:
            raise InvalidValueError(
                f"now={now!r} is before the previous update at {self._last_update_s!r}; give increasing times"
            )
        for topic in self._updated_topics:
            PyDict_SetItem(self._updated, topic.name, False)
            PyDict_SetItem(self._messages, topic.name, [])
        self._updated_topics, self._last_update_s = topics, now
        self.frame += 1
        try:
            for i in range(len(topics)):
                topic = topics[i]
                for message in (messages[i] if topic.keep_all else (messages[i],)):
                    self._store_message(topic, message)
        except BaseException:  # some receipts have no states yet, so the next update sets all states
            self._next_expiry_s = -INFINITY
            raise
        if now < self._next_expiry_s:
            self._check_rates(topics)
        else:
            self._next_expiry_s = INFINITY
            self._check_rates(self._topics.values())

    cdef int _store_message(self, MasterTopic topic, message) except -1:
        name = topic.name
        try:
            data = topic._decoder(message) if topic._decoder is not None else message
            valid = bool(topic._validator(data)) if topic._validator is not None else True
        except Exception as error:
            self._valid[name] = False
            self._decode_errors[name] += 1
            if self._decode_errors[name] == 1:
                _log_decode_error(name, error)
            return 0
        PyDict_SetItem(self._data, name, data)
        self._messages[name].append(data)
        PyDict_SetItem(self._valid, name, valid)
        PyDict_SetItem(self._updated, name, True)
        PyDict_SetItem(self._seen, name, True)
        PyDict_SetItem(self._recv_time, name, self._last_update_s)
        PyDict_SetItem(self._recv_frame, name, self.frame)
        if topic._rate_check is None:
            PyDict_SetItem(self._alive, name, True)
        else:
            topic._rate_check._add_receipt(self._last_update_s)
        return 0

    cdef int _check_rates(self, topics) except -1:
        """Set `alive` and `freq_ok` of some topics. Those of the others stay until the next expiry."""
        cdef MasterTopic topic
        cdef RateCheck check
        cdef double now = self._last_update_s
        for topic in topics:
            check = topic._rate_check
            if check is None:
                continue
            PyDict_SetItem(self._alive, topic.name, now < check._alive_until_s)
            PyDict_SetItem(self._freq_ok, topic.name, now <= check._rate_ok_until_s)
            if now < check._alive_until_s < self._next_expiry_s:
                self._next_expiry_s = check._alive_until_s
            if now <= check._rate_ok_until_s < self._next_expiry_s:
                self._next_expiry_s = check._rate_ok_until_s
        return 0


cdef int _log_decode_error(name, error) except -1:
    try:
        import logging  # late: its import takes longer, and more memory, than that of all that a master needs
    except OSError:  # no descriptor is free, so the error is only counted
        return 0
    text = "%r: cannot decode a message: %r"
    logging.getLogger(__name__).warning(text, name, error, exc_info=True)
    return 0


cdef int _receive_topic(MasterTopic topic, list topics, list messages) except -1:
    """Append a topic and its available messages: a list of all, or the newest message of a conflating topic."""
    taken = topic._receive() if topic.keep_all else topic._receive(True)
    if taken is not None:
        topics.append(topic)
        messages.append(taken)
    return 0
