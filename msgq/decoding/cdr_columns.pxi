"""Messages taken apart into columns, below Python: see cdr_columns.h."""


STEP_DEPTH_MAX = MQ_CDR_DEPTH_MAX
STEP_FIXED = MQ_STEP_FIXED
STEP_SEQUENCE = MQ_STEP_SEQUENCE
STEP_TEXT = MQ_STEP_TEXT
STEP_REPEAT = MQ_STEP_REPEAT
STEP_AGAIN = MQ_STEP_AGAIN
_STEP_FIELDS = sizeof(mq_cdr_step) // sizeof(int64_t)
_SLOT_FIELDS = sizeof(mq_column_buffer) // sizeof(int64_t)


def unpack_columns(const int64_t[:, ::1] steps, are_ends, bint is_cdr, const uint8_t[::1] data,
                   const int32_t[::1] borders):
    cdef int64_t rows = borders.shape[0] - 1
    cdef int64_t row
    cdef mq_cdr_plan plan
    if steps.shape[0] < 1 or steps.shape[1] != _STEP_FIELDS or rows < 1:
        raise InvalidValueError(f"{steps.shape[0]} steps and {rows} messages; give some of both")
    for row in range(rows):
        if not 0 <= borders[row] <= borders[row + 1] <= data.shape[0]:
            raise InvalidValueError(f"message {row} is not within the {data.shape[0]} bytes")
    plan.steps, plan.count = <const mq_cdr_step *> &steps[0, 0], steps.shape[0]
    plan.slots, plan.is_cdr = len(are_ends), is_cdr
    # One slot more than there are: the address of the first one is asked for.
    cdef int64_t[:, ::1] slots = np.zeros((plan.slots + 1, _SLOT_FIELDS), np.int64)
    cdef int64_t[:, ::1] kept = np.zeros((plan.slots + 1, _SLOT_FIELDS), np.int64)
    cdef mq_column_buffer *columns = <mq_column_buffer *> &slots[0, 0]
    cdef const uint8_t *first = &data[0] if data.shape[0] else NULL
    failures = np.zeros(rows, np.uint8)
    cdef uint8_t[::1] failed = failures
    with nogil:
        mq_cdr_unpack_messages(&plan, first, &borders[0], rows, columns, <mq_column_buffer *> &kept[0, 0], &failed[0])
    arrays = []
    cdef uint8_t[::1] column
    cdef int64_t slot, before
    for slot in range(plan.slots):
        before = sizeof(int32_t) if are_ends[slot] else 0  # the first end, 0
        column = np.zeros(before + columns[slot].used, np.uint8)
        arrays.append(np.asarray(column))
        columns[slot].room = columns[slot].used
        if columns[slot].used:
            columns[slot].bytes = &column[before]
        columns[slot].used = columns[slot].total = 0
    with nogil:
        mq_cdr_unpack_messages(&plan, first, &borders[0], rows, columns, <mq_column_buffer *> &kept[0, 0], &failed[0])
    return arrays, failures.view(np.bool_)
