"""Protocols with one missing step. The model must find each of them. A model without findings proves nothing."""

from .memory import RELAXED
from .protocol import mutations_of
from .rules import PROTOCOL

mutation = mutations_of(PROTOCOL)

EDGES = [
    mutation("commit-release", "own_publisher", "write_pointer is stored relaxed", commit_store=RELAXED),
    mutation("commit-acquire", "own_publisher", "write_pointer is loaded relaxed", commit_load=RELAXED),
    mutation("grant-release", "own_publisher", "no fence: limit, payload", grant_fence=RELAXED),
    mutation("grant-acquire", "own_publisher", "no fence: copy, limit", grant_fence_reader=RELAXED),
    mutation("grant-release-flags", "stock_subscriber", "no fence: flags, payload", grant_fence=RELAXED),
    mutation("grant-acquire-stock", "stock_publisher", "no fence: copy, write_pointer", grant_fence_reader=RELAXED),
    mutation(
        "checkpoint-fence-acquire",
        "own_publisher",
        "no fence: checkpoint, second look at its turn",
        checkpoint_fence_reader=RELAXED,
    ),
    mutation("checkpoint-release", "own_publisher", "a checkpoint's turn is stored relaxed", checkpoint_store=RELAXED),
    mutation("checkpoint-acquire", "own_publisher", "a checkpoint's turn is loaded relaxed", checkpoint_load=RELAXED),
    mutation("done-release", "overlap", "begun and sent are stored relaxed", done_store=RELAXED),
    mutation("done-acquire-sent", "overlap", "sent is loaded relaxed", done_load_sent=RELAXED),
    mutation("done-acquire-begun", "overlap", "begun is loaded relaxed", done_load_begun=RELAXED),
    mutation("takeover-membarrier", "overlap", "no membarrier: write_uid, begun", starter_membarrier=False),
    mutation("takeover-fence", "overlap", "no fence where membarrier does not reach", publisher_fence=False),
    mutation("sleep-fence", "sleep", "no fence: write_pointer, eventcount", sleep_fence=RELAXED),
    mutation("sleep-fence-sleeper", "sleep", "no fence: eventcount, write_pointer", sleep_fence_sleeper=RELAXED),
]

READING = [
    mutation("no-check-after-copy", "own_publisher", "validated only before the copy", check_after_copy=False),
    mutation("no-check-after-copy-stock", "stock_publisher", "the same, stock publisher", check_after_copy=False),
    mutation("trust-the-flag", "stock_publisher", "the subscriber is a stock one", trust_flag=True),
    mutation("no-margin", "stock_publisher", "stock: no message in flight is expected", margin_message=False),
    mutation("no-margin-for-mark", "stock_publisher_alone", "stock: no wrap mark is expected", margin_mark=False),
    mutation("no-late-cycle", "stock_publisher_alone", "stock: no late cycle is expected", late_cycle=False),
    mutation("empty-32-bit", "own_publisher", "empty when the offsets are equal", empty_by_all_bits=False),
    mutation("no-sentinel", "stock_takeover", "nobody notices that stock started", sentinel=False),
    mutation("limit-before-sentinel", "same_sentinel", "the sentinel is newer than the limit", sentinel_first=False),
    mutation("classify-before-slot", "stock_takeover", "survey first, then the slot", slot_before_classification=False),
    mutation("margin-for-all", "usage", "ours are validated by margin, too", announced_limit=False),
    mutation("lost-by-sent", "own_publisher", "losses are counted by `sent`", lost_by_checkpoint=False),
]

SENDING = [
    mutation(
        "limit-after-payload", "own_publisher", "the limit is announced after the payload", limit_before_payload=False
    ),
    mutation(
        "no-second-look", "stock_replaces", "write_uid is not looked at before the commit", uid_before_commit=False
    ),
    mutation("dropped-batch", "newcomers", "a dropped batch is in progress for ever", dropped_is_done=False),
    mutation("stock-wrap", "stock_subscriber", "flags at a wrap are cleared by >", flags_by_limit=False),
    mutation("one-checkpoint", "restart", "the checkpoint is overwritten in place", two_checkpoints=False),
    mutation("checkpoint-ahead", "restart", "the checkpoint may be ahead of write_pointer", commit_before_extend=False),
]

TAKING_OVER = [
    mutation("limit-lowered", "restart", "the limit starts at write_pointer", limit_kept=False),
    mutation("no-waiting", "overlap", "a send in progress is not waited for", wait_for_send=False),
    mutation("wait-for-last", "newcomers", "only the last publisher's send is waited for", wait_for_all=False),
    mutation("count-by-sent", "restart", "`sent` is trusted instead of the walk", count_by_walk=False),
    mutation("claim-by-store", "stock_replaces", "write_uid is read, then stored", claim_by_cas=False),
    mutation("claim-names-us", "back_from_stock", "after stock: named before the limit is", claim_names_nobody=False),
    mutation("no-wake-at-start", "sleep_restart", "a starting publisher wakes nobody", starter_wakes=False),
    mutation("wake-by-eventcount", "sleep_restart", "it wakes only if eventcount says so", starter_wakes_all=False),
]

SLEEPING = [
    mutation("no-look-before-sleep", "sleep", "write_pointer is not looked at again", rechecks=False),
    mutation("clear-after-wake", "sleep", "eventcount is cleared after the wake", clear_before_wake=False),
    mutation("futex-on-write-pointer", "sleep", "sleeps on the low half of write_pointer", futex_on_eventcount=False),
    mutation(
        "signal-fence", "signal_stock", "no fence: write_pointer, a stock subscriber's cursor", sleep_fence=RELAXED
    ),
    mutation("signal-caught-up", "signal_stock", "who had read everything is not signalled", signal_if_caught_up=False),
    mutation("signal-stands", "signal_stock", "who did not move is not signalled again", signal_if_it_stands=False),
    mutation("helper-does-not-count", "sleep_stock", "the helper's wakes are not counted", signal_thread_counts=False),
]

MUTATIONS = EDGES + READING + SENDING + TAKING_OVER + SLEEPING
