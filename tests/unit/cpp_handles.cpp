// The classes of msgq.hpp: "cpp-handles own NAME" checks them in one process, "vector NAME" and "remove NAME" with Python.
#include <msgq.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>

using namespace std::chrono_literals;

struct Quote {
    double price;
    std::int64_t size;
};

static_assert(std::is_nothrow_move_constructible_v<msgq::Publisher> && !std::is_copy_constructible_v<msgq::Publisher>);
static_assert(std::is_nothrow_move_assignable_v<msgq::Queue> && !std::is_copy_assignable_v<msgq::Queue>);
static_assert(std::is_nothrow_move_constructible_v<msgq::Job> && !std::is_copy_constructible_v<msgq::Job>);
static_assert(std::is_nothrow_move_constructible_v<msgq::Vector<Quote>>);
static_assert(msgq::Plain<Quote> && msgq::Plain<std::array<int, 2>> && !msgq::Plain<std::string>);
static_assert(!msgq::Plain<std::string_view> && !msgq::Plain<std::span<int>> && !msgq::Plain<const char *>);

static void expect(bool holds, const char *text) {
    if (!holds)
        throw std::runtime_error(text);
}
#define EXPECT(condition) expect(condition, #condition)

template <class Call> static int error_of(Call call) {
    try {
        call();
    } catch (const msgq::Error &error) {
        EXPECT(*error.what());
        return error.code();
    }
    return 0;
}

static void own_topic(const std::string &name) {
    std::array<std::byte, 64> buffer;
    msgq::Publisher publisher(name);
    msgq::Subscriber subscriber(name);
    EXPECT(!subscriber.receive(buffer, 0s));
    EXPECT(!subscriber.receive(buffer, 1ms));
    EXPECT(!subscriber.receive(buffer, -5ms)); // the rest until a deadline that is over
    EXPECT((publisher.readers() == std::pair(1, 1)));
    publisher.send("text");
    publisher.send_value(Quote{1.5, 7});
    publisher.send("more");
    EXPECT(subscriber.receive(buffer, 0s).value().text() == "text");
    EXPECT(subscriber.receive_value<Quote>(0s).value().size == 7);
    EXPECT(error_of([&] { (void)subscriber.receive_value<char>(0s); }) == EMSGSIZE); // too large for the buffer
    try {
        (void)subscriber.receive_value<Quote>(0s);
        EXPECT(false);
    } catch (const msgq::SizeError &error) { // too small for the type
        EXPECT(error.code() == EMSGSIZE && error.data.size() == 4 && error.data[0] == std::byte{'m'});
    }
    EXPECT(!subscriber.receive(buffer, 0s));
    EXPECT(error_of([&] { msgq::Publisher(name + '\0' + "x"); }) == EINVAL);
    EXPECT(error_of([&] { msgq::remove_topic(std::string("\0", 1)); }) == EINVAL);
    msgq::Counts counts = subscriber.counts();
    EXPECT(counts.received == 3 && counts.lost == 0 && !counts.lost_more);

    msgq::Publisher successor(name);
    EXPECT(error_of([&] { publisher.send("late"); }) == EADDRINUSE);
    publisher = std::move(successor);
    publisher.send("moved");
    EXPECT(error_of([&] { successor.send("gone"); }) == EINVAL); // NOLINT: the handle has moved
    std::array items{subscriber.poll_item()};
    EXPECT(msgq::poll(items, 0s) == 1 && items[0].ready == 1);
    msgq::Subscriber heir(std::move(subscriber));
    EXPECT(heir.receive(buffer, 0s).value().text() == "moved");
    items[0] = heir.poll_item();
    EXPECT(msgq::poll(items, 0s) == 0);
    EXPECT(msgq::remove_topic(name) && !msgq::remove_topic(name));
}

static void own_channel(const std::string &name) {
    msgq_channel_options options{};
    options.capacity = 2;
    msgq::ChannelPublisher publisher(name, options);
    msgq::ChannelSubscriber subscriber(name);
    EXPECT(publisher.wait_for_room(2, 0s));
    EXPECT(publisher.send("first", 0s).has_value() && publisher.send_value(2.5, 0s).has_value());
    EXPECT(!publisher.wait_for_room(1, 0s));
    std::array items{subscriber.poll_item()};
    EXPECT(msgq::poll(items) == 1);
    std::array<std::byte, 64> buffer;
    EXPECT(subscriber.receive(buffer, 0s).value().text() == "first");
    EXPECT(subscriber.receive_value<double>(0s) == 2.5);
    EXPECT(!subscriber.receive(buffer, 0s));
    EXPECT(subscriber.counts().received == 2 && subscriber.counts().lost == 0);
    for (int i = 0; i < 5; i++)
        EXPECT(publisher.send_value(i, 0s).has_value());
    EXPECT(subscriber.receive_value<int>(0s) == 3); // the channel keeps two messages
    EXPECT(subscriber.counts().received == 3 && subscriber.counts().lost == 3);
    options.capacity = 4;
    EXPECT(error_of([&] { msgq::ChannelPublisher other(name, options); }) == EEXIST);
    EXPECT(msgq::remove_channel(name) && !msgq::remove_channel(name));
}

static void own_queue(const std::string &name) {
    msgq_queue_options options{};
    options.max_messages = 2;
    options.events = MSGQ_EVENTS;
    msgq::Queue queue(name, options);
    std::array<std::byte, 64> buffer;
    EXPECT(!queue.take(buffer, 0s) && !queue.receive(buffer, 0s));
    EXPECT(queue.send("one", 1, 0s) && queue.send_value(5, 0, 0s) && !queue.send("full", 0, 0s));
    try {
        msgq::Job job = queue.take(buffer, 0s).value();
        EXPECT(job.message.text() == "one" && job.message.info.priority == 1);
        throw std::runtime_error("the work failed");
    } catch (const std::runtime_error &) {
    }
    EXPECT(queue.waiting() == 2); // the destructor has returned the message
    msgq::Job again = queue.take(buffer, 0s).value();
    EXPECT(again.message.info.deliveries == 2);
    EXPECT(error_of([&] { again.give_back(msgq::Seconds(1e9)); }) == EINVAL); // the job is still held
    again.give_back();
    msgq::Job last = queue.take(buffer, 0s).value();
    msgq::Job moved(std::move(last));
    moved.acknowledge();
    EXPECT(error_of([&] { moved.acknowledge(); }) == EINVAL);
    std::array items{queue.poll_item()};
    EXPECT(msgq::poll(items) == 1);
    EXPECT(error_of([&] { (void)queue.receive_value<double>(0s); }) == EMSGSIZE); // too small for the type: it stays
    EXPECT(queue.receive_value<int>(0s) == 5 && queue.waiting() == 0);
    EXPECT(msgq::remove_queue(name) && !msgq::remove_queue(name));
    EXPECT(!msgq::remove_records(name));
}

static void own_records(const std::string &name) {
    msgq_vector_options options{};
    options.dtype = "[[\"price\", \"<f8\"], [\"size\", \"<i8\"]]";
    options.length = 3;
    msgq::Vector<Quote> vector(name, options);
    EXPECT(vector.size() == 3 && vector.write(1, Quote{2.5, 9}, 0s) && vector.read(1).size == 9);
    std::array<std::uint64_t, 3> indices;
    std::array<Quote, 2> quotes;
    EXPECT(vector.changes(indices, quotes) == 1 && indices[0] == 1 && quotes[0].price == 2.5);
    EXPECT(!vector.wait(0s));
    EXPECT(vector.write(0, quotes, 0s) && vector.wait(0s));
    EXPECT(error_of([&] { (void)vector.read(3); }) == EINVAL || error_of([&] { (void)vector.read(3); }) == ERANGE);
    EXPECT(error_of([&] { msgq::Vector<double> other(name); }) == EEXIST);
    std::array items{vector.poll_item()};
    EXPECT(msgq::poll(items, 0s) == 1);
    EXPECT(msgq::remove_records(name));

    msgq::Board board(name);
    EXPECT(!board.find("key"));
    auto key = board.declare("key");
    EXPECT(board.find("key") == key && !board.read_value<double>(key));
    board.write_value(key, 1.5);
    msgq_value info{};
    EXPECT(board.read_value<double>(key, &info) == 1.5 && info.count == 1);
    EXPECT(board.wait(key, 0, 0s) && !board.wait(key, 1, 0s));
    std::array changed{board.poll_item(key, 0)};
    EXPECT(msgq::poll(changed, 0s) == 1);
    EXPECT(error_of([&] { (void)board.read_value<char>(key); }) == EMSGSIZE);
    EXPECT(msgq::remove_records(name));
}

static void double_quotes(const std::string &name) {
    msgq::Vector<Quote> vector(name);
    std::puts("ready");
    std::fflush(stdout);
    std::array<std::uint64_t, 4> indices;
    std::array<Quote, 4> quotes;
    EXPECT(vector.wait(20s));
    std::size_t count = vector.changes(indices, quotes);
    for (std::size_t i = 0; i < count; i++)
        EXPECT(vector.write(indices[i] + 1, Quote{2 * quotes[i].price, 2 * quotes[i].size}));
}

static void remove_all(const std::string &name) {
    for (int round = 0; round < 2; round++)
        std::printf("%d %d %d %d\n", msgq::remove_topic(name), msgq::remove_channel(name), msgq::remove_queue(name),
                    msgq::remove_records(name));
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    try {
        const std::string mode = argv[1], name = argv[2];
        if (mode == "vector") {
            double_quotes(name);
        } else if (mode == "remove") {
            remove_all(name);
        } else {
            own_topic(name), own_channel(name), own_queue(name), own_records(name);
            EXPECT(error_of([] { msgq::Subscriber subscriber("a/b"); }) == EINVAL);
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
