/* A participant that dies, or stops, at a chosen step of the protocol: `driver KIND NAME OPERATION...`.
 *
 * Its operations call the C library, and steps of its headers that only Python uses. The library is compiled with a point
 * after each access to shared memory (accesses.h) and after each system call (interpose.c), which has the plan. The plan
 * is valid from the operation "arm" on. An operation is a word and up to two numbers.
 */
#include <stdio.h>

#include "driver.h"

#include "interpose.c"

#include "msgq/common.h"

const char *endpoint;
bool rows_are_lockable = true;

void *no_row_lock(void) {
    errno = ENOLCK;
    return NULL;
}

void fail(const char *why) {
    printf("failed: %s\n", why);
    exit(1);
}

int64_t must(int64_t result) {
    if (result < 0)
        fail(msgq_error_text());
    return result;
}

void say(const char *what, uint64_t number) { printf("%s %llu\n", what, (unsigned long long)number); }

const void *filled(uint64_t size, uint64_t number) {
    static uint8_t message[ROOM];
    for (uint64_t i = 0; i < size; i++)
        message[i] = (uint8_t)(number >> 8 * (i & 7));
    return message;
}

uint64_t number_of(const void *message, uint64_t size) {
    uint64_t number = 0;
    memcpy(&number, message, size < 8 ? size : 8);
    for (uint64_t i = 0; i < size; i++)
        if (((const uint8_t *)message)[i] != (uint8_t)(number >> 8 * (i & 7)))
            fail("torn");
    return number;
}

static void arm(uint64_t a, uint64_t b) { is_armed = true; }
static void disarm(uint64_t a, uint64_t b) { is_armed = false; }
static void wait_for_parent(uint64_t a, uint64_t b) {
    puts("ready");
    getchar();
}
static void lock_no_rows(uint64_t a, uint64_t b) { rows_are_lockable = false; }

static const operation common_operations[] = {
    {"arm", arm}, {"disarm", disarm}, {"ready", wait_for_parent}, {"unlockable", lock_no_rows}, {NULL, NULL},
};

static bool perform(const operation *operations, const char *name, uint64_t a, uint64_t b) {
    while (operations->name && strcmp(operations->name, name))
        operations++;
    if (operations->name)
        operations->perform(a, b);
    return operations->name;
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        const operation *operations;
    } kinds[] = {{"topic", topic_operations},
                 {"channel", channel_operations},
                 {"queue", queue_operations},
                 {"record", record_operations}};
    size_t kind = 0;
    if (count < 3)
        fail("usage: driver KIND NAME OPERATION...");
    alarm(50); /* nobody waits for ever, whatever a test forgets */
    setvbuf(stdout, NULL, _IOLBF, 0);
    srandom((unsigned)getpid());
    is_armed = false;
    endpoint = arguments[2];
    while (strcmp(kinds[kind].name, arguments[1]))
        kind++;
    for (char **next = arguments + 3; *next; next++) {
        unsigned long long a = 0, b = 0;
        char name[16] = "";
        sscanf(*next, "%15[a-z]:%llu:%llu", name, &a, &b);
        if (!perform(common_operations, name, a, b) && !perform(kinds[kind].operations, name, a, b))
            fail(name);
    }
    return 0;
}
