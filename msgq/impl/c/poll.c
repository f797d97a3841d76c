/* Wait for several handles. Compile as C11. */
#define _GNU_SOURCE
#include "c/poll.h"

enum { MQC_ITEMS = MQ_FUTEX_WAITV_MAX }; /* number of items for which a poll allocates no memory */

static int mqc_poll_item(msgq_poll_item *item, mqc_waiter *waiter) {
    int handles = !!item->subscriber + !!item->channel + !!item->queue + !!item->vector + !!item->board;
    if (mq_unlikely(handles != 1))
        return mqc_set_error(EINVAL, "an item of the poll has %d handles; give one", handles);
    if (item->subscriber)
        return mqc_subscriber_poll(item->subscriber, waiter);
    if (item->channel)
        return mqc_channel_poll(item->channel, waiter);
    if (item->queue)
        return mqc_queue_poll(item->queue, waiter);
    return item->vector ? mqc_vector_poll(item->vector, waiter) : mqc_board_poll(item, waiter);
}

/* Check all items once. Returns the number of ready items, or the error of the first item that fails. */
static int mqc_poll_items(msgq_poll_item *items, size_t count, mqc_waiter *waiters) {
    int ready = 0;
    for (size_t i = 0; i < count; i++) {
        int status = items[i].ready = mqc_poll_item(&items[i], &waiters[i]);
        if (mq_unlikely(status < 0)) {
            for (size_t other = 0; other < count; other++)
                items[other].ready = other == i ? status : 0;
            return status;
        }
        ready += status;
    }
    return ready;
}

static int mqc_poll_until_ready(msgq_poll_item *items, size_t count, double timeout, mqc_waiter *waiters) {
    int64_t deadline = 0;
    for (;;) {
        int ready = mqc_poll_items(items, count, waiters);
        if (ready || !count)
            return ready ? ready : mqc_set_error(EAGAIN, "the poll has no items");
        if (timeout == 0)
            return mqc_set_error(EAGAIN, "none of %zu handles is ready", count);
        /* A message that ended a wait may be overwritten or taken before the check, and another one arrive. Therefore a
         * wait that ends in time is not enough. */
        if (deadline > 0 && mq_monotonic_ns() >= deadline)
            return mqc_set_error(ETIMEDOUT, "none of %zu handles was ready within %g s", count, timeout);
        deadline = deadline ? deadline : mqc_deadline_ns(timeout);
        int status = mqc_wait_until_readable(waiters, count, deadline);
        if (status < 0)
            return status;
    }
}

int msgq_poll(msgq_poll_item *items, size_t count, double timeout) {
    mqc_waiter some[MQC_ITEMS];
    int status = mqc_check_pointers(&items, items, count);
    if (mq_unlikely(status))
        return status;
    mqc_waiter *waiters = count <= MQC_ITEMS ? some : calloc(count, sizeof *waiters);
    if (!waiters)
        return mqc_set_error(ENOMEM, "no memory for a poll of %zu handles", count);
    status = mqc_poll_until_ready(items, count, timeout, waiters);
    if (waiters != some)
        free(waiters);
    return status;
}
