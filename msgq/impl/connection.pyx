# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=python
"""What a subscriber is apart from receiving: coming, going, sleeping, event loops. Tickets are as in publisher.pyx."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport PyThread_get_thread_ident
from libc.errno cimport errno
from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memset
from posix.unistd cimport usleep

from msgq.impl.context cimport BUSY, CLOSED, Context, check_open, misuse, remember
from msgq.impl.core cimport (
    MQ_EMPTY, MQ_FUTEX_32, MQ_FUTEX_MANY, MQ_OK, MQ_RING_HEADER, mq_futex_many, mq_futex_wake_all, mq_helper_unwatch,
    mq_helper_watch, mq_is_uncut, mq_is_whole, mq_message, mq_now_ns, mq_ring_header, mq_side, mq_subscriber_adopt,
    mq_subscriber_announce_sleep, mq_subscriber_disown, mq_subscriber_futex, mq_subscriber_has_more,
    mq_subscriber_join, mq_subscriber_lacks_side, mq_subscriber_leave, mq_subscriber_next, mq_subscriber_refresh,
    mq_subscriber_refresh_survey, mq_subscriber_rejoin, mq_subscriber_reset, mq_subscriber_survey,
    mq_subscriber_survey_again, mq_subscriber_take_signals, mq_watcher_add, mq_watcher_follow, mq_watcher_quiet,
    mq_watcher_remove,
)
from msgq.impl.gate cimport Gate
from msgq.impl.liveness cimport fork_generation, random_word, this_process
from msgq.impl.segment cimport (
    Segment, Topic, await_side, find_side, grown_topic, open_topic, resized, watch_topic,
)
from msgq.impl.wake cimport sleep_on

import math
import os

from msgq import naming
from msgq.errors import CorruptSegmentError, EndpointClosedError, InvalidValueError, IpcError


cdef extern from "sched.h" nogil:
    int sched_yield()


cdef enum:
    BREATH_NS = 50000               # how long a spin holds the GIL
    # How long a sleep may last, in nanoseconds:
    UNHEARD_NS = 50000000           # stock publishers cannot be noticed (no inotify or thread to be had)
    PASSIVE_MIN_NS = 50000          # a passive subscriber must not announce that it sleeps, so it looks again and again
    PASSIVE_MAX_NS = 1000000
    # ... or, the first time, if nothing is wrong; then thrice as long each time. For two things that no futex can tell:
    # a signal that comes just before the system call, and a publisher that dies between its message and the wake-up.
    LOOK_AGAIN_NS = 1000000000


cdef int checked_timeout(timeout, str endpoint) except -2:
    if timeout != FOR_EVER and not 0 <= timeout <= INT32_MAX:
        text = f"a time-out of {timeout} ms is not possible; give 0 to {INT32_MAX}, or -1 to wait for ever"
        raise InvalidValueError(text, endpoint)
    return math.ceil(timeout)  # 0.5 is not 0, which would not wait at all


@cython.no_gc_clear  # __dealloc__ needs the mapping
cdef class Connection:
    """What a subscriber is apart from receiving: its places in a topic, its sleep. See SubSocket in subscriber.pyi."""

    def __cinit__(self):
        self._ticket = CLOSED
        self._endpoint = ""
        self._timeout_ms = FOR_EVER
        self._fd = -1

    def __dealloc__(self):
        if self._ticket != CLOSED and self._generation == fork_generation:
            self._leave()

    def __repr__(self):
        state = "closed" if self._ticket == CLOSED else f"{self._subscriber.received} messages received"
        return f"<msgq SubSocket {self._endpoint!r}, {state}>"

    @property
    def endpoint(self):
        return self._endpoint

    @property
    def closed(self):
        return self._ticket == CLOSED

    # ---- coming and going ----

    def connect(self, Context context not None, endpoint, address=b"127.0.0.1", bint conflate=False, segment_size=0, *,
                mode=None, bint passive=False, spin_us=None, trust=None):
        cdef str name = naming.endpoint_name(endpoint)
        cdef Topic topic
        check_open(context, name)
        if self._ticket != CLOSED:
            raise InvalidValueError("the socket is connected already; close it first", self._endpoint)
        if not isinstance(address, (str, bytes)):
            raise TypeError(f"an address is str or bytes, not {type(address).__name__}")
        self._endpoint = name
        self._prefix = naming.prefix()
        self._trust = trust
        self._conflate = conflate or self._conflate_wanted
        self._passive = passive
        self._spin_us = naming.spin_us(spin_us, name)
        memset(&self._subscriber, 0, sizeof(self._subscriber))
        self._watched = self._watch_failed = self._closing = self._let_through = False
        self._gate = Gate(name, self._prefix, naming.fake_prefix()) if naming.fake_events() else None
        self._generation = fork_generation
        self._occupy()
        try:
            with naming.chosen(trust=trust):
                if passive:
                    topic = watch_topic(name, self._prefix)
                else:
                    topic = open_topic(name, self._prefix, segment_size, mode)
                self._join(topic)
            self._ticket = self._generation
        finally:
            if self._ticket == BUSY:
                self._ticket = CLOSED
        self._end_if_closing()
        remember(self)

    def _close_at_exit(self):
        if self._ticket == fork_generation:
            self.close()
        elif self._ticket == BUSY and self._generation == fork_generation and self._subscriber.entry != NULL:
            mq_subscriber_leave(&self._subscriber)  # and let the daemon thread sleep that waits with it

    cdef void _occupy(self) noexcept:
        """Keep other threads, and signal handlers, out."""
        self._ticket, self._user = BUSY, PyThread_get_thread_ident()

    cdef int _end_if_closing(self) except -1:
        """Do what a signal handler asked for while the socket was occupied."""
        if self._closing:
            self._leave()
            raise EndpointClosedError("was closed while it connected", self._endpoint)
        return 0

    cdef int _join(self, Topic topic) except -1:
        """Subscribe from now on; the topic is locked, unless we are passive."""
        try:
            if topic.side is None:
                await_side(topic, self._prefix)
            self._map(topic)
            if mq_subscriber_join(&self._subscriber, this_process(), random_word()) != MQ_OK:
                mq_subscriber_leave(&self._subscriber)
                if not mq_is_whole(&topic.whole):
                    raise resized(self._endpoint, topic.ring)
                text = "its write pointer makes no sense: foreign bytes. Remove it when nobody uses it (msgq clean)"
                raise CorruptSegmentError(text, self._endpoint, topic.ring.path)
        finally:
            topic.unlock()
        return 0

    cdef int _map(self, Topic topic) except -1:
        self._ring, self._side = topic.ring, topic.side
        self._subscriber.ring = <mq_ring_header *> topic.ring.address
        self._subscriber.side = NULL if topic.side is None else <mq_side *> topic.side.address
        self._subscriber.roll = NULL if topic.side is None else &topic.side.roll
        self._subscriber.data = topic.ring.address + MQ_RING_HEADER
        self._subscriber.data_bytes = topic.data_bytes
        self._subscriber.whole = topic.whole
        self._subscriber.path, self._subscriber.inode = topic.ring.file, topic.ring.inode
        self._subscriber.passive = self._passive
        return 0

    cdef bint _follow(self) except -1:
        """The ring makes no sense: map it anew when it has grown. False: it has not; SegmentSizeError: it shrank."""
        cdef Segment former = self._ring  # mapped until nobody looks at it
        cdef bint whole = mq_is_whole(&self._subscriber.whole), uncut = mq_is_uncut(&self._subscriber.whole)
        cdef Topic topic
        with naming.chosen(trust=self._trust):
            topic = grown_topic(self._endpoint, former, not self._passive)
        if self._ticket != fork_generation:  # a signal handler may have closed the socket meanwhile
            self._refuse()
        if topic is None:
            if not whole:
                raise resized(self._endpoint, former)
            mq_subscriber_survey(&self._subscriber)  # it may have grown for a moment
            return False
        topic.side = self._side
        mq_helper_unwatch(self._subscriber.ring)
        self._watched = False
        self._map(topic)
        self._subscriber.outgrown = False
        mq_subscriber_survey(&self._subscriber)  # at once: nothing may point into the former mapping
        if self._fd >= 0:
            mq_watcher_follow(&self._subscriber, self._fd)
        if uncut:
            mq_subscriber_survey_again(&self._subscriber)
        else:  # what is at the cursor may be what somebody cut off
            mq_subscriber_reset(&self._subscriber)
        mq_subscriber_refresh(&self._subscriber)
        return True

    def close(self):
        if self._ticket == BUSY and self._generation == fork_generation:
            self._closing = True
            while self._ticket == BUSY and self._user != PyThread_get_thread_ident():
                mq_futex_wake_all(mq_subscriber_futex(&self._subscriber))
                if self._gate is not None:
                    self._gate.wake()
                with nogil:
                    usleep(200)
                PyErr_CheckSignals()
            if self._ticket == BUSY:
                return  # in a signal handler, on top of our own sleep: that will see _closing
        if self._ticket != CLOSED:
            if self._generation == fork_generation:
                self._leave()
            self._ticket = CLOSED
            self._fd, self._waiting = -1, None  # in a forked child they were the parent's

    cdef int _leave(self) except -1:
        if self._fd >= 0:
            mq_watcher_remove(self._fd)
            self._fd = -1
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting(self._endpoint)
        mq_helper_unwatch(self._subscriber.ring)
        mq_subscriber_leave(&self._subscriber)
        self._ticket = CLOSED
        return 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    cdef int _refuse(self) except -1:
        """Called when the ticket is not valid: raise, or repair after a fork."""
        if self._ticket != CLOSED and self._generation != fork_generation:
            return self._rejoin()
        raise misuse(self._ticket, self._endpoint)

    cdef int _look_for_side(self) except -1:
        """There was no side segment: has a publisher of ours come since?"""
        if not mq_subscriber_lacks_side(&self._subscriber):
            return 0
        with naming.chosen(trust=self._trust):
            side = find_side(self._endpoint, self._prefix, self._ring)
        if self._ticket != fork_generation:  # a signal handler may have closed the socket meanwhile
            self._refuse()
        if side is not None:
            self._side = side
            mq_subscriber_adopt(&self._subscriber, <mq_side *> side.address)
        return 0

    cdef int _rejoin(self) except -1:
        """In a forked child: take places of our own, and go on from the same cursor."""
        cdef Topic topic
        cdef int inherited = self._generation
        self._watched = self._watch_failed = self._closing = False
        self._fd, self._waiting = -1, None  # closed at the fork
        if self._passive:
            self._generation = self._ticket = fork_generation
            return 0
        self._generation = fork_generation
        mq_subscriber_disown(&self._subscriber)
        self._occupy()
        try:
            with naming.chosen(trust=self._trust):
                topic = open_topic(self._endpoint, self._prefix, 0, None)
            try:
                # Was it removed and made anew, or cut? Then nobody new can see us, but what we have stays good.
                if topic.ring.inode == self._ring.inode and mq_is_whole(&self._subscriber.whole):
                    self._map(topic)
                mq_subscriber_rejoin(&self._subscriber, this_process(), random_word())
            finally:
                topic.unlock()
        except BaseException:
            self._generation = self._ticket = inherited
            raise
        self._ticket = self._generation
        self._end_if_closing()
        return 0

    # ---- waiting ----

    cdef bint _pass_gate(self) except -1:
        """Wait until the controller of an event-gated run lets us through; False: it does not hold us up."""
        self._occupy()
        try:
            held_up = self._gate.enter(&self._closing)
        finally:
            self._ticket = self._generation
            if self._closing and self._generation == fork_generation:
                self._leave()
        enter(self)  # a signal handler may have closed the socket, or forked
        return held_up

    cdef bint _ready(self) except -1:
        """Whether a receive would return (or raise) at once."""
        cdef mq_message message
        enter(self)
        return mq_subscriber_next(&self._subscriber, self._conflate, &message) != MQ_EMPTY

    cdef int64_t _prepare_sleep(self, int64_t slept_ns) except -2:
        """Make sure that somebody can wake us. Returns how long we may sleep, in ns."""
        if self._passive:
            return min(max(slept_ns // 4, PASSIVE_MIN_NS), PASSIVE_MAX_NS)
        if not self._watched and not self._watch_failed:
            self._watch()
        mq_subscriber_refresh_survey(&self._subscriber)
        if not self._subscriber.announced and self._watched and self._subscriber.signal_thread != self._helper:
            mq_subscriber_take_signals(&self._subscriber, self._helper)
        if not self._subscriber.announced and self._subscriber.slot < 0:
            return PASSIVE_MAX_NS  # no slot is left, so the stock publisher does not know us
        return max(LOOK_AGAIN_NS, 2 * slept_ns) if self._watched else UNHEARD_NS

    cdef int _watch(self) except -1:
        self._helper = mq_helper_watch(self._subscriber.ring, self._subscriber.side, self._subscriber.whole,
                                       self._ring.file, self._subscriber.publisher_uid)
        self._watched = self._helper != 0
        self._watch_failed = not self._watched
        return 0

    # ---- event loops ----

    def fileno(self):
        enter(self)
        if self._fd < 0:
            self._fd = mq_watcher_add(&self._subscriber)
            if self._fd < 0:
                raise IpcError(f"cannot make a file descriptor: {os.strerror(errno)}", self._endpoint, errno)
        self._settle_fd()
        return self._fd

    cdef inline int _settle_fd(self) except -1:
        """A call that receives is over: if it left nothing, the descriptor must not be readable."""
        if self._fd >= 0 and not mq_subscriber_has_more(&self._subscriber):
            mq_watcher_quiet(&self._subscriber, self._fd, self._prepare_sleep(0))
        return 0

    def arecv(self):
        from msgq.impl import event_loop  # asyncio takes as long to import as all the rest
        return event_loop.receive(self)

    def __aiter__(self):
        return self

    def __anext__(self):
        return self.arecv()


cdef bint _any_has_more(list sockets) noexcept:
    for socket in sockets:
        if mq_subscriber_has_more(&(<Connection> socket)._subscriber):
            return True
    return False


cdef int _spin(list sockets, int64_t deadline) except -1:
    """Look again and again for as long as the most patient of the sockets wants; 1: there is something."""
    cdef int64_t now, until = 0, breath = mq_now_ns() + BREATH_NS
    for socket in sockets:
        until = max(until, (<Connection> socket)._spin_us)
    if not until:
        return 0
    until = mq_now_ns() + until * 1000
    if deadline >= 0:
        until = min(until, deadline)
    while (now := mq_now_ns()) < until:
        if _any_has_more(sockets):
            return 1
        if now > breath:
            with nogil:  # for a publisher in another thread
                sched_yield()
            PyErr_CheckSignals()
            breath = now + BREATH_NS
    return 0


cdef int64_t _prepare_sleep(list sockets, mq_futex_many *words, int64_t slept_ns) except -2:
    """Announce the sleep of all; returns for how long at most, in ns (0: there is something already)."""
    cdef Connection socket
    cdef int64_t shortest = INT64_MAX
    cdef uint32_t expected
    cdef unsigned count = 0
    for socket in sockets:
        shortest = min(shortest, socket._prepare_sleep(slept_ns))
        expected = mq_subscriber_announce_sleep(&socket._subscriber)
        if count < MQ_FUTEX_MANY:
            words[count].address = <uint64_t> <size_t> mq_subscriber_futex(&socket._subscriber)
            words[count].expected = expected
            words[count].flags = MQ_FUTEX_32
            count += 1
    for socket in sockets:
        if mq_subscriber_has_more(&socket._subscriber):
            return 0
    return shortest


cdef bint wait_ready(list sockets, int64_t deadline) except -1:
    """Sleep until one of the sockets may have something; False: the deadline (in CLOCK_MONOTONIC ns, or -1) is over."""
    cdef Connection socket
    cdef str closed = None
    if _spin(sockets, deadline):
        return True
    for socket in sockets:  # what ran since they were entered may have closed one
        if socket._ticket != fork_generation:
            raise misuse(socket._ticket, socket._endpoint)
    for socket in sockets:
        socket._occupy()
    try:
        ready = _sleep_until_ready(sockets, deadline)
    finally:
        for socket in sockets:
            socket._ticket = socket._generation
            if socket._closing and socket._generation == fork_generation:
                socket._leave()
                closed = socket._endpoint
    if closed is not None:
        raise EndpointClosedError("was closed while it was waited for", closed)
    return ready


cdef bint _sleep_until_ready(list sockets, int64_t deadline) except -1:
    """Do what wait_ready says; also return when a socket is to be closed."""
    cdef mq_futex_many words[MQ_FUTEX_MANY]
    cdef int64_t nap, until, started = mq_now_ns()
    cdef unsigned count = len(sockets)
    cdef int generation = fork_generation
    memset(words, 0, min(count, <unsigned> MQ_FUTEX_MANY) * sizeof(mq_futex_many))
    while True:
        PyErr_CheckSignals()  # before the sleep: what comes after it delays the message that ended it
        if _any_closing(sockets):
            return False
        if generation != fork_generation:
            return True  # a handler forked, and this is the child: the caller enters the sockets anew
        nap = _prepare_sleep(sockets, words, mq_now_ns() - started)
        if nap == 0:
            return True
        until = mq_now_ns() + nap
        if 0 <= deadline < until:
            until = deadline
        with nogil:
            sleep_on(words, count, until)
        if _any_has_more(sockets):
            return True
        if 0 <= deadline <= mq_now_ns():
            return False


cdef bint _any_closing(list sockets) noexcept:
    for socket in sockets:
        if (<Connection> socket)._closing:
            return True
    return False
