#!/bin/sh
# Compiles the core for AArch64 and lists, function by function, the instructions that order memory, with the shared
# stores and loads around them. Ends with 1 when one that docs/internals/aarch64.md relies on is missing, with 2 without a compiler.
# Usage: tools/aarch64.sh [--all]   (--all: every instruction)
set -eu

compiler=${AARCH64_CC:-aarch64-linux-gnu-gcc}
command -v "$compiler" >/dev/null || { echo "aarch64.sh: no $compiler (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/probe.c" <<'EOF'
#include "gate/gate.h"
#include "leases.h"
#include "ring/snapshot.h"
#define PROBE __attribute__((noinline, used, flatten)) /* flatten: with all that it calls */
PROBE mq_ring_status publisher_begin(mq_ring_publisher *p, uint64_t n, uint8_t **to) { return mq_ring_publisher_begin_message(p, n, to); }
PROBE void publisher_announce(mq_ring_publisher *p, uint64_t limit) { mq_ring_publisher_announce_limit(p, limit); }
PROBE mq_ring_status publisher_commit(mq_ring_publisher *p) { return mq_ring_publisher_commit_staged(p); }
PROBE void publisher_notify(mq_ring_publisher *p) { mq_ring_publisher_notify_subscribers(p); }
PROBE uint64_t publisher_claim(mq_ring_publisher *p, const mq_process_identity *me) { return mq_ring_publisher_claim_ring(p, me, 1, 1); }
PROBE bool send_in_progress(const mq_ring_publisher_row *former) { return mq_ring_publisher_is_sending(former); }
PROBE mq_ring_status subscriber_refresh(mq_ring_subscriber *s) { return mq_ring_subscriber_refresh_published(s); }
PROBE bool subscriber_intact(const mq_ring_subscriber *s, uint64_t at) { return mq_ring_subscriber_is_intact(s, at); }
PROBE void subscriber_announce_sleep(mq_ring_subscriber *s) { mq_ring_subscriber_prepare_wait(s); }
PROBE uint32_t announce_many(mq_u32 *word) { return mq_eventcount_prepare_wait_mp(word); }
PROBE bool due_many(mq_u32 *entry, mq_u32 *word) {
    mq_fetch_add_u32(entry, 1);
    return mq_eventcount_has_waiters_mp(word);
}
PROBE bool checkpoint_read(const mq_ring_side *side, mq_ring_checkpoint *m) { return mq_ring_checkpoint_read(side, m); }
PROBE void identity_write(mq_participant *who, const mq_process_identity *me) { mq_participant_write(who, me, 1, true); }
PROBE void schema_write(const mq_schema_parts *parts, const char *text) { mq_schema_write(parts, text, text, text, 1); }
PROBE bool schema_read(const mq_schema_parts *parts, char *text, uint64_t *n) { return mq_schema_read(parts, text, text, text, n); }
PROBE bool event_set(mq_fake_event *e) { return mq_fake_event_set(e); }
PROBE bool event_is_set(const mq_fake_event *e) { return mq_fake_event_is_set(e); }
PROBE int event_clear(mq_fake_event *e) { return mq_fake_event_clear(e); }
PROBE void event_watch(mq_fake_event *e) { mq_fake_event_attach_fifo(e, 1, 1); }
PROBE bool event_sleep(mq_fake_event *e, mq_event_gate *g) { return mq_fake_event_prepare_wait(e) && mq_event_gate_is_closed(g); }
PROBE void gate_close(mq_event_gate *g) { mq_event_gate_close(g); }
PROBE bool lease_take(mq_frame_lease_table *t, uint32_t r, uint32_t b) { return mq_frame_lease_take(t, r, b, 7); }
PROBE void lease_return(mq_frame_lease_table *t, uint32_t r, uint32_t b) { mq_frame_lease_return(t, r, b); }
PROBE void lease_leave(mq_frame_lease_table *t, uint32_t r) { mq_frame_row_set_left(t, r); }
PROBE int buffer_take(mq_frame_lease_table *t, uint32_t rows, uint32_t b) { return mq_frame_buffer_claim(t, rows, b, 7); }
PROBE void buffer_publish(mq_frame_lease_table *t, uint32_t b) { mq_frame_buffer_publish(t, b, 7); }
PROBE bool row_done(const mq_frame_lease_table *t, uint32_t r, const uint32_t *g) { return mq_frame_row_is_released(t, r, g); }
PROBE int slot_join(mq_ring_header *ring, mq_ring_side *side) { return mq_reader_slot_claim(ring, side, NULL, 1, 1); }
EOF

# Blocks in the order of the source: the patterns below match instructions in the order of their execution.
"$compiler" -std=gnu11 -D_GNU_SOURCE -O2 -march=armv8-a -mno-outline-atomics -fno-ipa-icf -fno-reorder-blocks -I"$here/msgq/impl" -I"$here/visionipc/impl" -S \
    -o "$work/probe.s" "$work/probe.c"

body() { awk -v start="$1:" '$1 == start {on = 1} on && !/^[[:space:]]*\./ {print} on && /\.size/ {exit}' "$work/probe.s"; }

list() {
    if [ "${all:-}" ]; then body "$1"; else
        body "$1" | grep -E '^[a-z]|dmb|stlr|stlxr|ldar|ldaxr|bl[[:space:]]+(syscall|memcpy)' ; fi
    echo
}

failed=0
# must FUNCTION PATTERN WHY: the pattern matches in the function's instructions, joined by semicolons.
must() {
    if body "$1" | tr -s '\n\t ' ';;  ' | grep -qE "$2"; then echo "ok       $1: $3"; else
        echo "MISSING  $1: $3" >&2; failed=1; fi
}

[ "${1:-}" = --all ] && all=1
for name in $(sed -n 's/^PROBE .*[ *]\([a-z_]*\)(mq_.*\|^PROBE .*[ *]\([a-z_]*\)(const.*/\1\2/p' "$work/probe.c"); do
    list "$name"
done
list mq_ring_publisher_extend_grant # never inlined

must publisher_commit 'stlr' "EDGE commit and send-done, release"
must publisher_commit 'stlr.*stlr' "write_pointer and sent are both released"
must publisher_commit 'stlr;.*dmb;ish;.*ldr' "EDGE sleep: write_pointer, fence, eventcount"
must subscriber_refresh 'ldar' "EDGE commit, acquire"
must send_in_progress 'ldar.*;ldar' "EDGE send-done, acquire, before begun is loaded"
must publisher_announce 'str;.*stlr;.*dmb;ish' "EDGE checkpoint: fields, grant_seq; EDGE grant: the fence behind them"
must checkpoint_read 'ldar;.*ldr;.*dmb;ishld;.*ldr' "EDGE checkpoint: grant_seq, fields, fence, grant_seq"
must mq_ring_publisher_extend_grant 'stlr;.*dmb;ish;' "EDGE grant: the fence behind limit and flags"
must subscriber_intact 'dmb;ishld;.*ldr' "EDGE grant: the fence before limit is loaded"
must publisher_claim 'stlxr;.*dmb;ish;.*bl;syscall' "EDGE takeover: write_uid, fence, membarrier"
must subscriber_announce_sleep 'ldaxr;.*stlxr;.*dmb;ish' "EDGE sleep: the flag is set atomically, then a fence"
must announce_many 'ldaxr;.*stlxr;.*dmb;ish' "EDGE sleep: as the line above"
must due_many 'ldaxr;.*stlxr;.*ldar' "EDGE sleep: the exchange, then an ldar, which stays behind it"
must identity_write 'stlr;.*dmb;ish;.*stlr' "uid cleared, fence, fields, uid released"
must schema_write 'stlr;.*dmb;ish;.*stlr' "EDGE schema: the shadow and its offset, seq, fence, text, seq"
must schema_read 'ldar;.*dmb;ishld;.*ldr' "EDGE schema: seq, text, fence, seq"
must event_set 'ldaxr;.*stlxr' "EDGE event, release"
must event_set 'stlxr;.*dmb;ish;.*ldar' "EDGE fifo: the count, fence, fifo_inode"
must event_is_set 'ldar' "EDGE event, acquire"
must event_clear 'ldar;.*stlxr' "EDGE event, acquire"
must event_clear 'stlxr;.*dmb;ish;.*ldar' "EDGE fifo: the count, fence, fifo_inode"
must event_watch 'stlr;.*dmb;ish;.*ldar' "EDGE fifo: fifo_inode, fence, the count"
must event_sleep 'ldaxr;.*stlxr;.*ldar' "EDGE gate-closed: the flag, then closed"
must gate_close 'stlr;.*ldaxr;.*stlxr' "EDGE gate-closed: closed, then the flag is cleared"
must lease_take 'stlr;.*dmb;ish;.*ldar' "EDGE claim: the lease, fence, generation; EDGE frame, acquire"
must lease_return 'stlr' "EDGE lease, release"
must lease_leave 'stlr' "EDGE client-left, release"
must buffer_take 'ldar.*stlr;.*dmb;ish;.*ldar' "EDGE claim: generation, fence, the leases; EDGE lease, acquire"
must buffer_publish 'stlr' "EDGE frame, release"
must row_done 'ldar.*ldar' "EDGE client-left: state, then the leases"
exit $failed
