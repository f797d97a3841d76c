/* Work queues: wait, send, receive, take. The code follows impl/workqueue/handle.pxi, queue.pxi and job.pxi step by
 * step. Compile as C11. */
#define _GNU_SOURCE
#include "c/poll.h"
#include "c/queuefile.h"

static const double MQC_LEASE_MAX_S = 2147483; /* maximum lease or delay: 24 days, the maximum of Python's timeouts */

/* ---- wait ---- */

static bool mqc_queue_is_readable(void *reader) {
    msgq_queue *q = reader;
    if (mqc_check_truncation(&q->endpoint, &q->segment) != 0)
        return true; /* the caller checks again and returns the error */
    /* a wait for a message that learns of a delay must compute the length of its sleep again */
    return mq_queue_wait_is_over(&q->h, &q->wait) ||
           (q->wait.role != MQ_QUEUE_SENDER && mq_queue_delays_changed(&q->h));
}
static uint32_t mqc_queue_prepare_wait(const void *reader, mq_u32 *word) {
    msgq_queue *q = (msgq_queue *)(uintptr_t)reader;
    (void)word;
    return mq_queue_wait_prepare_sleep(&q->h, &q->wait, q->wait.ticket);
}
static void mqc_queue_end_wait(void *reader) {
    msgq_queue *q = reader;
    mq_queue_finish_sleep(&q->h, q->wait.role);
}

/* Recover slots if a recovery is due. Search for due messages if a message got a delay. Returns true after either. */
static bool mqc_queue_recover_if_due(msgq_queue *q, int64_t now) {
    if (mq_queue_recovery_is_due(&q->h, now)) {
        mqc_queue_recover(q, now);
        return true;
    }
    if (!mq_queue_delays_changed(&q->h))
        return false;
    q->lease_ends_ns = now + mq_queue_reclaim_slots(&q->h, now);
    q->h.saw_owned_slots = true; /* the next recovery comes soon enough for the due time */
    mqc_event_publisher_flush(&q->event_publisher);
    return true;
}

/* Return the longest sleep in nanoseconds. If a recovery is due, recover first. */
static int64_t mqc_queue_max_sleep_ns(void *reader, int64_t slept_ns) {
    msgq_queue *q = reader;
    int64_t now = mq_monotonic_ns();
    (void)slept_ns;
    /* a long sleep ends up to a quarter early (mqc_vary_sleep_ns). Recover then, and not after a sleep for the rest */
    if (!q->h.saw_owned_slots && mq_queue_recovery_is_due(&q->h, now + MQ_QUEUE_RECOVER_NS / 4))
        mqc_queue_recover(q, now);
    else if (!mqc_queue_recover_if_due(q, now) && q->h.saw_owned_slots)
        return MQ_QUEUE_RECOVER_BUSY_NS; /* after this sleep a recovery is due, which reclaims expired leases */
    int64_t left = q->lease_ends_ns - now;
    left = left > MQ_QUEUE_RECOVER_BUSY_NS ? left : MQ_QUEUE_RECOVER_BUSY_NS;
    return mq_queue_wait_limit_sleep_ns(&q->h, &q->wait, left < MQ_QUEUE_RECOVER_NS ? left : MQ_QUEUE_RECOVER_NS);
}

static mqc_waiter mqc_queue_waiter(msgq_queue *q) {
    return (mqc_waiter){.is_readable = mqc_queue_is_readable,
                        .prepare_wait = mqc_queue_prepare_wait,
                        .end_wait = mqc_queue_end_wait,
                        .max_sleep_ns = mqc_queue_max_sleep_ns,
                        .word = mq_queue_get_eventcount(&q->h, q->wait.role),
                        .reader = q,
                        /* A spin requests no handoff. Therefore a call that other handles overtook too often does not
                         * spin. */
                        .spin_ns = q->wait.overtaken < MQ_QUEUE_OVERTAKEN_MAX ? q->endpoint.spin_ns : 0};
}

/* Returns 1 if there may be a message or a free slot, 0 at the deadline, or an error. */
static int mqc_queue_sleep(msgq_queue *q, int64_t deadline) {
    mqc_waiter waiter = mqc_queue_waiter(q);
    if (deadline >= 0 && mq_monotonic_ns() >= deadline)
        return 0; /* the timeout applies even if other handles take every message first */
    return mqc_wait_until_readable(&waiter, 1, deadline);
}

int mqc_queue_poll(msgq_queue *q, mqc_waiter *waiter) {
    int status = mqc_check_process(&q->endpoint, q->generation);
    if (!status && mq_unlikely(!q->h.parts.max_messages))
        status = mqc_queue_obtain_slots(q, false);
    if (status)
        return status;
    if (mq_queue_search_message(&q->h) ||
        (mqc_queue_recover_if_due(q, mq_monotonic_ns()) && mq_queue_search_message(&q->h)))
        return 1;
    if (q->wait.role != MQ_QUEUE_WATCHER) /* otherwise the ticket of the previous poll is still valid */
        q->wait = mq_queue_wait_begin(&q->h, MQ_QUEUE_WATCHER, false);
    *waiter = mqc_queue_waiter(q);
    return mqc_check_truncation(&q->endpoint, &q->segment);
}

/* ---- send ---- */

/* Wait until this handle claims a free slot. If the result is MQ_QUEUE_NO_SLOT, *status is the error, or 0 at the
 * timeout. */
static int64_t mqc_queue_await_room(msgq_queue *q, double timeout, int *status) {
    int64_t deadline = mqc_deadline_ns(timeout), slot = MQ_QUEUE_NO_SLOT;
    int in_time = 1;
    q->wait = mq_queue_wait_begin(&q->h, MQ_QUEUE_SENDER, true);
    while (slot == MQ_QUEUE_NO_SLOT && in_time > 0) {
        in_time = mqc_queue_sleep(q, deadline);
        *status = in_time < 0 ? in_time : mqc_check_truncation(&q->endpoint, &q->segment);
        if (*status) {
            mq_queue_forward_sender_wake(&q->h); /* this handle may have consumed another handle's wake */
            break;
        }
        slot = mq_queue_claim_free_slot(&q->h, q->wait.ticket);
        q->h.saw_owned_slots = true;
        if (slot == MQ_QUEUE_NO_SLOT)
            mq_queue_wait_count_overtake(&q->wait);
    }
    mq_queue_wait_end(&q->h, &q->wait);
    return slot;
}

static int64_t mqc_queue_find_room(msgq_queue *q, double timeout, int *status) {
    int64_t slot = mq_queue_claim_free_slot(&q->h, MQ_NO_TICKET), now;
    if (mq_likely(slot != MQ_QUEUE_NO_SLOT) || (*status = mqc_check_truncation(&q->endpoint, &q->segment)))
        return slot;
    q->h.saw_owned_slots = true; /* other handles may own slots, so recovery is due more often */
    now = mq_monotonic_ns();
    if (mq_queue_recovery_is_due(&q->h, now)) {
        mqc_queue_recover(q, now);
        slot = mq_queue_claim_free_slot(&q->h, MQ_NO_TICKET);
    }
    if (slot == MQ_QUEUE_NO_SLOT && timeout != 0)
        slot = mqc_queue_await_room(q, timeout, status);
    return slot;
}

/* Return the error of a full queue. */
static int mqc_queue_refused_error(msgq_queue *q, size_t size, int priority, double timeout) {
    mq_queue_add_to_counter(&q->h.own_row->counts.refused, 1);
    if (mqc_queue_has_events(&q->h))
        mqc_event_publisher_publish_refused(&q->event_publisher, (uint64_t)priority, size, msgq_origin());
    return mqc_endpoint_error(&q->endpoint, timeout == 0 ? EAGAIN : ETIMEDOUT,
                              "holds %llu messages, its limit, including jobs that "
                              "are not acknowledged; nothing was sent",
                              (unsigned long long)q->h.parts.max_messages);
}

/* Return the tick at which a delay in seconds is over, counted from a time of the host's clock. */
static uint32_t mqc_queue_due_tick(int64_t host_time_ns, double delay) {
    return mq_job_lease_end_tick(host_time_ns + (int64_t)(delay * MQ_NS_PER_S));
}

static int mqc_queue_check_delay(msgq_queue *q, double delay) {
    if (delay >= 0 && delay <= MQC_LEASE_MAX_S)
        return 0;
    return mqc_endpoint_error(&q->endpoint, EINVAL, "delay is %g s; give 0 to %.0f s", delay, MQC_LEASE_MAX_S);
}

/* Make the filled slot READY, or DELAYED, and wake a receiver. Returns an error if the file was truncated. */
static int mqc_queue_commit(msgq_queue *q, const void *data, size_t size, uint64_t slot, int priority, double delay) {
    mq_queue_handle *h = &q->h;
    int64_t sent_time = mq_monotonic_ns() + h->clock_offset, origin = msgq_origin();
    uint64_t key =
        delay > 0 ? mq_queue_commit_delayed_message(h, slot, size, (uint64_t)priority, (uint64_t)sent_time,
                                                    (uint64_t)origin, mqc_queue_due_tick(sent_time, delay))
                  : mq_queue_commit_message(h, slot, size, (uint64_t)priority, (uint64_t)sent_time, (uint64_t)origin);
    /* the message was copied before the check, so a truncated page has already faulted */
    int status = mqc_check_truncation(&q->endpoint, &q->segment);
    if (mqc_queue_has_events(h) && !status)
        mqc_event_publisher_publish_sent(&q->event_publisher, key, slot, data, size, sent_time, origin);
    if (!(delay > 0))
        mq_queue_wake_receivers(h->parts.queue, 1);
    return status;
}

int msgq_queue_send(msgq_queue *queue, const void *data, size_t size, int priority, double timeout) {
    return msgq_queue_send_delayed(queue, data, size, priority, timeout, 0);
}

int msgq_queue_send_delayed(msgq_queue *queue, const void *data, size_t size, int priority, double timeout,
                            double delay) {
    int status = mqc_check_pointers(queue, data, size);
    if (mq_unlikely(status))
        return status;
    mq_queue_handle *h = &queue->h;
    data = data ? data : mqc_no_bytes;
    status = mqc_check_process(&queue->endpoint, queue->generation);
    status = status ? status : mqc_queue_check_delay(queue, delay);
    if (!status && mq_unlikely(!h->parts.max_messages))
        status = mqc_queue_obtain_slots(queue, true);
    if (mq_unlikely(status))
        return status;
    if (priority < 0 || priority > MQ_QUEUE_PRIORITY_MAX)
        return mqc_endpoint_error(&queue->endpoint, EINVAL, "priority is %d; give 0 to %d", priority,
                                  MQ_QUEUE_PRIORITY_MAX);
    if (size > h->parts.max_message_size)
        return mqc_endpoint_error(&queue->endpoint, EMSGSIZE,
                                  "a message of %zu bytes does not fit: at most %llu (max_message_size)", size,
                                  (unsigned long long)h->parts.max_message_size);
    if (mqc_queue_has_events(&queue->h))
        mqc_event_publisher_open(&queue->event_publisher, true);
    int64_t slot = mqc_queue_find_room(queue, timeout, &status);
    if (slot == MQ_QUEUE_NO_SLOT)
        return status ? status : mqc_queue_refused_error(queue, size, priority, timeout);
    mq_copy_to_shared(mq_queue_get_slot_payload(h, (uint64_t)slot), data, size);
    return mqc_queue_commit(queue, data, size, (uint64_t)slot, priority, delay);
}

/* ---- receive ---- */

/* Take the next message. Returns 1 with the message, 0 if the queue is empty, or a negative error. */
static int mqc_queue_try_take(msgq_queue *q, uint64_t ticket, mq_queue_taken_message *delivery) {
    /* this clock is at most 4 ms behind CLOCK_MONOTONIC, and reading this clock takes 20 ns less */
    int64_t now = mq_read_clock_ns(CLOCK_MONOTONIC_COARSE);
    if (mqc_queue_has_events(&q->h))
        mqc_event_publisher_open_to_take(&q->event_publisher);
    int error = mq_unlikely(!q->h.parts.max_messages) ? mqc_queue_obtain_slots(q, false) : 0;
    if (error)
        return error;
    if (mq_queue_recovery_is_due(&q->h, now))
        mqc_queue_recover(q, now);
    mq_queue_status status = mq_queue_take_message(&q->h, ticket, delivery);
    if (status == MQ_QUEUE_EMPTY && mqc_queue_recover_if_due(q, now))
        status = mq_queue_take_message(&q->h, ticket, delivery);
    if (mq_likely(status == MQ_QUEUE_OK))
        return 1;
    int cut = mqc_check_truncation(&q->endpoint, &q->segment);
    if (cut || status == MQ_QUEUE_EMPTY)
        return cut;
    if (!delivery->word)
        return mqc_endpoint_error(&q->endpoint, EPROTO,
                                  "has slots that never stop changing: another program writes the file");
    if (mq_queue_free_taken_slot(&q->h, delivery) && mqc_queue_has_events(&q->h))
        mqc_event_publisher_publish_delivery(&q->event_publisher, &q->h, MQ_QUEUE_EVENT_RECEIVED, delivery);
    return mqc_endpoint_error(&q->endpoint, EPROTO,
                              "has a message of %llu bytes, above its limit: another program wrote "
                              "there",
                              (unsigned long long)delivery->length);
}

/* Wait for a message, and take the message. Returns 1 with the message, 0 at the timeout, or a negative error. */
static int mqc_queue_await(msgq_queue *q, mq_queue_taken_message *delivery, double timeout) {
    int64_t deadline = mqc_deadline_ns(timeout);
    int found = 0, in_time = 1;
    q->wait = mq_queue_wait_begin(&q->h, MQ_QUEUE_RECEIVER, true);
    while (!found && in_time) {
        /* during the wait, senders rely on this handle to notify other processes */
        mq_queue_add_notify_debt(q->h.own_row, 1);
        in_time = mqc_queue_sleep(q, deadline);
        found = in_time < 0 ? in_time : mqc_queue_try_take(q, q->wait.ticket, delivery);
        if (found > 0)
            mq_queue_notify_if_not_empty(&q->h.parts);
        if (found < 0)
            mq_queue_forward_wake_and_notify(&q->h); /* this handle may have consumed another handle's wake */
        mq_queue_clear_notify_debt(q->h.own_row, 1);
        if (!found) {
            /* a cache entry is wrong if another program wrote the words of the queue */
            mq_queue_invalidate_all_caches(&q->h);
            mq_queue_wait_count_overtake(&q->wait);
        }
    }
    mq_queue_wait_end(&q->h, &q->wait);
    return found;
}

/* Take a message, and copy the payload. Returns 0 or a negative error. */
static int mqc_queue_receive_message(msgq_queue *q, void *buffer, size_t buffer_bytes, double timeout,
                                     mq_queue_taken_message *delivery, msgq_message *info) {
    int found = mqc_check_process(&q->endpoint, q->generation);
    buffer = buffer ? buffer : mqc_no_bytes;
    found = found ? found : mqc_queue_try_take(q, MQ_NO_TICKET, delivery);
    if (found == 0 && timeout != 0)
        found = mqc_queue_await(q, delivery, timeout);
    if (found == 0)
        return mqc_endpoint_error(&q->endpoint, timeout == 0 ? EAGAIN : ETIMEDOUT, "no message available");
    if (found < 0)
        return found;
    if (info)
        *info = (msgq_message){.size = delivery->length,
                               .publish_time = (int64_t)delivery->sent_time,
                               .origin_time = (int64_t)delivery->origin_time,
                               .deliveries = delivery->deliveries,
                               .priority = (int)mq_slot_state_get_priority(delivery->key)};
    if (delivery->length > buffer_bytes) {
        mq_queue_put_back_message(&q->h, delivery);
        mqc_event_publisher_flush(&q->event_publisher);
        return mqc_endpoint_error(&q->endpoint, EMSGSIZE,
                                  "message has %llu bytes, but the buffer has %zu; the message stays in the queue",
                                  (unsigned long long)delivery->length, buffer_bytes);
    }
    mq_copy_from_shared(buffer, mq_queue_get_slot_payload(&q->h, delivery->slot), delivery->length);
    return mqc_check_truncation(&q->endpoint, &q->segment);
}

int64_t msgq_queue_receive(msgq_queue *queue, void *buffer, size_t buffer_bytes, double timeout, msgq_message *info) {
    mq_queue_taken_message delivery;
    int status = mqc_check_pointers(queue, buffer, buffer_bytes);
    if (mq_unlikely(status))
        return status;
    do
        status = mqc_queue_receive_message(queue, buffer, buffer_bytes, timeout, &delivery, info);
    /* Repeat if another process reclaimed the message, because the message then has another consumer. */
    while (!status && !mq_queue_free_taken_slot(&queue->h, &delivery));
    if (status)
        return status;
    if (mqc_queue_has_events(&queue->h))
        mqc_event_publisher_publish_delivery(&queue->event_publisher, &queue->h, MQ_QUEUE_EVENT_RECEIVED, &delivery);
    return (int64_t)delivery.length;
}

int64_t msgq_queue_take(msgq_queue *queue, void *buffer, size_t buffer_bytes, double timeout, double lease,
                        msgq_job *job, msgq_message *info) {
    mq_queue_taken_message delivery;
    int status = mqc_check_pointers(queue, buffer, buffer_bytes);
    if (!status)
        status = mqc_check_pointers(queue, job, sizeof *job);
    if (mq_unlikely(status))
        return status;
    *job = (msgq_job){0};
    if (!(lease >= 0 && lease <= MQC_LEASE_MAX_S))
        return mqc_endpoint_error(&queue->endpoint, EINVAL, "lease is %g s; give 0 for none, or at most %.0f s", lease,
                                  MQC_LEASE_MAX_S);
    status = mqc_queue_receive_message(queue, buffer, buffer_bytes, timeout, &delivery, info);
    if (status)
        return status;
    if (mqc_queue_has_events(&queue->h))
        mqc_event_publisher_publish_delivery(&queue->event_publisher, &queue->h, MQ_QUEUE_EVENT_TAKEN, &delivery);
    if (lease > 0) {
        int64_t until = mq_monotonic_ns() + (int64_t)(lease * MQ_NS_PER_S);
        int64_t end = mq_queue_start_job_lease(&queue->h, &delivery, until);
        queue->lease_ends_ns = end < queue->lease_ends_ns ? end : queue->lease_ends_ns;
    }
    *job = (msgq_job){delivery.slot,       delivery.key,       delivery.word,        delivery.length,
                      delivery.deliveries, delivery.sent_time, delivery.origin_time, delivery.taken_time};
    return (int64_t)delivery.length;
}

/* Convert a job to its taken message. Return an error if the job is finished. A later exchange checks whether the slot
 * still has the job's word. */
static int mqc_queue_job(msgq_queue *q, msgq_job *job, mq_queue_taken_message *delivery) {
    int status = mqc_check_pointers(q, job, sizeof *job);
    if (status)
        return status;
    status = mqc_check_process(&q->endpoint, q->generation);
    if (!status && (!job->word || job->slot >= q->h.parts.max_messages))
        status = mqc_endpoint_error(&q->endpoint, EINVAL, "job was already acknowledged or returned, or never taken");
    *delivery = (mq_queue_taken_message){job->slot,       job->key,       job->word,        job->length,
                                         job->deliveries, job->sent_time, job->origin_time, job->taken_time};
    if (status)
        return status;
    job->word = 0;
    if (mqc_queue_has_events(&q->h))
        mqc_event_publisher_open(&q->event_publisher, false);
    return 0;
}

int msgq_queue_acknowledge(msgq_queue *queue, msgq_job *job) {
    mq_queue_taken_message delivery;
    int status = mqc_queue_job(queue, job, &delivery);
    if (status)
        return status;
    if (mq_queue_free_taken_slot(&queue->h, &delivery)) {
        if (mqc_queue_has_events(&queue->h))
            mqc_event_publisher_publish_delivery(&queue->event_publisher, &queue->h, MQ_QUEUE_EVENT_ACKNOWLEDGED,
                                                 &delivery);
        return 0;
    }
    status = mqc_check_truncation(&queue->endpoint, &queue->segment);
    return status
               ? status
               : mqc_endpoint_error(&queue->endpoint, ESTALE, "lease expired, and the message returned to the queue");
}

int msgq_queue_return(msgq_queue *queue, msgq_job *job) { return msgq_queue_return_delayed(queue, job, 0); }

int msgq_queue_return_delayed(msgq_queue *queue, msgq_job *job, double delay) {
    mq_queue_taken_message delivery;
    int status = mqc_check_pointers(queue, job, sizeof *job);
    status = status ? status : mqc_queue_check_delay(queue, delay);
    status = status ? status : mqc_queue_job(queue, job, &delivery);
    if (status)
        return status;
    /* these calls have no effect if the lease of the job has already ended */
    if (delay > 0)
        mq_queue_delay_taken_message(&queue->h, &delivery,
                                     mqc_queue_due_tick(mq_monotonic_ns() + queue->h.clock_offset, delay));
    else
        mq_queue_requeue_message(&queue->h, delivery.slot, delivery.word);
    mqc_event_publisher_flush(&queue->event_publisher);
    return 0;
}

int64_t msgq_queue_waiting(msgq_queue *queue) {
    int64_t count = 0;
    int status = mqc_check_pointers(queue, NULL, 0);
    status = status ? status : mqc_check_process(&queue->endpoint, queue->generation);
    if (!status && !queue->h.parts.max_messages)
        status = mqc_queue_obtain_slots(queue, false);
    for (uint64_t i = 0; !status && i < queue->h.parts.max_messages; i++) /* relaxed: only counted */
        count += mq_slot_state_is_ready(mq_load_relaxed_u64(&queue->h.parts.slot_states[i]));
    return status ? status : count;
}
