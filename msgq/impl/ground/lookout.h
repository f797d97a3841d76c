/* How the watcher thread looks after a reader: without Python, and without what the reader's own thread changes. */
#ifndef MQ_LOOKOUT_H
#define MQ_LOOKOUT_H

#include "ground/attention.h"

typedef struct {
    int (*has_more)(const void *reader); /* not 0: there is something to read, or an error to be had */
    const void *reader;                  /* while it is watched, it changes under the watcher's mutex only */
    mq_u32 *attention;                   /* the word to sleep on */
    /* Say that we sleep, and return what the word shall be. NULL: writes nothing, so nobody wakes it; it is looked at by
     * the clock. Calls that follow each other do no harm. */
    uint32_t (*announce)(const void *reader, mq_u32 *attention);
    void (*awake)(const void *reader); /* the opposite, when it has something; NULL: nobody needs it */
    bool steady;                       /* by the clock, look as often as ever, however long nothing happened */
} mq_lookout;

/* For readers whose announcement is the flag in `attention`. */
static inline uint32_t mq_lookout_announce(const void *reader, mq_u32 *attention) {
    (void)reader;
    return mq_attention_announce(attention);
}
static inline uint32_t mq_lookout_announce_many(const void *reader, mq_u32 *attention) {
    (void)reader;
    return mq_attention_announce_many(attention);
}

#endif
