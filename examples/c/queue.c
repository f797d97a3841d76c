/* Jobs on a work queue. "queue send NAME COUNT" sends jobs. "queue work NAME COUNT" works on jobs. "queue hang NAME
 * 1" takes a job, and then waits. */
#include <msgq/queue.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, msgq_error_text());
    return 1;
}

static int send_jobs(msgq_queue *queue, int count) {
    char text[32];
    for (int i = 0; i < count; i++) {
        int size = snprintf(text, sizeof text, "job %d", i);
        if (msgq_queue_send(queue, text, (size_t)size, i % 2, 20.0) != 0)
            return failed("send");
    }
    return 0;
}

static int work(msgq_queue *queue, int count, int hang) {
    char text[8192];
    for (int i = 0; i < count; i++) {
        msgq_job job;
        msgq_message info;
        int64_t size = msgq_queue_take(queue, text, sizeof text, 20.0, 0, &job, &info);
        if (size < 0)
            return failed("take");
        printf("%.*s, priority %d, delivery %d\n", (int)size, text, info.priority, (int)info.deliveries);
        fflush(stdout);
        while (hang)
            pause(); /* if this process is killed, the queue gives the job to another process */
        if (msgq_queue_acknowledge(queue, &job) != 0)
            return failed("acknowledge");
    }
    return 0;
}

int main(int argc, char **argv) {
    msgq_queue *queue;
    if (argc != 4) {
        fprintf(stderr, "use: queue send|work|hang NAME COUNT\n");
        return 2;
    }
    if (msgq_queue_open(&queue, argv[2], NULL) != 0)
        return failed("open");
    int count = atoi(argv[3]);
    int status = strcmp(argv[1], "send") == 0 ? send_jobs(queue, count) : work(queue, count, argv[1][0] == 'h');
    msgq_queue_close(queue);
    return status;
}
