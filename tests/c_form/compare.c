/* Holds every value that a model's C form computes against what Octet's own runtime computes.
 *
 *     codes MODEL COUNT DATA 1 | compare
 *
 * Reads what tests/onnx/codes writes of one sample after the other: the line that describes it, then for each sample
 * the normalised image, its label where there are any, and each value. The model is model.c and model.h, compiled with
 * hook.h. Prints how many samples and values of layers were compared, how many differ, the first layer where one does
 * (-1: none), the same of outputs, as the image and as its pixels give them, what the self-test finds, and
 * the bytes of stack that it took. It takes no memory but the model's input and output and no C library, so a
 * microcontroller runs it, too. */
#include "board.h"
#include "hook.h"
#include "model.h"

/* There are tables of pixels only where the normalisation is known; one image in PIXEL_EVERY is given as pixels, too. */
#ifndef PIXEL_EVERY
#define PIXEL_EVERY 1
#endif
#ifdef PIXEL_MEAN
static uint8_t pixels[MODEL_INPUT_SIZE];
#endif

static float input[MODEL_INPUT_SIZE];
static union output {
    float f32[MODEL_OUTPUT_SIZE];
    int32_t s32[MODEL_OUTPUT_SIZE];
} output, again;

/* OUTPUT: f32, or s32 of models that give numbers of classes. */
#ifndef OUTPUT
#define OUTPUT f32
#endif

static int quiet, broken;
static int64_t values_seen, values_differ, outputs_seen, outputs_differ;
static int first = -1; /* the first layer that differed */

static void read_bytes(void *to, size_t bytes)
{
    if (!board_read(to, bytes)) broken = 1;
}

/* Codes and numbers have the same layout in memory on both machines (little endian): bytes are compared. */
void after_layer(int32_t number, const void *values, int32_t bytes, int32_t width)
{
    static uint8_t expected[1024]; /* whole values: of 1, 2 or 4 bytes */
    const uint8_t *at = values;
    int64_t differ = 0;
    if (quiet) return;
    for (int32_t i = 0; i < bytes && !broken; i += (int32_t)sizeof expected) {
        const int32_t n =
            bytes - i < (int32_t)sizeof expected ? bytes - i : (int32_t)sizeof expected;
        read_bytes(expected, (size_t)n);
        for (int32_t k = 0; k < n; k += width) {
            int same = 1;
            for (int32_t b = k; b < k + width; b++)
                same = same && at[i + b] == expected[b];
            differ += !same;
        }
    }
    *(values == &output ? &outputs_seen : &values_seen) += bytes / width;
    *(values == &output ? &outputs_differ : &values_differ) += differ;
    if (differ > 0 && first < 0) first = number;
}

/* Reads the line of JSON: whether each sample has a label. */
static int has_labels(void)
{
    static const char sign[] = "\"labels\":true";
    size_t fits = 0;
    int found = 0;
    char c;
    while (board_read(&c, 1) && c != '\n') {
        fits = c == sign[fits] ? fits + 1 : c == sign[0];
        if (fits < sizeof sign - 1) continue;
        found = 1;
        fits = 0;
    }
    return found;
}

/* What else computes a sample has to give the same. */
static void check_again(void)
{
    for (size_t i = 0; i < MODEL_OUTPUT_SIZE; i++)
        outputs_differ += again.s32[i] != output.s32[i];
    outputs_seen += MODEL_OUTPUT_SIZE;
}

static void run_pixels(void)
{
#ifdef PIXEL_MEAN
    static float table[256];
    static int ready;
    const float unit = 1.0F / 255.0F, mean = PIXEL_MEAN, inverse = 1.0F / PIXEL_STD;
    for (int b = 0; b < 256 && !ready; b++) { /* volatile: each operation rounds by itself */
        volatile float scaled = (float)b * unit;
        scaled = scaled - mean;
        table[b] = scaled * inverse;
    }
    ready = 1;
    for (size_t i = 0; i < MODEL_INPUT_SIZE; i++) {
        int b = 0;
        while (b < 256 && table[b] != input[i])
            b++;
        if (b == 256) broken = 1;
        pixels[i] = (uint8_t)b;
    }
    model_run_pixels(pixels, again.OUTPUT);
    check_again();
#endif
}

static void say(const char *text)
{
    size_t length = 0;
    while (text[length])
        length++;
    board_write(text, length);
}

static void say_number(const char *what, int64_t number)
{
    char digits[24];
    size_t at = sizeof digits;
    uint64_t rest = number < 0 ? 0U - (uint64_t)number : (uint64_t)number;
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (number < 0) digits[--at] = '-';
    say(what);
    board_write(digits + at, sizeof digits - at);
}

int main(void)
{
    const int labels = has_labels();
    int64_t samples = 0;
    int32_t label, self_test;
    size_t stack;
    quiet = 1;
    board_watch_stack();
    self_test = model_self_test();
    stack = board_stack();
    quiet = 0;
    while (board_read(input, sizeof input) && !broken) {
        if (labels) read_bytes(&label, sizeof label);
        model_run(input, output.OUTPUT);
        quiet = 1;
        if (samples % PIXEL_EVERY == 0) run_pixels();
        quiet = 0;
        samples++;
    }
    say_number("samples ", samples);
    say_number(" values ", values_seen);
    say_number(" differ ", values_differ);
    say_number(" first ", first);
    say_number(" outputs ", outputs_seen);
    say_number(" differ ", outputs_differ);
    say_number(" self-test ", self_test);
    say_number(" stack ", (int64_t)stack);
    say("\n");
    return broken || samples == 0 || values_differ > 0 || outputs_differ > 0 || self_test != 0 ||
           stack > MODEL_STACK_BYTES;
}
