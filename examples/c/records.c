/* Quotes in a vector. "records write NAME COUNT" writes quotes. "records watch NAME COUNT" prints changes until
 * COUNT changes were reported. "records hold NAME 1" writes a quote, and then waits. */
#include <msgq/records.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    double price;
    int64_t size;
} quote;

enum { QUOTES = 8 };

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, msgq_error_text());
    return 1;
}

static int write_quotes(msgq_vector *vector, int count, int hold) {
    for (int i = 0; i < count; i++) {
        quote q = {100.0 + i, 10 * i};
        if (msgq_vector_write(vector, (uint64_t)(i % QUOTES), 1, &q, 1.0) != 0)
            return failed("write");
    }
    if (hold)
        puts("written"), fflush(stdout);
    while (hold)
        pause();
    return 0;
}

static int watch(msgq_vector *vector, int count) {
    uint64_t indices[QUOTES];
    quote quotes[QUOTES];
    puts("ready");
    fflush(stdout);
    while (count > 0) {
        if (msgq_vector_wait(vector, 20.0) != 0)
            return failed("wait");
        int64_t changed = msgq_vector_changes(vector, indices, quotes, QUOTES);
        if (changed < 0)
            return failed("changes");
        for (int64_t i = 0; i < changed; i++)
            printf("%llu %.1f %lld\n", (unsigned long long)indices[i], quotes[i].price, (long long)quotes[i].size);
        fflush(stdout);
        count -= (int)changed;
    }
    return 0;
}

int main(int argc, char **argv) {
    msgq_vector_options options = {
        .dtype = "[[\"price\", \"<f8\"], [\"size\", \"<i8\"]]", .item_bytes = sizeof(quote), .length = QUOTES};
    msgq_vector *vector;
    if (argc != 4) {
        fprintf(stderr, "use: records write|watch|hold NAME COUNT\n");
        return 2;
    }
    if (msgq_vector_open(&vector, argv[2], &options) != 0)
        return failed("open");
    int count = atoi(argv[3]);
    int watches = strcmp(argv[1], "watch") == 0;
    int status = watches ? watch(vector, count) : write_quotes(vector, count, argv[1][0] == 'h');
    msgq_vector_close(vector);
    return status;
}
