/* Files in shared memory: open, create, check, map, lock. See file.h. Compile as C11. */
#define _GNU_SOURCE
#include <grp.h>
#include <libgen.h>

#include "c/file.h"
#include "base/file_lock.h"
#include "base/file_naming.h"
#include "base/mapguard.h"
#include "base/populate.h"

enum { MQC_DIRECTORY_TRIES = 100 };
/* most processes hold the lock for microseconds. A starting publisher holds the lock for up to 1 s */
static const int64_t MQC_LOCK_WAIT_NS = 5ll * MQ_NS_PER_S;

static int mqc_set_system_error(const mqc_endpoint *endpoint, int error, const char *what, const char *path) {
    return mqc_endpoint_error(endpoint, error, "%s %s: %s", what, path, strerror(error));
}

/* ---- directories and owners ---- */

static bool mqc_is_trusted_user(const mqc_endpoint *endpoint, uid_t user) {
    for (int i = 0; i < endpoint->trusted_count; i++)
        if (endpoint->trusted[i] == user)
            return true;
    return user == geteuid() || user == 0;
}

static int mqc_check_owner(const mqc_endpoint *endpoint, uid_t user, const char *path) {
    if (mqc_is_trusted_user(endpoint, user))
        return 0;
    return mqc_endpoint_error(endpoint, EACCES,
                              "%s belongs to user %u, not to user %u of this process; to use it, set MSGQ_TRUST=%u",
                              path, (unsigned)user, (unsigned)geteuid(), (unsigned)user);
}

static int mqc_check_directory(const mqc_endpoint *endpoint, int fd, const char *path) {
    struct stat found;
    if (fstat(fd, &found) != 0)
        return mqc_set_system_error(endpoint, errno, "cannot examine", path);
    if (!S_ISDIR(found.st_mode))
        return mqc_endpoint_error(
            endpoint, ENOTDIR, "prefix needs a directory at %s, but the path is a file; choose another prefix", path);
    int status = mqc_check_owner(endpoint, found.st_uid, path);
    bool of_others = found.st_uid != geteuid() && found.st_uid != 0;
    if (!status && of_others && found.st_mode & 0022 && !(found.st_mode & S_ISVTX))
        status = mqc_endpoint_error(endpoint, EACCES, "others may replace files in %s, which user %u made (chmod +t)",
                                    path, (unsigned)found.st_uid);
    return status;
}

/* Open and check the directory of a file with a prefix. The caller opens *name relative to the returned descriptor, so
 * that no process can replace the directory. Returns AT_FDCWD for files in /dev/shm itself. */
static int mqc_open_dir(const mqc_endpoint *endpoint, const char *path, const char **name) {
    char directory[MQC_PATH];
    const char *slash = strrchr(path, '/');
    *name = path;
    snprintf(directory, sizeof directory, "%.*s", (int)(slash - path), path);
    if (!strcmp(directory, "/dev/shm"))
        return AT_FDCWD;
    *name = slash + 1;
    int fd = open(directory, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ENOENT : mqc_set_system_error(endpoint, errno, "cannot open", directory);
    int status = mqc_check_directory(endpoint, fd, directory);
    if (status) {
        close(fd);
        return status;
    }
    return fd;
}

/* True if the directory is open. AT_FDCWD and errors are both negative, so a test of the sign is not enough. */
static bool mqc_dir_is_open(int directory) { return directory == AT_FDCWD || directory >= 0; }
static void mqc_close_dir(int directory) {
    if (directory >= 0)
        close(directory);
}

/* Set the group and mode of a new file or directory, regardless of the umask. */
static int mqc_share_with_group(const mqc_endpoint *endpoint, int fd, mode_t mode, const char *path) {
    const char *said = getenv("MSGQ_GROUP");
    if (said && *said) {
        uint32_t id;
        struct group *found = mqc_parse_id(said, &id) ? NULL : getgrnam(said);
        if (!found && !mqc_parse_id(said, &id))
            return mqc_endpoint_error(endpoint, EINVAL, "MSGQ_GROUP names %s, which is not a group of this machine",
                                      said);
        if (fchown(fd, (uid_t)-1, found ? found->gr_gid : (gid_t)id) != 0)
            return mqc_set_system_error(endpoint, errno, "cannot set the group (MSGQ_GROUP) of", path);
    }
    return fchmod(fd, mode) == 0 ? 0 : mqc_set_system_error(endpoint, errno, "cannot set the mode of", path);
}

/* Create a directory that other users may enter. The directory gets its group and mode before it gets its name. */
static int mqc_make_shared(const mqc_endpoint *endpoint, const char *start, const char *path, mode_t mode) {
    char draft[MQC_PATH];
    snprintf(draft, sizeof draft, "/dev/shm/.%s%s.XXXXXX", start, endpoint->prefix);
    if (!mkdtemp(draft))
        return mqc_set_system_error(endpoint, errno, "cannot create", draft);
    int fd = open(draft, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int status = fd < 0 ? mqc_set_system_error(endpoint, errno, "cannot open", draft)
                        : mqc_share_with_group(endpoint, fd, mode, path);
    if (fd >= 0)
        close(fd);
    if (!status && rename(draft, path) != 0 && access(path, F_OK) != 0)
        status = mqc_set_system_error(endpoint, errno, "cannot create", path);
    rmdir(draft); /* removes the draft if the rename failed */
    return status;
}

/* Create the directory of the prefix for files with these permissions. Users who may read the files may enter the
 * directory. */
int mqc_make_directory(const mqc_endpoint *endpoint, const char *start, mode_t mode) {
    char path[MQC_PATH];
    struct stat found;
    if (!*endpoint->prefix)
        return 0;
    snprintf(path, sizeof path, "/dev/shm/%s%s", start, endpoint->prefix);
    if (lstat(path, &found) == 0)
        return 0;
    mode_t entered = mode | (mode & 0444) >> 2;
    entered |= entered & 0022 ? S_ISVTX : 0;
    if (entered != 0700)
        return mqc_make_shared(endpoint, start, path, entered);
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return mqc_set_system_error(endpoint, errno, "cannot create", path);
    return 0;
}

/* ---- files ---- */

int mqc_open_file(const mqc_endpoint *endpoint, const char *path, int flags) {
    const char *name;
    int directory = mqc_open_dir(endpoint, path, &name);
    if (!mqc_dir_is_open(directory))
        return directory;
    int fd = openat(directory, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), error = errno;
    mqc_close_dir(directory);
    if (fd >= 0 || error == ENOENT)
        return fd >= 0 ? fd : -ENOENT;
    return mqc_set_system_error(endpoint, error, "cannot open", path);
}

int mqc_remove_file(const mqc_endpoint *endpoint, const char *path) {
    const char *name;
    int directory = mqc_open_dir(endpoint, path, &name);
    if (!mqc_dir_is_open(directory))
        return directory == -ENOENT ? 0 : directory;
    int error = unlinkat(directory, name, 0) != 0 ? errno : 0;
    mqc_close_dir(directory);
    if (error && error != ENOENT)
        return mqc_set_system_error(endpoint, error, "cannot remove", path);
    return !error;
}

bool mqc_makes_holes(void) { return !getenv("MSGQ_PREALLOC") && mq_can_populate(); }

static int mqc_check_allocation(const mqc_endpoint *endpoint, int error, uint64_t bytes, const char *path) {
    if (!error)
        return 0;
    return mqc_endpoint_error(endpoint, error, "cannot allocate %llu bytes for %s: %s", (unsigned long long)bytes, path,
                              strerror(error));
}

int mqc_allocate_file(const mqc_endpoint *endpoint, int fd, uint64_t start, uint64_t bytes, const char *path) {
    return mqc_check_allocation(endpoint, mq_allocate_file(fd, start, bytes), bytes, path);
}

int mqc_create_file(const mqc_endpoint *endpoint, const char *path, uint64_t bytes, uint64_t allocated, mode_t mode) {
    const char *name;
    int directory = mqc_open_dir(endpoint, path, &name);
    if (!mqc_dir_is_open(directory))
        return directory == -ENOENT ? mqc_endpoint_error(endpoint, ENOENT, "directory of the prefix was removed")
                                    : directory;
    int fd = openat(directory, directory == AT_FDCWD ? "/dev/shm" : ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
    int error = errno;
    mqc_close_dir(directory);
    if (fd < 0)
        return mqc_set_system_error(endpoint, error, "cannot create", path);
    int status = mqc_share_with_group(endpoint, fd, mode, path);
    if (!status && bytes)
        status =
            mqc_check_allocation(endpoint, mq_grow_new_file(fd, bytes, allocated ? allocated : bytes), bytes, path);
    if (status) {
        close(fd);
        return status;
    }
    return fd;
}

int mqc_name_file(const mqc_endpoint *endpoint, int fd, const char *path) {
    const char *name;
    int directory = mqc_open_dir(endpoint, path, &name);
    if (!mqc_dir_is_open(directory))
        return directory == -ENOENT ? mqc_endpoint_error(endpoint, ENOENT, "directory of the prefix was removed")
                                    : directory;
    int error = mq_name_open_file(fd, directory, name) != 0 ? errno : 0;
    mqc_close_dir(directory);
    if (error && error != EEXIST)
        return mqc_set_system_error(endpoint, error, "cannot name", path);
    return !error;
}

/* Reject a file that is not regular, or has a second name. Also reject a file of another user, unless the user is root
 * or trusted. */
int mqc_check_file(const mqc_endpoint *endpoint, int fd, const char *path, struct stat *found) {
    if (fstat(fd, found) != 0)
        return mqc_set_system_error(endpoint, errno, "cannot examine", path);
    if (!S_ISREG(found->st_mode))
        return mqc_endpoint_error(endpoint, EINVAL, "%s is not a regular file; remove it", path);
    int status = mqc_check_owner(endpoint, found->st_uid, path);
    if (!status && found->st_nlink > 1)
        status = mqc_endpoint_error(endpoint, EINVAL,
                                    "%s has %lu names (hard links), and may be another endpoint's; remove it", path,
                                    (unsigned long)found->st_nlink);
    return status;
}

/* ---- mappings ---- */

/* Guard the mapping unless MSGQ_SIGBUS is 0. If the file is truncated, a guarded mapping reads as zeros instead of
 * raising SIGBUS. */
static int mqc_guard_mapping(const mqc_endpoint *endpoint, mqc_mapped_file *segment, int protection) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    const char *said = getenv("MSGQ_SIGBUS");
    if (said && !strcmp(said, "0"))
        return 0;
    if (said && *said && strcmp(said, "1") != 0)
        return mqc_endpoint_error(endpoint, EINVAL, "MSGQ_SIGBUS is %s; give 1, or 0 for no signal handler", said);
    pthread_mutex_lock(&mutex);
    bool installed = mq_sigbus_guard_install_handler();
    pthread_mutex_unlock(&mutex);
    mq_sigbus_guard *guard =
        installed ? mq_sigbus_guard_add_mapping(segment->address, segment->size, protection) : NULL;
    if (!guard)
        return mqc_set_system_error(endpoint, errno ? errno : ENOMEM,
                                    "cannot handle SIGBUS (MSGQ_SIGBUS=0 avoids the handler) for", segment->path);
    segment->guard = guard;
    segment->not_truncated = &guard->not_truncated;
    return 0;
}

int mqc_map_file(const mqc_endpoint *endpoint, int fd, const struct stat *found, bool writable, const char *path,
                 mqc_mapped_file *segment) {
    int flags = MAP_SHARED | (getenv("MSGQ_PREALLOC") ? MAP_POPULATE : 0);
    int protection = PROT_READ | (writable ? PROT_WRITE : 0);
    void *address = mmap(NULL, (size_t)found->st_size, protection, flags, fd, 0);
    if (address == MAP_FAILED)
        return mqc_set_system_error(endpoint, errno, "cannot map", path);
    *segment = (mqc_mapped_file){.address = address,
                                 .size = (uint64_t)found->st_size,
                                 .inode = found->st_ino,
                                 .mode = found->st_mode & 0777,
                                 .fd = -1};
    snprintf(segment->path, sizeof segment->path, "%s", path);
    segment->liveness_file = mq_liveness_file_make(segment->path, -1, found);
    int status = mqc_guard_mapping(endpoint, segment, protection);
    if (status)
        mqc_unmap_file(segment);
    return status;
}

bool mqc_pair_guards(mqc_mapped_file *segment, mqc_mapped_file *partner) {
    return !segment->guard || mq_sigbus_guard_set_partner(segment->guard, partner->guard);
}

void mqc_unmap_file(mqc_mapped_file *segment) {
    if (segment->guard)
        mq_sigbus_guard_remove(segment->guard);
    if (segment->address) {
        munmap(segment->address, segment->size);
        if (segment->fd >= 0)
            close(segment->fd);
    }
    segment->address = NULL, segment->guard = NULL, segment->fd = -1;
}

int mqc_check_truncation(const mqc_endpoint *endpoint, const mqc_mapped_file *segment) {
    if (!mq_mapping_was_truncated(segment->not_truncated))
        return 0;
    return mqc_endpoint_error(endpoint, ESTALE, "had %llu bytes, but another program truncated it; open it again",
                              (unsigned long long)segment->size);
}

/* ---- the join lock ---- */

int mqc_lock_file(const mqc_endpoint *endpoint, int fd, const char *path) {
    int64_t deadline = mq_monotonic_ns() + MQC_LOCK_WAIT_NS;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EAGAIN && errno != EINTR)
            return mqc_set_system_error(endpoint, errno, "cannot lock", path);
        if (mq_monotonic_ns() > deadline)
            return mqc_endpoint_error(
                endpoint, EAGAIN,
                "locked by another process for over 5 s; look for a process that was stopped during opening");
        usleep(200);
    }
    return 0;
}

void mqc_unlock_file(int fd) {
    flock(fd, LOCK_UN); /* close alone does not release the lock, because the mapping keeps the open file alive */
    close(fd);
}

/* ---- components with one file ---- */

/* Open and map an existing file. Returns 1 if the file is mapped, and 0 if the file does not exist. */
static int mqc_open_existing(const mqc_endpoint *endpoint, const mqc_file_ops *kind, const char *path,
                             mqc_mapped_file *segment) {
    struct stat found;
    int fd = mqc_open_file(endpoint, path, O_RDWR);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    int status = mqc_check_file(endpoint, fd, path, &found);
    if (!status && (uint64_t)found.st_size < kind->least)
        status = mqc_endpoint_error(endpoint, EPROTO, "has %lld bytes, too few for a %s; remove it",
                                    (long long)found.st_size, endpoint->kind_name);
    if (!status)
        status = mqc_map_file(endpoint, fd, &found, true, path, segment);
    if (status) {
        close(fd);
        return status;
    }
    segment->fd = segment->liveness_file.fd = fd;
    status = kind->check(kind->handle);
    if (status)
        mqc_unmap_file(segment);
    return status ? status : 1;
}

/* Create a file. Returns 1 if the file was created, and 0 if another process created the file first. */
static int mqc_create_new(const mqc_endpoint *endpoint, const mqc_file_ops *kind, const char *path,
                          mqc_mapped_file *segment) {
    struct stat found;
    int status = mqc_make_directory(endpoint, kind->start, endpoint->mode);
    int fd = status ? status : mqc_create_file(endpoint, path, kind->bytes, 0, endpoint->mode);
    if (fd < 0)
        return fd;
    status = mqc_check_file(endpoint, fd, path, &found);
    if (!status)
        status = mqc_map_file(endpoint, fd, &found, true, path, segment);
    if (status) {
        close(fd);
        return status;
    }
    segment->fd = segment->liveness_file.fd = fd;
    kind->fill(kind->handle);
    status = kind->check(kind->handle);
    int named = status ? status : mqc_name_file(endpoint, fd, path);
    if (named != 1)
        mqc_unmap_file(segment);
    return named;
}

int mqc_open_or_create(const mqc_endpoint *endpoint, const mqc_file_ops *kind, mqc_mapped_file *segment) {
    char path[MQC_PATH];
    mqc_format_path(endpoint, kind->start, endpoint->name, path);
    for (int tries = MQC_OPEN_TRIES;; tries--) {
        int status = endpoint->create == MSGQ_MAKE ? 0 : mqc_open_existing(endpoint, kind, path, segment);
        if (status == 0 && (endpoint->create == MSGQ_OPEN || !kind->bytes))
            return mqc_endpoint_error(endpoint, ENOENT, "%s not found%s", endpoint->kind_name,
                                      endpoint->create == MSGQ_OPEN ? "" : "; give its sizes to create it");
        if (status == 0)
            status = mqc_create_new(endpoint, kind, path, segment);
        if (status == 0 && endpoint->create == MSGQ_MAKE)
            return mqc_endpoint_error(endpoint, EEXIST, "it exists; to open it, omit MSGQ_MAKE");
        if (status == 1)
            return 0;
        /* if status is 0 or -ENOENT, another process created or removed the file */
        if (status != 0 && (status != -ENOENT || tries == 0))
            return status;
    }
}

int mqc_lock_mapped_file(const mqc_endpoint *endpoint, const mqc_mapped_file *segment, bool patient,
                         mq_file_lock *lock) {
    int status = 0;
    if (!mq_file_lock_open(lock, &segment->liveness_file))
        return mqc_set_system_error(endpoint, errno, "cannot reopen", segment->path);
    if (patient)
        status = mqc_lock_file(endpoint, lock->fd, segment->path);
    else if (mq_file_lock_try(lock) != 0)
        status = -EWOULDBLOCK;
    if (status)
        mq_file_lock_close(lock);
    return status;
}

void mqc_unlock_mapped_file(mq_file_lock *lock) { mq_file_lock_close(lock); }

bool mqc_is_linked(const mqc_mapped_file *segment) {
    struct stat named;
    return lstat(segment->path, &named) == 0 && named.st_ino == segment->liveness_file.inode &&
           named.st_dev == segment->liveness_file.device;
}

int mqc_write_schema(const mqc_endpoint *endpoint, const mq_schema_parts *at, const msgq_schema *schema, bool marked) {
    size_t before = marked ? MQC_DATA_MARKS : 0, bytes = before + schema->bytes;
    const char *encoding = schema->encoding ? schema->encoding : "";
    if (!schema->name || !*schema->name || strlen(schema->name) >= MQ_SCHEMA_NAME ||
        strlen(encoding) >= MQ_SCHEMA_ENCODING || schema->bytes > at->room || bytes > at->room)
        return mqc_endpoint_error(endpoint, EINVAL,
                                  "a schema has a name of 1 to %d bytes, an encoding of at most %d, and here %llu "
                                  "bytes of data at most",
                                  MQ_SCHEMA_NAME - 1, MQ_SCHEMA_ENCODING - 1, (unsigned long long)(at->room - before));
    char *whole = calloc(1, bytes + 1);
    if (!whole)
        return mqc_endpoint_error(endpoint, ENOMEM, "no memory for the schema");
    if (schema->bytes)
        memcpy(whole + before, schema->data, schema->bytes);
    mq_schema_write(at, schema->name, encoding, whole, bytes);
    free(whole);
    return 0;
}

bool mqc_has_schema(const mq_schema_parts *at) {
    /* an odd seq: the writer of a schema was killed, so the segment has a schema */
    return (mq_load_acquire_u64(at->seq) & 1) || at->name[0];
}
