"""Timeouts that are not usual numbers. See parse_timeout_ns and parse_timeout_ms in core.pxd."""


cdef int64_t parse_unusual_timeout_ns(timeout, str endpoint) except -2:
    return timeout_ns(timeout, endpoint)


cdef int parse_unusual_timeout_ms(timeout, str endpoint) except -2:
    return timeout_ms(timeout, endpoint)
