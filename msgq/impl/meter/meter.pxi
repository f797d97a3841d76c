"""Counts messages of endpoints with any type of reader. See counting.h, and core.pyi for the contract."""


cdef enum:
    SAMPLE_INTERVAL_NS = 50000  # nanoseconds between two samples, because passive readers may miss wakes
    SPIN_GIL_NS = 50000000  # nanoseconds between two checks for signals
    RECOVERIES_MAX = 100  # recoveries during one sample on a bus
    STAMP_OFFSET_MAX = 0x7FFFFFFF


cdef object _summarize_histogram(const mq_histogram *h, double unit):
    """Return the statistics of the histogram, each multiplied by `unit`, or None if it is empty."""
    if h.count == 0:
        return None
    shares = [mq_histogram_compute_percentile(h, share) * unit for share in (0.5, 0.9, 0.99, 0.999)]
    return Distribution(h.count, h.sum / h.count * unit, h.min * unit, *shares, h.max * unit)


cdef class EndpointMeter:
    """See the type stub (core.pyi) for the contract of each method."""

    def __cinit__(self):
        self.c.meter = <mq_meter *> calloc(1, sizeof(mq_meter))
        if self.c.meter == NULL:
            raise MemoryError()
        self._set_timestamp_source(None, "host")
        self._started_ns = mq_monotonic_ns()

    def __dealloc__(self):
        free(self.c.meter)

    cdef int _set_timestamp_source(self, stamp_offset, str clock) except -1:
        """Set the byte offset of the publish time in payloads (None: use the message's stamp), and its clock."""
        cdef mq_meter *m = self.c.meter
        if stamp_offset is not None and not 0 <= stamp_offset <= STAMP_OFFSET_MAX:
            text = f"offset of the publish time is {stamp_offset}; give 0 to {STAMP_OFFSET_MAX} bytes"
            raise InvalidValueError(text, self.endpoint or "")
        m.stamp_offset = -1 if stamp_offset is None else stamp_offset
        m.stamp_clock = CLOCK_REALTIME if clock == "realtime" else CLOCK_MONOTONIC
        m.clock_offset_ns = host_offset_ns() if clock == "host" else 0
        return 0

    cdef int _enter_bus(self, str in_prefix) except -1:
        self._bus = find_bus(in_prefix)
        if self._bus is not None:
            self.c.meter.virtual_ns = &self._bus.clock.now_ns
            self._started_ns = self._bus.clock.now_ns
        return 0

    cdef object _begin_sampling(self):
        if self._closed:
            raise EndpointClosedError("meter is closed", self.endpoint)

    cdef int _handle_sample_failure(self, mq_source_status status) except -1:
        return 0

    cdef object _count_lost(self):
        return 0

    cdef int _measure_waiting_messages(self) except -1:
        return 0

    cdef str _get_delay_end(self):
        return "seen"

    def close(self):
        self._closed = True

    def reset_counts(self):
        cdef mq_meter *m = self.c.meter
        cdef const int64_t *bus_ns = m.virtual_ns
        cdef int64_t last_ns = m.last_ns, offset = m.stamp_offset, clock = m.stamp_clock, ahead = m.clock_offset_ns
        memset(m, 0, sizeof(mq_meter))
        m.stamp_offset, m.stamp_clock, m.clock_offset_ns = offset, clock, ahead
        m.virtual_ns = bus_ns
        m.last_ns = m.first_ns = last_ns  # the period of the next message begins at the last message
        self._lost_before = self._count_lost() or 0
        self._started_ns = mq_read_time_ns(m.virtual_ns)

    def take_reading(self):
        cdef const mq_meter *m = self.c.meter
        self._measure_waiting_messages()
        lost = self._count_lost()
        return MeterReading(
            self.endpoint, m.messages, int(m.sizes.sum) if m.sizes.count or not m.messages else None,
            None if lost is None else lost - self._lost_before,
            (mq_read_time_ns(m.virtual_ns) - self._started_ns) / 1e9,
            (m.last_ns - m.first_ns) / 1e9, _summarize_histogram(&m.periods_ns, 1e-3),
            _summarize_histogram(&m.sizes, 1), _summarize_histogram(&m.delays_ns, 1e-3), m.without_timestamp,
            m.negative_delays, self._get_delay_end(),
        )


def run_meters(meters, double seconds, bint spin=False):
    bus = (<EndpointMeter> meters[0])._bus if meters else None
    _run_in_real_time(meters, seconds, spin) if bus is None else _run_on_bus(bus, meters, seconds)


def _run_on_bus(Bus bus, meters, double seconds):
    """Sample after each event of the bus, during `seconds` of virtual time."""
    def sample():
        for meter in meters:
            _sample_all(meter)
        return False

    sample()
    bus.wait_until(sample, <int64_t> (seconds * 1e9), "the end of a measurement")


cdef int _sample_all(EndpointMeter meter) except -1:
    """Count all messages that are there."""
    cdef mq_metered_endpoint endpoint
    cdef int64_t found = 1
    cdef int recoveries = 0
    while found > 0 or (found < 0 and recoveries < RECOVERIES_MAX):
        with critical_section(meter):
            read = meter._begin_sampling()  # stays mapped during the sample
            endpoint = meter.c
        found = mq_meter_sample(&endpoint)
        if found < 0:
            _handle_sample_failure(meter, endpoint.status)
            recoveries += 1
    return 0


cdef int _handle_sample_failure(EndpointMeter meter, mq_source_status status) except -1:
    with critical_section(meter):  # another thread may close it
        return meter._handle_sample_failure(status)


cdef int _run_in_real_time(meters, double seconds, bint spin) except -1:
    cdef unsigned count = len(meters)
    cdef mq_metered_endpoint *inputs = <mq_metered_endpoint *> calloc(count + 1, sizeof(mq_metered_endpoint))
    cdef int64_t until = mq_monotonic_ns() + <int64_t> (seconds * 1e9)
    cdef int64_t status = 0
    cdef unsigned recoveries = 0  # number of recoveries after the deadline
    cdef unsigned long slack_ns = prctl(PR_GET_TIMERSLACK)
    prctl(PR_SET_TIMERSLACK, <unsigned long> 1)  # with the default slack, the kernel lengthens the naps of this thread
    try:
        if inputs == NULL:
            raise MemoryError()
        while True:
            status = _sample_without_gil(meters, inputs, count, min(until, mq_monotonic_ns() + SPIN_GIL_NS), spin)
            PyErr_CheckSignals()
            if status < 0:
                _handle_sample_failure(meters[-1 - status], inputs[-1 - status].status)
            if mq_monotonic_ns() < until:
                continue
            # After a recovery, sample the meter once more. Stop if meters need recovery all the time.
            if status >= 0 or recoveries > count:
                return 0
            recoveries += 1
    finally:
        prctl(PR_SET_TIMERSLACK, slack_ns)
        free(inputs)


cdef int64_t _sample_without_gil(object meters, mq_metered_endpoint *inputs, unsigned count, int64_t until,
                                 bint spin) except? -1:
    """Sample until the deadline, without the GIL. Return -1 - i if meter i needs Python."""
    cdef EndpointMeter meter
    cdef int64_t status
    read = []  # references keep the mappings, even if another thread closes a meter
    for i, meter in enumerate(meters):
        with critical_section(meter):
            read.append(meter._begin_sampling())
            inputs[i] = meter.c
    with nogil:
        status = _sample_until_deadline(inputs, count, until, spin)
    return status


cdef int64_t _sample_until_deadline(mq_metered_endpoint *inputs, unsigned count, int64_t until,
                                    bint spin) noexcept nogil:
    cdef mq_futex_waitv_entry words[MQ_FUTEX_WAITV_MAX]
    cdef unsigned i, slept
    memset(words, 0, sizeof(words))
    while True:
        slept = 0
        for i in range(count):  # load the words before the samples, so that a wake after a sample ends the nap
            if slept < <unsigned> MQ_FUTEX_WAITV_MAX and mq_meter_prepare_wait(&inputs[i], &words[slept]):
                slept += 1
        for i in range(count):
            if mq_meter_sample(&inputs[i]) < 0:
                return -1 - <int64_t> i
        if mq_monotonic_ns() >= until:  # check after a sample, so that a delayed thread still samples once
            return 0
        if not spin:
            sleep_on_futexes(words, slept, min(until, mq_monotonic_ns() + SAMPLE_INTERVAL_NS))
