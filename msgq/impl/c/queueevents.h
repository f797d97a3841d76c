/* The event publisher of a queue's handle. See impl/workqueue/events.pxi. An event that cannot be published is counted
 * in the handle's row, and fails no call. A zeroed event publisher belongs to a queue without events: the functions
 * that close and flush it do nothing. Before all other functions, check mqc_queue_has_events. */
#ifndef MQC_QUEUEEVENTS_H
#define MQC_QUEUEEVENTS_H

#include "c/channelfile.h"
#include "msgq/queue.h"
#include "workqueue/receiver.h"

typedef struct {
    const mqc_endpoint *endpoint; /* of the queue, as the next two */
    const mqc_mapped_file *segment;
    const mq_queue_file_parts *parts;  /* NULL: the queue has no events */
    mq_queue_event_buffer buffer;      /* events that are not published yet */
    msgq_channel_publisher *publisher; /* NULL: not opened, or opening failed */
    bool has_payload_slots;            /* the slots have room for a header and a payload */
    int64_t retry_ns;                  /* time of the next attempt to open it; CLOCK_MONOTONIC */
} mqc_event_publisher;

static inline bool mqc_queue_has_events(const mq_queue_handle *h) { return mq_unlikely(h->event_buffer != NULL); }

/* Check that a queue with this name can have events. Returns -EINVAL if the name of their channel would be too long. */
MQC_HIDDEN int mqc_event_publisher_check_name(const mqc_endpoint *endpoint);
/* Allocate the buffer for a queue with events. The arguments must not move. */
MQC_HIDDEN int mqc_event_publisher_init(mqc_event_publisher *events, const mqc_endpoint *endpoint,
                                        const mqc_mapped_file *segment, const mq_queue_file_parts *parts);
/* Attach the handle, which has a row, so that it buffers its events. */
MQC_HIDDEN void mqc_event_publisher_attach_handle(mqc_event_publisher *events, mq_queue_handle *h, uint64_t pid);
/* Close the publisher. In a forked child it still belongs to the parent. */
MQC_HIDDEN void mqc_event_publisher_close(mqc_event_publisher *events);

/* Open the channel if needed; `sends`: for events of sends. Call this before the change that an event reports, so that
 * the time between the change and its event is short. */
MQC_HIDDEN void mqc_event_publisher_open(mqc_event_publisher *events, bool sends);
/* The same for a call that takes a message. It opens no publisher if the queue is empty. */
MQC_HIDDEN void mqc_event_publisher_open_to_take(mqc_event_publisher *events);
/* Publish the buffered events. */
MQC_HIDDEN void mqc_event_publisher_flush(mqc_event_publisher *events);
/* Publish that a message was sent, was refused because the queue is full, or changed after its delivery. */
MQC_HIDDEN void mqc_event_publisher_publish_sent(mqc_event_publisher *events, uint64_t key, uint64_t slot,
                                                 const void *data, size_t size, int64_t sent_time, int64_t origin_time);
MQC_HIDDEN void mqc_event_publisher_publish_refused(mqc_event_publisher *events, uint64_t priority, size_t size,
                                                    int64_t origin_time);
MQC_HIDDEN void mqc_event_publisher_publish_delivery(mqc_event_publisher *events, const mq_queue_handle *h,
                                                     mq_queue_event_type event_type,
                                                     const mq_queue_taken_message *delivery);

#endif
