/* Errors, identity of this process, names and users, and futex waits. See file.h. Compile as C11. */
#define _GNU_SOURCE
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <stdarg.h>

#include "c/file.h"

/* ---- errors ---- */

static _Thread_local char mqc_text[1024];
static _Thread_local bool mqc_text_kept;

const char *msgq_error_text(void) { return mqc_text; }

const char *msgq_strerror(int error) { return strerror(error < 0 ? -error : error); }

int mqc_report(const mqc_endpoint *endpoint, const mq_error *error) {
    bool has_path = *error->path != '\0';
    return mqc_endpoint_error(endpoint, error->number, "%s%s%s", error->path, has_path ? ": " : "", error->text);
}

void mqc_suppress_error_text(bool keep) { mqc_text_kept = keep; }

int mqc_set_error(int error, const char *format, ...) {
    va_list arguments;
    if (mqc_text_kept)
        return -error;
    va_start(arguments, format);
    vsnprintf(mqc_text, sizeof mqc_text, format, arguments);
    va_end(arguments);
    return -error;
}

/* Append to this thread's error text of `length` bytes. Returns the new length. */
static size_t mqc_append_text(size_t length, const char *text) {
    size_t bytes = strnlen(text, sizeof mqc_text - 1 - length);
    memcpy(mqc_text + length, text, bytes);
    mqc_text[length + bytes] = '\0';
    return length + bytes;
}

int mqc_endpoint_error(const mqc_endpoint *endpoint, int error, const char *format, ...) {
    va_list arguments;
    if (mqc_text_kept)
        return -error;
    va_start(arguments, format);
    /* Names and constant texts are copied, because -EAGAIN is frequent, and printf takes longer than a receive. */
    size_t length = mqc_append_text(0, endpoint->kind_name);
    length = mqc_append_text(length, " ");
    length = mqc_append_text(length, endpoint->name);
    length = mqc_append_text(length, ": ");
    if (strchr(format, '%'))
        vsnprintf(mqc_text + length, sizeof mqc_text - length, format, arguments);
    else
        mqc_append_text(length, format);
    va_end(arguments);
    return -error;
}

char mqc_no_bytes[1];

int mqc_null_error(const void *handle) {
    return mqc_set_error(EINVAL, handle ? "a pointer of the call is NULL; only sizes of 0 allow this"
                                        : "the handle of the call is NULL; open an endpoint first");
}

/* ---- this process ---- */

static int mqc_forks;
static mq_identity_cache mqc_identity_cache;

static void mqc_count_fork(void) {
    mqc_forks++;
    mq_mapping_table_reset_in_child(&mqc_mappings);
    mq_forget_own_identity(&mqc_identity_cache);
}
static void mqc_register_fork_counter(void) { pthread_atfork(NULL, NULL, mqc_count_fork); }

int mqc_fork_generation(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, mqc_register_fork_counter);
    return mqc_forks;
}

bool mqc_is_forked(int generation) { return generation != mqc_forks; }

int mqc_check_process(const mqc_endpoint *endpoint, int generation) {
    if (mq_likely(!mqc_is_forked(generation)))
        return 0;
    return mqc_endpoint_error(endpoint, ECHILD,
                              "was opened by the parent process; close it here, and open another one");
}

int mqc_read_own_identity(mq_process_identity *self) {
    mqc_fork_generation(); /* the cache needs the fork handler */
    if (mq_read_own_identity(&mqc_identity_cache, self) != 0)
        return mqc_set_error(errno, "cannot read /proc/self: %s; msgq needs /proc to know who is alive",
                             strerror(errno));
    return 0;
}

/* True if the membarrier of a new publisher reaches this process. Each process registers once for membarrier. */
bool mqc_orders_stores(void) {
    static _Atomic int known = -1; /* fork generation << 1 | result of the registration */
    int generation = mqc_fork_generation(), now = known;
    if (now < 0 || now >> 1 != generation)
        known = now = generation << 1 | mq_membarrier_register();
    return now & 1;
}

/* ---- names ---- */

enum { MQC_OCTAL_DIGITS = 5, MQC_SPIN_DIGITS = 7 }; /* as in settings.py */

/* True if the name is UTF-8. */
static bool mqc_is_utf8(const char *name) {
    const unsigned char *at = (const unsigned char *)name;
    while (*at) {
        unsigned first = *at++;
        int more = first < 0x80 ? 0 : first >= 0xc2 && first < 0xe0 ? 1 : first >= 0xe0 && first < 0xf0 ? 2 : -1;
        if (first >= 0xf0 && first < 0xf5)
            more = 3;
        if (more < 0 || (first == 0xe0 && *at < 0xa0) || (first == 0xed && *at > 0x9f) ||
            (first == 0xf0 && *at < 0x90) || (first == 0xf4 && *at > 0x8f))
            return false;
        for (; more; more--)
            if ((*at++ & 0xc0) != 0x80)
                return false;
    }
    return true;
}

static int mqc_check_name(const char *what, const char *name, size_t most, char *to) {
    size_t size = name ? strlen(name) : 0;
    if (size == 0 || size > most)
        return mqc_set_error(EINVAL, "%s '%.40s' has %zu bytes; give 1 to %zu bytes", what, name ? name : "(null)",
                             size, most);
    if (strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, "..") || !mqc_is_utf8(name))
        return mqc_set_error(EINVAL, "%s '%s' is not a valid file name; give UTF-8 without '/', and not '.' or '..'",
                             what, name);
    memcpy(to, name, size + 1);
    return 0;
}

/* True if the text has 1 to `most` digits of a number with this base. Unlike strtol(3), blanks and signs are refused. */
static bool mqc_has_digits(const char *text, int base, size_t most) {
    size_t count = strspn(text, base == 8 ? "01234567" : "0123456789");
    return count > 0 && count <= most && !text[count];
}

/* Parse the id of a user or group. Returns false if the text is not one. */
static bool mqc_parse_id(const char *text, uint32_t *id) {
    unsigned long long number = mqc_has_digits(text, 10, 10) ? strtoull(text, NULL, 10) : UINT32_MAX;
    *id = (uint32_t)number;
    return number < UINT32_MAX; /* 2**32 - 1 means "no change" to chown(2) */
}

/* Set the permissions to `asked`. If `asked` is 0, use MSGQ_MODE, or else 0600. */
static int mqc_find_mode(mqc_endpoint *endpoint, int asked) {
    const char *said = getenv("MSGQ_MODE");
    long mode = asked ? asked : 0600;
    if (!asked && said && *said) {
        const char *digits = said + (strncmp(said, "0o", 2) == 0 ? 2 : 0);
        mode = mqc_has_digits(digits, 8, MQC_OCTAL_DIGITS) ? strtol(digits, NULL, 8) : -1;
    }
    if (mode & ~0666L || (mode & 0600) != 0600)
        return mqc_endpoint_error(
            endpoint, EINVAL,
            "mode %#lo (MSGQ_MODE) is not possible; give octal permissions, including the owner's, such as 0660", mode);
    endpoint->mode = (mode_t)mode;
    return 0;
}

static void mqc_strip_blanks(char **text) {
    *text += strspn(*text, " ");
    for (size_t size = strlen(*text); size > 0 && (*text)[size - 1] == ' '; size--)
        (*text)[size - 1] = '\0';
}

/* Set the trusted users from a comma-separated list of names or ids. */
static int mqc_find_trusted(mqc_endpoint *endpoint, const char *asked) {
    const char *said = asked ? asked : getenv("MSGQ_TRUST");
    char names[1024], *rest = names, *name;
    uint32_t id;
    if (!said || !*said)
        return 0;
    if (snprintf(names, sizeof names, "%s", said) >= (int)sizeof names)
        return mqc_endpoint_error(endpoint, EINVAL, "MSGQ_TRUST has over %zu bytes", sizeof names);
    while ((name = strsep(&rest, ",")) != NULL) {
        mqc_strip_blanks(&name);
        struct passwd *user = mqc_parse_id(name, &id) ? NULL : getpwnam(name);
        if (!user && !mqc_parse_id(name, &id))
            return mqc_endpoint_error(endpoint, EINVAL, "MSGQ_TRUST names '%s', which is not a user of this machine",
                                      name);
        if (endpoint->policy.trusted_count == MQ_TRUSTED_MAX)
            return mqc_endpoint_error(endpoint, EINVAL, "MSGQ_TRUST names more than %d users", MQ_TRUSTED_MAX);
        endpoint->policy.trusted[endpoint->policy.trusted_count++] = user ? user->pw_uid : (uid_t)id;
    }
    return 0;
}

/* Set the group of new files from MSGQ_GROUP. */
static int mqc_find_group(mqc_endpoint *endpoint) {
    const char *said = getenv("MSGQ_GROUP");
    uint32_t id = UINT32_MAX; /* the system's default */
    if (said && *said && !mqc_parse_id(said, &id)) {
        const struct group *found = getgrnam(said);
        if (!found)
            return mqc_endpoint_error(endpoint, EINVAL, "MSGQ_GROUP names %s, which is not a group of this machine",
                                      said);
        id = found->gr_gid;
    }
    endpoint->policy.group = (gid_t)id;
    return 0;
}

/* Set whether files get all of their memory at once, and whether mappings are guarded. */
static int mqc_find_memory(mqc_endpoint *endpoint) {
    const char *said = getenv("MSGQ_SIGBUS");
    endpoint->policy.preallocate = getenv("MSGQ_PREALLOC") != NULL;
    if (said && *said && strcmp(said, "0") != 0 && strcmp(said, "1") != 0)
        return mqc_endpoint_error(endpoint, EINVAL, "MSGQ_SIGBUS is %s; give 1, or 0 for no signal handler", said);
    endpoint->policy.guards = said && !strcmp(said, "0") ? NULL : &mqc_guard_functions;
    endpoint->policy.mappings = &mqc_mappings;
    return 0;
}

static int mqc_find_spin(mqc_endpoint *endpoint, int64_t spin_us) {
    const char *said = getenv("MSGQ_SPIN_US");
    if (said && *said && (!mqc_has_digits(said, 10, MQC_SPIN_DIGITS) || atol(said) > 1000000))
        return mqc_endpoint_error(endpoint, EINVAL, "MSGQ_SPIN_US is %s; give 0 to 1000000 microseconds", said);
    endpoint->spin_ns = 1000 * (said && *said ? atol(said) : spin_us);
    return 0;
}

int mqc_endpoint_init(mqc_endpoint *endpoint, const char *kind_name, const char *name, size_t most,
                      const msgq_options *options, int64_t spin_us) {
    static const msgq_options defaults;
    const msgq_options *asked = options ? options : &defaults;
    memset(endpoint, 0, sizeof *endpoint);
    endpoint->kind_name = kind_name;
    endpoint->create = asked->create;
    const char *prefix = asked->prefix ? asked->prefix : getenv("OPENPILOT_PREFIX");
    int status = mqc_check_name(kind_name, name, most, endpoint->name);
    if (!status && prefix && *prefix)
        status = mqc_check_name("prefix", prefix, MQC_NAME_MAX, endpoint->prefix);
    if (!status)
        status = mqc_find_mode(endpoint, asked->mode);
    if (!status)
        status = mqc_find_trusted(endpoint, asked->trust);
    if (!status)
        status = mqc_find_group(endpoint);
    if (!status)
        status = mqc_find_memory(endpoint);
    if (!status)
        status = mqc_find_spin(endpoint, spin_us);
    if (!status && (asked->create < MSGQ_OPEN_OR_MAKE || asked->create > MSGQ_MAKE))
        status = mqc_endpoint_error(endpoint, EINVAL, "create is %d; give MSGQ_OPEN_OR_MAKE, MSGQ_OPEN or MSGQ_MAKE",
                                    asked->create);
    mqc_fork_generation();
    return status;
}

void mqc_format_path(const mqc_endpoint *endpoint, const char *start, const char *file, char *path) {
    if (*endpoint->prefix)
        snprintf(path, MQC_PATH, "/dev/shm/%s%s/%s", start, endpoint->prefix, file);
    else
        snprintf(path, MQC_PATH, "/dev/shm/%s%s", start, file);
}

/* ---- wait ---- */

/* longest sleep with an exact length: the first naps of a lapped subscriber, and the shortest sleep of a queue */
static const int64_t MQC_SHORT_SLEEP_NS = 10 * MQ_NS_PER_MS;

int64_t mqc_deadline_ns(double timeout) {
    if (!(timeout >= 0) || timeout > 9e9)
        return -1;
    return mq_monotonic_ns() + (int64_t)(timeout * MQ_NS_PER_S);
}

void mqc_hold_signals(mqc_held_signals *signals) {
    /* signals of faults: a blocked one would end the process, and the guards of mappings handle SIGBUS */
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t held;
    sigfillset(&held);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&held, faults[i]);
    signals->held = pthread_sigmask(SIG_BLOCK, &held, &signals->mask) == 0;
}

bool mqc_release_signals(mqc_held_signals *signals) {
    const struct timespec at_once = {0, 0};
    if (!signals->held)
        return false;
    signals->held = false;
    /* the kernel runs the handlers during the call exactly if the call fails */
    bool ran = ppoll(NULL, 0, &at_once, &signals->mask) < 0 && errno == EINTR;
    pthread_sigmask(SIG_SETMASK, &signals->mask, NULL);
    return ran;
}

int64_t mqc_vary_sleep_ns(int64_t sleep_ns, int64_t now_ns) {
    if (sleep_ns <= MQC_SHORT_SLEEP_NS)
        return sleep_ns;
    uint32_t part = (uint32_t)now_ns * 2654435761u; /* the clock's nanoseconds, mixed */
    return sleep_ns - (sleep_ns / 4 * (part >> 16) >> 16);
}

static bool mqc_any_is_readable(const mqc_waiter *waiters, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (waiters[i].is_readable(waiters[i].reader))
            return true;
    return false;
}

/* Poll until a reader is readable, at most for the longest spin time. */
static bool mqc_spin_until_readable(const mqc_waiter *waiters, size_t count, int64_t deadline_ns) {
    int64_t spin_ns = 0;
    for (size_t i = 0; i < count; i++)
        spin_ns = waiters[i].spin_ns > spin_ns ? waiters[i].spin_ns : spin_ns;
    if (!spin_ns)
        return false;
    int64_t until = mq_monotonic_ns() + spin_ns;
    until = deadline_ns >= 0 && deadline_ns < until ? deadline_ns : until;
    while (mq_monotonic_ns() < until)
        if (mqc_any_is_readable(waiters, count))
            return true;
    return false;
}

/* Return the end of the next sleep. */
static int64_t mqc_next_wake_ns(const mqc_waiter *waiters, size_t count, int64_t started_ns, int64_t deadline_ns) {
    int64_t now = mq_monotonic_ns(), shortest = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        int64_t sleep_ns = waiters[i].max_sleep_ns(waiters[i].reader, now - started_ns);
        shortest = sleep_ns < shortest ? sleep_ns : shortest;
    }
    int64_t until = now + mqc_vary_sleep_ns(shortest, now);
    return deadline_ns >= 0 && deadline_ns < until ? deadline_ns : until;
}

/* Announce the sleep of all readers, and store their words, as many as the kernel accepts. */
static void mqc_announce_sleep(const mqc_waiter *waiters, size_t count, mq_futex_waitv_entry *words) {
    for (size_t i = 0; i < count; i++) {
        uint32_t expected = waiters[i].prepare_wait(waiters[i].reader, waiters[i].word);
        if (i < MQ_FUTEX_WAITV_MAX)
            words[i] = (mq_futex_waitv_entry){
                .expected = expected, .address = (uintptr_t)waiters[i].word, .flags = MQ_FUTEX_32};
    }
}

/* Sleep until one of the words changes, or until a time. Returns true after a signal handler. If the kernel cannot wait
 * for all words, sleep for the first one, and at most for 1 ms. */
static bool mqc_sleep_on_words(const mq_futex_waitv_entry *words, size_t count, int64_t until_ns) {
    static _Atomic bool waitv_is_missing; /* the kernel is older than Linux 5.16, or forbids the call */
    if (count > 1 && count <= MQ_FUTEX_WAITV_MAX && !waitv_is_missing) {
        if (mq_futex_waitv(words, (unsigned)count, until_ns) >= 0)
            return false;
        if (errno != ENOSYS && errno != EPERM)
            return errno == EINTR;
        waitv_is_missing = true;
    }
    if (count > 1) {
        int64_t nap_end_ns = mq_monotonic_ns() + MQ_NS_PER_MS;
        until_ns = until_ns < nap_end_ns ? until_ns : nap_end_ns;
    }
    return mq_futex_wait((uint32_t *)(uintptr_t)words->address, (uint32_t)words->expected, until_ns) != 0 &&
           errno == EINTR;
}

int mqc_wait_until_readable(const mqc_waiter *waiters, size_t count, int64_t deadline_ns) {
    mq_futex_waitv_entry words[MQ_FUTEX_WAITV_MAX];
    mqc_held_signals signals = {.held = false};
    int64_t started = mq_monotonic_ns();
    if (mqc_spin_until_readable(waiters, count, deadline_ns))
        return 1;
    for (;;) {
        /* Each sleep has a deadline: without one, a handler with SA_RESTART would not end the sleep of one reader. */
        int64_t until = mqc_next_wake_ns(waiters, count, started, deadline_ns);
        mqc_announce_sleep(waiters, count, words);
        bool there = mqc_any_is_readable(waiters, count);
        bool interrupted = mqc_release_signals(&signals);
        if (!there && !interrupted)
            interrupted = mqc_sleep_on_words(words, count, until);
        for (size_t i = 0; i < count; i++)
            if (waiters[i].end_wait)
                waiters[i].end_wait(waiters[i].reader);
        if (there || mqc_any_is_readable(waiters, count))
            return 1;
        if (interrupted)
            return mqc_set_error(EINTR, "signal handler ran during the wait");
        if (deadline_ns >= 0 && mq_monotonic_ns() >= deadline_ns)
            return 0;
        mqc_hold_signals(&signals);
    }
}
