/* base/directory.h, base/file.h, base/endpoint_file.h and ring/topic_files.h: what happens when another process is faster, and the
 * errors. */
#include "steps.h"

#include <sys/stat.h>

/* Result of mkdir and rename. 0: that of the real call; otherwise this error, after the real call if `acts`. */
static int refusal;
static bool acts;

static int refuse(int done) {
    errno = refusal ? refusal : errno;
    return refusal ? -1 : done;
}
#define mkdir(path, mode) refuse(refusal && !acts ? -1 : mkdir(path, mode))
#define rename(from, to) refuse(refusal && !acts ? -1 : rename(from, to))

static int naming_refusal; /* what linkat does, like `refusal` */
#define linkat(from_fd, from, to_fd, to, flags)                                                                        \
    (naming_refusal ? (errno = naming_refusal, -1) : linkat(from_fd, from, to_fd, to, flags))

static void (*after_lstat)(const char *path); /* what another process does at this moment */

static int look(const char *path, struct stat *status) {
    int result = lstat(path, status);
    if (after_lstat)
        after_lstat(path);
    return result;
}
#define lstat(path, status) look(path, status)

static bool forbids_openat2;
#define syscall(number, ...)                                                                                           \
    (forbids_openat2 && (number) == SYS_openat2 ? (errno = EPERM, -1L) : syscall(number, ##__VA_ARGS__))

#include "base/endpoint_file.h"
#include "ring/topic_files.h"

static const mq_file_policy policy = {.group = (gid_t)-1};
static char directory[64];
static mq_error error;

static int make_directory(mode_t permissions, int refused, bool made_anyway) {
    struct stat status;
    snprintf(directory, sizeof directory, "/dev/shm/msgq_files_%d", getpid());
    refusal = refused, acts = made_anyway;
    int result = mq_make_directory(&policy, directory, permissions, &error);
    refusal = 0;
    bool is_directory = lstat(directory, &status) == 0 && S_ISDIR(status.st_mode);
    CHECK(is_directory == (made_anyway || !refused));
    rmdir(directory);
    return result;
}

TEST(mode_of_a_directory_lets_readers_enter_and_is_sticky_for_writers) {
    CHECK(mq_directory_mode(0600) == 0700 && mq_directory_mode(0640) == 0750 && mq_directory_mode(0644) == 0755);
    CHECK(mq_directory_mode(0660) == 01770 && mq_directory_mode(0666) == 01777);
}

TEST(directory_that_another_process_creates_and_removes_is_no_error) {
    CHECK(make_directory(0600, EEXIST, false) == 0); /* the caller finds that the directory is missing */
    CHECK(make_directory(0660, EEXIST, false) == 0);
    CHECK(make_directory(0660, ENOTEMPTY, false) == 0);
}

TEST(directory_that_another_user_creates_is_used) {
    CHECK(make_directory(0600, EPERM, true) == 0); /* in a sticky directory, the kernel refuses with EPERM */
    CHECK(make_directory(0660, EPERM, true) == 0);
}

TEST(directory_that_nobody_creates_is_an_error_with_a_path) {
    CHECK(make_directory(0600, ENOSPC, false) == -ENOSPC);
    CHECK(error.kind == MQ_ERROR_FILE && error.number == ENOSPC && !strcmp(error.path, directory));
    CHECK(strstr(error.text, "cannot create directory of the prefix: No space") && strstr(error.text, "msgq clean"));
    CHECK(make_directory(0660, EPERM, false) == -EPERM);
}

/* ---- files in the directory of a prefix ---- */

static char moved[72], file[72];

static int open_file(void) { return mq_open_file(&policy, file, O_RDWR, &error); }

static void replace_by_link(const char *path) {
    after_lstat = NULL;
    CHECK(rename(path, moved) == 0 && symlink(moved, path) == 0);
}

/* A directory is used, and a link to it is refused. Afterwards, the link is there. */
static void open_by_directory_and_by_link(void) {
    snprintf(directory, sizeof directory, "/dev/shm/msgq_files_%d", getpid());
    snprintf(moved, sizeof moved, "%s.moved", directory);
    snprintf(file, sizeof file, "%s/file", directory);
    CHECK(open_file() == -ENOENT);
    CHECK(mq_make_directory(&policy, directory, 0600, &error) == 0 && open_file() == -ENOENT);
    close(open(file, O_CREAT | O_WRONLY, 0600));
    int fd = open_file();
    CHECK(fd >= 0);
    close(fd);
    replace_by_link(directory);
    CHECK(open_file() == -ENOTDIR && strstr(error.text, "needs a directory here"));
}

static void remove_directory_and_link(void) { CHECK(unlink(file) == 0 && unlink(directory) == 0 && rmdir(moved) == 0); }

TEST(directory_of_a_prefix_is_used_and_a_link_to_it_is_refused) {
    open_by_directory_and_by_link();
    CHECK(mq_can_refuse_links());
    remove_directory_and_link();
}

TEST(kernel_without_openat2_uses_the_directory_and_refuses_a_link_to_it) {
    forbids_openat2 = true;
    open_by_directory_and_by_link();
    CHECK(!mq_can_refuse_links());
    remove_directory_and_link();
}

TEST(link_that_replaces_the_directory_after_its_check_is_not_followed) {
    open_by_directory_and_by_link();
    CHECK(unlink(directory) == 0 && rename(moved, directory) == 0);
    after_lstat = replace_by_link;
    CHECK(open_file() == -ELOOP && !after_lstat);
    remove_directory_and_link();
}

TEST(error_without_a_number_is_still_an_error) {
    CHECK(mq_fail(&error, MQ_ERROR_CORRUPT, 0, NULL, "why") == -EIO && error.number == EIO && !*error.path);
    CHECK(mq_fail_system(&error, 0, "path", "why") == -EIO && error.number == EIO);
}

TEST(writable_head_beyond_the_file_or_within_a_page_is_refused) {
    struct stat found = {.st_size = 8192};
    mq_mapping unused, *mapping = &unused;
    CHECK(mq_map_file(&policy, -1, &found, 12288, "path", &mapping, &error) == -EINVAL && !mapping);
    CHECK(mq_map_file(&policy, -1, &found, 100, "path", &mapping, &error) == -EINVAL);
    CHECK(mq_map_file(&policy, -1, &found, 4096, "path", &mapping, &error) == -EBADF);
}

TEST(new_file_that_cannot_be_named_is_an_error) {
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/msgqjobs_files_%d", getpid());
    mq_endpoint_file_request request = {.policy = &policy, .path = path, .new_bytes = 1, .mode = 0600};
    mq_endpoint_file file;
    CHECK(mq_endpoint_file_open(&request, &file, &error) == 0 && file.is_new);
    naming_refusal = ENOENT;
    CHECK(mq_endpoint_file_name(&request, &file, &error) == -ENOENT && strstr(error.text, "cannot name the new file"));
    naming_refusal = EEXIST;
    CHECK(mq_endpoint_file_name(&request, &file, &error) == MQ_FILE_CHANGED);
    mq_endpoint_file_close(&file);
}

static mq_mapping map_memory(off_t bytes, char path[static 32]) {
    struct stat made;
    int fd = memfd_create("file", MFD_CLOEXEC);
    CHECK(ftruncate(fd, bytes) == 0 && fstat(fd, &made) == 0);
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return (mq_mapping){.size = (uint64_t)bytes, .inode = made.st_ino};
}

TEST(error_of_a_topic_that_cannot_start_names_the_truncated_file) {
    char ring_path[32], side_path[32];
    mq_canary intact = mq_canary_always_intact();
    mq_mapping ring = map_memory(MQ_RING_HEADER + 1024, ring_path), side = map_memory(MQ_SIDE_BYTES, side_path);
    CHECK(mq_topic_fail_start(&intact, &ring, ring_path, &side, side_path, &error) == -EPROTO);
    CHECK(error.kind == MQ_ERROR_CORRUPT && strstr(error.text, "invalid write pointer"));
    CHECK(truncate(side_path, 0) == 0);
    CHECK(mq_topic_fail_start(&intact, &ring, ring_path, &side, side_path, &error) == -ESTALE);
    CHECK(error.kind == MQ_ERROR_SIZE && !strcmp(error.path, side_path));
    CHECK(truncate(ring_path, 0) == 0);
    CHECK(mq_topic_fail_start(&intact, &ring, ring_path, NULL, NULL, &error) == -ESTALE);
    CHECK(error.kind == MQ_ERROR_SIZE && !strcmp(error.path, ring_path));
}
