/* Records for C and C++: vectors of fixed-size items, and boards of named values. The newest value counts. See
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
    const char *dtype;   /* of an item, as NumPy says it: "<f8", or JSON of its fields, "[[\"x\", \"<f8\"], ...]" */
    uint64_t item_bytes; /* its size. To make a vector it takes dtype, item_bytes and length; 0, NULL: as it is */
    uint64_t length;     /* items; of a longer vector the first so many */
    int copies;          /* 2, or 4 for large items with fast writers; 0: as it is, or 2 */
    int exclusive;       /* a new one: one handle writes, which then needs no locked instruction */
} msgq_vector_options;

/* -EEXIST: it has another dtype, size or length. */
int msgq_vector_open(msgq_vector **vector, const char *name, const msgq_vector_options *options);

uint64_t msgq_vector_length(const msgq_vector *vector);
uint64_t msgq_vector_item_bytes(const msgq_vector *vector);

/* Copy items `first` ... to `items`, in turn: each is whole, all are not of one instant. `counts` (how often each was
 * written; 0: never) and `times` (when it was last) may be NULL. -ETIMEDOUT: one was written again and again for 1 s.
 */
int msgq_vector_read(msgq_vector *vector, uint64_t first, uint64_t count, void *items, uint64_t *counts,
                     int64_t *times);

/* Write items, one after the other. -ETIMEDOUT, -EAGAIN (time-out 0): another writer was in the middle of one, and
 * those before it are written; -EBUSY: the vector is exclusive, and another handle's. */
int msgq_vector_write(msgq_vector *vector, uint64_t first, uint64_t count, const void *items, double timeout);

/* Wait until there is a change that msgq_vector_changes has not told this handle. 0: there is; -EAGAIN, -ETIMEDOUT. */
int msgq_vector_wait(msgq_vector *vector, double timeout);

/* Tell which items were written since this handle was told last (at first: ever), `room` at most, in `indices`, and
 * their values in `items`, if that is not NULL. Returns how many. */
int64_t msgq_vector_changes(msgq_vector *vector, uint64_t *indices, void *items, size_t room);

void msgq_vector_close(msgq_vector *vector);

/* ---- boards ---- */

typedef struct {
    msgq_options open;
    uint32_t keys;             /* at most so many, 1 to 65536; 0: as it is, or 256 */
    uint32_t value_bytes;      /* the most of a value; 0: as it is, or 1008 */
    const msgq_schema *schema; /* of the values, of a new board */
} msgq_board_options;

/* What is known of a value. */
typedef struct {
    uint64_t size;  /* bytes, also when it does not fit */
    uint64_t count; /* how often it was written */
    int64_t time;   /* when it was, last */
} msgq_value;

int msgq_board_open(msgq_board **board, const char *name, const msgq_board_options *options);

/* Become the owner of a key, who alone writes it; returns its index, which is the same for all. -EBUSY: its owner
 * lives; -ENOSPC: all keys have names. */
int64_t msgq_board_declare(msgq_board *board, const char *key);

/* Write a value as its owner; never waits. -EPERM: this handle has not declared it; -EMSGSIZE. */
int msgq_board_write(msgq_board *board, int64_t index, const void *data, size_t size);

/* The index of a key; -ENOENT: nobody has declared it so far. */
int64_t msgq_board_find(msgq_board *board, const char *key);

/* Copy a value; returns its size. -ENOENT: it was never written; -EMSGSIZE. `about` may be NULL. */
int64_t msgq_board_read(msgq_board *board, int64_t index, void *buffer, size_t room, msgq_value *about);

/* Wait until a value was written another number of times than `count`. 0: it was; -EAGAIN, -ETIMEDOUT. */
int msgq_board_wait(msgq_board *board, int64_t index, uint64_t count, double timeout);

/* The keys that this handle owns may be declared by others then; their values stay. */
void msgq_board_close(msgq_board *board);

#ifdef __cplusplus
}
#endif

#endif
