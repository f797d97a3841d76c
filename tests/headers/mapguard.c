/* The handler of SIGBUS, in one thread; tests/sanitizers/mapguard.c has several. */
#include "steps.h"

#include "base/mapguard.h"

enum { PAGE = 4096 };

typedef struct {
    int fd;
    uint8_t *at;
    mq_sigbus_guard *guard;
} mapping;

static mapping one, two;

static void map(mapping *m, size_t pages) {
    m->fd = memfd_create("guarded", MFD_CLOEXEC);
    CHECK(m->fd >= 0 && ftruncate(m->fd, (off_t)(pages * PAGE)) == 0);
    m->at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    CHECK(m->at != MAP_FAILED);
    memset(m->at, 7, pages * PAGE);
    m->guard = mq_sigbus_guard_add_mapping(m->at, pages * PAGE, PROT_READ | PROT_WRITE);
    CHECK(m->guard && mq_sigbus_guard_is_intact(m->guard));
}

static void begin(void) {
    CHECK(mq_sigbus_guard_install_handler());
    map(&one, 2);
    map(&two, 1);
    forget_steps();
}

static uint8_t byte_at(const uint8_t *at) { return *(const volatile uint8_t *)at; }

TEST(fault_replaces_the_whole_mapping_by_zeros_and_notes_it) {
    begin();
    CHECK(ftruncate(one.fd, PAGE) == 0);
    CHECK(byte_at(one.at) == 7 && mq_sigbus_guard_is_intact(one.guard));
    CHECK(byte_at(one.at + 2 * PAGE - 1) == 0);
    CHECK(!mq_sigbus_guard_is_intact(one.guard) && byte_at(one.at) == 0);
    CHECK(mq_sigbus_guard_is_intact(two.guard) && byte_at(two.at) == 7);
    one.at[5] = 1; /* its protection is that of the mapping */
    CHECK(byte_at(one.at + 5) == 1 && mq_load_acquire_u32(&one.guard->inside) == 0);
}

TEST(fault_replaces_the_partner_as_well) {
    begin();
    CHECK(mq_sigbus_guard_set_partner(one.guard, two.guard));
    CHECK(ftruncate(one.fd, 0) == 0 && byte_at(one.at) == 0);
    CHECK(!mq_sigbus_guard_is_intact(one.guard) && !mq_sigbus_guard_is_intact(two.guard) && byte_at(two.at) == 0);
    CHECK(mq_load_acquire_u32(&two.guard->inside) == 0);
}

TEST(fault_replaces_the_partner_of_the_partner) {
    static mapping three;
    begin();
    map(&three, 1);
    CHECK(mq_sigbus_guard_set_partner(two.guard, three.guard));
    CHECK(mq_sigbus_guard_set_partner(one.guard, two.guard));
    CHECK(ftruncate(one.fd, 0) == 0 && byte_at(one.at) == 0);
    CHECK(byte_at(two.at) == 0 && byte_at(three.at) == 0 && !mq_sigbus_guard_is_intact(three.guard));
    CHECK(mq_load_acquire_u32(&one.guard->inside) == 0 && mq_load_acquire_u32(&two.guard->inside) == 0);
    CHECK(mq_load_acquire_u32(&three.guard->inside) == 0);
}

TEST(partner_of_a_mapping_that_was_replaced_is_reported) {
    begin();
    CHECK(ftruncate(one.fd, 0) == 0 && byte_at(one.at) == 0);
    CHECK(!mq_sigbus_guard_set_partner(one.guard, two.guard));
}

TEST(fault_of_the_partner_leaves_the_mapping) {
    begin();
    CHECK(mq_sigbus_guard_set_partner(one.guard, two.guard));
    CHECK(ftruncate(two.fd, 0) == 0 && byte_at(two.at) == 0);
    CHECK(mq_sigbus_guard_is_intact(one.guard) && byte_at(one.at) == 7);
}

TEST(removed_guard_is_used_again_without_its_partner) {
    begin();
    CHECK(mq_sigbus_guard_set_partner(one.guard, two.guard));
    mq_sigbus_guard *removed = one.guard;
    mq_sigbus_guard_remove(one.guard);
    CHECK(!mq_sigbus_guard_pin_address((uintptr_t)one.at));
    map(&one, 1);
    CHECK(one.guard == removed);
    CHECK(ftruncate(one.fd, 0) == 0 && byte_at(one.at) == 0);
    CHECK(mq_sigbus_guard_is_intact(two.guard));
}

TEST(guard_is_held_up_to_the_end_of_its_mapping) {
    begin();
    uint64_t end = (uintptr_t)one.at + 2 * PAGE;
    CHECK(mq_sigbus_guard_pin_address(end - 1) == one.guard && mq_load_acquire_u32(&one.guard->inside) == 1);
    mq_fetch_add_u32(&one.guard->inside, (uint32_t)-1);
    CHECK(mq_sigbus_guard_pin_address(end) != one.guard);
    CHECK(mq_sigbus_guard_pin_address((uintptr_t)one.at - 1) != one.guard);
}

static volatile sig_atomic_t passed_on;
static void count_it(int number) { passed_on += number == SIGBUS; }

TEST(signal_without_a_guard_is_passed_on) {
    CHECK(sigaction(SIGBUS, &(struct sigaction){.sa_handler = count_it}, NULL) == 0);
    begin();
    raise(SIGBUS);
    CHECK(passed_on == 1 && mq_sigbus_guard_is_intact(one.guard));
}

TEST(handler_that_a_forked_child_installs_again_is_not_its_own_predecessor) {
    begin();
    mq_sigbus_guard_list.once = PTHREAD_ONCE_INIT; /* forked during the installation */
    begin();
    CHECK(mq_sigbus_guard_list.former.sa_handler == SIG_DFL);
}
