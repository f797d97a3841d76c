"""Mutants of gates, of locks on rows, and of process information."""

from tools.mutate.headers.mutant import mutants_of

gate = mutants_of("msgq/impl/gate/gate.h", "gate")
life = mutants_of("msgq/impl/base/liveness_lock.h", "liveness")
file_lock = mutants_of("msgq/impl/base/file_lock.h", "liveness")
liveness = mutants_of("msgq/impl/base/process_info.h", "liveness")

MUTANTS = [
    gate(
        "a file of another size is a gate",
        "return mq_load_relaxed_u64(&g->total_bytes) == MQ_GATE_BYTES ? MQ_FILE_VALID : MQ_FILE_NOT_OURS;",
        "return MQ_FILE_VALID;",
        "gate_is_good_with_its_own_version_and_size_alone",
    ),
    gate(
        "the lock of an owner is not asked for",
        "if (!mq_load_relaxed_u64(&g->held))",
        "if (mq_load_relaxed_u64(&g->held))",
        "gate_owner_lives_as_long_as_its_lock_is_held",
    ),
    gate(
        "a set wakes nobody",
        "mq_fetch_and_u32(&e->count, ~(uint32_t)MQ_FAKE_EVENT_SLEEPERS); "
        "mq_futex_wake_all(mq_futex_word(&e->count)); } return",
        "} return",
        "set_wakes_sleepers_once",
    ),
    gate(
        "the flag of sleepers stays",
        "mq_fetch_and_u32(&e->count, ~(uint32_t)MQ_FAKE_EVENT_SLEEPERS); mq_futex_wake_all(mq_futex_word(&e->count));",
        "mq_futex_wake_all(mq_futex_word(&e->count));",
        "set_wakes_sleepers_once",
    ),
    gate(
        "a FIFO is asked for without a fence",
        "mq_fence_seq_cst(); return mq_load_acquire_u64(&e->fifo_inode) != 0;",
        "return mq_load_acquire_u64(&e->fifo_inode) != 0;",
        "set_and_clear_report_changes_to_a_watched_fifo",
    ),
    gate(
        "each set is reported",
        "return before < MQ_FAKE_EVENT_ONE && mq_fake_event_has_fifo(e);",
        "return mq_fake_event_has_fifo(e);",
        "set_and_clear_report_changes_to_a_watched_fifo",
    ),
    gate(
        "the last clear is not reported",
        "before < 2 * MQ_FAKE_EVENT_ONE && mq_fake_event_has_fifo(e)",
        "before < MQ_FAKE_EVENT_ONE && mq_fake_event_has_fifo(e)",
        "set_and_clear_report_changes_to_a_watched_fifo",
    ),
    gate(
        "two clears take one set",
        "if (mq_compare_exchange_u32(&e->count, before, before - MQ_FAKE_EVENT_ONE))",
        "if (mq_fetch_add_u32(&e->count, -MQ_FAKE_EVENT_ONE))",
        "clear_that_another_one_overtakes_does_not_go_below_zero",
    ),
    gate(
        "a FIFO is settled once",
        "while (mq_fake_event_is_set(e) != set && ++tries < MQ_FAKE_EVENT_TRIES);",
        "while (tries);",
        "fifo_of_an_event_that_changes_during_the_action_is_settled_again",
    ),
    gate(
        "a FIFO stays readable",
        "while (!set && reads++ < MQ_FAKE_EVENT_TRIES && read(fifo, bytes, sizeof bytes) > 0)",
        "while (!set && reads++ && sizeof bytes == 0)",
        "fifo_is_readable_while_the_event_is_set",
    ),
    gate(
        "a watcher looks at the event before its FIFO is known",
        "mq_store_release_u64(&e->fifo_inode, inode); mq_fence_seq_cst(); mq_fake_event_sync_fifo(e, fifo);",
        "mq_fake_event_sync_fifo(e, fifo); mq_store_release_u64(&e->fifo_inode, inode); mq_fence_seq_cst();",
        "watcher_of_an_event_that_is_set_finds_it_readable",
    ),
    gate(
        "sleepers of one event are sent away",
        "for (int i = 0; i < 2; i++) { mq_fake_event *e",
        "for (int i = 0; i < 1; i++) { mq_fake_event *e",
        "close_and_disable_end_the_waits_for_both_events",
    ),
    gate(
        "sleepers are sent away before the gate is closed",
        "mq_store_release_u32(&g->closed, 1); mq_event_gate_wake_waiters(g);",
        "mq_event_gate_wake_waiters(g); mq_store_release_u32(&g->closed, 1);",
        "close_and_disable_end_the_waits_for_both_events",
    ),
    gate(
        "a wait for the last event of a list does not see it",
        "for (unsigned j = 0; j < count; j++)",
        "for (unsigned j = 0; j + 1 < count; j++)",
        "spin_ends_with_the_last_event_of_a_list",
    ),
    life(
        "a row's lock is that of the next one",
        ".l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)row, .l_len = 1}; const",
        ".l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)row + 1, .l_len = 1}; const",
        "row_is_held_until_it_is_let_go",
    ),
    life(
        "all rows under a lock of the file have one open file",
        "component_lock->has_row_lock = liveness_token != NULL;",
        "component_lock->has_row_lock = false;",
        "each_row_under_one_lock_of_the_file_is_unlocked_alone",
    ),
    life(
        "a row in use takes the lock of the file",
        "component_lock->has_row_lock = liveness_token != NULL;",
        "component_lock->has_row_lock = true;",
        "row_in_use_leaves_the_lock_of_the_file_for_the_next_row",
    ),
    life(
        "a row that the lock of the file has locked is free",
        "component_lock->fd >= 0 && !component_lock->has_row_lock) return component_lock->fd;",
        "component_lock->fd >= 0) return component_lock->fd;",
        "lock_of_the_file_tests_rows_until_it_has_one",
    ),
    life(
        "each series of tests opens the file",
        "component_lock->fd >= 0 && !component_lock->has_row_lock) return component_lock->fd;",
        "component_lock->fd < -1) return component_lock->fd;",
        "lock_of_the_file_tests_rows_until_it_has_one",
    ),
    file_lock(
        "the lock of the file lasts as long as the row",
        "flock(lock->fd, LOCK_UN);",
        "",
        "row_keeps_the_open_file_but_not_the_lock_of_the_file",
    ),
    file_lock(
        "a child keeps the open file of its parent",
        "close(lock->fd); lock->fd = -1;",
        "lock->fd = -1;",
        "forked_child_keeps_neither_the_lock_of_the_file_nor_the_row",
    ),
    file_lock(
        "a child unlocks the file of its parent",
        "close(lock->fd); lock->fd = -1;",
        "",
        "forked_child_keeps_neither_the_lock_of_the_file_nor_the_row",
    ),
    life(
        "a lock is of the whole file",
        "{.l_type = shared ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)row, .l_len = 1};",
        "{.l_type = shared ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)row, .l_len = 0};",
        "row_is_held_until_it_is_let_go",
    ),
    life(
        "a lock that many may have is of one",
        ".l_type = shared ? F_RDLCK : F_WRLCK,",
        ".l_type = F_WRLCK,",
        "row_that_is_shared_is_held_until_the_last_one_lets_go",
    ),
    life(
        "another file is asked for the row",
        "found.st_ino == liveness_file->inode && found.st_dev == liveness_file->device;",
        "found.st_dev == liveness_file->device;",
        "row_of_another_file_is_unknown",
    ),
    life(
        "a row that cannot be asked for is free",
        "fcntl(fd, F_OFD_GETLK, &lock) != 0) return MQ_UNKNOWN;",
        "fcntl(fd, F_OFD_GETLK, &lock) != 0) return MQ_DEAD;",
        "row_of_another_file_is_unknown",
    ),
    life(
        "a process that is gone lives by its lock",
        "return held != MQ_DEAD && mq_process_is_gone(pid, pid_namespace) ? MQ_DEAD : held;",
        "return pid && pid_namespace ? held : MQ_DEAD;",
        "owner_whose_process_is_gone_is_dead_though_its_row_is_held",
    ),
    life(
        "an probe leaves its file open",
        "if (probe->fd >= 0) close(probe->fd); probe->fd = MQ_PROBE_NOT_OPEN;",
        "if (probe->fd >= 0) close(probe->fd);",
        "row_is_held_until_it_is_let_go",
    ),
    liveness(
        "a process of another namespace is gone",
        "errno == ESRCH && pid_namespace == mq_pid_namespace();",
        "errno == ESRCH && pid_namespace;",
        "owner_whose_process_is_gone_is_dead_though_its_row_is_held",
    ),
    liveness(
        "a process that took the id of another one is that one",
        "return started == start_time && !zombie ? MQ_ALIVE : MQ_DEAD;",
        "return start_time && !zombie ? MQ_ALIVE : MQ_DEAD;",
        "process_is_known_by_its_start_and_namespace",
    ),
    liveness(
        "a process of another namespace is looked up here",
        "if (pid_namespace != mq_pid_namespace()) return MQ_UNKNOWN;",
        "(void)pid_namespace;",
        "process_is_known_by_its_start_and_namespace",
    ),
    liveness(
        "an earlier signal is taken",
        "taken >> (signal_number - 1) & 1",
        "taken >> (signal_number - 2) & 1",
        "signal_is_taken_by_a_thread_that_blocks_it",
    ),
    liveness(
        "a thread that blocks a signal is killed by it",
        'i ? "\\nSigCgt:" : "\\nSigBlk:"',
        'i ? "\\nSigCgt:" : "\\nSigIgn:"',
        "signal_is_taken_by_a_thread_that_blocks_it",
    ),
]
