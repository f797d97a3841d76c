"""The headers of base/ as Cython sees them.

Shared words are opaque: Cython cannot touch one but by a function whose name has its order.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "base/layout.h" nogil:
    enum:
        MQ_CLOCK_VERSION
    uint64_t MQ_CLOCK_MAGIC
    ctypedef struct mq_clock:
        pass
    enum:
        MQ_ORIGIN_VERSION
    uint64_t MQ_ORIGIN_MAGIC
    ctypedef struct mq_origin:
        pass


cdef extern from "base/atomics.h" nogil:
    ctypedef struct mq_u64:
        pass
    ctypedef struct mq_u32:
        pass
    uint64_t mq_load_relaxed_u64(const mq_u64 *word)
    uint64_t mq_load_acquire_u64(const mq_u64 *word)
    void mq_copy_in(void *shared, const void *source, size_t n)
    void mq_copy_out(void *to, const void *shared, size_t n)


cdef extern from "base/truncation.h" nogil:
    bint mq_was_truncated(const mq_u64 *not_truncated)


cdef extern from "base/populate.h" nogil:
    bint mq_can_populate()
    uint64_t mq_free_memory()
    bint mq_populate(void *start, uint64_t bytes, uint64_t spare)


cdef extern from "base/origin.h" nogil:
    mq_u64 *mq_origin_last(mq_origin *origin)
    int64_t mq_origin_next(mq_u64 *last, int64_t now_ns, uint64_t count)


cdef extern from "base/layout.h" nogil:
    enum:
        MQ_NAME
    ctypedef enum mq_file_check:
        MQ_FILE_VALID
        MQ_FILE_STALE
        MQ_FILE_OTHER_VERSION
    ctypedef struct mq_participant:
        mq_u64 uid, pid, thread_id, start_time
        char name[16]
    ctypedef struct mq_versioned_row:
        mq_participant participant
    ctypedef struct mq_schema:
        pass


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
    int mq_read_process_identity(mq_process_identity *self)
    uint64_t mq_thread_id()
    mq_liveness mq_process_liveness(uint64_t pid, uint64_t start_time, uint64_t pid_namespace)
    mq_liveness mq_thread_liveness(uint32_t thread_id)


cdef extern from "base/liveness_lock.h" nogil:
    ctypedef struct mq_liveness_file:
        const char *path
        int fd
        uint64_t device
        uint64_t inode
    ctypedef struct mq_liveness_probe:
        const mq_liveness_file *liveness_file
    void *mq_liveness_lock(const mq_liveness_file *liveness_file, uint64_t row, bint shared)
    void *mq_file_lock_acquire(const char *path, mq_liveness_file *which)
    void mq_liveness_unlock(void *liveness_token)
    mq_liveness_probe mq_liveness_probe_begin(const mq_liveness_file *liveness_file)
    void mq_liveness_probe_end(mq_liveness_probe *probe)
    mq_liveness mq_liveness_is_locked(mq_liveness_probe *probe, uint64_t row)
    mq_liveness mq_owner_liveness(mq_liveness_probe *probe, uint64_t row, uint64_t pid, uint64_t pid_namespace)


cdef extern from "base/row_table.h" nogil:
    enum:
        MQ_NO_ROW
    ctypedef struct mq_row_table:
        pass
    int mq_row_table_reserve(const mq_row_table *row_table, const mq_liveness_file *file, void **token)
    mq_liveness mq_participant_liveness(mq_liveness_probe *probe, const mq_participant *participant, int byte)


cdef extern from "base/schema.h" nogil:
    enum:
        MQ_SCHEMA_NAME
        MQ_SCHEMA_ENCODING
    ctypedef struct mq_schema_parts:
        uint64_t room
    mq_schema_parts mq_schema_parts_of(mq_schema *schema, char *data, uint64_t room)
    void mq_schema_write(const mq_schema_parts *at, const char *name, const char *encoding, const char *data,
                         uint64_t size)
    bint mq_schema_read(const mq_schema_parts *at, char *name, char *encoding, char *data, uint64_t *size)


cdef extern from "base/futex.h" nogil:
    enum:
        MQ_NS_PER_MS
        MQ_NS_PER_S
        MQ_FUTEX_MANY
        MQ_FUTEX_32
    ctypedef struct mq_futex_many:
        uint64_t expected
        uint64_t address
        uint32_t flags
    uint32_t *mq_futex_word(mq_u32 *shared)
    int64_t mq_clock_ns(int clock)
    int64_t mq_now_ns()
    long mq_futex_wait(uint32_t *word, uint32_t expected, int64_t deadline_ns)
    long mq_futex_wait_many(const mq_futex_many *words, unsigned count, int64_t deadline_ns)
    void mq_futex_wake(uint32_t *word, int count)
    void mq_futex_wake_all(uint32_t *word)
    bint mq_membarrier_register()


cdef extern from "base/eventcount.h" nogil:
    uint32_t mq_eventcount_prepare_wait(mq_u32 *word)
    uint32_t mq_eventcount_prepare_wait_mp(mq_u32 *word)
    bint mq_eventcount_has_waiters_mp(const mq_u32 *word)
    bint mq_eventcount_notify_mp(mq_u32 *word)


cdef extern from "base/poll_ops.h" nogil:
    ctypedef struct mq_poll_ops:
        int (*is_readable)(const void *reader) noexcept nogil
        const void *reader
        mq_u32 *eventcount
        uint32_t (*prepare_wait)(const void *reader, mq_u32 *eventcount) noexcept nogil
        void (*end_wait)(const void *reader) noexcept nogil
        bint no_backoff
    uint32_t mq_poll_prepare_wait(const void *reader, mq_u32 *eventcount)
    uint32_t mq_poll_prepare_wait_mp(const void *reader, mq_u32 *eventcount)
