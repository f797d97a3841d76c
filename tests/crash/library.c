/* A program that joins an endpoint with the C library, uses it a little, and leaves: `library ROLE NAME`.
 *
 * It is compiled with the library's sources, not with copies of their steps. Its points (interpose.c) are the system
 * calls, and each write to shared memory (library.h).
 */
#include <msgq.h>

#include "interpose.c"

void point(const char *function, const char *what, const char *which);
void point(const char *function, const char *what, const char *which) {
    (void)which;
    if (strcmp(what, "loaded") && !strstr(what, " from")) /* a death after a load leaves the same bytes */
        call_point(what, function);
}

static char room[2048];

static int publish(const char *name) {
    msgq_publisher *publisher;
    int status = msgq_publisher_open(&publisher, name, NULL);
    status = status ? status : msgq_publisher_send(publisher, "joined", 6);
    if (!status)
        msgq_publisher_close(publisher);
    return status;
}

static int subscribe(const char *name) {
    msgq_subscriber *subscriber;
    int status = msgq_subscriber_open(&subscriber, name, NULL);
    if (status)
        return status;
    msgq_subscriber_receive(subscriber, room, sizeof room, 0, NULL); /* perhaps there is none */
    msgq_subscriber_close(subscriber);
    return 0;
}

static int publish_on_channel(const char *name) {
    msgq_channel_publisher *publisher;
    msgq_channel_options options = {.capacity = 4, .slot_bytes = 64};
    int64_t status = msgq_channel_publisher_open(&publisher, name, &options);
    status = status < 0 ? status : msgq_channel_send(publisher, "joined", 6, 0);
    status = status < 0 ? status : msgq_channel_send(publisher, room, 1000, 0); /* the pool grows */
    if (status >= 0)
        msgq_channel_publisher_close(publisher);
    return status < 0;
}

static int subscribe_to_channel(const char *name) {
    msgq_channel_subscriber *subscriber;
    msgq_channel_options options = {.capacity = 4, .history = 4};
    int status = msgq_channel_subscriber_open(&subscriber, name, &options);
    if (status)
        return status;
    msgq_channel_receive(subscriber, room, sizeof room, 0, NULL);
    msgq_channel_subscriber_close(subscriber);
    return 0;
}

static int use_queue(const char *name) {
    msgq_queue *queue;
    msgq_job job;
    msgq_queue_options options = {.max_messages = 4};
    int64_t status = msgq_queue_open(&queue, name, &options);
    status = status < 0 ? status : msgq_queue_send(queue, "message", 7, 0, 0);
    status = status < 0 ? status : msgq_queue_take(queue, room, sizeof room, 0, 0, &job, NULL);
    status = status < 0 ? status : msgq_queue_return(queue, &job);
    if (status >= 0)
        msgq_queue_close(queue);
    return status < 0;
}

static int write_vector(const char *name, int exclusive) {
    msgq_vector *vector;
    msgq_vector_options options = {.dtype = "<u8", .item_bytes = 8, .length = 2, .exclusive = exclusive};
    const uint64_t value = 7;
    int status = msgq_vector_open(&vector, name, &options);
    status = status ? status : msgq_vector_write(vector, 0, 1, &value, 0);
    if (!status)
        msgq_vector_close(vector);
    return status;
}
static int write_shared(const char *name) { return write_vector(name, 0); }
static int write_exclusive(const char *name) { return write_vector(name, 1); }

static int write_board(const char *name) {
    msgq_board *board;
    msgq_board_options options = {.keys = 2, .value_bytes = 16};
    const uint64_t value[] = {7, 7};
    int64_t key = msgq_board_open(&board, name, &options);
    key = key < 0 ? key : msgq_board_declare(board, "key");
    int64_t status = key < 0 ? key : msgq_board_write(board, key, value, sizeof value);
    if (status >= 0)
        msgq_board_close(board);
    return status < 0;
}

static const struct {
    const char *name;
    int (*act)(const char *endpoint);
} roles[] = {
    {"publisher", publish},
    {"subscriber", subscribe},
    {"channel-publisher", publish_on_channel},
    {"channel-subscriber", subscribe_to_channel},
    {"queue", use_queue},
    {"shared", write_shared},
    {"exclusive", write_exclusive},
    {"board", write_board},
};

int main(int count, char **arguments) {
    for (size_t i = 0; count == 3 && i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(roles[i].name, arguments[1]) || !roles[i].act(arguments[2]))
            continue;
        fprintf(stderr, "%s: %s\n", arguments[1], msgq_error_text());
        return 1;
    }
    return 0;
}
