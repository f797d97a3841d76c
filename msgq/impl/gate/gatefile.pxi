"""The files of gates: the gate's own file, and its FIFOs, whose names are the gate's name and a suffix.

A gate's file is complete before it has a name. Closing it, replacing it and creating its FIFOs run under flock of that
file.
"""


cdef tuple FIFO_SUFFIX = (":called", ":ready")


cdef Segment open_gate(str endpoint, str path):
    """Return the checked gate with this name, or None if there is none, or it is closed."""
    cdef struct_stat found
    cdef Segment segment
    cdef int fd = open_file(endpoint, path, O_RDWR)
    if fd < 0:
        return None
    try:
        check_file(fd, &found, endpoint, path)
        if found.st_size != MQ_GATE_BYTES:
            text = f"has {found.st_size} bytes, not the {MQ_GATE_BYTES} of a gate; remove it"
            raise CorruptSegmentError(text, endpoint, path)
        segment = map_file(fd, &found, found.st_size, endpoint, path)
    finally:
        close(fd)
    state = mq_event_gate_check_header(<mq_event_gate *> segment.address)
    if state == MQ_FILE_OTHER_VERSION:
        version = mq_event_gate_layout_version(<mq_event_gate *> segment.address)
        text = f"has layout version {version}, but this library has {MQ_GATE_VERSION}; use one version of msgq"
        raise LayoutVersionError(text, endpoint, path)
    if state != MQ_FILE_VALID:
        raise CorruptSegmentError("is not a gate of msgq; remove it", endpoint, path)
    return None if mq_event_gate_is_closed(<mq_event_gate *> segment.address) else segment


cdef Segment remove_gate(str endpoint, str path, uint64_t inode):
    """Remove the files of the gate with this name; if `inode` is not 0, only if it is that gate.

    Return the gate, still open. Return None if there was none, or its data was invalid.
    """
    cdef struct_stat found
    cdef Segment segment = None
    cdef int fd = open_file(endpoint, path, O_RDWR)
    if fd < 0:
        return None
    try:
        lock_file(fd, endpoint, path)
        check_file(fd, &found, endpoint, path)
        if not found.st_nlink or (inode and inode != found.st_ino):
            return None
        if found.st_size == MQ_GATE_BYTES:
            segment = map_file(fd, &found, found.st_size, endpoint, path)
        for suffix in (*FIFO_SUFFIX, ""):  # remove the gate's own name last, because the gate's file has the lock
            remove_file(endpoint, path + suffix)
    finally:
        unlock_file(fd)
    return segment if segment is not None and mq_event_gate_check_header(<mq_event_gate *>
                                                                         segment.address) == MQ_FILE_VALID else None


cdef void *_lock_owner_byte(Segment segment, int fd) noexcept:
    """Lock the owner's byte of a file that has no name yet."""
    cdef mq_liveness_file liveness_file = segment.liveness_file
    liveness_file.path, liveness_file.fd = NULL, fd
    return mq_liveness_lock(&liveness_file, MQ_GATE_ROW, False)


cdef Segment create_gate(str endpoint, str path, bint enable, void **liveness_token):
    """Return a new gate of this process, which replaces any other. *liveness_token is its owner's lock."""
    cdef struct_stat found
    cdef Segment segment, former
    cdef int fd = create_file(endpoint, path, MQ_GATE_BYTES, settings.resolve_file_mode(None, endpoint))
    try:
        check_file(fd, &found, endpoint, path)
        segment = map_file(fd, &found, found.st_size, endpoint, path)
        liveness_token[0] = _lock_owner_byte(segment, fd)
        mq_event_gate_init(<mq_event_gate *> segment.address, this_process(), liveness_token[0] != NULL)
        mq_event_gate_set_enabled(<mq_event_gate *> segment.address, enable)
        while True:
            former = remove_gate(endpoint, path, 0)
            named = name_file(fd, endpoint, path)
            if former is not None:  # now processes that wait at the previous gate can move to the new gate
                mq_event_gate_close(<mq_event_gate *> former.address)
            if named:
                return segment
    finally:
        close(fd)


def gate_owner(str path):
    cdef Segment segment = open_gate(shm_paths.parse_gate_path(path)[2], path)
    if segment is None:
        return None
    alive = is_alive(mq_event_gate_owner_liveness(<mq_event_gate *> segment.address, &segment.liveness_file))
    return mq_event_gate_owner_pid(<mq_event_gate *> segment.address), alive, segment.inode


def unlink_gate(str path, uint64_t inode):
    remove_gate(shm_paths.parse_gate_path(path)[2], path, inode)
