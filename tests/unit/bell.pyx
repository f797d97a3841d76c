"""A reader of another kind, as somebody would write it on core.pxd: it hears how often it was rung."""

cimport cython
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

from msgq.impl.base.core cimport (
    CLOSED, WAIT_FOREVER, mq_eventcount_has_waiters_mp, mq_eventcount_notify_mp, mq_eventcount_prepare_wait_mp,
    mq_poll_ops, mq_poll_prepare_wait_mp, mq_u32, wait_until_ready, Waitable,
)
from msgq.impl.base.process cimport fork_generation


cdef extern from "base/atomics.h" nogil:
    uint32_t mq_load_acquire_u32(const mq_u32 *word)
    uint32_t mq_fetch_add_u32(mq_u32 *word, uint32_t n)


cdef struct Words:
    mq_u32 rings
    mq_u32 heard


cdef int unheard(const void *reader) noexcept nogil:
    cdef const Words *words = <const Words *> reader
    return mq_load_acquire_u32(&words.rings) != mq_load_acquire_u32(&words.heard)


cdef class Tower:
    """What bells share: the word that they sleep on."""
    cdef mq_u32 *eventcount

    def __cinit__(self):
        self.eventcount = <mq_u32 *> calloc(1, sizeof(mq_u32))

    def __dealloc__(self):
        free(self.eventcount)


@cython.no_gc_clear
cdef class Bell(Waitable):
    cdef Tower _tower
    cdef Words *_words
    cdef readonly int naps          # number of its sleeps
    cdef readonly bint given_back

    def __cinit__(self, Tower tower not None, str name):
        self._tower, self._endpoint = tower, name
        self._words = <Words *> calloc(1, sizeof(Words))
        self._fork_generation = self._use_state = fork_generation

    def __dealloc__(self):
        if self._use_state != CLOSED and self._fork_generation == fork_generation:
            self._close_handle()
        free(self._words)

    def ring(self):
        mq_fetch_add_u32(&self._words.rings, 1)
        if mq_eventcount_has_waiters_mp(self._tower.eventcount):
            mq_eventcount_notify_mp(self._tower.eventcount)

    def receive(self, bint non_blocking=False):
        """The number of the next ring."""
        self._check_usable()
        while not self._is_readable():
            if non_blocking or not wait_until_ready((self,), WAIT_FOREVER):
                self._rearm_fd()
                return None
            self._check_usable()
        number = mq_fetch_add_u32(&self._words.heard, 1)
        self._rearm_fd()
        return number

    cdef bint _is_readable(self) noexcept:
        return unheard(self._words)

    cdef uint32_t _prepare_wait(self) noexcept:
        return mq_eventcount_prepare_wait_mp(self._tower.eventcount)

    cdef mq_u32 *_futex_word(self) noexcept:
        return self._tower.eventcount

    cdef int64_t _max_sleep_ns(self, int64_t slept_ns) except -2:
        self.naps += 1
        return 1000000000

    cdef mq_poll_ops _poll_ops(self) noexcept:
        return mq_poll_ops(unheard, self._words, self._tower.eventcount, mq_poll_prepare_wait_mp,
                          NULL, False, NULL)

    cdef int _release_rows(self) except -1:
        self.given_back = True
        return 0
