/* The event publisher of a queue's handle. See impl/workqueue/events.pxi. If an event cannot be published, a counter in
 * the handle's row is incremented, and the call succeeds. A queue without events has a zeroed event publisher. For a
 * zeroed event publisher, the close and flush functions do nothing. Except for close and flush, call functions of the
 * event publisher only if mqc_queue_has_events returns true. */
#ifndef MQC_QUEUEEVENTS_H
#define MQC_QUEUEEVENTS_H

#include "c/channelfile.h"
#include "msgq/queue.h"
#include "workqueue/receiver.h"

#define MQC_EVENTS_SUFFIX ":events" /* end of the name of a queue's events channel */

typedef struct {
    const mqc_endpoint *endpoint; /* endpoint of the queue */
    const mqc_mapped_file *segment;
    const mq_queue_file_parts *parts;  /* parts of the queue's file; NULL: the queue has no events */
    mq_queue_event_buffer buffer;      /* events that are not published yet */
    msgq_channel_publisher *publisher; /* NULL: the publisher is not open */
    bool has_payload_slots;            /* each slot has room for a header and a payload */
    int64_t retry_ns; /* time of the next attempt to open the publisher, nanoseconds of CLOCK_MONOTONIC */
} mqc_event_publisher;

static inline bool mqc_queue_has_events(const mq_queue_handle *h) { return mq_unlikely(h->event_buffer != NULL); }

/* Check that a queue with this name can have events. Returns -EINVAL if the name of the events channel would be too
 * long. */
MQC_HIDDEN int mqc_event_publisher_check_name(const mqc_endpoint *endpoint);
/* Allocate the buffer for a queue with events. The event publisher keeps pointers to its arguments, so do not move the
 * arguments in memory. */
MQC_HIDDEN int mqc_event_publisher_init(mqc_event_publisher *events, const mqc_endpoint *endpoint,
                                        const mqc_mapped_file *segment, const mq_queue_file_parts *parts);
/* Attach a handle that has a row. After this call, the handle buffers its events. */
MQC_HIDDEN void mqc_event_publisher_attach_handle(mqc_event_publisher *events, mq_queue_handle *h, uint64_t pid);
/* Close the publisher. In a forked child, the publisher still belongs to the parent. */
MQC_HIDDEN void mqc_event_publisher_close(mqc_event_publisher *events);

/* Open the channel if needed. `sends` is true if the handle will publish events of sends. Call this before the change
 * that an event reports. An early open does not delay the event. */
MQC_HIDDEN void mqc_event_publisher_open(mqc_event_publisher *events, bool sends);
/* Open the channel if needed, before a call takes a message. If the queue is empty, no publisher is opened. */
MQC_HIDDEN void mqc_event_publisher_open_to_take(mqc_event_publisher *events);
/* Publish the buffered events. */
MQC_HIDDEN void mqc_event_publisher_flush(mqc_event_publisher *events);
/* Publish one event. The event reports that a message was sent, that a full queue refused a message, or that a
 * delivered message changed. */
MQC_HIDDEN void mqc_event_publisher_publish_sent(mqc_event_publisher *events, uint64_t key, uint64_t slot,
                                                 const void *data, size_t size, int64_t sent_time, int64_t origin_time);
MQC_HIDDEN void mqc_event_publisher_publish_refused(mqc_event_publisher *events, uint64_t priority, size_t size,
                                                    int64_t origin_time);
MQC_HIDDEN void mqc_event_publisher_publish_delivery(mqc_event_publisher *events, const mq_queue_handle *h,
                                                     mq_queue_event_type event_type,
                                                     const mq_queue_taken_message *delivery);

#endif
