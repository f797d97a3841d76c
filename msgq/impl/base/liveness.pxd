from libc.stdint cimport uint32_t, uint64_t

from msgq.impl.base.core cimport mq_liveness, mq_self

# Grows in every forked child: a socket that was made in another generation is the parent's.
cdef int fork_generation

cdef const mq_self *this_process() except NULL
cdef int identify(mq_self *who, const char *name) except -1
cdef uint32_t random_word() noexcept
cdef uint64_t new_uid() noexcept
cdef str text(const char *shared, size_t size)
cdef object is_alive(mq_liveness life)
