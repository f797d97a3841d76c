// A calculator on two channels: "channel NAME COUNT" adds up the numbers that come on NAME, and says each sum on
// NAME.sums.
#include <msgq/channel.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

struct Close {
    void operator()(msgq_channel_publisher *publisher) const { msgq_channel_publisher_close(publisher); }
    void operator()(msgq_channel_subscriber *subscriber) const { msgq_channel_subscriber_close(subscriber); }
};

static std::int64_t checked(std::int64_t result) {
    if (result < 0)
        throw std::runtime_error(msgq_error_text());
    return result;
}

static void add_up(const std::string &name, int count) {
    msgq_channel_options options{};
    msgq_channel_publisher *opened = nullptr;
    msgq_channel_subscriber *joined = nullptr;
    options.node = "adder";
    checked(msgq_channel_publisher_open(&opened, (name + ".sums").c_str(), &options));
    std::unique_ptr<msgq_channel_publisher, Close> publisher(opened);
    checked(msgq_channel_subscriber_open(&joined, name.c_str(), &options));
    std::unique_ptr<msgq_channel_subscriber, Close> subscriber(joined);
    std::puts("ready");
    std::fflush(stdout);
    double sum = 0, number = 0;
    for (int i = 0; i < count; i++) {
        checked(msgq_channel_receive(subscriber.get(), &number, sizeof number, 20.0, nullptr));
        sum += number;
        checked(msgq_channel_send(publisher.get(), &sum, sizeof sum, 20.0));
    }
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    try {
        add_up(argv[1], std::atoi(argv[2]));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
