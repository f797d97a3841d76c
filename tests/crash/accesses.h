/* Follow each access to shared memory, of the headers and sources that are included after this one, by a call of `point`
 * (driver.h), for example point(__func__, "stored", "&p->ring->write_pointer").
 */
#ifndef ACCESSES_H
#define ACCESSES_H

#include "base/futex.h"
#include "base/liveness_lock.h"

static inline void copy_in(void *shared, const void *from, size_t n, const char *function, const char *which) {
    memcpy(shared, from, n / 2);
    point(function, "half copied to", which);
    memcpy((char *)shared + n / 2, (const char *)from + n / 2, n - n / 2);
    point(function, "copied to", which);
}

static inline void copy_out(void *to, const void *shared, size_t n, const char *function, const char *which) {
    memcpy(to, shared, n / 2);
    point(function, "loaded half of", which);
    memcpy((char *)to + n / 2, (const char *)shared + n / 2, n - n / 2);
    point(function, "loaded bytes of", which);
}

#define POINT(what, which) point(__func__, what, #which)
#define VALUE_THEN(value, what, which)                                                                                 \
    ({                                                                                                                 \
        __typeof__(value) value_ = (value);                                                                            \
        POINT(what, which);                                                                                            \
        value_;                                                                                                        \
    })
#define mq_store_relaxed_u64(word, value) (mq_store_relaxed_u64(word, value), POINT("stored", word))
#define mq_store_release_u64(word, value) (mq_store_release_u64(word, value), POINT("stored", word))
#define mq_load_relaxed_u64(word) VALUE_THEN(mq_load_relaxed_u64(word), "loaded", word)
#define mq_load_acquire_u64(word) VALUE_THEN(mq_load_acquire_u64(word), "loaded", word)
#define mq_load_seq_cst_u64(word) VALUE_THEN(mq_load_seq_cst_u64(word), "loaded", word)
#define mq_load_seq_cst_u32(word) VALUE_THEN(mq_load_seq_cst_u32(word), "loaded", word)
#define mq_fetch_or_u64(word, bits) VALUE_THEN(mq_fetch_or_u64(word, bits), "set", word)
#define mq_fetch_and_u64(word, bits) VALUE_THEN(mq_fetch_and_u64(word, bits), "cleared", word)
#define mq_fetch_add_u64(word, n) VALUE_THEN(mq_fetch_add_u64(word, n), "counted", word)
#define mq_compare_exchange_u64(word, a, b) VALUE_THEN(mq_compare_exchange_u64(word, a, b), "exchanged", word)
#define mq_load_relaxed_u32(word) VALUE_THEN(mq_load_relaxed_u32(word), "loaded", word)
#define mq_compare_exchange_u32(word, a, b) VALUE_THEN(mq_compare_exchange_u32(word, a, b), "exchanged", word)
#define mq_fetch_or_u32(word, bits) VALUE_THEN(mq_fetch_or_u32(word, bits), "set", word)
#define mq_fetch_add_u32(word, n) VALUE_THEN(mq_fetch_add_u32(word, n), "counted", word)
#define mq_liveness_lock(file, row, shared) (rows_are_lockable ? mq_liveness_lock(file, row, shared) : no_row_lock())
#define mq_liveness_probe_end(probe) (mq_liveness_probe_end(probe), POINT("looked at", liveness))
#define mq_copy_to_shared(shared, from, n) copy_in(shared, from, n, __func__, #shared)
#define mq_copy_from_shared(to, shared, n) copy_out(to, shared, n, __func__, #shared)

#endif
