# cython: language_level=3, freethreading_compatible=False
"""Who this process is, who is alive, and whether we were forked."""

from libc.errno cimport errno
from libc.stdint cimport uint32_t
from libc.stdlib cimport getenv
from libc.string cimport memcpy, memset

from msgq.impl.core cimport (
    MQ_ALIVE, MQ_UNKNOWN, mq_life, mq_process_life, mq_read_self, mq_self, mq_thread_id, mq_thread_life, uint64_t,
)

import os

from msgq.errors import IpcError


cdef extern from "pthread.h" nogil:
    int pthread_atfork(void (*prepare)(), void (*parent)(), void (*child)())


cdef extern from "sys/random.h" nogil:
    ssize_t getrandom(void *buffer, size_t size, unsigned int flags)


cdef int fork_generation = 0
cdef mq_self _self
cdef int _self_generation = -1


cdef void _forked() noexcept nogil:
    global fork_generation
    fork_generation += 1


pthread_atfork(NULL, NULL, _forked)


cdef const mq_self *this_process() except NULL:
    """Return the identity of this process (read once) and thread."""
    global _self_generation
    if _self_generation != fork_generation:
        if mq_read_self(&_self) != 0:
            raise IpcError(f"cannot read /proc/self: {os.strerror(errno)}; msgq needs /proc to know who is alive")
        _self_generation = fork_generation
    _self.thread_id = mq_thread_id()
    return &_self


cdef uint32_t random_word() noexcept:
    cdef uint32_t word = 0
    getrandom(&word, sizeof(word), 0)
    return word


cdef object _answer(mq_life life):
    return None if life == MQ_UNKNOWN else life == MQ_ALIVE


def process_alive(uint64_t pid, uint64_t start_time, uint64_t pid_namespace):
    cdef mq_life life
    with nogil:
        life = mq_process_life(pid, start_time, pid_namespace)
    return _answer(life)


def thread_alive(uint32_t thread_id):
    return _answer(mq_thread_life(thread_id))


def environment(str name):
    # Of C, which os.environ keeps up to date: 20 times faster, and each connect asks for several.
    cdef const char *value = getenv(name.encode())
    return None if value == NULL else (<bytes> value).decode(errors="surrogateescape")


def set_name(str name):
    cdef bytes former, wanted = name.encode(errors="surrogateescape")[:sizeof(_self.name) - 1]
    this_process()
    former = <bytes> (<char *> _self.name)
    memset(_self.name, 0, sizeof(_self.name))
    memcpy(_self.name, <char *> wanted, len(wanted))
    return former.decode(errors="surrogateescape")


def identity():
    cdef const mq_self *self = this_process()
    return self.pid, self.start_time, self.pid_namespace
