"""The decisions of the protocol that a mutation can take back. The defaults are the protocol."""

from dataclasses import dataclass

from .memory import ACQUIRE, RELEASE, SEQ_CST, Order


@dataclass(frozen=True, slots=True)
class Rules:
    """One protocol: docs/internals/topic-protocol.md, or something that misses a piece of it."""

    # EDGE commit: payload before the write_pointer that announces it.
    commit_store: Order = RELEASE
    commit_load: Order = ACQUIRE
    # EDGE grant: limit and flags before the bytes that they warn of.
    grant_fence: Order = RELEASE
    grant_fence_reader: Order = ACQUIRE
    # EDGE checkpoint: a checkpoint before the number that announces it, and that before the next checkpoint.
    checkpoint_fence_reader: Order = ACQUIRE
    checkpoint_store: Order = RELEASE
    checkpoint_load: Order = ACQUIRE
    # EDGE send-done: what a publisher wrote before the newcomer that finds it done.
    done_store: Order = RELEASE
    done_load_sent: Order = ACQUIRE
    done_load_begun: Order = ACQUIRE
    # EDGE takeover: begun is stored, write_uid is loaded; the newcomer's membarrier is between.
    starter_membarrier: bool = True
    publisher_fence: bool = True  # fence of a publisher that cannot register for membarrier
    # EDGE sleep: write_pointer is stored, eventcount is loaded; the sleeper does it the other way round.
    sleep_fence: Order = SEQ_CST
    sleep_fence_sleeper: Order = SEQ_CST

    # Validation by a msgq subscriber.
    announced_limit: bool = True  # else: the margin of stock publishers applies to msgq publishers, too
    check_after_copy: bool = True
    empty_by_all_bits: bool = True
    sentinel: bool = True
    sentinel_first: bool = True  # else: after the limit, and so perhaps newer than it
    slot_before_classification: bool = True
    margin_message: bool = True  # D/3: the largest message that a stock publisher may have in flight
    margin_mark: bool = True  # + 8: the wrap mark
    late_cycle: bool = True  # the AArch64 rule
    trust_flag: bool = False  # behave as a stock subscriber
    lost_by_checkpoint: bool = True  # else: by the counter `sent`

    # Sending.
    limit_before_payload: bool = True
    commit_before_extend: bool = True
    uid_before_begin: bool = True  # loaded before the store of `begun`, because the row may have another owner
    uid_before_commit: bool = True
    dropped_is_done: bool = True  # a batch that is dropped there puts `begun` back
    flags_by_limit: bool = True  # else: the two comparisons of stock publishers
    two_checkpoints: bool = True  # else: one cell, overwritten between two words

    # Taking over from another publisher.
    limit_kept: bool = True
    wait_for_send: bool = True
    wait_for_all: bool = True  # else: for the send of the publisher that write_uid named
    count_by_walk: bool = True  # else: by the counter `sent`
    claim_by_cas: bool = True  # else: write_uid is stored, whatever it has become since it was read
    claim_names_nobody: bool = True  # after a stock publisher: no owner until the side segment is true again
    starter_wakes: bool = True
    starter_wakes_all: bool = True  # else: only if the eventcount has the sleeper flag

    # A stock publisher's loads stay behind its releases, as on AArch64; else: they overtake them, as on x86.
    stock_loads_strong: bool = True

    # Sleeping.
    rechecks: bool = True
    clear_before_wake: bool = True
    futex_on_eventcount: bool = True  # the eventcount counts wakes; else: on the low half of write_pointer
    signal_thread_counts: bool = True  # the helper thread's wakes, too
    # Signalled stock subscribers: those that have found all that was there before this message, ...
    signal_if_caught_up: bool = True
    signal_if_it_stands: bool = True  # ... and those that have not moved since the message before


PROTOCOL = Rules()
