"""C declarations of the recorder."""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from msgq.impl.sources.core cimport mq_source
from msgq.recording.mcap_io.core cimport mq_log_chunk


cdef extern from "recorder/file_watcher.h" nogil:
    enum:
        MQ_FILE_ARRIVALS_MASK
        MQ_WATCHED_DIRECTORIES
        MQ_NAME_START_MAX
    ctypedef struct mq_watched_directory:
        int watch
        const char *directory
        char start[16]
    ctypedef struct mq_file_arrival:
        unsigned place
        int fd
        int error
        char name[256]
    ctypedef struct mq_file_watcher:
        int fd
        unsigned places, count, open
        bint overflowed, changed
        mq_watched_directory place[8]
        mq_file_arrival arrived[256]
    bint mq_file_watcher_poll(mq_file_watcher *a)
    void mq_file_watcher_clear(mq_file_watcher *a)


cdef extern from "sys/inotify.h" nogil:
    enum:
        IN_CLOEXEC
        IN_NONBLOCK
    int inotify_init1(int flags)
    int inotify_add_watch(int fd, const char *path, unsigned mask)
    int inotify_rm_watch(int fd, int watch)


cdef extern from "recorder/capture.h" nogil:
    enum:
        MQ_CAPTURE_CHANNELS
        MQ_CAPTURE_BATCH_MAX
    uint64_t MQ_CAPTURE_LOST_UNKNOWN
    ctypedef struct mq_capture_channel:
        uint32_t source
        uint32_t epoch
        uint32_t part
        bint counted
        bint tracked
        uint64_t first
        uint64_t lost_before
    ctypedef struct mq_tap:
        mq_source from_ "from"
        int64_t publish_offset
        bint has_numbering
        bint ended
        bint separate
        uint16_t channel
        uint64_t skipped_count
        uint64_t stored_losses
        bint states_unknown_loss
        bint lacks_channel_id
        uint16_t *channels
    ctypedef struct mq_capture:
        mq_tap *taps
        uint32_t tap_count
        uint32_t turn
        mq_capture_channel *channels
        uint32_t channel_count
        int64_t clock_offset_ns
        int interrupt
        mq_file_watcher *watcher
        uint32_t stuck
        uint64_t needed
    ctypedef enum mq_capture_end:
        MQ_CAPTURE_TIME
        MQ_CAPTURE_FULL
        MQ_CAPTURE_UNMAPPED
        MQ_CAPTURE_CORRUPT
        MQ_CAPTURE_INTERRUPTED
        MQ_CAPTURE_NEW_SCHEMA
    void mq_tap_forget_channels(mq_tap *tap)
    mq_capture_end mq_capture_run(mq_capture *c, mq_log_chunk *chunk, int64_t until_ns)


cdef extern from "sys/eventfd.h" nogil:
    enum:
        EFD_CLOEXEC
        EFD_NONBLOCK
    ctypedef uint64_t eventfd_t
    int eventfd(unsigned int count, int flags)
    int eventfd_read(int fd, eventfd_t *count)
    int eventfd_write(int fd, eventfd_t count)
