// A stage between two work queues: "queue NAME COUNT" takes jobs of NAME, and sends what it made of them to NAME.done.
#include <msgq.hpp>

#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>

using namespace std::chrono_literals;

static msgq::Queue open_queue(const std::string &name) {
    msgq_queue_options options{};
    options.max_messages = 8;
    options.max_message_size = 64;
    return msgq::Queue(name, options);
}

static void work(const std::string &name, int count) {
    msgq::Queue todo = open_queue(name), done = open_queue(name + ".done");
    std::puts("ready");
    std::fflush(stdout);
    for (int i = 0; i < count; i++) {
        std::array<std::byte, 64> text;
        msgq::Job job = todo.take(text, 20s, 10s).value(); // returns to the queue if an exception ends the block
        for (std::byte &letter : job.message.data)
            letter = static_cast<std::byte>(std::toupper(static_cast<unsigned char>(letter)));
        if (!done.send(job.message.data, job.message.info.priority, 20s))
            throw std::runtime_error("the queue is full, and nobody receives");
        job.acknowledge();
    }
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    try {
        work(argv[1], std::atoi(argv[2]));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
