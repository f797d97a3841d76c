"""C declarations of the recorder."""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from msgq.impl.sources.core cimport mq_source
from msgq.recording.mcap_io.core cimport mq_log_chunk


cdef extern from "recorder/file_watcher.h" nogil:
    enum:
        MQ_FILE_ARRIVALS_MASK
        MQ_WATCHED_DIRECTORIES_MAX
        MQ_FILE_NAME_PREFIX_MAX
    ctypedef struct mq_watched_directory:
        int watch_descriptor
        const char *path
        char name_prefix[16]
    ctypedef struct mq_file_arrival:
        unsigned directory_index
        int fd
        int error
        char name[256]
    ctypedef struct mq_file_watcher:
        int inotify_fd
        unsigned directory_count, arrival_count, open_count
        bint overflowed, changed
        mq_watched_directory directories[8]
        mq_file_arrival arrivals[256]
    bint mq_file_watcher_poll_arrivals(mq_file_watcher *watcher)
    void mq_file_watcher_clear_arrivals(mq_file_watcher *watcher)


cdef extern from "sys/inotify.h" nogil:
    enum:
        IN_CLOEXEC
        IN_NONBLOCK
    int inotify_init1(int flags)
    int inotify_add_watch(int fd, const char *path, unsigned mask)
    int inotify_rm_watch(int fd, int watch)


cdef extern from "recorder/capture.h" nogil:
    enum:
        MQ_CAPTURE_CHANNEL_IDS
        MQ_CAPTURE_PUBLISHER_CHANGES_MAX
        MQ_CAPTURE_BATCH_MAX
    uint64_t MQ_CAPTURE_LOST_UNKNOWN
    ctypedef struct mq_capture_channel:
        uint32_t source
        uint32_t epoch
        uint32_t part
        bint has_publisher_sequence
        bint tracked
        uint64_t first_sequence
        uint64_t lost_before
    ctypedef struct mq_capture_source:
        mq_source source
        int64_t publish_offset
        bint has_numbering
        bint is_ended
        bint has_numbering_per_part
        uint16_t last_channel
        uint32_t publisher_changes_left
        uint64_t skipped_count
        uint64_t stored_losses
        bint states_unknown_loss
        bint lacks_channel_id
        uint16_t *part_channels
    ctypedef struct mq_capture:
        mq_capture_source *sources
        uint32_t source_count
        uint32_t next_source
        mq_capture_channel *channels
        uint32_t channel_count
        int64_t clock_offset_ns
        int interrupt_fd
        mq_file_watcher *watcher
        uint32_t stopped_source
        uint64_t needed_bytes
    ctypedef enum mq_capture_stop_reason:
        MQ_CAPTURE_CHUNK_FULL
        MQ_CAPTURE_UNMAPPED_POOL
        MQ_CAPTURE_CORRUPT_SOURCE
        MQ_CAPTURE_INTERRUPTED
    bint mq_capture_has_new_publisher(const mq_capture_source *captured)
    void mq_capture_source_forget_channels(mq_capture_source *captured)
    mq_capture_stop_reason mq_capture_run(mq_capture *capture, mq_log_chunk *chunk, int64_t until_ns)


cdef extern from "sys/eventfd.h" nogil:
    enum:
        EFD_CLOEXEC
        EFD_NONBLOCK
    ctypedef uint64_t eventfd_t
    int eventfd(unsigned int count, int flags)
    int eventfd_read(int fd, eventfd_t *count)
    int eventfd_write(int fd, eventfd_t count)
