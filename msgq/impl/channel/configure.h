/* Check a channel's file, and complete its configuration. Python and C call these steps. Each field of the configuration
 * is written once, under the lock of the file: by the first program that requests a value, or by the first publisher,
 * which stores the defaults. */
#ifndef MQ_CHANNEL_CONFIGURE_H
#define MQ_CHANNEL_CONFIGURE_H

#include "base/file.h"
#include "channel/header.h"

enum { MQ_CHANNEL_CAPACITY_DEFAULT = 64 };

/* Check a mapped file. */
static inline int mq_channel_check_file(const mq_channel_header *header, uint64_t bytes, const char *path,
                                        mq_error *error) {
    return mq_check_layout(mq_channel_header_check(header, bytes), MQ_CHANNEL_MAJOR, "a channel", path, error);
}

/* Return the kind of a new channel. */
static inline mq_channel_kind mq_channel_kind_of_name(const char *name) {
    const char *last = strrchr(name, ':');
    if (last && !strcmp(last, ":broadcast"))
        return MQ_CHANNEL_BROADCAST;
    return strstr(name, ":mbx:") ? MQ_CHANNEL_MAILBOX : MQ_CHANNEL_PUBSUB;
}

/* Return what a publisher stores in the fields that nobody has set. */
static inline mq_channel_config mq_channel_default_config(uint64_t capacity) {
    return (mq_channel_config){.capacity = capacity,
                               .publishers = MQ_CHANNEL_PUBLISHERS,
                               .subscribers = MQ_CHANNEL_ANY_SUBSCRIBERS,
                               .stamps = MQ_CHANNEL_STAMPED};
}

static inline const char *mq_channel_describe_setting(const char *setting, uint64_t value, char text[static 24]) {
    if (!strcmp(setting, "stamps"))
        return value == MQ_CHANNEL_STAMPED ? "True" : "False";
    if (!strcmp(setting, "subscribers") && value == MQ_CHANNEL_ANY_SUBSCRIBERS)
        return "any number";
    snprintf(text, 24, "%llu", (unsigned long long)value);
    return text;
}

/* Complete one field. 0: not set, not requested, or no default. */
static inline int mq_channel_merge_setting(const char *path, const char *setting, uint64_t *value, uint64_t requested,
                                           uint64_t otherwise, mq_error *error) {
    char ours[24], theirs[24];
    if (requested && *value && *value != requested)
        return mq_fail(error, MQ_ERROR_CHANNEL_MISMATCH, EEXIST, path,
                       "has %s=%s, but %s=%s was requested; omit the option to use the existing value, or remove the "
                       "channel (msgq clean)",
                       setting, mq_channel_describe_setting(setting, *value, theirs), setting,
                       mq_channel_describe_setting(setting, requested, ours));
    if (!*value)
        *value = requested ? requested : otherwise;
    return 0;
}

/* Complete the existing configuration by the requested values, then by the defaults. This needs no lock. */
static inline int mq_channel_merge_config(const mq_channel_header *header, const char *path,
                                          const mq_channel_config *requested, const mq_channel_config *defaults,
                                          mq_channel_config *merged, mq_error *error) {
    *merged = mq_channel_config_unpack(mq_load_acquire_u64(&header->config));
    int failed =
        mq_channel_merge_setting(path, "capacity", &merged->capacity, requested->capacity, defaults->capacity, error);
    if (!failed)
        failed = mq_channel_merge_setting(path, "publishers", &merged->publishers, requested->publishers,
                                          defaults->publishers, error);
    if (!failed)
        failed = mq_channel_merge_setting(path, "subscribers", &merged->subscribers, requested->subscribers,
                                          defaults->subscribers, error);
    if (!failed)
        failed = mq_channel_merge_setting(path, "stamps", &merged->stamps, requested->stamps, defaults->stamps, error);
    return failed;
}

/* True if the merged configuration is already stored. A stored field never changes. */
static inline bool mq_channel_is_configured(const mq_channel_header *header, const mq_channel_config *merged) {
    return mq_channel_config_pack(*merged) == mq_load_acquire_u64(&header->config) &&
           (!merged->capacity || mq_load_acquire_u64(&header->tail));
}

/* Merge and store the configuration. */
static inline int mq_channel_configure(mq_channel_header *header, const char *path, const mq_channel_config *requested,
                                       const mq_channel_config *defaults, mq_error *error) {
    mq_channel_config merged;
    int failed = mq_channel_merge_config(header, path, requested, defaults, &merged, error);
    if (failed || mq_channel_store_config(header, merged))
        return failed;
    return mq_fail(error, MQ_ERROR_CORRUPT, EPROTO, path,
                   "has the invalid capacity %llu: another program wrote into the file; remove it (msgq clean)",
                   (unsigned long long)merged.capacity);
}

#endif
