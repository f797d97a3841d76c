/* A channel's hub. See hub.h. To be compiled as C11. */
#define _GNU_SOURCE
#include "c/hub.h"

enum { MQC_CAPACITY = 64 };
static const uint64_t MQC_DEAD_BYTES = 1ull << 28; /* of all pools of the dead that stay */

void mqc_pool_path(const mqc_hub *hub, uint64_t uid, char *path) {
    char file[MQC_NAME + 20];
    snprintf(file, sizeof file, "%s:%016llx", hub->place.name, (unsigned long long)uid);
    mqc_path(&hub->place, "msgqpool_", file, path);
}

/* ---- opening ---- */

static int mqc_hub_check(void *handle) {
    mqc_hub *h = handle;
    h->hub = (mq_hub *)(void *)h->segment.address;
    mq_hub_status status = mq_hub_check(h->hub, h->segment.size);
    if (status == MQ_HUB_VERSION)
        return mqc_endpoint_error(&h->place, EPROTO, "has another layout than this library, which has version %d",
                                  MQ_HUB_MAJOR);
    return status == MQ_HUB_OK ? 0 : mqc_endpoint_error(&h->place, EPROTO, "is not a channel of msgq; remove it");
}

static void mqc_hub_fill(void *handle) {
    mqc_hub *h = handle;
    char creator[MQ_HUB_CREATOR] = "";
    memcpy(creator, h->node, sizeof h->node);
    mq_hub_write((mq_hub *)(void *)h->segment.address, MQ_PUBSUB, (uint64_t)msgq_time_ns(), (uint64_t)getpid(),
                 creator);
}

int mqc_hub_lock(const mqc_hub *hub, bool patient) {
    const mqc_endpoint *place = &hub->place;
    struct stat found;
    int fd = mqc_open_file(place, hub->segment.path, O_RDWR);
    if (fd < 0 && fd != -ENOENT)
        return fd;
    int status = 0;
    if (fd >= 0 && patient)
        status = mqc_lock_file(place, fd, hub->segment.path);
    else if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0)
        status = -EWOULDBLOCK;
    if (status) {
        close(fd);
        return status;
    }
    if (fd >= 0)
        status = mqc_check_file(place, fd, hub->segment.path, &found);
    if (fd < 0 || (!status && (found.st_ino != hub->segment.inode || !found.st_nlink)))
        status = mqc_endpoint_error(place, ENOENT, "the channel was removed, and perhaps made anew; open it again");
    if (status && fd >= 0)
        mqc_unlock_file(fd);
    return status ? status : fd;
}

/* ---- what all agree on ---- */

/* What is there, and what is asked for beside it. -EEXIST: they differ. */
static int mqc_hub_agree(const mqc_hub *hub, const msgq_channel_options *asked, bool publishes, mq_geometry *g) {
    uint64_t stamps = asked->unstamped ? MQ_NO_STAMPS : 0;
    *g = mq_geometry_of(mq_load_acquire_u64(&hub->hub->geometry));
    if ((g->capacity && asked->capacity && g->capacity != asked->capacity) || (stamps && g->stamps == MQ_STAMPS))
        return mqc_endpoint_error(&hub->place, EEXIST,
                                  "has capacity %llu, and stamps: %s, and others were asked for; leave them out to "
                                  "take what is there",
                                  (unsigned long long)g->capacity, g->stamps == MQ_STAMPS ? "yes" : "no");
    g->capacity = g->capacity ? g->capacity : asked->capacity;
    g->stamps = g->stamps ? g->stamps : stamps;
    if (publishes) {
        g->capacity = g->capacity ? g->capacity : hub->capacity;
        g->stamps = g->stamps ? g->stamps : MQ_STAMPS;
        g->publishers = g->publishers ? g->publishers : MQ_PUBLISHERS;
        g->subscribers = g->subscribers ? g->subscribers : MQ_ANY_SUBSCRIBERS;
    }
    return 0;
}

/* Agree, under the lock. */
static int mqc_hub_settle(mqc_hub *hub, const msgq_channel_options *asked, bool publishes) {
    mq_geometry g;
    mq_schema_parts at = mq_schema_parts_of(&hub->hub->schema, hub->hub->schema_data, MQ_HUB_SCHEMA_DATA);
    int status = mqc_hub_agree(hub, asked, publishes, &g);
    if (!status && !mq_hub_settle(hub->hub, g))
        status = mqc_endpoint_error(&hub->place, EPROTO,
                                    "has a capacity of %llu, which no channel has: foreign bytes; remove it",
                                    (unsigned long long)g.capacity);
    if (!status && asked->schema && !mqc_is_described(&at))
        status = mqc_describe(&hub->place, &at, asked->schema, true);
    return status;
}

int mqc_hub_begin(mqc_hub *hub, const char *name, const msgq_channel_options *options) {
    mq_self self;
    memset(hub, 0, sizeof *hub);
    hub->generation = mqc_generation(), hub->capacity = MQC_CAPACITY;
    int status = mqc_endpoint_init(&hub->place, "channel", name, MQC_CHANNEL_NAME_MAX, &options->open, 0);
    if (!status)
        status = mqc_identify(&self);
    if (status)
        return status;
    if (strchr(name, ':'))
        return mqc_endpoint_error(&hub->place, EINVAL, "has a ':', which broadcasts and mailboxes of nodes have");
    if (options->capacity && !mq_capacity_makes_sense(options->capacity))
        return mqc_endpoint_error(&hub->place, EINVAL, "capacity is %u; give a power of two, 2 to %d",
                                  options->capacity, MQ_CAPACITY_MAX);
    if (options->node && (!*options->node || strlen(options->node) >= MQ_NODE_NAME))
        return mqc_endpoint_error(&hub->place, EINVAL, "a node has a name of 1 to %d bytes", MQ_NODE_NAME - 1);
    strcpy(hub->node, options->node ? options->node : self.name);
    return 0;
}

int mqc_hub_begin_beside(mqc_hub *hub, const char *name, const mqc_endpoint *beside, mode_t mode, uint64_t capacity) {
    mq_self self;
    memset(hub, 0, sizeof *hub);
    hub->generation = mqc_generation(), hub->capacity = capacity;
    hub->place = *beside;
    hub->place.noun = "channel", hub->place.mode = mode, hub->place.create = MSGQ_OPEN_OR_MAKE;
    if (strlen(name) > MQC_CHANNEL_NAME_MAX)
        return mqc_fail(EINVAL, "channel %.40s... has more than %d bytes", name, MQC_CHANNEL_NAME_MAX);
    strcpy(hub->place.name, name);
    int status = mqc_identify(&self);
    if (!status)
        strcpy(hub->node, self.name);
    return status;
}

/* Say that the channel is open here, so that nobody takes it for unused before there is a row; and agree. */
static int mqc_hub_stay(mqc_hub *hub, const msgq_channel_options *options, bool publishes) {
    int fd = mqc_hub_lock(hub, true);
    if (fd < 0)
        return fd;
    hub->hold = mq_liveness_lock(&hub->segment.roll, MQ_OPEN_BYTE, true); /* NULL: there are no such locks here */
    int status = mqc_hub_settle(hub, options, publishes);
    mqc_unlock_file(fd);
    return status;
}

int mqc_hub_open(mqc_hub *hub, const msgq_channel_options *options, bool publishes) {
    mqc_file_ops kind = {.start = "msgqchan_",
                         .least = sizeof(mq_hub),
                         .bytes = sizeof(mq_hub),
                         .check = mqc_hub_check,
                         .fill = mqc_hub_fill,
                         .handle = hub};
    int status = 0;
    for (int tries = MQC_OPEN_TRIES; !status; tries--) { /* others may remove it meanwhile */
        status = mqc_make_directory(&hub->place, "msgqpool_", hub->place.mode);
        if (!status)
            status = mqc_open_or_create(&hub->place, &kind, &hub->segment);
        if (!status && !(status = mqc_hub_stay(hub, options, publishes)))
            return 0;
        mqc_hub_end(hub);
        if (status == -ENOENT && tries > 1 && hub->place.create != MSGQ_OPEN)
            status = 0;
    }
    return status;
}

void mqc_hub_end(mqc_hub *hub) {
    if (hub->generation == mqc_generation())
        mq_liveness_unlock(hub->hold);
    hub->hold = NULL;
    mqc_unmap(&hub->segment);
}

/* ---- what the dead left ---- */

typedef struct {
    uint64_t newest; /* the position after its newest message in the order; 0: it has none there */
    int row;
    uint64_t bytes;
} mqc_dead_pool;

static int mqc_dead_before(const void *one, const void *other) {
    const mqc_dead_pool *a = one, *b = other;
    return (a->newest > b->newest) - (a->newest < b->newest);
}

/* The pools of the dead, the oldest first. */
static int mqc_hub_dead(mqc_hub *hub, const mq_index_ring *order, mqc_dead_pool *dead) {
    mq_liveness_probe inquiry = mq_liveness_probe_begin(&hub->segment.roll);
    int count = 0;
    for (int i = 0; i < MQ_PUBLISHERS; i++) {
        const mq_channel_publisher_row *row = &hub->hub->publishers[i];
        if (!mq_load_acquire_u64(&row->pool_uid) || mq_channel_row_liveness(hub->hub, &inquiry, i) != MQ_DEAD)
            continue;
        mqc_dead_pool *pool = &dead[count++];
        *pool = (mqc_dead_pool){.row = i, .bytes = mq_load_relaxed_u64(&row->pool_bytes)}; /* relaxed: under the lock */
        if (order && !mq_hub_references(order, (unsigned)i, &pool->newest))
            pool->newest = 0;
    }
    mq_liveness_probe_end(&inquiry);
    qsort(dead, (size_t)count, sizeof *dead, mqc_dead_before);
    return count;
}

/* Take a dead publisher's messages out of the order, and its pool away. */
static int mqc_hub_clear(mqc_hub *hub, const mq_index_ring *order, int i) {
    mq_channel_publisher_row *row = &hub->hub->publishers[i];
    char path[MQC_PATH];
    if (order)
        mq_hub_withdraw(order, (unsigned)i);
    mqc_pool_path(hub, mq_load_relaxed_u64(&row->pool_uid), path); /* relaxed: under the lock */
    int removed = mqc_remove_file(&hub->place, path);
    if (removed >= 0)
        mq_hub_free(row);
    return removed < 0 ? removed : 0;
}

int mqc_hub_sweep(mqc_hub *hub, int most) {
    mqc_dead_pool dead[MQ_PUBLISHERS];
    mq_index_ring order;
    bool begun = mq_channel_order(hub->hub, &order);
    int count = mqc_hub_dead(hub, begun ? &order : NULL, dead), left = count;
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += dead[i].bytes;
    for (int i = 0; i < count && !(dead[i].newest && left <= most && bytes <= MQC_DEAD_BYTES); i++) {
        int status = mqc_hub_clear(hub, begun ? &order : NULL, dead[i].row);
        if (status)
            return status;
        left--, bytes -= dead[i].bytes;
    }
    return left;
}
