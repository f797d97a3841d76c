"""Mutants of the watcher thread."""

from tools.mutate.headers.mutant import mutants_of

watcher = mutants_of("msgq/impl/base/watcher.h", "watcher")

MUTANTS = [
    watcher(
        "a reader does not limit the sleep",
        "watch->ops.max_sleep_ns ? watch->ops.max_sleep_ns(watch->ops.reader) : watch->poll_ns;",
        "watch->poll_ns;",
        "reader_limits_the_sleep",
    ),
    watcher(
        "a quiet reader is not announced",
        "expected = watch->ops.prepare_wait(watch->ops.reader, watch->ops.eventcount);",
        "",
        "turn_announces_quiet_readers_and_sleeps_on_their_words",
    ),
    watcher(
        "a message that comes with the announcement is not seen",
        "expected = watch->ops.prepare_wait(watch->ops.reader, watch->ops.eventcount); "
        "if (mq_watch_is_readable(watch)) mq_watch_set_readable(watch);",
        "expected = watch->ops.prepare_wait(watch->ops.reader, watch->ops.eventcount);",
        "turn_marks_a_reader_whose_message_comes_with_the_announcement",
    ),
    watcher(
        "a reader that is marked watches on",
        "if (watch->ready && watch->ops.end_wait)",
        "if (!watch->ready && watch->ops.end_wait)",
        "turn_marks_readers_that_have_something",
    ),
    watcher(
        "the thread naps as long as the last reader allows",
        "if ((!watch->ready || watch->ops.no_backoff) && (*max_sleep_ns < 0 || poll_ns < *max_sleep_ns))",
        "if (!watch->ready || watch->ops.no_backoff)",
        "turn_announces_quiet_readers_and_sleeps_on_their_words",
    ),
    watcher(
        "the thread polls readers that are ready",
        "if ((!watch->ready || watch->ops.no_backoff) && (*max_sleep_ns < 0 ||",
        "if ((*max_sleep_ns < 0 ||",
        "turn_marks_readers_that_have_something",
    ),
    watcher(
        "the thread sleeps forever while a reader with a constant interval is ready",
        "if ((!watch->ready || watch->ops.no_backoff) && (*max_sleep_ns < 0 ||",
        "if (!watch->ready && (*max_sleep_ns < 0 ||",
        "ready_reader_with_a_constant_interval_limits_the_sleep",
    ),
    watcher(
        "a reader that has to be polled soon waits for the thread",
        "(watch->ops.no_backoff && poll_ns < MQ_WATCH_READY_NS)",
        "false",
        "ready_reader_with_a_constant_interval_limits_the_sleep",
    ),
    watcher(
        "a descriptor stays readable",
        "watch->ready && read(fd, &events, sizeof events) != 0;",
        "watch->ready && sizeof events;",
        "quiet_empties_the_descriptor_of_its_reader_alone",
    ),
    watcher(
        "a reader that became quiet is not polled",
        "if (watch && (poll_ns < watch->poll_ns || (emptied && by_clock)))",
        "if (watch && (poll_ns < watch->poll_ns || (emptied && by_clock && !watch)))",
        "quiet_of_a_polled_reader_wakes_the_thread",
    ),
    watcher(
        "a reader that is polled sooner waits for the others",
        "if (watch && (poll_ns < watch->poll_ns || (emptied && by_clock)))",
        "if (watch && emptied && by_clock)",
        "quiet_of_a_polled_reader_wakes_the_thread",
    ),
    watcher(
        "another reader is removed",
        "*watch = mq_watcher.list[--mq_watcher.count];",
        "mq_watcher.count--;",
        "added_and_removed_readers_wake_the_thread",
    ),
    watcher(
        "a removed reader leaves copies of its descriptor quiet",
        "mq_watch_signal_fd(watch); *watch",
        "*watch",
        "removed_reader_leaves_copies_of_its_descriptor_readable",
    ),
    watcher(
        "a reader beyond the limit of the futex is not polled",
        "watch->polled = no_waitv || count == MQ_FUTEX_WAITV_MAX;",
        "watch->polled = no_waitv;",
        "readers_beyond_the_limit_of_the_futex_are_polled",
    ),
]
