/* A participant of each kind that holds its row. Leaves a child, says the child's pid, and closes what it is told. */
#include <msgq.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static msgq_publisher *publisher;
static msgq_subscriber *subscriber;
static msgq_channel_publisher *channel_publisher;
static msgq_channel_subscriber *channel_subscriber;
static msgq_queue *queue;
static msgq_vector *vector;
static msgq_board *board;

static int opened(const char *name) {
    double item = 1;
    msgq_queue_options queue_options = {.max_messages = 4, .max_message_size = 16};
    msgq_vector_options vector_options = {.dtype = "<f8", .item_bytes = sizeof item, .length = 4};
    msgq_board_options board_options = {.keys = 4, .value_bytes = 16};
    char board_name[256];
    snprintf(board_name, sizeof board_name, "%s-board", name);
    return msgq_publisher_open(&publisher, name, NULL) == 0 && msgq_subscriber_open(&subscriber, name, NULL) == 0 &&
           msgq_channel_publisher_open(&channel_publisher, name, NULL) == 0 &&
           msgq_channel_subscriber_open(&channel_subscriber, name, NULL) == 0 &&
           msgq_queue_open(&queue, name, &queue_options) == 0 &&
           msgq_vector_open(&vector, name, &vector_options) == 0 && msgq_vector_write(vector, 0, 1, &item, 0) == 0 &&
           msgq_board_open(&board, board_name, &board_options) == 0 && msgq_board_declare(board, "key") >= 0;
}

static void closed(const char *kind) {
    if (strcmp(kind, "publisher") == 0)
        msgq_publisher_close(publisher);
    if (strcmp(kind, "subscriber") == 0)
        msgq_subscriber_close(subscriber);
    if (strcmp(kind, "channel-publisher") == 0)
        msgq_channel_publisher_close(channel_publisher);
    if (strcmp(kind, "channel-subscriber") == 0)
        msgq_channel_subscriber_close(channel_subscriber);
    if (strcmp(kind, "queue") == 0)
        msgq_queue_close(queue);
    if (strcmp(kind, "vector") == 0)
        msgq_vector_close(vector);
    if (strcmp(kind, "board") == 0)
        msgq_board_close(board);
}

int main(int count, char **words) {
    char kind[64];
    if (count != 2 || !opened(words[1])) {
        fprintf(stderr, "%s\n", msgq_error_text());
        return 1;
    }
    pid_t child = fork();
    while (child == 0)
        pause();
    printf("%d\n", (int)child);
    fflush(stdout);
    while (scanf("%63s", kind) == 1) {
        closed(kind);
        printf("closed\n");
        fflush(stdout);
    }
    kill(child, SIGKILL);
    return 0;
}
