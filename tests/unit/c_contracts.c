/* What docs/guides/c.md promises of calls, asked of one process. Ends with 0, or prints the first line that was not so. */
#include <msgq.h>

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "c_check.h"

static void ignore(int number) { (void)number; }

/* Run `check` in a child, which ends with its result, without the buffers of the parent. */
static int in_child(int (*check)(void)) {
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int result = check();
        fflush(stdout);
        _exit(result);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}

static msgq_queue *queue;
static msgq_publisher *publisher;
static msgq_subscriber *subscriber;

static int queue_in_child(void) {
    CHECK(msgq_queue_send(queue, "x", 1, 0, 0) == -ECHILD);
    msgq_queue_close(queue);
    return 0;
}

static int reader_in_child(void) {
    char byte = 0;
    int readers = 0, updated = -1;
    CHECK(msgq_publisher_readers(publisher, &readers, &updated) == 0 && readers == 1 && updated == 0);
    CHECK(msgq_subscriber_receive(subscriber, &byte, 1, 0, NULL) == 1 && byte == 'a');
    CHECK(msgq_publisher_readers(publisher, &readers, &updated) == 0 && readers == 2 && updated == 1);
    CHECK(msgq_subscriber_receive(subscriber, &byte, 1, 0, NULL) == -EAGAIN);
    msgq_publisher_close(publisher); /* of the parent */
    msgq_subscriber_close(subscriber);
    return 0;
}

static int writer_in_child(void) {
    CHECK(msgq_publisher_send(publisher, "c", 1) == 0 && msgq_publisher_send(publisher, "d", 1) == 0);
    msgq_publisher_close(publisher);
    return 0;
}

static int unused_in_child(void) {
    msgq_publisher_close(publisher);
    msgq_subscriber_close(subscriber);
    return 0;
}

static int check_fork(const char *name) {
    char byte = 0;
    int readers = 0;
    CHECK(in_child(queue_in_child) == 0);
    CHECK(msgq_publisher_send(publisher, "a", 1) == 0);
    CHECK(in_child(reader_in_child) == 0 && in_child(unused_in_child) == 0);
    CHECK(msgq_publisher_send(publisher, "b", 1) == 0 && in_child(writer_in_child) == 0);
    CHECK(msgq_publisher_send(publisher, "x", 1) == -EADDRINUSE && msgq_publisher_send(publisher, "x", 1) < 0);
    for (const char *expected = "abcd"; *expected; expected++)
        CHECK(msgq_subscriber_receive(subscriber, &byte, 1, 0, NULL) == 1 && byte == *expected);
    msgq_publisher_close(publisher);
    CHECK(msgq_publisher_open(&publisher, name, NULL) == 0);
    CHECK(msgq_publisher_readers(publisher, &readers, NULL) == 0 && readers == 1);
    return 0;
}

static int check_signals(void) {
    struct sigaction action = {.sa_handler = ignore};
    char byte;
    sigaction(SIGALRM, &action, NULL);
    ualarm(20000, 20000); /* again and again: one may come before the sleep */
    int64_t result = msgq_queue_receive(queue, &byte, 1, -1, NULL);
    ualarm(0, 0);
    CHECK(result == -EINTR);
    return 0;
}

static int check_queue(void) {
    char text[8];
    msgq_message info;
    msgq_job job;
    CHECK(msgq_queue_receive(queue, text, sizeof text, 0, NULL) == -EAGAIN);
    CHECK(msgq_queue_receive(queue, text, sizeof text, 0.01, NULL) == -ETIMEDOUT);
    CHECK(msgq_queue_send(queue, "0123456789abcdefg", 17, 0, 0) == -EMSGSIZE);
    CHECK(msgq_queue_send(queue, "0123456789", 10, 0, 0) == 0 && msgq_queue_send(queue, "b", 1, 0, 0) == 0);
    CHECK(msgq_queue_send(queue, "c", 1, 0, 0) == -EAGAIN && strstr(msgq_error_text(), "2 messages"));
    CHECK(msgq_queue_receive(queue, text, sizeof text, 0, &info) == -EMSGSIZE && info.size == 10);
    CHECK(msgq_queue_waiting(queue) == 2);
    char room[16];
    CHECK(msgq_queue_take(queue, room, sizeof room, 0, 0, &job, &info) == 10 && info.deliveries == 1);
    CHECK(msgq_queue_return(queue, &job) == 0 && msgq_queue_return(queue, &job) == -EINVAL);
    CHECK(msgq_queue_take(queue, room, sizeof room, 0, 0, &job, &info) == 10 && info.deliveries == 2);
    CHECK(msgq_queue_acknowledge(queue, &job) == 0 && msgq_queue_acknowledge(queue, &job) == -EINVAL);
    CHECK(msgq_queue_receive(queue, text, sizeof text, 0, &info) == 1 && text[0] == 'b');
    return 0;
}

static int check_delays(void) {
    char text[8];
    msgq_message info;
    msgq_job job;
    CHECK(msgq_queue_send_delayed(queue, "a", 1, 0, 0, -1) == -EINVAL && strstr(msgq_error_text(), "delay"));
    CHECK(msgq_queue_send_delayed(queue, "a", 1, 3, 0, 0.01) == 0 && msgq_queue_waiting(queue) == 0);
    CHECK(msgq_queue_receive(queue, text, sizeof text, 0, &info) == -EAGAIN);
    CHECK(msgq_queue_take(queue, text, sizeof text, 60, 0, &job, &info) == 1 && info.deliveries == 1);
    CHECK(msgq_time_ns() >= info.publish_time + 10000000 && info.priority == 3);
    CHECK(msgq_queue_return_delayed(queue, &job, 1e10) == -EINVAL); /* the job stays open */
    CHECK(msgq_queue_return_delayed(queue, &job, 0.01) == 0 && msgq_queue_acknowledge(queue, &job) == -EINVAL);
    CHECK(msgq_queue_receive(queue, text, sizeof text, 60, &info) == 1 && info.deliveries == 2);
    CHECK(msgq_queue_waiting(queue) == 0);
    return 0;
}

static int check_topic(void) {
    char text[8];
    msgq_message info;
    CHECK(msgq_publisher_send(publisher, "0123456789", 10) == 0);
    CHECK(msgq_subscriber_receive(subscriber, text, sizeof text, 0, &info) == -EMSGSIZE && info.size == 10);
    char room[16];
    CHECK(msgq_subscriber_receive(subscriber, room, sizeof room, 0, &info) == 10 &&
          memcmp(room, "0123456789", 10) == 0);
    CHECK(msgq_subscriber_receive(subscriber, room, sizeof room, 0, &info) == -EAGAIN);
    return 0;
}

/* A side segment that was cut ends no process. */
static int check_cut(const char *name) {
    char path[300], room[16];
    snprintf(path, sizeof path, "/dev/shm/msgqside_%s/%s", getenv("OPENPILOT_PREFIX"), name);
    CHECK(msgq_publisher_send(publisher, "x", 1) == 0 && truncate(path, 0) == 0);
    CHECK(msgq_publisher_send(publisher, "y", 1) == -ESTALE && strstr(msgq_error_text(), "side segment"));
    CHECK(msgq_subscriber_receive(subscriber, room, sizeof room, 0, NULL) == -ESTALE);
    CHECK(strstr(msgq_error_text(), path));
    return 0;
}

static int check_channel(const char *name) {
    msgq_channel_publisher *sender;
    msgq_channel_subscriber *receiver;
    static char large[100000], room[100000];
    msgq_message info;
    memset(large, 'x', sizeof large);
    CHECK(msgq_channel_subscriber_open(&receiver, name, NULL) == 0);
    CHECK(msgq_channel_publisher_open(&sender, name, NULL) == 0);
    CHECK(msgq_channel_send(sender, "a", 1, 0) >= 0 && msgq_channel_send(sender, large, sizeof large, 0) >= 0);
    CHECK(msgq_channel_receive(receiver, room, sizeof room, 0, &info) == 1 && info.publisher_pid == getpid());
    CHECK(msgq_channel_receive(receiver, room, 8, 0, &info) == -EMSGSIZE && info.size == sizeof large);
    CHECK(msgq_channel_receive(receiver, room, sizeof room, 0, NULL) == (int64_t)sizeof large);
    CHECK(memcmp(room, large, sizeof large) == 0);
    msgq_channel_publisher_close(sender);
    msgq_channel_subscriber_close(receiver);
    return 0;
}

static void do_nothing(int number) { (void)number; }

/* Room ends at the oldest message that the subscriber has not received. */
static int check_room(const char *name) {
    msgq_channel_options options = {.capacity = 4};
    struct sigaction action = {.sa_handler = do_nothing}, former;
    const struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    msgq_channel_publisher *sender;
    msgq_channel_subscriber *receiver;
    uint64_t lost;
    char room[16];
    CHECK(msgq_channel_publisher_open(&sender, name, &options) == 0);
    CHECK(msgq_channel_subscriber_open(&receiver, name, NULL) == 0);
    CHECK(msgq_channel_wait_for_room(sender, 4, 0) == 0 && msgq_channel_wait_for_room(sender, 0, 0) == -EINVAL);
    CHECK(msgq_channel_wait_for_room(sender, 5, 0) == -EINVAL && strstr(msgq_error_text(), "give 1 to 4"));
    while (msgq_channel_wait_for_room(sender, 1, 0) == 0)
        CHECK(msgq_channel_send(sender, "a", 1, 0) < 8);
    CHECK(msgq_channel_wait_for_room(sender, 1, 0) == -EAGAIN && strstr(msgq_error_text(), "no room for 1 messages"));
    CHECK(msgq_channel_wait_for_room(sender, 1, 0.002) == -ETIMEDOUT);
    CHECK(sigaction(SIGALRM, &action, &former) == 0 && setitimer(ITIMER_REAL, &soon, NULL) == 0);
    CHECK(msgq_channel_wait_for_room(sender, 1, -1) == -EINTR && sigaction(SIGALRM, &former, NULL) == 0);
    CHECK(msgq_channel_receive(receiver, room, sizeof room, 0, NULL) == 1);
    CHECK(msgq_channel_wait_for_room(sender, 1, -1) == 0 && msgq_channel_wait_for_room(sender, 2, 0) == -EAGAIN);
    CHECK(msgq_channel_counts(receiver, NULL, &lost) == 0 && lost == 0);
    msgq_channel_subscriber_close(receiver);
    CHECK(msgq_channel_wait_for_room(sender, 4, 0) == 0);
    msgq_channel_publisher_close(sender);
    return 0;
}

static bool has_sizes(msgq_queue *queue_to_ask, uint32_t expected_messages, uint32_t expected_size) {
    uint32_t messages = 0, size = 0;
    return msgq_queue_sizes(queue_to_ask, &messages, &size) == 0 && messages == expected_messages &&
           size == expected_size;
}

/* NULL without bytes is an empty message. */
static int check_empty(const char *name) {
    msgq_channel_publisher *sender;
    msgq_channel_subscriber *receiver;
    msgq_message info = {.size = 1};
    CHECK(has_sizes(queue, 2, 16));
    CHECK(msgq_queue_send(queue, NULL, 0, 0, 0) == 0 && msgq_queue_receive(queue, NULL, 0, 0, &info) == 0);
    CHECK(info.size == 0 && info.deliveries == 1);
    CHECK(msgq_publisher_send(publisher, NULL, 0) == 0 && msgq_subscriber_receive(subscriber, NULL, 0, 0, NULL) == 0);
    CHECK(msgq_channel_subscriber_open(&receiver, name, NULL) == 0);
    CHECK(msgq_channel_publisher_open(&sender, name, NULL) == 0 && msgq_channel_send(sender, NULL, 0, 0) >= 0);
    CHECK(msgq_channel_receive(receiver, NULL, 0, 0, &info) == 0 && info.publisher_pid == getpid());
    CHECK(msgq_channel_receive(receiver, NULL, 1, 0, NULL) == -EINVAL && strstr(msgq_error_text(), "NULL"));
    CHECK(msgq_channel_counts(receiver, NULL, NULL) == 0 && msgq_channel_counts(NULL, NULL, NULL) == -EINVAL);
    msgq_channel_publisher_close(sender);
    msgq_channel_subscriber_close(receiver);
    return 0;
}

/* The ring takes the size that the first participant requests, also under a subscriber that has another mapping. */
static int check_sizes(const char *topic) {
    enum { LARGE = 4 << 20, SMALL = 1 << 16, DEFAULT = 1 << 20 };
    static char sent[DEFAULT], room[DEFAULT]; /* zeros, also where the first mapping ends */
    msgq_topic_options options = {.segment_size = SMALL};
    msgq_subscriber *early, *sized;
    msgq_publisher *sender;
    CHECK(msgq_subscriber_open(&early, topic, NULL) == 0);
    CHECK(msgq_publisher_open(&sender, topic, &options) == -EEXIST && strstr(msgq_error_text(), "default of process"));
    options.segment_size = LARGE;
    CHECK(msgq_publisher_open(&sender, topic, &options) == 0 && msgq_subscriber_open(&sized, topic, &options) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(msgq_publisher_send(sender, sent, sizeof sent) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(msgq_subscriber_receive(early, room, sizeof room, 0, NULL) == sizeof room);
        CHECK(msgq_subscriber_receive(sized, room, sizeof room, 0, NULL) == sizeof room);
    }
    uint64_t lost = 1;
    CHECK(msgq_subscriber_counts(early, NULL, &lost) == 0 && lost == 0);
    CHECK(msgq_subscriber_receive(early, room, sizeof room, 0, NULL) == -EAGAIN);
    msgq_subscriber_close(early);
    options.segment_size = 2 * LARGE;
    CHECK(msgq_subscriber_open(&early, topic, &options) == -EEXIST &&
          strstr(msgq_error_text(), "requested by process"));
    msgq_subscriber_close(sized);
    msgq_publisher_close(sender);
    return 0;
}

static bool lacks_memory;
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes) { return lacks_memory ? NULL : __real_calloc(count, bytes); }

/* A queue takes the sizes that the first handle requests, also under a handle that has no slots yet. */
static int check_queue_sizes(const char *name) {
    static char sent[100000], room[100000];
    msgq_queue_options sizes = {.max_messages = 1000, .max_message_size = sizeof sent};
    msgq_queue *early, *sized, *other;
    CHECK(msgq_queue_open(&early, name, NULL) == 0 && msgq_queue_waiting(early) == 0 && has_sizes(early, 128, 8192));
    CHECK(msgq_queue_receive(early, room, sizeof room, 0, NULL) == -EAGAIN);
    CHECK(msgq_queue_open(&sized, name, &sizes) == 0);
    lacks_memory = true;
    CHECK(msgq_queue_receive(early, room, sizeof room, 0, NULL) == -ENOMEM && msgq_queue_waiting(early) == -ENOMEM);
    lacks_memory = false;
    CHECK(has_sizes(early, 1000, sizeof sent));
    for (int i = 0; i < 1000; i++)
        CHECK(msgq_queue_send(sized, sent, sizeof sent, 0, 0) == 0);
    CHECK(msgq_queue_send(sized, sent, 1, 0, 0) == -EAGAIN && msgq_queue_waiting(early) == 1000);
    CHECK(msgq_queue_receive(early, room, sizeof room, 0, NULL) == sizeof sent);
    CHECK(msgq_queue_send(early, sent, sizeof sent, 0, 0) == 0);
    sizes.max_messages = 999;
    CHECK(msgq_queue_open(&other, name, &sizes) == -EEXIST && strstr(msgq_error_text(), "chose the existing values"));
    msgq_queue_close(early);
    msgq_queue_close(sized);
    CHECK(msgq_queue_open(&early, "default", NULL) == 0 && msgq_queue_send(early, sent, 8192, 0, 0) == 0);
    CHECK(msgq_queue_open(&other, "default", &sizes) == -EEXIST);
    msgq_queue_close(early);
    return 0;
}

/* Another program writes sizes into a queue without sizes, and the file is too small for them. */
static int check_hostile_sizes(const char *name) {
    enum { HEADER = 57344, MAX_MESSAGES = 6, MAX_MESSAGE_SIZE = 7 };
    char path[300], room[16];
    msgq_queue *unsized;
    CHECK(msgq_queue_open(&unsized, name, NULL) == 0);
    snprintf(path, sizeof path, "/dev/shm/msgqjobs_%s/%s", getenv("OPENPILOT_PREFIX"), name);
    int fd = open(path, O_RDWR);
    uint64_t *words = mmap(NULL, HEADER, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(fd >= 0 && words != MAP_FAILED);
    words[MAX_MESSAGE_SIZE] = 64;
    words[MAX_MESSAGES] = 65536;
    for (int i = 0; i < 4; i++) {
        CHECK(ftruncate(fd, HEADER + i * 4096) == 0);
        CHECK(msgq_queue_receive(unsized, room, sizeof room, 0, NULL) == -EPROTO);
        CHECK(msgq_queue_send(unsized, "", 1, 0, 0) == -EPROTO && msgq_queue_waiting(unsized) == -EPROTO);
    }
    munmap(words, HEADER);
    close(fd);
    msgq_queue_close(unsized);
    return 0;
}

/* Publish the name of each schema as a message, by a publisher with this schema. */
static int publish_schemas(const char *topic, char **names) {
    for (; *names; names++) {
        msgq_schema schema = {.name = *names, .encoding = "json"};
        msgq_topic_options options = {.schema = &schema};
        CHECK(msgq_publisher_open(&publisher, topic, &options) == 0);
        CHECK(msgq_publisher_send(publisher, *names, strlen(*names)) == 0);
        msgq_publisher_close(publisher);
    }
    return 0;
}

/* "NAME": check all calls. "NAME SCHEMA...": publish on a topic. */
int main(int argc, char **argv) {
    msgq_queue_options options = {.max_messages = 2, .max_message_size = 16};
    CHECK(argc >= 2);
    if (argc > 2)
        return publish_schemas(argv[1], argv + 2);
    options.open.create = MSGQ_OPEN;
    CHECK(msgq_queue_open(&queue, argv[1], &options) == -ENOENT && !queue && strstr(msgq_error_text(), argv[1]));
    options.open.create = MSGQ_MAKE;
    CHECK(msgq_queue_open(&queue, argv[1], &options) == 0);
    msgq_queue *other;
    CHECK(msgq_queue_open(&other, argv[1], &options) == -EEXIST);
    CHECK(msgq_publisher_open(&publisher, "a/b", NULL) == -EINVAL &&
          msgq_publisher_open(&publisher, "", NULL) == -EINVAL);
    CHECK(msgq_publisher_open(&publisher, "\xff", NULL) == -EINVAL);
    CHECK(msgq_publisher_open(&publisher, argv[1], NULL) == 0);
    CHECK(msgq_subscriber_open(&subscriber, argv[1], NULL) == 0);
    if (check_queue() || check_delays() || check_signals() || check_fork(argv[1]) || check_topic() ||
        check_empty(argv[1]) || check_cut(argv[1]) || check_channel(argv[1]) || check_room("room") ||
        check_sizes("sizes") || check_queue_sizes("queue-sizes") || check_hostile_sizes("hostile"))
        return 1;
    msgq_queue_close(queue);
    msgq_publisher_close(publisher);
    msgq_subscriber_close(subscriber);
    msgq_queue_close(NULL);
    return 0;
}
