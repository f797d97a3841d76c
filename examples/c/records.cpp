// A controller on a board: "records NAME COUNT" waits for each change of "wish", and writes twice of it to "state".
#include <msgq/records.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>

struct Close {
    void operator()(msgq_board *board) const { msgq_board_close(board); }
};

static std::int64_t checked(std::int64_t result) {
    if (result < 0)
        throw std::runtime_error(msgq_error_text());
    return result;
}

static void control(const char *name, int count) {
    msgq_board *opened = nullptr;
    checked(msgq_board_open(&opened, name, nullptr));
    std::unique_ptr<msgq_board, Close> board(opened);
    auto state = checked(msgq_board_declare(board.get(), "state"));
    auto wish = checked(msgq_board_find(board.get(), "wish")); // who wishes was there before
    std::puts("ready");
    std::fflush(stdout);
    msgq_value about{};
    for (int i = 0; i < count; i++) {
        double value = 0;
        checked(msgq_board_wait(board.get(), wish, about.count, 20.0));
        checked(msgq_board_read(board.get(), wish, &value, sizeof value, &about));
        value *= 2;
        checked(msgq_board_write(board.get(), state, &value, sizeof value));
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
