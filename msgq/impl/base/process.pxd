from libc.stdint cimport uint32_t, uint64_t

from msgq.impl.base.core cimport mq_liveness, mq_process_identity

# Grows in every forked child: a socket that was made in another generation is the parent's.
cdef int fork_generation

cdef const mq_process_identity *this_process() except NULL
cdef int identify(mq_process_identity *identity, const char *name) except -1
cdef uint32_t random_word() noexcept
cdef uint64_t new_uid() noexcept
cdef str text(const char *shared, size_t size)
cdef object is_alive(mq_liveness life)
