# Converts numbers of any size and byte order to Python numbers, for readers of messages.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    uint16_t swap_16 "__builtin_bswap16"(uint16_t)
    uint32_t swap_32 "__builtin_bswap32"(uint32_t)
    uint64_t swap_64 "__builtin_bswap64"(uint64_t)


cdef inline uint64_t load_unsigned(const uint8_t *place, Py_ssize_t size, bint swap):
    """Return `size` bytes, 1, 2, 4 or 8, as a number without a sign."""
    cdef uint64_t u8
    cdef uint32_t u4
    cdef uint16_t u2
    if size == 8:
        memcpy(&u8, place, 8)
        return swap_64(u8) if swap else u8
    if size == 4:
        memcpy(&u4, place, 4)
        return swap_32(u4) if swap else u4
    if size == 2:
        memcpy(&u2, place, 2)
        return swap_16(u2) if swap else u2
    return place[0]


cdef inline object make_python_number(uint64_t bits, char kind, Py_ssize_t size):
    """Return what bits mean, of a kind that NumPy calls b"b", b"i", b"u" or b"f"."""
    cdef double f8
    cdef float f4
    cdef uint32_t half
    if kind == b"u":
        return bits
    if kind == b"b":
        return bits != 0
    if kind == b"f":
        if size == 8:
            memcpy(&f8, &bits, 8)
            return f8
        half = <uint32_t> bits
        memcpy(&f4, &half, 4)
        return f4
    return (<int64_t> bits if size == 8 else <int32_t> bits if size == 4 else <int16_t> bits if size == 2 else
            <int8_t> bits)
