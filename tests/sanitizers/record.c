/* Vectors and boards under stress: writers that come, die and leave, readers, sleepers. Usage: record SECONDS SEED
 * PROCESSES. With PROCESSES, as many more writers are processes, which are killed at any time. Each plan of `plans` is
 * tried for its share of the time. Prints what was done; ends with 1 and a text when something was wrong.
 *
 * What: all words of a value follow from its first, which says how often its element was written then. Readers check
 * each value against its version, and that an element never goes back. Elements are counted: as often written as
 * somebody wrote them. The first elements are a chain, written in turn, so of one instant none is ahead of the one before
 * it, and none more than one behind the first. Who sleeps is woken by each write.
 * Why: values are plain memory that is written while it is read; only versions say what is whole.
 * Failure would mean: a value is torn, old or lost, a snapshot is of no instant, or somebody sleeps beside a change.
 *
 * What the thread sanitizer can say here: whether a shared byte is touched by a plain access. It does not know fences.
 * What it cannot say: whether fences are strong enough; there, values count, and the model (tools/model).
 */
#include "record_member.h"

enum { THREADS_WRITE = 3, PROCESSES_MAX = 2, EXCLUSIVE = MQ_RECORD_EXCLUSIVE, BOARD = MQ_RECORD_BOARD };

static const plan plans[] = {
    {1, 2, 0, false},         {1, 4, 0, false},           {7, 2, 0, false},        {7, 4, 0, false},
    {512, 2, 0, false},       {512, 4, 0, false},         {3, 2, 0, true},         {1, 2, EXCLUSIVE, false},
    {7, 2, EXCLUSIVE, false}, {512, 4, EXCLUSIVE, false}, {7, 4, EXCLUSIVE, true}, {8, 2, BOARD, false},
    {512, 2, BOARD, false},   {5, 2, BOARD, true},
};
enum { PLANS = sizeof plans / sizeof *plans };

static int64_t soon(void) { return mq_monotonic_ns() + (int64_t)STUCK_MS * MQ_NS_PER_MS; }
static uint64_t times_of(uint64_t i) {
    return mq_cell_write_count(mq_load_acquire_u64(mq_cell_version_word(&parts, i)));
}

/* ---- writing ---- */

/* An element was written: all sleepers see it, though nothing more is written. */
static void await(uint64_t i) {
    uint64_t times = times_of(i);
    int64_t until = soon();
    for (int sleeper = 0; now.calm && sleeper < SLEEPERS; sleeper++)
        while (all->seen[sleeper][i] < times) {
            if (mq_monotonic_ns() > until)
                wrong("a change is not seen", i, times);
            usleep(50);
        }
    all->awaited += now.calm;
}

static void count(const int64_t *list, uint64_t done) {
    for (uint64_t k = 0; k < done; k++)
        all->times[list[k]]++;
    all->written += done;
}

/* Some elements in one call, each with its value. */
static void write_some(member *m, const int64_t *list, uint64_t n, const uint64_t *firsts) {
    static _Thread_local uint64_t values[CHAIN * WORDS_MAX];
    mq_element_selection which = {.indices = list, .count = n};
    uint64_t done = 0;
    for (uint64_t k = 0; k < n; k++)
        fill(values + k * now.words, firsts[k], now.words);
    int64_t deadline = 0;
    for (;;) {
        uint64_t before = done;
        mq_vector_status status =
            mq_vector_write_elements(&m->w, &which, (const uint8_t *)values, mq_monotonic_ns(), NULL, deadline, &done);
        count(list + before, done - before);
        if (status == MQ_VECTOR_WRITTEN)
            break;
        if (status != MQ_VECTOR_LOCKED || (deadline && done == before))
            wrong("an element cannot be written", (uint64_t)status, done);
        deadline = soon();
    }
    await((uint64_t)list[n - 1]);
}

/* One element step by step, as the steps of vector.h: so its number is known. False: we died in the middle. */
static bool write_known(member *m, uint64_t i, uint64_t writer) {
    uint64_t value[WORDS_MAX];
    int64_t index = (int64_t)i;
    mq_u64 *version = mq_cell_version_word(&parts, i);
    bool alone = now.flags & EXCLUSIVE;
    if (!alone && mq_cell_try_acquire(version, m->w.owner) && !mq_record_acquire_element(&m->w, version, soon()))
        wrong("an element is held", i, mq_load_acquire_u64(version));
    fill(value,
         stamp(writer, true, mq_cell_next_write_count(&parts, mq_cell_write_count(mq_load_relaxed_u64(version)))),
         now.words);
    mq_u64 *to = mq_cell_begin_write(&parts, version, (uint64_t)mq_monotonic_ns());
    if (below(1024) == 0) {
        mq_copy_to_shared(to, value, 8 * below((uint32_t)now.words + 1));
        go(m, true);
        return false;
    }
    mq_copy_to_shared(to, value, 8 * now.words);
    if (alone)
        mq_cell_commit_exclusive_write(&parts, version);
    else if (!mq_cell_commit_write(&parts, version, m->w.owner))
        wrong("others write our element", i, mq_load_acquire_u64(version));
    count(&index, 1);
    mq_record_notify_written(&m->w, 1, alone);
    await(i);
    return true;
}

/* One who died in a round of the chain left its end behind: that is done first. */
static bool write_chain(member *m, uint64_t writer) {
    int64_t list[CHAIN];
    uint64_t firsts[CHAIN], n = 0, head = times_of(0);
    bool round = times_of(CHAIN - 1) == head;
    for (uint64_t i = 0; i < CHAIN; i++)
        if (round || times_of(i) < head) {
            list[n] = (int64_t)i;
            firsts[n++] = stamp(writer, true, times_of(i) + 1);
        }
    if (!n)
        wrong("the chain is ahead of its head", head, times_of(CHAIN - 1));
    if (below(512) == 0) {
        n = below((uint32_t)n);
        if (n)
            write_some(m, list, n, firsts);
        go(m, true);
        return false;
    }
    write_some(m, list, n, firsts);
    return true;
}

/* Elements beside the chain. */
static bool write_loose(member *m, uint64_t writer, uint64_t *serial) {
    int64_t list[CHAIN];
    uint64_t firsts[CHAIN], n = 1 + below(3), first = below(ELEMENTS - CHAIN);
    if (below(2))
        return write_known(m, CHAIN + first, writer);
    for (uint64_t k = 0; k < n; k++) {
        list[k] = CHAIN + (int64_t)((first + k) % (ELEMENTS - CHAIN));
        firsts[k] = stamp(writer, false, ++*serial);
    }
    write_some(m, list, n, firsts);
    return true;
}

/* Hold a key for a while, as an Entry does. */
static bool write_key(member *m, uint64_t writer) {
    char key[16];
    mq_error error;
    uint64_t value[WORDS_MAX], most = mq_board_value_bytes(&parts) / 8;
    size_t bytes = (size_t)snprintf(key, sizeof key, "key %u", below(ELEMENTS));
    lock_file(m);
    int64_t index = mq_board_declare_key(&m->w, key, bytes, &error);
    unlock_file(m);
    bool ours = index >= 0;
    uint64_t i = (uint64_t)index;
    all->refused += !ours;
    for (uint32_t rounds = ours ? below(64) : 0; rounds && !all->stop; rounds--) {
        uint64_t words = 1 + below((uint32_t)most);
        fill(value, stamp(writer, true, times_of(i) + 1), words);
        mq_board_write_value(&m->w, i, value, 8 * words, mq_monotonic_ns());
        count(&index, 1);
        await(i);
    }
    if (ours && below(64) == 0) {
        mq_cell_begin_write(&parts, mq_cell_version_word(&parts, i), 0);
        go(m, true);
        return false;
    }
    if (ours)
        mq_record_release_owner_word(&m->w, &parts.key_table[i].owner);
    return true;
}

static bool write_any(member *m, uint64_t writer, bool chains, uint64_t *serial) {
    if (now.flags & BOARD)
        return write_key(m, writer);
    if (now.flags & EXCLUSIVE)
        return below(2) ? write_chain(m, writer) : write_loose(m, writer, serial);
    return chains ? write_chain(m, writer) : write_loose(m, writer, serial);
}

static void *run_writer(void *argument) {
    uint64_t writer = (uint64_t)(uintptr_t)argument, serial = 0;
    member m;
    chance = seed * 7919ull + writer + (uint64_t)getpid();
    while (arrive(&m)) {
        bool here = true;
        for (uint32_t rounds = 1 + below(4096); rounds && here && !all->stop; rounds--) {
            here = write_any(&m, writer, writer == 0, &serial);
            if (below(256) == 0)
                usleep(below(500)); /* so that others get to sleep, and to a snapshot */
        }
        if (here)
            go(&m, below(2));
    }
    return NULL;
}

/* ---- reading ---- */

static void forward(uint64_t *last, uint64_t times, const char *what) {
    if (times < *last)
        wrong(what, times, *last);
    *last = times;
}

static void read_all(uint64_t *last, int64_t *written) {
    static _Thread_local uint64_t values[ELEMENTS * WORDS_MAX];
    uint64_t times[ELEMENTS];
    int64_t when[ELEMENTS];
    mq_element_selection which = {.count = ELEMENTS};
    mq_vector_read_info reading = {.write_counts = times, .write_times_ns = when};
    bool known = below(2);
    uint64_t done = known ? mq_vector_read_elements_with_info(&parts, &which, (uint8_t *)values, &reading)
                          : mq_vector_read_elements(&parts, &which, (uint8_t *)values);
    for (uint64_t i = 0; i < done; i++) {
        const uint64_t *value = values + i * now.words;
        uint64_t first = value[0];
        verify(value, now.words, known ? times[i] : first >> 55 & 1 ? first & ((1ull << 55) - 1) : first != 0);
        if (!known)
            continue;
        forward(&last[i], times[i], "an element goes back");
        if (when[i] < written[i] || when[i] > mq_monotonic_ns())
            wrong("a time goes back, or ahead", (uint64_t)when[i], (uint64_t)written[i]);
        written[i] = when[i];
    }
}

static void read_key(uint64_t *last) {
    char key[16];
    uint64_t value[WORDS_MAX];
    mq_board_value_copy found;
    size_t bytes = (size_t)snprintf(key, sizeof key, "key %u", below(ELEMENTS));
    uint64_t i = mq_board_find_key(&parts, key, bytes, 0);
    if (i == MQ_BOARD_NO_KEY)
        return;
    for (;;) {
        const uint8_t *at = mq_board_value_read_begin(&parts, i, &found);
        if (!found.count)
            return;
        mq_copy_from_shared(value, at, found.length);
        if (mq_board_value_read_valid(&parts, i, &found))
            break;
    }
    if (!found.length || found.length % 8)
        wrong("a length", found.length, found.count);
    verify(value, found.length / 8, found.count);
    forward(&last[i], found.count, "a key goes back");
}

static void *run_reader(void *argument) {
    uint64_t last[ELEMENTS] = {0};
    int64_t written[ELEMENTS] = {0};
    chance = seed * 31 + (uint64_t)(uintptr_t)argument;
    while (!all->stop)
        if (now.flags & BOARD)
            read_key(last);
        else
            read_all(last, written);
    return NULL;
}

/* Of the chain. */
static void *run_snapshots(void *argument) {
    static uint64_t values[CHAIN * WORDS_MAX];
    uint64_t times[CHAIN], last[CHAIN] = {0};
    mq_record_file_parts view = parts;
    mq_element_selection which = {.count = CHAIN};
    mq_vector_read_info reading = {.write_counts = times};
    view.config.length = CHAIN;
    chance = (uint64_t)(uintptr_t)argument;
    while (!all->stop && !(now.flags & BOARD)) {
        if (mq_vector_read_elements_with_info(&view, &which, (uint8_t *)values, &reading) != CHAIN)
            continue;
        int tries = 1000;
        while (tries && !mq_vector_snapshot_step(&view, (uint8_t *)values, times))
            tries--;
        for (uint64_t i = 0; tries && i < CHAIN; i++) {
            verify(values + i * now.words, now.words, times[i]);
            forward(&last[i], times[i], "a snapshot goes back");
            if (times[i] > times[i ? i - 1 : 0] || times[i] + 1 < times[0])
                wrong("a snapshot is of no instant", times[0], times[i]);
        }
        all->snapshots += tries != 0;
    }
    return NULL;
}

/* ---- sleeping ---- */

/* As Handle._wait. Its naps are so long that only a lost wake reaches their end. */
static void *run_sleeper(void *argument) {
    uint64_t me = (uint64_t)(uintptr_t)argument, seen[ELEMENTS] = {0}, times[ELEMENTS];
    int64_t found[ELEMENTS];
    mq_vector_poll_state outlook = {.parts = &parts, .seen_write_counts = seen};
    mq_vector_read_info reading = {.write_counts = times};
    while (!all->over) {
        uint32_t announced = mq_eventcount_prepare_wait_mp(&parts.header->eventcount);
        if (!mq_vector_is_readable(&outlook) && !all->over) {
            int64_t until = mq_monotonic_ns() + (int64_t)NAP_MS * MQ_NS_PER_MS;
            mq_futex_wait(mq_futex_word(&parts.header->eventcount), announced, until);
            all->woken++;
        }
        uint64_t n = mq_vector_collect_changed(&parts, seen, 0, found, ELEMENTS);
        mq_element_selection which = {.indices = found, .count = n};
        uint64_t done = mq_vector_read_elements_with_info(&parts, &which, NULL, &reading);
        for (uint64_t k = 0; k < done; k++) {
            forward(&seen[found[k]], times[k], "a change goes back");
            all->seen[me][found[k]] = times[k];
        }
    }
    return NULL;
}

/* ---- processes ---- */

/* One that writes in a child of its own, which it kills. */
static void run_process(uint64_t number) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    chance = seed + number;
    while (!all->stop) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            run_writer((void *)(uintptr_t)(THREADS_WRITE + number));
            _exit(0);
        }
        int status = 0;
        usleep(below(20000));
        all->killed++;
        kill(child, SIGKILL);
        if (child < 0 || waitpid(child, &status, 0) != child || (WIFEXITED(status) && WEXITSTATUS(status)))
            wrong("a child", (uint64_t)child, (uint64_t)status);
    }
    _exit(0);
}

/* ---- the program ---- */

static void make_file(void) {
    struct stat found;
    mq_record_config shape = {ELEMENTS, 8 * now.words, now.copies, now.flags};
    uint64_t bytes = mq_record_compute_file_bytes(&shape);
    liveness_file.fd = memfd_create("record", MFD_CLOEXEC);
    if (!bytes || liveness_file.fd < 0 || ftruncate(liveness_file.fd, (off_t)bytes) || fstat(liveness_file.fd, &found))
        wrong("no file", bytes, 0);
    liveness_file.device = found.st_dev;
    liveness_file.inode = found.st_ino;
    mq_record_header *record = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, liveness_file.fd, 0);
    if (record == MAP_FAILED)
        wrong("no memory", 0, 0);
    mq_record_header_init(record, &shape, 1, 1, "stress");
    if (mq_record_header_check(record, bytes, &parts) != MQ_FILE_VALID)
        wrong("its own file", 0, 0);
    memset(all->times, 0, sizeof all->times);
    memset(all->seen, 0, sizeof all->seen);
}

/* All is over: each element was written as often as somebody wrote it, and can be written by who comes. One that was
 * killed may have written what is not in the books. */
static void settle(uint64_t killed) {
    member m;
    for (uint64_t i = 0; i < ELEMENTS; i++)
        if (times_of(i) < all->times[i] || times_of(i) > all->times[i] + killed)
            wrong("writes are lost, or nobody's", times_of(i), all->times[i]);
    now.calm = false;
    if (!come(&m))
        wrong("it is somebody's, and nobody is there", mq_load_relaxed_u64(&parts.header->owner), 0);
    for (int64_t i = 0; i < ELEMENTS && !(now.flags & BOARD); i++)
        write_some(&m, &i, 1, &(uint64_t){stamp(THREADS_WRITE + PROCESSES_MAX, true, times_of((uint64_t)i) + 1)});
    go(&m, false);
    for (uint64_t i = 0; i < ELEMENTS && !(now.flags & BOARD); i++)
        if (mq_cell_version_owner(mq_load_acquire_u64(mq_cell_version_word(&parts, i))))
            wrong("an element is somebody's", i, mq_load_acquire_u64(mq_cell_version_word(&parts, i)));
    munmap(parts.header, parts.elements_base - (uint8_t *)parts.header + ELEMENTS * parts.stride);
    close(liveness_file.fd);
}

static void run_plan(double seconds, int processes) {
    static const struct {
        void *(*run)(void *);
        uintptr_t argument;
    } roles[] = {{run_writer, 0}, {run_writer, 1},    {run_writer, 2},  {run_reader, 0},
                 {run_reader, 1}, {run_snapshots, 7}, {run_sleeper, 0}, {run_sleeper, 1}}; /* writers first */
    enum { THREADS = sizeof roles / sizeof *roles };
    pthread_t threads[THREADS];
    pid_t children[PROCESSES_MAX];
    uint64_t killed = all->killed;
    all->stop = all->over = false;
    make_file();
    for (int i = 0; i < processes; i++)
        if ((children[i] = fork()) == 0)
            run_process((uint64_t)i);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, roles[i].run, (void *)roles[i].argument);
    usleep((useconds_t)(seconds * 1e6));
    all->stop = true;
    for (int i = 0; i < THREADS_WRITE; i++) /* what they wrote is seen before the rest goes */
        pthread_join(threads[i], NULL);
    all->over = true;
    for (int i = THREADS_WRITE; i < THREADS; i++)
        while (pthread_tryjoin_np(threads[i], NULL)) {
            mq_futex_wake_all(mq_futex_word(&parts.header->eventcount));
            usleep(200);
        }
    int status = 0;
    for (int i = 0; i < processes; i++)
        if (waitpid(children[i], &status, 0) != children[i] || status)
            wrong("a process", (uint64_t)i, (uint64_t)status);
    settle(all->killed - killed);
}

int main(int argc, char **argv) {
    if (argc != 4 || atoi(argv[3]) > PROCESSES_MAX)
        return fprintf(stderr, "usage: record SECONDS SEED PROCESSES\n"), 2;
    seed = (unsigned)strtoul(argv[2], NULL, 10);
    chance = seed;
    plain = atoi(argv[3]) == 0;
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < PLANS; i++) {
        now = plans[i];
        run_plan(atof(argv[1]) / PLANS, atoi(argv[3]));
    }
    printf(
        "written %llu read %llu snapshots %llu woken %llu died %llu killed %llu left %llu refused %llu awaited %llu\n",
        (unsigned long long)all->written, (unsigned long long)all->read, (unsigned long long)all->snapshots,
        (unsigned long long)all->woken, (unsigned long long)all->died, (unsigned long long)all->killed,
        (unsigned long long)all->left, (unsigned long long)all->refused, (unsigned long long)all->awaited);
    return 0;
}
