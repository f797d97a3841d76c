/* base/mapping.h: who uses and holds a mapping, when it loses its file, and which mapping a new handle gets. */
#include "steps.h"

#include "base/file.h"
#include "base/mapguard.h"

enum { PAGE = 4096 };

static void *add_guard(void *address, size_t bytes, int protection, const mq_u64 **not_truncated) {
    mq_sigbus_guard *guard = mq_sigbus_guard_add_mapping(address, bytes, protection);
    *not_truncated = &guard->not_truncated;
    return guard;
}
static void remove_guard(void *guard) { mq_sigbus_guard_remove(guard); }
static bool pair_guards(void *guard, void *partner) { return mq_sigbus_guard_set_partner(guard, partner); }

static const mq_guard_functions guards = {.add = add_guard, .remove = remove_guard, .pair = pair_guards};
static mq_mapping_table table;
static mq_file_policy policy = {.group = (gid_t)-1, .guards = &guards, .mappings = &table};
static mq_error error;

static int make_file(size_t pages) {
    int fd = memfd_create("mapped", MFD_CLOEXEC);
    char page[PAGE];
    memset(page, 7, sizeof page);
    for (size_t i = 0; i < pages; i++)
        CHECK(write(fd, page, PAGE) == PAGE);
    return fd;
}

static mq_mapping *map(int fd, uint64_t writable_bytes) {
    struct stat found;
    mq_mapping *mapping;
    CHECK(fstat(fd, &found) == 0 && mq_map_file(&policy, fd, &found, writable_bytes, "path", &mapping, &error) == 0);
    return mapping;
}

static bool is_mapped(const void *address) {
    unsigned char there;
    return mincore((void *)(uintptr_t)address, PAGE, &there) == 0;
}

static void begin(void) {
    CHECK(mq_sigbus_guard_install_handler());
    policy.guards = &guards, policy.preallocate = false;
    forget_steps();
}

TEST(handles_share_the_mapping_of_a_whole_file_until_the_last_releases_it) {
    begin();
    int fd = make_file(2);
    mq_mapping *first = map(fd, 2 * PAGE), *second = map(fd, 2 * PAGE);
    CHECK(first == second && mq_mapping_is_shared(first));
    mq_mapping_release(second);
    CHECK(!mq_mapping_is_shared(first) && is_mapped(first->address));
    uint8_t *address = first->address;
    mq_mapping_release(first);
    CHECK(!table.first && !is_mapped(address));
}

TEST(read_only_and_partly_writable_mappings_are_not_the_writable_one) {
    begin();
    int fd = make_file(2);
    mq_mapping *writable = map(fd, 2 * PAGE), *readable = map(fd, 0), *partly = map(fd, PAGE), *again = map(fd, PAGE);
    CHECK(writable != readable && partly != writable && partly != readable && partly != again);
    CHECK(map(fd, 0) == readable && map(fd, 2 * PAGE) == writable);
}

TEST(new_handle_gets_no_mapping_of_another_file_size_setting_or_of_fewer_blocks) {
    begin();
    int fd = make_file(2);
    mq_mapping *first = map(fd, 2 * PAGE);
    CHECK(map(make_file(2), 2 * PAGE) != first);
    policy.guards = NULL;
    CHECK(map(fd, 2 * PAGE) != first);
    policy.guards = &guards;
    CHECK(map(fd, 2 * PAGE) == first);
    policy.preallocate = true;
    mq_mapping *preallocated = map(fd, 2 * PAGE);
    CHECK(preallocated != first && map(fd, 2 * PAGE) != preallocated);
    policy.preallocate = false;
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) == 0);
    mq_mapping *fewer = map(fd, 2 * PAGE);
    CHECK(!mq_mapping_is_shared(fewer) && map(fd, 2 * PAGE) == fewer);
    CHECK(ftruncate(fd, 3 * PAGE) == 0 && map(fd, 3 * PAGE) != first);
}

TEST(truncated_mapping_is_not_shared) {
    begin();
    int fd = make_file(1);
    mq_mapping *first = map(fd, PAGE);
    CHECK(ftruncate(fd, 0) == 0 && *(volatile uint8_t *)first->address == 0);
    CHECK(ftruncate(fd, PAGE) == 0 && mq_mapping_was_truncated(first->not_truncated));
    first->blocks = 0;
    CHECK(map(fd, PAGE) != first);
}

TEST(last_user_leaves_private_memory_with_the_kept_bytes_to_a_holder) {
    begin();
    int fd = make_file(3);
    mq_mapping *mapping = map(fd, 3 * PAGE);
    mapping->kept_bytes = PAGE + 10;
    uint8_t *at = mapping->address;
    mq_mapping_end_use(mapping, true);
    CHECK(!table.first && at[0] == 7 && at[PAGE + 9] == 7 && at[2 * PAGE] == 0);
    at[0] = 9; /* does not reach the file */
    mq_mapping *again = map(fd, 3 * PAGE);
    CHECK(again != mapping && again->address[0] == 7);
    mq_mapping_drop(mapping);
    CHECK(!is_mapped(at));
}

TEST(mapping_with_other_users_keeps_its_file) {
    begin();
    int fd = make_file(1);
    mq_mapping *mapping = map(fd, PAGE);
    CHECK(map(fd, PAGE) == mapping);
    mq_mapping_end_use(mapping, true);
    mapping->address[0] = 9;
    char byte;
    CHECK(pread(fd, &byte, 1, 0) == 1 && byte == 9);
}

TEST(private_memory_of_a_mapping_without_kept_bytes_is_zeros) {
    begin();
    mq_mapping *mapping = map(make_file(1), PAGE);
    mq_mapping_end_use(mapping, true);
    CHECK(mapping->address[0] == 0);
    mq_mapping_drop(mapping);
}

TEST(partner_stays_mapped_until_the_end_of_the_first_mapping) {
    begin();
    int side_fd = make_file(1);
    mq_mapping *side = map(side_fd, PAGE), *ring = map(make_file(1), PAGE);
    uint8_t *at = ring->address;
    CHECK(mq_mapping_pair(side, ring) && mq_mapping_pair(side, ring));
    mq_mapping_release(ring);
    CHECK(is_mapped(at));
    mq_mapping_release(side);
    CHECK(!is_mapped(at) && !table.first);
}

TEST(truncation_of_the_first_mapping_reaches_previous_and_new_partners) {
    begin();
    int side_fd = make_file(1);
    mq_mapping *side = map(side_fd, PAGE), *ring = map(make_file(1), PAGE), *grown = map(make_file(2), 2 * PAGE);
    CHECK(mq_mapping_pair(side, ring) && mq_mapping_pair(side, grown) && mq_mapping_pair(side, ring));
    CHECK(ftruncate(side_fd, 0) == 0 && *(volatile uint8_t *)side->address == 0);
    CHECK(ring->address[0] == 0 && grown->address[0] == 0 && !mq_mapping_pair(side, ring));
    uint8_t *addresses[] = {ring->address, grown->address};
    mq_mapping_release(ring), mq_mapping_release(grown);
    CHECK(is_mapped(addresses[0]) && is_mapped(addresses[1]));
    mq_mapping_release(side);
    CHECK(!is_mapped(addresses[0]) && !is_mapped(addresses[1]));
}

TEST(child_that_was_forked_under_the_lock_of_the_table_can_map_files) {
    begin();
    int fd = make_file(1);
    mq_mapping *mapping = map(fd, PAGE);
    mq_mapping_table_lock(&table);
    mq_mapping_table_reset_in_child(&table);
    CHECK(map(fd, PAGE) == mapping);
    mapping->users = 0; /* forked before the last user unlisted the mapping */
    CHECK(map(fd, PAGE) != mapping);
}

static bool has_user_without_hold;

static void check_holders(int number) {
    (void)number;
    for (const mq_mapping *mapping = table.first; mapping; mapping = mapping->next)
        has_user_without_hold |= mapping->users > mapping->holders;
}

/* If `on`, the CPU raises SIGTRAP after each instruction. */
static void step_through_instructions(bool on) {
#if defined(__x86_64__)
    uint64_t trap = 0x100, flags;
    __asm__ volatile("leaq -128(%%rsp), %%rsp; pushfq; popq %0; leaq 128(%%rsp), %%rsp" : "=r"(flags));
    flags = on ? flags | trap : flags & ~trap;
    __asm__ volatile("leaq -128(%%rsp), %%rsp; pushq %0; popfq; leaq 128(%%rsp), %%rsp"
                     :
                     : "r"(flags)
                     : "cc", "memory");
#else
    (void)on;
#endif
}

TEST(child_that_is_forked_at_any_instruction_has_no_user_that_is_not_a_holder) {
    begin();
    int fd = make_file(1);
    struct stat found;
    mq_mapping *mapping = map(fd, PAGE), *other = map(make_file(1), PAGE);
    CHECK(fstat(fd, &found) == 0 && signal(SIGTRAP, check_holders) != SIG_ERR);
    step_through_instructions(true);
    mq_mapping_table_use(&table, &found, true, true);
    mq_mapping_pair(mapping, other);
    mq_mapping_release(mapping);
    step_through_instructions(false);
    CHECK(!has_user_without_hold && !mq_mapping_is_shared(mapping));
}
