"""Copies of a queue's waiting messages, without taking them: mapped read-only, without a row or a trace.

See core.pyi.
"""


cdef class QueueBrowser:
    """See core.pyi."""

    cdef QueueFile _file
    cdef mq_queue_seen_message *_seen  # one element for each slot

    def __cinit__(self, str name not None, str in_prefix not None):
        self._file = open_queue_file(name, in_prefix)
        self._allocate_seen()

    cdef int _allocate_seen(self) except -1:
        PyMem_Free(self._seen)
        self._seen = <mq_queue_seen_message *> PyMem_Calloc(
            self._file.parts.max_messages, sizeof(mq_queue_seen_message))
        if self._seen == NULL:
            raise MemoryError()
        return 0

    def __dealloc__(self):
        PyMem_Free(self._seen)

    @property
    def schema(self):
        return self._file.schema

    @property
    def events(self):
        return bool(self._file.parts.events)

    @property
    def sent(self):
        sent = mq_queue_sum_sent_counts(self._file.parts.queue)
        self._file.check_truncation()
        return sent

    def messages(self, limit=None):
        return self._copy_waiting_messages(check_limit(limit, self._file.name), False)

    def unseen(self, limit=None):
        return self._copy_waiting_messages(check_limit(limit, self._file.name), True)

    cdef list _copy_waiting_messages(self, uint64_t max_count, bint only_new):
        """Return waiting messages, the best first. `only_new`: only messages that were not returned before."""
        from msgq.common.stats.workqueue import QueueMessage  # imported late: few programs read statistics
        cdef mq_queue_pending_message pending
        cdef uint64_t slot
        seen = []
        for word, slot in self._list_ready_slots(only_new):
            if <uint64_t> len(seen) >= max_count:
                break
            if not mq_peek_read_slot(&self._file.parts, slot, &pending) or pending.word != word:
                continue  # another consumer has taken the message
            data = PyBytes_FromStringAndSize(NULL, pending.length)
            if not mq_peek_copy_payload(&self._file.parts, &pending, <uint8_t *> PyBytes_AS_STRING(data)):
                continue
            if only_new:
                mq_peek_mark_message_seen(self._seen, &pending)
            number = mq_queue_compute_message_number(word, slot)
            seen.append(QueueMessage(mq_slot_state_get_priority(pending.word), number, pending.deliveries,
                                     pending.sent_time, pending.origin_time,
                                     data))
        self._file.check_truncation()
        return seen

    cdef list _list_ready_slots(self, bint only_new):
        """Return word and slot of each waiting message, the best first. `only_new`: only new messages."""
        cdef mq_queue_pending_message pending
        cdef uint64_t slot
        slots = []
        if self._file.adopt_sizes():
            self._allocate_seen()
        for slot in range(self._file.parts.max_messages):
            if not mq_peek_read_slot(&self._file.parts, slot, &pending):
                continue
            if not (only_new and mq_peek_message_was_seen(self._seen, &pending)):
                slots.append((pending.word, slot))
        slots.sort(key=lambda pair: (-pair[0], pair[1]))
        return slots


def queue_messages(str name, str in_prefix, limit=None):
    return QueueBrowser(name, in_prefix).messages(limit)
