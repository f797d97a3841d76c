// Echo between topics: "topic NAME COUNT" receives on NAME, and publishes what came on NAME:back, backwards.
#include <msgq.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace std::chrono_literals;

static void echo(const std::string &name, int count) {
    msgq::Publisher publisher(name + ":back");
    msgq::Subscriber subscriber(name);
    std::puts("ready");
    std::fflush(stdout);
    std::vector<std::byte> buffer(65536);
    for (int i = 0; i < count; i++) {
        auto message = subscriber.receive(buffer, 20s).value();
        std::reverse(message.data.begin(), message.data.end());
        publisher.send(message.data);
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
