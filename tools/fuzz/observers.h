/* Observers of a ring: a meter, a recorder, and the watcher thread of event loops. Part of driver.c. */
#ifndef FUZZ_OBSERVERS_H
#define FUZZ_OBSERVERS_H

#include <sys/eventfd.h>

static int fuzz_eventfd(unsigned start, int flags) {
    static int last = 1000;
    errno = EMFILE;
    return start || flags < 0 || fuzz_one_in(8) ? -1 : ++last;
}
#define eventfd fuzz_eventfd

#include "recorder/capture.h"
#include "meter/sample.h"
#include "base/watcher.h"

static mq_meter meter;
static mq_capture capture;
static mq_capture_channel channels[MQ_CAPTURE_CHANNEL_IDS];
static int watched[SUBSCRIBERS]; /* its descriptor; 0: none */
static mq_ring_poll_state poll_states[SUBSCRIBERS];

/* Remove all observers. The fuzzer runs the scans of the watcher thread in its own thread. */
static void reset_observers(void) {
    memset(&meter, 0, sizeof meter);
    meter.stamp_offset = (int64_t)fuzz_below(3) * 8 - 8;
    if (fuzz_one_in(4))
        meter.stamp_offset = INT64_MAX - (int64_t)fuzz_below(16);
    capture = (mq_capture){.channels = channels, .channel_count = fuzz_one_in(8) ? MQ_CAPTURE_CHANNEL_IDS - 3 : 0};
    memset(watched, 0, sizeof watched);
    mq_watcher.count = 0;
    mq_watcher.running = true;
}

/* ---- the meter ---- */

static void measure(void) {
    mq_histogram *histograms[] = {&meter.periods_ns, &meter.sizes, &meter.delays_ns};
    fuzz_op = "meter";
    if (!joined[PASSIVE])
        return;
    mq_source source = {.kind = MQ_SOURCE_RING, .ring_subscriber = &subscribers[PASSIVE]};
    mq_metered_endpoint metered = {.meter = &meter, .source = &source};
    int64_t found = mq_meter_sample(&metered);
    if (metered.status == MQ_SOURCE_CORRUPT)
        mq_ring_subscriber_recover_from_lap(&subscribers[PASSIVE]);
    check(found >= -1 && found <= fuzz_data_bytes / 8, "more messages than a ring can hold");
    for (int i = 0; i < 3; i++) {
        double middle = mq_histogram_compute_percentile(histograms[i], (double)fuzz_below(1001) / 1000);
        check(middle >= 0 && middle <= (double)histograms[i]->max, "a percentile beyond all values");
    }
    check(meter.sizes.count == 0 || meter.sizes.max < fuzz_data_bytes, "a message larger than the ring");
}

/* ---- the recorder ---- */

/* Each entry must lead to a record with the length in its header, and the records must follow each other directly. */
static void check_chunk(const mq_log_chunk *chunk) {
    uint64_t at = 0, length;
    check(chunk->used_bytes <= chunk->capacity_bytes && chunk->entry_count <= chunk->entry_capacity,
          "a chunk beyond its room");
    for (uint32_t i = 0; i < chunk->entry_count; i++) {
        const mq_log_chunk_entry *entry = &chunk->entries[i];
        check(entry->offset == at && at + MQ_LOG_MESSAGE_HEADER_BYTES <= chunk->used_bytes,
              "an entry that leads nowhere");
        memcpy(&length, chunk->buffer + at + 1, sizeof length);
        check(length >= MQ_LOG_MESSAGE_HEADER_BYTES - 9 && at + 9 + length <= chunk->used_bytes,
              "a record beyond the chunk");
        check(entry->channel >= 1 && entry->channel <= capture.channel_count, "a channel that is none");
        at += 9 + length;
    }
    check(at == chunk->used_bytes, "bytes that belong to no record");
}

static void record(void) {
    mq_capture_source taps[2] = {{.source = {.kind = MQ_SOURCE_RING, .ring_subscriber = &subscribers[PASSIVE]}},
                                 {.source = {.kind = MQ_SOURCE_RING, .ring_subscriber = &subscribers[WITHOUT_SIDE]}}};
    uint64_t enough = fuzz_below(4096), largest = fuzz_one_in(4) ? fuzz_below(64) : fuzz_data_bytes / 3;
    fuzz_op = "record";
    if (!joined[PASSIVE] || !joined[WITHOUT_SIDE])
        return;
    mq_log_chunk chunk = {.capacity_bytes = enough + largest + MQ_LOG_MESSAGE_HEADER_BYTES, .target_bytes = enough};
    chunk.entry_capacity = (uint32_t)(enough / 48 + 1);
    chunk.buffer = malloc(chunk.capacity_bytes);
    chunk.entries = malloc(chunk.entry_capacity * sizeof *chunk.entries);
    for (int i = 0; i < 2; i++)
        taps[i].publish_offset = fuzz_one_in(2) ? -1 : (int64_t)(fuzz_one_in(4) ? INT64_MAX : fuzz_below(64));
    capture.sources = taps;
    capture.source_count = 2;
    if (mq_capture_run(&capture, &chunk, mq_monotonic_ns()) == MQ_CAPTURE_CORRUPT_SOURCE)
        mq_ring_subscriber_recover_from_lap(taps[capture.stopped_source].source.ring_subscriber);
    uint64_t size = fuzz_below(64);
    mq_log_chunk_append_message(&chunk, 1, 0, 0, 0, 0, payloads, fuzz_one_in(8) ? UINT64_MAX - size : size);
    capture.channel_count += capture.channel_count == 0; /* the appended messages have channel 1 */
    check_chunk(&chunk);
    free(chunk.buffer);
    free(chunk.entries);
    for (int i = 0; i < 2; i++)
        free(taps[i].part_channels);
}

/* ---- event loops ---- */

static void unwatch(int i) {
    if (watched[i])
        mq_watcher_remove(watched[i]);
    watched[i] = 0;
}

static void watch(void) {
    static mq_futex_waitv_entry words[MQ_FUTEX_WAITV_MAX];
    int i = (int)fuzz_below(WITHOUT_SIDE);
    bool steady;
    int64_t max_sleep_ns;
    fuzz_op = "watch";
    if (!joined[i])
        return;
    if (!watched[i]) {
        poll_states[i] = mq_ring_subscriber_poll_state(&subscribers[i]);
        mq_poll_ops poll_ops = mq_ring_subscriber_poll_ops(&subscribers[i], &poll_states[i]);
        int fd = mq_watcher_add(&poll_ops);
        watched[i] = fd < 0 ? 0 : fd;
    } else if (fuzz_one_in(8))
        unwatch(i);
    if (watched[i] && fuzz_one_in(2)) {
        mq_watcher_set_unreadable(watched[i], (int64_t)fuzz_below(3) * 1000000000);
        mq_ring_subscriber_prepare_wait(&subscribers[i]);
        if (mq_ring_subscriber_is_readable(&subscribers[i]))
            mq_watcher_set_readable(watched[i]);
    }
    unsigned count = mq_watcher_poll_all(words, fuzz_one_in(4), &max_sleep_ns, &steady);
    check(count >= 1 && count <= MQ_FUTEX_WAITV_MAX && max_sleep_ns >= -1, "a sleep that cannot be");
}

static void run_observer(void) {
    switch (fuzz_below(3)) {
    case 0: measure(); break;
    case 1: record(); break;
    default: watch();
    }
}

#endif
