"""Cython declarations of records."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from msgq.impl.base.core cimport (
    Bus, EndpointFile, mq_error, mq_file_lock, mq_liveness, mq_liveness_file, mq_liveness_probe, mq_object_lock,
    mq_participant, mq_poll_ops, mq_process_identity, mq_schema, mq_u32, mq_u64, mq_versioned_row, ThreadSharedHandle,
    Waitable,
)


cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject *)  # a pointer, because Cython's own declaration counts a temporary reference


cdef extern from "base/layout.h" nogil:
    ctypedef struct mq_stamps:
        int64_t publish_time, origin_time


cdef extern from "records/layout.h" nogil:
    enum:
        MQ_RECORD_BOARD
        MQ_RECORD_CREATOR_BYTES
        MQ_RECORD_EXCLUSIVE
        MQ_RECORD_KEY_BYTES
        MQ_RECORD_ROWS
        MQ_RECORD_ROW_BYTE
    uint64_t MQ_RECORD_SCHEMA_BYTES
    ctypedef struct mq_record_row:
        mq_versioned_row at
        mq_u64 written
    ctypedef struct mq_record_key:
        mq_u64 owner
        char name[112]
    ctypedef struct mq_record_header:
        mq_u64 created_ns, creator_pid, owner
        char creator[64]
        mq_u32 eventcount
        mq_record_row rows[128]
        mq_schema schema
        char schema_data[1]
    ctypedef struct mq_record_config:
        uint64_t length, item_bytes, copies, flags
    ctypedef struct mq_record_file_parts:
        mq_record_header *header
        mq_record_key *key_table
        mq_record_config config
        uint64_t stride
    uint64_t mq_record_compute_file_bytes(const mq_record_config *config)
    void mq_record_header_init(mq_record_header *header, const mq_record_config *config, uint64_t created_ns,
                               uint64_t pid, const char *creator)


cdef extern from "records/cell.h" nogil:
    enum:
        MQ_CELL_COUNT_SHIFT
    uint64_t mq_cell_write_count(uint64_t version)
    uint64_t mq_cell_count_writes_between(const mq_record_file_parts *parts, uint64_t before, uint64_t now)
    uint64_t mq_cell_version_owner(uint64_t version)
    unsigned mq_cell_owner_row(uint64_t who)
    mq_u64 *mq_cell_version_word(const mq_record_file_parts *parts, uint64_t index)


cdef extern from "records/writer.h" nogil:
    ctypedef struct mq_record_writer:
        mq_record_file_parts parts
        mq_record_row *row
        uint64_t owner
        const mq_liveness_file *liveness_file
    mq_liveness mq_record_owner_liveness(mq_record_header *header, mq_liveness_probe *probe, uint64_t who)
    void mq_record_release_owner_word(mq_record_writer *w, mq_u64 *owner)
    void mq_record_count_written(mq_record_writer *w, uint64_t elements)
    void mq_record_notify_written(mq_record_writer *w, uint64_t elements, bint exclusive)
    void mq_record_unregister_writer(mq_record_writer *w, uint64_t uid, void **liveness_token)


cdef extern from "records/vector.h" nogil:
    ctypedef struct mq_element_selection:
        const int64_t *indices
        uint64_t first, count
    ctypedef struct mq_vector_read_info:
        uint64_t *write_counts
        int64_t *write_times_ns
    uint64_t mq_vector_read_elements(const mq_record_file_parts *parts, const mq_element_selection *selection,
                                     uint8_t *to)
    uint64_t mq_vector_read_elements_with_info(const mq_record_file_parts *parts, const mq_element_selection *selection,
                                               uint8_t *to, const mq_vector_read_info *info)
    bint mq_vector_indices_are_valid(const mq_record_file_parts *parts, const int64_t *indices, uint64_t count)
    uint64_t mq_vector_collect_changed(const mq_record_file_parts *parts, const uint64_t *seen, uint64_t first,
                                       int64_t *indices, uint64_t room)
    bint mq_vector_snapshot_step(const mq_record_file_parts *parts, uint8_t *to, uint64_t *times)
    ctypedef enum mq_vector_status:
        MQ_VECTOR_WRITTEN
        MQ_VECTOR_CORRUPT
    mq_vector_status mq_vector_write_elements(mq_record_writer *w, const mq_element_selection *selection,
                                              const uint8_t *source, int64_t time, const mq_stamps *stamps,
                                              int64_t deadline_ns, uint64_t *done)
    mq_vector_status mq_vector_write_uncounted(mq_record_writer *w, const mq_element_selection *selection,
                                               const uint8_t *source, int64_t time, const mq_stamps *stamps,
                                               int64_t deadline_ns, uint64_t *done)
    mq_vector_status mq_vector_fill_one(mq_record_writer *w, mq_u64 *version, const uint8_t *source, size_t item_bytes,
                                        int64_t time, const mq_stamps *stamps, int64_t deadline_ns)
    mq_vector_status mq_vector_commit_one(mq_record_writer *w, mq_u64 *version)
    ctypedef struct mq_vector_poll_state:
        const mq_record_file_parts *parts
        const uint64_t *seen_write_counts
        const mq_u64 *not_truncated
    int mq_vector_is_readable(const void *reader)


cdef extern from "records/board.h" nogil:
    uint64_t MQ_BOARD_NO_KEY
    uint64_t mq_board_find_key(const mq_record_file_parts *parts, const char *key, size_t size, uint64_t first)
    uint64_t mq_board_key_count(const mq_record_file_parts *parts)
    uint64_t mq_board_value_bytes(const mq_record_file_parts *parts)
    void mq_board_write_value(mq_record_writer *w, uint64_t index, const void *source, uint64_t length, int64_t time)
    void mq_board_fill_value(mq_record_writer *w, mq_u64 *version, const void *source, uint64_t length, int64_t time)
    void mq_board_commit_value(mq_record_writer *w, mq_u64 *version)
    ctypedef struct mq_board_value_copy:
        uint64_t count, length
        int64_t time_ns
        bint is_corrupt
    const uint8_t *mq_board_value_read_begin(const mq_record_file_parts *parts, uint64_t index,
                                             mq_board_value_copy *value)
    bint mq_board_value_read_valid(const mq_record_file_parts *parts, uint64_t index, const mq_board_value_copy *value)
    ctypedef struct mq_board_poll_state:
        const mq_record_file_parts *parts
        char key[112]
        size_t bytes
        uint64_t index, seen_write_count
        const mq_u64 *not_truncated
    int mq_board_key_is_readable(const void *reader)


cdef extern from "records/join.h" nogil:
    enum:
        MQ_RECORD_OWNER_TEXT_BYTES
    const char *mq_record_describe_owner(const mq_record_header *header, uint64_t owner, char *text)
    int mq_record_check_file(mq_record_header *header, uint64_t size, const char *path, mq_record_file_parts *parts,
                             mq_error *error)
    int mq_record_join(mq_record_writer *w, const mq_file_lock *lock, const mq_process_identity *self, uint64_t uid,
                       void **row_token, mq_error *error)
    int64_t mq_board_declare_key(mq_record_writer *w, const char *key, size_t size, mq_error *error)


cdef extern from "records/snapshot.h" nogil:
    enum:
        MQ_RECORD_READ_TRIES
    ctypedef struct mq_record_row_summary:
        uint64_t locked, keys
    ctypedef struct mq_record_summary:
        uint64_t elements_written, locked, orphaned, last_time_ns, last_index
        mq_record_row_summary rows[128]
    unsigned mq_record_find_owner_row(const mq_record_header *header, uint64_t who)
    void mq_record_summarize_file(const mq_record_file_parts *parts, mq_record_summary *out)


cdef extern from "base/atomics.h" nogil:
    uint32_t mq_load_acquire_u32(const mq_u32 *word)


cdef extern from "sched.h" nogil:
    int sched_yield()


cdef class RecordFile(EndpointFile):
    """The file of a vector or board, with its lock. Without a name: private memory, which has neither."""
    cdef object open_options  # options.VectorOpenOptions or BoardOpenOptions; None for observers
    cdef mq_record_file_parts parts
    cdef uint64_t held_writes  # number of writes of the handle that a simulation holds
    cdef object state  # state in a simulation: its method `publish` gets each write of the handle
    cdef mq_record_config _make_new_config(self) except *
    cdef bint is_board(self) noexcept

cdef RecordFile make_record_file(str name, str in_prefix, object trust, object wanted)
cdef RecordFile open_record_file(str name, str in_prefix)
