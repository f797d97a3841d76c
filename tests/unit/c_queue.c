/* A handle of a queue that does what it is told, line by line; says what each call returned, and its text. */
#include <msgq/queue.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JOBS = 8, ROOM = 1 << 20 };

static msgq_queue *queue;
static msgq_job jobs[JOBS];
static char text[256], data[ROOM];

static long long opened(int create, int messages, int size, int events) {
    msgq_queue_options options;
    memset(&options, 0, sizeof options);
    options.open.create = create, options.events = events;
    options.max_messages = (uint32_t)messages, options.max_message_size = (uint32_t)size;
    return msgq_queue_open(&queue, text, &options);
}

/* A child may only close what it finds. */
static long long forked(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        int sent = msgq_queue_send(queue, "x", 1, 0, 0);
        msgq_queue_close(queue);
        exit(sent == -ECHILD ? 0 : 1);
    }
    return waitpid(child, &status, 0) == child ? status : -1;
}

static long long did(const char *line) {
    int one = 0, two = 0, three = 0, four = 0;
    if (sscanf(line, "open %255s %d %d %d %d", text, &one, &two, &three, &four) == 5)
        return opened(one, two, three, four);
    if (sscanf(line, "send %d %255s", &one, text) == 2)
        return msgq_queue_send(queue, text, strlen(text), one, 0);
    if (sscanf(line, "fill %d", &one) == 1)
        return msgq_queue_send(queue, memset(data, 'x', ROOM), (size_t)one, 0, 0);
    if (sscanf(line, "receive %d", &one) == 1)
        return msgq_queue_receive(queue, data, (size_t)one, 0, NULL);
    if (sscanf(line, "take %d %d", &one, &two) == 2)
        return msgq_queue_take(queue, data, sizeof data, 20, two / 1000.0, &jobs[one], NULL);
    if (sscanf(line, "acknowledge %d", &one) == 1)
        return msgq_queue_acknowledge(queue, &jobs[one]);
    if (sscanf(line, "return %d", &one) == 1)
        return msgq_queue_return(queue, &jobs[one]);
    if (sscanf(line, "origin %d", &one) == 1)
        return msgq_set_origin(one), 0;
    if (strcmp(line, "fork\n") == 0)
        return forked();
    if (strcmp(line, "close\n") == 0)
        return msgq_queue_close(queue), 0;
    return -ENOSYS;
}

int main(void) {
    char line[512];
    while (fgets(line, sizeof line, stdin)) {
        long long result = did(line);
        printf("%lld %s\n", result, msgq_error_text());
        fflush(stdout);
    }
    return 0;
}
