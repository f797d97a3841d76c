/* The host's clock and unique origins for C programs (base/clock_file.h). Compile as C11. If the host's file is invalid,
 * the clock uses the file of this user. If the file of this user is invalid, too, the clock uses an offset of this
 * process. */
#define _GNU_SOURCE
#include "c/file.h"
#include "base/clock_file.h"

static _Thread_local int64_t mqc_origin;

void msgq_set_origin(int64_t origin_time) { mqc_origin = origin_time < 0 ? 0 : origin_time; }
int64_t msgq_origin(void) { return mqc_origin; }
int64_t msgq_time_ns(void) { return mq_monotonic_ns() + mqc_clock_offset_ns(); }

/* Load the settings by which the files of the clock and of the origins are shared. */
static bool mqc_load_policy(mq_file_policy *policy, const char *kind_name, bool alone) {
    mqc_endpoint endpoint;
    msgq_options options = {.prefix = "", .trust = alone ? "" : NULL, .mode = 0600};
    int status = mqc_endpoint_init(&endpoint, kind_name, kind_name, MQC_NAME_MAX, &options, 0);
    *policy = endpoint.policy;
    return status == 0;
}

static int64_t mqc_offset;

static void mqc_find_offset(void) {
    static const char shared[] = MQ_SHARED_MEMORY "/msgqclock";
    mq_file_policy policy;
    mq_error error;
    char own[MQC_PATH];
    int64_t ahead, offset;
    snprintf(own, sizeof own, "%s_%u", shared, (unsigned)geteuid());
    bool found = mq_namespace_offset_ns(&ahead, &error) == 0 && mqc_load_policy(&policy, "clock", false) &&
                 (mq_agree_on_clock_offset(&policy, shared, own, ahead, &offset, &error) == 0 ||
                  mq_agree_on_clock_offset(&policy, own, shared, ahead, &offset, &error) == 0);
    mqc_offset = found ? offset - ahead : mq_offset_from_monotonic_ns(CLOCK_REALTIME);
}

int64_t mqc_clock_offset_ns(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, mqc_find_offset);
    return mqc_offset;
}

/* ---- origins ---- */

static mq_u64 *mqc_last;

static void mqc_find_origins(void) {
    static mq_origin own_origins; /* used if the file is not available */
    mq_file_policy policy;
    mq_mapping *mapping = NULL; /* mapped until the process ends */
    mq_error error;
    char path[MQC_PATH];
    snprintf(path, sizeof path, "%s/msgqorigin_%u", MQ_SHARED_MEMORY, (unsigned)geteuid());
    bool found = mqc_load_policy(&policy, "origins", true) && mq_open_origins(&policy, path, &mapping, &error) == 0;
    mqc_last = mq_origin_last_word(found ? (mq_origin *)(void *)mapping->address : &own_origins);
}

mq_u64 *mqc_last_origin_word(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, mqc_find_origins);
    return mqc_last;
}
