/* What publishes the events of a queue's handle; as impl/workqueue/events.pyx. An event that cannot be published counts
 * in the handle's row, and no call fails for it. A publisher of zeros is that of a queue without events: nothing is
 * done by what ends it, and by what tells of noted events; for the others one asks mqc_queue_has_events. */
#ifndef MQC_QUEUEEVENTS_H
#define MQC_QUEUEEVENTS_H

#include "c/channelfile.h"
#include "msgq/queue.h"
#include "workqueue/receiver.h"

typedef struct {
    const mqc_endpoint *endpoint; /* of the queue, and so are the next two */
    const mqc_mapped_file *segment;
    const mq_queue_file_parts *parts;  /* NULL: it has no events */
    mq_queue_event_buffer buffer;      /* what was noted so far */
    msgq_channel_publisher *publisher; /* NULL: none so far, or it could not be had */
    bool has_payload_slots;            /* its slots have room for a head and a payload */
    int64_t retry_ns;                  /* when to try again to open it; CLOCK_MONOTONIC */
} mqc_event_publisher;

static inline bool mqc_queue_has_events(const mq_queue_handle *h) { return mq_unlikely(h->event_buffer != NULL); }

/* Whether a queue of this name may have events: -EINVAL, that of their channel would be too long. */
MQC_HIDDEN int mqc_event_publisher_check_name(const mqc_endpoint *endpoint);
/* Get the memory, for a queue with events whose fields stay where they are. */
MQC_HIDDEN int mqc_event_publisher_init(mqc_event_publisher *events, const mqc_endpoint *endpoint,
                                        const mqc_mapped_file *segment, const mq_queue_file_parts *parts);
/* The handle has a row from now on, and notes what it does. */
MQC_HIDDEN void mqc_event_publisher_attach_handle(mqc_event_publisher *events, mq_queue_handle *h, uint64_t pid);
/* Publish no more. In a forked child the publisher stays the parent's. */
MQC_HIDDEN void mqc_event_publisher_close(mqc_event_publisher *events);

/* Open the channel if there is need, for events of sending or only for the others. To be called before what they tell
 * of, so that little time is left to be killed between that and its event. */
MQC_HIDDEN void mqc_event_publisher_open(mqc_event_publisher *events, bool sends);
/* The same for a call that takes: who finds nothing takes no row among the publishers. */
MQC_HIDDEN void mqc_event_publisher_open_to_take(mqc_event_publisher *events);
/* Publish what the handle noted. */
MQC_HIDDEN void mqc_event_publisher_flush(mqc_event_publisher *events);
/* Publish that a message was sent, that there was no room for one, or what was done to one that was taken. */
MQC_HIDDEN void mqc_event_publisher_publish_sent(mqc_event_publisher *events, uint64_t key, uint64_t slot,
                                                 const void *data, size_t size, int64_t sent_time, int64_t origin_time);
MQC_HIDDEN void mqc_event_publisher_publish_refused(mqc_event_publisher *events, uint64_t priority, size_t size,
                                                    int64_t origin_time);
MQC_HIDDEN void mqc_event_publisher_publish_delivery(mqc_event_publisher *events, const mq_queue_handle *h,
                                                     mq_queue_event_type event_type,
                                                     const mq_queue_taken_message *delivery);

#endif
