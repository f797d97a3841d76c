/* The stock peer: a stand-in for a stock msgq process in the interoperation tests; see stock.h.
 *
 * A peer is driven by lines on stdin and answers each with one line on stdout; `commands` at the end lists them.
 */
#include "payload.h"
#include "stock.h"

typedef struct {
    uint64_t count, torn, duplicated, reordered, lost;
    int64_t first, last;
} Tally;

static bool all_readers_updated(void) {
    Header *header = queue.header;
    for (uint64_t i = 0; i < header->num_readers && i < SLOTS; i++)
        if (!header->read_valids[i] || offset_of(header->read_pointers[i]) != offset_of(header->write_pointer))
            return false;
    return header->num_readers > 0;
}

static void count(Tally *tally, int64_t size) {
    uint32_t sequence = 0;
    tally->count++;
    if (!intact(message, (uint64_t)size, &sequence)) {
        tally->torn++;
        return;
    }
    if (tally->first < 0)
        tally->first = sequence;
    else if (sequence > tally->last)
        tally->lost += (uint64_t)(sequence - tally->last - 1);
    tally->duplicated += sequence == tally->last;
    tally->reordered += sequence < tally->last;
    tally->last = sequence;
}

/* ---- commands ---- */

static void reply_to_send(int result, uint64_t sent) {
    printf(result == 0 ? "sent %" PRIu64 "\n" : "error %" PRIu64 "\n", result == 0 ? sent : (uint64_t)errno);
}

static void do_open(void) {
    char role[8], endpoint[256];
    unsigned conflate = 0;
    uint64_t size;
    if (sscanf(rest, "%7s %255s %" SCNu64 " %u", role, endpoint, &size, &conflate) != 4)
        exit(EXIT_USAGE);
    if (map_segment(endpoint, size) != 0) {
        printf("error %d\n", errno);
        return;
    }
    queue.conflate = conflate != 0;
    strcmp(role, "pub") == 0 ? start_publisher() : join();
    printf("opened %" PRIu64 "\n", queue.uid);
}

static void do_arm(void) {
    char action[8];
    if (sscanf(rest, "%31s %7s %" SCNu64, armed.name, action, &armed.bytes) != 3)
        exit(EXIT_USAGE);
    armed.exits = strcmp(action, "exit") == 0;
    printf("armed\n");
}

/* send SEQUENCE SIZE */
static void do_send(void) {
    compose(message, (uint32_t)arguments[0], (uint32_t)arguments[1]);
    reply_to_send(publish(arguments[1]), 1);
}

/* flood FIRST COUNT SMALLEST LARGEST SEED */
static void do_flood(void) {
    uint64_t sent = 0, spread = arguments[3] - arguments[2] + 1;
    int result = 0;
    while (sent < arguments[1] && result == 0) {
        uint64_t size = arguments[2] + mixed(arguments[4] + sent) % spread;
        compose(message, (uint32_t)(arguments[0] + sent), (uint32_t)size);
        result = publish(size);
        sent++;
    }
    reply_to_send(result, sent);
}

/* receive TIMEOUT_MS */
static void do_receive(void) {
    const char *how;
    uint32_t sequence = 0;
    int64_t size = receive_within(arguments[0], &how);
    bool good = size > 0 && intact(message, (uint64_t)size, &sequence);
    printf("received %" PRId64 " %" PRIu32 " %d %s\n", size, sequence, good, how);
}

/* collect LAST_SEQUENCE NAP_MS SPIN: until that sequence was seen; with no nap, what is there now */
static void do_collect(void) {
    Tally tally = {.first = -1, .last = -1};
    const char *how;
    while (tally.last < (int64_t)arguments[0]) {
        int64_t size = receive_within(arguments[1], &how);
        if (size == 0 && arguments[1] == 0)
            break;
        if (size > 0)
            count(&tally, size);
        for (volatile uint64_t spin = 0; spin < arguments[2]; spin++)
            ;
    }
    printf("collected %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 "\n",
           tally.count, tally.torn, tally.duplicated, tally.reordered, tally.lost, tally.first, tally.last);
}

static void do_header(void) {
    Word *words = (Word *)queue.header;
    printf("header");
    for (size_t i = 0; i < sizeof(Header) / sizeof(Word); i++)
        printf(" %" PRIu64, words[i]);
    printf("\n");
}

static void do_state(void) { printf("state %d %" PRIu64 " %d\n", queue.slot, queue.resets, all_readers_updated()); }

/* Become another program with the same thread id, which no longer catches the signal. */
static void do_exec(void) {
    printf("replaced\n");
    fflush(stdout);
    execlp(rest, rest, (char *)NULL);
    _exit(EXIT_USAGE);
}

static const Command commands[] = {
    {"open", do_open},       {"arm", do_arm},       {"send", do_send},   {"flood", do_flood}, {"receive", do_receive},
    {"collect", do_collect}, {"header", do_header}, {"state", do_state}, {"exec", do_exec},
};

int main(void) {
    fill_crc_table();
    return run_commands(commands, sizeof commands / sizeof commands[0]);
}
