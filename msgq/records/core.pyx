"""Queues of records: compiled calls for single records. See core.pyi."""

cimport cython
cimport numpy as cnp
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, UINT64_MAX, uint64_t, uint8_t
from libc.string cimport memcpy

from msgq.impl.base.clock cimport current_origin, host_time_ns, new_origin, refuse_foreign_origin
from msgq.impl.base.core cimport (
    LARGE_BYTES, mq_lock_object, MQ_NS_PER_MS, mq_object_lock, mq_unlock_object, parse_timeout_ns, WAIT_FOREVER,
)
from msgq.impl.base.process cimport fork_generation
from msgq.impl.channel.core cimport Publisher as ChannelPublisher, Subscriber as ChannelSubscriber
from msgq.impl.ring.core cimport PubSocket, SubSocket

import numpy as np

from msgq.common import naming, settings
from msgq.errors import ConcurrentUseError, InvalidValueError, MessageSizeError
from msgq.impl import backend as backends
from msgq.impl.base.argument_checks import check_limit
from msgq.impl.base.foreign_names import add_advice
from msgq.impl.records import arrays
from msgq.records import queue_opening, stamps
from msgq.records.clocks import find_stamp_clock, HostStampClock

cnp.import_array()


cdef extern from *:
    """
    #define mq_is_structured_scalar(object) (Py_TYPE(object) == &PyVoidArrType_Type)

    static inline PyObject *mq_structured_scalar_dtype(PyObject *scalar) {
        return (PyObject *)((PyVoidScalarObject *)scalar)->descr;
    }

    static inline const uint8_t *mq_structured_scalar_bytes(PyObject *scalar) {
        return (const uint8_t *)((PyVoidScalarObject *)scalar)->obval;
    }

    /* Do the same as PyArray_Scalar for a scalar of `array`, but let it refer to the bytes of `data`. */
    static inline PyObject *mq_make_structured_scalar(PyArray_Descr *dtype, Py_ssize_t size, PyArrayObject *array,
                                                      PyObject *data) {
        PyTypeObject *type = dtype->typeobj;
        PyVoidScalarObject *scalar = (PyVoidScalarObject *)type->tp_alloc(type, 0);
        if (scalar == NULL)
            return NULL;
        Py_SET_SIZE(scalar, size);
        Py_INCREF(dtype);
        scalar->descr = (void *)dtype;
        Py_INCREF(data);
        scalar->base = data;
        scalar->obval = PyBytes_AS_STRING(data);
        scalar->flags = PyArray_FLAGS(array);  /* the array does not own its data */
        return (PyObject *)scalar;
    }

    /* Return a new array of one dimension, which is not initialized. */
    static inline PyObject *mq_make_array(PyArray_Descr *dtype, npy_intp *count) {
        Py_INCREF(dtype); /* PyArray_Empty takes this reference */
        return PyArray_Empty(1, count, dtype, 0);
    }

    static inline int mq_is_one_record(PyArrayObject *array) {
        return PyArray_NDIM(array) <= 1 && PyArray_SIZE(array) == 1;
    }
    """
    bint mq_is_structured_scalar(object value)
    PyObject *mq_structured_scalar_dtype(object scalar)
    const uint8_t *mq_structured_scalar_bytes(object scalar)
    object mq_make_structured_scalar(cnp.dtype dtype, Py_ssize_t size, cnp.ndarray array, object data)
    cnp.ndarray mq_make_array(cnp.dtype dtype, cnp.npy_intp *count)
    bint mq_is_one_record(cnp.ndarray array)
    object PyArray_Scalar(const void *data, cnp.dtype dtype, object owner)


cdef Py_ssize_t STAMP_FIELDS_BYTES = stamps.STAMP_FIELDS_BYTES
cdef object ORIGIN_TIME_MAX_NS = 2**63 - 1


cdef object make_concurrent_use_error(str name, str action):
    text = f"another thread {action} with this queue; use a queue object for each thread"
    return ConcurrentUseError(text, name)


cdef bint is_in_shared_ring(socket):
    """Return True if compiled calls may pass by the socket's own. On a bus, time and arrivals are the socket's."""
    return isinstance(socket, (PubSocket, SubSocket)) and socket._bus is None


@cython.auto_pickle(False)
cdef class RecordQueue:
    """See core.pyi."""
    cdef object __weakref__
    cdef readonly object name, prefix, producers
    cdef readonly cnp.dtype dtype
    cdef readonly object _transport
    cdef object _subscriber  # subscriber of the transport, with its own lock, because pollers use it, too
    cdef readonly bint _is_producing, _is_consuming  # a call is in progress; other calls raise an error
    cdef bint _has_checked_schema
    cdef bint _is_receive_overridden
    # ---- produce ----
    cdef PubSocket _ring_publisher  # None: no record was sent yet, or the transport is not a ring
    cdef ChannelPublisher _channel_publisher  # None: no record was sent yet, or the transport is not a channel
    cdef int64_t _channel_capacity
    cdef object _clock
    cdef bint _is_tracked, _is_small
    cdef cnp.dtype _payload_dtype  # dtype of a tracked queue without its stamps
    cdef object _equal_dtype, _equal_payload_dtype  # last objects equal to the dtypes above
    cdef bytearray _stamped_record  # memory in which a record gets its stamps
    # ---- receive ----
    cdef SubSocket _ring_subscriber
    cdef ChannelSubscriber _channel_subscriber
    cdef Py_ssize_t _record_bytes
    cdef bint _has_fields
    cdef cnp.ndarray _read_only_array  # each received record is like a scalar of this array
    cdef object _last_timeout
    cdef int64_t _last_wait_ns

    def __init__(self, name, dtype=None, capacity=None, *, producers="single", create=None, history=0, on_lost="count",
                 prefix=None, trust=None, spin_us=None):
        self.name = queue_opening.validate_queue_name(name, producers)
        self.prefix, self.producers = settings.resolve_prefix(prefix), producers
        transport = queue_opening.open_transport(self.name, prefix, dtype, capacity, producers, create, history,
                                                 on_lost, trust, spin_us)
        self._attach_transport(transport)
        queue_opening.register_queue(self)

    cdef int _attach_transport(self, transport) except -1:
        cdef cnp.dtype dtype = transport.dtype
        self._transport = transport
        self._clock = find_stamp_clock(backends.current_backend())
        self.dtype = self._equal_dtype = self._payload_dtype = dtype
        self._record_bytes = dtype.itemsize
        self._has_fields = cnp.PyDataType_HASFIELDS(dtype)
        self._is_small = self._record_bytes < LARGE_BYTES
        self._is_tracked = arrays.is_tracked_dtype(dtype)
        if self._is_tracked:
            self._payload_dtype = stamps.remove_stamp_fields(dtype)
            self._stamped_record = bytearray(self._record_bytes)
        self._read_only_array = np.frombuffer(bytes(self._record_bytes), dtype)
        self._last_wait_ns = WAIT_FOREVER
        self._is_receive_overridden = type(self).receive is not RecordQueue.receive
        self._subscriber = subscriber = transport.subscriber
        self._ring_subscriber = subscriber if is_in_shared_ring(subscriber) and not transport.raises else None
        self._channel_subscriber = subscriber if isinstance(subscriber, ChannelSubscriber) else None
        return 0

    def _reset_in_child(self):
        """In a forked child: the threads that use the queue exist in the parent only."""
        self._is_producing = self._is_consuming = False
        self._transport.detach_inherited_producer()

    def __repr__(self):
        state = "closed" if self.closed else f"{self.dtype}"
        return f"<msgq RecordQueue {self.name!r}, {self.producers}, {state}>"

    # ---- properties and statistics ----

    @property
    def endpoint(self):
        return naming.CHANNEL_NAME_PREFIX + self.name if self.producers == "multiple" else self.name

    @property
    def capacity(self):
        return self._transport.capacity

    @property
    def lost(self):
        return self._transport.lost

    def stats(self):
        return self._transport.subscriber.stats()

    @property
    def closed(self):
        return self._transport.subscriber.closed

    # ---- produce ----

    def produce(self, records, *, origin_time=0):
        return self._produce_records(records, origin_time)

    def send(self, records, *, origin_time=0):
        return self._produce_records(records, origin_time)

    @cython.final
    cdef inline object _produce_records(self, records, origin_time):
        cdef const uint8_t *record
        cdef PyObject *publisher = NULL  # the locked one
        cdef mq_object_lock lock
        if origin_time:
            self._check_origin_time(origin_time)
        if self._is_producing:
            raise make_concurrent_use_error(self.name, "produces")
        self._is_producing = True
        try:
            record = self._find_record_bytes(records)
            if record != NULL and self._has_open_publisher():
                publisher = <PyObject *> self._channel_publisher
                if self._ring_publisher is not None:
                    publisher = <PyObject *> self._ring_publisher
                mq_lock_object(&lock, publisher)
                return self._send_record(record, origin_time)
            return self._produce_array(records, origin_time)
        finally:
            if publisher != NULL:
                mq_unlock_object(&lock)
            self._is_producing = False

    cdef int _check_origin_time(self, origin_time) except -1:
        if not 0 < origin_time <= ORIGIN_TIME_MAX_NS:
            text = f"origin_time is {origin_time}; give nanoseconds, 0 to {ORIGIN_TIME_MAX_NS}"
            raise InvalidValueError(text, self.name)
        if isinstance(self._clock, HostStampClock):
            refuse_foreign_origin(origin_time, self.name)
        if not self._is_tracked and not self._transport.stores_origins:
            text = "origin_time cannot be stored in this dtype; create the queue with a dtype of msgq.tracked"
            raise InvalidValueError(text, self.name)
        return 0

    @cython.final
    cdef inline bint _has_open_publisher(self) noexcept:
        """Return True if a publisher of the ring or of a channel can send now, in this process."""
        if self._ring_publisher is not None:
            return self._ring_publisher._use_state == fork_generation
        return self._channel_publisher is not None and self._channel_publisher._use_state == fork_generation

    @cython.final
    cdef inline const uint8_t *_find_record_bytes(self, records) noexcept:
        """Return the bytes of one record, without its stamps; NULL: the value needs a conversion or a large copy."""
        cdef PyObject *dtype
        cdef const uint8_t *record
        if mq_is_structured_scalar(records):
            dtype, record = mq_structured_scalar_dtype(records), mq_structured_scalar_bytes(records)
        elif cnp.PyArray_CheckExact(records) and mq_is_one_record(records) and cnp.PyArray_IS_C_CONTIGUOUS(records):
            dtype, record = <PyObject *> cnp.PyArray_DESCR(records), <const uint8_t *> cnp.PyArray_DATA(records)
        else:
            return NULL
        if not self._is_small:
            return NULL
        if dtype == <PyObject *> self._equal_dtype:
            return record + STAMP_FIELDS_BYTES if self._is_tracked else record
        return record if dtype == <PyObject *> self._equal_payload_dtype else NULL

    @cython.final
    cdef inline object _send_record(self, const uint8_t *record, origin_time):
        """Publish one record, and return its number."""
        if self._is_tracked:
            record = self._stamp_record(record, origin_time)
        if self._ring_publisher is not None:
            self._ring_publisher._check_usable()  # a signal handler may have closed it
            self._ring_publisher._send_bytes(record, self._record_bytes, 0)
            return self._ring_publisher._publisher.sequence - 1
        self._channel_publisher._check_usable()
        position = self._channel_publisher._send_bytes(record, self._record_bytes, 0, origin_time)
        return <int64_t> position - self._channel_capacity

    @cython.final
    cdef inline const uint8_t *_stamp_record(self, const uint8_t *payload, int64_t origin_time) except NULL:
        """Return a copy of a record with the stamps of a record that is published now."""
        cdef uint8_t *record = <uint8_t *> PyByteArray_AS_STRING(self._stamped_record)
        cdef int64_t times[2]  # publishing time and origin
        times[0], times[1] = host_time_ns(), origin_time or current_origin()
        if not times[1]:  # without an origin, the record itself is an origin
            times[0] = times[1] = new_origin(times[0])
        memcpy(record, times, STAMP_FIELDS_BYTES)
        memcpy(record + STAMP_FIELDS_BYTES, payload, self._record_bytes - STAMP_FIELDS_BYTES)
        return record

    cdef object _produce_array(self, records, origin_time):
        """Convert and publish any number of records. Return the number of the first one."""
        cdef cnp.ndarray rows = self._add_stamps(records, origin_time) if self._is_tracked else self._convert(records)
        number = self._transport.send(rows, origin_time) if len(rows) else self._transport.get_next_number()
        publisher = self._transport.publisher
        self._ring_publisher = publisher if is_in_shared_ring(publisher) else None
        self._channel_publisher = publisher if isinstance(publisher, ChannelPublisher) else None
        if self._channel_publisher is not None:
            self._channel_capacity = self._transport.capacity
        return number

    cdef object _convert(self, records):
        """Return one record or several as an array, shape (n,). Suitable arrays are returned without a copy."""
        kind = type(records)
        if kind is np.ndarray:
            if records.ndim == 1 and self._is_record_dtype(records.dtype) and records.flags.c_contiguous:
                return records
        elif kind is np.void and self._is_record_dtype(records.dtype):
            return np.asarray(records).reshape(1)
        return arrays.convert_records(records, self.dtype, self.name)

    cdef bint _is_record_dtype(self, dtype) except -1:
        """Return True for the dtype of the records. The comparison of two large dtypes takes half a microsecond."""
        if dtype is not self._equal_dtype and dtype == self.dtype:
            self._equal_dtype = dtype
        return dtype is self._equal_dtype

    cdef object _add_stamps(self, records, origin_time):
        """Return a copy of records with stamps."""
        dtype = getattr(records, "dtype", None)
        names = getattr(dtype, "names", None)
        if names is not None and names[:2] == arrays.STAMP_FIELDS:
            rows = self._convert(records).copy()
        else:
            payloads = arrays.convert_records(records, self._payload_dtype, self.name)
            count = len(payloads)
            rows = np.empty(count, self.dtype)
            if count:
                rows.view("u1").reshape(count, -1)[:, STAMP_FIELDS_BYTES:] = payloads.view("u1").reshape(count, -1)
            if dtype is not None and dtype == self._payload_dtype and self._has_plain_payload():
                self._equal_payload_dtype = dtype
        stamps.fill_stamps(rows, origin_time or current_origin(), self._clock)
        return rows

    cdef bint _has_plain_payload(self) noexcept:
        """Return True if the records of a tracked queue are their stamps and then the payload, without padding."""
        return self._payload_dtype.itemsize + STAMP_FIELDS_BYTES == self._record_bytes

    # ---- consume ----

    def consume(self, limit=None, timeout=None):
        cdef mq_object_lock lock
        self._begin_consuming()
        mq_lock_object(&lock, <PyObject *> self._subscriber)
        try:
            limit = None if limit is None else check_limit(limit, self.name)
            if self._ring_subscriber is not None and self._has_checked_schema:
                self._round_timeout(timeout)  # raises for an invalid value
                records = self._consume_ready_records(limit)
                if records is not None:
                    return records
            records = self._transport.receive(limit, timeout)
            self._has_checked_schema |= len(records) > 0  # the transport has checked it
            return records
        finally:
            mq_unlock_object(&lock)
            self._is_consuming = False

    cdef cnp.ndarray _consume_ready_records(self, limit):
        """Return the records that are present in the ring. None: none is present, or a call must wait or raise."""
        cdef uint64_t max_records = UINT64_MAX if limit is None else limit
        cdef cnp.npy_intp count = min(max_records, self._ring_subscriber._count_ready_messages(self._record_bytes))
        cdef int64_t received
        cdef cnp.ndarray records
        if count == 0:
            return None
        records = mq_make_array(self.dtype, &count)
        received = self._ring_subscriber._copy_batches(<uint8_t *> cnp.PyArray_DATA(records), self._record_bytes, count)
        self._ring_subscriber._rearm_fd()
        if received == 0:
            return None
        if received < count:
            records.resize(received, refcheck=False)
        return records

    def consume_with_publishers(self, limit=None, timeout=None):
        self._begin_consuming()
        try:
            limit = None if limit is None else check_limit(limit, self.name)
            return self._transport.receive_with_publishers(limit, timeout)
        finally:
            self._is_consuming = False

    @cython.final
    cdef inline int _begin_consuming(self) except -1:
        if self._is_consuming:
            raise make_concurrent_use_error(self.name, "consumes")
        self._is_consuming = True
        return 0

    def receive(self, timeout=None):
        return self._receive_record(timeout)

    def __iter__(self):
        return self

    def __next__(self):
        return self.receive() if self._is_receive_overridden else self._receive_record(None)

    @cython.final
    cdef inline object _receive_record(self, timeout):
        cdef bytes data
        cdef mq_object_lock lock
        self._begin_consuming()
        mq_lock_object(&lock, <PyObject *> self._subscriber)
        try:
            if self._ring_subscriber is not None:
                data = self._ring_subscriber.take_message_within(self._round_timeout(timeout))
            elif self._channel_subscriber is not None:
                self._channel_subscriber._check_usable()
                data = self._channel_subscriber._receive_copy(parse_timeout_ns(timeout, self.name))
            else:
                data = self._transport.take_record(timeout)
            if data is None:
                return None
            if PyBytes_GET_SIZE(data) != self._record_bytes:
                raise self._make_size_error(len(data))
            if not self._has_checked_schema:
                self._transport.check_schema()
                self._has_checked_schema = True
            return self._make_record(data)
        finally:
            mq_unlock_object(&lock)
            self._is_consuming = False

    @cython.final
    cdef inline int64_t _round_timeout(self, timeout) except? -1:
        """Return a timeout in nanoseconds, rounded up to milliseconds; -1: wait without limit."""
        if timeout is not self._last_timeout:
            nanoseconds = parse_timeout_ns(timeout, self.name)
            self._last_wait_ns = -(nanoseconds // -MQ_NS_PER_MS) * MQ_NS_PER_MS if timeout is not None else WAIT_FOREVER
            self._last_timeout = timeout
        return self._last_wait_ns

    cdef object _make_size_error(self, size):
        text = f"message has {size} bytes, but records have {self._record_bytes}; another program sent it"
        return MessageSizeError(text, self.name)

    @cython.final
    cdef inline object _make_record(self, bytes data):
        """Return the record with these bytes: a structured scalar that refers to `data`, or a scalar with a copy."""
        if self._has_fields:
            return mq_make_structured_scalar(self.dtype, self._record_bytes, self._read_only_array, data)
        return PyArray_Scalar(PyBytes_AS_STRING(data), self.dtype, self._read_only_array)

    # ---- wait ----

    @property
    def _reader(self):
        return self._transport.subscriber

    def fileno(self):
        return self._transport.subscriber.fileno()

    def aconsume(self, limit=None):
        return queue_opening.consume_async(self, limit)

    def __aiter__(self):
        return self

    def areceive(self):
        return queue_opening.receive_async(self)

    def __anext__(self):
        return self.areceive()

    # ---- remove and close ----

    def unlink(self):
        self._transport.unlink()

    @staticmethod
    def unlink_name(name, prefix=None, *, producers="single"):
        queue_opening.unlink_queue_name(name, prefix, producers)

    def close(self):
        self._transport.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


add_advice(RecordQueue)
