/* Waits for a topic, a channel, a queue, a vector and a board at once. "poll NAME" prints a line for each message or
 * change. It ends at a message of the queue, or at Ctrl-C. The board is "NAME:board", because vectors and boards share
 * their names. */
#include <msgq.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>

static volatile sig_atomic_t interrupted;

static void interrupt(int number) { interrupted = number; }

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, msgq_error_text());
    return 1;
}

static int open_all(msgq_poll_item *items, const char *name) {
    msgq_vector_options options = {.dtype = "<f8", .item_bytes = sizeof(double), .length = 3};
    char board[200];
    snprintf(board, sizeof board, "%s:board", name);
    return msgq_subscriber_open(&items[0].subscriber, name, NULL) ||
           msgq_channel_subscriber_open(&items[1].channel, name, NULL) ||
           msgq_queue_open(&items[2].queue, name, NULL) || msgq_vector_open(&items[3].vector, name, &options) ||
           msgq_board_open(&items[4].board, board, NULL) ||
           (items[4].index = msgq_board_declare(items[4].board, "key")) < 0;
}

static void close_all(const msgq_poll_item *items) {
    msgq_subscriber_close(items[0].subscriber);
    msgq_channel_subscriber_close(items[1].channel);
    msgq_queue_close(items[2].queue);
    msgq_vector_close(items[3].vector);
    msgq_board_close(items[4].board);
}

/* Handle all ready items. Returns 1 after a message of the queue, which ends the program. */
static int handle(msgq_poll_item *items) {
    char text[100];
    int64_t size;
    uint64_t index;
    double value;
    msgq_value info;
    if (items[0].ready && (size = msgq_subscriber_receive(items[0].subscriber, text, sizeof text, 0, NULL)) >= 0)
        printf("topic %.*s\n", (int)size, text);
    if (items[1].ready && (size = msgq_channel_receive(items[1].channel, text, sizeof text, 0, NULL)) >= 0)
        printf("channel %.*s\n", (int)size, text);
    if (items[3].ready && msgq_vector_changes(items[3].vector, &index, &value, 1) == 1)
        printf("vector %d %g\n", (int)index, value);
    if (items[4].ready && (size = msgq_board_read(items[4].board, items[4].index, text, sizeof text, &info)) >= 0) {
        items[4].count = info.count; /* the next poll waits for the next write */
        printf("board %.*s\n", (int)size, text);
    }
    if (!items[2].ready || (size = msgq_queue_receive(items[2].queue, text, sizeof text, 0, NULL)) < 0)
        return 0;
    printf("queue %.*s\n", (int)size, text);
    return 1;
}

int main(int argc, char **argv) {
    msgq_poll_item items[5] = {{.ready = 0}};
    struct sigaction action = {.sa_handler = interrupt}; /* without SA_RESTART, which signal(3) would set */
    int status = 0;
    if (argc != 2) {
        fprintf(stderr, "use: poll NAME\n");
        return 2;
    }
    sigaction(SIGINT, &action, NULL);
    if (open_all(items, argv[1]) != 0)
        return failed("open");
    puts("ready");
    while (fflush(stdout) == 0 && !interrupted && (status = msgq_poll(items, 5, -1)) > 0)
        if (handle(items))
            break;
    if (status < 0 && status != -EINTR)
        return failed("poll");
    puts(interrupted ? "interrupted" : "end");
    close_all(items);
    return 0;
}
