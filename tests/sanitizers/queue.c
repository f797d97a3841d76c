/* A work queue under stress: senders and consumers that come, die and leave, sleep on real futexes, and are told. Usage:
 * queue SECONDS SEED PROCESSES. With PROCESSES, as many of them work beside the threads of the first, and are killed at
 * any time. Prints what was done; ends with 1 and a text when something was wrong.
 *
 * What: every word of a message is its sender and its number. It is written and read in its slot, by plain accesses.
 * Each message is acknowledged once; those of one sender and priority come to each consumer in the order in which they
 * were sent; nothing that waits is left waiting; a message that was taken without a lease stays its taker's.
 * Why: slots are plain memory that is written again and again; only words say when.
 * Failure would mean: a message is torn, lost, done twice or out of order, or somebody sleeps beside it.
 *
 * What the thread sanitizer can say here: whether EDGE message, free and lease order the plain accesses to a slot. It does
 * not see other processes, so with them copies are made as the library makes them. What it cannot say: whether fences are
 * strong enough; there, messages and their order count, and the orders that tests/headers and tests/meta check.
 */
#include "queue_member.h"

enum { SENDS = 2, PROCESSES_MAX = SENDERS - SENDS };

/* ---- messages ---- */

static uint64_t *place_of(member *m, uint64_t slot) {
    return (uint64_t *)(void *)mq_queue_get_slot_payload(&m->h, slot);
}

static void fill(uint64_t *at, uint64_t word, uint64_t words) {
    for (uint64_t i = 0; i < words; i++)
        if (plain)
            at[i] = word;
        else
            mq_copy_to_shared(&at[i], &word, 8);
}

static void verify(const uint64_t *at, uint64_t words, uint64_t word) {
    for (uint64_t i = 0; i < words; i++) {
        uint64_t found = 0;
        if (plain)
            found = at[i];
        else
            mq_copy_from_shared(&found, &at[i], 8);
        if (found != word)
            wrong("a message is another one's in part", found, word);
    }
    mq_fence_compiler(); /* look again the next time */
}

static void send_one(member *m, uint64_t sender, uint64_t number) {
    uint64_t word = sender << 48 | number, words = 1 + below(WORDS);
    int64_t slot, until = mq_monotonic_ns() + (int64_t)STUCK_MS * MQ_NS_PER_MS;
    while ((slot = mq_queue_claim_free_slot(&m->h, ticket())) == MQ_QUEUE_NO_SLOT) {
        m->h.saw_owned_slots = true;
        look(m);
        pthread_mutex_lock(&m->lock);
        rest(m, MQ_QUEUE_SENDER);
        pthread_mutex_unlock(&m->lock);
        if (mq_monotonic_ns() > until)
            wrong("no slot becomes free", word, 0);
        if (all->stop || below(64) == 0) { /* it gives up: the wake was for another one, perhaps */
            mq_queue_forward_sender_wake(&m->h);
            end_wait(m);
            all->skipped++;
            return;
        }
    }
    end_wait(m);
    fill(place_of(m, (uint64_t)slot), word, words);
    if (below(4096) == 0) {
        all->skipped++;
        if (below(2)) { /* with what it holds */
            go(m, true);
            come(m);
        } else
            mq_queue_release_unsent_slot(&m->h, (uint64_t)slot);
        return;
    }
    mq_queue_commit_message(&m->h, (uint64_t)slot, 8 * words, number % PRIORITIES, (uint64_t)mq_monotonic_ns(), word);
    mq_queue_wake_receivers(parts.queue, 1);
    all->sent++;
}

/* Somebody takes it, though nothing more is sent. */
static void await(uint64_t sender, uint64_t number, uint64_t skipped) {
    int64_t until = mq_monotonic_ns() + (int64_t)STUCK_MS * MQ_NS_PER_MS;
    while (!all->sender[sender].done[number] && all->skipped == skipped && !all->stop) {
        if (mq_monotonic_ns() > until)
            wrong("a message waits, and nobody takes it", sender, number);
        usleep(100);
    }
}

static void *run_sender(void *argument) {
    uint64_t me = (uint64_t)(uintptr_t)argument;
    member m;
    chance = seed * 7919ull + me + (uint64_t)getpid();
    come(&m);
    while (!all->stop) {
        uint64_t number = ++all->sender[me].begun, skipped = all->skipped;
        if (number >= NUMBERS) {
            all->sender[me].begun--;
            break;
        }
        send_one(&m, me, number);
        if (plain && below(64) == 0)
            await(me, number, skipped);
        if (below(4096) == 0) {
            go(&m, below(2));
            come(&m);
        }
    }
    go(&m, false);
    return NULL;
}

/* ---- consumers ---- */

static void check_head(member *m, const mq_queue_taken_message *t) {
    uint64_t word = t->origin_time, sender = word >> 48, number = word & 0xFFFFFFFFFFFFull;
    if (sender >= SENDERS || number >= NUMBERS || t->length % 8 || t->length > 8 * WORDS || t->length == 0)
        wrong("a head", t->length, word);
    uint64_t *last = &m->last[sender][number % PRIORITIES];
    if (t->deliveries == 1 && number <= *last)
        wrong("out of order", word, *last);
    if (t->deliveries == 1)
        *last = number;
}

static void acknowledge(member *m, const mq_queue_taken_message *t, bool leased) {
    uint64_t word = t->origin_time;
    if (mq_queue_free_taken_slot(&m->h, t)) {
        if (all->sender[word >> 48].done[word & 0xFFFFFFFFFFFFull]++)
            wrong("a message is done twice", word, t->word);
        all->acked++;
    } else if (!leased)
        wrong("a message went away under its taker", word, t->word);
    else
        all->expired++;
}

/* With a lease (of ticks of 10 ms) that a slow one outlives. */
static void lease(member *m, const mq_queue_taken_message *t) {
    uint32_t tick = mq_job_lease_convert_to_ticks((uint64_t)mq_monotonic_ns());
    mq_queue_set_job_lease(&m->h, t, tick + 1 + below(3));
    if (below(64))
        return;
    pthread_mutex_unlock(&m->lock);
    usleep(below(60000));
    pthread_mutex_lock(&m->lock);
}

/* Take one, the lock being held. False: nothing is there. */
static bool consume(member *m, bool leases) {
    mq_queue_taken_message t;
    mq_queue_status status = mq_queue_take_message(&m->h, ticket(), &t);
    if (status == MQ_QUEUE_EMPTY)
        return false;
    if (status != MQ_QUEUE_OK)
        wrong("no message", (uint64_t)status, 0);
    end_wait(m);
    check_head(m, &t);
    pthread_mutex_unlock(&m->lock); /* as a copy is made */
    verify(place_of(m, t.slot), t.length / 8, t.origin_time);
    if (below(64) == 0)
        sched_yield();
    verify(place_of(m, t.slot), t.length / 8, t.origin_time);
    pthread_mutex_lock(&m->lock);
    bool leased = leases && below(2);
    if (leased)
        lease(m, &t);
    if (leases && (leased || m != &shared) && below(64) == 0)
        return true; /* it is left as it is until the handle goes, or its lease is over */
    if (leases && below(16) == 0) {
        mq_queue_requeue_message(&m->h, t.slot, t.word);
        all->nacked++;
    } else
        acknowledge(m, &t, leased);
    return true;
}

/* Two threads share a handle. */
static void *run_receiver(void *argument) {
    chance = seed * 31 + (uint64_t)(uintptr_t)argument;
    pthread_mutex_lock(&shared.lock);
    while (!all->stop) {
        look(&shared);
        if (!consume(&shared, true))
            rest(&shared, MQ_QUEUE_RECEIVER);
        pthread_mutex_unlock(&shared.lock);
        if (below(64) == 0)
            sched_yield();
        pthread_mutex_lock(&shared.lock);
    }
    end_wait(&shared);
    pthread_mutex_unlock(&shared.lock);
    return NULL;
}

static void *run_consumer(void *argument) {
    member m;
    chance = seed * 17 + (uint64_t)(uintptr_t)argument + (uint64_t)getpid();
    while (!all->stop) {
        come(&m);
        pthread_mutex_lock(&m.lock);
        for (uint32_t rounds = 1 + below(4096); rounds && !all->stop; rounds--) {
            look(&m);
            while (!consume(&m, true) && !all->stop) {
                rest(&m, MQ_QUEUE_RECEIVER);
                if (below(64) == 0) { /* as senders do */
                    mq_queue_forward_wake_and_notify(&m.h);
                    end_wait(&m);
                    rounds = 1;
                    break;
                }
            }
        }
        end_wait(&m);
        pthread_mutex_unlock(&m.lock);
        go(&m, below(2));
    }
    return NULL;
}

/* ---- those who look on ---- */

/* As the watcher thread: it wants to know, and takes nothing. */
static void *run_watcher(void *argument) {
    member m;
    mq_queue_poll_state outlook = {.watcher_count = 0};
    chance = seed + (uint64_t)(uintptr_t)argument;
    come(&m);
    outlook.h = m.h;
    mq_u32 *word = mq_queue_get_eventcount(&m.h, MQ_QUEUE_WATCHER);
    while (!all->stop) {
        uint32_t seen = mq_queue_poll_prepare_wait(&outlook, word);
        if (!mq_queue_poll_has_more(&outlook))
            mq_futex_wait(mq_futex_word(word), seen, mq_monotonic_ns() + 2 * (int64_t)MQ_NS_PER_MS);
        mq_queue_poll_end_wait(&outlook);
        all->watched++;
        usleep(below(20000)); /* while nobody watches, wakes are for one */
    }
    go(&m, false);
    return NULL;
}

/* Wants to be told; and looks for the dead all the time. */
static void *run_told(void *argument) {
    member m;
    mq_queue_notification notification = {.seen_notify_seq = {0}};
    chance = seed + (uint64_t)(uintptr_t)argument;
    while (!all->stop) {
        come(&m);
        notification.h = m.h;
        mq_queue_notification_consume(&notification);
        for (int rounds = 0; rounds < 40 && !all->stop; rounds++) {
            if (rounds == 20)
                mq_queue_set_row_bit(&parts.queue->notify_requested, m.h.row_number);
            uint32_t seen = mq_queue_notification_prepare_wait(&notification, &parts.queue->notify_seq);
            if (!mq_queue_notification_is_due(&notification))
                mq_futex_wait(mq_futex_word(&parts.queue->notify_seq), seen, mq_monotonic_ns() + MQ_NS_PER_MS);
            all->told += mq_queue_notification_consume(&notification);
            mq_queue_recover(&m.h, mq_monotonic_ns());
            all->swept++;
        }
        go(&m, below(2));
    }
    return NULL;
}

/* ---- processes ---- */

/* One that plays a role in a child of its own, which it kills. */
static void run_process(uint64_t number) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    chance = seed + number;
    while (!all->stop) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (below(2))
                run_sender((void *)(uintptr_t)(SENDS + number));
            else
                run_consumer((void *)(uintptr_t)number);
            _exit(0);
        }
        int status = 0;
        usleep(below(60000));
        kill(child, SIGKILL);
        if (child < 0 || waitpid(child, &status, 0) != child || (WIFEXITED(status) && WEXITSTATUS(status)))
            wrong("a child", (uint64_t)child, (uint64_t)status);
        all->killed++;
        below(2);
    }
    _exit(0);
}

/* ---- the program ---- */

static void make_queue(void) {
    struct stat found;
    mq_error error;
    size_t bytes = mq_queue_compute_file_bytes(SLOTS, 8 * WORDS);
    liveness_file.fd = memfd_create("queue", MFD_CLOEXEC);
    if (liveness_file.fd < 0 || ftruncate(liveness_file.fd, (off_t)bytes) || fstat(liveness_file.fd, &found))
        wrong("no file", 0, 0);
    liveness_file.device = found.st_dev;
    liveness_file.inode = found.st_ino;
    mq_queue *queue = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, liveness_file.fd, 0);
    if (queue == MAP_FAILED)
        wrong("no memory", 0, 0);
    mq_queue_write_file_header(queue, SLOTS, 8 * WORDS, 1, &(mq_process_identity){.pid = 1}, MQ_QUEUE_EVENTS_NONE);
    if (mq_queue_check_sized_file(queue, bytes, "", &parts, &error))
        wrong("its own queue", 0, 0);
}

/* All is over: what is left is taken, and each message was done once. A process that was killed may have done one of
 * which nothing is in the books. */
static void settle(void) {
    member m;
    uint64_t missing = 0, expected = all->skipped + all->killed;
    come(&m);
    mq_queue_recover(&m.h, mq_monotonic_ns());
    pthread_mutex_lock(&m.lock);
    memset(m.last, 0, sizeof m.last);
    while (consume(&m, false))
        ;
    pthread_mutex_unlock(&m.lock);
    for (uint64_t slot = 0; slot < SLOTS; slot++)
        if (mq_load_acquire_u64(&parts.slot_states[slot]))
            wrong("a slot is nobody's, and not free", slot, mq_load_acquire_u64(&parts.slot_states[slot]));
    for (int sender = 0; sender < SENDERS; sender++)
        for (uint64_t number = 1; number <= all->sender[sender].begun; number++)
            missing += !all->sender[sender].done[number];
    if (missing > expected || (plain && missing < expected))
        wrong("messages are lost, or those that were never sent were done", missing, expected);
    go(&m, false);
}

int main(int argc, char **argv) {
    void *(*roles[])(void *) = {run_sender,   run_sender,   run_receiver, run_receiver,
                                run_consumer, run_consumer, run_watcher,  run_told};
    enum { THREADS = sizeof roles / sizeof *roles };
    pthread_t threads[THREADS];
    pid_t processes[PROCESSES_MAX];
    if (argc != 4 || atoi(argv[3]) > PROCESSES_MAX)
        return fprintf(stderr, "usage: queue SECONDS SEED PROCESSES\n"), 2;
    seed = (unsigned)strtoul(argv[2], NULL, 10);
    int count = atoi(argv[3]);
    plain = count == 0;
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    make_queue();
    for (int i = 0; i < count; i++)
        if ((processes[i] = fork()) == 0)
            run_process((uint64_t)i);
    chance = seed;
    come(&shared);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, roles[i], (void *)i);
    usleep((useconds_t)(atof(argv[1]) * 1e6));
    all->stop = true;
    for (int i = 0; i < THREADS; i++)
        while (pthread_tryjoin_np(threads[i], NULL)) {
            for (unsigned row = 0; row < MQ_QUEUE_ROWS; row++)
                for (int role = 0; role < MQ_QUEUE_ROLES; role++)
                    mq_futex_wake_all(mq_futex_word(&parts.queue->rows[row].eventcounts[role]));
            usleep(1000);
        }
    int status = 0;
    for (int i = 0; i < count; i++)
        if (waitpid(processes[i], &status, 0) != processes[i] || status)
            wrong("a process", (uint64_t)i, (uint64_t)status);
    go(&shared, false);
    settle();
    printf("sent %llu acked %llu nacked %llu died %llu killed %llu left %llu waited %llu expired %llu skipped %llu "
           "swept %llu watched %llu told %llu\n",
           (unsigned long long)all->sent, (unsigned long long)all->acked, (unsigned long long)all->nacked,
           (unsigned long long)all->died, (unsigned long long)all->killed, (unsigned long long)all->left,
           (unsigned long long)all->waited, (unsigned long long)all->expired, (unsigned long long)all->skipped,
           (unsigned long long)all->swept, (unsigned long long)all->watched, (unsigned long long)all->told);
    return 0;
}
