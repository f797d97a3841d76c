/* A channel's file. See channelfile.h. Compile as C11. */
#define _GNU_SOURCE
#include "c/channelfile.h"

mq_channel_files mqc_channel_files(const mqc_channel_file *file) {
    return (mq_channel_files){.policy = &file->endpoint.policy,
                              .pool_prefix = file->pool_prefix,
                              .header = file->header,
                              .liveness_file = &file->segment.liveness_file,
                              .mode = file->segment.mode};
}

/* ---- open ---- */

static int mqc_channel_file_check(void *handle) {
    mqc_channel_file *h = handle;
    mq_error error;
    h->header = (mq_channel_header *)(void *)h->segment.address;
    return mq_channel_check_file(h->header, h->segment.size, h->segment.path, &error) ? mqc_report(&h->endpoint, &error)
                                                                                      : 0;
}

static void mqc_channel_file_init_header(void *handle) {
    mqc_channel_file *h = handle;
    char creator[MQ_CHANNEL_CREATOR_BYTES] = "";
    memcpy(creator, h->node, sizeof h->node);
    mq_channel_header_init((mq_channel_header *)(void *)h->segment.address, mq_channel_kind_of_name(h->endpoint.name),
                           (uint64_t)msgq_time_ns(), (uint64_t)getpid(), creator);
}

int mqc_channel_file_lock(const mqc_channel_file *file, bool patient, mq_file_lock *lock) {
    const mqc_endpoint *endpoint = &file->endpoint;
    struct stat found = {.st_nlink = 0};
    int status = mqc_lock_mapped_file(endpoint, &file->segment, patient, lock);
    bool removed = status == -ENOENT || status == -ESTALE;
    if (status && !removed)
        return status;
    if (!removed)
        status = mqc_check_file(endpoint, lock->fd, file->segment.path, &found);
    if (removed || (!status && !found.st_nlink))
        status = mqc_endpoint_error(endpoint, ENOENT, "channel was removed, and perhaps created again; open it again");
    if (status && !removed)
        mqc_unlock_mapped_file(lock);
    return status;
}

/* ---- configuration ---- */

/* Configure the channel under the lock. */
static int mqc_channel_file_configure(mqc_channel_file *file, const msgq_channel_options *asked, bool publishes) {
    mq_channel_config requested = {.capacity = asked->capacity, .stamps = asked->unstamped ? MQ_CHANNEL_UNSTAMPED : 0};
    mq_channel_config defaults = publishes ? mq_channel_default_config(file->capacity) : (mq_channel_config){0};
    mq_schema_parts at =
        mq_schema_parts_from_block(&file->header->schema, file->header->schema_data, MQ_CHANNEL_SCHEMA_BYTES);
    mq_error error;
    int status = mq_channel_configure(file->header, file->segment.path, &requested, &defaults, &error);
    if (status)
        return mqc_report(&file->endpoint, &error);
    if (asked->schema && !mq_schema_is_set(&at))
        status = mqc_write_schema(&file->endpoint, &at, asked->schema, true);
    return status;
}

int mqc_channel_file_init(mqc_channel_file *file, const char *name, const msgq_channel_options *options) {
    mq_process_identity self;
    memset(file, 0, sizeof *file);
    file->generation = mqc_fork_generation(), file->capacity = MQ_CHANNEL_CAPACITY_DEFAULT;
    int status = mqc_endpoint_init(&file->endpoint, "channel", name, MQC_CHANNEL_NAME_MAX, &options->open, 0);
    if (!status)
        status = mqc_read_own_identity(&self);
    if (status)
        return status;
    if (strchr(name, ':'))
        return mqc_endpoint_error(&file->endpoint, EINVAL,
                                  "name has a ':', which is reserved for broadcasts and mailboxes");
    if (options->capacity && !mq_channel_capacity_is_valid(options->capacity))
        return mqc_endpoint_error(&file->endpoint, EINVAL, "capacity is %u; give a power of two, 2 to %d",
                                  options->capacity, MQ_CHANNEL_CAPACITY_MAX);
    if (options->node && (!*options->node || strlen(options->node) >= MQ_NODE_NAME_BYTES))
        return mqc_endpoint_error(&file->endpoint, EINVAL, "node name is empty or too long; give 1 to %d bytes",
                                  MQ_NODE_NAME_BYTES - 1);
    strcpy(file->node, options->node ? options->node : self.name);
    return 0;
}

int mqc_channel_file_init_beside(mqc_channel_file *file, const char *name, const mqc_endpoint *beside, mode_t mode,
                                 uint64_t capacity) {
    mq_process_identity self;
    memset(file, 0, sizeof *file);
    file->generation = mqc_fork_generation(), file->capacity = capacity;
    file->endpoint = *beside;
    file->endpoint.kind_name = "channel", file->endpoint.mode = mode, file->endpoint.create = MSGQ_OPEN_OR_MAKE;
    if (strlen(name) > MQC_CHANNEL_NAME_MAX)
        return mqc_set_error(EINVAL, "channel %.40s... has more than %d bytes", name, MQC_CHANNEL_NAME_MAX);
    strcpy(file->endpoint.name, name);
    int status = mqc_read_own_identity(&self);
    if (!status)
        strcpy(file->node, self.name);
    return status;
}

/* Lock the channel that was just mapped, and configure it. */
static int mqc_channel_file_prepare(mqc_channel_file *file, const msgq_channel_options *options, bool publishes,
                                    mq_file_lock *lock) {
    int status = mqc_channel_file_lock(file, true, lock);
    if (!status && (status = mqc_channel_file_configure(file, options, publishes)))
        mqc_unlock_mapped_file(lock);
    return status;
}

int mqc_channel_file_open(mqc_channel_file *file, const msgq_channel_options *options, bool publishes,
                          mq_file_lock *lock) {
    mqc_file_ops kind = {.start = "msgqchan_",
                         .least = sizeof(mq_channel_header),
                         .bytes = sizeof(mq_channel_header),
                         .check = mqc_channel_file_check,
                         .fill = mqc_channel_file_init_header,
                         .handle = file};
    char start[MQC_NAME + 2];
    int status = 0;
    snprintf(start, sizeof start, "%s:", file->endpoint.name);
    mqc_format_path(&file->endpoint, "msgqpool_", start, file->pool_prefix);
    for (int tries = MQ_OPEN_TRIES; !status; tries--) { /* another process may remove the file during an attempt */
        status = mqc_open_or_create(&file->endpoint, &kind, &file->segment);
        if (!status && !(status = mqc_channel_file_prepare(file, options, publishes, lock)))
            return 0;
        mqc_channel_file_close(file);
        if (status == -ENOENT && tries > 1 && file->endpoint.create != MSGQ_OPEN)
            status = 0;
    }
    return status;
}

void mqc_channel_file_close(mqc_channel_file *file) { mqc_unmap_file(&file->segment); }
