// An int8 model in C++11: ./classes MODEL FRAMES classifies raw frames in two threads, each with a copy of the net.
#include <octet/net.h>
#include <fstream>
#include <future>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <vector>

class Net {
    oct_net *net = nullptr;
    static void check(oct_status status) { if (status != OCT_OK) throw std::runtime_error(oct_error_message(0)); }

public:
    explicit Net(const char *path) { check(oct_net_open(&net, path, nullptr)); }
    Net(const Net &other) { check(oct_net_clone(&net, other.net)); }
    Net &operator=(const Net &) = delete;
    ~Net() { oct_net_close(&net); }
    size_t pixels() const { return oct_net_pixels(net); }
    size_t rows() const { return static_cast<size_t>(oct_net_num_rows(net)); }
    void classify(const uint8_t *frame, int32_t *classes) { check(oct_net_classify(net, 1, frame, nullptr, classes, nullptr)); }
};

int main(int argc, char **argv) try {
    Net first(argc > 1 ? argv[1] : nullptr), second(first);
    std::ifstream file(argc > 2 ? argv[2] : "", std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto *frames = reinterpret_cast<const uint8_t *>(bytes.data());
    if (bytes.empty() || first.pixels() == 0) throw std::runtime_error("there are no frames, or the net takes none");
    std::vector<int32_t> classes(bytes.size() / first.pixels() * first.rows());
    const auto work = [&](Net &net, size_t n) {
        for (; n * net.rows() < classes.size(); n += 2) net.classify(frames + n * net.pixels(), &classes[n * net.rows()]);
    };
    auto other = std::async(std::launch::async, [&] { work(second, 1); });
    work(first, 0);
    other.get();
    for (int k : classes) std::cout << "class " << k << "\n";
} catch (const std::exception &e) {
    return std::cerr << "classes: " << e.what() << "\n", 1;
}
