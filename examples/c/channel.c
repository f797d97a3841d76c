/* A chat on a channel. "channel say NAME COUNT" sends lines, and "channel listen NAME COUNT" prints lines. */
#include <msgq/channel.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, msgq_error_text());
    return 1;
}

static int say(const char *name, int count) {
    msgq_channel_options options = {.node = "speaker"};
    msgq_channel_publisher *publisher;
    char text[32];
    if (msgq_channel_publisher_open(&publisher, name, &options) != 0)
        return failed("open");
    for (int i = 0; i < count; i++) {
        int size = snprintf(text, sizeof text, "line %d", i);
        if (msgq_channel_send(publisher, text, (size_t)size, 20.0) < 0)
            return failed("send");
    }
    msgq_channel_publisher_close(publisher);
    return 0;
}

static int listen(const char *name, int count) {
    msgq_channel_options options = {.node = "listener", .history = 64};
    msgq_channel_subscriber *subscriber;
    msgq_message info;
    char text[4096];
    if (msgq_channel_subscriber_open(&subscriber, name, &options) != 0)
        return failed("open");
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < count; i++) {
        int64_t size = msgq_channel_receive(subscriber, text, sizeof text, 20.0, &info);
        if (size < 0)
            return failed("receive");
        printf("%s: %.*s\n", info.publisher, (int)size, text);
        fflush(stdout);
    }
    uint64_t received, lost;
    msgq_channel_counts(subscriber, &received, &lost);
    printf("received %llu, lost %llu\n", (unsigned long long)received, (unsigned long long)lost);
    msgq_channel_subscriber_close(subscriber);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "use: channel say|listen NAME COUNT\n");
        return 2;
    }
    int count = atoi(argv[3]);
    return strcmp(argv[1], "say") == 0 ? say(argv[2], count) : listen(argv[2], count);
}
