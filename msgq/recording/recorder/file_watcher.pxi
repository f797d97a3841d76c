"""Files that get a name: the Python side of file_watcher.h."""


cdef class FileArrival:
    """See core.pyi."""

    cdef readonly str directory, name
    cdef readonly int fd
    cdef readonly object inode
    cdef readonly bint gone

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)


cdef object _arrival(str directory, const mq_file_arrival *arrived):
    cdef FileArrival arrival = FileArrival.__new__(FileArrival)
    arrival.fd, arrival.gone = arrived.fd, arrived.error == ENOENT
    arrival.directory, arrival.name = directory, os.fsdecode(<bytes> arrived.name)
    arrival.inode = os.fstat(arrived.fd).st_ino if arrived.fd >= 0 else None
    return arrival


cdef class FileWatcher:
    """See core.pyi."""

    cdef mq_file_watcher c
    cdef readonly bint overflowed
    cdef list _places       # directories, by place ...
    cdef list _paths        # ... and as C has them

    def __cinit__(self):
        memset(&self.c, 0, sizeof(self.c))
        self.c.fd = -1

    def __init__(self, places, parent):
        places = list(places)
        if len(places) > MQ_WATCHED_DIRECTORIES:
            raise ValueError(f"{len(places)} places; {MQ_WATCHED_DIRECTORIES} are possible")
        self._places = [directory for directory, _ in places]
        self._paths = [os.fsencode(directory) for directory in self._places]
        for number, (_, start) in enumerate(places):
            self.c.place[number].watch, self.c.place[number].directory = -1, <bytes> self._paths[number]
            strncpy(self.c.place[number].start, <bytes> start.encode(), MQ_NAME_START_MAX - 1)
        self.c.places = len(places)
        self.c.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK)
        if self.c.fd < 0:
            raise OSError(errno, os.strerror(errno))
        if parent not in self._places:
            self._watch(parent, <bytes> os.fsencode(parent))
        self._cover()

    def __dealloc__(self):
        for i in range(self.c.count):
            if self.c.arrived[i].fd >= 0:
                close(self.c.arrived[i].fd)
        if self.c.fd >= 0:
            close(self.c.fd)

    cdef int _watch(self, str directory, const char *path) except -2:
        """Watch a directory; -1: there is none, or none for us. One that is watched has the same number again."""
        cdef int watch = inotify_add_watch(self.c.fd, path, MQ_FILE_ARRIVALS_MASK)
        if watch < 0 and errno not in (ENOENT, ENOTDIR, EACCES):
            raise OSError(errno, os.strerror(errno), directory)
        return watch

    cdef bint _cover(self) except -1:
        """Watch the directories that are there; True: one has come. One that is gone lives as long as its files."""
        cdef mq_watched_directory *place
        cdef int watch
        cdef bint come = False
        for i in range(self.c.places):
            place = &self.c.place[i]
            watch = self._watch(self._places[i], place.directory)
            if watch != place.watch:
                inotify_rm_watch(self.c.fd, place.watch)  # -1, and what is gone already, are no matter
                come |= watch >= 0
            place.watch = watch
        return come

    def poll(self):
        mq_file_watcher_poll(&self.c)
        arrived = [_arrival(self._places[self.c.arrived[i].place], &self.c.arrived[i]) for i in range(self.c.count)]
        changed, overflowed = self.c.changed, self.c.overflowed
        mq_file_watcher_clear(&self.c)
        self.overflowed |= overflowed
        return arrived, (changed and self._cover()) or overflowed
