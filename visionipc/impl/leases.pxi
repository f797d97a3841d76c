"""Both sides of a stream's lease table. See leases.h for the order of the steps. The GIL excludes other threads."""


cdef enum:
    # A liveness test of a client that blocks a buffer takes about 5 us, or 70 us with cold caches.
    HOLDER_PROBE_INTERVAL_NS = 10000000  # interval of tests of a client that holds a needed buffer
    LAGGARD_PROBE_INTERVAL_NS = 1000000000  # interval of tests of a client that only keeps buffers rotating

LEASE_BUFFERS_MAX = MQ_FRAME_BUFFERS_MAX
LEASE_CLIENTS_MAX = MQ_FRAME_CLIENT_ROWS
LEASE_TABLE_BYTES = sizeof(mq_frame_lease_table)
VERSION = MQ_FRAME_LEASE_VERSION


cdef mq_liveness_file _make_liveness_file(int fd, str endpoint) except *:
    cdef struct_stat found
    if fstat(fd, &found) != 0:
        raise SegmentError(f"cannot examine the table of leases: {os.strerror(errno)}", endpoint, errno=errno)
    return mq_liveness_file_make(NULL, fd, &found)


@final
cdef class ServerLeases:
    """See core.pyi."""

    def __init__(self, DescriptorMapping region not None, int fd, uint32_t buffers, str endpoint):
        if region.size < sizeof(mq_frame_lease_table) or not 0 < buffers <= MQ_FRAME_BUFFERS_MAX:
            raise SegmentError(f"no table of leases for {buffers} buffers in {region.size} bytes", endpoint)
        self._liveness_file = _make_liveness_file(fd, endpoint)
        self._region = region
        self._table = <mq_frame_lease_table *> region.address
        mq_frame_buffer_mru_init(&self._mru, buffers)
        self._round_end = buffers
        self._endpoint = endpoint

    @property
    def newest(self):
        return self._mru.newest

    @property
    def buffers(self):
        return self._mru.buffers

    def grow(self):
        if self._mru.buffers >= MQ_FRAME_BUFFERS_MAX:
            raise SegmentError(f"the table of leases has {MQ_FRAME_BUFFERS_MAX} buffers already", self._endpoint)
        mq_frame_buffer_mru_add(&self._mru)
        self._round_end = max(self._round_end, self._published + self._mru.buffers)  # one frame more for the new buffer

    def admit(self, uint64_t pid):
        cdef uint32_t row
        cdef char state
        cdef long threads
        cdef uint64_t start_time = 0
        for row in range(<uint32_t> MQ_FRAME_CLIENT_ROWS):
            if not self._client_rows[row].taken or self._is_row_released(row) or self._is_client_dead(row):
                break
        else:
            raise IpcError(f"{MQ_FRAME_CLIENT_ROWS} clients use the stream, its limit; close one",
                           self._endpoint)
        if pid:
            mq_read_process_stat(pid, &state, &threads, &start_time)
        self._client_rows[row] = ClientRow(pid, start_time, 0, self._published, True)
        mq_frame_row_reset(self._table, row, MQ_FRAME_ROW_TAKEN)
        self._used_row_count = max(self._used_row_count, row + 1)
        self._round_end = self._published + self._mru.buffers
        return row

    def admit_stock_client(self):
        self._has_stock_client = True

    def drop_client(self, uint32_t row, uint64_t pid):
        if row >= MQ_FRAME_CLIENT_ROWS or not self._client_rows[row].taken or self._client_rows[row].pid != pid:
            return
        mq_frame_row_reset(self._table, row, MQ_FRAME_ROW_FREE)
        self._client_rows[row].taken = False
        self._round_end = self._mru.buffers  # end this client's rotation, because a client may ask repeatedly
        for row in range(self._used_row_count):
            if self._client_rows[row].taken:
                self._round_end = max(self._round_end, self._client_rows[row].joined_at_frame + self._mru.buffers)

    def clients(self):
        cdef uint32_t row
        return [self._client_rows[row].pid for row in range(self._used_row_count)
                if self._client_rows[row].taken and not self._is_row_released(row) and not self._is_client_dead(row)]

    def count_held_buffers(self):
        cdef uint32_t buffer
        return sum(mq_frame_lease_find_holder(self._table, self._used_row_count, buffer,
                                              self._mru.generation[buffer]) >= 0
                   for buffer in range(self._mru.buffers))

    cdef bint _is_row_released(self, uint32_t row) noexcept:
        return mq_frame_row_is_released(self._table, row, self._mru.generation)

    cdef bint _is_client_dead(self, uint32_t row) noexcept:
        cdef ClientRow *client = &self._client_rows[row]
        cdef uint64_t pid_namespace = this_process().pid_namespace
        cdef mq_liveness_probe probe
        cdef mq_liveness life
        if not mq_frame_row_is_locked(self._table, row):  # pid 0: a client in an invisible PID namespace
            return client.pid != 0 and mq_process_liveness(client.pid, client.start_time, pid_namespace) == MQ_DEAD
        probe = mq_liveness_probe_begin(&self._liveness_file)
        if client.pid:
            life = mq_owner_liveness(&probe, row, client.pid, pid_namespace)
        else:
            life = mq_liveness_is_locked(&probe, row)
        mq_liveness_probe_end(&probe)
        return life == MQ_DEAD

    cdef bint _reclaim_dead_client(self, uint32_t row, int64_t now_ns, int64_t pause_ns) noexcept:
        """If the client is dead, free its row and leases. The test is repeated after a pause."""
        if self._client_rows[row].taken:
            if now_ns - self._client_rows[row].probed_ns < pause_ns:
                return False
            self._client_rows[row].probed_ns = now_ns
            if not self._is_client_dead(row):
                return False
        self.taken_back += mq_frame_row_has_leases(self._table, row, self._mru.generation)
        mq_frame_row_reset(self._table, row, MQ_FRAME_ROW_FREE)
        self._client_rows[row].taken = False
        return True

    cdef int take(self, bint stock_reader, int64_t now_ns) noexcept:
        """Return the buffer to write next, or -1 if clients hold all. leases.h describes the choice.

        `now_ns` is the current CLOCK_BOOTTIME: a server reads this clock for each frame anyway.
        """
        cdef int buffer = -1
        if not self._has_stock_client and not stock_reader and self._published >= self._round_end:
            buffer = self._take_mru_buffer(now_ns)
        if buffer < 0:
            buffer = self._take_oldest_buffer(now_ns)
        if buffer >= 0:
            self._mru.generation[buffer] = 0
        return buffer

    cdef int _take_mru_buffer(self, int64_t now_ns) noexcept:
        cdef int buffer = -1, slowest
        cdef uint32_t _
        for _ in range(self._used_row_count + 1):  # bound: each round reclaims a row of a dead client
            awaited = mq_frame_count_awaited_frames(self._table, self._used_row_count, self._mru.newest, &slowest)
            buffer = mq_frame_buffer_claim_mru(&self._mru, self._table, self._used_row_count, awaited)
            if buffer >= 0 or slowest < 0 or not self._reclaim_dead_client(slowest, now_ns, LAGGARD_PROBE_INTERVAL_NS):
                break
        return buffer

    cdef int _take_oldest_buffer(self, int64_t now_ns) noexcept:
        cdef uint32_t place, buffer
        cdef int holder
        for place in range(self._mru.buffers, 0, -1):
            buffer = self._mru.order[place - 1]
            for _ in range(self._used_row_count + 1):  # bound: each round reclaims a row of a dead client
                holder = mq_frame_buffer_claim(self._table, self._used_row_count, buffer, self._mru.generation[buffer])
                if holder < 0:
                    return buffer
                if not self._reclaim_dead_client(holder, now_ns, HOLDER_PROBE_INTERVAL_NS):
                    break
        return -1

    cdef uint32_t publish(self, uint32_t buffer) noexcept:
        """Publish the frame in a claimed buffer. Return the generation for the packet."""
        self._published += 1
        return mq_frame_buffer_mru_publish(&self._mru, self._table, buffer)

    cdef void store_dropped_count(self, uint64_t dropped) noexcept:
        mq_frame_store_dropped_count(self._table, dropped)


@no_gc_clear  # views return their leases in the region, and the client releases its row there
cdef class ClientLeases(PinOwner):
    """See core.pyi."""

    def __init__(self, DescriptorMapping region not None, int fd, uint32_t row, uint32_t since, str endpoint):
        cdef mq_liveness_file liveness_file
        if region.size < sizeof(mq_frame_lease_table) or row >= MQ_FRAME_CLIENT_ROWS:
            raise SegmentError(f"the server's table has {region.size} bytes, our row is {row}: not a table of leases",
                               endpoint)
        memset(self._held_buffers, 0, sizeof(self._held_buffers))
        self._region = region
        self._row = row
        self.since = since
        self._fork_generation = fork_generation
        self._table = <mq_frame_lease_table *> region.address
        self._dropped_before = mq_frame_load_dropped_count(self._table)
        liveness_file = _make_liveness_file(fd, endpoint)
        self._liveness_token = mq_liveness_lock(&liveness_file, row, True)
        if self._liveness_token != NULL:
            mq_frame_row_set_locked(self._table, row)

    def __dealloc__(self):
        if self._table != NULL and self._fork_generation == fork_generation:
            mq_frame_row_set_left(self._table, self._row)
            mq_liveness_unlock(self._liveness_token)

    @property
    def dropped(self):
        return mq_frame_load_dropped_count(self._table) - self._dropped_before

    def end(self):
        if self._liveness_token != NULL and self._fork_generation == fork_generation:  # without a lock, the row stays
            mq_frame_row_set_leaving(self._table, self._row)

    cdef void _unpin_part(self, uint64_t buffer) noexcept:
        self._held_buffers[buffer] = 0
        mq_frame_lease_return(self._table, self._row, buffer)
