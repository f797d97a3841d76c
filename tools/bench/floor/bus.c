/* A bus in C: processes that publish at a rate, and sleep until a message of another process arrives.
 *
 * bus NAME SECONDS CPU0 CPU1 MEMBERS TOPICS SUBSCRIBERS RATE BYTES
 *
 * Member i publishes topic i. Each topic has SUBSCRIBERS members, those after its publisher. With BENCH_MSGQ, the
 * members use the C library of msgq, otherwise the minimal ring. The program prints what all members together needed.
 */
#include "pair.h"

#include <sys/resource.h>

#ifdef BENCH_MSGQ
#include "msgq/poll.h"
#endif

enum { TOPICS_MAX = 64, AGES_MAX = 1 << 14, BYTES_MAX = 4096, NAME_MAX_BYTES = 256, RING_BYTES = 1 << 20 };

typedef struct {
    const char *name;
    double seconds;
    int cpus[2], members, topics, subscribers;
    uint64_t period_ns;
    size_t bytes;
} plan;

/* What a member needed between the warm-up and the end. */
typedef struct {
    uint64_t sent, deliveries, cpu_ns, switches, private_kib, shared_kib;
    uint32_t ages[AGES_MAX]; /* ns from the send to the end of the receive */
} costs;

typedef struct {
    _Atomic int ready;
    _Atomic uint64_t begin; /* ns of the clock; 0: not all members are ready */
    costs members[];
} board;

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* ---- the two systems ---- */

#ifdef BENCH_MSGQ

typedef struct {
    msgq_publisher *publisher;
    msgq_poll_item items[TOPICS_MAX];
    int count;
} ends;

static void open_publisher(ends *all, const char *topic) {
    if (msgq_publisher_open(&all->publisher, topic, NULL))
        fail(msgq_error_text());
}

static void open_subscriber(ends *all, const char *topic) {
    if (msgq_subscriber_open(&all->items[all->count++].subscriber, topic, NULL))
        fail(msgq_error_text());
}

static void send_message(ends *all, const void *message, size_t bytes) {
    msgq_publisher_send(all->publisher, message, bytes);
}

/* Wait for a message until a time in ns of the clock, and copy it. Return whether there was one. */
static bool take_message(ends *all, void *room, size_t bytes, uint64_t until) {
    uint64_t now = floor_now_ns();
    double timeout = until > now ? (double)(until - now) / 1e9 : 0;
    if (!all->count) {
        pause_for(timeout);
        return false;
    }
    if (all->count == 1)
        return msgq_subscriber_receive(all->items[0].subscriber, room, bytes, timeout, NULL) >= 0;
    for (bool polled = false;; polled = true) {
        for (int i = 0; i < all->count; i++) {
            msgq_poll_item *item = &all->items[i];
            bool is_ready = item->ready > 0;
            item->ready = 0;
            if (is_ready && msgq_subscriber_receive(item->subscriber, room, bytes, 0, NULL) >= 0)
                return true;
        }
        if (polled || msgq_poll(all->items, (size_t)all->count, timeout) < 0)
            return false;
    }
}

#else

typedef struct {
    floor_ring publisher, rings[TOPICS_MAX];
    floor_ring *subscribers[TOPICS_MAX];
    int count;
} ends;

static void open_ring(floor_ring *ring, const char *topic) {
    char path[NAME_MAX_BYTES];
    snprintf(path, sizeof path, "/dev/shm/%s", topic);
    if (floor_map(ring, path, RING_BYTES))
        fail(path);
}

static void open_publisher(ends *all, const char *topic) { open_ring(&all->publisher, topic); }

static void open_subscriber(ends *all, const char *topic) {
    open_ring(all->subscribers[all->count] = &all->rings[all->count], topic);
    all->count++;
}

static void send_message(ends *all, const void *message, size_t bytes) {
    floor_write(&all->publisher, message, bytes);
    floor_publish(&all->publisher);
    floor_wake(&all->publisher);
}

static bool take_message(ends *all, void *room, size_t bytes, uint64_t until) {
    (void)bytes;
    for (;;) {
        for (int i = 0; i < all->count; i++) {
            uint64_t size;
            const unsigned char *payload = floor_peek(all->subscribers[i], &size);
            if (payload) {
                memcpy(room, payload, size);
                floor_advance(all->subscribers[i], size);
                return true;
            }
        }
        uint64_t now = floor_now_ns();
        if (now >= until)
            return false;
        if (all->count)
            floor_sleep(all->subscribers, (unsigned)all->count, (int64_t)until);
        else
            pause_for((double)(until - now) / 1e9);
    }
}

#endif

/* ---- a member ---- */

static void open_ends(const plan *all, int member, ends *own) {
    char topic[NAME_MAX_BYTES];
    for (int i = 0; i < all->topics; i++) {
        snprintf(topic, sizeof topic, "%s-%d", all->name, i);
        int after =
            (member - i + all->members) % all->members; /* this member comes so many places after its publisher */
        if (!after)
            open_publisher(own, topic);
        else if (after <= all->subscribers)
            open_subscriber(own, topic);
    }
}

/* Publish and take until a time in ns of the clock. `due` is the time of the next message; UINT64_MAX: none. */
static void run_until(const plan *all, ends *own, uint64_t *due, uint64_t until, costs *spent) {
    unsigned char message[BYTES_MAX] = {0}, room[BYTES_MAX];
    for (;;) {
        uint64_t now = floor_now_ns(), sent_at;
        if (now >= until)
            return;
        if (now >= *due) {
            memcpy(message, &now, sizeof now);
            send_message(own, message, all->bytes);
            spent->sent++;
            *due += all->period_ns;
        } else if (take_message(own, room, sizeof room, *due < until ? *due : until)) {
            memcpy(&sent_at, room, sizeof sent_at);
            if (spent->deliveries < AGES_MAX)
                spent->ages[spent->deliveries] = (uint32_t)(floor_now_ns() - sent_at);
            spent->deliveries++;
        }
    }
}

static void read_costs(costs *spent) {
    struct rusage usage;
    struct timespec cpu;
    getrusage(RUSAGE_SELF, &usage);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    spent->switches = (uint64_t)(usage.ru_nvcsw + usage.ru_nivcsw) - spent->switches;
    spent->cpu_ns = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec - spent->cpu_ns;
}

static void read_memory(costs *spent) {
    char line[256], kind[32];
    unsigned long kib;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%31[A-Za-z]_%*[A-Za-z]: %lu", kind, &kib) != 2)
            continue;
        if (!strcmp(kind, "Private"))
            spent->private_kib += kib;
        if (!strcmp(kind, "Shared"))
            spent->shared_kib += kib;
    }
    if (file)
        fclose(file);
}

static void be_member(const plan *all, int member, board *state) {
    ends own = {0};
    settle(all->cpus[member % 2]);
    open_ends(all, member, &own);
    atomic_fetch_add(&state->ready, 1);
    while (!atomic_load(&state->begin))
        pause_for(0.001);
    uint64_t begin = atomic_load(&state->begin), measured_ns = (uint64_t)(all->seconds * 1e9);
    uint64_t warm_until = begin + measured_ns / 4;
    uint64_t due = UINT64_MAX;
    if (member < all->topics)
        due = begin + all->period_ns * (uint64_t)member / (uint64_t)all->topics;
    costs *spent = &state->members[member];
    run_until(all, &own, &due, warm_until, spent);
    memset(spent, 0, sizeof *spent);
    read_costs(spent);
    run_until(all, &own, &due, warm_until + measured_ns, spent);
    read_costs(spent);
    read_memory(spent);
    exit(0);
}

/* ---- all members ---- */

static void print_costs(const plan *all, const board *state) {
    costs sum = {0};
    const char *comma = "";
    printf("{\"samples\": [");
    for (int i = 0; i < all->members; i++) {
        const costs *each = &state->members[i];
        for (uint64_t n = 0; n < each->deliveries && n < AGES_MAX; n++, comma = ", ")
            printf("%s%u", comma, each->ages[n]);
        sum.sent += each->sent;
        sum.deliveries += each->deliveries;
        sum.cpu_ns += each->cpu_ns;
        sum.switches += each->switches;
        sum.private_kib += each->private_kib;
        sum.shared_kib += each->shared_kib;
    }
    printf("], \"processes\": %d, \"sent\": %llu, \"deliveries\": %llu, \"cpu_ns\": %llu, \"switches\": %llu, "
           "\"private\": %llu, \"shared\": %llu}\n",
           all->members, (unsigned long long)sum.sent, (unsigned long long)sum.deliveries,
           (unsigned long long)sum.cpu_ns, (unsigned long long)sum.switches, (unsigned long long)sum.private_kib << 10,
           (unsigned long long)sum.shared_kib << 10);
}

int main(int count, char **words) {
    if (count != 10)
        return 2;
    plan all = {words[1],       atof(words[2]), {atoi(words[3]), atoi(words[4])}, atoi(words[5]),
                atoi(words[6]), atoi(words[7]), (uint64_t)(1e9 / atof(words[8])), strtoull(words[9], NULL, 10)};
    if (all.topics > TOPICS_MAX || all.bytes > BYTES_MAX)
        return 2;
    board *state = share(sizeof *state + (size_t)all.members * sizeof(costs));
    for (int member = 0; member < all.members; member++)
        if (fork() == 0)
            be_member(&all, member, state);
    signal(SIGCHLD, SIG_DFL);
    while (atomic_load(&state->ready) < all.members) {
        int status;
        if (waitpid(-1, &status, WNOHANG) > 0)
            return 1; /* the member has printed the reason; the others end with this process */
        pause_for(0.001);
    }
    atomic_store(&state->begin, floor_now_ns() + 20000000);
    int status, failed = 0;
    while (wait(&status) > 0)
        failed |= status;
    if (failed)
        return 1;
    print_costs(&all, state);
    return 0;
}
