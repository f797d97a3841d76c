/* A channel's file. See channelfile.h. Compile as C11. */
#define _GNU_SOURCE
#include "c/channelfile.h"

enum { MQC_CAPACITY = 64 };
/* maximum total bytes of dead publishers' pools that the channel keeps */
static const uint64_t MQC_KEPT_DEAD_BYTES = 1ull << 28;

void mqc_pool_path(const mqc_channel_file *file, uint64_t uid, char *path) {
    char pool_name[MQC_NAME + 20];
    snprintf(pool_name, sizeof pool_name, "%s:%016llx", file->endpoint.name, (unsigned long long)uid);
    mqc_format_path(&file->endpoint, "msgqpool_", pool_name, path);
}

/* ---- open ---- */

static int mqc_channel_file_check(void *handle) {
    mqc_channel_file *h = handle;
    h->header = (mq_channel_header *)(void *)h->segment.address;
    mq_file_check_result status = mq_channel_header_check(h->header, h->segment.size);
    if (status == MQ_FILE_OTHER_VERSION)
        return mqc_endpoint_error(&h->endpoint, EPROTO, "has a layout other than version %d of this library",
                                  MQ_CHANNEL_MAJOR);
    return status == MQ_FILE_VALID ? 0
                                   : mqc_endpoint_error(&h->endpoint, EPROTO, "is not a channel of msgq; remove it");
}

static void mqc_channel_file_init_header(void *handle) {
    mqc_channel_file *h = handle;
    char creator[MQ_CHANNEL_CREATOR_BYTES] = "";
    memcpy(creator, h->node, sizeof h->node);
    mq_channel_header_init((mq_channel_header *)(void *)h->segment.address, MQ_CHANNEL_PUBSUB, (uint64_t)msgq_time_ns(),
                           (uint64_t)getpid(), creator);
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

/* Merge the existing and the requested configuration. Returns -EEXIST if the two configurations differ. */
static int mqc_channel_merge_config(const mqc_channel_file *file, const msgq_channel_options *asked, bool publishes,
                                    mq_channel_config *g) {
    uint64_t stamps = asked->unstamped ? MQ_CHANNEL_UNSTAMPED : 0;
    *g = mq_channel_config_unpack(mq_load_acquire_u64(&file->header->config));
    if ((g->capacity && asked->capacity && g->capacity != asked->capacity) ||
        (stamps && g->stamps == MQ_CHANNEL_STAMPED))
        return mqc_endpoint_error(&file->endpoint, EEXIST,
                                  "has capacity %llu, and stamps: %s, but others were requested; omit them to "
                                  "use the existing values",
                                  (unsigned long long)g->capacity, g->stamps == MQ_CHANNEL_STAMPED ? "yes" : "no");
    g->capacity = g->capacity ? g->capacity : asked->capacity;
    g->stamps = g->stamps ? g->stamps : stamps;
    if (publishes) {
        g->capacity = g->capacity ? g->capacity : file->capacity;
        g->stamps = g->stamps ? g->stamps : MQ_CHANNEL_STAMPED;
        g->publishers = g->publishers ? g->publishers : MQ_CHANNEL_PUBLISHERS;
        g->subscribers = g->subscribers ? g->subscribers : MQ_CHANNEL_ANY_SUBSCRIBERS;
    }
    return 0;
}

/* Configure the channel under the lock. */
static int mqc_channel_file_configure(mqc_channel_file *file, const msgq_channel_options *asked, bool publishes) {
    mq_channel_config g;
    mq_schema_parts at =
        mq_schema_parts_from_block(&file->header->schema, file->header->schema_data, MQ_CHANNEL_SCHEMA_BYTES);
    int status = mqc_channel_merge_config(file, asked, publishes, &g);
    if (!status && !mq_channel_store_config(file->header, g))
        status = mqc_endpoint_error(&file->endpoint, EPROTO,
                                    "has the invalid capacity %llu: another program wrote into the file; remove it",
                                    (unsigned long long)g.capacity);
    if (!status && asked->schema && !mqc_has_schema(&at))
        status = mqc_write_schema(&file->endpoint, &at, asked->schema, true);
    return status;
}

int mqc_channel_file_init(mqc_channel_file *file, const char *name, const msgq_channel_options *options) {
    mq_process_identity self;
    memset(file, 0, sizeof *file);
    file->generation = mqc_fork_generation(), file->capacity = MQC_CAPACITY;
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

/* Mark the channel as open, and configure the channel. Without the mark, another process could regard the channel as
 * unused while this handle has no row. */
static int mqc_channel_file_mark_open(mqc_channel_file *file, const msgq_channel_options *options, bool publishes) {
    mq_file_lock lock;
    int status = mqc_channel_file_lock(file, true, &lock);
    if (status)
        return status;
    /* NULL: the file system has no such locks */
    file->liveness_token = mq_liveness_lock(&lock.file, MQ_CHANNEL_OPEN_BYTE, true);
    status = mqc_channel_file_configure(file, options, publishes);
    mqc_unlock_mapped_file(&lock);
    return status;
}

int mqc_channel_file_open(mqc_channel_file *file, const msgq_channel_options *options, bool publishes) {
    mqc_file_ops kind = {.start = "msgqchan_",
                         .least = sizeof(mq_channel_header),
                         .bytes = sizeof(mq_channel_header),
                         .check = mqc_channel_file_check,
                         .fill = mqc_channel_file_init_header,
                         .handle = file};
    int status = 0;
    for (int tries = MQC_OPEN_TRIES; !status; tries--) { /* another process may remove the file during an attempt */
        status = mqc_make_directory(&file->endpoint, "msgqpool_", file->endpoint.mode);
        if (!status)
            status = mqc_open_or_create(&file->endpoint, &kind, &file->segment);
        if (!status && !(status = mqc_channel_file_mark_open(file, options, publishes)))
            return 0;
        mqc_channel_file_close(file);
        if (status == -ENOENT && tries > 1 && file->endpoint.create != MSGQ_OPEN)
            status = 0;
    }
    return status;
}

void mqc_channel_file_close(mqc_channel_file *file) {
    if (file->generation == mqc_fork_generation())
        mq_liveness_unlock(file->liveness_token);
    file->liveness_token = NULL;
    mqc_unmap_file(&file->segment);
}

/* ---- pools of dead publishers ---- */

typedef struct {
    /* position after the pool's newest message in the index ring; 0: the index ring has no message of the pool */
    uint64_t newest;
    int row;
    uint64_t bytes;
} mqc_dead_pool;

static int mqc_compare_dead_pools(const void *one, const void *other) {
    const mqc_dead_pool *a = one, *b = other;
    return (a->newest > b->newest) - (a->newest < b->newest);
}

/* List the pools of dead publishers, sorted by the position of their newest message. */
static int mqc_list_dead_pools(mqc_channel_file *file, const mq_index_ring *order, mqc_dead_pool *dead) {
    mq_liveness_probe probe = mq_liveness_probe_begin(&file->segment.liveness_file);
    int count = 0;
    for (int i = 0; i < MQ_CHANNEL_PUBLISHERS; i++) {
        const mq_channel_publisher_row *row = &file->header->publishers[i];
        if (!mq_load_acquire_u64(&row->pool_uid) || mq_channel_publisher_liveness(file->header, &probe, i) != MQ_DEAD)
            continue;
        mqc_dead_pool *pool = &dead[count++];
        *pool = (mqc_dead_pool){.row = i, .bytes = mq_load_relaxed_u64(&row->pool_bytes)}; /* relaxed: under the lock */
        if (order && !mq_channel_count_row_entries(order, (unsigned)i, &pool->newest))
            pool->newest = 0;
    }
    mq_liveness_probe_end(&probe);
    qsort(dead, (size_t)count, sizeof *dead, mqc_compare_dead_pools);
    return count;
}

/* Retract the messages of a dead publisher, and remove the publisher's pool. */
static int mqc_remove_dead_pool(mqc_channel_file *file, const mq_index_ring *order, int i) {
    mq_channel_publisher_row *row = &file->header->publishers[i];
    char path[MQC_PATH];
    if (order)
        mq_channel_retract_row_entries(order, (unsigned)i);
    mqc_pool_path(file, mq_load_relaxed_u64(&row->pool_uid), path); /* relaxed: under the lock */
    int removed = mqc_remove_file(&file->endpoint, path);
    if (removed >= 0)
        mq_channel_release_row(row);
    return removed < 0 ? removed : 0;
}

int mqc_remove_dead_pools(mqc_channel_file *file, int most) {
    mqc_dead_pool dead[MQ_CHANNEL_PUBLISHERS];
    mq_index_ring order;
    bool begun = mq_channel_load_index_ring(file->header, &order);
    int count = mqc_list_dead_pools(file, begun ? &order : NULL, dead), left = count;
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += dead[i].bytes;
    for (int i = 0; i < count && !(dead[i].newest && left <= most && bytes <= MQC_KEPT_DEAD_BYTES); i++) {
        int status = mqc_remove_dead_pool(file, begun ? &order : NULL, dead[i].row);
        if (status)
            return status;
        left--, bytes -= dead[i].bytes;
    }
    return left;
}
