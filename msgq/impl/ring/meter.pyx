"""Count an endpoint's messages below Python, as a passive subscriber. See meter.h, and meter.pyi for the contract."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME

from msgq.impl.ground.clock cimport host_offset_ns
from msgq.impl.ring.connection cimport enter
from msgq.impl.ground.context cimport Context
from msgq.impl.ground.core cimport MQ_FUTEX_32, MQ_FUTEX_MANY, mq_futex_many, mq_now_ns
from msgq.impl.ring.core cimport mq_subscriber, mq_subscriber_announce_sleep, mq_subscriber_futex
from msgq.impl.ring.subscriber cimport SubSocket
from msgq.impl.ground.wake cimport sleep_on

from msgq.errors import CorruptSegmentError, InvalidValueError
from msgq.figures import Distribution, MeterReading


cdef extern from "sys/prctl.h" nogil:
    enum:
        PR_GET_TIMERSLACK
        PR_SET_TIMERSLACK
    int prctl(int option, ...)


cdef extern from "ring/meter.h" nogil:
    ctypedef struct mq_histogram:
        uint64_t count
        uint64_t min
        uint64_t max
        double sum
    ctypedef struct mq_meter:
        mq_histogram periods_ns
        mq_histogram sizes
        mq_histogram delays_ns
        uint64_t looks
        uint64_t undated
        uint64_t early
        int64_t first_ns
        int64_t last_ns
        int64_t stamp_offset
        int64_t stamp_clock
        int64_t clock_offset_ns
    double mq_histogram_percentile(const mq_histogram *h, double share)
    int64_t mq_meter_look(mq_meter *m, mq_subscriber *s)


cdef enum:
    NAP_NS = 50000              # between two looks: who is passive is not woken for sure
    BREATH_NS = 50000000        # between two looks at signals
    STAMP_OFFSET_MAX = 0x7FFFFFFF


cdef object _distribution(const mq_histogram *h, double unit):
    """The histogram's figures, each multiplied by `unit`; None when it is empty."""
    if h.count == 0:
        return None
    shares = [mq_histogram_percentile(h, share) * unit for share in (0.5, 0.9, 0.99, 0.999)]
    return Distribution(h.count, h.sum / h.count * unit, h.min * unit, *shares, h.max * unit)


cdef class Meter:
    """Counts the messages of one endpoint. See the type stub (meter.pyi) for the contract of each method."""

    cdef SubSocket _socket
    cdef mq_meter *_meter
    cdef uint64_t _lost_before
    cdef int64_t _since_ns

    def __cinit__(self):
        self._meter = <mq_meter *> calloc(1, sizeof(mq_meter))
        if self._meter == NULL:
            raise MemoryError()

    def __init__(self, Context context not None, endpoint, stamp_offset=None, str clock="host"):
        if stamp_offset is not None and not 0 <= stamp_offset <= STAMP_OFFSET_MAX:
            text = f"a publish time cannot be at byte {stamp_offset}; give 0 to {STAMP_OFFSET_MAX}"
            raise InvalidValueError(text, endpoint)
        self._socket = SubSocket()
        self._socket.connect(context, endpoint, passive=True)
        self._meter.stamp_offset = -1 if stamp_offset is None else stamp_offset
        self._meter.stamp_clock = CLOCK_REALTIME if clock == "realtime" else CLOCK_MONOTONIC
        self._meter.clock_offset_ns = host_offset_ns() if clock == "host" else 0
        self._since_ns = mq_now_ns()

    def __dealloc__(self):
        free(self._meter)

    @property
    def endpoint(self):
        return self._socket.endpoint

    def close(self):
        self._socket.close()

    def clear(self):
        cdef mq_meter before = self._meter[0]
        memset(self._meter, 0, sizeof(mq_meter))
        self._meter.stamp_offset, self._meter.stamp_clock = before.stamp_offset, before.stamp_clock
        self._meter.clock_offset_ns = before.clock_offset_ns
        self._meter.last_ns = self._meter.first_ns = before.last_ns  # the next message's period begins there
        self._lost_before = self._socket._subscriber.lost
        self._since_ns = mq_now_ns()

    def reading(self):
        cdef const mq_meter *m = self._meter
        cdef const mq_subscriber *s = &self._socket._subscriber
        lost = None if s.lost_unknown else s.lost - self._lost_before
        span_s = (m.last_ns - m.first_ns) / 1e9
        return MeterReading(
            self.endpoint, m.sizes.count, int(m.sizes.sum), lost, (mq_now_ns() - self._since_ns) / 1e9, span_s,
            _distribution(&m.periods_ns, 1e-3), _distribution(&m.sizes, 1), _distribution(&m.delays_ns, 1e-3),
            m.undated, m.early,
        )


def watch(list meters, double seconds, bint spin=False):
    cdef unsigned count = len(meters)
    cdef mq_meter **counters = <mq_meter **> calloc(count + 1, sizeof(mq_meter *))
    cdef mq_subscriber **readers = <mq_subscriber **> calloc(count + 1, sizeof(mq_subscriber *))
    cdef int64_t until = mq_now_ns() + <int64_t> (seconds * 1e9)
    cdef int64_t status = 0
    cdef unsigned long slack_ns = prctl(PR_GET_TIMERSLACK)
    cdef Meter meter
    prctl(PR_SET_TIMERSLACK, <unsigned long> 1)  # or the kernel lengthens the naps of this thread
    try:
        if counters == NULL or readers == NULL:
            raise MemoryError()
        for i, meter in enumerate(meters):
            counters[i], readers[i] = meter._meter, &meter._socket._subscriber
        while status >= 0:
            for meter in meters:
                enter(meter._socket)  # also looks for a side segment that has come since
            for meter in meters:
                meter._socket._occupy()
            try:
                with nogil:
                    status = _watch(counters, readers, count, min(until, mq_now_ns() + BREATH_NS), spin)
            finally:
                for meter in meters:
                    meter._socket._ticket = meter._socket._generation
                    meter._socket._end_if_closing()
            PyErr_CheckSignals()
            if status >= 0 and mq_now_ns() >= until:
                return
            if status < 0:
                meter = meters[-1 - status]
                enter(meter._socket)
                if meter._socket._follow():
                    status = 0
        meter = meters[-1 - status]
        text = "its bytes make no sense: somebody wrote nonsense there"
        raise CorruptSegmentError(text, meter.endpoint, meter._socket._ring.path)
    finally:
        prctl(PR_SET_TIMERSLACK, slack_ns)
        free(counters)
        free(readers)


cdef int64_t _watch(mq_meter **counters, mq_subscriber **readers, unsigned count, int64_t until,
                    bint spin) noexcept nogil:
    """Look until then; -1 - i: the i-th ring makes no sense."""
    cdef mq_futex_many words[MQ_FUTEX_MANY]
    cdef unsigned i, slept
    memset(words, 0, sizeof(words))
    while mq_now_ns() < until:
        slept = min(count, <unsigned> MQ_FUTEX_MANY)
        for i in range(slept):  # before the look: a wake that comes between the two must end the nap
            words[i].address = <uint64_t> <size_t> mq_subscriber_futex(readers[i])
            words[i].expected = mq_subscriber_announce_sleep(readers[i])
            words[i].flags = MQ_FUTEX_32
        for i in range(count):
            if mq_meter_look(counters[i], readers[i]) < 0:
                return -1 - <int64_t> i
        if not spin:
            sleep_on(words, slept, min(until, mq_now_ns() + NAP_NS))
    return 0
