"""A queue's file: opened or made, checked, mapped, locked."""

from cython cimport no_gc_clear
from libc.errno cimport EEXIST, ENOENT, errno
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_RDONLY, O_RDWR
from posix.mman cimport PROT_READ, PROT_WRITE
from posix.stat cimport fstat, lstat, struct_stat
from posix.unistd cimport close

from msgq.impl.ground.clock cimport host_time_ns
from msgq.impl.ground.core cimport mq_roll, mq_schema_parts
from msgq.impl.ground.descriptor cimport describe, described
from msgq.impl.ground.liveness cimport text, this_process
from msgq.impl.ground.segment cimport (
    Segment, check_file, create_file, cut, failure, guard_mapping, guard_word, lock_file, map_file, name_file,
    open_file, remove_file, unlock_file,
)
from msgq.impl.workqueue.core cimport (
    MQ_QUEUE_CREATOR, MQ_QUEUE_MAJOR, MQ_QUEUE_SCHEMA_DATA, MQ_QUEUE_SOUND, MQ_QUEUE_VERSION, mq_load_relaxed_u64,
    mq_queue, mq_queue_bytes, mq_queue_check, mq_queue_write, mq_schema_parts_of,
)

from msgq import naming, sharing
from msgq.errors import CorruptSegmentError, LayoutVersionError


cdef extern from "ground/life.h" nogil:
    int mq_roll_open(const mq_roll *roll, int access)


@no_gc_clear  # what has a row in it needs it mapped to the last
cdef class QueueFile:
    """See queuefile.pxd."""

    def __cinit__(self):
        self.fd = -1

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)

    @property
    def path(self):
        return self.segment.path

    cdef const mq_roll *roll(self) noexcept:
        return &self.segment.roll

    cdef int lock(self) except -2:
        """Hold off all who come; returns what unlock_file takes. A queue that was unlinked has its file no less."""
        cdef int fd = mq_roll_open(self.roll(), O_RDWR)
        if fd < 0:
            raise failure("cannot open the queue's file anew", self.name, self.segment.path, errno)
        try:
            lock_file(fd, self.name, self.segment.path)
        except BaseException:
            unlock_file(fd)
            raise
        return fd

    cdef int check_whole(self) except -1:
        if self.whole != NULL and mq_load_relaxed_u64(self.whole) != 1:
            raise cut(self.name, self.segment)
        return 0

    cdef bint has_name(self) noexcept:
        """Whether it is what one finds who opens the queue now."""
        cdef struct_stat here, named
        cdef bytes path = self.segment.file
        return (fstat(self.fd, &here) == 0 and lstat(path, &named) == 0 and here.st_ino == named.st_ino
                and here.st_dev == named.st_dev)

    # ---- what it says of itself ----

    @property
    def creator(self):
        cdef mq_queue *queue = self.parts.queue
        return text(queue.creator, MQ_QUEUE_CREATOR), mq_load_relaxed_u64(&queue.creator_pid)

    @property
    def created_ns(self):
        return mq_load_relaxed_u64(&self.parts.queue.created_ns)

    @property
    def schema(self):
        cdef mq_schema_parts at = mq_schema_parts_of(&self.parts.queue.schema, MQ_QUEUE_SCHEMA_DATA)
        return described(&at)

    def describe(self, schema):
        """Set the schema, unless there is one."""
        cdef mq_schema_parts at = mq_schema_parts_of(&self.parts.queue.schema, MQ_QUEUE_SCHEMA_DATA)
        cdef int fd = self.lock()
        try:
            if described(&at) is None:
                describe(&at, schema)
        finally:
            unlock_file(fd)


cdef QueueFile _adopt(int fd, Segment segment, str name, str in_prefix, object trust, int mode, bint writable):
    cdef QueueFile file = QueueFile.__new__(QueueFile)
    file.name, file.prefix, file.trust, file.mode = name, in_prefix, trust, mode
    file.segment = segment
    segment.roll.fd = fd
    status = mq_queue_check(<mq_queue *> segment.address, segment.size, &file.parts)
    if status == MQ_QUEUE_VERSION:
        message = f"has another layout than this library, which has version {MQ_QUEUE_MAJOR}; use one version of msgq"
        raise LayoutVersionError(message, name, segment.path)
    if status != MQ_QUEUE_SOUND:
        raise CorruptSegmentError("is not a queue of msgq; remove it", name, segment.path)
    segment.guard = guard_mapping(segment.address, segment.size, PROT_READ | (PROT_WRITE if writable else 0))
    file.whole = guard_word(segment.guard) if segment.guard != NULL else NULL
    file.fd = fd  # it closes it from now on
    return file


cdef QueueFile find_queue(str name, str in_prefix, object trust, bint writable):
    """Map the queue that is there; None: there is none. Not writable: for those who look on."""
    cdef struct_stat found
    path = naming.queue_path(name, in_prefix)
    cdef int fd = open_file(name, path, O_RDWR if writable else O_RDONLY)
    if fd < 0:
        return None
    try:
        check_file(fd, &found, name, path)
        if <size_t> found.st_size < sizeof(mq_queue):
            raise CorruptSegmentError(f"has {found.st_size} bytes, too few for a queue; remove it", name, path)
        file = _adopt(fd, map_file(fd, &found, writable, name, path), name, in_prefix, trust, found.st_mode & 0o777,
                      writable)
        fd = -1
        return file
    finally:
        if fd >= 0:
            close(fd)


cdef QueueFile make_queue(str name, str in_prefix, object mode, object trust, max_messages, max_message_size):
    """Make the queue; None: another process was faster."""
    cdef struct_stat found
    cdef Segment segment
    cdef char creator[MQ_QUEUE_CREATOR]
    cdef int permissions = naming.mode(mode, name)
    path = naming.queue_path(name, in_prefix)
    if in_prefix:
        sharing.make_directories(name, naming.queue_directories(in_prefix), permissions)
    cdef int fd = create_file(name, path, mq_queue_bytes(max_messages, max_message_size), permissions)
    try:
        check_file(fd, &found, name, path)
        segment = map_file(fd, &found, True, name, path)
        memset(creator, 0, sizeof(creator))
        memcpy(creator, this_process().name, sizeof(this_process().name))
        mq_queue_write(<mq_queue *> segment.address, max_messages, max_message_size, host_time_ns(),
                       this_process().pid, creator)
        if not name_file(fd, name, path):
            return None
        file = _adopt(fd, segment, name, in_prefix, trust, permissions, True)
        fd = -1
        return file
    finally:
        if fd >= 0:
            close(fd)


def unlink_queue(str name, str in_prefix):
    """Remove a queue's name. Those that have it open go on among themselves."""
    path = naming.queue_path(name, in_prefix)
    if not remove_file(name, path):
        raise missing_error(name, in_prefix)


def exists_error(str name, str in_prefix):
    """Return the exception for a queue that was to be made anew."""
    return failure("the queue is there already", name, naming.queue_path(name, in_prefix), EEXIST)


def missing_error(str name, str in_prefix):
    """Return the exception for a queue that was to be opened."""
    return failure("there is no such queue", name, naming.queue_path(name, in_prefix), ENOENT)
