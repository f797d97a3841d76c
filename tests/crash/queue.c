/* A participant of a work queue that dies, or stops, at a chosen step of the protocol (points.h).
 *
 *     queue FILE CLOCK SIGNAL PATTERN N OPERATION...
 *
 * The queue is there; CLOCK is what the host's clock is ahead of CLOCK_MONOTONIC, in ns. Message NUMBER has priority NUMBER % 3 and holds its number in each of its three words, so that a
 * torn one shows. Coming, going, waiting and sending are done in the order of steps of handle.pyx and queue.pyx. What was
 * achieved is said: "sent 1", "took 1", "got 1" (it is gone from the queue), "lost 1" (it came back to the queue before).
 */
#include "points.h"

#include "lock.h"
#define mq_fork_guard_leave(fd, liveness_token) VALUE_THEN(mq_fork_guard_leave(fd, liveness_token), "gave back", lock)

#include "workqueue/join.h"

enum { WORDS = 3, KEPT_MAX = 64, BLOCKS_MAX = 1024 };

static mq_liveness_file liveness_file;
static mq_queue_block_cache blocks[BLOCKS_MAX];
static mq_queue_handle h = {.block_caches = blocks, .liveness_file = &liveness_file};
static uint64_t uid;
static void *row_lock;
static struct {
    mq_queue_taken_message taken;
    uint64_t number;
} kept[KEPT_MAX];
static unsigned kept_count;

static uint64_t priority_of(uint64_t number) { return number % 3; }
static uint64_t host_time(void) { return (uint64_t)(mq_monotonic_ns() + h.clock_offset); }
static void say(const char *what, uint64_t number) { printf("%s %llu\n", what, (unsigned long long)number); }

/* ---- coming and going ---- */

static void sweep(void) { mq_queue_recover(&h, mq_monotonic_ns()); }

/* Join, and do not look for the dead. */
static void enter(void) {
    mq_file_lock lock;
    mq_error error;
    wait_for_lock(&lock, &liveness_file);
    uid = (uint64_t)random() << 32 | (uint64_t)random() | 1;
    if (mq_queue_join(&h, &lock, &self, uid, &row_lock, &error) != 0)
        fail(error.text);
    mq_file_lock_close(&lock);
}

static void join(void) {
    enter();
    sweep();
}

static void leave(void) { mq_queue_leave(&h, uid, &row_lock); }

/* ---- sending ---- */

/* As Handle._claim_slot. */
static int64_t find_room(void) {
    int64_t slot = mq_queue_claim_free_slot(&h, MQ_NO_TICKET);
    if (slot != MQ_QUEUE_NO_SLOT)
        return slot;
    sweep();
    return mq_queue_claim_free_slot(&h, MQ_NO_TICKET);
}

static void fill(uint64_t slot, uint64_t number) {
    uint64_t message[WORDS] = {number, number, number};
    uint8_t *payload = mq_queue_get_slot_payload(&h, slot);
    mq_copy_to_shared(payload, message, sizeof message);
    mq_queue_commit_message(&h, slot, sizeof message, priority_of(number), host_time(), 0);
}

/* False: there is no room. */
static bool put(uint64_t number) {
    int64_t slot = find_room();
    if (slot == MQ_QUEUE_NO_SLOT) {
        mq_queue_add_to_counter(&h.own_row->counts.refused, 1);
        say("no room for", number);
        return false;
    }
    fill((uint64_t)slot, number);
    return true;
}

/* send:NUMBER */
static void send_one(uint64_t number) {
    if (!put(number))
        return;
    mq_queue_wake_receivers(h.parts.queue, 1);
    say("sent", number);
}

/* senddelayed:NUMBER: the message is due at once, and becomes READY at the next recovery. */
static void send_delayed(uint64_t number) {
    uint64_t message[WORDS] = {number, number, number};
    int64_t slot = find_room();
    if (slot == MQ_QUEUE_NO_SLOT)
        fail("no room");
    mq_copy_to_shared(mq_queue_get_slot_payload(&h, (uint64_t)slot), message, sizeof message);
    mq_queue_commit_delayed_message(&h, (uint64_t)slot, sizeof message, priority_of(number), host_time(), 0,
                                    mq_job_lease_convert_to_ticks(host_time()));
    say("sent", number);
}

/* many:COUNT:NUMBER */
static void send_many(uint64_t count, uint64_t number) {
    int sent = 0;
    for (uint64_t i = 0; i < count; i++)
        sent += put(number + i);
    mq_queue_wake_receivers(h.parts.queue, sent);
}

/* ---- receiving ---- */

/* As Handle._try_take, without the pauses between two looks for the dead. */
static bool look(uint64_t ticket, mq_queue_taken_message *delivery) {
    mq_queue_status status = mq_queue_take_message(&h, ticket, delivery);
    if (status == MQ_QUEUE_EMPTY) {
        sweep();
        status = mq_queue_take_message(&h, ticket, delivery);
    }
    if (status == MQ_QUEUE_CORRUPT)
        fail("corrupt");
    return status == MQ_QUEUE_OK;
}

static uint64_t copy(const mq_queue_taken_message *delivery) {
    uint64_t message[WORDS] = {0};
    const uint8_t *payload = mq_queue_get_slot_payload(&h, delivery->slot);
    if (delivery->length != sizeof message)
        fail("length");
    mq_copy_from_shared(message, payload, sizeof message);
    if (message[0] != message[1] || message[0] != message[2])
        fail("torn");
    if (mq_slot_state_get_priority(delivery->key) != priority_of(message[0]))
        fail("priority");
    return message[0];
}

/* receive:COUNT */
static void receive(uint64_t count) {
    mq_queue_taken_message taken;
    while (count-- && look(MQ_NO_TICKET, &taken)) {
        uint64_t number = copy(&taken);
        say(mq_queue_free_taken_slot(&h, &taken) ? "got" : "lost", number);
    }
}

/* take:COUNT, or lease:COUNT:TICKS */
static void take(uint64_t count, uint64_t ticks) {
    while (count-- && look(MQ_NO_TICKET, &kept[kept_count].taken)) {
        kept[kept_count].number = copy(&kept[kept_count].taken);
        if (ticks)
            mq_queue_set_job_lease(&h, &kept[kept_count].taken,
                                   mq_job_lease_convert_to_ticks(host_time()) + (uint32_t)ticks);
        say("took", kept[kept_count++].number);
    }
}

static void acknowledge(void) {
    while (kept_count) {
        bool ours = mq_queue_free_taken_slot(&h, &kept[--kept_count].taken);
        say(ours ? "got" : "lost", kept[kept_count].number);
    }
}

static void give_back(void) {
    while (kept_count) {
        const mq_queue_taken_message *delivery = &kept[--kept_count].taken;
        mq_queue_requeue_message(&h, delivery->slot, delivery->word);
    }
}

/* nackdelayed: as nack; the messages are due at once. */
static void give_back_delayed(void) {
    while (kept_count)
        mq_queue_delay_taken_message(&h, &kept[--kept_count].taken, mq_job_lease_convert_to_ticks(host_time()));
}

/* ---- waiting ---- */

/* As Wait: sleep once, unless it is there already. */
static void doze(mq_queue_waiting_call *waits, uint64_t ms) {
    uint32_t expected = mq_queue_wait_prepare_sleep(&h, waits, waits->ticket);
    if (!mq_queue_wait_is_over(&h, waits))
        mq_futex_wait(mq_futex_word(mq_queue_get_eventcount(&h, waits->role)), expected,
                      mq_monotonic_ns() + (int64_t)ms * MQ_NS_PER_MS);
    POINT("slept", on a word);
    mq_queue_finish_sleep(&h, waits->role);
}

/* A call that waits. `overtaken`: how often another call took its message; at 2 it takes the turn. */
static mq_queue_waiting_call begin_wait(mq_queue_role role, uint64_t overtaken) {
    mq_queue_waiting_call waits = mq_queue_wait_begin(&h, role, true);
    waits.overtaken = (uint32_t)overtaken;
    return waits;
}

/* wait:MS:OVERTAKEN, as Handle._await_message: sleep once, then take what is there. */
static void wait_message(uint64_t ms, uint64_t overtaken) {
    mq_queue_taken_message taken;
    mq_queue_waiting_call waits = begin_wait(MQ_QUEUE_RECEIVER, overtaken);
    mq_queue_add_notify_debt(h.own_row, 1);
    doze(&waits, ms);
    bool found = look(waits.ticket, &taken);
    if (found)
        mq_queue_notify_if_not_empty(&h.parts);
    mq_queue_clear_notify_debt(h.own_row, 1);
    mq_queue_wait_end(&h, &waits);
    if (!found)
        return;
    uint64_t number = copy(&taken);
    say(mq_queue_free_taken_slot(&h, &taken) ? "got" : "lost", number);
}

/* giveup:MS: sleep once, and leave as who was interrupted. */
static void give_up(uint64_t ms) {
    mq_queue_waiting_call waits = begin_wait(MQ_QUEUE_RECEIVER, 0);
    mq_queue_add_notify_debt(h.own_row, 1);
    doze(&waits, ms);
    mq_queue_forward_wake_and_notify(&h);
    mq_queue_clear_notify_debt(h.own_row, 1);
}

/* waitroom:MS, as MessageQueue.wait_space. */
static void wait_room(uint64_t ms) {
    mq_queue_waiting_call waits = mq_queue_wait_begin(&h, MQ_QUEUE_SENDER, false);
    doze(&waits, ms);
    mq_queue_forward_sender_wake(&h);
}

/* waitsend:MS:NUMBER, as Handle._await_room of a call that takes a turn: sleep once, then send if there is room. */
static void wait_and_send(uint64_t ms, uint64_t number) {
    mq_queue_waiting_call waits = begin_wait(MQ_QUEUE_SENDER, MQ_QUEUE_OVERTAKEN_MAX);
    doze(&waits, ms);
    int64_t slot = mq_queue_claim_free_slot(&h, waits.ticket);
    mq_queue_wait_end(&h, &waits);
    if (slot == MQ_QUEUE_NO_SLOT)
        return;
    fill((uint64_t)slot, number);
    mq_queue_wake_receivers(h.parts.queue, 1);
    say("sent", number);
}

/* pass:COUNT: come and go, and look for nobody. */
static void pass(uint64_t count) {
    while (count--) {
        enter();
        leave();
    }
}

/* Lie down, and never sleep or get up. */
static void lie(mq_queue_role role, uint64_t overtaken) {
    mq_queue_waiting_call waits = begin_wait(role, overtaken);
    mq_queue_wait_prepare_sleep(&h, &waits, waits.ticket);
}

static bool perform_waiting(const char *name, uint64_t a, uint64_t b) {
    if (!strcmp(name, "lie"))
        lie(MQ_QUEUE_RECEIVER, a);
    else if (!strcmp(name, "watch"))
        lie(MQ_QUEUE_WATCHER, 0);
    else if (!strcmp(name, "crave"))
        lie(MQ_QUEUE_SENDER, a);
    else if (!strcmp(name, "notify"))
        mq_queue_set_row_bit(&h.parts.queue->notify_requested, h.row_number);
    else if (!strcmp(name, "wait"))
        wait_message(a, b);
    else if (!strcmp(name, "giveup"))
        give_up(a);
    else if (!strcmp(name, "waitroom"))
        wait_room(a);
    else if (!strcmp(name, "waitsend"))
        wait_and_send(a, b);
    else
        return false;
    return true;
}

static void perform(const char *name, uint64_t a, uint64_t b) {
    if (perform_waiting(name, a, b))
        return;
    if (!strcmp(name, "join"))
        join();
    else if (!strcmp(name, "enter"))
        enter();
    else if (!strcmp(name, "pass"))
        pass(a);
    else if (!strcmp(name, "leave"))
        leave();
    else if (!strcmp(name, "sweep"))
        sweep();
    else if (!strcmp(name, "hold"))
        find_room();
    else if (!strcmp(name, "send"))
        send_one(a);
    else if (!strcmp(name, "senddelayed"))
        send_delayed(a);
    else if (!strcmp(name, "many"))
        send_many(a, b);
    else if (!strcmp(name, "receive"))
        receive(a);
    else if (!strcmp(name, "take"))
        take(a, 0);
    else if (!strcmp(name, "lease"))
        take(a, b);
    else if (!strcmp(name, "ack"))
        acknowledge();
    else if (!strcmp(name, "nack"))
        give_back();
    else if (!strcmp(name, "nackdelayed"))
        give_back_delayed();
    else
        fail(name);
}

int main(int count, char **arguments) {
    size_t bytes;
    int fd;
    begin();
    if (count < 7)
        fail("usage: queue FILE CLOCK SIGNAL PATTERN N OPERATION...");
    mq_queue *queue = map(arguments[1], &fd, &bytes, &liveness_file);
    close(fd);
    mq_error error;
    if (mq_queue_check_sized_file(queue, bytes, arguments[1], &h.parts, &error) != 0)
        fail(error.text);
    if (h.parts.block_count > BLOCKS_MAX)
        fail("too many blocks");
    h.clock_offset = atoll(arguments[2]);
    run(arguments + 3, perform);
    return 0;
}
