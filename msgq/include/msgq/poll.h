/* Wait for several handles of any kind. See docs/guides/c.md. */
#ifndef MSGQ_POLL_H
#define MSGQ_POLL_H

#include "msgq/channel.h"
#include "msgq/queue.h"
#include "msgq/records.h"
#include "msgq/topic.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A handle to wait for. Set exactly one of the handles; the others are NULL. */
typedef struct {
    msgq_subscriber *subscriber;      /* ready: a message to receive */
    msgq_channel_subscriber *channel; /* ready: a message to receive */
    msgq_queue *queue;                /* ready: a message to receive or to take */
    msgq_vector *vector;              /* ready: a change that msgq_vector_changes reports */
    msgq_board *board;                /* ready: the number of writes of the value `index` differs from `count` */
    int64_t index;                    /* boards: index of the key, as for msgq_board_wait */
    uint64_t count;                   /* boards: number of writes that the program knows */
    int ready;                        /* result: 1 if ready, else 0; after an error of this handle, the error */
} msgq_poll_item;

/* Wait until one of the handles is ready. Returns the number of ready items, and sets `ready` of each item. The next
 * call of a ready handle returns at once. It returns -EAGAIN or waits only if another consumer of the queue took the
 * message, or if publishers overwrote the message after the poll.
 *
 * A handle may occur in several items, and a board once for each key. The call uses all of the handles: no other thread
 * may use or close one of them during the call. Without items, the call returns -EAGAIN at once. Errors:
 * - -EAGAIN: no handle is ready, and the timeout is 0.
 * - -ETIMEDOUT: no handle became ready before the timeout.
 * - -EINTR: a signal handler ran during the sleep. If the handler was installed with the flag SA_RESTART, it ends only
 *   a wait for a single item, because the kernel restarts futex_waitv(2). signal(3) sets this flag; sigaction(2) can
 *   omit it.
 * - -EINVAL: an item has no handle, or several, or the board has no key of this index.
 * - other errors: those of the receiving call of one handle, whose item has the error in `ready`. */
int msgq_poll(msgq_poll_item *items, size_t count, double timeout);

#ifdef __cplusplus
}
#endif

#endif
