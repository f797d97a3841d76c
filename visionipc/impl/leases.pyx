"""The two sides of a stream's table of leases; see leases.h for what happens when. The GIL keeps threads apart."""

from cython cimport no_gc_clear
from libc.errno cimport errno
from libc.stdint cimport UINT32_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from posix.stat cimport fstat, struct_stat

from msgq.impl.ground.core cimport (
    MQ_DEAD, mq_inquire, mq_inquiry, mq_inquiry_end, mq_life, mq_now_ns, mq_owner_life, mq_process_life, mq_roll,
    mq_row_held, mq_row_hold, mq_row_let_go,
)
from msgq.impl.ground.liveness cimport fork_generation, this_process
from msgq.impl.ground.views cimport HeldView, Holder, Region, View

import os

from msgq.errors import ForkedSocketError, IpcError, SegmentError


cdef extern from "leases.h" nogil:
    enum:
        MQ_LEASE_BUFFERS
        MQ_LEASE_ROWS
        MQ_LEASE_VERSION
        MQ_ROW_FREE
        MQ_ROW_TAKEN
    bint mq_lease_take(mq_leases *table, uint32_t row, uint32_t buffer, uint32_t generation)
    void mq_lease_return(mq_leases *table, uint32_t row, uint32_t buffer)
    void mq_lease_hold(mq_leases *table, uint32_t row)
    void mq_lease_leave(mq_leases *table, uint32_t row)
    bint mq_row_is_held(const mq_leases *table, uint32_t row)
    int mq_lease_holder(const mq_leases *table, uint32_t rows, uint32_t buffer, uint32_t generation)
    int mq_buffer_take(mq_leases *table, uint32_t rows, uint32_t buffer, uint32_t generation)
    void mq_buffer_publish(mq_leases *table, uint32_t buffer, uint32_t generation)
    bint mq_row_done(const mq_leases *table, uint32_t row, const uint32_t *generations)
    void mq_row_reset(mq_leases *table, uint32_t row, uint32_t state)

cdef extern from "ground/liveness.h" nogil:
    int mq_read_stat(uint64_t pid, char *state, long *threads, uint64_t *start_time)

cdef enum:
    ASK_AGAIN_NS = 10000000  # a client that holds what we want is asked for no oftener; it costs some 5 us

MAX_BUFFERS = MQ_LEASE_BUFFERS
MAX_CLIENTS = MQ_LEASE_ROWS
TABLE_BYTES = sizeof(mq_leases)
VERSION = MQ_LEASE_VERSION


cdef int _find_roll(mq_roll *roll, int fd, str endpoint) except -1:
    cdef struct_stat found
    if fstat(fd, &found) != 0:
        raise SegmentError(f"cannot examine the table of leases: {os.strerror(errno)}", endpoint, errno=errno)
    roll.path, roll.fd, roll.device, roll.inode = NULL, fd, found.st_dev, found.st_ino
    return 0


cdef class ServerLeases:
    """See leases.pyi."""

    def __init__(self, Region region not None, int fd, uint32_t buffers, str endpoint):
        if region.size < sizeof(mq_leases) or not 0 < buffers <= MQ_LEASE_BUFFERS:
            raise SegmentError(f"no table of leases for {buffers} buffers in {region.size} bytes", endpoint)
        _find_roll(&self._roll, fd, endpoint)
        self._region = region
        self._table = <mq_leases *> region.address
        self._buffers = buffers
        self._last = buffers - 1
        self._endpoint = endpoint

    def admit(self, uint64_t pid):
        cdef uint32_t row
        cdef char state
        cdef long threads
        cdef uint64_t start_time = 0
        for row in range(<uint32_t> MQ_LEASE_ROWS):
            if not self._tenants[row].taken or self._is_done(row) or self._is_dead(row):
                break
        else:
            raise IpcError(f"{MQ_LEASE_ROWS} clients hold places in the stream; no more can be admitted",
                           self._endpoint)
        if pid:
            mq_read_stat(pid, &state, &threads, &start_time)
        self._tenants[row] = Tenant(pid, start_time, 0, True)
        mq_row_reset(self._table, row, MQ_ROW_TAKEN)
        self._rows = max(self._rows, row + 1)
        return row

    def dismiss(self, uint32_t row, uint64_t pid):
        if row >= MQ_LEASE_ROWS or not self._tenants[row].taken or self._tenants[row].pid != pid:
            return
        mq_row_reset(self._table, row, MQ_ROW_FREE)
        self._tenants[row].taken = False

    def clients(self):
        cdef uint32_t row
        return [self._tenants[row].pid for row in range(self._rows)
                if self._tenants[row].taken and not self._is_done(row) and not self._is_dead(row)]

    def held(self):
        cdef uint32_t buffer
        return sum(mq_lease_holder(self._table, self._rows, buffer, self._generation[buffer]) >= 0
                   for buffer in range(self._buffers))

    cdef bint _is_done(self, uint32_t row) noexcept:
        return mq_row_done(self._table, row, self._generation)

    cdef bint _is_dead(self, uint32_t row) noexcept:
        cdef Tenant *tenant = &self._tenants[row]
        cdef uint64_t pid_namespace = this_process().pid_namespace
        cdef mq_inquiry inquiry
        cdef mq_life life
        if not mq_row_is_held(self._table, row):  # pid 0: of a PID namespace that this process cannot see into
            return tenant.pid != 0 and mq_process_life(tenant.pid, tenant.start_time, pid_namespace) == MQ_DEAD
        inquiry = mq_inquire(&self._roll)
        if tenant.pid:
            life = mq_owner_life(&inquiry, row, tenant.pid, pid_namespace)
        else:
            life = mq_row_held(&inquiry, row)
        mq_inquiry_end(&inquiry)
        return life == MQ_DEAD

    cdef bint _take_back(self, uint32_t row) noexcept:
        """If the client is dead, free what it held."""
        cdef int64_t now = mq_now_ns()
        if self._tenants[row].taken:
            if now - self._tenants[row].asked_ns < ASK_AGAIN_NS:
                return False
            self._tenants[row].asked_ns = now
            if not self._is_dead(row):
                return False
        mq_row_reset(self._table, row, MQ_ROW_FREE)
        self._tenants[row].taken = False
        self.taken_back += 1
        return True

    cdef int take(self) noexcept:
        """The buffer to write next, the longest unused one that nobody holds; -1: all are held."""
        cdef uint32_t step, buffer
        cdef int holder
        for step in range(1, self._buffers + 1):
            buffer = (self._last + step) % self._buffers
            holder = mq_buffer_take(self._table, self._rows, buffer, self._generation[buffer])
            while holder >= 0 and self._take_back(holder):
                holder = mq_buffer_take(self._table, self._rows, buffer, self._generation[buffer])
            if holder < 0:
                self._generation[buffer] = 0
                self._last = buffer
                return buffer
        return -1

    cdef uint32_t publish(self, uint32_t buffer) noexcept:
        """Let clients have what was written into a buffer that was taken; the generation for the packet."""
        self._published = 1 if self._published == UINT32_MAX else self._published + 1
        self._generation[buffer] = self._published
        mq_buffer_publish(self._table, buffer, self._published)
        return self._published


@no_gc_clear  # its views return their leases, and it its row, into the region
cdef class ClientLeases(Holder):
    """See leases.pyi."""

    def __init__(self, Region region not None, int fd, uint32_t row, str endpoint):
        cdef mq_roll roll = mq_roll(NULL, -1, 0, 0)
        if region.size < sizeof(mq_leases) or row >= MQ_LEASE_ROWS:
            raise SegmentError(f"the server's table has {region.size} bytes, our row is {row}: not a table of leases",
                               endpoint)
        memset(self._held, 0, sizeof(self._held))
        self._region = region
        self._row = row
        self._fork_generation = fork_generation
        self._table = <mq_leases *> region.address
        _find_roll(&roll, fd, endpoint)
        self._hold = mq_row_hold(&roll, row, True)
        if self._hold != NULL:
            mq_lease_hold(self._table, row)

    def __dealloc__(self):
        if self._table != NULL and self._fork_generation == fork_generation:
            mq_lease_leave(self._table, self._row)
            mq_row_let_go(self._hold)

    cdef bint _take(self, uint32_t buffer, uint32_t generation) except -1:
        if self._fork_generation != fork_generation:
            raise ForkedSocketError("the parent's; the child must connect its own")
        if buffer >= MQ_LEASE_BUFFERS or generation == 0:
            return False
        if self._held[buffer]:  # a server that does not keep to the rules: never give up the first view's lease
            return False
        self._held[buffer] = mq_lease_take(self._table, self._row, buffer, generation)
        return self._held[buffer]

    cdef void _let_go(self, uint64_t buffer) noexcept:
        self._held[buffer] = 0
        mq_lease_return(self._table, self._row, buffer)


cdef View lease(ClientLeases leases, Region region, size_t size, uint32_t buffer, uint32_t generation):
    """Hold a buffer that has this generation; None: the server has taken it for another frame already."""
    cdef HeldView view
    if not leases._take(buffer, generation):
        return None
    view = HeldView.__new__(HeldView)
    view.hold(leases, buffer)
    view.show(region, size, False)
    return view
