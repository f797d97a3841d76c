"""What waits in a queue, copied without taking it: mapped read-only, without a row or a trace. See peek.pyi."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport uint8_t, uint64_t

from msgq.impl.workqueue.core cimport mq_queue, mq_queue_parts, mq_word_priority
from msgq.impl.workqueue.queuefile cimport QueueFile, queue_file

from msgq.common.stats.workqueue import QueueMessage
from msgq.impl.workqueue import options


cdef extern from "workqueue/peek.h" nogil:
    ctypedef struct mq_queue_waiting:
        uint64_t place, word, length, deliveries, sent_time, origin_time
    ctypedef struct mq_queue_known:
        pass
    bint mq_peek_look(const mq_queue_parts *parts, uint64_t place, mq_queue_waiting *it)
    bint mq_peek_copy(const mq_queue_parts *parts, const mq_queue_waiting *it, uint8_t *room)
    bint mq_peek_is_known(const mq_queue_known *known, const mq_queue_waiting *it)
    void mq_peek_remember(mq_queue_known *known, const mq_queue_waiting *it)
    uint64_t mq_peek_sent(const mq_queue *queue)


cdef extern from "workqueue/events.h" nogil:
    uint64_t mq_queue_event_number(uint64_t key, uint64_t place)


cdef class Onlooker:
    """See peek.pyi."""

    cdef QueueFile _file
    cdef mq_queue_known *_known  # a place each

    def __cinit__(self, str name not None, str in_prefix not None):
        cdef QueueFile file = queue_file(name, in_prefix, None, None)
        if not file.open(False):
            raise file.missing()
        self._known = <mq_queue_known *> PyMem_Calloc(file.parts.max_messages, sizeof(mq_queue_known))
        if self._known == NULL:
            raise MemoryError()
        self._file = file

    def __dealloc__(self):
        PyMem_Free(self._known)

    @property
    def schema(self):
        return self._file.schema

    @property
    def events(self):
        return bool(self._file.parts.events)

    @property
    def sent(self):
        sent = mq_peek_sent(self._file.parts.queue)
        self._file.check_whole()
        return sent

    def messages(self, limit=None):
        return self._messages(options.checked_limit(limit, self._file.name), False)

    def news(self, limit=None):
        return self._messages(options.checked_limit(limit, self._file.name), True)

    cdef list _messages(self, uint64_t most, bint only_new):
        """Return what waits, the best first; or of that what was not returned so before."""
        cdef mq_queue_waiting it
        cdef uint64_t place
        seen = []
        for word, place in self._listed(only_new):
            if <uint64_t> len(seen) >= most:
                break
            if not mq_peek_look(&self._file.parts, place, &it) or it.word != word:
                continue  # somebody has taken it since
            data = PyBytes_FromStringAndSize(NULL, it.length)
            if not mq_peek_copy(&self._file.parts, &it, <uint8_t *> PyBytes_AS_STRING(data)):
                continue
            if only_new:
                mq_peek_remember(self._known, &it)
            number = mq_queue_event_number(word, place)
            seen.append(QueueMessage(mq_word_priority(it.word), number, it.deliveries, it.sent_time, it.origin_time,
                                     data))
        self._file.check_whole()
        return seen

    cdef list _listed(self, bint only_new):
        """Return word and place of all that waits, the best first; or of what is not known so far."""
        cdef mq_queue_waiting it
        cdef uint64_t place
        found = []
        for place in range(self._file.parts.max_messages):
            if not mq_peek_look(&self._file.parts, place, &it):
                continue
            if not (only_new and mq_peek_is_known(self._known, &it)):
                found.append((it.word, place))
        found.sort(key=lambda pair: (-pair[0], pair[1]))
        return found


def queue_messages(str name, str in_prefix, limit=None):
    return Onlooker(name, in_prefix).messages(limit)
