"""C declarations of decoding."""

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef extern from "decoding/cdr_columns.h" nogil:
    enum:
        MQ_CDR_DEPTH_MAX
        MQ_STEP_FIXED
        MQ_STEP_SEQUENCE
        MQ_STEP_TEXT
        MQ_STEP_REPEAT
        MQ_STEP_AGAIN
    ctypedef struct mq_cdr_step:
        int64_t kind
    ctypedef struct mq_column_buffer:
        uint8_t *bytes
        int64_t room
        int64_t used
        int64_t total
    ctypedef struct mq_cdr_plan:
        const mq_cdr_step *steps
        int64_t count
        int64_t slots
        int is_cdr
    void mq_cdr_unpack_messages(const mq_cdr_plan *plan, const uint8_t *data, const int32_t *borders, int64_t rows,
                                mq_column_buffer *slots, mq_column_buffer *kept, uint8_t *failed)
