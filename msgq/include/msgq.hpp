/* msgq for C++20: owners of the handles of the C library. See docs/guides/c.md.
 *
 * Each class owns one handle: objects can be moved, but not copied, and the destructor closes the handle. A call throws
 * msgq::Error if the C function returns an error. A time-out is no error: calls that wait return an empty optional,
 * false or 0. The rules of msgq/common.h for threads and forks also apply to the classes. A moved-from object has no
 * handle, so that its calls throw EINVAL. */
#ifndef MSGQ_HPP
#define MSGQ_HPP

#if __cplusplus < 202002L
#error "msgq.hpp needs C++20; compile with -std=c++20, or include the headers of msgq/*.h"
#endif

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "msgq/channel.h"
#include "msgq/poll.h"
#include "msgq/queue.h"
#include "msgq/records.h"
#include "msgq/topic.h"

namespace msgq {

using Bytes = std::span<const std::byte>;
using Buffer = std::span<std::byte>;

/* A time-out in seconds, which any duration of std::chrono converts to: 20s, 5ms. A negative one, such as the rest of
 * the time until a deadline that is over, does not wait. Only FOREVER waits without limit. */
using Seconds = std::chrono::duration<double>;
inline constexpr Seconds FOREVER{-1.0};
inline constexpr Seconds NO_WAIT{0.0};

/* An error of the C library. what() has the endpoint, the values and the cure. */
class Error : public std::runtime_error {
  public:
    explicit Error(int code) : Error(code, msgq_error_text()) {}
    Error(int code, const std::string &text) : std::runtime_error(text), code_(code) {}

    /* Return the positive errno, such as EADDRINUSE. */
    int code() const noexcept { return code_; }

  private:
    int code_;
};

/* A message, or a value of a board, has another size than the type. code() is EMSGSIZE. `data` has its bytes. */
class SizeError : public Error {
  public:
    SizeError(Bytes bytes, std::size_t wanted)
        : Error(EMSGSIZE, "message has " + std::to_string(bytes.size()) + " bytes, but the type has " +
                              std::to_string(wanted) + "; look at `data`, or receive into a buffer"),
          data(bytes.begin(), bytes.end()) {}

    std::vector<std::byte> data;
};

/* A received message. `data` is the part of the caller's buffer that has the message. */
struct Message {
    Buffer data;
    msgq_message info{};

    std::string_view text() const noexcept { return {reinterpret_cast<const char *>(data.data()), data.size()}; }
};

/* Messages that a subscriber has received and lost since it was opened. */
struct Counts {
    std::uint64_t received;
    std::uint64_t lost;
    bool lost_more; /* `lost` is only a lower bound, because a stock publisher counted no messages */
};

/* Types whose bytes are their value: no pointers, and no views or texts, whose bytes are pointers. */
template <class T>
concept Plain = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::ranges::view<T> &&
                !std::is_convertible_v<const T &, std::string_view>;

inline Bytes bytes_of(std::string_view text) noexcept { return std::as_bytes(std::span(text)); }
template <Plain T> Bytes bytes_of(const T &value) noexcept { return std::as_bytes(std::span(&value, 1)); }

namespace detail {

template <class Result> Result check(Result result) {
    if (result < 0)
        throw Error(static_cast<int>(-result));
    return result;
}

/* Return a time-out for the C library, which waits forever for each negative number: so does only FOREVER here. */
inline double wait_of(Seconds timeout) { return timeout == FOREVER || timeout.count() >= 0 ? timeout.count() : 0; }

/* Return false after a time-out. */
template <class Result> bool check_wait(Result result) {
    if (result == -EAGAIN || result == -ETIMEDOUT)
        return false;
    check(result);
    return true;
}

template <class Handle, void (*close)(Handle *)> struct Closer {
    void operator()(Handle *handle) const noexcept { close(handle); }
};
template <class Handle, void (*close)(Handle *)> using Owner = std::unique_ptr<Handle, Closer<Handle, close>>;

/* Return a name for the C library, which reads it up to the first byte that is 0. */
inline const char *text_of(const std::string &name) {
    if (name.find('\0') != std::string::npos)
        throw Error(EINVAL, "the name '" + name + "' has a byte that is 0; remove it");
    return name.c_str();
}

template <class Owned, class Options, class Handle>
Owned open(int (*function)(Handle **, const char *, const Options *), const std::string &name, const Options &options) {
    Handle *handle = nullptr;
    check(function(&handle, text_of(name), &options));
    return Owned(handle);
}

/* Return the value of a message, which must have exactly its size. */
template <Plain T> T read_value(Bytes data) {
    T value;
    if (data.size() != sizeof value)
        throw SizeError(data, sizeof value);
    std::memcpy(&value, data.data(), sizeof value);
    return value;
}

/* Receive with a function of the C library, which may have more arguments after the time-out. Empty after a time-out. */
template <class Function, class Handle, class... More>
std::optional<Message> receive(Function function, Handle *handle, Buffer buffer, Seconds timeout, More... more) {
    Message message;
    std::int64_t size = function(handle, buffer.data(), buffer.size(), wait_of(timeout), more..., &message.info);
    if (!check_wait(size))
        return std::nullopt;
    message.data = buffer.first(static_cast<std::size_t>(size));
    return message;
}

template <Plain T, class Receiver> std::optional<T> receive_value(Receiver &receiver, Seconds timeout) {
    T value;
    auto message = receiver.receive(std::as_writable_bytes(std::span(&value, 1)), timeout);
    return message ? std::optional(read_value<T>(message->data)) : std::nullopt;
}

template <class Handle> Counts read_counts(int (*function)(const Handle *, uint64_t *, uint64_t *), Handle *handle) {
    std::uint64_t received = 0, lost = 0;
    int lost_more = check(function(handle, &received, &lost));
    return {received, lost, lost_more != 0};
}

/* Return false if the endpoint does not exist. */
inline bool check_found(int result) { return result != -ENOENT && check(result) == 0; }

} // namespace detail

/* The publisher of a topic. */
class Publisher {
  public:
    explicit Publisher(const std::string &topic, const msgq_topic_options &options = {})
        : handle_(detail::open<Handle>(msgq_publisher_open, topic, options)) {}

    void send(Bytes data) { detail::check(msgq_publisher_send(get(), data.data(), data.size())); }
    void send(std::string_view text) { send(bytes_of(text)); }
    template <Plain T> void send_value(const T &value) { send(bytes_of(value)); }

    /* Return the number of living subscribers, and how many of them have read all messages. */
    std::pair<int, int> readers() {
        std::pair<int, int> found{};
        detail::check(msgq_publisher_readers(get(), &found.first, &found.second));
        return found;
    }
    msgq_publisher *get() const noexcept { return handle_.get(); }

  private:
    using Handle = detail::Owner<msgq_publisher, msgq_publisher_close>;
    Handle handle_;
};

/* A subscriber of a topic. */
class Subscriber {
  public:
    explicit Subscriber(const std::string &topic, const msgq_topic_options &options = {})
        : handle_(detail::open<Handle>(msgq_subscriber_open, topic, options)) {}

    /* Copy the next message to the buffer. Empty: no message arrived before the time-out. */
    [[nodiscard]] std::optional<Message> receive(Buffer buffer, Seconds timeout = FOREVER) {
        return detail::receive(msgq_subscriber_receive, get(), buffer, timeout);
    }
    template <Plain T> [[nodiscard]] std::optional<T> receive_value(Seconds timeout = FOREVER) {
        return detail::receive_value<T>(*this, timeout);
    }
    Counts counts() const { return detail::read_counts(msgq_subscriber_counts, get()); }
    msgq_poll_item poll_item() const noexcept {
        msgq_poll_item item{};
        item.subscriber = get();
        return item;
    }
    msgq_subscriber *get() const noexcept { return handle_.get(); }

  private:
    using Handle = detail::Owner<msgq_subscriber, msgq_subscriber_close>;
    Handle handle_;
};

/* A publisher of a channel. */
class ChannelPublisher {
  public:
    explicit ChannelPublisher(const std::string &channel, const msgq_channel_options &options = {})
        : handle_(detail::open<Handle>(msgq_channel_publisher_open, channel, options)) {}

    /* Return the position of the message. Empty: views held all slots until the time-out. */
    [[nodiscard]] std::optional<std::int64_t> send(Bytes data, Seconds timeout = FOREVER) {
        std::int64_t position = msgq_channel_send(get(), data.data(), data.size(), detail::wait_of(timeout));
        if (position == -ENOBUFS || !detail::check_wait(position))
            return std::nullopt;
        return position;
    }
    [[nodiscard]] std::optional<std::int64_t> send(std::string_view text, Seconds timeout = FOREVER) {
        return send(bytes_of(text), timeout);
    }
    template <Plain T> [[nodiscard]] std::optional<std::int64_t> send_value(const T &value, Seconds timeout = FOREVER) {
        return send(bytes_of(value), timeout);
    }

    /* Return false if subscribers left no room for the messages until the time-out. */
    [[nodiscard]] bool wait_for_room(std::uint64_t messages, Seconds timeout = FOREVER) {
        return detail::check_wait(msgq_channel_wait_for_room(get(), messages, detail::wait_of(timeout)));
    }
    msgq_channel_publisher *get() const noexcept { return handle_.get(); }

  private:
    using Handle = detail::Owner<msgq_channel_publisher, msgq_channel_publisher_close>;
    Handle handle_;
};

/* A subscriber of a channel. */
class ChannelSubscriber {
  public:
    explicit ChannelSubscriber(const std::string &channel, const msgq_channel_options &options = {})
        : handle_(detail::open<Handle>(msgq_channel_subscriber_open, channel, options)) {}

    /* Copy the next message to the buffer. Empty: no message arrived before the time-out. */
    [[nodiscard]] std::optional<Message> receive(Buffer buffer, Seconds timeout = FOREVER) {
        return detail::receive(msgq_channel_receive, get(), buffer, timeout);
    }
    template <Plain T> [[nodiscard]] std::optional<T> receive_value(Seconds timeout = FOREVER) {
        return detail::receive_value<T>(*this, timeout);
    }
    Counts counts() const { return detail::read_counts(msgq_channel_counts, get()); }
    msgq_poll_item poll_item() const noexcept {
        msgq_poll_item item{};
        item.channel = get();
        return item;
    }
    msgq_channel_subscriber *get() const noexcept { return handle_.get(); }

  private:
    using Handle = detail::Owner<msgq_channel_subscriber, msgq_channel_subscriber_close>;
    Handle handle_;
};

/* A message that was taken from a queue. Unless it is acknowledged, the destructor returns it to the queue, for example
 * after an exception. A job must not outlive its queue, nor the buffer of `message`. */
class Job {
  public:
    Message message;

    Job(msgq_queue *queue, const msgq_job &job, const Message &received)
        : message(received), queue_(queue), job_(job) {}
    Job(Job &&other) noexcept
        : message(other.message), queue_(std::exchange(other.queue_, nullptr)), job_(other.job_) {}
    Job &operator=(Job &&) = delete;
    ~Job() {
        if (queue_)
            msgq_queue_return(queue_, &job_);
    }

    /* Remove the message from the queue. */
    void acknowledge() { detail::check(msgq_queue_acknowledge(std::exchange(queue_, nullptr), &job_)); }
    /* Return the message to the queue, where it waits for the delay. After an error, the job is still held. */
    void give_back(Seconds delay = NO_WAIT) {
        detail::check(msgq_queue_return_delayed(queue_, &job_, delay.count()));
        queue_ = nullptr;
    }

  private:
    msgq_queue *queue_; /* NULL: the job is finished */
    msgq_job job_;
};

/* A handle of a work queue. */
class Queue {
  public:
    explicit Queue(const std::string &name, const msgq_queue_options &options = {})
        : handle_(detail::open<Handle>(msgq_queue_open, name, options)) {}

    /* Return false if the queue was full until the time-out. */
    [[nodiscard]] bool send(Bytes data, int priority = 0, Seconds timeout = FOREVER, Seconds delay = NO_WAIT) {
        return detail::check_wait(msgq_queue_send_delayed(get(), data.data(), data.size(), priority,
                                                          detail::wait_of(timeout), delay.count()));
    }
    [[nodiscard]] bool send(std::string_view text, int priority = 0, Seconds timeout = FOREVER,
                            Seconds delay = NO_WAIT) {
        return send(bytes_of(text), priority, timeout, delay);
    }
    template <Plain T> [[nodiscard]] bool send_value(const T &value, int priority = 0, Seconds timeout = FOREVER) {
        return send(bytes_of(value), priority, timeout);
    }

    /* Remove the next message from the queue. Empty: no message arrived before the time-out. */
    [[nodiscard]] std::optional<Message> receive(Buffer buffer, Seconds timeout = FOREVER) {
        return detail::receive(msgq_queue_receive, get(), buffer, timeout);
    }
    template <Plain T> [[nodiscard]] std::optional<T> receive_value(Seconds timeout = FOREVER) {
        std::array<std::byte, sizeof(T)> buffer;
        std::optional<Job> job = take(buffer, timeout);
        if (!job)
            return std::nullopt;
        T value = detail::read_value<T>(job->message.data); // the job returns a message of another size to the queue
        job->acknowledge();
        return value;
    }

    /* Take the next message as a job, which returns to the queue after `lease` (NO_WAIT: no limit). */
    [[nodiscard]] std::optional<Job> take(Buffer buffer, Seconds timeout = FOREVER, Seconds lease = NO_WAIT) {
        msgq_job job{};
        auto message = detail::receive(msgq_queue_take, get(), buffer, timeout, lease.count(), &job);
        return message ? std::optional<Job>(std::in_place, get(), job, *message) : std::nullopt;
    }

    std::int64_t waiting() { return detail::check(msgq_queue_waiting(get())); }
    msgq_poll_item poll_item() const noexcept {
        msgq_poll_item item{};
        item.queue = get();
        return item;
    }
    msgq_queue *get() const noexcept { return handle_.get(); }

  private:
    using Handle = detail::Owner<msgq_queue, msgq_queue_close>;
    Handle handle_;
};

/* A vector of records of the type T. A new vector needs `dtype` and `length` in its options. */
template <Plain T> class Vector {
  public:
    explicit Vector(const std::string &name, msgq_vector_options options = {}) {
        options.item_bytes = sizeof(T);
        handle_ = detail::open<Handle>(msgq_vector_open, name, options);
    }

    std::uint64_t size() const noexcept { return msgq_vector_length(get()); }

    /* Copy the items from `first` on. Each item is consistent. */
    void read(std::uint64_t first, std::span<T> items) {
        detail::check(msgq_vector_read(get(), first, items.size(), items.data(), nullptr, nullptr));
    }
    T read(std::uint64_t index) {
        T item;
        read(index, std::span(&item, 1));
        return item;
    }

    /* Return false if another writer held an item until the time-out. */
    [[nodiscard]] bool write(std::uint64_t first, std::span<const T> items, Seconds timeout = FOREVER) {
        return detail::check_wait(
            msgq_vector_write(get(), first, items.size(), items.data(), detail::wait_of(timeout)));
    }
    [[nodiscard]] bool write(std::uint64_t index, const T &item, Seconds timeout = FOREVER) {
        return write(index, std::span<const T>(&item, 1), timeout);
    }

    /* Return false if nothing changed before the time-out. */
    [[nodiscard]] bool wait(Seconds timeout = FOREVER) {
        return detail::check_wait(msgq_vector_wait(get(), detail::wait_of(timeout)));
    }

    /* Store the indices and values of changed items, as many as fit into both. Returns their number. */
    std::size_t changes(std::span<std::uint64_t> indices, std::span<T> items) {
        std::size_t max_changes = indices.size() < items.size() ? indices.size() : items.size();
        return static_cast<std::size_t>(
            detail::check(msgq_vector_changes(get(), indices.data(), items.data(), max_changes)));
    }
    msgq_poll_item poll_item() const noexcept {
        msgq_poll_item item{};
        item.vector = get();
        return item;
    }
    msgq_vector *get() const noexcept { return handle_.get(); }

  private:
    using Handle = detail::Owner<msgq_vector, msgq_vector_close>;
    Handle handle_;
};

/* A board of named values. */
class Board {
  public:
    explicit Board(const std::string &name, const msgq_board_options &options = {})
        : handle_(detail::open<Handle>(msgq_board_open, name, options)) {}

    /* Become the owner of a key. Returns its index. */
    std::int64_t declare(const std::string &key) {
        return detail::check(msgq_board_declare(get(), detail::text_of(key)));
    }
    /* Return the index of a key. Empty: no handle has declared the key. */
    [[nodiscard]] std::optional<std::int64_t> find(const std::string &key) {
        std::int64_t index = msgq_board_find(get(), detail::text_of(key));
        return index == -ENOENT ? std::nullopt : std::optional(detail::check(index));
    }

    void write(std::int64_t index, Bytes data) {
        detail::check(msgq_board_write(get(), index, data.data(), data.size()));
    }
    template <Plain T> void write_value(std::int64_t index, const T &value) { write(index, bytes_of(value)); }

    /* Copy a value to the buffer. Empty: the value was never written. `info` may be NULL. */
    [[nodiscard]] std::optional<Buffer> read(std::int64_t index, Buffer buffer, msgq_value *info = nullptr) {
        std::int64_t size = msgq_board_read(get(), index, buffer.data(), buffer.size(), info);
        if (size == -ENOENT)
            return std::nullopt;
        return buffer.first(static_cast<std::size_t>(detail::check(size)));
    }
    template <Plain T> [[nodiscard]] std::optional<T> read_value(std::int64_t index, msgq_value *info = nullptr) {
        T value;
        auto found = read(index, std::as_writable_bytes(std::span(&value, 1)), info);
        return found ? std::optional(detail::read_value<T>(*found)) : std::nullopt;
    }

    /* Wait until the number of writes differs from `count`. Returns false after the time-out. */
    [[nodiscard]] bool wait(std::int64_t index, std::uint64_t count, Seconds timeout = FOREVER) {
        return detail::check_wait(msgq_board_wait(get(), index, count, detail::wait_of(timeout)));
    }
    msgq_poll_item poll_item(std::int64_t index, std::uint64_t count) const noexcept {
        msgq_poll_item item{};
        item.board = get();
        item.index = index;
        item.count = count;
        return item;
    }
    msgq_board *get() const noexcept { return handle_.get(); }

  private:
    using Handle = detail::Owner<msgq_board, msgq_board_close>;
    Handle handle_;
};

/* Wait until one of the items is ready. Returns the number of ready items; 0: none before the time-out. */
inline std::size_t poll(std::span<msgq_poll_item> items, Seconds timeout = FOREVER) {
    int ready = msgq_poll(items.data(), items.size(), detail::wait_of(timeout));
    return detail::check_wait(ready) ? static_cast<std::size_t>(ready) : 0;
}

/* Remove an endpoint. Returns false if it does not exist. */
inline bool remove_topic(const std::string &name, const msgq_options &options = {}) {
    return detail::check_found(msgq_topic_remove(detail::text_of(name), &options));
}
inline bool remove_channel(const std::string &name, const msgq_options &options = {}) {
    return detail::check_found(msgq_channel_remove(detail::text_of(name), &options));
}
inline bool remove_queue(const std::string &name, const msgq_options &options = {}) {
    return detail::check_found(msgq_queue_remove(detail::text_of(name), &options));
}
inline bool remove_records(const std::string &name, const msgq_options &options = {}) {
    return detail::check_found(msgq_records_remove(detail::text_of(name), &options));
}

} // namespace msgq

#endif
