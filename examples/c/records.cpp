// A controller on a board: "records NAME COUNT" waits for each change of "wish", and writes twice of it to "state".
#include <msgq.hpp>

#include <cstdio>
#include <cstdlib>

using namespace std::chrono_literals;

static void control(const char *name, int count) {
    msgq::Board board(name);
    auto state = board.declare("state");
    auto wish = board.find("wish").value(); // who wishes was there before
    std::puts("ready");
    std::fflush(stdout);
    msgq_value info{};
    for (int i = 0; i < count; i++) {
        if (!board.wait(wish, info.count, 20s))
            throw std::runtime_error("no wish arrived");
        double value = 2 * board.read_value<double>(wish, &info).value();
        board.write_value(state, value);
        std::printf("%.1f\n", value);
        std::fflush(stdout);
    }
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    try {
        control(argv[1], std::atoi(argv[2]));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
