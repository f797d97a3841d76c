/* Files in the memory of this process. They stand in for files in /dev/shm on a bus of the fake backend: the same steps
 * open, map and lock them, so the endpoints of a bus are the real ones (file.h, mapping.h, liveness_lock.h).
 *
 * The path of a private file does not begin with a slash: "bus:7/msgq_name". The part before the slash is its bus. A
 * private file has no descriptor of the kernel. Its descriptor is a number above all that the kernel gives, so close
 * and flock have nothing to do: the nodes of a bus run one at a time, and none is replaced inside of a step.
 *
 * A file stays while it has a name or a mapping. A file that has no name yet stays, too, until its bus ends. The list
 * has a lock, which is held for a few instructions. A forked child has an empty list: its parent's endpoints are not
 * its own, and their memory stays mapped until the child ends. */
#ifndef MQ_PRIVATE_FILE_H
#define MQ_PRIVATE_FILE_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/error.h"

enum { MQ_PRIVATE_FD = 1 << 29, MQ_PRIVATE_ROOMS = 16 };
#define MQ_PRIVATE_DEVICE ((dev_t) - 1)

/* Address space that each file reserves, so that it can grow where it is: that of the largest ring. */
#define MQ_PRIVATE_ROOM (((uint64_t)1 << 32) + 65536)

/* The lock of a row by a participant (liveness_lock.h). */
typedef struct mq_private_row {
    struct mq_private_file *file;
    struct mq_private_row *next;
    uint64_t row;
} mq_private_row;

typedef struct mq_private_file {
    struct mq_private_files *list;
    struct mq_private_file *next;
    mq_private_row *locked_rows;
    uint8_t *address;
    uint64_t bytes, room; /* size, and reserved address space */
    mode_t mode;
    int fd;
    int users; /* mappings */
    bool is_named, was_named;
    bool is_pinned; /* it stays until its bus ends, so that no other file gets its identity */
    char path[];    /* the name that it has, had, or gets */
} mq_private_file;

/* Address space of a file that has ended, with zeros in the size of that file. A file of the same size takes it over
 * with the kernel's tables for it. That is three times as fast as to unmap it and reserve other address space. */
typedef struct {
    uint8_t *address; /* NULL: none */
    uint64_t bytes;
} mq_private_room;

/* All private files of a process. */
typedef struct mq_private_files {
    mq_u32 locked;
    int last_number; /* of a descriptor */
    mq_private_file *first;
    mq_private_room rooms[MQ_PRIVATE_ROOMS];
    unsigned next_room; /* to replace */
} mq_private_files;

static inline bool mq_is_private_path(const char *path) { return path[0] != '/'; }
static inline bool mq_is_private_fd(int fd) { return fd >= MQ_PRIVATE_FD; }

static inline void mq_private_files_lock(mq_private_files *files) {
    while (!mq_compare_exchange_u32(&files->locked, 0, 1))
        usleep(20); /* lets a thread run that holds the lock and has a lower priority */
}
static inline void mq_private_files_unlock(mq_private_files *files) { mq_store_release_u32(&files->locked, 0); }

static inline void mq_private_files_reset_in_child(mq_private_files *files) {
    files->first = NULL;
    memset(files->rooms, 0, sizeof files->rooms); /* another thread of the parent may have been changing them */
    mq_private_files_unlock(files);
}

/* ---- find ---- */

static inline mq_private_file *mq_private_find_path(const mq_private_files *files, const char *path) {
    mq_private_file *file = files->first;
    while (file && !(file->is_named && strcmp(file->path, path) == 0))
        file = file->next;
    return file;
}

static inline mq_private_file *mq_private_find_fd(const mq_private_files *files, int fd) {
    mq_private_file *file = files->first;
    while (file && file->fd != fd)
        file = file->next;
    return file;
}

/* Return the file of an identity that mq_private_status has stored, or NULL if it is a file of the kernel. */
static inline mq_private_file *mq_private_file_of(dev_t device, uint64_t inode) {
    return device == MQ_PRIVATE_DEVICE ? (mq_private_file *)(uintptr_t)inode : NULL;
}

/* ---- address space ---- */

/* Keep the address space of a file that ends, instead of the oldest that is kept. The list is locked. */
static inline void mq_private_give_room(mq_private_files *files, const mq_private_file *file) {
    mq_private_room *kept = &files->rooms[files->next_room++ % MQ_PRIVATE_ROOMS];
    if (file->room != MQ_PRIVATE_ROOM || madvise(file->address, file->bytes, MADV_DONTNEED) != 0) {
        munmap(file->address, file->room);
        return;
    }
    if (kept->address)
        munmap(kept->address, MQ_PRIVATE_ROOM);
    *kept = (mq_private_room){file->address, file->bytes};
}

/* Give the file kept address space with this size. Returns false if there is none. */
static inline bool mq_private_take_room(mq_private_files *files, mq_private_file *file, uint64_t bytes) {
    mq_private_files_lock(files);
    for (unsigned i = 0; i < MQ_PRIVATE_ROOMS && !file->address; i++)
        if (files->rooms[i].address && files->rooms[i].bytes == bytes) {
            file->address = files->rooms[i].address, file->room = MQ_PRIVATE_ROOM, file->bytes = bytes;
            files->rooms[i].address = NULL;
        }
    mq_private_files_unlock(files);
    return file->address != NULL;
}

/* ---- the end ---- */

/* Remove the file from the locked list, if nobody can reach it. */
static inline void mq_private_file_collect(mq_private_file *file) {
    mq_private_file **link = &file->list->first;
    if (file->users || file->locked_rows || file->is_pinned || file->is_named || !file->was_named)
        return;
    while (*link && *link != file)
        link = &(*link)->next;
    if (*link)
        *link = file->next;
    if (file->address)
        mq_private_give_room(file->list, file);
    free(file);
}

/* End a mapping of the file. */
static inline void mq_private_file_release(mq_private_file *file) {
    mq_private_files *files = file->list;
    mq_private_files_lock(files);
    file->users--;
    mq_private_file_collect(file);
    mq_private_files_unlock(files);
}

/* Remove the name. Returns 1, or 0 if no file has it. */
static inline int mq_private_remove(mq_private_files *files, const char *path) {
    mq_private_files_lock(files);
    mq_private_file *file = mq_private_find_path(files, path);
    if (file) {
        file->is_named = false;
        mq_private_file_collect(file);
    }
    mq_private_files_unlock(files);
    return file != NULL;
}

/* Remove all names that begin with the name of a bus and a slash. Open handles keep their mappings. */
static inline void mq_private_end_bus(mq_private_files *files, const char *bus) {
    size_t length = strlen(bus);
    mq_private_files_lock(files);
    for (mq_private_file *file = files->first, *next; file; file = next) {
        next = file->next;
        if (strncmp(file->path, bus, length) == 0 && file->path[length] == '/') {
            file->is_named = file->is_pinned = false, file->was_named = true;
            mq_private_file_collect(file);
        }
    }
    mq_private_files_unlock(files);
}

/* Keep the file of this identity until its bus ends. */
static inline void mq_private_pin(mq_private_files *files, uint64_t inode) {
    mq_private_files_lock(files);
    mq_private_file *file = files->first;
    while (file && file != mq_private_file_of(MQ_PRIVATE_DEVICE, inode))
        file = file->next;
    if (file)
        file->is_pinned = true;
    mq_private_files_unlock(files);
}

/* ---- create and open ---- */

/* Give the file a size that is not smaller. Its new bytes are zeros. Returns 0 or an errno. */
static inline int mq_private_set_size(mq_private_file *file, uint64_t bytes) {
    if (!file->address && mq_private_take_room(file->list, file, bytes))
        return 0;
    if (!file->address) {
        uint64_t room = bytes > MQ_PRIVATE_ROOM ? bytes : MQ_PRIVATE_ROOM;
        void *address = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (address == MAP_FAILED)
            return errno;
        file->address = address, file->room = room;
    }
    if (bytes > file->room)
        return ENOSPC;
    if (mprotect(file->address, bytes, PROT_READ | PROT_WRITE) != 0)
        return errno;
    file->bytes = bytes;
    return 0;
}

static inline int mq_private_grow(mq_private_files *files, int fd, uint64_t bytes) {
    mq_private_files_lock(files); /* another thread may run another bus */
    mq_private_file *file = mq_private_find_fd(files, fd);
    mq_private_files_unlock(files);
    return file ? mq_private_set_size(file, bytes) : EBADF;
}

/* Create a file of zeros without a name. Returns its descriptor, or a negative errno. */
static inline int mq_private_create(mq_private_files *files, const char *path, uint64_t bytes, mode_t mode) {
    mq_private_file *file = calloc(1, sizeof *file + strlen(path) + 1);
    if (!file)
        return -ENOMEM;
    file->list = files, file->mode = mode;
    memcpy(file->path, path, strlen(path) + 1);
    int failed = bytes ? mq_private_set_size(file, bytes) : 0;
    if (failed) {
        free(file);
        return -failed;
    }
    mq_private_files_lock(files);
    file->fd = MQ_PRIVATE_FD + ++files->last_number;
    file->next = files->first;
    files->first = file;
    int fd = file->fd;
    mq_private_files_unlock(files);
    return fd;
}

/* Give the file its name. Returns 1, 0 if another file has it, or -EBADF. */
static inline int mq_private_name(mq_private_files *files, int fd) {
    mq_private_files_lock(files);
    mq_private_file *file = mq_private_find_fd(files, fd);
    bool is_free = file && !mq_private_find_path(files, file->path);
    if (is_free)
        file->is_named = file->was_named = true;
    mq_private_files_unlock(files);
    return file ? is_free : -EBADF;
}

/* Return the descriptor of a named file, or -ENOENT. */
static inline int mq_private_open(mq_private_files *files, const char *path) {
    mq_private_files_lock(files);
    const mq_private_file *file = mq_private_find_path(files, path);
    int fd = file ? file->fd : -ENOENT;
    mq_private_files_unlock(files);
    return fd;
}

/* Store the status of the file, as fstat does. Returns false if it is gone. */
static inline bool mq_private_status(mq_private_files *files, int fd, struct stat *status) {
    mq_private_files_lock(files);
    const mq_private_file *file = mq_private_find_fd(files, fd);
    memset(status, 0, sizeof *status);
    if (file) {
        status->st_dev = MQ_PRIVATE_DEVICE, status->st_ino = (ino_t)(uintptr_t)file;
        status->st_mode = S_IFREG | file->mode, status->st_nlink = file->is_named, status->st_uid = geteuid();
        status->st_size = (off_t)file->bytes, status->st_blocks = (blkcnt_t)((file->bytes + 511) / 512);
    }
    mq_private_files_unlock(files);
    return file != NULL;
}

/* Describe the newest named file of a root, such as "bus:7", that is older than the descriptor `before`. Returns its
 * descriptor, or 0 if there is none. `path` gets its whole path. */
static inline int mq_private_describe_older(mq_private_files *files, const char *root, int before, char *path,
                                            size_t path_bytes, uint64_t *inode, uint64_t *bytes, mode_t *mode) {
    size_t length = strlen(root);
    mq_private_files_lock(files);
    const mq_private_file *file = files->first; /* the newest file is the first */
    while (file && !(file->fd < before && file->is_named && strncmp(file->path, root, length) == 0 &&
                     file->path[length] == '/'))
        file = file->next;
    if (file) {
        snprintf(path, path_bytes, "%s", file->path);
        *inode = (uint64_t)(uintptr_t)file, *bytes = file->bytes, *mode = file->mode;
    }
    int fd = file ? file->fd : 0;
    mq_private_files_unlock(files);
    return fd;
}

/* Return the file for a new mapping, or NULL if it is gone. End the mapping by mq_private_file_release. */
static inline mq_private_file *mq_private_use(mq_private_files *files, int fd) {
    mq_private_files_lock(files);
    mq_private_file *file = mq_private_find_fd(files, fd);
    if (file)
        file->users++;
    mq_private_files_unlock(files);
    return file;
}

/* ---- locks of rows ---- */

/* A token is the address of a row's lock, plus one. The token of a file of the kernel is the address of a page. */
static inline mq_private_row *mq_private_row_of(const void *liveness_token) {
    uintptr_t number = (uintptr_t)liveness_token;
    return number & 1 ? (mq_private_row *)(number - 1) : NULL;
}

static inline bool mq_private_is_locked(const mq_private_file *file, uint64_t row) {
    const mq_private_row *lock = file->locked_rows;
    while (lock && lock->row != row)
        lock = lock->next;
    return lock != NULL;
}

/* Lock a row as mq_liveness_lock does. */
static inline void *mq_private_lock_row(mq_private_file *file, uint64_t row, bool shared) {
    bool is_held = !shared && mq_private_is_locked(file, row);
    mq_private_row *lock = is_held ? NULL : malloc(sizeof *lock);
    if (!lock) {
        errno = is_held ? EAGAIN : ENOMEM;
        return NULL;
    }
    *lock = (mq_private_row){.file = file, .row = row};
    mq_private_files_lock(file->list);
    lock->next = file->locked_rows;
    file->locked_rows = lock;
    mq_private_files_unlock(file->list);
    return (void *)((uintptr_t)lock + 1);
}

static inline void mq_private_unlock_row(mq_private_row *lock) {
    mq_private_files *files = lock->file->list;
    mq_private_files_lock(files);
    mq_private_row **link = &lock->file->locked_rows;
    while (*link && *link != lock)
        link = &(*link)->next;
    if (*link)
        *link = lock->next;
    mq_private_file_collect(lock->file);
    mq_private_files_unlock(files);
    free(lock);
}

#endif
