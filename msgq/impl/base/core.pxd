"""Cython declarations of base/.

Shared words are opaque: Cython can access a word only through a function whose name states its memory order.
"""

from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.object cimport PyObject
from libc.limits cimport INT_MAX
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from posix.stat cimport struct_stat
from posix.types cimport gid_t, uid_t

from msgq.impl.base.process cimport (
    fork_generation, MQ_ALIVE, MQ_DEAD, mq_liveness, mq_process_identity, mq_process_liveness, mq_thread_id,
    mq_thread_liveness, MQ_UNKNOWN,
)


cdef extern from "base/layout.h" nogil:
    ctypedef struct mq_origin:
        pass


cdef extern from "base/atomics.h" nogil:
    ctypedef struct mq_u64:
        pass
    ctypedef struct mq_u32:
        pass
    uint64_t mq_load_relaxed_u64(const mq_u64 *word)
    uint64_t mq_load_acquire_u64(const mq_u64 *word)
    void mq_copy_to_shared(void *shared, const void *source, size_t n)
    void mq_copy_from_shared(void *to, const void *shared, size_t n)


cdef extern from "base/object_lock.h":
    ctypedef struct mq_object_lock:
        pass
    void mq_lock_object(mq_object_lock *lock, PyObject *object)
    void mq_unlock_object(mq_object_lock *lock)
    uint64_t mq_add_to_shared_counter(mq_u64 *counter, uint64_t n) nogil


cdef extern from "base/truncation.h" nogil:
    bint mq_mapping_was_truncated(const mq_u64 *not_truncated)


cdef extern from "base/error.h" nogil:
    enum:
        MQ_ERROR_PATH_BYTES
    ctypedef enum mq_error_kind:
        MQ_ERROR_FILE
        MQ_ERROR_PROCESS
        MQ_ERROR_KINDS
    ctypedef struct mq_error:
        mq_error_kind kind
        int number
        char path[640]
        char text[1024]


cdef extern from "base/private_file.h" nogil:
    ctypedef struct mq_private_files:
        pass


cdef extern from "base/mapping.h" nogil:
    ctypedef bint c_bool "bool"
    ctypedef struct mq_guard_functions:
        void *(*add)(void *address, size_t bytes, int protection, const mq_u64 **not_truncated) noexcept nogil
        void (*remove)(void *guard) noexcept nogil
        c_bool (*pair)(void *guard, void *partner) noexcept nogil
    ctypedef struct mq_mapping_table:
        pass
    ctypedef struct mq_mapping:
        uint8_t *address
        uint64_t size
        const mq_u64 *not_truncated
        uint64_t kept_bytes
        uint64_t device
        uint64_t inode
    mq_mapping *mq_mapping_new(void *address, uint64_t size)


cdef extern from "base/file.h" nogil:
    enum:
        MQ_TRUSTED_MAX
    ctypedef struct mq_file_policy:
        uid_t trusted[32]
        int trusted_count
        gid_t group
        bint preallocate
        const mq_guard_functions *guards
        mq_mapping_table *mappings
        mq_private_files *private_files
    ctypedef enum mq_create:
        MQ_OPEN_OR_CREATE
        MQ_ONLY_OPEN
        MQ_ONLY_CREATE
    enum:
        MQ_FILE_MISSING
        MQ_FILE_EXISTS
        MQ_FILE_LOCKED
        MQ_FILE_CHANGED
    bint mq_makes_holes(const mq_file_policy *policy)
    void mq_close_file(int fd)
    bint mq_file_status(const mq_file_policy *policy, int fd, struct_stat *status)
    bint mq_file_is_linked(const mq_file_policy *policy, int fd, const char *path)


cdef extern from "base/endpoint_file.h" nogil:
    ctypedef struct mq_endpoint_file_request:
        const mq_file_policy *policy
        const char *path
        const char *kind_name
        uint64_t least_bytes, new_bytes
        unsigned int mode
        mq_create create
        bint writable


cdef extern from "base/origin.h" nogil:
    mq_u64 *mq_origin_last_word(mq_origin *origin)
    int64_t mq_origin_allocate(mq_u64 *last, int64_t now_ns, uint64_t count)


cdef extern from "base/layout.h" nogil:
    enum:
        MQ_NAME
    ctypedef enum mq_file_check_result:
        MQ_FILE_VALID
        MQ_FILE_OTHER_VERSION
    ctypedef struct mq_participant:
        mq_u64 uid, pid, thread_id, start_time
        char name[16]
    ctypedef struct mq_versioned_row:
        mq_participant participant
    ctypedef struct mq_schema:
        pass


cdef extern from "base/liveness_lock.h" nogil:
    ctypedef struct mq_liveness_file:
        const char *path
        int fd
        uint64_t device
        uint64_t inode
    ctypedef struct mq_file_lock:
        mq_liveness_file file
        int fd
    ctypedef struct mq_liveness_probe:
        const mq_liveness_file *liveness_file
    mq_liveness_file mq_liveness_file_make(const char *path, int fd, const struct_stat *found)
    mq_liveness_file mq_liveness_file_of(const char *path, uint64_t device, uint64_t inode)
    void *mq_liveness_lock(const mq_liveness_file *liveness_file, uint64_t row, bint shared)
    void *mq_liveness_lock_file(const char *path, mq_liveness_file *which)
    void mq_liveness_unlock(void *liveness_token)
    mq_liveness_probe mq_liveness_probe_begin(const mq_liveness_file *liveness_file)
    void mq_liveness_probe_end(mq_liveness_probe *probe)
    mq_liveness mq_liveness_is_locked(mq_liveness_probe *probe, uint64_t row)
    mq_liveness mq_owner_liveness(mq_liveness_probe *probe, uint64_t row, uint64_t pid, uint64_t pid_namespace)


cdef extern from "base/row_table.h" nogil:
    enum:
        MQ_NO_ROW
    mq_liveness mq_participant_liveness(mq_liveness_probe *probe, const mq_participant *participant, int byte)


cdef extern from "base/schema.h" nogil:
    enum:
        MQ_SCHEMA_NAME
        MQ_SCHEMA_ENCODING
    ctypedef struct mq_schema_parts:
        uint64_t room
    mq_schema_parts mq_schema_parts_from_block(mq_schema *schema, char *data, uint64_t room)
    void mq_schema_write(const mq_schema_parts *at, const char *name, const char *encoding, const char *data,
                         uint64_t size)
    void mq_schema_write_if_missing(const mq_schema_parts *at, const char *name, const char *encoding,
                                    const char *data, uint64_t size)
    bint mq_schema_read(const mq_schema_parts *at, char *name, char *encoding, char *data, uint64_t *size)


cdef extern from "base/futex.h" nogil:
    enum:
        MQ_NS_PER_MS
        MQ_NS_PER_S
        MQ_FUTEX_WAITV_MAX
        MQ_FUTEX_32
    ctypedef struct mq_futex_waitv_entry:
        uint64_t expected
        uint64_t address
        uint32_t flags
        uint32_t reserved
    uint32_t *mq_futex_word(mq_u32 *shared)
    int64_t mq_read_clock_ns(int clock)
    int64_t mq_monotonic_ns()
    int64_t mq_read_time_ns(const int64_t *virtual_ns)
    void mq_cpu_relax()
    long mq_futex_wait(uint32_t *word, uint32_t expected, int64_t deadline_ns)
    long mq_futex_waitv(const mq_futex_waitv_entry *words, unsigned count, int64_t deadline_ns)
    void mq_futex_wake_all(uint32_t *word)
    bint mq_membarrier_register()


cdef extern from "base/eventcount.h" nogil:
    uint32_t mq_eventcount_prepare_wait_mp(mq_u32 *word)
    bint mq_eventcount_has_waiters_mp(const mq_u32 *word)
    bint mq_eventcount_notify_mp(mq_u32 *word)


cdef extern from "base/poll_ops.h" nogil:
    ctypedef struct mq_poll_ops:
        int (*is_readable)(const void *reader) noexcept nogil
        const void *reader
        mq_u32 *eventcount
        uint32_t (*prepare_wait)(const void *reader, mq_u32 *eventcount) noexcept nogil
        void (*end_wait)(const void *reader) noexcept nogil
        bint no_backoff
        int64_t (*max_sleep_ns)(const void *reader) noexcept nogil
    uint32_t mq_poll_prepare_wait_mp(const void *reader, mq_u32 *eventcount)


# ---- segment.pxi ----

cdef class Segment:
    """A mapped file, or the addresses that it had: a closed handle keeps its segment, but not its memory."""
    cdef mq_mapping *mapping    # the segment is one of its holders
    cdef bint is_user           # True if it is also one of its users, unless a SegmentMemory is
    cdef readonly str path
    cdef readonly size_t size
    cdef readonly uint64_t inode
    cdef readonly bytes file    # path of the file, for system calls
    cdef uint8_t *address
    cdef const mq_u64 *not_truncated    # see mq_mapping_was_truncated
    cdef mq_liveness_file liveness_file  # locks of the participants (liveness_lock.h)


cdef class SegmentMemory:
    """A user of the memory of a segment. The mapping loses the file with its last user."""
    cdef readonly Segment segment

cdef SegmentMemory use_memory(Segment segment, size_t kept_bytes=*)  # kept_bytes: see mq_mapping


# Guard of a mapping whose file other programs may truncate.
cdef void *guard_mapping(void *address, size_t size, int protection, const mq_u64 **not_truncated) except? NULL
cdef void unguard_mapping(void *guard) noexcept

# Return the exception for a file that another program truncated.
cdef object truncated_error(str endpoint, Segment segment)

# If this thread opens one of these files for reading, use the open descriptor instead. `files` maps each path to a
# descriptor. None: no replacement. Returns the previous value of `files`.
cdef object override_open_files(object files)

# The exception of an error of a step in C.
cdef object exception_of(const mq_error *error, str endpoint)
cdef int raise_error(const mq_error *error, str endpoint) except -1
cdef object segment_error(str what, str endpoint, str path, int number, str advice=*)
cdef int load_file_policy(mq_file_policy *policy, str endpoint) except -1
cdef int open_file(str endpoint, str path, int flags) except -2
cdef bint remove_file(str endpoint, str path) except -1
cdef int create_file(str endpoint, str path, size_t size, int mode) except -1
cdef bint name_file(int fd, str endpoint, str path) except -1
cdef int check_file(int fd, struct_stat *found, str endpoint, str path) except -1

# Map a file; its first `writable_bytes` bytes (0, whole pages, or all) are writable. After a truncation the whole
# mapping reads as zeros.
cdef Segment map_file(int fd, const struct_stat *found, size_t writable_bytes, str endpoint, str path)
cdef Segment adopt_mapping(mq_mapping *mapping, str path)  # take over a use of the mapping

cdef enum:
    # Most processes hold the lock for microseconds. A publisher holds the lock for up to 1 s if it waits for the end of
    # another publisher's send.
    LOCK_WAIT_NS = 5000000000

cdef int lock_file(int fd, str endpoint, str path) except -1
cdef int wait_for_file_lock(int64_t deadline, str endpoint, str path) except -1
cdef void unlock_file(int fd) noexcept


# ---- bus.pxi ----

cdef class VirtualTime:
    """The time of a bus. It advances only while a call waits."""
    cdef public int64_t now_ns
    cdef int64_t _last_origin_ns


cdef class Bus:
    """A host in the memory of this process, with files and a time of its own. The fake backend has the subclass."""
    cdef readonly VirtualTime clock
    cdef readonly str prefix  # the first part of the paths of its files
    cdef public uint32_t segment_size  # data bytes of topics that are opened without a size; 0: the default
    cdef uint32_t _numbers
    cdef bint _has_ended
    cdef void _end(self) noexcept
    cdef uint32_t next_number(self) noexcept  # uids: unlike a random number, equal in each run of a simulation
    cdef object __weakref__


# Return the bus that a prefix of paths names. None: shared memory, or the bus has ended.
cdef Bus find_bus(str in_prefix)


# ---- schema.pxi ----

cdef int write_schema(const mq_schema_parts *at, object schema) except -1
cdef object read_schema(const mq_schema_parts *at)

# A full schema also has a version, an identity and a layout. Topics have no room for these fields.
cdef int write_full_schema(const mq_schema_parts *at, object schema) except -1
cdef object read_full_schema(const mq_schema_parts *at)
cdef tuple encode_full_schema(object schema)  # name, encodings, data, as mq_schema_write needs them


# ---- endpointfile.pxi ----

cdef class EndpointFile:
    """The file of an endpoint, mapped and open, with its lock. Each handle of a process has its own."""
    cdef readonly str name
    cdef readonly str prefix
    cdef readonly object trust
    cdef readonly Bus bus  # None: shared memory
    cdef readonly int mode  # permissions of the file
    cdef readonly str path
    cdef Segment segment        # None until it is open
    cdef SegmentMemory memory   # None until it is open, and after `release`
    cdef const mq_u64 *not_truncated    # see mq_mapping_was_truncated
    cdef int fd  # descriptor to open the file again if it has no name
    cdef mq_liveness_file opened_file  # the file of the segment, and this descriptor
    cdef mq_file_policy policy  # the settings of its opening, by which it also joins and removes

    # Methods of subclasses:
    cdef str _kind_name(self)  # name of the type in errors
    cdef size_t _min_file_bytes(self) noexcept  # minimum bytes of a file of this type
    cdef int _check_header(self) except -1  # check the header, and compute the addresses of the parts
    cdef size_t _new_file_bytes(self) except 0
    cdef int _init_header(self) except -1  # write the header of a new file
    cdef int _check_requested_options(self) except -1  # raise an error if the file differs from the requested options
    cdef int _mark_open(self) except -1  # called after the file was opened

    cdef int open_or_create(self, object create, object mode, bint writable=*) except -1
    cdef int open_existing(self) except -1
    cdef int _create_file(self, mq_endpoint_file_request *request, object mode) except -1
    cdef bint _open_file(self, mq_endpoint_file_request *request) except -1
    cdef int _open_file_once(self, const mq_endpoint_file_request *request) except? -1
    cdef void _use_segment(self, Segment segment) noexcept
    cdef int _adopt_descriptor(self, int fd) except -1
    cdef void _close_fd(self) noexcept
    cdef void release(self) noexcept  # release the memory and the descriptor, because the handle is closed
    cdef const mq_liveness_file *liveness_file(self) noexcept
    cdef uint64_t make_uid(self) noexcept  # uid of a new row or file
    cdef bint lock(self, mq_file_lock *lock, bint patient=*) except -1
    cdef bint _try_lock(self, mq_file_lock *lock) except -1
    cdef int _check_locked_file(self, const mq_file_lock *lock) except -1  # raise if the locked file cannot be joined
    cdef object _reopen_error(self, int error)
    cdef int require_lock(self, const mq_file_lock *lock) except -1  # raise in a child that was forked under the lock
    cdef void unlock(self, mq_file_lock *lock) noexcept
    cdef bint is_removed(self, int fd) noexcept
    cdef int check_truncation(self) except -1
    cdef bint is_linked(self) noexcept
    cdef bint remove_if(self, object condition) except -1
    cdef object missing_error(self)


# Return the participant of a row as a stats.Participant.
cdef object read_participant(const mq_participant *participant, mq_liveness life)


# ---- views.pxi ----

cdef class DescriptorMapping:
    """Mapped memory. Unmapped with the last reference."""
    cdef uint8_t *address
    cdef readonly size_t size
    cdef void *guard  # guard for memory that the server may truncate
    cdef const mq_u64 *not_truncated
    cdef int _check_range(self, size_t offset, size_t size) except -1


cdef class MappedView:
    """A part of a mapping, or of other memory, as a buffer.

    Has the fields of `PinnedView`, so that the memory of deleted views serves both classes.
    """
    cdef object _owner          # keeps the memory mapped
    cdef uint8_t *_start
    cdef Py_ssize_t _size
    cdef bint _readonly
    cdef PinOwner _pin_owner  # None: not pinned, or released
    cdef uint64_t _pinned_part
    cdef int _fork_generation  # fork generation of the process that pinned the part
    cdef Py_ssize_t _buffer_exports  # number of exported buffers


cdef class PinOwner:
    """Base of objects with parts that views pin."""
    cdef void _unpin_part(self, uint64_t part) noexcept


cdef class PinnedView(MappedView):
    """A view that pins a part of its owner."""


# Inline, because a view is created for each frame, usually after a sleep. Inline code is in the caller's module, and
# touches no additional cold page.

cdef inline void expose_buffer(MappedView view, object owner, uint8_t *start, Py_ssize_t size, bint writable) noexcept:
    view._owner, view._start, view._size, view._readonly = owner, start, size, not writable


cdef inline void pin_view(PinnedView view, PinOwner holder, uint64_t part) noexcept:
    view._pinned_part, view._pin_owner, view._fork_generation = part, holder, fork_generation


# ---- message_buffer.pxi ----

cdef int get_message_buffer(data, Py_buffer *view, str endpoint, bint can_have_schema=*, int flags=*) except -1
cdef bint has_addresses(const char *format) noexcept


# ---- wake.pxi ----

cdef int sleep_on_futexes(mq_futex_waitv_entry *words, unsigned count, int64_t deadline_ns) noexcept nogil
cdef bint can_order_stores()


# ---- context.pxi ----

cdef class Context:
    cdef readonly bint closed


cdef enum UseState:
    # While a handle may be used, its use state is the fork generation. Otherwise the use state is one of these values.
    CLOSED = -1
    BUSY = -2  # another thread uses the handle, or a signal handler interrupted a call
    RESERVED = -3   # a reservation is open

cdef enum:
    # A copy of this size takes long enough (about 30 us) to let other threads run.
    LARGE_BYTES = 262144

# In a node of a simulation, raise an error.
cdef int refuse_in_simulation(str endpoint) except -1
cdef int check_context_open(Context context, str endpoint) except -1
cdef int close_at_exit(handle) except -1
cdef void forget_at_exit(handle) noexcept
cdef object usage_error(int ticket, str endpoint)


# ---- handle.pxi ----

cdef class ForkAwareHandle:
    """A handle of an endpoint.

    In a forked child the first call reopens it, and `close` leaves the parent's rows unchanged.
    """
    cdef int _use_state         # see UseState
    cdef int _fork_generation        # fork generation of the process that opened it
    cdef str _endpoint
    cdef unsigned long _user_thread_id    # thread that uses the handle, while the state is BUSY
    cdef object _memory         # memory that the handle uses until it is closed
    cdef readonly Bus _bus      # the bus of its endpoint; None: shared memory
    cdef object __weakref__
    # Choose the bus of the handle, and return the prefix of its paths. In a node of a simulation, refuse shared memory.
    cdef str _enter_bus(self, object prefix, str endpoint, bint passive=*)
    cdef int64_t _now_ns(self) noexcept  # time of the handle's deadlines: CLOCK_MONOTONIC, or virtual
    cdef uint32_t _random_u32(self) noexcept
    cdef void _release_memory(self) noexcept  # called at the end of `close`, after the last use
    cdef int _check_usable(self) except -1
    cdef int _reopen_or_raise(self) except -1
    cdef int _reopen_in_child(self) except -1  # a subclass takes its own rows in the child


# ---- timeouts.pxi ----

cdef enum:
    WAIT_FOREVER = -1
    LONG_TIMEOUT_S = 1000   # seconds from which on a timeout may get a warning: _SUSPECT_S_FROM of argument_checks.py
    SHORT_TIMEOUT_MS = 10   # milliseconds below which a float may get a warning: _SUSPECT_MS_BELOW there


cdef int64_t parse_unusual_timeout_ns(timeout, str endpoint) except -2
cdef int parse_unusual_timeout_ms(timeout, str endpoint) except -2


cdef inline int64_t parse_timeout_ns(timeout, str endpoint) except -2:
    """Return a timeout in seconds as nanoseconds, rounded up; WAIT_FOREVER for None.

    The usual numbers are parsed here. Others may run Python code, which may close the handle.
    """
    cdef int overflow = 0
    cdef long long seconds
    cdef int64_t nanoseconds
    cdef double exact
    if timeout is None:
        return WAIT_FOREVER
    if PyFloat_CheckExact(timeout):
        if 0 <= PyFloat_AS_DOUBLE(timeout) < LONG_TIMEOUT_S:
            exact = PyFloat_AS_DOUBLE(timeout) * MQ_NS_PER_S
            nanoseconds = <int64_t> exact
            return nanoseconds + (nanoseconds < exact)
    elif PyLong_CheckExact(timeout):
        seconds = PyLong_AsLongLongAndOverflow(timeout, &overflow)
        if not overflow and 0 <= seconds < LONG_TIMEOUT_S:
            return seconds * MQ_NS_PER_S
    return parse_unusual_timeout_ns(timeout, endpoint)


cdef inline int parse_timeout_ms(timeout, str endpoint) except -2:
    """Return a timeout in milliseconds as an integer, rounded up; -1: forever. Otherwise as `parse_timeout_ns`."""
    cdef int overflow = 0
    cdef long long milliseconds
    if PyLong_CheckExact(timeout):
        milliseconds = PyLong_AsLongLongAndOverflow(timeout, &overflow)
        if not overflow and WAIT_FOREVER <= milliseconds <= INT_MAX:
            return <int> milliseconds
    elif PyFloat_CheckExact(timeout) and SHORT_TIMEOUT_MS <= PyFloat_AS_DOUBLE(timeout) <= INT_MAX:
        milliseconds = <long long> PyFloat_AS_DOUBLE(timeout)
        return <int> (milliseconds + (milliseconds < PyFloat_AS_DOUBLE(timeout)))
    return parse_unusual_timeout_ms(timeout, endpoint)


cdef inline int64_t deadline_after(int64_t timeout_ms) noexcept:
    """Return the deadline of a timeout in CLOCK_MONOTONIC ns, or WAIT_FOREVER."""
    return WAIT_FOREVER if timeout_ms < 0 else mq_monotonic_ns() + timeout_ms * MQ_NS_PER_MS


# ---- waiting.pxi ----


cdef class ReceiveGate:
    """Stops receives of a subscriber until a controller releases them. The module of gates has the subclass."""
    cdef bint wait_until_released(self, const bint *cancelled) except -1
    cdef void interrupt_wait(self) noexcept


cdef class Waitable(ForkAwareHandle):
    cdef bint _is_closing  # close() was called during a use
    cdef PyObject *_guard  # object whose lock guards the fields: the handle, or the queue of a wait. Borrowed
    cdef int _spin_us
    cdef int _sleeps_without_pause  # number of next sleeps that begin without a pause (_gather_messages)
    cdef bint _signals_end_wait  # a signal handler ends a wait of this handle, as for a system call
    cdef unsigned _connection  # number of closes, so that a wait on a bus notices a close
    cdef int _fd  # descriptor for event loops; -1: no descriptor was requested
    cdef public object _asyncio_reader  # see event_loop.pyx

    # Methods of subclasses:
    cdef bint _is_readable(self) noexcept
    cdef uint32_t _prepare_wait(self) noexcept
    cdef mq_u32 *_futex_word(self) noexcept
    cdef int64_t _max_sleep_ns(self, int64_t slept_ns) except -2
    cdef mq_poll_ops _poll_ops(self) noexcept
    cdef int _release_rows(self) except -1
    # Methods that subclasses may extend:
    cdef bint _can_receive_now(self) except -1
    cdef bint _poll_now(self) except -1
    cdef bint _begin_poll(self) except -1
    cdef void _interrupt_wait(self) noexcept
    cdef void _end_wait(self) noexcept
    cdef void _begin_use(self) noexcept
    cdef void _end_use(self) noexcept
    cdef void _rearm_watch(self) noexcept
    cdef int _close_handle(self) except -1
    cdef bint _read_last_stamps(self, int64_t *published, int64_t *origin) noexcept

    # Methods of this class:
    cdef int _abandon_rows(self) except -1  # leave the rows as they are, and release their locks
    cdef void _forget_inherited_wait(self) noexcept
    cdef int _finish_requested_close(self) except -1
    cdef int _rearm_fd(self) except -1
    cdef void _update_poll_state(self, void *reader, const void *now, size_t bytes) noexcept


cpdef int warn_in_event_loop() except -1
cdef bint wait_until_ready(tuple waitables, int64_t deadline) except -1

cdef object load_event_loop()

# Between watcher_lock and watcher_unlock, the watcher thread polls no reader.
cdef void watcher_lock() noexcept
cdef void watcher_unlock() noexcept


# ---- shared_handle.pxi ----

cdef class ThreadSharedHandle(Waitable):
    """A handle that several threads may use at the same time."""
    # Threads that wait in the handle, or use it without the GIL: one thread with the number of its uses, and the other
    # uses. Most handles have one user at a time, which needs no list.
    cdef unsigned long _single_user
    cdef int _single_user_uses
    cdef list _other_users
    cdef void _forget_user_threads(self) noexcept
    cdef void _add_user_thread(self) noexcept
    cdef void _remove_user_thread(self) noexcept
    cdef bint _has_user_threads(self) noexcept
    cdef bint _is_user_thread(self, unsigned long thread) noexcept


# ---- poller.pxi ----

cdef class Poller:
    # A tuple of Waitable objects of any type, and a tuple with the result of `poll` for each of them. A registration
    # replaces both at once, because a poll in another thread may use them.
    cdef tuple _registered
    cdef public dict _descriptors  # see PyzmqPoller; a poll with descriptors is in Python
    cdef readonly bint _last_poll_was_step  # the last poll was a step of an event-gated run: one check without a wait
    cdef list _poll_readers(self, int wait_ms)
