/* Mapped files. The handles of a process share the mappings of whole files.
 *
 * A mapping has users (open handles, and views) and holders (all that may compute with its addresses: its users, closed
 * handles, and mappings that it is the partner of). New handles get a mapping of the table while it has a user. The
 * last user removes it from the table, so that later handles map the file anew, and the mapping loses its file: private
 * memory replaces it, because a finalizer can close a handle in the middle of a call. The last holder unmaps.
 *
 * The table has a lock, which is held for a few instructions. A fork, also one in a signal handler that interrupts
 * these instructions, frees the lock in the child (mq_mapping_table_reset_in_child). The list is whole at any moment,
 * because one store inserts or removes a mapping. In the child, a number of users or holders may be too large, so the
 * mapping stays until the child ends. */
#ifndef MQ_MAPPING_H
#define MQ_MAPPING_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/private_file.h"
#include "base/truncation.h"

enum { MQ_KEPT_STEP_BYTES = 4096 }; /* step of a copy that leaves out zeros */

/* Guards of mappings whose file may be truncated (mapguard.h). A process has one list of guards, so the functions
 * belong to the module with the list. */
typedef struct {
    /* NULL with errno: no guard. *not_truncated: the word that is 1 until the file is truncated */
    void *(*add)(void *address, size_t bytes, int protection, const mq_u64 **not_truncated);
    void (*remove)(void *guard);
    /* After a truncation of the first mapping, both read as zeros. False: it is already truncated */
    bool (*pair)(void *guard, void *partner);
} mq_guard_functions;

typedef struct mq_mapping_table mq_mapping_table;

typedef struct mq_mapping {
    uint8_t *address;
    uint64_t size;
    const mq_u64 *not_truncated; /* see mq_mapping_was_truncated; NULL: not guarded */
    uint64_t kept_bytes;         /* bytes at the beginning that closed handles still read */
    dev_t device;                /* of the file */
    ino_t inode;
    /* the remaining fields belong to the functions below and to mq_map_file */
    void *guard;
    const mq_guard_functions *guards;
    mq_mapping_table *table; /* NULL: not shared */
    blkcnt_t blocks;         /* blocks of the file at the last opening */
    bool writable;
    mq_u32 is_populated; /* for the kind of the file: the pages that all processes write have memory */
    int users, holders;
    mq_private_file *private_file; /* NULL: a file of the kernel */
    struct mq_mapping *partner;    /* this mapping is one of its holders */
    struct mq_mapping *next;       /* in the table */
} mq_mapping;

/* The shared mappings of a process. */
struct mq_mapping_table {
    mq_u32 locked;
    mq_mapping *first;
};

static inline void mq_mapping_table_lock(mq_mapping_table *table) {
    while (table && !mq_compare_exchange_u32(&table->locked, 0, 1))
        usleep(20); /* lets a thread run that holds the lock and has a lower priority */
}

static inline void mq_mapping_table_unlock(mq_mapping_table *table) {
    if (table)
        mq_store_release_u32(&table->locked, 0);
}

/* A thread of the parent may have held the lock. */
static inline void mq_mapping_table_reset_in_child(mq_mapping_table *table) { mq_mapping_table_unlock(table); }

/* ---- a new mapping ---- */

/* Return memory of mmap as a mapping with one user, or NULL if there is no memory. */
static inline mq_mapping *mq_mapping_new(void *address, uint64_t size) {
    mq_mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping)
        *mapping = (mq_mapping){.address = address, .size = size, .users = 1, .holders = 1};
    return mapping;
}

/* Let later handles use the mapping of this file. */
static inline void mq_mapping_share(mq_mapping *mapping, mq_mapping_table *table, bool writable) {
    mapping->writable = writable, mapping->table = table;
    mq_mapping_table_lock(table);
    mapping->next = table->first;
    table->first = mapping;
    mq_mapping_table_unlock(table);
}

/* True if the mapping shows this whole file. If the file has fewer blocks than at the last opening, pages that a new
 * mapping populates may have lost their memory. */
static inline bool mq_mapping_shows(const mq_mapping *mapping, const struct stat *found, bool writable, bool guarded) {
    return mapping->users && mapping->inode == found->st_ino && mapping->device == found->st_dev &&
           mapping->size == (uint64_t)found->st_size && mapping->writable == writable &&
           mapping->blocks <= found->st_blocks && guarded == (mapping->guard != NULL) &&
           !mq_mapping_was_truncated(mapping->not_truncated);
}

/* Become a user of a mapping of this file. NULL: there is none. */
static inline mq_mapping *mq_mapping_table_use(mq_mapping_table *table, const struct stat *found, bool writable,
                                               bool guarded) {
    mq_mapping_table_lock(table);
    mq_mapping *mapping = table->first;
    while (mapping && !mq_mapping_shows(mapping, found, writable, guarded))
        mapping = mapping->next;
    if (mapping) {
        mapping->holders++;
        mq_fence_compiler(); /* a child that is forked here has no user that is not a holder */
        mapping->users++;
        mapping->blocks = found->st_blocks;
    }
    mq_mapping_table_unlock(table);
    return mapping;
}

/* ---- its end ---- */

/* Free the mapping. Returns its partner, which it has held. */
static inline mq_mapping *mq_mapping_free(mq_mapping *mapping) {
    mq_mapping *partner = mapping->partner;
    if (mapping->guard)
        mapping->guards->remove(mapping->guard);
    if (mapping->private_file)
        mq_private_file_release(mapping->private_file);
    else
        munmap(mapping->address, mapping->size);
    free(mapping);
    return partner;
}

/* Stop holding the mapping. The last holder unmaps it. */
static inline void mq_mapping_drop(mq_mapping *mapping) {
    while (mapping) {
        mq_mapping_table *table = mapping->table;
        mq_mapping_table_lock(table);
        bool is_last = --mapping->holders == 0;
        mq_mapping_table_unlock(table);
        mapping = is_last ? mq_mapping_free(mapping) : NULL;
    }
}

/* Copy a page, unless it has only zeros: such a page needs no memory. */
static inline void mq_mapping_keep_page(uint8_t *to, const uint8_t *page, size_t size) {
    if (page[0] || memcmp(page, page + 1, size - 1))
        mq_copy_from_shared(to, page, size);
}

/* Replace the file by private memory. If the kernel has none, the file stays mapped. One system call replaces all
 * pages, so no thread sees half of a header. */
static inline void mq_mapping_detach(mq_mapping *mapping) {
    uint64_t kept = mapping->kept_bytes, size = mapping->size;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (kept ? 0 : MAP_FIXED);
    uint8_t *private = mmap(kept ? NULL : mapping->address, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (private == MAP_FAILED || private == mapping->address)
        return;
    for (uint64_t page = 0; page < kept && !mq_mapping_was_truncated(mapping->not_truncated);
         page += MQ_KEPT_STEP_BYTES)
        mq_mapping_keep_page(private + page, mapping->address + page,
                             kept - page < MQ_KEPT_STEP_BYTES ? kept - page : MQ_KEPT_STEP_BYTES);
    if (mremap(private, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, mapping->address) == MAP_FAILED)
        munmap(private, size);
}

/* Remove the mapping from the locked table. */
static inline void mq_mapping_unlist(mq_mapping *mapping) {
    mq_mapping **link = &mapping->table->first;
    while (*link && *link != mapping)
        link = &(*link)->next;
    if (*link)
        *link = mapping->next;
}

/* Stop using the mapping, which the caller still holds. `keeps`: the caller will hold it after the call, too. */
static inline void mq_mapping_end_use(mq_mapping *mapping, bool keeps) {
    mq_mapping_table_lock(mapping->table);
    bool is_last = --mapping->users == 0;
    if (is_last && mapping->table)
        mq_mapping_unlist(mapping);
    bool is_needed = (keeps || mapping->holders > 1) && !mapping->private_file;
    mq_mapping_table_unlock(mapping->table);
    if (is_last && is_needed)
        mq_mapping_detach(mapping);
}

/* Stop using and holding the mapping. NULL is accepted. */
static inline void mq_mapping_release(mq_mapping *mapping) {
    if (mapping)
        mq_mapping_end_use(mapping, false);
    mq_mapping_drop(mapping);
}

/* ---- partners ---- */

static inline bool mq_mapping_has_partner(const mq_mapping *mapping, const mq_mapping *partner) {
    const mq_mapping *current = mapping->partner;
    while (current && current != partner)
        current = current->partner;
    return current == partner;
}

/* Pair two mappings under the lock of the table. The previous partner, which other handles may use, becomes the partner
 * of the new one. */
static inline bool mq_mapping_pair_locked(mq_mapping *mapping, mq_mapping *partner) {
    if (mq_mapping_has_partner(mapping, partner))
        return !mq_mapping_was_truncated(mapping->not_truncated);
    mq_mapping *former = mapping->partner;
    partner->holders++;
    mapping->partner = partner;
    if (former) {
        mq_mapping_pair_locked(partner, former);
        former->holders--; /* `partner`, or a mapping behind it, is now its holder */
    }
    return !mapping->guard || !partner->guard || mapping->guards->pair(mapping->guard, partner->guard);
}

/* If the first file is truncated, both mappings read as zeros. Returns false if the first one is already truncated. The
 * partner stays mapped as long as the first mapping. */
static inline bool mq_mapping_pair(mq_mapping *mapping, mq_mapping *partner) {
    mq_mapping_table_lock(mapping->table);
    bool is_whole = mq_mapping_pair_locked(mapping, partner);
    mq_mapping_table_unlock(mapping->table);
    return is_whole;
}

#endif
