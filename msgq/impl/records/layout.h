/* Layout of vectors and boards. docs/internals/record-protocol.md describes the same bytes, and tests/meta compares the
 * two.
 * The parts are: header, rows of writers, schema, keys (boards only), elements.
 *
 * An element begins with the version word: the number of writes and the current writer. The copies of the value follow.
 * Each copy is the time of a write, followed by the value.
 */
#ifndef MQ_RECORDS_LAYOUT_H
#define MQ_RECORDS_LAYOUT_H

#include "base/layout.h"

enum {
    MQ_RECORD_MAJOR = 1, /* major version of the layout. This code cannot read other major versions */
    MQ_RECORD_MINOR = 0, /* minor version. Readers may ignore the additions of later minor versions */
    MQ_RECORD_CREATOR_BYTES = 64,
    MQ_RECORD_ROWS = 128,               /* maximum number of writing handles */
    MQ_RECORD_ROW_BYTE = 0,             /* byte of the file that the owner of the first row locks (liveness_lock.h) */
    MQ_RECORD_KEY_BYTES = 112,          /* maximum bytes of a key, including the final NUL byte */
    MQ_RECORD_EXCLUSIVE = 1,            /* flag: only one handle writes */
    MQ_RECORD_BOARD = 2,                /* flag: elements have keys, and values have a length */
    MQ_RECORD_CACHE_LINE_BYTES = 64,    /* bytes of a cache line */
    MQ_RECORD_ITEM_BYTES_MAX = 1 << 30, /* maximum bytes of a value */
};

#define MQ_RECORD_MAGIC 0x3130434552515347ull /* "GSQREC01" read as little-endian */
#define MQ_RECORD_ELEMENTS_MAX 0x7fffffffull  /* maximum number of elements */
#define MQ_RECORD_FILE_BYTES_MAX (1ull << 40)

/* One writing handle. */
typedef struct {
    mq_versioned_row at;
    /* number of elements that owners of this row have written, for observers. Only the owner writes this field */
    mq_u64 written;
    mq_u64 pad[6];
} mq_record_row;
_Static_assert(sizeof(mq_record_row) == 128, "bump MQ_RECORD_MAJOR");

/* Key of a board's element. A process writes the key under the lock, with `named` last. Once `named` is 1, only
 * `owner` changes. */
typedef struct {
    mq_u64 owner; /* owner word, as in mq_record_header */
    mq_u64 named; /* 1: the element has a name */
    char name[MQ_RECORD_KEY_BYTES];
} mq_record_key;
_Static_assert(sizeof(mq_record_key) == 128, "bump MQ_RECORD_MAJOR");

typedef struct {
    mq_u64 magic;        /* written last */
    mq_u64 version;      /* major version << 32 | minor version */
    mq_u64 header_bytes; /* offset of the keys (boards) or the elements, in bytes */
    mq_u64 total_bytes;
    mq_u64 created_ns; /* creation time in nanoseconds of the host's clock */
    mq_u64 creator_pid;
    mq_u64 length;      /* number of elements */
    mq_u64 item_bytes;  /* bytes of a value */
    mq_u64 copies;      /* number of copies of a value: 2 or 4 */
    mq_u64 stride;      /* bytes from the start of one element to the next */
    mq_u64 copy_stride; /* bytes from the start of one copy to the next */
    mq_u64 flags;
    char creator[MQ_RECORD_CREATOR_BYTES]; /* name of the process, padded with NUL bytes */
    mq_u64 pad0[4];
    mq_u32 eventcount; /* futex word of all processes that wait for changes (eventcount.h, several writers) */
    mq_u32 pad1[15];
    /* owner of all elements if only one handle writes: (row + 1) << 16 | generation. 0: no owner. The owner changes
     * only under the lock */
    mq_u64 owner;
    mq_u64 pad2[7];
    mq_u64 room[472];
    mq_record_row rows[MQ_RECORD_ROWS];
    mq_schema schema;
    char schema_data[12288 - sizeof(mq_schema)];
} mq_record_header;
_Static_assert(offsetof(mq_record_header, eventcount) == 192, "bump MQ_RECORD_MAJOR");
_Static_assert(offsetof(mq_record_header, owner) == 256, "bump MQ_RECORD_MAJOR");
_Static_assert(offsetof(mq_record_header, rows) == 4096, "bump MQ_RECORD_MAJOR");
_Static_assert(offsetof(mq_record_header, schema) == 20480, "bump MQ_RECORD_MAJOR");
_Static_assert(sizeof(mq_record_header) == 32768, "bump MQ_RECORD_MAJOR");

#define MQ_RECORD_SCHEMA_BYTES (sizeof(((mq_record_header *)0)->schema_data))

/* Configuration of a vector or board. */
typedef struct {
    uint64_t length, item_bytes, copies, flags;
} mq_record_config;

/* Addresses and sizes of a mapped file. The values are a checked copy, because another program may change the
 * header. */
typedef struct {
    mq_record_header *header;
    mq_record_key *key_table; /* keys of a board */
    uint8_t *elements_base;
    mq_record_config config;
    uint64_t stride, copy_stride;
} mq_record_file_parts;

static inline bool mq_record_config_is_valid(const mq_record_config *config) {
    return config->length - 1 < MQ_RECORD_ELEMENTS_MAX && config->item_bytes - 1 < MQ_RECORD_ITEM_BYTES_MAX &&
           (config->copies == 2 || config->copies == 4) && config->flags <= (MQ_RECORD_EXCLUSIVE | MQ_RECORD_BOARD) &&
           /* a board's value has a length and at least one byte */
           (!(config->flags & MQ_RECORD_BOARD) || config->item_bytes > sizeof(mq_u64));
}

/* Compute the addresses of the file's parts, starting at `header`, for a valid configuration. Returns the size of
 * the file in bytes. */
static inline uint64_t mq_record_compute_file_parts(mq_record_file_parts *parts, mq_record_header *header,
                                                    const mq_record_config *config) {
    uint64_t copy = sizeof(mq_u64) + ((config->item_bytes + 7) & ~(uint64_t)7), all = config->copies * copy;
    /* If the version word and all copies fit into one cache line, all share this line. Otherwise, if the version
     * word and one copy fit into a cache line, each copy has its own line. */
    bool own_line =
        sizeof(mq_u64) + all > MQ_RECORD_CACHE_LINE_BYTES && sizeof(mq_u64) + copy <= MQ_RECORD_CACHE_LINE_BYTES;
    uint64_t copy_stride = own_line ? MQ_RECORD_CACHE_LINE_BYTES : copy;
    uint64_t end = sizeof(mq_u64) + (config->copies - 1) * copy_stride + copy;
    uint64_t keys = config->flags & MQ_RECORD_BOARD ? config->length * sizeof(mq_record_key) : 0;
    uint8_t *base = (uint8_t *)header;
    *parts = (mq_record_file_parts){.header = header,
                                    .key_table = (mq_record_key *)(void *)(base + sizeof(mq_record_header)),
                                    .elements_base = base + sizeof(mq_record_header) + keys,
                                    .config = *config,
                                    .stride = (end + MQ_RECORD_CACHE_LINE_BYTES - 1) &
                                              ~(uint64_t)(MQ_RECORD_CACHE_LINE_BYTES - 1),
                                    .copy_stride = copy_stride};
    return sizeof(mq_record_header) + keys + config->length * parts->stride;
}

/* Return the size in bytes of a file with this configuration. Returns 0 if the configuration is invalid. */
static inline uint64_t mq_record_compute_file_bytes(const mq_record_config *config) {
    mq_record_file_parts parts;
    uint64_t bytes = mq_record_config_is_valid(config) ? mq_record_compute_file_parts(&parts, NULL, config) : 0;
    return bytes <= MQ_RECORD_FILE_BYTES_MAX ? bytes : 0;
}

/* Initialize the header in a new file of zeros that has no name yet. */
static inline void mq_record_header_init(mq_record_header *header, const mq_record_config *config, uint64_t created_ns,
                                         uint64_t pid, const char *creator) {
    mq_record_file_parts parts; /* relaxed, all: no other process has the file yet */
    mq_store_relaxed_u64(&header->total_bytes, mq_record_compute_file_parts(&parts, header, config));
    mq_store_relaxed_u64(&header->version, (uint64_t)MQ_RECORD_MAJOR << 32 | MQ_RECORD_MINOR);
    mq_store_relaxed_u64(&header->header_bytes, sizeof(mq_record_header));
    mq_store_relaxed_u64(&header->created_ns, created_ns);
    mq_store_relaxed_u64(&header->creator_pid, pid);
    mq_store_relaxed_u64(&header->length, config->length);
    mq_store_relaxed_u64(&header->item_bytes, config->item_bytes);
    mq_store_relaxed_u64(&header->copies, config->copies);
    mq_store_relaxed_u64(&header->stride, parts.stride);
    mq_store_relaxed_u64(&header->copy_stride, parts.copy_stride);
    mq_store_relaxed_u64(&header->flags, config->flags);
    mq_copy_to_shared(header->creator, creator, strnlen(creator, MQ_RECORD_CREATOR_BYTES - 1));
    mq_store_release_u64(&header->magic, MQ_RECORD_MAGIC);
}

/* Check a mapped file of `bytes` bytes, and compute the addresses of its parts. */
static inline mq_file_check_result mq_record_header_check(mq_record_header *header, uint64_t bytes,
                                                          mq_record_file_parts *parts) {
    if (bytes < sizeof(mq_record_header) || mq_load_acquire_u64(&header->magic) != MQ_RECORD_MAGIC)
        return MQ_FILE_NOT_OURS;
    /* relaxed, all: constant since before the name */
    if (mq_load_relaxed_u64(&header->version) >> 32 != MQ_RECORD_MAJOR)
        return MQ_FILE_OTHER_VERSION;
    mq_record_config config = {.length = mq_load_relaxed_u64(&header->length),
                               .item_bytes = mq_load_relaxed_u64(&header->item_bytes),
                               .copies = mq_load_relaxed_u64(&header->copies),
                               .flags = mq_load_relaxed_u64(&header->flags)};
    uint64_t needed = mq_record_compute_file_bytes(&config);
    if (!needed || needed > bytes || mq_load_relaxed_u64(&header->header_bytes) != sizeof(mq_record_header))
        return MQ_FILE_NOT_OURS;
    mq_record_compute_file_parts(parts, header, &config);
    bool same = mq_load_relaxed_u64(&header->stride) == parts->stride &&
                mq_load_relaxed_u64(&header->copy_stride) == parts->copy_stride;
    return same ? MQ_FILE_VALID : MQ_FILE_NOT_OURS;
}

#endif
