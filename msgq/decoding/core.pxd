"""C declarations of decoding."""

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef extern from "decoding/cdr_columns.h" nogil:
    enum:
        MQ_CDR_REPEAT_DEPTH_MAX
        MQ_CDR_STEP_NUMBERS
        MQ_CDR_STEP_SEQUENCE
        MQ_CDR_STEP_TEXT
        MQ_CDR_STEP_REPEAT_BEGIN
        MQ_CDR_STEP_REPEAT_END
    ctypedef struct mq_cdr_step:
        int64_t step_kind
    ctypedef struct mq_column_buffer:
        uint8_t *bytes
        int64_t capacity_bytes
        int64_t used_bytes
        int64_t last_offset
    ctypedef struct mq_cdr_plan:
        const mq_cdr_step *steps
        int64_t step_count
        int64_t column_count
        int is_cdr
    void mq_cdr_unpack_messages(const mq_cdr_plan *plan, const uint8_t *data, const int32_t *offsets, int64_t rows,
                                mq_column_buffer *columns, mq_column_buffer *saved_columns, uint8_t *failed)
