// A stage between two work queues: "queue NAME COUNT" takes jobs of NAME, and sends what it made of them to NAME.done.
#include <msgq/queue.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

struct Close {
    void operator()(msgq_queue *queue) const { msgq_queue_close(queue); }
};
using Queue = std::unique_ptr<msgq_queue, Close>;

static std::int64_t checked(std::int64_t result) {
    if (result < 0)
        throw std::runtime_error(msgq_error_text());
    return result;
}

static Queue opened(const std::string &name) {
    msgq_queue *queue = nullptr;
    msgq_queue_options options{};
    options.max_messages = 8;
    options.max_message_size = 64;
    checked(msgq_queue_open(&queue, name.c_str(), &options));
    return Queue(queue);
}

static void work(const std::string &name, int count) {
    Queue todo = opened(name), done = opened(name + ".done");
    std::puts("ready");
    std::fflush(stdout);
    for (int i = 0; i < count; i++) {
        char text[64];
        msgq_job job{};
        msgq_message about{};
        auto size = checked(msgq_queue_take(todo.get(), text, sizeof text, 20.0, 10.0, &job, &about));
        for (std::int64_t k = 0; k < size; k++)
            text[k] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[k])));
        checked(msgq_queue_send(done.get(), text, static_cast<std::size_t>(size), about.priority, 20.0));
        checked(msgq_queue_acknowledge(todo.get(), &job));
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
