/* Owners of files, and directories of prefixes: whose files and directories a process accepts, and how it checks, opens
 * and creates a directory. file.h uses these steps for each file.
 *
 * A step in the directory of a prefix first checks the directory, and follows no symbolic link. In /dev/shm, which is
 * sticky, only the directory's trusted owner and root can replace it in between. A step that creates or removes a file
 * also keeps the checked directory open. A directory that other users may enter gets its group and mode under a
 * temporary name. */
#ifndef MQ_DIRECTORY_H
#define MQ_DIRECTORY_H

#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mapping.h"

#ifndef O_PATH /* missing without _GNU_SOURCE */
#define O_PATH 010000000
#endif
#ifndef SYS_openat2 /* Linux 5.6; the same number on all architectures */
#define SYS_openat2 437
#endif

#define MQ_SHARED_MEMORY "/dev/shm"

enum { MQ_TRUSTED_MAX = 32, MQ_USER_TEXT_BYTES = 80 };

/* The settings by which a process shares its files. */
typedef struct {
    uid_t trusted[MQ_TRUSTED_MAX];
    int trusted_count;
    gid_t group;                      /* group of new files; (gid_t)-1: the system's default */
    bool preallocate;                 /* files get all of their memory at their creation */
    const mq_guard_functions *guards; /* NULL: the program handles SIGBUS itself */
    mq_mapping_table *mappings;       /* NULL: handles share no mappings */
    mq_private_files *private_files;  /* NULL: the process has no bus, and no path is private */
} mq_file_policy;

/* ---- owners ---- */

/* Return a text such as "user 1000 (alice)". */
static inline const char *mq_describe_user(uid_t user, char text[static MQ_USER_TEXT_BYTES]) {
    char names[1024];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(user, &entry, names, sizeof names, &found) == 0 && found)
        snprintf(text, MQ_USER_TEXT_BYTES, "user %u (%s)", (unsigned)user, found->pw_name);
    else
        snprintf(text, MQ_USER_TEXT_BYTES, "user %u", (unsigned)user);
    return text;
}

static inline bool mq_is_trusted_user(const mq_file_policy *policy, uid_t user) {
    for (int i = 0; i < policy->trusted_count; i++)
        if (policy->trusted[i] == user)
            return true;
    return user == geteuid() || user == 0;
}

static inline int mq_check_owner(const mq_file_policy *policy, uid_t owner, const char *path, mq_error *error) {
    char theirs[MQ_USER_TEXT_BYTES], ours[MQ_USER_TEXT_BYTES];
    if (mq_is_trusted_user(policy, owner))
        return 0;
    return mq_fail(error, MQ_ERROR_FILE, EACCES, path,
                   "belongs to %s, not to %s of this process; to use that user's files, set MSGQ_TRUST=%u",
                   mq_describe_user(owner, theirs), mq_describe_user(geteuid(), ours), (unsigned)owner);
}

/* Append what the owner of a file must do so that this user may open it. */
static inline void mq_error_append_sharing_advice(mq_error *error, const char *path) {
    char place[MQ_ERROR_PATH_BYTES], owner[MQ_USER_TEXT_BYTES];
    struct stat status;
    snprintf(place, sizeof place, "%s", path);
    char *slash = strrchr(place, '/');
    if (lstat(place, &status) != 0) {
        if (!slash)
            return;
        *slash = '\0';
        if (lstat(place, &status) != 0)
            return;
    }
    mq_error_append(error,
                    "; %s belongs to %s, group %u, and has mode %o. To share it, its owner sets MSGQ_MODE=660 and a "
                    "common MSGQ_GROUP before its creation",
                    place, mq_describe_user(status.st_uid, owner), (unsigned)status.st_gid,
                    (unsigned)(status.st_mode & 07777));
}

/* ---- symbolic links ---- */

/* Open a file whose path has no symbolic link in any part. Returns -1 with errno on failure. */
static inline int mq_open_without_links(const char *path, int flags) {
    struct {
        uint64_t flags, mode, resolve;
    } how = {.flags = (uint64_t)flags, .resolve = 4 /* RESOLVE_NO_SYMLINKS */};
    return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

static inline bool mq_probe_links_support(void) {
    int fd = mq_open_without_links(MQ_SHARED_MEMORY, O_PATH | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* True if mq_open_without_links works: the kernel has openat2 and allows it, and /dev/shm itself is no link. */
static inline bool mq_can_refuse_links(void) {
    enum { UNKNOWN, NO, YES };
    static mq_u64 answer;
    uint64_t can = mq_load_relaxed_u64(&answer); /* relaxed: an independent number, the same for all */
    if (can == UNKNOWN)
        mq_store_relaxed_u64(&answer, can = mq_probe_links_support() ? YES : NO);
    return can == YES;
}

/* ---- directories of prefixes ---- */

static inline int mq_check_directory(const mq_file_policy *policy, const struct stat *status, const char *path,
                                     mq_error *error) {
    char creator[MQ_USER_TEXT_BYTES];
    if (!S_ISDIR(status->st_mode))
        return mq_fail(error, MQ_ERROR_FILE, ENOTDIR, path,
                       "prefix needs a directory here, but the path is a file; choose another prefix");
    int failed = mq_check_owner(policy, status->st_uid, path, error);
    bool lets_others_replace = status->st_mode & 0022 && !(status->st_mode & S_ISVTX);
    if (!failed && lets_others_replace && status->st_uid != geteuid() && status->st_uid != 0)
        failed = mq_fail(error, MQ_ERROR_FILE, EACCES, path,
                         "%s created it with mode %o, so that others can replace files; run chmod +t",
                         mq_describe_user(status->st_uid, creator), (unsigned)(status->st_mode & 07777));
    return failed;
}

/* True if the file has the directory of a prefix. False: it is in /dev/shm itself. */
static inline bool mq_has_directory(const char *path) {
    const size_t parent = sizeof MQ_SHARED_MEMORY - 1;
    return strncmp(path, MQ_SHARED_MEMORY "/", parent + 1) != 0 || strchr(path + parent + 1, '/') != NULL;
}

/* Store the directory of a file. */
static inline void mq_directory_of(const char *path, char directory[static MQ_ERROR_PATH_BYTES]) {
    size_t size = (size_t)(strrchr(path, '/') - path);
    size = size < MQ_ERROR_PATH_BYTES ? size : MQ_ERROR_PATH_BYTES - 1;
    memcpy(directory, path, size);
    directory[size] = '\0';
}

static inline int mq_fail_missing_directory(int number, const char *directory, mq_error *error) {
    return number == ENOENT ? -ENOENT
                            : mq_fail_system(error, number, directory, "cannot open the directory of the prefix");
}

/* Open and check the directory of a prefix's file, and store the file's name in it. Returns the descriptor, AT_FDCWD
 * for files in /dev/shm itself, or -ENOENT without an error. mq_directory_is_open tests the result. */
static inline int mq_open_directory(const mq_file_policy *policy, const char *path, const char **name,
                                    mq_error *error) {
    char directory[MQ_ERROR_PATH_BYTES];
    struct stat status;
    *name = path;
    if (!mq_has_directory(path))
        return AT_FDCWD;
    mq_directory_of(path, directory);
    *name = strrchr(path, '/') + 1;
    int fd = open(directory, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return mq_fail_missing_directory(errno, directory, error);
    int failed = fstat(fd, &status) == 0 ? mq_check_directory(policy, &status, directory, error)
                                         : mq_fail_system(error, errno, directory, "cannot examine");
    if (failed)
        close(fd);
    return failed ? failed : fd;
}

/* Check the directory of a prefix's file that exists, without a descriptor. Returns 0, an error, or -ENOENT without an
 * error. */
static inline int mq_check_directory_of(const mq_file_policy *policy, const char *path, mq_error *error) {
    char directory[MQ_ERROR_PATH_BYTES];
    struct stat status;
    mq_directory_of(path, directory);
    if (lstat(directory, &status) != 0)
        return mq_fail_missing_directory(errno, directory, error);
    return mq_check_directory(policy, &status, directory, error);
}

/* AT_FDCWD and errors are both negative, so a test of the sign is not enough. */
static inline bool mq_directory_is_open(int directory) { return directory == AT_FDCWD || directory >= 0; }

static inline void mq_close_directory(int directory) {
    if (directory >= 0)
        close(directory);
}

/* Set group and mode of a file or directory that this process has just created, regardless of the umask. */
static inline int mq_share_file(const mq_file_policy *policy, int fd, mode_t mode, const char *path, mq_error *error) {
    bool has_group = policy->group != (gid_t)-1;
    if ((!has_group || fchown(fd, (uid_t)-1, policy->group) == 0) && fchmod(fd, mode) == 0)
        return 0;
    int number = errno;
    int failed = has_group ? mq_fail_system(error, number, path, "cannot set group %u (MSGQ_GROUP) and mode %o",
                                            (unsigned)policy->group, (unsigned)mode)
                           : mq_fail_system(error, number, path, "cannot set mode %o", (unsigned)mode);
    if (has_group && number == EPERM)
        mq_error_append(error, "; run the process as a member of the group");
    return failed;
}

/* Return the mode of a directory for files with these permissions. Users who may read the files may enter. Users who
 * may write the files may create files, and the directory is sticky, so that they cannot remove files of others. */
static inline mode_t mq_directory_mode(mode_t permissions) {
    mode_t mode = permissions | (permissions & 0444) >> 2;
    return mode & 0022 ? mode | S_ISVTX : mode;
}

static inline int mq_make_shared_directory(const mq_file_policy *policy, const char *path, mode_t mode,
                                           mq_error *error) {
    char draft[MQ_ERROR_PATH_BYTES + 16];
    struct stat status;
    const char *name = strrchr(path, '/') + 1;
    snprintf(draft, sizeof draft, "%.*s.%s.XXXXXX", (int)(name - path), path, name);
    if (!mkdtemp(draft))
        return mq_fail_system(error, errno, path, "cannot create directory of the prefix");
    int fd = open(draft, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int failed = fd < 0 ? mq_fail_system(error, errno, path, "cannot create directory of the prefix")
                        : mq_share_file(policy, fd, mode, path, error);
    if (fd >= 0)
        close(fd);
    /* replaces only an empty directory of this user. If another process was faster, its directory stays */
    if (!failed && rename(draft, path) == 0)
        return 0;
    int number = errno;
    rmdir(draft);
    if (!failed && number != EEXIST && number != ENOTEMPTY && lstat(path, &status) != 0)
        failed = mq_fail_system(error, number, path, "cannot create directory of the prefix");
    return failed;
}

/* Create the directory of a prefix, for files with these permissions. An existing directory stays unchanged. */
static inline int mq_make_directory(const mq_file_policy *policy, const char *path, mode_t permissions,
                                    mq_error *error) {
    mode_t mode = mq_directory_mode(permissions);
    struct stat status;
    if (lstat(path, &status) == 0)
        return 0;
    if (mode != 0700)
        return mq_make_shared_directory(policy, path, mode, error);
    if (mkdir(path, mode) == 0 || errno == EEXIST)
        return 0;
    int number = errno; /* in a sticky directory, another user's directory gives EPERM */
    return lstat(path, &status) == 0 ? 0 : mq_fail_system(error, number, path, "cannot create directory of the prefix");
}

/* Open the directory of a file by mq_open_directory. A missing directory is an error. */
static inline int mq_open_existing_directory(const mq_file_policy *policy, const char *path, const char **name,
                                             mq_error *error) {
    int directory = mq_open_directory(policy, path, name, error);
    return directory == -ENOENT ? mq_fail_system(error, ENOENT, path, "directory of the prefix was removed")
                                : directory;
}

/* Open the directory for a new file with these permissions. Create the directory if it is missing. */
static inline int mq_obtain_directory(const mq_file_policy *policy, const char *path, mode_t permissions,
                                      const char **name, mq_error *error) {
    char missing[MQ_ERROR_PATH_BYTES];
    int directory = mq_open_directory(policy, path, name, error);
    if (directory != -ENOENT)
        return directory;
    mq_directory_of(path, missing);
    int failed = mq_make_directory(policy, missing, permissions, error);
    return failed ? failed : mq_open_existing_directory(policy, path, name, error);
}

#endif
