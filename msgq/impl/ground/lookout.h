/* How the watcher thread looks after a reader: without Python, and without what the reader's own thread changes. */
#ifndef MQ_LOOKOUT_H
#define MQ_LOOKOUT_H

#include "ground/attention.h"

typedef struct {
    int (*has_more)(const void *reader); /* not 0: there is something to read, or an error to be had */
    const void *reader;                  /* while it is watched, it changes under the watcher's mutex only */
    mq_u32 *attention;                   /* the word to sleep on */
    uint32_t (*announce)(
        mq_u32 *attention); /* NULL: writes nothing, so nobody wakes it; it is looked at by the clock */
} mq_lookout;

#endif
