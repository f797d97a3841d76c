/* Included before each source of the C library, and by the operations of the driver (driver.c). */
#ifndef DRIVER_H
#define DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void point(const char *function, const char *what, const char *which);

/* False: the row locks fail, as on a file system without them. */
extern bool rows_are_lockable;
void *no_row_lock(void);

/* no points: memory of one process */
#include "base/mapguard.h"
#include "base/mapping.h"
#include "base/origin.h"

#include "accesses.h"

typedef struct {
    const char *name;
    void (*perform)(uint64_t a, uint64_t b);
} operation;
extern const operation topic_operations[], channel_operations[], queue_operations[], record_operations[];

extern const char *endpoint; /* the name */

/* Return a result of the library, or end with its error. */
int64_t must(int64_t result);
void fail(const char *why);
void say(const char *what, uint64_t number);

/* Messages and values hold their number in each word of eight bytes, so that a torn one shows. */
enum { ROOM = 1 << 20 };
const void *filled(uint64_t size, uint64_t number);
uint64_t number_of(const void *message, uint64_t size);

#endif
