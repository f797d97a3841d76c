/* Files in shared memory: create, name, open, check, remove and map them. Python and C use these steps.
 *
 * A new file has no name (O_TMPFILE) until it is complete, so a process that dies during the creation leaves nothing.
 *
 * The creator of a file decides who may open the file, by mode and group. A process that opens a file decides whose
 * files it accepts: own files, root's, and those of trusted users. No step follows a symbolic link. The directory of a
 * prefix is checked before each step in it (directory.h). */
#ifndef MQ_FILE_H
#define MQ_FILE_H

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/error.h"
#include "base/layout.h"
#include "base/mapping.h"
#include "base/name_open_file.h"
#include "base/populate.h"

#ifndef O_TMPFILE /* missing without _GNU_SOURCE */
#define O_TMPFILE (020000000 | O_DIRECTORY)
#endif

/* The request of a process that opens a file. */
typedef enum { MQ_OPEN_OR_CREATE, MQ_ONLY_OPEN, MQ_ONLY_CREATE } mq_create;

/* Results of opening a file, besides 0 and errors. No error is filled in, and nothing is left open. */
enum {
    MQ_FILE_MISSING = 1, /* the file does not exist, and the caller asks only to open it */
    MQ_FILE_EXISTS,      /* the file exists, and the caller asks only to create it */
    MQ_FILE_LOCKED,      /* another process or thread has the lock: sleep, and begin again */
    MQ_FILE_CHANGED,     /* another process created or removed it meanwhile: begin again */
};

/* ---- descriptors, of the kernel and of private files ---- */

static inline void mq_close_file(int fd) {
    if (fd >= 0 && !mq_is_private_fd(fd))
        close(fd);
}

/* Try to lock the file by flock(2). Returns 0, or -1 with errno. */
static inline int mq_lock_file(int fd) { return mq_is_private_fd(fd) ? 0 : flock(fd, LOCK_EX | LOCK_NB); }

/* Unlock and close the file. The page of a row's lock keeps the open file, so close alone is not enough. */
static inline void mq_unlock_file(int fd) {
    if (fd >= 0 && !mq_is_private_fd(fd))
        flock(fd, LOCK_UN);
    mq_close_file(fd);
}

/* Store the status of the open file. Returns false with errno on failure. */
static inline bool mq_file_status(const mq_file_policy *policy, int fd, struct stat *status) {
    if (!mq_is_private_fd(fd))
        return fstat(fd, status) == 0;
    errno = EBADF;
    return mq_private_status(policy->private_files, fd, status);
}

/* True if the path leads to the open file. */
static inline bool mq_file_is_linked(const mq_file_policy *policy, int fd, const char *path) {
    struct stat here, named;
    if (!mq_file_status(policy, fd, &here))
        return false;
    if (mq_is_private_fd(fd))
        return here.st_nlink != 0;
    return lstat(path, &named) == 0 && here.st_ino == named.st_ino && here.st_dev == named.st_dev;
}

/* ---- files ---- */

/* Open an existing file in its checked directory. Returns 0 and the descriptor, or -1 with errno, in *fd, or the error
 * of the directory, which is -ENOENT without an error if the directory is missing. */
static inline int mq_open_in_directory(const mq_file_policy *policy, const char *path, int flags, int *fd,
                                       mq_error *error) {
    const char *name;
    if (mq_has_directory(path) && mq_can_refuse_links()) { /* faster than to open the directory, too */
        int failed = mq_check_directory_of(policy, path, error);
        *fd = failed ? -1 : mq_open_without_links(path, flags);
        return failed;
    }
    int directory = mq_open_directory(policy, path, &name, error);
    if (!mq_directory_is_open(directory))
        return directory;
    *fd = openat(directory, name, flags);
    int number = errno;
    mq_close_directory(directory);
    errno = number;
    return 0;
}

/* Open an existing file. Returns its descriptor, or -ENOENT without an error. */
static inline int mq_open_file(const mq_file_policy *policy, const char *path, int flags, mq_error *error) {
    int fd;
    if (mq_is_private_path(path))
        return mq_private_open(policy->private_files, path);
    int failed = mq_open_in_directory(policy, path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, &fd, error);
    int number = errno;
    if (failed)
        return failed;
    if (fd >= 0 || number == ENOENT)
        return fd >= 0 ? fd : -ENOENT;
    mq_fail_system(error, number, path, "cannot open");
    if (number == EACCES)
        mq_error_append_sharing_advice(error, path);
    return -number;
}

/* Remove a file's name. Returns 1, or 0 if no file has this name. */
static inline int mq_remove_file(const mq_file_policy *policy, const char *path, mq_error *error) {
    const char *name;
    char owner[MQ_USER_TEXT_BYTES];
    struct stat status;
    if (mq_is_private_path(path))
        return mq_private_remove(policy->private_files, path);
    int directory = mq_open_directory(policy, path, &name, error);
    if (!mq_directory_is_open(directory))
        return directory == -ENOENT ? 0 : directory;
    int number = unlinkat(directory, name, 0) == 0 ? 0 : errno;
    mq_close_directory(directory);
    if (!number || number == ENOENT)
        return !number;
    mq_fail_system(error, number, path, "cannot remove");
    if (lstat(path, &status) == 0 && status.st_uid != geteuid())
        mq_error_append(error, "; it belongs to %s, who can remove it (msgq clean)",
                        mq_describe_user(status.st_uid, owner));
    return -number;
}

/* True if new files get memory only where a process is about to write. */
static inline bool mq_makes_holes(const mq_file_policy *policy) { return !policy->preallocate && mq_can_populate(); }

static inline int mq_check_allocation(int number, uint64_t bytes, const char *path, mq_error *error) {
    return number ? mq_fail_system(error, number, path, "cannot allocate %llu bytes", (unsigned long long)bytes) : 0;
}

/* Grow the file to `bytes` bytes, and allocate every page from `start` on. Without this, a full file system would
 * raise SIGBUS at a later write. */
static inline int mq_grow_file(const mq_file_policy *policy, int fd, uint64_t start, uint64_t bytes, const char *path,
                               mq_error *error) {
    int number =
        mq_is_private_fd(fd) ? mq_private_grow(policy->private_files, fd, bytes) : mq_allocate_file(fd, start, bytes);
    return mq_check_allocation(number, bytes, path, error);
}

/* Give a new file its mode, its group, and `bytes` bytes, of which the first `allocated` get memory. */
static inline int mq_prepare_new_file(const mq_file_policy *policy, int fd, const char *path, uint64_t bytes,
                                      uint64_t allocated, mode_t mode, struct stat *made, mq_error *error) {
    int failed = 0;
    if (fstat(fd, made) != 0)
        return mq_fail_system(error, errno, path, "cannot examine");
    if (policy->group != (gid_t)-1 || (made->st_mode & 07777) != mode) /* the umask changed the mode */
        failed = mq_share_file(policy, fd, mode, path, error);
    if (!failed && bytes)
        failed = mq_check_allocation(mq_grow_new_file(fd, bytes, allocated), bytes, path, error);
    made->st_size = (off_t)bytes, made->st_mode = S_IFREG | mode;
    return failed;
}

static inline int mq_create_private_file(const mq_file_policy *policy, const char *path, uint64_t bytes, mode_t mode,
                                         struct stat *made, mq_error *error) {
    int fd = mq_private_create(policy->private_files, path, bytes, mode);
    if (fd < 0)
        return mq_check_allocation(-fd, bytes, path, error);
    mq_private_status(policy->private_files, fd, made);
    return fd;
}

/* Create a file of zeros without a name, in the directory of its prefix. The file's status is stored in *made.
 * `allocated`: bytes at the beginning that get memory; processes populate the others before they write them. Returns
 * the descriptor. */
static inline int mq_create_file(const mq_file_policy *policy, const char *path, uint64_t bytes, uint64_t allocated,
                                 mode_t mode, struct stat *made, mq_error *error) {
    char place[MQ_ERROR_PATH_BYTES];
    const char *name;
    if (mq_is_private_path(path))
        return mq_create_private_file(policy, path, bytes, mode, made, error);
    int directory = mq_obtain_directory(policy, path, mode, &name, error);
    if (!mq_directory_is_open(directory))
        return directory;
    mq_directory_of(path, place);
    int fd = openat(directory, directory == AT_FDCWD ? place : ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
    int number = errno;
    mq_close_directory(directory);
    if (fd < 0) {
        mq_fail_system(error, number, path, "cannot create a file in its directory");
        if (number == EACCES)
            mq_error_append_sharing_advice(error, place);
        return -number;
    }
    int failed = mq_prepare_new_file(policy, fd, path, bytes, allocated, mode, made, error);
    if (failed)
        close(fd);
    return failed ? failed : fd;
}

/* Give a new file its name. Returns 1, or 0 if another file has the name. */
static inline int mq_name_file(const mq_file_policy *policy, int fd, const char *path, mq_error *error) {
    const char *name;
    if (mq_is_private_fd(fd)) {
        int named = mq_private_name(policy->private_files, fd);
        return named >= 0 ? named : mq_fail_system(error, -named, path, "cannot name the new file");
    }
    int directory = mq_open_existing_directory(policy, path, &name, error);
    if (!mq_directory_is_open(directory))
        return directory;
    int number = mq_name_open_file(fd, directory, name) == 0 ? 0 : errno;
    mq_close_directory(directory);
    if (!number || number == EEXIST)
        return !number;
    return mq_fail_system(error, number, path, "cannot name the new file");
}

/* Reject a file that is not regular, has a second name, or belongs to a user who is not trusted. */
static inline int mq_check_file(const mq_file_policy *policy, int fd, struct stat *found, const char *path,
                                mq_error *error) {
    if (!mq_file_status(policy, fd, found))
        return mq_fail_system(error, errno, path, "cannot examine");
    if (!S_ISREG(found->st_mode))
        return mq_fail(error, MQ_ERROR_FILE, EINVAL, path, "is not a regular file; remove it");
    int failed = mq_check_owner(policy, found->st_uid, path, error);
    if (!failed && found->st_nlink > 1) /* a user with write permission may link the file to another endpoint's name */
        failed = mq_fail(error, MQ_ERROR_FILE, EINVAL, path,
                         "has %lu names (hard links), and may be another endpoint's; remove it",
                         (unsigned long)found->st_nlink);
    return failed;
}

/* Fill in the error if the check of a header failed. `what` names the kind of file, such as "a queue". */
static inline int mq_check_layout(mq_file_check_result result, int version, const char *what, const char *path,
                                  mq_error *error) {
    if (result == MQ_FILE_OTHER_VERSION)
        return mq_fail(error, MQ_ERROR_LAYOUT_VERSION, EPROTO, path,
                       "has a layout other than version %d of this library; use one version of msgq", version);
    if (result != MQ_FILE_VALID)
        return mq_fail(error, MQ_ERROR_CORRUPT, EPROTO, path, "is not %s of msgq; remove it", what);
    return 0;
}

/* ---- mappings ---- */

/* Map the file, and store the new mapping, not guarded yet, in *mapping. */
static inline int mq_map_new(const mq_file_policy *policy, int fd, const struct stat *found, uint64_t writable_bytes,
                             const char *path, mq_mapping **mapping, mq_error *error) {
    uint64_t size = (uint64_t)found->st_size;
    int protection = PROT_READ | (writable_bytes ? PROT_WRITE : 0);
    int flags = MAP_SHARED | (policy->preallocate ? MAP_POPULATE : 0);
    void *address = mmap(NULL, size, writable_bytes == size ? protection : PROT_READ, flags, fd, 0);
    if (address == MAP_FAILED)
        return mq_fail_system(error, errno, path, "cannot map %llu bytes", (unsigned long long)size);
    int failed = 0;
    if (writable_bytes && writable_bytes < size && mprotect(address, writable_bytes, protection) != 0)
        failed =
            mq_fail_system(error, errno, path, "cannot map %llu bytes for writing", (unsigned long long)writable_bytes);
    if (!failed && !(*mapping = mq_mapping_new(address, size)))
        failed = mq_fail_system(error, ENOMEM, path, "cannot map %llu bytes", (unsigned long long)size);
    if (failed)
        munmap(address, size);
    else
        (*mapping)->device = found->st_dev, (*mapping)->inode = found->st_ino, (*mapping)->blocks = found->st_blocks;
    return failed;
}

/* Map the private file. Its mapping is never guarded or shared: nobody truncates it, and all mappings of a file have
 * one address. */
static inline int mq_map_private(const mq_file_policy *policy, int fd, const char *path, mq_mapping **mapping,
                                 mq_error *error) {
    mq_private_file *file = mq_private_use(policy->private_files, fd);
    *mapping = file ? mq_mapping_new(file->address, file->bytes) : NULL;
    if (*mapping) {
        (*mapping)->device = MQ_PRIVATE_DEVICE, (*mapping)->inode = (ino_t)(uintptr_t)file;
        (*mapping)->private_file = file;
        return 0;
    }
    if (file)
        mq_private_file_release(file);
    return mq_fail_system(error, file ? ENOMEM : EBADF, path, "cannot map the file");
}

/* Handle truncations of the mapped file. */
static inline int mq_guard_mapping(const mq_file_policy *policy, mq_mapping *mapping, bool writable, mq_error *error) {
    int protection = PROT_READ | (writable ? PROT_WRITE : 0);
    if (!policy->guards)
        return 0;
    mapping->guards = policy->guards;
    mapping->guard = policy->guards->add(mapping->address, mapping->size, protection, &mapping->not_truncated);
    if (mapping->guard)
        return 0;
    return mq_fail(error, MQ_ERROR_PROCESS, errno ? errno : ENOMEM, "",
                   "cannot handle SIGBUS: %s (MSGQ_SIGBUS=0 avoids the handler)", strerror(errno));
}

/* Map a file, or use a mapping of this process: the first `writable_bytes` bytes (whole pages, or the whole file)
 * writable, the rest read-only. If another process truncates the file, a guarded mapping reads as zeros. In a mapping
 * with a writable part, these zeros are writable. Call mq_mapping_release after its use. After an error, *mapping is
 * NULL. */
static inline int mq_map_file(const mq_file_policy *policy, int fd, const struct stat *found, uint64_t writable_bytes,
                              const char *path, mq_mapping **mapping, mq_error *error) {
    uint64_t size = (uint64_t)found->st_size;
    bool is_part = writable_bytes && writable_bytes < size, shares = policy->mappings && !is_part;
    *mapping = NULL;
    if (mq_is_private_fd(fd))
        return mq_map_private(policy, fd, path, mapping, error);
    if (writable_bytes > size || (is_part && writable_bytes % (uint64_t)sysconf(_SC_PAGESIZE)))
        return mq_fail(error, MQ_ERROR_FILE, EINVAL, path, "has %llu bytes; %llu of them cannot be a writable head",
                       (unsigned long long)size, (unsigned long long)writable_bytes);
    if (shares && !policy->preallocate)
        *mapping = mq_mapping_table_use(policy->mappings, found, writable_bytes != 0, policy->guards != NULL);
    if (*mapping)
        return 0;
    int failed = mq_map_new(policy, fd, found, writable_bytes, path, mapping, error);
    if (!failed && (failed = mq_guard_mapping(policy, *mapping, writable_bytes != 0, error))) {
        mq_mapping_release(*mapping);
        *mapping = NULL;
    }
    if (!failed && shares)
        mq_mapping_share(*mapping, policy->mappings, writable_bytes != 0);
    return failed;
}

#endif
