/* Records for C and C++: vectors of fixed-size items, and boards of named values. Readers see the newest value. See
 * docs/guides/c.md. */
#ifndef MSGQ_RECORDS_H
#define MSGQ_RECORDS_H

#include "msgq/common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct msgq_vector msgq_vector;
typedef struct msgq_board msgq_board;

/* ---- vectors ---- */

typedef struct {
    msgq_options open;
    /* dtype of an item as in NumPy: "<f8", or the fields in JSON, such as "[[\"x\", \"<f8\"], ...]" */
    const char *dtype;
    /* bytes of an item. If a field is 0 or NULL, the existing value applies. A new vector needs dtype, item_bytes and
     * length */
    uint64_t item_bytes;
    uint64_t length; /* number of items. If the vector has more items, the handle uses only the first `length` items */
    int copies;      /* copies of each item: 2, or 4 for large items with fast writers; 0: the existing value, or 2 */
    /* new vectors: 1 if only one handle writes. Writes of an exclusive vector need no locked instructions */
    int exclusive;
} msgq_vector_options;

/* Open a vector. Returns -EEXIST if the vector has another dtype, item size or length. */
int msgq_vector_open(msgq_vector **vector, const char *name, const msgq_vector_options *options);

/* Return the number of items that the handle uses, and the bytes of an item. 0: `vector` is NULL. */
uint64_t msgq_vector_length(const msgq_vector *vector);
uint64_t msgq_vector_item_bytes(const msgq_vector *vector);

/* Copy `count` items, from item `first` on, to `items`. Each item is consistent, but writers may replace some items
 * between the copies of two items. Stores the number of writes of each item in `counts`, and the time of its last write
 * in `times`. `items`, `counts` and `times` may be NULL. Returns -ETIMEDOUT if writers replaced an item during every
 * attempt for 1 s. */
int msgq_vector_read(msgq_vector *vector, uint64_t first, uint64_t count, void *items, uint64_t *counts,
                     int64_t *times);

/* Write items one after the other. If another writer holds an item until the timeout, returns -ETIMEDOUT, or -EAGAIN
 * with timeout 0, although the items before this one are written. Returns -EBUSY if the vector is exclusive and
 * belongs to another handle. */
int msgq_vector_write(msgq_vector *vector, uint64_t first, uint64_t count, const void *items, double timeout);

/* Wait until msgq_vector_changes has a change to report. Returns 0 after a change, and otherwise -ETIMEDOUT, or
 * -EAGAIN with timeout 0. */
int msgq_vector_wait(msgq_vector *vector, double timeout);

/* Report changed items: store up to `max_changes` indices of items in `indices`, and the values of these items in
 * `items` (may be NULL). The first call reports items that were written since the vector was created, and a later call
 * those that were written since the previous call of this handle. Returns the number of reported items. */
int64_t msgq_vector_changes(msgq_vector *vector, uint64_t *indices, void *items, size_t max_changes);

void msgq_vector_close(msgq_vector *vector);

/* ---- boards ---- */

typedef struct {
    msgq_options open;
    uint32_t keys;             /* maximum number of keys, 1 to 65536; 0: the existing value, or 256 */
    uint32_t value_bytes;      /* maximum bytes of a value; 0: the existing value, or 1008 */
    const msgq_schema *schema; /* schema of the values of a new board */
} msgq_board_options;

/* Information about a value. */
typedef struct {
    uint64_t size;  /* bytes of the value, also after -EMSGSIZE */
    uint64_t count; /* number of writes */
    int64_t time;   /* time of the last write, nanoseconds */
} msgq_value;

int msgq_board_open(msgq_board **board, const char *name, const msgq_board_options *options);

/* Become the owner of a key, which alone writes the value of the key. Returns the index of the key, which is the same
 * in all processes. Returns -EBUSY if the key has a living owner, and -ENOSPC if the board has no free key. */
int64_t msgq_board_declare(msgq_board *board, const char *key);

/* Write the value of a key that this handle owns. The call never waits. Errors:
 * - -EPERM: this handle does not own the key.
 * - -EMSGSIZE: the value is larger than value_bytes. */
int msgq_board_write(msgq_board *board, int64_t index, const void *data, size_t size);

/* Return the index of a key, or -ENOENT if no handle has declared the key. */
int64_t msgq_board_find(msgq_board *board, const char *key);

/* Copy a value, and return its size in bytes. `info` may be NULL. Errors:
 * - -ENOENT: the value was never written.
 * - -EMSGSIZE: the value is larger than `buffer_bytes`. */
int64_t msgq_board_read(msgq_board *board, int64_t index, void *buffer, size_t buffer_bytes, msgq_value *info);

/* Wait until the number of writes of a value differs from `count`. Returns 0 after a write, and otherwise -ETIMEDOUT,
 * or -EAGAIN with timeout 0. */
int msgq_board_wait(msgq_board *board, int64_t index, uint64_t count, double timeout);

/* Close the handle. Other handles may then declare the keys that it owned, whose values remain. */
void msgq_board_close(msgq_board *board);

/* Remove a vector or a board. Processes with open handles continue to use it, and a later open call creates another one.
 * `create` and `mode` of the options are ignored. Errors:
 * - -ENOENT: it does not exist.
 * - -EACCES or -EPERM: this user may not remove the files. */
int msgq_records_remove(const char *name, const msgq_options *options);

#ifdef __cplusplus
}
#endif

#endif
