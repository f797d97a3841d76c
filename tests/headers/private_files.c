/* base/private_file.h, and the branches of file.h for it: files in the memory of this process. */
#include "steps.h"

#include <limits.h>
#include <sys/wait.h>

#include "base/file.h"

static mq_private_files list;
static const mq_file_policy policy = {.group = (gid_t)-1, .private_files = &list};
static mq_error error;

static int create(const char *path, uint64_t bytes) {
    struct stat made;
    int fd = mq_create_file(&policy, path, bytes, bytes, 0640, &made, &error);
    CHECK(mq_is_private_fd(fd) && made.st_size == (off_t)bytes && made.st_nlink == 0);
    return fd;
}

static int create_named(const char *path, uint64_t bytes) {
    int fd = create(path, bytes);
    CHECK(mq_name_file(&policy, fd, path, &error) == 1);
    return fd;
}

static mq_mapping *map(int fd) {
    struct stat found;
    mq_mapping *mapping;
    CHECK(mq_check_file(&policy, fd, &found, "path", &error) == 0);
    CHECK(mq_map_file(&policy, fd, &found, (uint64_t)found.st_size, "path", &mapping, &error) == 0);
    return mapping;
}

static unsigned count_files(void) {
    unsigned count = 0;
    for (const mq_private_file *file = list.first; file; file = file->next)
        count++;
    return count;
}

TEST(new_file_is_found_by_its_path_once_it_has_its_name) {
    int fd = create("bus:1/a", 100);
    CHECK(mq_open_file(&policy, "bus:1/a", O_RDWR, &error) == -ENOENT);
    CHECK(mq_name_file(&policy, fd, "bus:1/a", &error) == 1);
    CHECK(mq_open_file(&policy, "bus:1/a", O_RDWR, &error) == fd);
    CHECK(mq_open_file(&policy, "bus:1/ab", O_RDWR, &error) == -ENOENT);
    CHECK(mq_open_file(&policy, "bus:2/a", O_RDWR, &error) == -ENOENT);
}

TEST(name_that_another_file_has_is_refused_and_both_files_stay) {
    int first = create_named("bus:1/a", 8), second = create("bus:1/a", 8);
    CHECK(mq_name_file(&policy, second, "bus:1/a", &error) == 0);
    CHECK(mq_open_file(&policy, "bus:1/a", O_RDWR, &error) == first && count_files() == 2);
}

TEST(all_mappings_of_a_file_show_the_same_zeros_and_bytes) {
    int fd = create_named("bus:1/a", 5000);
    mq_mapping *one_mapping = map(fd), *other = map(fd);
    CHECK(one_mapping != other && one_mapping->address == other->address && other->size == 5000);
    CHECK(!other->address[0] && !other->address[4999] && !other->not_truncated);
    one_mapping->address[4999] = 7;
    CHECK(other->address[4999] == 7);
    CHECK(one_mapping->device == MQ_PRIVATE_DEVICE && mq_private_file_of(other->device, other->inode) == list.first);
}

TEST(file_grows_where_it_is_and_keeps_its_bytes) {
    int fd = create_named("bus:1/a", 4096);
    mq_mapping *small = map(fd);
    small->address[4095] = 7;
    CHECK(mq_grow_file(&policy, fd, 0, 3 * 4096, "path", &error) == 0);
    mq_mapping *large = map(fd);
    CHECK(large->address == small->address && large->size == 3 * 4096 && large->address[4095] == 7);
    large->address[3 * 4096 - 1] = 1;
    CHECK(mq_grow_file(&policy, fd, 0, MQ_PRIVATE_ROOM + 1, "path", &error) == -ENOSPC);
    CHECK(mq_grow_file(&policy, INT_MAX, 0, 1, "path", &error) == -EBADF);
}

TEST(removed_file_stays_until_its_last_mapping_ends) {
    struct stat found;
    int fd = create_named("bus:1/a", 8);
    mq_mapping *first = map(fd), *second = map(fd);
    CHECK(mq_remove_file(&policy, "bus:1/a", &error) == 1 && mq_remove_file(&policy, "bus:1/a", &error) == 0);
    CHECK(mq_file_status(&policy, fd, &found) && found.st_nlink == 0 && !mq_file_is_linked(&policy, fd, "bus:1/a"));
    mq_mapping_release(first);
    second->address[0] = 1;
    mq_mapping_release(second);
    CHECK(!list.first && !mq_file_status(&policy, fd, &found) && errno == EBADF);
}

TEST(closed_handle_that_keeps_its_mapping_still_sees_its_file) {
    mq_mapping *mapping = map(create_named("bus:1/a", 8));
    mapping->address[0] = 7;
    mq_mapping_end_use(mapping, true); /* other handles use the same address, so no private memory replaces it */
    CHECK(mapping->address[0] == 7 && list.first->users == 1);
    mq_mapping_drop(mapping);
    CHECK(list.first->users == 0);
}

TEST(end_of_a_bus_removes_its_files_alone) {
    int mapped = create_named("bus:1/mapped", 8);
    create_named("bus:1/prefix/b", 8);
    create("bus:1/unnamed", 8);
    create_named("bus:11/c", 8);
    mq_mapping *mapping = map(mapped);
    mq_private_end_bus(&list, "bus:1");
    CHECK(count_files() == 2 && mq_open_file(&policy, "bus:11/c", O_RDWR, &error) >= 0);
    CHECK(mq_open_file(&policy, "bus:1/mapped", O_RDWR, &error) == -ENOENT);
    mapping->address[0] = 1;
    mq_mapping_release(mapping);
    CHECK(count_files() == 1);
}

/* End a new file, and return its address. */
static uint8_t *end_file(uint64_t bytes) {
    mq_mapping *mapping = map(create_named("bus:1/a", bytes));
    uint8_t *address = mapping->address;
    memset(address, 7, bytes);
    mq_private_end_bus(&list, "bus:1");
    mq_mapping_release(mapping);
    return address;
}

TEST(file_takes_over_the_address_space_of_an_ended_file_of_its_size_with_zeros) {
    uint8_t *small = end_file(100), *large = end_file(5000), zeros[5000] = {0};
    CHECK(map(create_named("bus:2/other", 101))->address != small);
    CHECK(map(create_named("bus:2/large", 5000))->address == large && memcmp(large, zeros, 5000) == 0);
    CHECK(map(create_named("bus:2/small", 100))->address == small && memcmp(small, zeros, 100) == 0);
    CHECK(map(create_named("bus:2/second", 100))->address != small);
    CHECK(mq_grow_file(&policy, mq_open_file(&policy, "bus:2/small", O_RDWR, &error), 0, 9000, "path", &error) == 0);
    small[8999] = 1;
}

TEST(address_space_of_the_oldest_ended_files_is_not_kept) {
    uint8_t *first = end_file(4096);
    for (unsigned i = 1; i <= MQ_PRIVATE_ROOMS; i++)
        end_file(4096 + i);
    for (unsigned i = 0; i < MQ_PRIVATE_ROOMS; i++)
        CHECK(list.rooms[i].address && list.rooms[i].bytes > 4096);
    unsigned char there;
    CHECK(mincore(first, 4096, &there) != 0);
}

TEST(row_is_locked_exclusively_or_shared) {
    map(create_named("bus:1/a", 8));
    mq_private_file *file = list.first;
    void *token = mq_private_lock_row(file, 3, false);
    CHECK(token && mq_private_is_locked(file, 3) && !mq_private_is_locked(file, 2));
    CHECK(!mq_private_lock_row(file, 3, false) && errno == EAGAIN);
    void *shared = mq_private_lock_row(file, 4, true), *again = mq_private_lock_row(file, 4, true);
    CHECK(shared && again && shared != again);
    mq_private_unlock_row(mq_private_row_of(shared));
    CHECK(mq_private_is_locked(file, 4));
    mq_private_unlock_row(mq_private_row_of(again));
    mq_private_unlock_row(mq_private_row_of(token));
    CHECK(!mq_private_is_locked(file, 4) && !mq_private_is_locked(file, 3) && !file->locked_rows);
    CHECK(!mq_private_row_of(file) && !mq_private_row_of(NULL)); /* pages of files of the kernel are even numbers */
}

TEST(locked_row_keeps_a_removed_file) {
    mq_mapping *mapping = map(create_named("bus:1/a", 8));
    void *token = mq_private_lock_row(list.first, 3, false);
    mq_mapping_release(mapping);
    mq_private_end_bus(&list, "bus:1");
    CHECK(count_files() == 1);
    mq_private_unlock_row(mq_private_row_of(token));
    CHECK(!list.first);
}

TEST(files_of_a_bus_are_listed_from_the_newest) {
    char path[64];
    uint64_t inode = 0, bytes = 0;
    mode_t mode = 0;
    int first = create_named("bus:1/a", 8), second = create_named("bus:1/b", 16);
    create_named("bus:11/c", 8);
    create("bus:1/unnamed", 8);
    CHECK(mq_private_describe_older(&list, "bus:1", INT_MAX, path, sizeof path, &inode, &bytes, &mode) == second);
    CHECK(!strcmp(path, "bus:1/b") && bytes == 16 && mode == 0640 &&
          mq_private_file_of(MQ_PRIVATE_DEVICE, inode)->fd == second);
    CHECK(mq_private_describe_older(&list, "bus:1", second, path, sizeof path, &inode, &bytes, &mode) == first);
    CHECK(mq_private_describe_older(&list, "bus:1", first, path, sizeof path, &inode, &bytes, &mode) == 0);
}

TEST(pinned_file_stays_until_its_bus_ends) {
    mq_mapping *mapping = map(create_named("bus:1/a", 8));
    mq_private_pin(&list, mapping->inode);
    CHECK(mq_remove_file(&policy, "bus:1/a", &error) == 1);
    mq_mapping_release(mapping);
    CHECK(count_files() == 1);
    mq_private_end_bus(&list, "bus:1");
    CHECK(!list.first);
}

TEST(forked_child_has_no_files_and_may_end_the_mappings_of_its_parent) {
    mq_mapping *mapping = map(create_named("bus:1/a", 8));
    mq_private_files_lock(&list); /* a thread of the parent may hold the lock */
    pid_t child = fork();
    if (child == 0) {
        mq_private_files_reset_in_child(&list);
        bool is_empty = mq_open_file(&policy, "bus:1/a", O_RDWR, &error) == -ENOENT;
        mq_mapping_release(mapping);
        create_named("bus:1/a", 8);
        _exit(!is_empty || count_files() != 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    mq_private_files_unlock(&list);
    CHECK(mq_open_file(&policy, "bus:1/a", O_RDWR, &error) >= 0);
}

TEST(files_of_the_kernel_are_not_private) {
    CHECK(!mq_is_private_path("/dev/shm/msgq_a") && !mq_is_private_fd(1 << 28) && !mq_private_file_of(1, 1));
}
