"""New files in directories: the Python side of file_watcher.h."""


cdef class FileArrival:
    """See core.pyi."""

    cdef readonly str directory, name
    cdef readonly int fd
    cdef readonly object inode
    cdef readonly bint is_gone

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)


cdef object _make_file_arrival(str directory, const mq_file_arrival *arrived):
    cdef FileArrival arrival = FileArrival.__new__(FileArrival)
    arrival.fd, arrival.is_gone = arrived.fd, arrived.error == ENOENT
    arrival.directory, arrival.name = directory, os.fsdecode(<bytes> arrived.name)
    arrival.inode = os.fstat(arrived.fd).st_ino if arrived.fd >= 0 else None
    return arrival


cdef class FileWatcher:
    """See core.pyi."""

    cdef mq_file_watcher _watcher
    cdef readonly bint has_overflowed
    cdef list _directories    # directories by index
    cdef list _encoded_paths  # the same directories, encoded for C

    def __cinit__(self):
        memset(&self._watcher, 0, sizeof(self._watcher))
        self._watcher.inotify_fd = -1

    def __init__(self, places, parent):
        places = list(places)
        if len(places) > MQ_WATCHED_DIRECTORIES_MAX:
            raise ValueError(f"{len(places)} directories exceed the maximum of {MQ_WATCHED_DIRECTORIES_MAX}")
        self._directories = [directory for directory, _ in places]
        self._encoded_paths = [os.fsencode(directory) for directory in self._directories]
        for number, (_, start) in enumerate(places):
            self._watcher.directories[number].watch_descriptor = -1
            self._watcher.directories[number].path = <bytes> self._encoded_paths[number]
            strncpy(self._watcher.directories[number].name_prefix, <bytes> start.encode(), MQ_FILE_NAME_PREFIX_MAX - 1)
        self._watcher.directory_count = len(places)
        self._watcher.inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK)
        if self._watcher.inotify_fd < 0:
            raise OSError(errno, os.strerror(errno))
        if parent not in self._directories:
            self._watch_directory(parent, <bytes> os.fsencode(parent))
        self._watch_directories()

    def __dealloc__(self):
        for i in range(self._watcher.arrival_count):
            if self._watcher.arrivals[i].fd >= 0:
                close(self._watcher.arrivals[i].fd)
        if self._watcher.inotify_fd >= 0:
            close(self._watcher.inotify_fd)

    cdef int _watch_directory(self, str directory, const char *path) except -2:
        """Watch a directory, and return its number. Return -1 if it does not exist, or is not accessible."""
        cdef int watch = inotify_add_watch(self._watcher.inotify_fd, path, MQ_FILE_ARRIVALS_MASK)
        if watch < 0 and errno not in (ENOENT, ENOTDIR, EACCES):
            raise OSError(errno, os.strerror(errno), directory)
        return watch

    cdef bint _watch_directories(self) except -1:
        """Watch the existing directories. Return True if a new one appeared."""
        cdef mq_watched_directory *watched
        cdef int watch
        cdef bint has_new_directory = False
        for i in range(self._watcher.directory_count):
            watched = &self._watcher.directories[i]
            watch = self._watch_directory(self._directories[i], watched.path)
            if watch != watched.watch_descriptor:
                # This call has no effect for -1, or for a removed directory.
                inotify_rm_watch(self._watcher.inotify_fd, watched.watch_descriptor)
                has_new_directory |= watch >= 0
            watched.watch_descriptor = watch
        return has_new_directory

    def poll_arrivals(self):
        mq_file_watcher_poll_arrivals(&self._watcher)
        arrived = [_make_file_arrival(self._directories[self._watcher.arrivals[i].directory_index],
                                      &self._watcher.arrivals[i])
                   for i in range(self._watcher.arrival_count)]
        has_overflowed = self._watcher.overflowed
        mq_file_watcher_clear_arrivals(&self._watcher)
        self.has_overflowed |= has_overflowed
        return arrived, has_overflowed

    def update_watches(self):
        changed, self._watcher.changed = self._watcher.changed, False
        return changed and self._watch_directories()
