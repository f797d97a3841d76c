/* Publishers of a channel that do what they are told, line by line; says what each call returned, and its text. */
#include <msgq/channel.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS_MAX = 32, ROOM = 1 << 20 };

static msgq_channel_publisher *publisher, *of_threads[THREADS_MAX];
static pthread_barrier_t barrier;
static char name[256], data[ROOM];

static long long opened(unsigned long long slot_bytes) {
    msgq_channel_options options;
    memset(&options, 0, sizeof options);
    options.slot_bytes = slot_bytes;
    msgq_channel_publisher_close(publisher); /* in a forked child: of the parent */
    return msgq_channel_publisher_open(&publisher, name, &options);
}

static void *open_in_thread(void *to) {
    pthread_barrier_wait(&barrier);
    msgq_channel_publisher_open(to, name, NULL);
    return NULL;
}

/* Open publishers in as many threads at once. Returns the number of publishers. */
static long long opened_at_once(int count) {
    pthread_t threads[THREADS_MAX];
    long long made = 0;
    pthread_barrier_init(&barrier, NULL, (unsigned)count);
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, open_in_thread, &of_threads[i]);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < count; i++)
        made += of_threads[i] != NULL;
    return made;
}

/* Returns in the child. The parent ends with it. */
static long long forked(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        return getpid();
    exit(waitpid(child, &status, 0) == child ? status : 1);
}

static long long did(const char *line) {
    unsigned long long number = 0;
    if (sscanf(line, "open %255s %llu", name, &number) == 2)
        return opened(number);
    if (sscanf(line, "threads %255s %llu", name, &number) == 2)
        return opened_at_once((int)number);
    if (sscanf(line, "send %llu", &number) == 1)
        return msgq_channel_send(publisher, data, number, 0);
    return forked();
}

int main(void) {
    char line[300];
    setvbuf(stdout, NULL, _IONBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        long long result = did(line);
        printf("%lld %s\n", result, result < 0 ? msgq_error_text() : "");
    }
    msgq_channel_publisher_close(publisher);
    for (int i = 0; i < THREADS_MAX; i++)
        msgq_channel_publisher_close(of_threads[i]);
    return 0;
}
