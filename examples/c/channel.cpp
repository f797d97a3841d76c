// A calculator on two channels: "channel NAME COUNT" adds up the numbers that come on NAME, and says each sum on
// NAME.sums.
#include <msgq.hpp>

#include <cstdio>
#include <cstdlib>

using namespace std::chrono_literals;

static void add_up(const std::string &name, int count) {
    msgq_channel_options options{};
    options.node = "adder";
    msgq::ChannelPublisher publisher(name + ".sums", options);
    msgq::ChannelSubscriber subscriber(name, options);
    std::puts("ready");
    std::fflush(stdout);
    double sum = 0;
    for (int i = 0; i < count; i++) {
        sum += subscriber.receive_value<double>(20s).value();
        publisher.send_value(sum, 20s).value();
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
