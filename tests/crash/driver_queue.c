/* The driver's operations on work queues. Message NUMBER has priority NUMBER % 3. What was achieved is said: "sent 1",
 * "took 1", "got 1" (it is gone from the queue), "lost 1" (it came back to the queue before).
 */
#include "c/queuefile.c"

#include "driver.h"

static uint32_t overtaken; /* how often others took what the next call waits for; after two times it gets a turn */

static mq_queue_waiting_call begin_wait(mq_queue_handle *h, mq_queue_role role, bool takes) {
    mq_queue_waiting_call wait = mq_queue_wait_begin(h, role, takes);
    wait.overtaken = overtaken;
    return wait;
}
#define mq_queue_wait_begin begin_wait
/* look for the dead whenever there is nothing: the steps do not depend on time */
#define mq_queue_recovery_is_due(h, now) ((void)(h), (void)(now), true)

#include "c/queue.c"

enum { BYTES = 24, KEPT_MAX = 64 };
static const double TICK = MQ_JOB_LEASE_TICK_NS / 1e9;

static msgq_queue *queue;
static msgq_queue_options options;
static struct {
    msgq_job job;
    uint64_t number;
} kept[KEPT_MAX];
static unsigned kept_count;

static int priority_of(uint64_t number) { return (int)(number % 3); }
static uint32_t now_tick(void) { return mq_job_lease_convert_to_ticks((uint64_t)msgq_time_ns()); }

/* ---- coming and going ---- */

/* slots:COUNT, of a new queue */
static void choose(uint64_t slots, uint64_t b) { options.max_messages = (uint32_t)slots; }
static void join(uint64_t a, uint64_t b) { must(msgq_queue_open(&queue, endpoint, &options)); }
static void leave(uint64_t a, uint64_t b) { msgq_queue_close(queue); }
static void sweep(uint64_t a, uint64_t b) { mqc_queue_recover(queue, mq_monotonic_ns()); }
/* pass:COUNT: so many come and go, and look for nobody. */
static void pass(uint64_t count, uint64_t b) {
    mq_process_identity self;
    mq_error error;
    must(mqc_read_own_identity(&self));
    while (count--) {
        mq_queue_handle h = queue->h;
        mq_file_lock lock;
        void *token;
        must(mqc_lock_mapped_file(&queue->endpoint, &queue->segment, true, &lock));
        must(mq_queue_join(&h, &lock, &self, count + 1, &token, &error));
        mqc_unlock_mapped_file(&lock);
        mq_participant_leave(&h.own_row->at.participant, count + 1, &token);
    }
}

/* ---- sending ---- */

static void send_in_time(uint64_t number, double timeout) {
    int status = msgq_queue_send(queue, filled(BYTES, number), BYTES, priority_of(number), timeout);
    if (status != -EAGAIN && status != -ETIMEDOUT)
        must(status);
    say(status ? "no room for" : "sent", number);
}
static void send_one(uint64_t number, uint64_t b) { send_in_time(number, 0); }
/* waitsend:MS:NUMBER */
static void wait_and_send(uint64_t ms, uint64_t number) { send_in_time(number, (double)ms / 1e3); }
static void hold(uint64_t a, uint64_t b) { mq_queue_claim_free_slot(&queue->h, MQ_NO_TICKET); }
/* senddelayed:NUMBER: the message is due at once, and becomes READY at the next recovery. */
static void send_delayed(uint64_t number, uint64_t b) {
    mq_queue_handle *h = &queue->h;
    uint64_t slot = (uint64_t)mq_queue_claim_free_slot(h, MQ_NO_TICKET);
    mq_copy_to_shared(mq_queue_get_slot_payload(h, slot), filled(BYTES, number), BYTES);
    mq_queue_commit_delayed_message(h, slot, BYTES, (uint64_t)priority_of(number), (uint64_t)msgq_time_ns(), 0,
                                    now_tick());
    say("sent", number);
}

/* ---- receiving ---- */

static bool check(int64_t size, const void *message, const msgq_message *info) {
    if (size == -EAGAIN || size == -ETIMEDOUT)
        return false;
    if (must(size) != BYTES || info->priority != priority_of(number_of(message, BYTES)))
        fail("another message");
    return true;
}
static bool receive_in_time(double timeout) {
    uint8_t message[BYTES];
    msgq_message info;
    bool found = check(msgq_queue_receive(queue, message, sizeof message, timeout, &info), message, &info);
    if (found)
        say("got", number_of(message, BYTES));
    return found;
}
/* receive:COUNT */
static void receive(uint64_t count, uint64_t b) {
    while (count-- && receive_in_time(0))
        ;
}
/* wait:MS */
static void wait_message(uint64_t ms, uint64_t b) { receive_in_time((double)ms / 1e3); }
/* take:COUNT:TICKS of a lease; 0: none */
static void take(uint64_t count, uint64_t ticks) {
    uint8_t message[BYTES];
    msgq_message info;
    for (; count; count--, kept_count++) {
        msgq_job *job = &kept[kept_count].job;
        double lease = (double)ticks * TICK;
        if (!check(msgq_queue_take(queue, message, sizeof message, 0, lease, job, &info), message, &info))
            return;
        say("took", kept[kept_count].number = number_of(message, BYTES));
    }
}
static void acknowledge(uint64_t a, uint64_t b) {
    while (kept_count) {
        int status = msgq_queue_acknowledge(queue, &kept[--kept_count].job);
        if (status != -ESTALE)
            must(status);
        say(status ? "lost" : "got", kept[kept_count].number);
    }
}
static void give_back(uint64_t a, uint64_t b) {
    while (kept_count)
        must(msgq_queue_return(queue, &kept[--kept_count].job));
}
/* As nack; the messages are due at once. */
static void give_back_delayed(uint64_t a, uint64_t b) {
    mq_queue_taken_message delivery;
    while (kept_count) {
        must(mqc_queue_job(queue, &kept[--kept_count].job, &delivery));
        mq_queue_delay_taken_message(&queue->h, &delivery, now_tick());
    }
}

/* ---- waiting ---- */

static void yield_at(uint64_t count, uint64_t b) { overtaken = (uint32_t)count; }
/* giveup:MS: sleep once, and leave as who was interrupted. */
static void give_up(uint64_t ms, uint64_t b) {
    mq_queue_handle *h = &queue->h;
    mq_queue_waiting_call wait = begin_wait(h, MQ_QUEUE_RECEIVER, true);
    mq_queue_add_notify_debt(h->own_row, 1);
    uint32_t expected = mq_queue_wait_prepare_sleep(h, &wait, wait.ticket);
    if (!mq_queue_wait_is_over(h, &wait))
        mq_futex_wait(mq_futex_word(mq_queue_get_eventcount(h, wait.role)), expected,
                      mq_monotonic_ns() + (int64_t)ms * MQ_NS_PER_MS);
    mq_queue_finish_sleep(h, wait.role);
    mq_queue_forward_wake_and_notify(h);
    mq_queue_clear_notify_debt(h->own_row, 1);
}
/* Announce a sleep in a role, after others took it so often, and never sleep or get up. */
static void lie(mq_queue_role role, uint64_t count) {
    overtaken = (uint32_t)count;
    mq_queue_waiting_call wait = begin_wait(&queue->h, role, true);
    mq_queue_wait_prepare_sleep(&queue->h, &wait, wait.ticket);
}
static void lie_as_receiver(uint64_t count, uint64_t b) { lie(MQ_QUEUE_RECEIVER, count); }
static void lie_as_watcher(uint64_t count, uint64_t b) { lie(MQ_QUEUE_WATCHER, count); }
static void lie_as_sender(uint64_t count, uint64_t b) { lie(MQ_QUEUE_SENDER, count); }
static void request_notification(uint64_t a, uint64_t b) {
    mq_queue_set_row_bit(&queue->h.parts.queue->notify_requested, queue->h.row_number);
}

const operation queue_operations[] = {
    {"slots", choose},
    {"join", join},
    {"leave", leave},
    {"sweep", sweep},
    {"pass", pass},
    {"send", send_one},
    {"waitsend", wait_and_send},
    {"hold", hold},
    {"senddelayed", send_delayed},
    {"receive", receive},
    {"wait", wait_message},
    {"take", take},
    {"ack", acknowledge},
    {"nack", give_back},
    {"nackdelayed", give_back_delayed},
    {"yield", yield_at},
    {"giveup", give_up},
    {"lie", lie_as_receiver},
    {"watch", lie_as_watcher},
    {"crave", lie_as_sender},
    {"notify", request_notification},
    {NULL, NULL},
};
