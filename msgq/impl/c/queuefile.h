/* The handle of a work queue. */
#ifndef MQC_QUEUEFILE_H
#define MQC_QUEUEFILE_H

#include "c/queueevents.h"
#include "workqueue/join.h"

struct msgq_queue {
    mqc_endpoint endpoint;
    mqc_mapped_file segment;
    mq_queue_handle h;
    mqc_event_publisher event_publisher; /* used only if the queue has events */
    mq_queue_request request;
    uint64_t uid;
    void *liveness_token;
    int64_t lease_ends_ns;
    mq_queue_waiting_call wait; /* state of the call that waits now */
    int generation;
};

/* Use the slots of a queue that had no sizes when this handle was opened. If `chooses`, choose the sizes unless another
 * process has chosen them. Otherwise do nothing until another process has chosen them. */
MQC_HIDDEN int mqc_queue_obtain_slots(msgq_queue *q, bool chooses);
/* Return messages of dead owners and messages with ended leases to the queue. Publish the events of these messages. */
MQC_HIDDEN void mqc_queue_recover(msgq_queue *q, int64_t now);

#endif
