"""Waiting in asyncio for all backends. A socket needs only `fileno` and a receive that does not wait.

A socket's descriptor stays in the loop from the first wait on, because adding and removing it for each message would
cost more than the message does. Only the loop's thread changes a `LoopReader`, except that a close may begin elsewhere:

    state    in the loop  wait  ends by
    idle     no           None  a wait: waiting
    waiting  yes          set   a message, a time-out or a cancelled task: resting
    resting  yes          None  a wait: waiting. A message: idle, or the loop would call again at once
    closed   no           -     (the socket has closed, or waits in another loop)

The socket owns the reader, and the loop while it watches the descriptor; the reader owns neither socket nor task. In a
forked child, the socket forgets the reader, whose loop is the parent's, without a call: the epoll instance is shared.
"""

cimport cython
from posix.unistd cimport close

import asyncio
import math
import os
from asyncio import get_running_loop

from msgq.errors import ConcurrentUseError, EndpointClosedError


@cython.final
cdef class _AsyncWait:
    """A wait of a task for sockets. asyncio sees a future.

    A future of asyncio would resume its task in the next step of the loop, after one more look at all descriptors.
    `wake` resumes the task at once. Only callbacks of the loop call it, because no task runs during a callback.
    """

    cdef public bint _asyncio_future_blocking  # set in `__next__`, and cleared by the task that then waits
    cdef object _loop
    cdef object _resume  # function that resumes the task; None: the task does not wait, or is about to resume
    cdef object _context
    cdef object _error
    cdef double _until  # time of the loop at which the wait ends

    def __await__(self):
        return self

    def __next__(self):
        if self._context is not None:
            raise StopIteration
        self._asyncio_future_blocking = True
        return self

    def get_loop(self):
        return self._loop

    def add_done_callback(self, resume, *, context):
        self._resume, self._context = resume, context

    def result(self):
        if self._error is not None:
            raise self._error

    def cancel(self, msg=None):
        return self.fail(asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg))

    cdef int wake(self) except -1:
        """Resume the task, because a message may be available, or the time is over."""
        resume, self._resume = self._resume, None
        if resume is not None:
            self._context.run(resume, self)
        return 0

    cdef bint fail(self, error) except -1:
        """Resume the task by an error, in the loop's next step. Return False if the wait has ended."""
        resume, self._resume = self._resume, None
        if resume is None:
            return False
        self._error = error
        self._loop.call_soon(resume, self, context=self._context)
        return True


@cython.final
cdef class LoopReader:
    """A socket's descriptor in an event loop. See the top of this file."""

    cdef object _loop
    cdef int _fd
    cdef bint _is_watched
    cdef str _closed_endpoint  # name for the error of a wait; None: the reader is not closed
    cdef _AsyncWait _wait
    cdef object _timer  # timer of the loop; None: no timer
    cdef double _timer_s  # time of `_timer` in seconds of the loop

    def __cinit__(self, loop, socket):
        self._fd = -1
        self._loop = loop
        # A duplicate, because the loop forgets its descriptor later than the socket closes the original.
        self._fd = os.dup(socket.fileno())

    def __dealloc__(self):
        self._close_descriptor()

    cdef int begin_wait(self, _AsyncWait wait) except -1:
        if not self._is_watched:
            self._loop.add_reader(self._fd, self._on_readable)
            self._is_watched = True
        self._wait = wait
        return 0

    def _on_readable(self):
        if self._closed_endpoint is not None:  # uvloop calls this before the functions of other threads
            self._end()
        elif self._wait is not None:
            self._wait.wake()
        else:
            self._forget_descriptor()

    cdef int limit_wait(self, double until) except -1:
        """End the wait at a time of the loop.

        The timer of an earlier wait stays, because a timer costs as much as a message: it starts the next one.
        """
        self._wait._until = until
        if self._timer is None or until < self._timer_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_s = self._loop.call_at(until, self._on_timer), until
        return 0

    def _on_timer(self):
        self._timer = None
        if self._wait is None or self._wait._until == math.inf:
            return
        if self._loop.time() < self._wait._until:
            self.limit_wait(self._wait._until)
        else:
            self._wait.wake()

    def close(self, str endpoint not None):
        """Leave the loop, from any thread. The task that waits gets an error."""
        self._closed_endpoint = endpoint
        try:
            self._loop.call_soon_threadsafe(self._end)
        except RuntimeError:  # the loop is closed, and has forgotten the descriptor
            self._close_descriptor()

    def _end(self):
        self._forget_descriptor()
        self._close_descriptor()
        if self._timer is not None:
            self._timer.cancel()
        if self._wait is not None:
            self._wait.fail(EndpointClosedError("was closed during the wait", self._closed_endpoint))

    cdef int _forget_descriptor(self) except -1:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._fd)
        return 0

    cdef void _close_descriptor(self) noexcept:
        if self._fd >= 0:
            close(self._fd)
        self._fd = -1


async def receive_async(socket, at_once=True):
    while (message := socket.receive(at_once)) is None:
        await wait_readable_async([socket])
    # No await between taking the message and returning it: a task that is cancelled has not taken one.
    return message


cdef dict _waiting_receives = {}  # receives of this process by queue, in the order in which they began


async def receive_in_turn(queue):
    if (message := queue.receive(0.0)) is not None:
        return message
    identity, waiting = queue.identity, object()
    receives = _waiting_receives.setdefault(identity, [])
    receives.append(waiting)
    try:
        while True:
            await wait_readable_async([queue])
            if receives[0] is not waiting:
                await asyncio.sleep(0)  # the loop has woken those before this one in the same step
            if (message := queue.receive(0.0)) is not None:
                return message
    finally:
        receives.remove(waiting)
        if not receives:
            _waiting_receives.pop(identity, None)


async def poll_async(poller, timeout):
    sockets = poller._registered_sockets()
    loop = get_running_loop()
    until = math.inf if timeout < 0 else loop.time() + timeout / 1000
    has_readers = sockets or poller._descriptors
    while not (ready := poller.poll(0)) and has_readers and not poller._last_poll_was_step and loop.time() < until:
        if poller._descriptors:
            await _wait_with_descriptors(poller, sockets, until)
        else:
            await wait_readable_async(sockets, until)
    return ready


async def _wait_with_descriptors(poller, sockets, until):
    """Wait for the sockets and the descriptors of a poller.

    The descriptors are in an epoll instance, because the loop has one reader for each descriptor: the program's own.
    """
    loop = get_running_loop()
    event = loop.create_future()
    waits = [event]
    with poller._watch_descriptors() as watched:
        loop.add_reader(watched.fileno(), lambda: event.done() or event.set_result(None))
        if sockets:
            waits.append(loop.create_task(wait_readable_async(sockets)))
        try:
            seconds = None if until == math.inf else max(0, until - loop.time())
            done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                wait.result()  # raises the error of a socket
        finally:
            loop.remove_reader(watched.fileno())
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


async def wait_readable_async(sockets, until=math.inf):
    cdef _AsyncWait wait = _AsyncWait.__new__(_AsyncWait)
    cdef LoopReader reader
    cdef list readers = []
    wait._loop = get_running_loop()
    wait._until = math.inf
    try:
        for socket in sockets:
            reader = _find_reader(socket, wait._loop)
            reader.begin_wait(wait)
            readers.append(reader)
        if until != math.inf:
            (<LoopReader> readers[0]).limit_wait(until)
        await wait
    finally:
        for reader in readers:
            reader._wait = None


cdef LoopReader _find_reader(socket, loop):
    """Return the socket's reader in the loop."""
    cdef LoopReader created, reader = socket._asyncio_reader
    if reader is not None:
        if reader._wait is not None and not reader._loop.is_closed():
            raise _shared_socket_error(socket)
        if reader._loop is loop:
            return reader
        reader.close(socket.endpoint)
    created = LoopReader(loop, socket)
    with cython.critical_section(socket):
        is_alone = socket._asyncio_reader is reader  # else a task of another thread's loop was faster
        if is_alone:
            socket._asyncio_reader = created
    if not is_alone:
        raise _shared_socket_error(socket)
    return created


cdef object _shared_socket_error(socket):
    text = "another task waits for this socket; use each socket in one task at a time"
    return ConcurrentUseError(text, socket.endpoint)
