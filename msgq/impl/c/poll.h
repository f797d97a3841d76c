/* One check of a handle for msgq_poll, by kind. Each function returns 1 if the handle is ready, or a negative error.
 * Otherwise it returns 0, and fills `waiter` for mqc_wait_until_readable. `waiter` is valid until the next call with the
 * handle. */
#ifndef MQC_POLL_H
#define MQC_POLL_H

#include "c/file.h"
#include "msgq/poll.h"

MQC_HIDDEN int mqc_subscriber_poll(msgq_subscriber *subscriber, mqc_waiter *waiter);
MQC_HIDDEN int mqc_channel_poll(msgq_channel_subscriber *s, mqc_waiter *waiter);
MQC_HIDDEN int mqc_queue_poll(msgq_queue *q, mqc_waiter *waiter);
MQC_HIDDEN int mqc_vector_poll(msgq_vector *vector, mqc_waiter *waiter);
MQC_HIDDEN int mqc_board_poll(msgq_poll_item *item, mqc_waiter *waiter);

#endif
