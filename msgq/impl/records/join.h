/* Steps under the lock of a vector's or board's file: take a row, and declare a key. Python and C call them. The caller
 * holds the lock (base/file_lock.h), and releases it afterwards.
 *
 *   `Join`: reserve a row and lock its byte, release what a dead owner of the row left, occupy the row. In an exclusive
 *   vector, also become the only owner. If that fails, leave the row again.
 *   `Declare`: find the key or append it, then store the owner word.
 *
 * If the process is killed between two steps, the row or the owner word stays with a dead owner. The next process that
 * needs the row or the key takes it. A child that is forked during a step has neither the lock nor the row. */
#ifndef MQ_RECORDS_JOIN_H
#define MQ_RECORDS_JOIN_H

#include "base/file.h"
#include "records/board.h"

enum { MQ_RECORD_OWNER_TEXT_BYTES = 48 };

/* Describe an owner for people. */
static inline const char *mq_record_describe_owner(const mq_record_header *header, uint64_t owner,
                                                   char text[static MQ_RECORD_OWNER_TEXT_BYTES]) {
    unsigned number = mq_cell_owner_row(owner);
    const mq_participant *row = number < MQ_RECORD_ROWS ? &header->rows[number].at.participant : NULL;
    if (row) /* relaxed: for people */
        snprintf(text, MQ_RECORD_OWNER_TEXT_BYTES, "%.*s %llu", (int)sizeof row->name, row->name,
                 (unsigned long long)mq_load_relaxed_u64(&row->pid));
    else
        snprintf(text, MQ_RECORD_OWNER_TEXT_BYTES, "an unknown process");
    return text;
}

/* Check a mapped file, and compute the addresses of its parts. */
static inline int mq_record_check_file(mq_record_header *header, uint64_t bytes, const char *path,
                                       mq_record_file_parts *parts, mq_error *error) {
    return mq_check_layout(mq_record_header_check(header, bytes, parts), MQ_RECORD_MAJOR, "a vector or board", path,
                           error);
}

/* Take a row. `lock` is NULL for private memory, which has one handle. Returns 0 or an error. */
static inline int mq_record_join(mq_record_writer *w, const mq_file_lock *lock, const mq_process_identity *self,
                                 uint64_t uid, void **row_token, mq_error *error) {
    char owner[MQ_RECORD_OWNER_TEXT_BYTES];
    mq_record_header *header = w->parts.header;
    mq_row_table row_table = mq_record_row_table(header);
    int row = lock ? mq_row_table_reserve(&row_table, &lock->file, row_token) : 0;
    if (row == MQ_NO_ROW)
        return mq_fail(error, MQ_ERROR_TOO_MANY_WRITERS, ENFILE, "",
                       "has %d writing handles, its limit; close some, or share one between threads", MQ_RECORD_ROWS);
    mq_record_register_writer(w, (unsigned)row, self, uid, *row_token != NULL);
    if (!(w->parts.config.flags & MQ_RECORD_EXCLUSIVE) || mq_record_acquire_owner_word(w, &header->owner))
        return 0;
    mq_fail(error, MQ_ERROR_OTHER_WRITER, EBUSY, "", "is exclusive, and %s writes it; close that handle first",
            mq_record_describe_owner(header, mq_load_acquire_u64(&header->owner), owner));
    mq_record_unregister_writer(w, uid, row_token);
    return -EBUSY;
}

/* Find or add the key, and make this handle its owner. Returns the index of the key, or an error. */
static inline int64_t mq_board_declare_key(mq_record_writer *w, const char *key, size_t bytes, mq_error *error) {
    char text[MQ_RECORD_OWNER_TEXT_BYTES];
    uint64_t index = mq_board_find_key(&w->parts, key, bytes, 0);
    if (index == MQ_BOARD_NO_KEY)
        index = mq_board_add_key(&w->parts, key, bytes);
    if (index == MQ_BOARD_NO_KEY)
        return mq_fail(error, MQ_ERROR_BOARD_FULL, ENOSPC, "",
                       "has %llu keys, its limit (keys=), and keys are permanent; create a larger board",
                       (unsigned long long)w->parts.config.length);
    mq_u64 *owner = &w->parts.key_table[index].owner;
    if (mq_record_acquire_owner_word(w, owner))
        return (int64_t)index;
    mq_record_describe_owner(w->parts.header, mq_load_acquire_u64(owner), text);
    return mq_fail(error, MQ_ERROR_KEY_TAKEN, EBUSY, "", "key '%.*s' is declared by %s; close its Entry first",
                   (int)bytes, key, text);
}

#endif
