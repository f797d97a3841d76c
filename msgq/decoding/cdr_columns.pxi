"""Messages as columns, in compiled code. See cdr_columns.h."""


CDR_REPEAT_DEPTH_MAX = MQ_CDR_REPEAT_DEPTH_MAX
CDR_STEP_NUMBERS = MQ_CDR_STEP_NUMBERS
CDR_STEP_SEQUENCE = MQ_CDR_STEP_SEQUENCE
CDR_STEP_TEXT = MQ_CDR_STEP_TEXT
CDR_STEP_REPEAT_BEGIN = MQ_CDR_STEP_REPEAT_BEGIN
CDR_STEP_REPEAT_END = MQ_CDR_STEP_REPEAT_END
_STEP_FIELDS = sizeof(mq_cdr_step) // sizeof(int64_t)
_COLUMN_BUFFER_FIELDS = sizeof(mq_column_buffer) // sizeof(int64_t)


def unpack_columns(const int64_t[:, ::1] steps, are_offsets, bint is_cdr, const uint8_t[::1] data,
                   const int32_t[::1] message_offsets):
    cdef int64_t rows = message_offsets.shape[0] - 1
    cdef int64_t row
    cdef mq_cdr_plan plan
    if steps.shape[0] < 1 or steps.shape[1] != _STEP_FIELDS or rows < 1:
        raise InvalidValueError(
            f"decode plan has {steps.shape[0]} steps and {rows} messages; "
            "at least one of each is needed"
        )
    for row in range(rows):
        if not 0 <= message_offsets[row] <= message_offsets[row + 1] <= data.shape[0]:
            raise InvalidValueError(f"message {row} ends outside the data of {data.shape[0]} bytes")
    plan.steps, plan.step_count = <const mq_cdr_step *> &steps[0, 0], steps.shape[0]
    plan.column_count, plan.is_cdr = len(are_offsets), is_cdr
    # The array has one more buffer than columns, because the code takes the address of the first buffer.
    cdef int64_t[:, ::1] buffers = np.zeros((plan.column_count + 1, _COLUMN_BUFFER_FIELDS), np.int64)
    cdef int64_t[:, ::1] saved_buffers = np.zeros((plan.column_count + 1, _COLUMN_BUFFER_FIELDS), np.int64)
    cdef mq_column_buffer *columns = <mq_column_buffer *> &buffers[0, 0]
    cdef mq_column_buffer *saved = <mq_column_buffer *> &saved_buffers[0, 0]
    cdef const uint8_t *first = &data[0] if data.shape[0] else NULL
    failures = np.zeros(rows, np.uint8)
    cdef uint8_t[::1] failed = failures
    with nogil:
        mq_cdr_unpack_messages(&plan, first, &message_offsets[0], rows, columns, saved, &failed[0])
    arrays = []
    cdef uint8_t[::1] column
    cdef int64_t number, before
    for number in range(plan.column_count):
        before = sizeof(int32_t) if are_offsets[number] else 0  # a column of offsets begins with the offset 0
        column = np.zeros(before + columns[number].used_bytes, np.uint8)
        arrays.append(np.asarray(column))
        columns[number].capacity_bytes = columns[number].used_bytes
        if columns[number].used_bytes:
            columns[number].bytes = &column[before]
        columns[number].used_bytes = columns[number].last_offset = 0
    with nogil:
        mq_cdr_unpack_messages(&plan, first, &message_offsets[0], rows, columns, saved, &failed[0])
    return arrays, failures.view(np.bool_)
