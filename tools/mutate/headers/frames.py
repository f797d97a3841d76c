"""Mutants of the leases of frames."""

from tools.mutate.headers.mutant import mutants_of

leases = mutants_of("visionipc/impl/leases.h", "leases")

MUTANTS = [
    leases(
        "a frame's generation is not restored",
        "if (holder >= 0) mq_store_release_u32(&table->generation[buffer], generation); return holder;",
        "return holder;",
        "buffer_take_that_meets_a_lease_puts_the_generation_back",
    ),
    leases(
        "a failed frame lease stays",
        "if (!is_ours) mq_store_release_u32(lease, 0);",
        "",
        "lease_take_of_a_frame_that_has_gone_leaves_no_lease",
    ),
    leases(
        "`passed` is stored before the lease",
        "mq_store_release_u32(lease, generation); mq_fence_seq_cst();",
        "mq_store_release_u32(&table->rows[row].seen_generation, generation); mq_store_release_u32(lease, generation); "
        "mq_fence_seq_cst();",
        "lease_take_loses_no_frame_to_a_server_at_any_step",
    ),
    leases(
        "`passed` is stored only for frames that were taken",
        "mq_store_release_u32(&table->rows[row].seen_generation, generation); return is_ours;",
        "if (is_ours) mq_store_release_u32(&table->rows[row].seen_generation, generation); return is_ours;",
        "lease_take_of_a_frame_that_has_gone_leaves_no_lease",
    ),
    leases(
        "`newest` wraps to 0",
        "mru->newest == UINT32_MAX ? 1 : mru->newest + 1;",
        "mru->newest + 1;",
        "shelf_publish_after_the_largest_generation_gives_1",
    ),
    leases(
        "a client looks at the generation without a fence",
        "mq_store_release_u32(lease, generation); mq_fence_seq_cst();",
        "mq_store_release_u32(lease, generation);",
        "lease_take_of_the_frame_that_is_there_holds_it",
    ),
    leases(
        "the server looks for leases without a fence",
        "mq_store_release_u32(&table->generation[buffer], 0); mq_fence_seq_cst();",
        "mq_store_release_u32(&table->generation[buffer], 0);",
        "buffer_take_looks_for_leases_after_a_fence",
    ),
    leases(
        "the server looks for leases only before it takes a buffer",
        "holder = mq_frame_lease_find_holder(table, rows, buffer, generation); if (holder >= 0) mq_store_release",
        "if (holder >= 0) mq_store_release",
        "buffer_take_that_meets_a_lease_puts_the_generation_back",
        "buffer_take_looks_for_leases_after_a_fence",
    ),
    leases(
        "the last row's lease is not seen",
        "for (uint32_t row = 0; generation && row < rows; row++)",
        "for (uint32_t row = 0; generation && row + 1 < rows; row++)",
        "buffer_take_finds_the_lease_of_the_last_row",
    ),
    leases(
        "a lease of another generation keeps the buffer",
        "if (mq_load_acquire_u32(&table->rows[row].lease[buffer]) == generation) return (int)row;",
        "if (mq_load_acquire_u32(&table->rows[row].lease[buffer])) return (int)row;",
        "buffer_take_passes_over_leases_of_other_generations",
    ),
    leases(
        "frames that a client awaits are written over",
        "generation == 0 || mru->newest - generation >= awaited;",
        "generation == 0 || mru->newest - generation + 1 >= awaited;",
        "take_warmest_takes_the_newest_frame_that_none_awaits",
    ),
    leases(
        "clients that left are awaited",
        "(state == MQ_FRAME_ROW_TAKEN || state == MQ_FRAME_ROW_LOCKED))",
        "state != MQ_FRAME_ROW_FREE)",
        "frames_awaited_is_the_lag_of_the_slowest_client_that_is_there",
    ),
    leases(
        "a client that has come to no frame yet is not awaited",
        "seen ? newest - seen : UINT32_MAX;",
        "passed ? newest - passed : 0;",
        "frames_awaited_is_the_lag_of_the_slowest_client_that_is_there",
    ),
    leases(
        "a row is free while its client holds frames",
        "== MQ_FRAME_ROW_LEFT && !mq_frame_row_has_leases(table, row, generations);",
        "== MQ_FRAME_ROW_LEFT && generations;",
        "row_is_done_when_its_client_left_and_let_go_of_all",
    ),
    leases(
        "a client that leaves is not held",
        "return state == MQ_FRAME_ROW_LOCKED || state == MQ_FRAME_ROW_LEAVING;",
        "return state == MQ_FRAME_ROW_LOCKED;",
        "row_is_held_until_its_client_left",
    ),
    leases(
        "a row's next client inherits leases",
        "for (uint32_t buffer = 0; buffer < MQ_FRAME_BUFFERS_MAX; buffer++) "
        "mq_store_release_u32(&table->rows[row].lease[buffer], 0);",
        "",
        "row_reset_removes_the_state_of_the_previous_client",
    ),
    leases(
        "a row's next client inherits `passed`",
        "mq_store_release_u32(&table->rows[row].seen_generation, 0);",
        "",
        "row_reset_removes_the_state_of_the_previous_client",
    ),
    leases(
        "a published buffer keeps its place in the order",
        "mru->order[0] = (uint8_t)buffer;",
        "mru->order[at] = (uint8_t)buffer;",
        "shelf_orders_buffers_by_their_last_frame",
    ),
    leases(
        "an added buffer is listed as buffer 0",
        "mru->order[mru->buffers] = (uint8_t)mru->buffers;",
        "mru->order[mru->buffers] = 0;",
        "added_buffer_is_claimed_although_clients_await_all_frames",
    ),
]
