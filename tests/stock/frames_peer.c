/* The stock peer of frames: a stand-in for a stock visionipc server or client; see stock.h for the ring.
 *
 * Written from this project's notes on the bytes that stock servers and clients exchange, not from their source. It is
 * naive on purpose: a server closes when a request is not four bytes, or anything comes with it, unlinks the path before
 * it binds, writes into its buffers in turn whoever looks at them, and sends whatever its pointers are. A client asks
 * with four bytes, maps what it gets for writing, and finds by a packet's numbers that its server is another one.
 *
 * A peer is driven by lines on stdin and answers each with one line on stdout; `commands` at the end lists them.
 */
#include <pthread.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "stock.h"

enum { STREAMS = 64, BUFFERS = 128, SEGMENT = 1 << 20 };
static const uint32_t LIST = UINT32_MAX;

typedef struct {
    uint64_t len, mmap_len;
    void *pointer[2];
    int32_t fd;
    uint64_t width, height, stride, uv_offset;
    void *plane[2];
    uint64_t server_id, idx;
    uint32_t type;
    int32_t handle;
} Buffer;
_Static_assert(sizeof(Buffer) == 112 && offsetof(Buffer, width) == 40 && offsetof(Buffer, server_id) == 88, "the wire");

typedef struct {
    uint64_t server_id, idx;
    uint32_t frame_id;
    uint64_t timestamp_sof, timestamp_eof;
    uint8_t valid;
} Packet;
_Static_assert(sizeof(Packet) == 48 && offsetof(Packet, valid) == 40, "the wire");

typedef struct {
    uint32_t type;
    size_t count;
    uint64_t published;
    Queue queue;
    Buffer buffers[BUFFERS];
} Stream;

static Stream streams[STREAMS]; /* a client has the first one only */
static size_t stream_count;

static void socket_address(struct sockaddr_un *address, const char *name) {
    const char *prefix = getenv("OPENPILOT_PREFIX");
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address->sun_path, sizeof address->sun_path, "/tmp/%s%svisionipc_%s", prefix ? prefix : "",
             prefix ? "_" : "", name);
}

static void map_buffer(Buffer *buffer) {
    buffer->pointer[0] = mmap(NULL, buffer->mmap_len, PROT_READ | PROT_WRITE, MAP_SHARED, buffer->fd, 0);
    if (buffer->pointer[0] == MAP_FAILED)
        give_up("a buffer cannot be mapped for writing");
}

/* Open the topic as publisher or subscriber; the queue that was open is put aside. */
static void open_topic(const char *name, uint32_t type, bool conflate) {
    char endpoint[256];
    snprintf(endpoint, sizeof endpoint, "visionipc_%s_%" PRIu32, name, type);
    queue = (Queue){.conflate = conflate};
    if (map_segment(endpoint, SEGMENT) != 0)
        give_up("the topic cannot be opened");
}

/* ---- server ---- */

/* stream NAME TYPE COUNT WIDTH HEIGHT STRIDE UV_OFFSET LEN */
static void do_stream(void) {
    char name[256];
    Buffer like = {.server_id = new_uid()};
    Stream *stream = &streams[stream_count];
    if (sscanf(rest, "%255s %" SCNu32 " %zu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, name, &like.type,
               &stream->count, &like.width, &like.height, &like.stride, &like.uv_offset, &like.len) != 8)
        exit(EXIT_USAGE);
    like.mmap_len = like.len + sizeof(uint64_t);
    stream->type = like.type;
    for (size_t i = 0; i < stream->count; i++) {
        stream->buffers[i] = like;
        stream->buffers[i].idx = i;
        stream->buffers[i].fd = memfd_create("stock", 0);
        if (ftruncate(stream->buffers[i].fd, (off_t)like.mmap_len) != 0)
            give_up("no memory");
        map_buffer(&stream->buffers[i]);
        stream->buffers[i].plane[0] = stream->buffers[i].pointer[0];
        stream->buffers[i].plane[1] = (char *)stream->buffers[i].pointer[0] + like.uv_offset;
    }
    open_topic(name, like.type, false);
    start_publisher();
    stream->queue = queue;
    stream_count++;
    printf("stream %" PRIu64 "\n", like.server_id);
}

static void send_with_fds(int connection, void *data, size_t size, const Stream *stream) {
    char control[CMSG_SPACE(BUFFERS * sizeof(int))] = {0};
    struct iovec part = {data, size};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (stream) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(stream->count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        *rights = (struct cmsghdr){CMSG_LEN(stream->count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        for (size_t i = 0; i < stream->count; i++)
            memcpy(CMSG_DATA(rights) + i * sizeof(int), &stream->buffers[i].fd, sizeof(int));
    }
    sendmsg(connection, &header, MSG_NOSIGNAL);
}

static void answer(int connection) {
    uint32_t type, types[STREAMS];
    struct iovec part = {&type, sizeof type};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (recvmsg(connection, &header, 0) != sizeof type || header.msg_flags != 0) /* MSG_TRUNC: it was longer */
        return;
    for (size_t i = 0; i < stream_count; i++) {
        types[i] = streams[i].type;
        if (streams[i].type == type)
            send_with_fds(connection, streams[i].buffers, streams[i].count * sizeof(Buffer), &streams[i]);
    }
    if (type == LIST)
        send_with_fds(connection, types, stream_count * sizeof *types, NULL);
}

static void *serve(void *listener) {
    int connection;
    while ((connection = accept((int)(intptr_t)listener, NULL, NULL)) >= 0) {
        answer(connection);
        close(connection);
    }
    return NULL;
}

/* listen NAME: when all streams are made */
static void do_listen(void) {
    struct sockaddr_un address;
    pthread_t thread;
    int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    socket_address(&address, rest);
    unlink(address.sun_path);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 0) != 0)
        give_up("bind");
    pthread_create(&thread, NULL, serve, (void *)(intptr_t)listener);
    printf("listening\n");
}

/* The bytes of a frame: `picture` in frames.py says the same. */
static uint8_t pixel(uint32_t frame_id, uint64_t i) { return (uint8_t)(frame_id * 31 + i * 7 + i / 251); }

/* publish TYPE FIRST_FRAME_ID COUNT: into the buffers in turn; the timestamps are 1000 and 2000 times the frame's id */
static void do_publish(void) {
    for (size_t s = 0; s < stream_count; s++) {
        Stream *stream = &streams[s];
        if (stream->type != arguments[0])
            continue;
        queue = stream->queue;
        for (uint32_t id = (uint32_t)arguments[1]; id < arguments[1] + arguments[2]; id++) {
            Buffer *buffer = &stream->buffers[stream->published++ % stream->count];
            uint8_t *picture = buffer->pointer[0];
            for (uint64_t i = 0; i < buffer->len; i++)
                picture[i] = pixel(id, i);
            memcpy(picture + buffer->len, &(uint64_t){id}, sizeof(uint64_t));
            Packet packet;
            memset(&packet, 0xa5, sizeof packet); /* what is between the fields is never set */
            packet.server_id = buffer->server_id, packet.idx = buffer->idx, packet.frame_id = id;
            packet.timestamp_sof = UINT64_C(1000) * id, packet.timestamp_eof = UINT64_C(2000) * id, packet.valid = 1;
            memcpy(message, &packet, sizeof packet);
            if (publish(sizeof packet) != 0)
                give_up("another publisher took the topic");
        }
    }
    printf("published\n");
}

/* ---- client ---- */

/* Ask a server; returns the bytes of its answer, 0 when it closes, -1 when there is none. */
static ssize_t ask(const char *name, uint32_t request, void *answer, size_t room, int *fds, size_t *fd_count) {
    struct sockaddr_un address;
    char control[CMSG_SPACE(BUFFERS * sizeof(int))];
    struct iovec part = {answer, room};
    struct msghdr header = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int connection = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    socket_address(&address, name);
    ssize_t size = -1;
    if (connect(connection, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(connection, &request, sizeof request, MSG_NOSIGNAL) == sizeof request)
        size = recvmsg(connection, &header, 0);
    close(connection);
    *fd_count = 0;
    for (struct cmsghdr *c = size > 0 ? CMSG_FIRSTHDR(&header) : NULL; c; c = CMSG_NXTHDR(&header, c)) {
        *fd_count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(c), *fd_count * sizeof(int));
    }
    return size;
}

/* streams NAME */
static void do_streams(void) {
    uint32_t types[STREAMS];
    size_t none;
    ssize_t size = ask(rest, LIST, types, sizeof types, NULL, &none);
    printf("streams");
    for (ssize_t i = 0; i < size / (ssize_t)sizeof *types; i++)
        printf(" %" PRIu32, types[i]);
    printf("\n");
}

/* connect NAME TYPE CONFLATE: again, too. Answers what the first buffer is like; 0 buffers: not connected. */
static void do_connect(void) {
    char name[256];
    uint32_t type;
    unsigned conflate;
    int fds[BUFFERS];
    size_t fd_count;
    Stream *stream = &streams[0];
    if (sscanf(rest, "%255s %" SCNu32 " %u", name, &type, &conflate) != 3)
        exit(EXIT_USAGE);
    if (!queue.header) {
        open_topic(name, type, conflate != 0);
        join();
    }
    for (size_t i = 0; i < stream->count; i++) {
        munmap(stream->buffers[i].pointer[0], stream->buffers[i].mmap_len);
        close(stream->buffers[i].fd);
    }
    ssize_t size = ask(name, type, stream->buffers, sizeof stream->buffers, fds, &fd_count);
    stream->count = size > 0 ? (size_t)size / sizeof(Buffer) : 0;
    if (stream->count != fd_count || (size > 0 && (size_t)size % sizeof(Buffer)))
        give_up("an answer that is no list of buffers");
    for (size_t i = 0; i < stream->count; i++) {
        stream->buffers[i].fd = fds[i];
        map_buffer(&stream->buffers[i]);
    }
    Buffer first = stream->count ? stream->buffers[0] : (Buffer){0};
    printf("connected %zu %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", stream->count,
           first.width, first.height, first.stride, first.uv_offset, first.len, first.server_id);
}

/* receive TIMEOUT_MS: index, frame's id, timestamps, valid, the id behind the picture, the picture's bytes */
static void do_receive(void) {
    const char *how;
    Packet packet;
    int64_t size = receive_within(arguments[0], &how);
    if (size == 0) {
        printf("received nothing\n");
        return;
    }
    if (size != sizeof packet)
        give_up("a packet of another size");
    memcpy(&packet, message, sizeof packet);
    if (packet.idx >= streams[0].count || packet.server_id != streams[0].buffers[packet.idx].server_id) {
        printf("received lost\n"); /* the server is another one: connect again */
        return;
    }
    const Buffer *buffer = &streams[0].buffers[packet.idx];
    const uint8_t *picture = buffer->pointer[0];
    uint64_t behind;
    memcpy(&behind, picture + buffer->len, sizeof behind);
    printf("received frame %" PRIu64 " %" PRIu32 " %" PRIu64 " %" PRIu64 " %d %" PRIu64 " ", packet.idx,
           packet.frame_id, packet.timestamp_sof, packet.timestamp_eof, packet.valid, behind);
    for (uint64_t i = 0; i < buffer->len; i++)
        printf("%02x", picture[i]);
    printf("\n");
}

/* scribble BYTE: over all pictures, which stock lets its clients do */
static void do_scribble(void) {
    for (size_t i = 0; i < streams[0].count; i++)
        memset(streams[0].buffers[i].pointer[0], (int)arguments[0], streams[0].buffers[i].len);
    printf("scribbled\n");
}

static const Command commands[] = {
    {"stream", do_stream},   {"listen", do_listen},   {"publish", do_publish},   {"streams", do_streams},
    {"connect", do_connect}, {"receive", do_receive}, {"scribble", do_scribble},
};

int main(void) { return run_commands(commands, sizeof commands / sizeof commands[0]); }
