/* The leases of frames: a server and its clients. */
#include "steps.h"

#include <signal.h>
#include <sys/wait.h>

#include "leases.h"
#include "stream_state.h"

enum { BUFFERS = 3, ROWS = 4 };

static mq_frame_lease_table table;
static mq_frame_buffer_mru mru;

static uint32_t generation_of(uint32_t buffer) { return mq_load_acquire_u32(&table.generation[buffer]); }
static uint32_t lease_of(uint32_t row, uint32_t buffer) { return mq_load_acquire_u32(&table.rows[row].lease[buffer]); }
static uint32_t passed_by(uint32_t row) { return mq_load_acquire_u32(&table.rows[row].seen_generation); }

/* Three frames, of the generations 1 to 3, in the buffers 0 to 2; the clients of the rows 0 and 1 have passed 2. */
static void begin(void) {
    forget_steps();
    memset((void *)&table, 0, sizeof table);
    mq_frame_buffer_mru_init(&mru, BUFFERS);
    for (uint32_t buffer = 0; buffer < BUFFERS; buffer++) {
        CHECK(mq_frame_buffer_claim(&table, ROWS, buffer, 0) == -1);
        CHECK(mq_frame_buffer_mru_publish(&mru, &table, buffer) == buffer + 1);
    }
    for (uint32_t row = 0; row < 2; row++) {
        mq_frame_row_reset(&table, row, MQ_FRAME_ROW_TAKEN);
        mq_frame_row_set_locked(&table, row);
        mq_store_release_u32(&table.rows[row].seen_generation, 2);
    }
    forget_steps();
}

/* ---- the client ---- */

TEST(lease_take_of_the_frame_that_is_there_holds_it) {
    begin();
    CHECK(mq_frame_lease_take(&table, 1, 2, 3));
    CHECK(lease_of(1, 2) == 3 && passed_by(1) == 3);
    CHECK(mq_frame_lease_find_holder(&table, ROWS, 2, 3) == 1);
    CHECK(in_order("mq_frame_lease_take: stored lease", "*: fenced seq_cst", "*: loaded &table->generation*"));
}

TEST(lease_take_of_a_frame_that_has_gone_leaves_no_lease) {
    begin();
    CHECK(!mq_frame_lease_take(&table, 1, 2, 7));
    CHECK(lease_of(1, 2) == 0);
    CHECK(passed_by(1) == 7); /* it reached this frame, and the frame was gone */
}

static unsigned server_acts_at;

static void server_takes_a_buffer(unsigned time) {
    int slowest;
    if (time == server_acts_at)
        mq_frame_buffer_claim_mru(&mru, &table, ROWS,
                                  mq_frame_count_awaited_frames(&table, ROWS, mru.newest, &slowest));
}

TEST(lease_take_loses_no_frame_to_a_server_at_any_step) {
    for (server_acts_at = 1; server_acts_at < 10; server_acts_at++) {
        begin();
        mq_store_release_u32(&table.rows[1].seen_generation, 3);
        meet("mq_frame_lease_take: *", server_takes_a_buffer);
        CHECK(mq_frame_lease_take(&table, 0, 2, 3));
    }
    CHECK(met > 2 && met < server_acts_at);
}

TEST(lease_return_lets_the_server_take_the_buffer) {
    begin();
    CHECK(mq_frame_lease_take(&table, 1, 2, 3));
    CHECK(mq_frame_buffer_claim(&table, ROWS, 2, 3) == 1);
    CHECK(generation_of(2) == 3);
    mq_frame_lease_return(&table, 1, 2);
    CHECK(mq_frame_buffer_claim(&table, ROWS, 2, 3) == -1);
    CHECK(generation_of(2) == 0);
}

/* ---- the server ---- */

static void client_stores_its_lease(unsigned time) {
    if (time == 1)
        mq_store_release_u32(&table.rows[1].lease[2], 3);
}

TEST(buffer_take_that_meets_a_lease_puts_the_generation_back) {
    begin();
    meet("mq_frame_buffer_claim: stored *", client_stores_its_lease);
    CHECK(mq_frame_buffer_claim(&table, ROWS, 2, 3) == 1);
    CHECK(generation_of(2) == 3);
}

TEST(buffer_take_looks_for_leases_after_a_fence) {
    begin();
    CHECK(mq_frame_buffer_claim(&table, ROWS, 2, 3) == -1);
    CHECK(in_order("mq_frame_buffer_claim: stored &table->generation*", "mq_frame_buffer_claim: fenced seq_cst",
                   "mq_frame_lease_find_holder: loaded *"));
}

TEST(buffer_take_passes_over_leases_of_other_generations) {
    begin();
    mq_store_release_u32(&table.rows[1].lease[2], 2);
    CHECK(mq_frame_buffer_claim(&table, ROWS, 2, 3) == -1);
}

TEST(buffer_take_finds_the_lease_of_the_last_row) {
    begin();
    mq_store_release_u32(&table.rows[ROWS - 1].lease[2], 3);
    CHECK(mq_frame_buffer_claim(&table, ROWS, 2, 3) == ROWS - 1);
}

TEST(shelf_publish_after_the_largest_generation_gives_1) {
    begin();
    mru.newest = UINT32_MAX - 1;
    CHECK(mq_frame_buffer_mru_publish(&mru, &table, 0) == UINT32_MAX);
    CHECK(mq_frame_buffer_mru_publish(&mru, &table, 1) == 1);
    CHECK(generation_of(1) == 1 && mru.generation[1] == 1);
}

TEST(shelf_orders_buffers_by_their_last_frame) {
    begin();
    mq_frame_buffer_mru_publish(&mru, &table, 1);
    CHECK(mru.order[0] == 1 && mru.order[1] == 2 && mru.order[2] == 0);
}

TEST(added_buffer_is_claimed_although_clients_await_all_frames) {
    begin();
    mq_frame_buffer_mru_add(&mru);
    CHECK(mru.buffers == BUFFERS + 1);
    CHECK(mq_frame_buffer_claim_mru(&mru, &table, ROWS, UINT32_MAX) == BUFFERS);
}

TEST(frames_awaited_is_the_lag_of_the_slowest_client_that_is_there) {
    int slowest;
    begin();
    mq_store_release_u32(&table.rows[0].seen_generation, 3);
    CHECK(mq_frame_count_awaited_frames(&table, ROWS, 3, &slowest) == 1 && slowest == 1);
    mq_store_release_u32(&table.rows[1].seen_generation, 0); /* it has reached no frame yet */
    CHECK(mq_frame_count_awaited_frames(&table, ROWS, 3, &slowest) == UINT32_MAX && slowest == 1);
    mq_frame_row_set_leaving(&table, 1);
    CHECK(mq_frame_count_awaited_frames(&table, ROWS, 3, &slowest) == 0 && slowest == -1);
}

TEST(take_warmest_takes_the_newest_frame_that_none_awaits) {
    begin();
    CHECK(mq_frame_buffer_claim_mru(&mru, &table, ROWS, 1) == 1);
    begin();
    CHECK(mq_frame_buffer_claim_mru(&mru, &table, ROWS, 0) == 2);
    begin();
    CHECK(mq_frame_buffer_claim_mru(&mru, &table, ROWS, 3) == -1);
}

TEST(row_is_done_when_its_client_left_and_let_go_of_all) {
    begin();
    CHECK(mq_frame_lease_take(&table, 1, BUFFERS - 1, 3));
    mq_frame_row_set_left(&table, 1);
    CHECK(!mq_frame_row_is_released(&table, 1, mru.generation));
    mq_frame_lease_return(&table, 1, BUFFERS - 1);
    CHECK(mq_frame_row_is_released(&table, 1, mru.generation));
    mq_frame_row_set_locked(&table, 1);
    CHECK(!mq_frame_row_is_released(&table, 1, mru.generation));
}

TEST(row_is_held_until_its_client_left) {
    begin();
    CHECK(mq_frame_row_is_locked(&table, 1));
    mq_frame_row_set_leaving(&table, 1);
    CHECK(mq_frame_row_is_locked(&table, 1));
    mq_frame_row_set_left(&table, 1);
    CHECK(!mq_frame_row_is_locked(&table, 1));
}

TEST(row_reset_removes_the_state_of_the_previous_client) {
    begin();
    CHECK(mq_frame_lease_take(&table, 1, 2, 3));
    mq_frame_row_reset(&table, 1, MQ_FRAME_ROW_FREE);
    CHECK(lease_of(1, 2) == 0 && passed_by(1) == 0 && !mq_frame_row_is_locked(&table, 1));
}

/* ---- the parent and its children ---- */

TEST(mru_repair_sorts_the_buffers_by_their_frames) {
    begin();
    mru.generation[1] = 0; /* it is being written */
    memset(mru.order, 2, sizeof mru.order);
    mq_frame_buffer_mru_repair(&mru);
    CHECK(mru.order[0] == 2 && mru.order[1] == 0 && mru.order[2] == 1);
}

TEST(claim_mru_leaves_a_buffer_that_another_sender_writes) {
    begin();
    mru.sender = 5;
    mru.writer[2] = 4;
    CHECK(mq_frame_buffer_claim_mru(&mru, &table, ROWS, 0) == 1);
    mru.writer[2] = 5; /* our own frame, which was discarded */
    CHECK(mq_frame_buffer_claim_mru(&mru, &table, ROWS, 0) == 2);
}

TEST(state_lock_after_a_kill_of_its_holder_repairs_the_order) {
    mq_frame_stream_state *state = mq_frame_stream_state_create();
    CHECK(state != NULL);
    mq_frame_buffer_mru_init(&state->mru, BUFFERS);
    mq_frame_stream_state_lock(state);
    mq_frame_stream_state_unlock(state);
    pid_t child = fork();
    if (child == 0) {
        mq_frame_stream_state_lock(state);
        memset(state->mru.order, 1, sizeof state->mru.order);
        kill(getpid(), SIGKILL);
    }
    waitpid(child, NULL, 0);
    mq_frame_stream_state_lock(state);
    CHECK(state->mru.order[0] == 0 && state->mru.order[1] == 1 && state->mru.order[2] == 2);
    mq_frame_stream_state_unlock(state);
    mq_frame_stream_state_unmap(state);
}

TEST(next_sender_frees_only_the_buffer_of_a_dead_sender) {
    mq_frame_stream_state *state = mq_frame_stream_state_create();
    mq_process_identity self, dead;
    CHECK(mq_read_process_identity(&self) == 0);
    dead = self;
    dead.start_time++; /* the process with this id is another one */
    mq_frame_buffer_mru_init(&state->mru, BUFFERS);
    mq_frame_stream_state_set_sender(state, 5, &self);
    state->mru.writer[0] = 4; /* a sender that was replaced before */
    state->mru.writer[1] = 5;
    mq_frame_stream_state_set_sender(state, 6, &dead);
    CHECK(state->mru.sender == 6 && state->mru.writer[0] == 4 && state->mru.writer[1] == 5);
    state->mru.writer[2] = 6;
    mq_frame_stream_state_set_sender(state, 7, &self);
    CHECK(state->mru.writer[0] == 4 && state->mru.writer[1] == 5 && state->mru.writer[2] == 0);
    mq_frame_stream_state_unmap(state);
}

TEST(waiting_frames_are_those_since_a_client_joined) {
    mq_frame_stream_state *state = mq_frame_stream_state_create();
    int slowest;
    begin();
    state->mru = mru;
    state->published = 3;
    state->used_row_count = 3;
    CHECK(mq_frame_count_waiting_frames(state, &table, &slowest) == 1 && slowest == 0);
    mq_frame_row_reset(&table, 2, MQ_FRAME_ROW_TAKEN);
    state->clients[2].joined_at_frame = 3;
    CHECK(mq_frame_count_waiting_frames(state, &table, &slowest) == 1 && slowest == 0);
    state->published = 5;
    CHECK(mq_frame_count_waiting_frames(state, &table, &slowest) == 2 && slowest == 2);
    mq_frame_row_set_left(&table, 2);
    CHECK(mq_frame_count_waiting_frames(state, &table, &slowest) == 1);
    mq_frame_stream_state_unmap(state);
}
