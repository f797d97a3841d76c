/* A work queue's file and its schema: check, sizes, join. */
#include "queue_fixture.h"

#include "base/schema.h"

TEST(request_without_values_creates_a_queue_without_slots_that_later_gets_the_default_sizes) {
    mq_queue_request request = mq_queue_make_request(0, 0, MQ_QUEUE_EVENTS_NONE);
    CHECK(request.max_messages == 128 && request.max_message_size == 8192 && !request.names_sizes);
    CHECK(mq_queue_compute_new_file_bytes(&request) == sizeof(mq_queue));
    queue = zeros(sizeof(mq_queue));
    mq_queue_init_file(queue, &request, 5, &me);
    CHECK(!mq_queue_has_sizes(queue) && mq_load_acquire_u64(&queue->created_ns) == 5);
    CHECK(!strcmp(queue->creator, me.name) && mq_load_acquire_u64(&queue->creator_pid) == me.pid);
}

TEST(request_of_a_value_creates_a_queue_with_slots) {
    mq_queue_request requests[] = {mq_queue_make_request(SLOTS, 0, MQ_QUEUE_EVENTS_NONE),
                                   mq_queue_make_request(0, SIZE, MQ_QUEUE_EVENTS_NONE),
                                   mq_queue_make_request(0, 0, MQ_QUEUE_EVENTS_HEADS)};
    for (int i = 0; i < 3; i++) {
        mq_queue_file_parts found;
        mq_error error;
        uint64_t bytes = mq_queue_compute_new_file_bytes(&requests[i]);
        queue = zeros(bytes);
        mq_queue_init_file(queue, &requests[i], 5, &me);
        CHECK(mq_queue_check_sized_file(queue, bytes, "/file", &found, &error) == 0);
        CHECK(found.max_messages == (i == 0 ? SLOTS : 128) && found.max_message_size == (i == 1 ? SIZE : 8192));
        CHECK(found.events == requests[i].events);
    }
}

TEST(rejected_file_leaves_the_parts_unchanged_and_gives_the_error_of_its_kind) {
    mq_queue_file_parts found = {.max_messages = 7};
    mq_error error;
    begin(SLOTS);
    CHECK(mq_queue_check_sized_file(queue, sizeof(mq_queue), "/file", &found, &error) == -EPROTO);
    CHECK(error.kind == MQ_ERROR_CORRUPT && strstr(error.text, "no slots") && !strcmp(error.path, "/file"));
    mq_store_relaxed_u64(&queue->version, (uint64_t)(MQ_QUEUE_MAJOR + 1) << 32);
    CHECK(mq_queue_check_sized_file(queue, sizeof(mq_queue), "/file", &found, &error) == -EPROTO);
    CHECK(error.kind == MQ_ERROR_LAYOUT_VERSION && found.max_messages == 7 && !found.queue);
    mq_store_relaxed_u64(&queue->magic, 0);
    CHECK(mq_queue_check_file(queue, sizeof(mq_queue), "/file", &found, &error) == -EPROTO);
    CHECK(error.kind == MQ_ERROR_CORRUPT && strstr(error.text, "not a queue"));
}

TEST(sizes_are_chosen_once_and_only_with_their_memory) {
    mq_queue_request none = mq_queue_make_request(0, 0, MQ_QUEUE_EVENTS_NONE);
    mq_queue_request small = mq_queue_make_request(2, SIZE, MQ_QUEUE_EVENTS_NONE);
    mq_file_policy policy = {.group = (gid_t)-1};
    mq_file_lock lock = {.file = {.path = "/file"}, .fd = -1};
    mq_error error;
    struct stat found;
    queue = zeros(sizeof(mq_queue));
    mq_queue_init_file(queue, &none, 5, &me);
    CHECK(mq_queue_choose_sizes(queue, &policy, &lock, &small, &me, &error) == -EBADF && !mq_queue_has_sizes(queue));
    lock.fd = memfd_create("queue", MFD_CLOEXEC);
    CHECK(mq_queue_choose_sizes(queue, &policy, &lock, &small, &me, &error) == 0 && mq_queue_has_sizes(queue));
    CHECK(mq_queue_choose_sizes(queue, &policy, &lock, &none, &me, &error) == 0);
    CHECK(mq_load_acquire_u64(&queue->max_messages) == 2 && fstat(lock.fd, &found) == 0);
    CHECK((uint64_t)found.st_size == mq_queue_compute_file_bytes(2, SIZE));
    close(lock.fd);
}

TEST(recovery_of_a_handle_forgets_what_its_caches_know) {
    begin(SLOTS);
    memories[0][0].is_valid = true;
    CHECK(mq_queue_recover(a, 1000) == 1000 + MQ_QUEUE_RECOVER_NS && !memories[0][0].is_valid);
}

TEST(join_of_a_full_queue_fails_and_changes_nothing) {
    mq_file_lock lock = {.file = liveness_file};
    mq_error error;
    begin(SLOTS);
    for (int row = HANDLES; row < MQ_QUEUE_ROWS; row++) {
        mq_queue_occupy_row(a, row, &me, 1, true);
        lives[MQ_QUEUE_ROW_BYTE + row] = MQ_ALIVE;
    }
    mq_queue_row *last = a->own_row;
    CHECK(mq_queue_join(a, &lock, &me, 2, &locks[0], &error) == -ENFILE && error.kind == MQ_ERROR_TOO_MANY_HANDLES);
    CHECK(a->own_row == last && strstr(error.text, "128 open handles"));
    lives[MQ_QUEUE_ROW_BYTE + 77] = MQ_DEAD;
    CHECK(mq_queue_join(a, &lock, &me, 2, &locks[0], &error) == 0 && a->row_number == 77);
}

TEST(join_without_a_lock_claims_none) {
    mq_file_lock lock = {.file = liveness_file};
    mq_error error;
    begin(SLOTS);
    has_no_locks = true;
    CHECK(mq_queue_join(a, &lock, &me, 7, &locks[0], &error) == 0 && !locks[0]);
    CHECK(mq_load_relaxed_u64(&a->own_row->at.participant.locked_uid) == 0);
}

TEST(join_repairs_the_row_of_a_dead_owner_before_it_stores_its_identity) {
    begin(SLOTS);
    mq_queue_set_row_bit(&queue->notify_requested, 0);
    die(a);
    forget_steps();
    join(0);
    CHECK(in_order("mq_queue_clear_row_bit: cleared*", "mq_row_table_occupy: stored &row->generation",
                   "mq_participant_write: stored &participant->locked_uid",
                   "mq_participant_write: stored &participant->uid"));
    CHECK(!mq_queue_row_bit_is_set(&queue->notify_requested, 0) && a->own_row == &queue->rows[0]);
}

TEST(handles_begin_to_search_at_places_of_their_own) {
    begin(2 * MQ_QUEUE_ROWS);
    CHECK(a->next_search_slot == 0 && b->next_search_slot == 2 && c->next_search_slot == 4);
    mq_queue_handle watcher = *c;
    watcher.next_search_slot = 0, watcher.own_row = NULL;
    mq_queue_use_slots(&watcher, &b->parts, NULL);
    CHECK(watcher.next_search_slot == 4 && watcher.own_row == c->own_row && !watcher.block_caches);
}

TEST(only_requests_of_other_living_processes_exclude_a_notification) {
    begin(SLOTS);
    CHECK(!mq_queue_other_process_is_notified(a));
    mq_queue_set_row_bit(&queue->notify_requested, b->row_number);
    CHECK(!mq_queue_other_process_is_notified(a)); /* b is a handle of the same process */
    mq_store_relaxed_u64(&b->own_row->at.participant.pid, me.pid + 1);
    CHECK(mq_queue_other_process_is_notified(a) && mq_queue_other_process_is_notified(c));
    die(b);
    CHECK(!mq_queue_other_process_is_notified(a));
}

TEST(schema_is_written_once_and_again_if_its_writer_left_nothing_readable) {
    begin(SLOTS);
    mq_schema_parts at = mq_schema_parts_from_block(&queue->schema, queue->schema_data, MQ_QUEUE_SCHEMA_DATA_BYTES);
    mq_schema_write_if_missing(&at, "first", "", "1", 1);
    mq_schema_write_if_missing(&at, "second", "", "2", 1);
    CHECK(!strcmp(at.name, "first"));
    mq_store_relaxed_u64(at.seq, mq_load_relaxed_u64(at.seq) - 1); /* its writer was killed, and left a shadow */
    CHECK(mq_schema_is_set(&at));
    mq_store_relaxed_u64(at.shadow, 0); /* and now none */
    mq_schema_write_if_missing(&at, "third", "", "3", 1);
    CHECK(!strcmp(at.name, "third") && mq_load_relaxed_u64(at.seq) % 2 == 0);
}
