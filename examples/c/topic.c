/* Readings of a thermometer on a topic. "topic publish NAME COUNT" sends readings, and "topic subscribe NAME COUNT"
 * prints readings. */
#include <msgq/topic.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint64_t number;
    double celsius;
} reading;

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, msgq_error_text());
    return 1;
}

static int publish(const char *name, uint64_t count) {
    msgq_publisher *publisher;
    int attached = 0, sent = 0;
    if (msgq_publisher_open(&publisher, name, NULL) != 0)
        return failed("open");
    while (attached == 0)
        if (msgq_publisher_readers(publisher, &attached, NULL) != 0)
            return failed("readers");
    for (uint64_t i = 0; i < count && sent == 0; i++) {
        reading r = {i, 20.0 + 0.5 * (double)i};
        sent = msgq_publisher_send(publisher, &r, sizeof r);
    }
    msgq_publisher_close(publisher);
    return sent == 0 ? 0 : failed("send");
}

static int subscribe(const char *name, uint64_t count) {
    msgq_subscriber *subscriber;
    if (msgq_subscriber_open(&subscriber, name, NULL) != 0)
        return failed("open");
    puts("ready");
    fflush(stdout);
    for (uint64_t i = 0; i < count; i++) {
        reading r;
        if (msgq_subscriber_receive(subscriber, &r, sizeof r, 20.0, NULL) != (int64_t)sizeof r)
            return failed("receive");
        printf("%llu %.1f\n", (unsigned long long)r.number, r.celsius);
    }
    uint64_t received, lost;
    msgq_subscriber_counts(subscriber, &received, &lost);
    printf("received %llu, lost %llu\n", (unsigned long long)received, (unsigned long long)lost);
    msgq_subscriber_close(subscriber);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "use: topic publish|subscribe NAME COUNT\n");
        return 2;
    }
    uint64_t count = strtoull(argv[3], NULL, 10);
    return strcmp(argv[1], "publish") == 0 ? publish(argv[2], count) : subscribe(argv[2], count);
}
