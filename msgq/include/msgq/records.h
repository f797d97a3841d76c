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
    /* dtype of an item as NumPy writes it: "<f8", or JSON of its fields, "[[\"x\", \"<f8\"], ...]" */
    const char *dtype;
    /* bytes of an item. A new vector needs dtype, item_bytes and length. 0 or NULL: the existing value */
    uint64_t item_bytes;
    uint64_t length; /* number of items. If the vector is longer, the handle uses only its first items */
    int copies;      /* 2, or 4 for large items with fast writers; 0: the existing value, or 2 */
    int exclusive;   /* new vector: 1 if only one handle writes, without locked instructions */
} msgq_vector_options;

/* Open a vector. Returns -EEXIST if the vector has another dtype, item size or length. */
int msgq_vector_open(msgq_vector **vector, const char *name, const msgq_vector_options *options);

uint64_t msgq_vector_length(const msgq_vector *vector);
uint64_t msgq_vector_item_bytes(const msgq_vector *vector);

/* Copy `count` items, from item `first` on, to `items`. Each item is consistent, but different items may be of
 * different times. `counts` (number of writes of each item) and `times` (time of its last write) may be NULL. Returns
 * -ETIMEDOUT if writers replaced an item during every attempt for 1 s. */
int msgq_vector_read(msgq_vector *vector, uint64_t first, uint64_t count, void *items, uint64_t *counts,
                     int64_t *times);

/* Write items one after the other. Returns -ETIMEDOUT or -EAGAIN (timeout 0) if another writer holds an item: the items
 * before it are written. Returns -EBUSY if the vector is exclusive and belongs to another handle. */
int msgq_vector_write(msgq_vector *vector, uint64_t first, uint64_t count, const void *items, double timeout);

/* Wait until msgq_vector_changes has a change to report. Returns 0, or -EAGAIN (timeout 0), or -ETIMEDOUT. */
int msgq_vector_wait(msgq_vector *vector, double timeout);

/* Store up to `room` indices of items in `indices` and their values in `items` (may be NULL). Reported are items
 * written since this handle's last call, or since the vector was created at the first call. Returns the number of
 * items. */
int64_t msgq_vector_changes(msgq_vector *vector, uint64_t *indices, void *items, size_t room);

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

/* Become the owner of a key, which is its only writer. Returns the index of the key, the same in all processes. Returns
 * -EBUSY if the key has a living owner, and -ENOSPC if the board has no free key. */
int64_t msgq_board_declare(msgq_board *board, const char *key);

/* Write a value of a key that this handle owns. Never waits. Errors: -EPERM (not the owner), -EMSGSIZE. */
int msgq_board_write(msgq_board *board, int64_t index, const void *data, size_t size);

/* Return the index of a key, or -ENOENT if no handle has declared the key. */
int64_t msgq_board_find(msgq_board *board, const char *key);

/* Copy a value. Returns its size in bytes. Errors: -ENOENT (never written), -EMSGSIZE. `about` may be NULL. */
int64_t msgq_board_read(msgq_board *board, int64_t index, void *buffer, size_t room, msgq_value *about);

/* Wait until the number of writes of a value differs from `count`. Returns 0, or -EAGAIN (timeout 0), or -ETIMEDOUT. */
int msgq_board_wait(msgq_board *board, int64_t index, uint64_t count, double timeout);

/* Close the handle. Other handles may then declare its keys. Their values remain. */
void msgq_board_close(msgq_board *board);

#ifdef __cplusplus
}
#endif

#endif
