// Computes what rounding.c wrote, with gemmlowp's fixed point (Debian's libgemmlowp-dev), and compares it code by code.
//
//     rounding | judge
//
// The products are gemmlowp's own functions. What surrounds them, constants of doubles and the order of steps, is
// written down here from the definition of TFLite's reference kernels. Prints a line for each kind; ends with 1 where a
// code differs.
#include "rounding.h"

#include <gemmlowp/fixedpoint/fixedpoint.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

struct Multiplier {
    int32_t value;
    int exponent;
};

// A real number in 31 bits.
Multiplier multiplier_of(double real)
{
    Multiplier m = {0, 0};
    const double part = std::frexp(real, &m.exponent);
    int64_t value = std::llround(part * 2147483648.0);
    if (value == INT64_C(2147483648)) {
        value /= 2;
        ++m.exponent;
    }
    if (m.exponent < -31) return {0, 0};
    m.value = static_cast<int32_t>(value);
    return m;
}

int32_t times(int32_t x, Multiplier m)
{
    const int left = std::max(m.exponent, 0), right = std::max(-m.exponent, 0);
    return gemmlowp::RoundingDivideByPOT(
        gemmlowp::SaturatingRoundingDoublingHighMul(x * (1 << left), m.value), right);
}

int cut(int32_t code, int most)
{
    return std::min(std::max(code, 0), most);
}

template <typename T> std::vector<T> read(int count)
{
    std::vector<T> items(static_cast<size_t>(count));
    if (std::fread(items.data(), sizeof(T), items.size(), stdin) != items.size()) {
        std::fprintf(stderr, "judge: the stream ends early\n");
        std::exit(2);
    }
    return items;
}

struct Count {
    long long all, differ;
};

void compare(Count &count, int expected, int found)
{
    ++count.all;
    count.differ += expected != found;
}

void judge_layer(const rounding_head &h, Count &count)
{
    const std::vector<int32_t> sum = read<int32_t>(h.count);
    const std::vector<uint16_t> code = read<uint16_t>(h.count);
    const Multiplier m = multiplier_of(static_cast<double>(h.scale[0]) * static_cast<double>(h.scale[1]) /
                                       static_cast<double>(h.scale[2]));
    for (size_t i = 0; i < sum.size(); ++i)
        compare(count, cut(times(sum[i], m) + 32768, 65535), code[i]);
}

// Sums have doubles, differences floats.
void judge_sum(const rounding_head &h, const std::vector<uint8_t> *codes, Count &count)
{
    const bool subtract = h.kind == ROUNDING_SUB;
    const float twice = 2 * std::max(h.scale[0], h.scale[1]);
    double ratio[3] = {static_cast<double>(h.scale[0]) / static_cast<double>(twice),
                       static_cast<double>(h.scale[1]) / static_cast<double>(twice),
                       static_cast<double>(twice) / ((1 << 20) * static_cast<double>(h.scale[2]))};
    if (subtract) {
        ratio[0] = h.scale[0] / twice;
        ratio[1] = h.scale[1] / twice;
        ratio[2] = twice / ((1 << 20) * h.scale[2]);
    }
    const Multiplier a = multiplier_of(ratio[0]), b = multiplier_of(ratio[1]), y = multiplier_of(ratio[2]);
    for (size_t i = 0; i < codes[0].size(); ++i) {
        const int32_t first = times((codes[0][i] - h.zero_point[0]) * (1 << 20), a);
        const int32_t second = times((codes[1][i] - h.zero_point[1]) * (1 << 20), b);
        const int32_t sum = subtract ? first - second : first + second;
        compare(count, cut(times(sum, y) + h.zero_point[2], 255), codes[2][i]);
    }
}

void judge_product(const rounding_head &h, const std::vector<uint8_t> *codes, Count &count)
{
    const Multiplier m = multiplier_of(static_cast<double>(h.scale[0]) * static_cast<double>(h.scale[1]) /
                                       static_cast<double>(h.scale[2]));
    for (size_t i = 0; i < codes[0].size(); ++i) {
        const int32_t product = (codes[0][i] - h.zero_point[0]) * (codes[1][i] - h.zero_point[1]);
        compare(count, cut(times(product, m) + h.zero_point[2], 255), codes[2][i]);
    }
}

void judge_rescaled(const rounding_head &h, Count &count)
{
    const std::vector<uint8_t> x = read<uint8_t>(h.count), y = read<uint8_t>(h.count);
    const Multiplier m =
        multiplier_of(static_cast<double>(h.scale[0]) / static_cast<double>(h.scale[2]));
    for (size_t i = 0; i < x.size(); ++i)
        compare(count, cut(times(x[i] - h.zero_point[0], m) + h.zero_point[2], 255), y[i]);
}

// TFLite has these as int8; its least code is -128.
void judge_function(const rounding_head &h, Count &count)
{
    typedef gemmlowp::FixedPoint<int32_t, 4> Input;
    const bool logistic = h.kind == ROUNDING_LOGISTIC;
    const std::vector<uint8_t> x = read<uint8_t>(h.count), y = read<uint8_t>(h.count);
    int left;
    const double part = std::frexp(static_cast<double>(h.scale[0]) * (1 << 27), &left);
    const Multiplier m = {static_cast<int32_t>(std::llround(part * 2147483648.0)), left};
    const int radius = static_cast<int>(std::floor(1.0 * 15 * (INT64_C(1) << 27) / std::ldexp(1.0, left)));
    for (size_t i = 0; i < x.size(); ++i) {
        const int32_t code = x[i] - h.zero_point[0];
        int32_t expected = 127;
        if (code <= -radius) {
            expected = -128;
        } else if (code < radius) {
            const Input in = Input::FromRaw(times(code, m));
            const int32_t out = logistic ? gemmlowp::logistic(in).raw() : gemmlowp::tanh(in).raw();
            expected = gemmlowp::RoundingDivideByPOT(out, logistic ? 23 : 24) - (logistic ? 128 : 0);
        }
        compare(count, cut(expected + 128, 255), y[i]);
    }
}

} // namespace

int main()
{
    static const char *const names[ROUNDING_KINDS] = {"layers", "sums", "differences", "products",
                                                      "rescaled codes", "logistic", "tanh"};
    Count counts[ROUNDING_KINDS] = {};
    rounding_head h;
    while (std::fread(&h, sizeof h, 1, stdin) == 1) {
        if (h.kind < 0 || h.kind >= ROUNDING_KINDS || h.count < 0 || h.count > (1 << 20)) return 2;
        Count &count = counts[h.kind];
        if (h.kind == ROUNDING_LAYER) {
            judge_layer(h, count);
        } else if (h.kind == ROUNDING_RESCALE) {
            judge_rescaled(h, count);
        } else if (h.kind >= ROUNDING_LOGISTIC) {
            judge_function(h, count);
        } else {
            const std::vector<uint8_t> a = read<uint8_t>(h.count), b = read<uint8_t>(h.count);
            const std::vector<uint8_t> codes[] = {a, b, read<uint8_t>(h.count)};
            if (h.kind == ROUNDING_MUL)
                judge_product(h, codes, count);
            else
                judge_sum(h, codes, count);
        }
    }
    long long differ = 0;
    for (int k = 0; k < ROUNDING_KINDS; ++k) {
        std::printf("%s: %lld of %lld differ\n", names[k], counts[k].differ, counts[k].all);
        differ += counts[k].differ + (counts[k].all == 0);
    }
    return differ == 0 ? 0 : 1;
}
