"""Identity of this process, locks that it holds until its end, and fork detection."""

cimport cython
from libc.errno cimport ESTALE, errno
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset, strncmp, strncpy

import os
import sys

from msgq.errors import IpcError


cdef extern from "base/atomics.h" nogil:
    void mq_copy_from_shared(void *to, const void *shared, size_t n)


cdef extern from "base/liveness_lock.h" nogil:
    ctypedef struct mq_liveness_file:
        uint64_t device
        uint64_t inode
    void *mq_liveness_lock_file(const char *path, mq_liveness_file *which)
    void mq_liveness_unlock(void *token)


cdef extern from * nogil:
    """
    static _Thread_local mq_process_identity own_identity;
    """
    mq_process_identity own_identity


cdef extern from "pthread.h" nogil:
    int pthread_atfork(void (*prepare)(), void (*parent)(), void (*child)())


cdef int fork_generation = 0
cdef mq_identity_cache _identity_cache
cdef char _script_name[16]  # name of the script, as the kernel's "python" says nothing; empty: none found yet


cdef void _increment_fork_generation() noexcept nogil:
    global fork_generation
    fork_generation += 1
    mq_forget_own_identity(&_identity_cache)


pthread_atfork(NULL, NULL, _increment_fork_generation)


cdef const mq_process_identity *this_process() except NULL:
    """Return the identity of this process (read once) and thread, in memory of this thread."""
    if mq_read_own_identity(&_identity_cache, &own_identity) != 0:
        raise IpcError(f"cannot read /proc/self: {os.strerror(errno)}; msgq needs /proc to know who is alive")
    with cython.critical_section(find_script_name):  # the lock of _script_name
        if _script_name[0] == 0 and strncmp(own_identity.name, b"python", 6) == 0:
            _copy_name(_script_name, find_script_name(sys.argv[0] if sys.argv else None))
        if _script_name[0] != 0:
            memcpy(own_identity.name, _script_name, sizeof(_script_name))
    return &own_identity


cdef int _copy_name(char *name, bytes text) except -1:
    """Copy a name of at most 15 bytes."""
    strncpy(name, text, sizeof(_script_name) - 1)
    return 0


def find_script_name(path):
    if not isinstance(path, str):  # embedded, or set by a program
        return b""
    name = os.path.basename(path)
    if name == "__main__.py":  # python -m PACKAGE
        name = os.path.basename(os.path.dirname(path))
    if name.startswith("-"):  # python -c, or a module that is not found yet
        return b""
    return name.removesuffix(".py").encode(errors="replace")[:sizeof(_script_name) - 1].decode(errors="ignore").encode()


cdef int read_own_identity(mq_process_identity *identity, const char *name) except -1:
    """Copy the identity of this process and thread.

    `name` replaces the process's name, unless it is NULL. Long names are cut.
    """
    identity[0] = this_process()[0]
    if name != NULL:
        memset(identity.name, 0, sizeof(identity.name))
        strncpy(identity.name, name, sizeof(identity.name) - 1)
    return 0


cdef str text(const char *shared, size_t size):
    """Return a name in shared memory, of at most 64 bytes."""
    cdef char copy[64]
    mq_copy_from_shared(copy, shared, size)
    return copy[:size].partition(b"\0")[0].decode(errors="replace")


cdef object is_alive(mq_liveness life):
    """Return True, False, or None if the liveness is unknown."""
    return None if life == MQ_UNKNOWN else life == MQ_ALIVE


def is_process_alive(uint64_t pid, uint64_t start_time, uint64_t pid_namespace):
    cdef mq_liveness life
    with nogil:
        life = mq_process_liveness(pid, start_time, pid_namespace)
    return is_alive(life)


def is_thread_alive(uint32_t thread_id):
    return is_alive(mq_thread_liveness(thread_id))


cdef class LockFile:
    """See the type stub (process.pyi)."""

    cdef void *_liveness_token
    cdef mq_liveness_file _locked_file
    cdef bytes _path
    cdef int _fork_generation

    def __init__(self, str path):
        self._path = path.encode()
        self._fork_generation = fork_generation
        while self._liveness_token == NULL:
            self._liveness_token = mq_liveness_lock_file(self._path, &self._locked_file)
            if self._liveness_token == NULL and errno != ESTALE:
                raise OSError(errno, os.strerror(errno), path)

    def __dealloc__(self):
        if self._liveness_token != NULL and self._fork_generation == fork_generation:
            mq_liveness_unlock(self._liveness_token)

    def write(self, bytes text):
        fd = os.open(self._path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(fd, text)
        finally:
            os.close(fd)

    def release(self):
        if self._liveness_token == NULL or self._fork_generation != fork_generation:
            return
        try:
            found = os.stat(self._path)
            if (found.st_dev, found.st_ino) == (self._locked_file.device, self._locked_file.inode):
                os.unlink(self._path)
        except FileNotFoundError:
            pass
        mq_liveness_unlock(self._liveness_token)
        self._liveness_token = NULL


def process_name():
    return this_process().name.decode(errors="replace")


def identity():
    cdef const mq_process_identity *self = this_process()
    return self.pid, self.start_time, self.pid_namespace
