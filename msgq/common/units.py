"""Units of time, and common limits of timeouts. Cython code has the same values as C constants."""

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_DAY = 86_400 * NS_PER_S

#: A time-out, in milliseconds or seconds: no end.
WAIT_FOREVER = -1
#: The longest time-out that has an end. Stock's are 32 bits.
TIMEOUT_MAX_MS = 2**31 - 1
