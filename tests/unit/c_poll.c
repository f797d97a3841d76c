/* What msgq/poll.h promises, asked of one process with two threads. Ends with 0, or prints the first line that was not
 * so. Linked with --wrap=syscall, so that the kernel can seem to lack futex_waitv. */
#define _GNU_SOURCE
#include <msgq.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "c_check.h"

enum { TOPIC, CHANNEL, VECTOR, BOARD, QUEUE, KINDS, ROUNDS = 1000, LATE = 10, MANY = 200, FUTEX_WAITV = 449 };
static const double DEADLINE_S = 60;

/* The handles of one thread. */
typedef struct {
    msgq_publisher *publisher;
    msgq_channel_publisher *channel;
    msgq_queue *queue;
    msgq_vector *vector;
    msgq_board *board;
} writer;

static writer to;
static msgq_poll_item items[KINDS];
static uint64_t writes; /* of the value of the board */
static bool lacks_waitv;
static _Atomic bool may_sleep; /* the thread that polls is in a system call */
static int missed_wakes;       /* sleeps that lasted until their end, of at least half a second */
static volatile sig_atomic_t handled;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
    long words[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        words[i] = va_arg(list, long);
    va_end(list);
    if (number == FUTEX_WAITV && lacks_waitv) {
        errno = ENOSYS;
        return -1;
    }
    int64_t began = msgq_time_ns();
    may_sleep = true;
    long result = __real_syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
    may_sleep = false;
    missed_wakes += number == FUTEX_WAITV && result < 0 && errno == ETIMEDOUT && msgq_time_ns() - began > 500000000;
    return result;
}

static int open_all(void) {
    msgq_vector_options options = {.dtype = "<u8", .item_bytes = 8, .length = 4};
    CHECK(!msgq_publisher_open(&to.publisher, "p", NULL) && !msgq_channel_publisher_open(&to.channel, "p", NULL));
    CHECK(!msgq_queue_open(&to.queue, "p", NULL) && !msgq_vector_open(&to.vector, "p", &options));
    CHECK(!msgq_board_open(&to.board, "b", NULL) && msgq_board_declare(to.board, "key") == 0);
    CHECK(msgq_board_declare(to.board, "other") == 1);
    CHECK(!msgq_subscriber_open(&items[TOPIC].subscriber, "p", NULL));
    CHECK(!msgq_channel_subscriber_open(&items[CHANNEL].channel, "p", NULL));
    CHECK(!msgq_queue_open(&items[QUEUE].queue, "p", NULL) && !msgq_vector_open(&items[VECTOR].vector, "p", NULL));
    CHECK(!msgq_board_open(&items[BOARD].board, "b", NULL));
    return 0;
}

static void close_all(void) {
    msgq_publisher_close(to.publisher);
    msgq_channel_publisher_close(to.channel);
    msgq_queue_close(to.queue);
    msgq_vector_close(to.vector);
    msgq_board_close(to.board);
    msgq_subscriber_close(items[TOPIC].subscriber);
    msgq_channel_subscriber_close(items[CHANNEL].channel);
    msgq_queue_close(items[QUEUE].queue);
    msgq_vector_close(items[VECTOR].vector);
    msgq_board_close(items[BOARD].board);
}

static int send_to(int kind) {
    uint64_t value = 1;
    switch (kind) {
    case TOPIC: return msgq_publisher_send(to.publisher, &value, sizeof value);
    case CHANNEL: return msgq_channel_send(to.channel, &value, sizeof value, 0) < 0;
    case QUEUE: return msgq_queue_send(to.queue, &value, sizeof value, 0, 0);
    case VECTOR: return msgq_vector_write(to.vector, 2, 1, &value, 0);
    default: return msgq_board_write(to.board, 0, &value, sizeof value);
    }
}

/* Take what `send_to` sent. Returns 0, or what is wrong. */
static int64_t take_from(int kind) {
    uint64_t value = 0, index = 0;
    msgq_value info;
    switch (kind) {
    case TOPIC: return msgq_subscriber_receive(items[TOPIC].subscriber, &value, sizeof value, 0, NULL) - 8;
    case CHANNEL: return msgq_channel_receive(items[CHANNEL].channel, &value, sizeof value, 0, NULL) - 8;
    case QUEUE: return msgq_queue_receive(items[QUEUE].queue, &value, sizeof value, 0, NULL) - 8;
    case VECTOR: return msgq_vector_changes(items[VECTOR].vector, &index, &value, 1) - 1;
    default:
        value = (uint64_t)msgq_board_read(items[BOARD].board, 0, &value, sizeof value, &info);
        items[BOARD].count = info.count;
        return value == 8 && info.count == ++writes ? 0 : -1;
    }
}

static bool only_is_ready(int kind) {
    for (int each = 0; each < KINDS; each++)
        if (items[each].ready != (each == kind))
            return false;
    return true;
}

static int check_arguments(void) {
    msgq_poll_item none = {.index = 0}, both = {.queue = items[QUEUE].queue, .vector = items[VECTOR].vector};
    msgq_poll_item missing = {.board = items[BOARD].board, .index = 999};
    CHECK(msgq_poll(&none, 1, 0) == -EINVAL && strstr(msgq_error_text(), "0 handles"));
    CHECK(msgq_poll(&both, 1, 0) == -EINVAL && strstr(msgq_error_text(), "2 handles"));
    CHECK(msgq_poll(&missing, 1, 0) == -EINVAL && missing.ready == -EINVAL);
    CHECK(msgq_poll(items, 0, -1) == -EAGAIN && msgq_poll(NULL, 1, 0) == -EINVAL);
    return 0;
}

static int check_each_kind(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        CHECK(msgq_poll(items, KINDS, 0) == -EAGAIN && only_is_ready(-1));
        CHECK(msgq_poll(items, KINDS, 0.001) == -ETIMEDOUT && only_is_ready(-1));
        CHECK(msgq_poll(&items[kind], 1, 0.001) == -ETIMEDOUT);
        CHECK(send_to(kind) == 0);
        CHECK(msgq_poll(items, KINDS, -1) == 1 && only_is_ready(kind));
        CHECK(msgq_poll(items, KINDS, 0) == 1 && only_is_ready(kind)); /* until it is received */
        CHECK(take_from(kind) == 0);
    }
    CHECK(send_to(QUEUE) == 0 && send_to(TOPIC) == 0);
    CHECK(msgq_poll(items, KINDS, DEADLINE_S) == 2 && items[QUEUE].ready && items[TOPIC].ready);
    CHECK(take_from(QUEUE) == 0 && take_from(TOPIC) == 0 && msgq_poll(items, KINDS, 0) == -EAGAIN);
    return 0;
}

/* A lapped subscriber is ready only if the next receive returns a message. */
static int check_losses(void) {
    static char large[1 << 18];
    uint64_t lost = 0;
    int64_t received = 0;
    for (int i = 0; i < 20; i++) {
        CHECK(msgq_publisher_send(to.publisher, large, sizeof large) == 0);
        if (i % 7 == 0)
            continue;
        int ready = msgq_poll(items, KINDS, 0);
        CHECK(ready == -EAGAIN || (ready == 1 && items[TOPIC].ready));
        if (ready == 1 && i % 3)
            CHECK(msgq_subscriber_receive(items[TOPIC].subscriber, large, sizeof large, 0, NULL) == sizeof large);
    }
    while (msgq_poll(items, KINDS, 0) == 1)
        CHECK(msgq_subscriber_receive(items[TOPIC].subscriber, large, sizeof large, 0, NULL) == sizeof large);
    for (int i = 0; i < 20; i++)
        CHECK(msgq_publisher_send(to.publisher, large, sizeof large) == 0);
    CHECK(msgq_poll(items, KINDS, 0) == -EAGAIN); /* all messages that the subscriber knows are overwritten */
    CHECK(msgq_subscriber_counts(items[TOPIC].subscriber, NULL, &lost) == 0 && lost >= 20);
    CHECK(send_to(TOPIC) == 0 && msgq_poll(items, KINDS, 0) == 1 && only_is_ready(TOPIC) && take_from(TOPIC) == 0);
    for (int i = 0; i < 1000; i++)
        CHECK(send_to(CHANNEL) == 0);
    for (; msgq_poll(items, KINDS, 0) == 1; received++)
        CHECK(only_is_ready(CHANNEL) && take_from(CHANNEL) == 0);
    CHECK(received > 0 && received < 1000);
    return 0;
}

static int check_board_keys(void) {
    msgq_poll_item two[] = {items[BOARD], items[BOARD]};
    two[1].index = 1;
    two[1].count = 0;
    CHECK(msgq_poll(two, 2, 0) == -EAGAIN && msgq_board_write(to.board, 1, "x", 1) == 0);
    CHECK(msgq_poll(two, 2, 0) == 1 && !two[0].ready && two[1].ready);
    return 0;
}

static int check_closed_publisher(void) {
    msgq_subscriber *subscriber;
    msgq_publisher *publisher;
    CHECK(!msgq_publisher_open(&publisher, "closed", NULL) && !msgq_subscriber_open(&subscriber, "closed", NULL));
    CHECK(msgq_publisher_send(publisher, "x", 1) == 0);
    msgq_publisher_close(publisher);
    msgq_poll_item pair[] = {{.subscriber = subscriber}, items[QUEUE]};
    char byte;
    CHECK(msgq_poll(pair, 2, DEADLINE_S) == 1 && pair[0].ready);
    CHECK(msgq_subscriber_receive(subscriber, &byte, 1, 0, NULL) == 1);
    CHECK(msgq_poll(pair, 2, 0.001) == -ETIMEDOUT);
    msgq_subscriber_close(subscriber);
    return 0;
}

/* ---- wakes ---- */

static pthread_barrier_t begun, done;

static void *send_rounds(void *kinds) {
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&begun);
        while (!may_sleep)
            sched_yield();
        send_to((int)(round % *(unsigned *)kinds));
        pthread_barrier_wait(&done);
    }
    return kinds;
}

/* A busy machine may delay a few messages until a sleep ends by itself, but not each message of a kind. `polled`:
 * the items of the first kinds, or repetitions of them. */
static int check_wakes(msgq_poll_item *polled, size_t count, unsigned kinds) {
    pthread_t sender;
    missed_wakes = 0;
    pthread_barrier_init(&begun, NULL, 2), pthread_barrier_init(&done, NULL, 2);
    CHECK(pthread_create(&sender, NULL, send_rounds, &kinds) == 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned kind = round % kinds;
        pthread_barrier_wait(&begun);
        /* the message may arrive after the check of the first repetitions */
        CHECK(msgq_poll(polled, count, DEADLINE_S) > 0 && polled[count - kinds + kind].ready);
        pthread_barrier_wait(&done);
        CHECK(take_from((int)kind) == 0 && missed_wakes < LATE);
        for (size_t i = BOARD; i < count; i += kinds)
            polled[i].count = items[BOARD].count;
    }
    CHECK(pthread_join(sender, NULL) == 0);
    return 0;
}

/* Times of the queue: a delayed message, and a message that returns from a dead process. */
static int check_queue_times(void) {
    int status;
    CHECK(msgq_queue_send_delayed(to.queue, "12345678", 8, 0, 0, 0.05) == 0);
    CHECK(msgq_poll(items, KINDS, 0) == -EAGAIN && msgq_poll(items, KINDS, DEADLINE_S) == 1 && take_from(QUEUE) == 0);
    pid_t child = fork();
    if (child == 0) {
        msgq_queue *mine;
        msgq_job job;
        char bytes[8];
        _exit(msgq_queue_open(&mine, "p", NULL) || msgq_queue_send(mine, "12345678", 8, 0, 0) ||
              msgq_queue_take(mine, bytes, 8, 0, 0, &job, NULL) != 8);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(msgq_poll(items, KINDS, DEADLINE_S) == 1 && items[QUEUE].ready && take_from(QUEUE) == 0);
    return 0;
}

static void count_signal(int number) { handled += number == SIGALRM; }

static int check_signal(size_t count) {
    struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = count_signal};
    sigaction(SIGALRM, &action, NULL);
    handled = 0;
    setitimer(ITIMER_REAL, &often, NULL); /* repeated, because a signal may arrive before the sleep */
    int status = msgq_poll(items, count, DEADLINE_S);
    setitimer(ITIMER_REAL, &never, NULL);
    CHECK(status == -EINTR && handled > 0 && only_is_ready(-1));
    return 0;
}

static int check_fork(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        bool refused = msgq_poll(items, KINDS, 0) == -ECHILD && !items[TOPIC].ready && items[CHANNEL].ready == -ECHILD;
        bool continues = send_to(TOPIC) == 0 && msgq_poll(items, 1, DEADLINE_S) == 1 && take_from(TOPIC) == 0;
        _exit(!(refused && continues));
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}

int main(int count, char **words) {
    static msgq_poll_item many[MANY];
    lacks_waitv = count > 1 && strcmp(words[1], "without-waitv") == 0;
    if (open_all() || check_arguments() || check_each_kind() || check_losses() || check_board_keys())
        return 1;
    /* a queue whose messages other handles take shortens all sleeps */
    if (check_closed_publisher() || check_wakes(items, QUEUE, QUEUE) || check_wakes(items, KINDS, KINDS))
        return 1;
    for (size_t i = 0; i < MANY; i++) /* more than the kernel accepts */
        many[i] = items[i % KINDS];
    if (check_wakes(many, MANY, KINDS) || check_queue_times())
        return 1;
    if (check_signal(KINDS) || check_signal(1) || check_fork())
        return 1;
    close_all();
    return 0;
}
