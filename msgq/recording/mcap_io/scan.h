/* Scan the records of an MCAP chunk into columns, message by message.
 *
 * The bytes may have any content, so each read is first checked against the end of the bytes. Numbers are
 * little-endian, like MCAP and the supported machines.
 */
#ifndef MSGQ_RECORDING_SCAN_H
#define MSGQ_RECORDING_SCAN_H

#include <stdint.h>
#include <string.h>

#include "mcap_io/tally.h"

#define MQ_SCAN_RECORD_HEAD_BYTES 9   /* opcode, length */
#define MQ_SCAN_MESSAGE_HEAD_BYTES 22 /* channel, sequence, log_time, publish_time */
#define MQ_OPCODE_SCHEMA 0x03
#define MQ_OPCODE_CHANNEL 0x04
#define MQ_OPCODE_MESSAGE 0x05

/* Reasons why a scan stopped. */
enum {
    MQ_SCAN_END_OF_BYTES, /* the scan reached the end of the bytes */
    MQ_SCAN_COLUMNS_FULL, /* the columns have no row left */
    /* the scan reached a complete record for the caller: a schema, a channel, or an invalid message */
    MQ_SCAN_OTHER_RECORD,
    MQ_SCAN_TRUNCATED_RECORD, /* the scan reached a record that exceeds the end of the bytes */
    MQ_SCAN_ZERO_OPCODE,      /* the scan reached opcode 0, which is not a valid MCAP record */
};

/* Codes of channels, in addition to the caller's codes, which are 0 or above. */
enum { MQ_CHANNEL_CODE_UNKNOWN = -1, MQ_CHANNEL_CODE_UNWANTED = -2 };

typedef struct {
    const int32_t *channel_codes; /* code of each channel id */
    int64_t channel_count;        /* number of codes; larger ids are unknown */
    int64_t start_time;           /* scan messages with log_time >= start_time */
    int64_t end_time;             /* scan messages with log_time < end_time */
    int stops_at_unknown;         /* 1: also stop at records that chunks do not contain. 0: skip such records */
} mq_scan_filter;

typedef struct {
    int32_t *code;
    int64_t *sequence;
    int64_t *log_time;
    int64_t *publish_time;
    int64_t *offset; /* offset of the payload in the scanned bytes */
    int64_t *length;
} mq_scan_columns;

static inline uint16_t mq_read_u16(const uint8_t *at) {
    uint16_t value;
    memcpy(&value, at, 2);
    return value;
}
static inline uint32_t mq_read_u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
}
static inline uint64_t mq_read_u64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

/* Scan the requested messages, starting at *position, into the columns, starting at *row. Advances *position and
 * *row. */
static inline int mq_scan_chunk_messages(const uint8_t *bytes, int64_t size, const mq_scan_filter *wanted,
                                         const mq_scan_columns *columns, int64_t rows, int64_t *position,
                                         int64_t *row) {
    int64_t at = *position, r = *row;
    int why = MQ_SCAN_END_OF_BYTES;
    while (at < size) {
        if (size - at < MQ_SCAN_RECORD_HEAD_BYTES) {
            why = MQ_SCAN_TRUNCATED_RECORD;
            break;
        }
        const uint8_t opcode = bytes[at];
        if (opcode == 0) {
            why = MQ_SCAN_ZERO_OPCODE;
            break;
        } /* a run of zeros may have any length */
        const uint64_t length = mq_read_u64(bytes + at + 1);
        if (length > (uint64_t)(size - at - MQ_SCAN_RECORD_HEAD_BYTES)) {
            why = MQ_SCAN_TRUNCATED_RECORD;
            break;
        }
        if (opcode != MQ_OPCODE_MESSAGE && opcode != MQ_OPCODE_SCHEMA && opcode != MQ_OPCODE_CHANNEL &&
            !wanted->stops_at_unknown) {
            at += MQ_SCAN_RECORD_HEAD_BYTES + (int64_t)length;
            continue;
        }
        if (opcode != MQ_OPCODE_MESSAGE || length < MQ_SCAN_MESSAGE_HEAD_BYTES) {
            why = MQ_SCAN_OTHER_RECORD;
            break;
        }
        const uint8_t *message = bytes + at + MQ_SCAN_RECORD_HEAD_BYTES;
        const uint16_t channel = mq_read_u16(message);
        const int32_t code = channel < wanted->channel_count ? wanted->channel_codes[channel] : MQ_CHANNEL_CODE_UNKNOWN;
        const int64_t log_time = (int64_t)mq_read_u64(message + 6);
        const int64_t publish_time = (int64_t)mq_read_u64(message + 14);
        if (code == MQ_CHANNEL_CODE_UNKNOWN || (log_time | publish_time) < 0 || log_time == INT64_MAX) {
            why = MQ_SCAN_OTHER_RECORD; /* an unknown channel, or a time too large for an exclusive end time */
            break;
        }
        if (code >= 0 && log_time >= wanted->start_time && log_time < wanted->end_time) {
            if (r == rows) {
                why = MQ_SCAN_COLUMNS_FULL;
                break;
            }
            columns->code[r] = code;
            columns->sequence[r] = mq_read_u32(message + 2);
            columns->log_time[r] = log_time;
            columns->publish_time[r] = publish_time;
            columns->offset[r] = at + MQ_SCAN_RECORD_HEAD_BYTES + MQ_SCAN_MESSAGE_HEAD_BYTES;
            columns->length[r] = (int64_t)length - MQ_SCAN_MESSAGE_HEAD_BYTES;
            r++;
        }
        at += MQ_SCAN_RECORD_HEAD_BYTES + (int64_t)length;
    }
    *position = at;
    *row = r;
    return why;
}

/* Return the total payload bytes of the rows from `row` to `rows` - 1. */
static inline int64_t mq_scan_sum_payload_bytes(const mq_scan_columns *columns, int64_t row, int64_t rows) {
    int64_t sum = 0;
    for (; row < rows; row++)
        sum += columns->length[row];
    return sum;
}

/* Copy payloads one after the other to `data`, after its `used` bytes. Stores the end of each payload in ends[row].
 * `data` must have room for all payloads. Returns the new number of used bytes. Returns -1 if `bytes` are not the
 * scanned bytes. */
static inline int64_t mq_scan_copy_payloads(const uint8_t *bytes, int64_t size, const mq_scan_columns *columns,
                                            int64_t row, int64_t rows, uint8_t *data, int64_t used, int32_t *ends) {
    for (; row < rows; row++) {
        if (columns->offset[row] > size - columns->length[row])
            return -1;
        memcpy(data + used, bytes + columns->offset[row], (size_t)columns->length[row]);
        used += columns->length[row];
        ends[row] = (int32_t)used;
    }
    return used;
}

/* Count rows in the tallies of their codes. numberings[code] is the code whose tally counts the losses. */
static inline void mq_scan_update_tallies(const mq_scan_columns *columns, int64_t row, int64_t rows,
                                          mq_channel_tally *tallies, const int32_t *numberings) {
    for (; row < rows; row++) {
        const int32_t code = columns->code[row];
        mq_tally_add_message(&tallies[code], &tallies[numberings[code]], columns->log_time[row],
                             (uint32_t)columns->sequence[row], columns->length[row]);
    }
}

#endif
