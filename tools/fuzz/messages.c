/* Fuzzes the decoding of CDR and ROS 1 messages into columns. For the usage, see driver.c.
 *
 * Each case makes a plan as Python does, and messages that match the plan more or less. The columns have exactly the
 * counted size. The program checks that no call accesses memory outside of the messages and columns, that the second pass
 * writes as many elements as the first pass counted, and that messages have at least one byte per element.
 */
#define FUZZ_STEPS_MAX 5000000
#include "hostile.h"

#include "decoding/cdr_columns.h"

enum { STEPS_MAX = 40, COLUMNS_MAX = 2 * STEPS_MAX, MESSAGES_MAX = 8, BYTES_MAX = 200 };

static mq_cdr_step steps[STEPS_MAX];
static mq_cdr_plan plan;

static int64_t add_column(void) { return fuzz_one_in(8) ? -1 : plan.column_count++; }

static mq_cdr_step *add_step(int64_t kind, int64_t size, int64_t count) {
    mq_cdr_step *step = &steps[plan.step_count++];
    *step = (mq_cdr_step){kind, size, count, -1, -1, -1};
    return step;
}

/* Add some steps to the plan. Return the minimum size of a message in bytes. */
static int64_t add_steps(int depth) {
    int64_t least = 0;
    for (uint64_t more = 1 + fuzz_below(3); more > 0; more--) {
        const int64_t size = 1 << fuzz_below(4), count = 1 + (int64_t)fuzz_below(3);
        if (plan.step_count > STEPS_MAX - 4 * MQ_CDR_REPEAT_DEPTH_MAX && depth > 0)
            break;
        switch (fuzz_below(
            depth < MQ_CDR_REPEAT_DEPTH_MAX && plan.step_count < STEPS_MAX - 2 * MQ_CDR_REPEAT_DEPTH_MAX - 4 ? 5 : 3)) {
        case 0:
            add_step(MQ_CDR_STEP_NUMBERS, size, count)->value_column = add_column();
            least += size * count;
            break;
        case 1:
        case 2: {
            mq_cdr_step *step = add_step(fuzz_one_in(2) ? MQ_CDR_STEP_TEXT : MQ_CDR_STEP_SEQUENCE, size, -1);
            step->element_bytes = step->step_kind == MQ_CDR_STEP_TEXT ? 1 : size;
            step->value_column = add_column();
            step->offset_column = step->value_column < 0 ? -1 : plan.column_count++;
            least += 4;
            break;
        }
        default: {
            const int64_t begin = plan.step_count, times = fuzz_one_in(2) ? -1 : count;
            mq_cdr_step *step = add_step(MQ_CDR_STEP_REPEAT_BEGIN, 1, times);
            step->offset_column = times < 0 ? add_column() : -1;
            step->element_bytes = add_steps(depth + 1);
            step->element_bytes += step->element_bytes == 0;
            step->partner_step = plan.step_count;
            least += times < 0 ? 4 : times * step->element_bytes;
            add_step(MQ_CDR_STEP_REPEAT_END, 1, -1)->partner_step = begin;
        }
        }
    }
    return least;
}

/* Fill the message, usually with small lengths and texts. */
static void fill(uint8_t *bytes, int64_t size) {
    static const uint8_t firsts[] = {0xC3, 0xE2, 0xF0, 0x80}; /* bytes of incomplete characters in UTF-8 */
    for (int64_t i = 0; i < size; i++)
        bytes[i] = fuzz_one_in(3) ? (uint8_t)fuzz_below(fuzz_one_in(10) ? 256 : 4) : 0;
    if (size > 0 && fuzz_one_in(2))
        bytes[size - 1] = firsts[fuzz_below(4)];
    if (plan.is_cdr && size > 1 && !fuzz_one_in(8)) {
        bytes[0] = 0;
        bytes[1] = (uint8_t)fuzz_below(2);
    }
}

static void run_case(void) {
    int32_t offsets[MESSAGES_MAX + 1] = {0};
    uint8_t failed[MESSAGES_MAX] = {0};
    mq_column_buffer columns[COLUMNS_MAX] = {0}, counted[COLUMNS_MAX], saved_columns[COLUMNS_MAX];
    const int64_t rows = fuzz_one_in(2) ? 1 : 1 + (int64_t)fuzz_below(MESSAGES_MAX);
    plan = (mq_cdr_plan){steps, 0, 0, fuzz_one_in(2)};
    add_steps(0);
    for (int64_t row = 0; row < rows; row++)
        offsets[row + 1] = offsets[row] + (int32_t)fuzz_below(fuzz_one_in(2) ? BYTES_MAX : 16);
    uint8_t *data = malloc((size_t)offsets[rows]);
    for (int64_t row = 0; row < rows; row++)
        fill(data + offsets[row], offsets[row + 1] - offsets[row]);
    fuzz_op = "count";
    mq_cdr_unpack_messages(&plan, data, offsets, rows, columns, saved_columns, failed);
    memcpy(counted, columns, sizeof counted);
    for (int64_t i = 0; i < plan.column_count; i++) {
        check(columns[i].used_bytes >= 0 && columns[i].used_bytes <= 4 * offsets[rows],
              "more bytes than messages could have");
        check(columns[i].last_offset >= 0 && columns[i].last_offset <= offsets[rows], "more elements than bytes");
        columns[i] = (mq_column_buffer){malloc((size_t)columns[i].used_bytes), columns[i].used_bytes, 0, 0};
    }
    fuzz_op = "take";
    mq_cdr_unpack_messages(&plan, data, offsets, rows, columns, saved_columns, failed);
    for (int64_t i = 0; i < plan.column_count; i++) {
        check(columns[i].used_bytes == counted[i].used_bytes && columns[i].last_offset == counted[i].last_offset,
              "not what was counted");
        free(columns[i].bytes);
    }
    free(data);
}

int main(int argc, char **argv) { return fuzz_main(argc, argv, run_case, 1); }
