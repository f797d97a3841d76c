/* Statistics of each channel of a recording, updated message by message. No function here calls Python. */
#ifndef MSGQ_RECORDING_TALLY_H
#define MSGQ_RECORDING_TALLY_H

#include <stdint.h>

typedef struct {
    int64_t messages;
    int64_t bytes;
    int64_t first_time;
    int64_t last_time;
    int64_t lost;
    int64_t next_sequence;  /* number of the newest message + 1. 0: the numbering has no message yet */
    int64_t first_sequence; /* number of the numbering's first message */
    int64_t largest;
} mq_channel_tally;

/* Count a message in the tally of its code. A gap in the message numbers is a loss. `numbering` is the tally of the
 * first code with the same numbering, and counts the loss. Message numbers have 32 bits and wrap around. A number
 * that decreases (a copy, or files out of order) is not a loss. */
static inline void mq_tally_add_message(mq_channel_tally *tally, mq_channel_tally *numbering, int64_t log_time,
                                        uint32_t sequence, int64_t bytes) {
    const int32_t step = (int32_t)(sequence + 1 - (uint32_t)numbering->next_sequence);
    if (numbering->next_sequence == 0)
        numbering->first_sequence = sequence;
    if (numbering->next_sequence == 0 || step > 0) {
        numbering->lost += numbering->next_sequence == 0 ? 0 : step - 1;
        numbering->next_sequence = (int64_t)sequence + 1;
    }
    if (tally->messages++ == 0)
        tally->first_time = tally->last_time = log_time;
    if (log_time < tally->first_time)
        tally->first_time = log_time;
    if (log_time > tally->last_time)
        tally->last_time = log_time;
    if (bytes > tally->largest)
        tally->largest = bytes;
    tally->bytes += bytes;
}

#endif
