/* Windows against the definition of a convolution, forward and backward to data, over random shapes:
 * one word a tap, products computed by following rows and runs. */
#include "core/base/rng.h"
#include "core/product/conv_window.h"
#include "core/tensor/conv_shape.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 31, CASES = 400, SAMPLES = 5 };

static int64_t draw(uint64_t *counter, int64_t least, int64_t most)
{
    uint32_t bits[4];
    oct_philox(SEED, OCT_STREAM_TEST, (*counter)++, 0, bits);
    return least + bits[0] % (most - least + 1);
}

static oct_conv_shape random_shape(uint64_t *counter)
{
    oct_conv_shape s = {.in_c = 1, .out_c = 1, .groups = 1};
    do {
        s.in_h = draw(counter, 1, 12);
        s.in_w = draw(counter, 1, 12);
        s.kernel_h = (int)draw(counter, 1, 5);
        s.kernel_w = (int)draw(counter, 1, 5);
        s.stride_h = (int)draw(counter, 1, 4);
        s.stride_w = (int)draw(counter, 1, 4);
        s.pad_top = (int)draw(counter, 0, 3);
        s.pad_left = (int)draw(counter, 0, 3);
        s.pad_bottom = (int)draw(counter, 0, 3);
        s.pad_right = (int)draw(counter, 0, 3);
        s.dilation_h = (int)draw(counter, 1, 4);
        s.dilation_w = (int)draw(counter, 1, 4);
        oct_conv_set_out(&s);
    } while (s.out_h < 1 || s.out_w < 1);
    return s;
}

/* A word is an int32 and a tile is one. */
static void multiply(const oct_product *p, const int32_t *tiles)
{
    for (int64_t i = 0; i < p->m; i++) {
        int32_t sum = 0;
        for (int64_t t = 0; t < p->num_runs; t++)
            for (int64_t k = 0; k < p->runs[t].words; k++) {
                int32_t word;
                memcpy(&word, (const char *)p->x + p->rows[i].x + p->runs[t].x + 4 * k,
                       sizeof word);
                sum += word * tiles[p->runs[t].tile + k];
            }
        ((int32_t *)p->acc)[p->rows[i].acc] += sum + 1; /* 1: each position once */
    }
}

static void by_window(const oct_conv_shape *s, oct_direction direction, int64_t wanted,
                      const int32_t *x, const int32_t *tiles, int32_t *y)
{
    const oct_conv_window_layout layout = {
        .pixel_bytes = 4, .tap_words = 1, .acc_stride = 1, .wanted = wanted};
    oct_conv_window w;
    oct_conv_window_init(&w, s, direction, &layout);
    void *memory = malloc(w.table_bytes);
    oct_conv_window_tables(&w, memory);
    for (int64_t n = 0; n < SAMPLES; n += w.period) {
        const int64_t now = SAMPLES - n < w.period ? SAMPLES - n : w.period;
        for (int64_t i = 0; i < w.num_blocks; i++) {
            const oct_conv_window_block *b = &w.blocks[i];
            cr_assert_leq(b->positions, w.lines * w.x_axis.positions * w.period);
            for (int64_t j = 0; j < b->classes; j++) {
                const oct_conv_window_class *c = &w.classes[b->first_class + j];
                cr_assert_eq(c->rows % w.period, 0);
                const oct_product p = oct_conv_window_product(
                    &w, c, now, (const char *)x + n * w.x_bytes, y + n * w.positions + b->position);
                multiply(&p, tiles);
            }
        }
    }
    free(memory);
}

/* Every pair of an output and an input position with a tap between them. */
static void by_definition(const oct_conv_shape *s, oct_direction direction, const int32_t *x,
                          const int32_t *tiles, int32_t *y)
{
    for (int64_t n = 0; n < SAMPLES; n++)
        for (int64_t out = 0; out < s->out_h * s->out_w; out++)
            for (int64_t tap = 0; tap < s->kernel_h * s->kernel_w; tap++) {
                const int64_t iy =
                    out / s->out_w * s->stride_h - s->pad_top + tap / s->kernel_w * s->dilation_h;
                const int64_t ix =
                    out % s->out_w * s->stride_w - s->pad_left + tap % s->kernel_w * s->dilation_w;
                if (iy < 0 || iy >= s->in_h || ix < 0 || ix >= s->in_w) continue;
                const int64_t from = n * s->out_h * s->out_w + out;
                const int64_t to = n * s->in_h * s->in_w + iy * s->in_w + ix;
                if (direction == OCT_FORWARD)
                    y[from] += x[to] * tiles[tap];
                else
                    y[to] += x[from] * tiles[tap];
            }
}

static void compare(oct_direction direction)
{
    uint64_t counter = 0;
    for (int i = 0; i < CASES; i++) {
        const oct_conv_shape s = random_shape(&counter);
        const int64_t most = SAMPLES * 40 * 40, wanted = draw(&counter, 1, 80);
        int32_t *x = calloc((size_t)most, 4), *y = calloc((size_t)most, 4),
                *expected = calloc((size_t)most, 4);
        int32_t tiles[25];
        for (int64_t k = 0; k < most; k++)
            x[k] = (int32_t)(k * 7 % 23) - 11;
        for (int k = 0; k < 25; k++)
            tiles[k] = 3 * k + 1;
        by_window(&s, direction, wanted, x, tiles, y);
        by_definition(&s, direction, x, tiles, expected);
        const int64_t positions = direction == OCT_FORWARD ? s.out_h * s.out_w : s.in_h * s.in_w;
        for (int64_t k = 0; k < SAMPLES * positions; k++)
            cr_assert_eq(y[k], expected[k] + 1, "case %d, position %lld", i, (long long)k);
        for (int64_t k = SAMPLES * positions; k < most; k++)
            cr_assert_eq(y[k], 0);
        free(x);
        free(y);
        free(expected);
    }
}

Test(window, forward_positions_get_their_taps)
{
    compare(OCT_FORWARD);
}

Test(window, backward_positions_get_their_taps)
{
    compare(OCT_BACKWARD);
}

Test(window, neighbouring_taps_of_a_line_are_one_run)
{
    const oct_conv_shape s = oct_conv_shape_of(8, 8, 16, 16, oct_conv_geometry_of(3, 3, 1, 1, 1));
    const oct_conv_window_layout layout = {
        .pixel_bytes = 16, .tap_words = 4, .acc_stride = 16, .wanted = 64};
    oct_conv_window w;
    oct_conv_window_init(&w, &s, OCT_FORWARD, &layout);
    void *memory = malloc(w.table_bytes);
    oct_conv_window_tables(&w, memory);
    cr_assert_eq(w.num_blocks, 1);
    cr_assert_eq(w.blocks[0].classes, 9);
    int64_t inner = 0;
    for (int64_t i = 0; i < 9; i++) {
        cr_assert_leq(w.classes[i].runs, 3);
        if (w.classes[i].rows == 36) inner++;
    }
    cr_assert_eq(inner, 1);
    free(memory);
}
