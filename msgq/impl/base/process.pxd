from libc.stdint cimport uint32_t, uint64_t


cdef extern from "base/process_info.h" nogil:
    ctypedef enum mq_liveness:
        MQ_DEAD
        MQ_ALIVE
        MQ_UNKNOWN
    ctypedef struct mq_process_identity:
        uint64_t pid
        uint64_t thread_id
        uint64_t start_time
        uint64_t pid_namespace
        char name[16]
    ctypedef struct mq_identity_cache:
        pass
    int mq_read_own_identity(mq_identity_cache *cache, mq_process_identity *self)
    void mq_forget_own_identity(mq_identity_cache *cache)
    uint64_t mq_thread_id()
    mq_liveness mq_process_liveness(uint64_t pid, uint64_t start_time, uint64_t pid_namespace)
    mq_liveness mq_thread_liveness(uint32_t thread_id)
    uint32_t random_u32 "mq_random_u32"()
    uint64_t new_uid "mq_new_uid"()


# fork_generation is incremented in each forked child. A socket with another generation belongs to the parent.
cdef int fork_generation

cdef const mq_process_identity *this_process() except NULL
cdef int read_own_identity(mq_process_identity *identity, const char *name) except -1
cdef str text(const char *shared, size_t size)
cdef object is_alive(mq_liveness life)
