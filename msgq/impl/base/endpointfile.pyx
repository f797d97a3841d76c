"""The file of an endpoint: opened or created, checked, mapped, locked. The base of each kind's file."""

from cython cimport no_gc_clear
from libc.errno cimport EEXIST, ENOENT, errno
from posix.fcntl cimport O_RDONLY, O_RDWR
from posix.stat cimport fstat, lstat, struct_stat
from posix.unistd cimport close

from msgq.impl.base.core cimport MQ_NAME, mq_identity, mq_liveness, mq_load_relaxed_u64, mq_liveness_file
from msgq.impl.base.liveness cimport is_alive, text
from msgq.impl.base.segment cimport (
    check_file, create_file, cut, failure, guard_word, lock_file, map_file, name_file, open_file,
    remove_file, unlock_file,
)

from msgq.common import naming, file_permissions
from msgq.errors import CorruptSegmentError, SegmentError
from msgq.common.stats import Participant


cdef extern from "base/liveness_lock.h" nogil:
    int mq_liveness_file_reopen(const mq_liveness_file *roll, int access)


cdef enum:
    OPEN_TRIES = 5  # when others remove it, or the directory of its prefix, at the same time


@no_gc_clear  # what has a row in it needs it mapped to the last
cdef class EndpointFile:
    """See endpointfile.pxd."""

    def __cinit__(self):
        self.fd = -1

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)

    # ---- what a kind says ----

    cdef str _noun(self):
        return "segment"

    cdef size_t _least(self) noexcept:
        return 0

    cdef int _check(self) except -1:
        return 0

    cdef tuple _directories(self):
        return ()

    cdef size_t _new_bytes(self) except 0:
        return 1

    cdef int _fill(self) except -1:
        return 0

    cdef int _agree(self) except -1:
        return 0

    # ---- opened and made ----

    cdef int obtain(self, object create, object mode) except -1:
        """Open it, or make it. True only makes, False only opens; else there is an error with EEXIST or ENOENT."""
        cdef int tries = OPEN_TRIES
        file_permissions.trusted_users(self.name)  # a name that is wrong is told now, not when the first file of another user comes
        while True:
            try:
                if not create and self.open(True):
                    return self._agree()
                if create is False:
                    raise self.missing()
                if self.make(mode):
                    return 0
                if create:
                    raise failure(f"the {self._noun()} is there already", self.name, self.path, EEXIST)
            except SegmentError as error:
                tries -= 1
                if create is False or error.errno != ENOENT or not tries:  # else it was removed meanwhile
                    raise

    cdef bint open(self, bint writable) except -1:
        """Map the one that is there; False: there is none. Not writable: for those who look on."""
        cdef struct_stat found
        cdef int fd = open_file(self.name, self.path, O_RDWR if writable else O_RDONLY)
        if fd < 0:
            return False
        try:
            check_file(fd, &found, self.name, self.path)
            if <size_t> found.st_size < self._least():
                told = f"has {found.st_size} bytes, too few for a {self._noun()}; remove it"
                raise CorruptSegmentError(told, self.name, self.path)
            self.segment, self.mode = map_file(fd, &found, writable, self.name, self.path), found.st_mode & 0o777
            self._adopt(fd)
            fd = -1
            return True
        finally:
            if fd >= 0:
                close(fd)

    cdef bint make(self, object mode) except -1:
        """Make it; False: another process was faster."""
        cdef struct_stat found
        cdef int permissions = naming.mode(mode, self.name)
        if self.prefix:
            file_permissions.make_directories(self.name, self._directories(), permissions)
        cdef int fd = create_file(self.name, self.path, self._new_bytes(), permissions)
        try:
            check_file(fd, &found, self.name, self.path)
            self.segment, self.mode = map_file(fd, &found, True, self.name, self.path), permissions
            self._fill()
            if not name_file(fd, self.name, self.path):
                return False
            self._adopt(fd)
            fd = -1
            return True
        finally:
            if fd >= 0:
                close(fd)

    cdef int _adopt(self, int fd) except -1:
        self._check()
        if self.fd >= 0:  # of one that was removed while it was opened
            close(self.fd)
        self.whole = guard_word(self.segment.guard) if self.segment.guard != NULL else NULL
        self.segment.roll.fd = self.fd = fd  # it closes it from now on
        return 0

    # ---- while it is open ----

    cdef const mq_liveness_file *roll(self) noexcept:
        return &self.segment.roll

    cdef int lock(self) except -2:
        """Hold off all who come; returns what unlock_file takes. One that was unlinked has its file no less."""
        cdef int fd = mq_liveness_file_reopen(self.roll(), O_RDWR)
        if fd < 0:
            raise failure(f"cannot open the file of the {self._noun()} anew", self.name, self.path, errno)
        try:
            lock_file(fd, self.name, self.path)
        except BaseException:
            unlock_file(fd)
            raise
        return fd

    cdef int check_whole(self) except -1:
        if self.whole != NULL and mq_load_relaxed_u64(self.whole) != 1:
            raise cut(self.name, self.segment)
        return 0

    cdef bint has_name(self) noexcept:
        """Whether it is what one finds who opens it now."""
        cdef struct_stat here, named
        cdef bytes path = self.segment.file
        return (fstat(self.fd, &here) == 0 and lstat(path, &named) == 0 and here.st_ino == named.st_ino
                and here.st_dev == named.st_dev)

    cdef bint remove_if(self, object wanted) except -1:
        """Remove its name if `wanted()`, asked under the lock, says so; returns whether it did."""
        cdef int fd = self.lock()
        try:
            if not self.has_name():
                raise self.missing()
            if not wanted():
                return False
            if not remove_file(self.name, self.path):
                raise self.missing()
            return True
        finally:
            unlock_file(fd)

    cdef object missing(self):
        """Return the exception for one that was to be there. A kind may know more."""
        return failure(f"there is no such {self._noun()}", self.name, self.path, ENOENT)


cdef object participant(const mq_identity *who, mq_liveness life):
    return Participant(mq_load_relaxed_u64(&who.pid), mq_load_relaxed_u64(&who.thread_id),
                       mq_load_relaxed_u64(&who.start_time), text(who.name, MQ_NAME), is_alive(life))
