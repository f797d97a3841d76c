// Echo between topics: "topic NAME COUNT" receives on NAME, and publishes what came on NAME:back, backwards.
#include <msgq/topic.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Close {
    void operator()(msgq_publisher *publisher) const { msgq_publisher_close(publisher); }
    void operator()(msgq_subscriber *subscriber) const { msgq_subscriber_close(subscriber); }
};

static std::int64_t checked(std::int64_t result) {
    if (result < 0)
        throw std::runtime_error(msgq_error_text());
    return result;
}

static void echo(const std::string &name, int count) {
    msgq_publisher *opened = nullptr;
    msgq_subscriber *joined = nullptr;
    checked(msgq_publisher_open(&opened, (name + ":back").c_str(), nullptr));
    std::unique_ptr<msgq_publisher, Close> publisher(opened);
    checked(msgq_subscriber_open(&joined, name.c_str(), nullptr));
    std::unique_ptr<msgq_subscriber, Close> subscriber(joined);
    std::puts("ready");
    std::fflush(stdout);
    std::vector<char> buffer(65536);
    for (int i = 0; i < count; i++) {
        auto size = checked(msgq_subscriber_receive(subscriber.get(), buffer.data(), buffer.size(), 20.0, nullptr));
        std::reverse(buffer.begin(), buffer.begin() + size);
        checked(msgq_publisher_send(publisher.get(), buffer.data(), static_cast<std::size_t>(size)));
    }
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    try {
        echo(argv[1], std::atoi(argv[2]));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
