from msgq.impl.core cimport mq_life, mq_self, uint32_t

# Grows in every forked child: a socket that was made in another generation is the parent's.
cdef int fork_generation

cdef const mq_self *this_process() except NULL
cdef uint32_t random_word() noexcept
cdef object is_alive(mq_life life)
