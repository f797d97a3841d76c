/* Steps of a channel under the lock of its file (base/file_lock.h): join, sweep, leave. Python and C call them. The
 * caller holds the lock, and releases it afterwards. A child that is forked during a step has neither lock nor row.
 *
 *   `Join`: complete the configuration, remove pools of dead publishers, lock a free row, create a pool without a name,
 *   register the pool in the row, and only then give it its name. Therefore each pool with a name has a row, by which
 *   others find and remove it. Last, wake the subscribers, because another publisher may have died before its wake.
 *   `Sweep`: retract the messages of a dead publisher, remove its pool, and only then free its row.
 *   `View`: clear the pins of the row's dead owner, and only then lock the row (header.h).
 *
 * After a kill at any step, the next process that joins continues. */
#ifndef MQ_CHANNEL_JOIN_H
#define MQ_CHANNEL_JOIN_H

#include "channel/configure.h"
#include "channel/pool_file.h"
#include "channel/subscriber.h"

enum {
    MQ_CHANNEL_KEPT_DEAD_POOLS = 8, /* maximum pools that stay for subscribers that have not read their messages yet */
    MQ_CHANNEL_KEPT_DEAD_BYTES = 1 << 28, /* maximum total bytes of these pools */
    MQ_CHANNEL_OWNER_TEXT_BYTES = MQ_NODE_NAME_BYTES + 32,
};

/* ---- limits, with the owners of rows ---- */

static inline mq_row_table mq_channel_publisher_row_table(mq_channel_header *header) {
    return (mq_row_table){.rows = header->publishers,
                          .stride = sizeof(mq_channel_publisher_row),
                          .count = MQ_CHANNEL_PUBLISHERS,
                          .byte = MQ_CHANNEL_PUBLISHER_BYTE};
}

/* Describe the living owner of a row. Returns false if the row has none. */
static inline bool mq_channel_describe_owner(mq_liveness_probe *probe, const mq_row_table *table, size_t node_offset,
                                             int row, char text[static MQ_CHANNEL_OWNER_TEXT_BYTES]) {
    const mq_participant *participant = mq_row_table_participant(table, row);
    if (mq_participant_liveness(probe, participant, table->byte + row) == MQ_DEAD)
        return false;
    const char *node = (const char *)participant + node_offset;
    snprintf(text, MQ_CHANNEL_OWNER_TEXT_BYTES, "%.*s %llu", MQ_NODE_NAME_BYTES, node,
             (unsigned long long)mq_load_relaxed_u64(&participant->pid)); /* relaxed: for people */
    return true;
}

/* Append the living owners of rows to the text of an error, each owner once, with the number of its rows. */
static inline void mq_channel_append_owners(const mq_channel_files *files, const mq_row_table *table,
                                            size_t node_offset, mq_error *error) {
    char owners[MQ_CHANNEL_SUBSCRIBERS][MQ_CHANNEL_OWNER_TEXT_BYTES];
    unsigned rows[MQ_CHANNEL_SUBSCRIBERS], count = 0, shown = 0;
    mq_liveness_probe probe = mq_liveness_probe_begin(files->liveness_file);
    for (int row = 0; row < table->count; row++) {
        if (!mq_channel_describe_owner(&probe, table, node_offset, row, owners[count]))
            continue;
        unsigned same = 0;
        while (strcmp(owners[same], owners[count]))
            same++;
        if (same == count)
            rows[count++] = 0;
        rows[same]++;
    }
    mq_liveness_probe_end(&probe);
    for (; shown < count && strlen(error->text) + 2 * MQ_CHANNEL_OWNER_TEXT_BYTES < sizeof error->text; shown++) {
        mq_error_append(error, "%s%s", shown ? ", " : ": ", owners[shown]);
        if (rows[shown] > 1)
            mq_error_append(error, " (%u rows)", rows[shown]);
    }
    if (shown < count)
        mq_error_append(error, ", and %u more", count - shown);
}

static inline void mq_channel_append_publishers(const mq_channel_files *files, mq_error *error) {
    mq_row_table table = mq_channel_publisher_row_table(files->header);
    mq_channel_append_owners(files, &table, offsetof(mq_channel_publisher_row, node), error);
}

/* Return the rows of living publishers, one bit each. A publisher that dies afterwards still counts as living. */
static inline uint64_t mq_channel_find_living_publishers(const mq_channel_files *files, const mq_file_lock *lock) {
    mq_liveness_probe probe = mq_liveness_probe_begin(&lock->file);
    uint64_t living = 0;
    for (int row = 0; row < MQ_CHANNEL_PUBLISHERS; row++)
        living |= (uint64_t)(mq_channel_publisher_liveness(files->header, &probe, row) != MQ_DEAD) << row;
    mq_liveness_probe_end(&probe);
    return living;
}

/* Refuse a new publisher if the channel has its maximum number. */
static inline int mq_channel_check_publisher_limit(const mq_channel_files *files, uint64_t living, mq_error *error) {
    uint64_t most = mq_channel_config_unpack(mq_load_acquire_u64(&files->header->config)).publishers, count = 0;
    for (int row = 0; row < MQ_CHANNEL_PUBLISHERS; row++) /* relaxed: under the lock. Rows kept for loans count once */
        if (!mq_load_relaxed_u64(&files->header->publishers[row].superseded))
            count += living >> row & 1;
    if (count < most)
        return 0;
    mq_fail(error, MQ_ERROR_TOO_MANY_PUBLISHERS, ENFILE, "", "number of publishers is at its limit (%llu)",
            (unsigned long long)most);
    mq_channel_append_publishers(files, error);
    return -ENFILE;
}

/* Refuse a new subscriber if the channel has its maximum number. All rows count, because some subscribers may have
 * joined before the limit was set. */
static inline int mq_channel_check_subscriber_limit(const mq_channel_files *files, const mq_file_lock *lock,
                                                    mq_error *error) {
    mq_row_table table = mq_channel_subscriber_row_table(files->header, MQ_CHANNEL_SUBSCRIBERS);
    uint64_t most = mq_channel_config_unpack(mq_load_acquire_u64(&files->header->config)).subscribers, living = 0;
    if (most == 0 || most > MQ_CHANNEL_SUBSCRIBERS)
        return 0;
    mq_liveness_probe probe = mq_liveness_probe_begin(&lock->file);
    for (int row = 0; row < table.count; row++)
        living += mq_participant_liveness(&probe, mq_row_table_participant(&table, row), table.byte + row) != MQ_DEAD;
    mq_liveness_probe_end(&probe);
    if (living < most)
        return 0;
    mq_fail(error, MQ_ERROR_TOO_MANY_SUBSCRIBERS, ENFILE, "", "number of subscribers is at its limit (%llu)",
            (unsigned long long)most);
    mq_channel_append_owners(files, &table, offsetof(mq_channel_subscriber_row, node), error);
    return -ENFILE;
}

/* ---- pools of dead publishers ---- */

typedef struct {
    /* position after the pool's newest message in the index ring; 0: the index ring has no message of the pool */
    uint64_t newest;
    int row;
    uint64_t bytes;
} mq_channel_dead_pool;

static inline int mq_channel_compare_dead_pools(const void *one, const void *other) {
    const mq_channel_dead_pool *a = one, *b = other;
    return (a->newest > b->newest) - (a->newest < b->newest);
}

/* List the pools of dead publishers, sorted by the position of their newest message. `order`: NULL without messages. */
static inline int mq_channel_list_dead_pools(const mq_channel_files *files, uint64_t living, const mq_index_ring *order,
                                             mq_channel_dead_pool *dead) {
    int count = 0;
    for (int i = 0; i < MQ_CHANNEL_PUBLISHERS; i++) {
        const mq_channel_publisher_row *row = &files->header->publishers[i];
        if (!mq_load_acquire_u64(&row->pool_uid) || living >> i & 1)
            continue;
        mq_channel_dead_pool *pool = &dead[count++];
        /* relaxed: under the lock */
        *pool = (mq_channel_dead_pool){.row = i, .bytes = mq_load_relaxed_u64(&row->pool_bytes)};
        if (order && !mq_channel_count_row_entries(order, (unsigned)i, &pool->newest))
            pool->newest = 0;
    }
    qsort(dead, (size_t)count, sizeof *dead, mq_channel_compare_dead_pools);
    return count;
}

static inline int mq_channel_remove_pool_file(const mq_channel_files *files, const mq_channel_publisher_row *row,
                                              mq_error *error) {
    char path[MQ_ERROR_PATH_BYTES];
    mq_pool_path(files, mq_load_relaxed_u64(&row->pool_uid), path); /* relaxed: under the lock */
    int removed = mq_remove_file(files->policy, path, error);
    return removed < 0 ? removed : 0;
}

/* Remove the pools of dead publishers: all pools without a message in the index ring, and the oldest pools if more than
 * `max_kept` pools or too many bytes are left. `living`: see mq_channel_find_living_publishers, which comes first, so
 * that a dead publisher's messages are counted after its death. Returns the number of pools left, or an error. */
static inline int mq_channel_remove_dead_pools(const mq_channel_files *files, uint64_t living, int max_kept,
                                               mq_error *error) {
    mq_channel_dead_pool dead[MQ_CHANNEL_PUBLISHERS];
    mq_index_ring order;
    bool has_order = mq_channel_load_index_ring(files->header, &order);
    int count = mq_channel_list_dead_pools(files, living, has_order ? &order : NULL, dead), left = count;
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += dead[i].bytes;
    for (int i = 0; i < count; i++) {
        mq_channel_publisher_row *row = &files->header->publishers[dead[i].row];
        if (dead[i].newest && left <= max_kept && bytes <= MQ_CHANNEL_KEPT_DEAD_BYTES)
            break;
        if (has_order)
            mq_channel_retract_row_entries(&order, (unsigned)dead[i].row);
        int failed = mq_channel_remove_pool_file(files, row, error);
        if (failed)
            return failed;
        mq_channel_release_row(row);
        left--, bytes -= dead[i].bytes;
    }
    return left;
}

/* Remove the pools of dead publishers that no subscriber needs. Returns the number of pools left, or an error. */
static inline int mq_channel_sweep(const mq_channel_files *files, const mq_file_lock *lock, mq_error *error) {
    return mq_channel_remove_dead_pools(files, mq_channel_find_living_publishers(files, lock),
                                        MQ_CHANNEL_KEPT_DEAD_POOLS, error);
}

/* Remove the names of all pools, and then the name of the channel. */
static inline int mq_channel_unlink(const mq_channel_files *files, mq_error *error) {
    int failed = 0;
    for (int i = 0; i < MQ_CHANNEL_PUBLISHERS && !failed; i++)
        if (mq_load_acquire_u64(&files->header->publishers[i].pool_uid))
            failed = mq_channel_remove_pool_file(files, &files->header->publishers[i], error);
    if (!failed)
        failed = mq_remove_file(files->policy, files->liveness_file->path, error);
    return failed < 0 ? failed : 0;
}

/* ---- publishers ---- */

/* A publisher that joins. */
typedef struct {
    const mq_process_identity *self;
    const char *node;
    uint64_t pool_uid;          /* random uid of the new pool */
    uint64_t slots, slot_bytes; /* 0 slots: the default */
    uint64_t max_bytes;         /* maximum bytes of the pool's slots */
    int64_t clock_offset;
    const int64_t *virtual_ns;
    bool replaces; /* the publisher has a row already, and needs a larger pool */
} mq_channel_join_request;

/* Return a free row, with its lock in *row_token. `left` pools of dead publishers may be removed for that. */
static inline int mq_channel_take_publisher_row(const mq_channel_files *files, const mq_file_lock *lock,
                                                uint64_t living, int left, void **row_token, mq_error *error) {
    int row = mq_channel_find_free_row(files->header, &lock->file, row_token);
    while (row == MQ_NO_ROW && left > 0) {
        left = mq_channel_remove_dead_pools(files, living, left - 1, error);
        row = left < 0 ? left : mq_channel_find_free_row(files->header, &lock->file, row_token);
        if (left < 0)
            return left;
    }
    if (row != MQ_NO_ROW)
        return row;
    mq_fail(error, MQ_ERROR_TOO_MANY_PUBLISHERS, ENFILE, "", "all %d rows of publishers are in use",
            MQ_CHANNEL_PUBLISHERS);
    mq_channel_append_publishers(files, error);
    return -ENFILE;
}

/* Initialize the publisher that owns the row and the pool. */
static inline int mq_channel_init_publisher(const mq_channel_files *files, const mq_channel_join_request *request,
                                            int row, const mq_pool_file *pool, mq_channel_publisher *p,
                                            mq_error *error) {
    uint64_t config = mq_load_acquire_u64(&files->header->config);
    *p = (mq_channel_publisher){.slots = pool->slots,
                                .header = files->header,
                                .row = &files->header->publishers[row],
                                .number = (unsigned)row,
                                .stamps = mq_channel_config_unpack(config).stamps == MQ_CHANNEL_STAMPED,
                                .clock_offset = request->clock_offset,
                                .virtual_ns = request->virtual_ns,
                                .liveness_file = files->liveness_file};
    if (!mq_channel_load_index_ring(files->header, &p->order)) /* the capacity is set, so the order has another error */
        return mq_fail(error, MQ_ERROR_CORRUPT, EPROTO, files->liveness_file->path,
                       "has an invalid order: another program wrote into the file; remove it (msgq clean)");
    /* private memory has no holes that the memory of others could fill */
    bool is_private = mq_liveness_private_file(files->liveness_file) != NULL;
    if (!mq_channel_publisher_init(p, mq_makes_holes(files->policy) && !is_private))
        return mq_fail(error, MQ_ERROR_PROCESS, ENOMEM, "", "no memory for a publisher");
    return 0;
}

/* Register the new pool in the row, and then give the pool its name. So no pool with a name is without a row. */
static inline int mq_channel_name_pool(const mq_channel_files *files, const mq_channel_join_request *request,
                                       const mq_channel_publisher *p, bool held, int fd, const mq_pool_file *pool,
                                       mq_error *error) {
    char path[MQ_ERROR_PATH_BYTES];
    mq_pool_path(files, request->pool_uid, path);
    mq_channel_publisher_register(p->row, request->self, held, &p->slots, pool->mapping->size,
                                  (uint64_t)pool->found.st_ino, request->node);
    int named = mq_name_file(files->policy, fd, path, error);
    if (named == 1)
        return 0;
    mq_channel_release_row(p->row);
    return named ? named : mq_fail_system(error, EEXIST, path, "pool exists; remove it (msgq clean)");
}

/* Create a pool for the row, and name it. */
static inline int mq_channel_fill_publisher_row(const mq_channel_files *files, const mq_channel_join_request *request,
                                                int row, bool held, mq_channel_publisher *p, mq_pool_file *pool,
                                                mq_error *error) {
    uint64_t capacity = mq_channel_config_unpack(mq_load_acquire_u64(&files->header->config)).capacity;
    int64_t slots = mq_pool_choose_slot_count(capacity, request->slots, request->slot_bytes, request->max_bytes, error);
    int fd = slots < 0 ? (int)slots
                       : mq_pool_create(files, request->pool_uid, (uint64_t)slots, request->slot_bytes,
                                        request->self->pid, request->node, pool, error);
    if (fd < 0)
        return fd;
    int failed = mq_channel_init_publisher(files, request, row, pool, p, error);
    if (!failed)
        failed = mq_channel_name_pool(files, request, p, held, fd, pool, error);
    mq_close_file(fd);
    if (failed) {
        mq_channel_publisher_free(p);
        mq_mapping_release(pool->mapping);
    }
    return failed;
}

/* Take a row and create its pool. The caller then owns the publisher, the lock of the row in *row_token, and the
 * mapping. Returns 0 or an error, after which nothing is left. */
static inline int mq_channel_join(const mq_channel_files *files, const mq_file_lock *lock,
                                  const mq_channel_join_request *request, mq_channel_publisher *p, void **row_token,
                                  mq_pool_file *pool, mq_error *error) {
    mq_channel_config nothing = {0}, defaults = mq_channel_default_config(MQ_CHANNEL_CAPACITY_DEFAULT);
    int failed = mq_channel_configure(files->header, files->liveness_file->path, &nothing, &defaults, error);
    if (failed)
        return failed;
    uint64_t living = mq_channel_find_living_publishers(files, lock);
    int left = mq_channel_remove_dead_pools(files, living, MQ_CHANNEL_KEPT_DEAD_POOLS, error);
    if (left < 0)
        return left;
    failed = request->replaces ? 0 : mq_channel_check_publisher_limit(files, living, error);
    int row = failed ? failed : mq_channel_take_publisher_row(files, lock, living, left, row_token, error);
    if (row < 0)
        return row;
    failed = mq_channel_fill_publisher_row(files, request, row, *row_token != NULL, p, pool, error);
    if (failed) {
        mq_liveness_unlock(*row_token);
        *row_token = NULL;
    } else if (mq_eventcount_has_waiters_mp(&files->header->eventcount))
        mq_eventcount_notify_mp(&files->header->eventcount);
    return failed;
}

/* Leave the row, at any time and without the lock. The pool stays for subscribers that have not read its messages. */
static inline void mq_channel_leave(const mq_channel_publisher *p, void **row_token) {
    mq_participant_leave(&p->row->participant, p->slots.uid, row_token);
}

/* Leave the row as the death of its process does: the row stays, without its lock. Only on a bus. */
static inline void mq_channel_abandon(void **row_token) {
    mq_liveness_unlock(*row_token);
    *row_token = NULL;
}

/* ---- subscribers ---- */

/* The rows of a subscriber. */
typedef struct {
    mq_channel_header *header;      /* NULL: not registered */
    mq_channel_subscriber_row *row; /* NULL: all rows are in use, and the subscriber works without a row */
    int viewer;                     /* row in `viewers`; MQ_NO_ROW: the subscriber has taken no views */
    void *row_token;                /* lock of the row. Without a row, a shared lock of MQ_CHANNEL_OPEN_BYTE */
    void *viewer_token;
    uint64_t row_uid, viewer_uid;
} mq_channel_subscriber_rows;

/* Take a row if one is free. Without a row, a shared lock keeps the channel from removal. */
static inline int mq_channel_register_subscriber(const mq_channel_files *files, const mq_file_lock *lock,
                                                 const mq_process_identity *self, uint64_t uid, const char *node,
                                                 mq_channel_subscriber_rows *rows, mq_error *error) {
    mq_row_table table = mq_channel_subscriber_row_table(files->header, MQ_CHANNEL_SUBSCRIBERS);
    *rows = (mq_channel_subscriber_rows){.header = files->header, .viewer = MQ_NO_ROW};
    int failed = mq_channel_check_subscriber_limit(files, lock, error);
    if (failed)
        return failed;
    int row = mq_row_table_reserve(&table, &lock->file, &rows->row_token);
    if (row == MQ_NO_ROW) {
        rows->row_token = mq_liveness_lock(&lock->file, MQ_CHANNEL_OPEN_BYTE, true);
        return 0;
    }
    rows->row = &files->header->subscribers[row], rows->row_uid = uid;
    mq_channel_subscriber_register(rows->row, self, uid, rows->row_token != NULL, node);
    return 0;
}

/* Clear a dead viewer's pins in pools of living publishers. Pools of dead publishers are not written again. */
static inline int mq_channel_clear_pins_of_viewer(const mq_channel_files *files, const mq_file_lock *lock, int viewer,
                                                  mq_error *error) {
    uint64_t living = mq_channel_find_living_publishers(files, lock);
    int failed = 0;
    for (int i = 0; i < MQ_CHANNEL_PUBLISHERS && !failed; i++) {
        mq_pool_file pool;
        uint64_t uid = mq_load_acquire_u64(&files->header->publishers[i].pool_uid);
        if (!uid || !(living >> i & 1))
            continue;
        failed = mq_pool_open(files, uid, true, &pool, error);
        if (failed == -ENOENT) {
            failed = 0;
            continue;
        }
        if (!failed) {
            mq_channel_clear_dead_viewer_pins(&pool.slots, viewer);
            mq_mapping_release(pool.mapping);
        }
    }
    return failed;
}

/* Take a row of viewers, which is a bit in pins. */
static inline int mq_channel_register_viewer(const mq_channel_files *files, const mq_file_lock *lock,
                                             const mq_process_identity *self, uint64_t uid,
                                             mq_channel_subscriber_rows *rows, mq_error *error) {
    int failed = 0, row = mq_channel_find_free_viewer(files->header, &lock->file, 0);
    while (row != MQ_NO_ROW) {
        if (mq_channel_viewer_row_is_stale(files->header, row))
            failed = mq_channel_clear_pins_of_viewer(files, lock, row, error);
        if (failed)
            return failed;
        rows->viewer_token = mq_liveness_lock(&lock->file, MQ_CHANNEL_VIEWER_BYTE + (uint64_t)row, false);
        /* EAGAIN: the row's owner is leaving, or a child of the owner holds the lock */
        if (rows->viewer_token || errno != EAGAIN)
            break;
        row = mq_channel_find_free_viewer(files->header, &lock->file, row + 1);
    }
    if (row == MQ_NO_ROW)
        return mq_fail(error, MQ_ERROR_TOO_MANY_SUBSCRIBERS, ENFILE, "",
                       "has %d subscribers with views, its limit; use receive(), which copies", MQ_CHANNEL_VIEWERS);
    mq_participant_write(&files->header->viewers[row].participant, self, uid, rows->viewer_token != NULL);
    rows->viewer = row, rows->viewer_uid = uid;
    if (rows->row)
        mq_store_release_u64(&rows->row->viewer, (uint64_t)row + 1);
    return 0;
}

/* Leave all rows as the death of their process does: they stay, without their locks. Only on a bus. */
static inline void mq_channel_abandon_rows(mq_channel_subscriber_rows *rows) {
    mq_liveness_unlock(rows->row_token);
    mq_liveness_unlock(rows->viewer_token);
    *rows = (mq_channel_subscriber_rows){.viewer = MQ_NO_ROW};
}

/* Leave all rows, at any time and without the lock. */
static inline void mq_channel_leave_rows(mq_channel_subscriber_rows *rows) {
    if (rows->row)
        mq_participant_leave(&rows->row->participant, rows->row_uid, &rows->row_token);
    else
        mq_liveness_unlock(rows->row_token);
    if (rows->header && rows->viewer != MQ_NO_ROW)
        mq_participant_leave(&rows->header->viewers[rows->viewer].participant, rows->viewer_uid, &rows->viewer_token);
    *rows = (mq_channel_subscriber_rows){.viewer = MQ_NO_ROW};
}

#endif
