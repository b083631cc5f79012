/* Convolutions of codes, affine layers among them, their spreading and their bounds, against direct loops
 * written here, on every instruction set of this machine. */
#include "quant/kernel/qconv.h"

#include "tests/quant/epilogue_oracle.h"
#include "tests/quant/shapes.h"

#include <stdlib.h>

static int64_t code_at(oct_qcodes x, int64_t i)
{
    return oct_codes_dtype(x.q) == OCT_U16 ? ((const uint16_t *)x.data)[i]
                                           : ((const uint8_t *)x.data)[i];
}

/* One sum, straight from the definition; x is one sample. */
static int64_t oracle_sum(const oct_conv_shape *s, oct_qcodes x, const int8_t *w, int64_t oy,
                          int64_t ox, int64_t o)
{
    const int64_t group_c = s->in_c / s->groups, group = o / (s->out_c / s->groups);
    int64_t sum = 0;
    for (int64_t ky = 0; ky < s->kernel_h; ky++)
        for (int64_t kx = 0; kx < s->kernel_w; kx++)
            for (int64_t c = 0; c < group_c; c++) {
                const int64_t y = oy * s->stride_h - s->pad_top + ky * s->dilation_h,
                              at = ox * s->stride_w - s->pad_left + kx * s->dilation_w;
                const bool inside = y >= 0 && y < s->in_h && at >= 0 && at < s->in_w;
                const int64_t code =
                    inside ? code_at(x, (y * s->in_w + at) * s->in_c + group * group_c + c)
                           : x.q.zero_point;
                sum += code * w[((o * s->kernel_h + ky) * s->kernel_w + kx) * group_c + c];
            }
    return sum;
}

/* A layer with its plan, tables and packed weights, and scratch. */
typedef struct planned {
    oct_qconv_plan plan;
    void *tables, *packed, *scratch;
} planned;

/* Gives a plan memory and weights; the scratch is spoilt. */
static planned plan_memory(const oct_qconv_plan *plan, const int8_t *w)
{
    planned l = {.plan = *plan};
    l.tables = room(l.plan.table_bytes, 1);
    l.packed = room(l.plan.packed_bytes, 1);
    l.scratch = room(l.plan.scratch_bytes, 1);
    oct_qconv_plan_tables(&l.plan, l.tables);
    oct_qconv_pack(&l.plan, w, l.packed);
    memset(l.scratch, 0x5a, (size_t)l.plan.scratch_bytes);
    return l;
}

static planned plan_layer(const oct_kernel *kernel, const oct_conv_shape *s, oct_qparams in,
                          int64_t samples, const int8_t *w)
{
    oct_qconv_plan plan;
    oct_qconv_plan_init(&plan, kernel, s, in, samples);
    return plan_memory(&plan, w);
}

static void plan_free(planned *l)
{
    oct_free(&l->tables);
    oct_free(&l->packed);
    oct_free(&l->scratch);
}

/* Accumulators that a visit has shown, in the order in which it did. */
typedef struct visited {
    char *acc;
    int64_t position, bytes; /* of a position */
} visited;

static void keep_and_overwrite(void *args, int64_t position, int64_t positions, void *acc)
{
    visited *v = args;
    cr_assert(position == v->position && positions > 0);
    memcpy(v->acc + position * v->bytes, acc, (size_t)(positions * v->bytes));
    memset(acc, 0x5a, (size_t)(positions * v->bytes));
    v->position += positions;
}

/* accumulate against the definition. */
static void check_sums(const oct_kernel *kernel, const oct_conv_shape *s, int64_t samples,
                       oct_qcodes x, const int8_t *w, const void *acc)
{
    const int64_t in = s->in_h * s->in_w * s->in_c, pixels = s->out_h * s->out_w;
    char window[OCT_WINDOW_TEXT];
    oct_window_text(s, window);
    for (int64_t i = 0; i < samples * pixels * s->out_c; i++) {
        const int64_t pixel = i / s->out_c % pixels, sample = i / s->out_c / pixels;
        const int64_t sum = oracle_sum(s, oct_qcodes_from(x, sample * in), w, pixel / s->out_w,
                                       pixel % s->out_w, i % s->out_c);
        const int64_t got =
            oct_codes_dtype(x.q) == OCT_U16 ? ((const int64_t *)acc)[i] : ((const int32_t *)acc)[i];
        cr_assert_eq(got, sum,
                     "%s: %lldx%lldx%lld -> %lld, %s, padding %d %d %d %d, groups %d, "
                     "element %lld: %lld, not %lld",
                     kernel->name, (long long)s->in_h, (long long)s->in_w, (long long)s->in_c,
                     (long long)s->out_c, window, s->pad_top, s->pad_left, s->pad_bottom,
                     s->pad_right, s->groups, (long long)i, (long long)got, (long long)sum);
    }
}

/* Any of the layers that there are: codes of 8 or 16 bits in and out, or float out, a addend, shifts. */
static oct_epilogue roll_layer(dice *d, bool wide, int64_t out, int64_t n, int32_t *bias32,
                               int64_t *bias, float *multiplier, oct_fixed *fixed, uint8_t *addend)
{
    static const oct_dtype outs[] = {OCT_U8, OCT_U8, OCT_U16, OCT_F32};
    const oct_dtype to = outs[oct_below(roll(d), OCT_COUNT(outs))];
    const int64_t choice = roll_between(d, 0, 3);
    const oct_requantizer by = choice == 0            ? OCT_REQUANT_SHIFT
                               : choice == 1 && !wide ? OCT_REQUANT_DOUBLE
                                                      : OCT_REQUANT_FLOAT;
    const bool add = by == OCT_REQUANT_FLOAT && roll(d) & 1;
    const bool wide_addend = add && roll(d) & 1;
    oct_epilogue f = roll_epilogue(d, by, wide || wide_addend || to == OCT_U16, wide, to, n, bias32,
                                   bias, multiplier, fixed);
    for (int64_t c = 0; c < n; c++)
        multiplier[c] *= 0x1p-8f;
    for (int64_t c = 0; c < n; c++)
        fixed[c] = oct_fixed_of(by, (double)multiplier[c]);
    if (oct_epilogue_is_float(&f) && roll_between(d, 0, 3) == 0)
        multiplier[oct_below(roll(d), (uint32_t)n)] *= 0x1p40f; /* to beyond int32 */
    if (!add) return f;
    roll_bytes(d, addend, out * 2);
    f.addend = (oct_qcodes){.q = roll_qparams(d, wide_addend), .data = addend};
    f.addend_multiplier = 0.75f;
    return f;
}

/* forward against the oracle on the accumulators; x is exactly as large as needed, so that a sanitizer
 * build sees a read beyond it. */
static void check_width(const oct_kernel *kernel, dice *d, const oct_conv_shape *s, int64_t samples,
                        bool wide)
{
    const int64_t in = s->in_h * s->in_w * s->in_c, pixels = s->out_h * s->out_w;
    const int64_t out = samples * pixels * s->out_c, width = wide ? 2 : 1;
    const int64_t weights = s->out_c * s->kernel_h * s->kernel_w * (s->in_c / s->groups);
    uint8_t *codes = malloc((size_t)(samples * in * width)); /* oct_alloc leaves room over */
    int8_t *w = room(weights, 1);
    int32_t *bias32 = room(s->out_c, 4);
    int64_t *bias = room(s->out_c, 8);
    oct_fixed *fixed = room(s->out_c, sizeof *fixed);
    float *multiplier = room(s->out_c, 4), range[2] = {INFINITY, -INFINITY};
    uint8_t *addend = room(out, 2), *mask = room((out + 7) / 8, 1);
    void *acc = room(out, 8), *y = room(out, 4), *bare = room(out, 4);
    const oct_qcodes x = {.q = roll_qparams(d, wide), .data = codes};
    const oct_epilogue f =
        roll_layer(d, wide, out, s->out_c, bias32, bias, multiplier, fixed, addend);
    roll_bytes(d, codes, samples * in * width);
    roll_weights(d, w, weights);

    planned l = plan_layer(kernel, s, x.q, samples, w);
    oct_qconv_pass pass = {.samples = samples, .x = codes, .packed = l.packed, .y = acc};
    memset(acc, 0x5a, (size_t)out * 8);
    oct_qconv_accumulate(&l.plan, &pass, NULL, NULL, l.scratch);
    check_sums(kernel, s, samples, x, w, acc);
    visited seen = {.acc = room(out, 8), .bytes = s->out_c * (wide ? 8 : 4)};
    pass.y = NULL;
    oct_qconv_accumulate(&l.plan, &pass, keep_and_overwrite, &seen, l.scratch);
    cr_assert_eq(seen.position, samples * pixels);
    cr_assert_arr_eq(seen.acc, acc, (size_t)(seen.position * seen.bytes));
    oct_free(&seen.acc);
    visited kept = {.acc = room(out, 8), .bytes = seen.bytes};
    void *all = pass.y = room(out, 8);
    oct_qconv_accumulate(&l.plan, &pass, keep_and_overwrite, &kept, l.scratch);
    cr_assert_arr_eq(kept.acc, acc, (size_t)(seen.position * seen.bytes));
    oct_free(&kept.acc);
    oct_free(&all);

    memset(mask, 0x5a, (size_t)(out + 7) / 8);
    pass.y = y;
    pass.mask = mask;
    pass.range = range;
    oct_qconv_forward(&l.plan, &pass, &f, l.scratch);
    check_epilogue(kernel->name, &f, out, s->out_c, acc, y, mask, range);
    pass = (oct_qconv_pass){.samples = samples, .x = codes, .packed = l.packed, .y = bare};
    oct_qconv_forward(&l.plan, &pass, &f, l.scratch);
    cr_assert_arr_eq(bare, y, (size_t)out * oct_dtype_bytes(f.out));

    plan_free(&l);
    free(codes);
    oct_free(&w);
    oct_free(&bias32);
    oct_free(&bias);
    oct_free(&fixed);
    oct_free(&multiplier);
    oct_free(&addend);
    oct_free(&mask);
    oct_free(&acc);
    oct_free(&y);
    oct_free(&bare);
}

static void check_conv(const oct_kernel *kernel, dice *d, const oct_conv_shape *s, int64_t samples)
{
    check_width(kernel, d, s, samples, false);
    check_width(kernel, d, s, samples, true);
}

static oct_conv_shape roll_shape(dice *d)
{
    const int kernel_h = (int)roll_between(d, 1, 5), kernel_w = (int)roll_between(d, 1, 5);
    const int padding = (int)roll_between(d, 0, 3), stride = (int)roll_between(d, 1, 3);
    const int64_t h = roll_between(d, kernel_h, 12), w = roll_between(d, kernel_w, 12);
    int groups = 1;
    int64_t in_c = roll_between(d, 1, 20), out_c = roll_between(d, 1, 40);
    if (roll_between(d, 0, 2) == 0) {
        groups = (int)roll_between(d, 1, 4);
        in_c = groups * roll_between(d, 1, 9);
        out_c = groups * roll_between(d, 1, 9);
    }
    return shape_of(h, w, in_c, out_c, kernel_h, kernel_w, stride, padding, groups);
}

Test(qconv, equals_direct_convolution_on_random_shapes)
{
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        dice d = {.seed = 21};
        for (int round = 0; round < 200; round++) {
            const oct_conv_shape s = roll_shape(&d);
            check_conv(all_kernels[i], &d, &s, roll_between(&d, 1, 4));
        }
        /* Samples enough to fill tiles with the corners of a small plane, and too few at the end. */
        const oct_conv_shape small = shape_of(4, 4, 16, 40, 3, 3, 1, 1, 1);
        for (int64_t samples = 7; samples <= 20; samples += 13)
            for (int round = 0; round < 4; round++)
                check_conv(all_kernels[i], &d, &small, samples);
    }
}

Test(qconv, equals_direct_convolution_with_sides_of_their_own_and_dilation)
{
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        dice d = {.seed = 25};
        for (int round = 0; round < 150; round++) {
            oct_conv_shape s = roll_shape(&d);
            if (round % 3 == 0) s.out_c = s.in_c, s.groups = (int)s.in_c; /* depthwise */
            if (round % 5 == 0) s.in_c *= 4;                              /* whole words */
            if (round % 15 == 0) s.out_c = s.in_c, s.groups = (int)s.in_c;
            s = uneven_shape(s, roll(&d) % 20736);
            check_conv(all_kernels[i], &d, &s, roll_between(&d, 1, 3));
        }
    }
}

Test(qconv, equals_direct_convolution_for_depthwise_filters)
{
    static const int64_t channels[] = {2, 3, 7, 8, 15, 16, 17, 24, 32, 33, 48, 63, 64, 65, 96, 130};
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        dice d = {.seed = 22};
        for (size_t j = 0; j < OCT_COUNT(channels); j++) {
            for (int kernel = 1; kernel <= 5; kernel += 2) {
                const int stride = (int)roll_between(&d, 1, 2),
                          padding = roll(&d) & 1 ? kernel / 2 : 0;
                const oct_conv_shape s = shape_of(7, 6, channels[j], channels[j], kernel, kernel,
                                                  stride, padding, (int)channels[j]);
                check_conv(all_kernels[i], &d, &s, 2);
            }
        }
        /* Several filters a channel go the general way. */
        const oct_conv_shape twice = shape_of(5, 5, 6, 12, 3, 3, 1, 1, 6);
        check_conv(all_kernels[i], &d, &twice, 2);
    }
}

Test(qconv, equals_direct_convolution_for_layers_of_networks)
{
    const oct_conv_shape shapes[] = {
        shape_of(28, 28, 1, 8, 5, 5, 1, 2, 1),   /* first layer of a small network */
        shape_of(32, 32, 3, 16, 3, 3, 1, 1, 1),  /* of an RGB one */
        shape_of(1, 1, 400, 120, 1, 1, 1, 0, 1), /* linear */
        shape_of(1, 1, 84, 10, 1, 1, 1, 0, 1),
        shape_of(1, 1, 37, 3, 1, 1, 1, 0, 1),  /* linear with an odd width */
        shape_of(8, 8, 32, 24, 1, 1, 1, 0, 1), /* pointwise */
        shape_of(8, 8, 16, 32, 1, 1, 2, 0, 1), /* a shortcut */
        shape_of(4, 4, 64, 65, 3, 3, 1, 1, 1), /* a deep, small plane */
        shape_of(2, 2, 16, 16, 3, 3, 1, 1, 1),
        shape_of(3, 3, 256, 130, 3, 3, 1, 1, 1), /* weights taken by some columns at a time */
        shape_of(3, 300, 4, 5, 3, 3, 1, 1, 1),   /* lines longer than a block */
        shape_of(4, 4, 8, 7, 4, 4, 1, 0, 1),     /* the window is the plane */
        shape_of(1, 1, 4, 9, 3, 3, 1, 1, 1),     /* mostly border */
        shape_of(5, 5, 4, 300, 2, 2, 2, 0, 1),
    };
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        if (!runs_here(all_kernels[i])) continue;
        dice d = {.seed = 23};
        for (size_t j = 0; j < OCT_COUNT(shapes); j++) {
            check_conv(all_kernels[i], &d, &shapes[j], 3);
            check_conv(all_kernels[i], &d, &shapes[j], shapes[j].in_h == 1 ? 300 : 1);
        }
        check_conv(all_kernels[i], &d, &shapes[6], 0);
    }
}

static oct_conv_shape shape_of_three(int64_t h, int64_t w, int64_t in_c, int64_t out_c, int pad)
{
    return shape_of(h, w, in_c, out_c, 3, 3, 1, pad, 1);
}

/* Says whether a table takes tiles of results for that many samples. */
static bool takes_tiles(const oct_kernel *kernel, const oct_conv_shape *s, int64_t samples)
{
    return oct_winograd_side(&kernel->bytes, s, samples) > 0;
}

/* Columns enough that a table with pairs_codes widens a copy of its input: large planes line by line, small ones as whole
 * samples, whose windows the padding cuts off; groups, strides, dilation, and panels that are not full. */
Test(qconv, equals_direct_convolution_of_widened_codes)
{
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        const oct_kernel *kernel = all_kernels[i];
        if (!runs_here(kernel)) continue;
        dice d = {.seed = 27};
        for (int round = 0; round < 24; round++) {
            const int groups = round % 4 == 3 ? 2 : 1, window = (int)roll_between(&d, 0, 2) * 2 + 1;
            oct_conv_shape s =
                shape_of(roll_between(&d, 5, round % 2 ? 8 : 16), roll_between(&d, 5, 16),
                         4 * groups * roll_between(&d, 1, 5), groups * roll_between(&d, 32, 50),
                         window, window, (int)roll_between(&d, 1, 2), window / 2, groups);
            if (round % 6 == 5) s.dilation_h = s.dilation_w = 2;
            oct_conv_set_out(&s);
            oct_qconv_plan plan;
            oct_qconv_plan_init(&plan, kernel, &s, (oct_qparams){.qmax = 255}, 3);
            const bool widens = kernel->pairs_codes && !plan.winograd.bytes;
            cr_assert_eq(plan.term_bytes, widens ? 2 : 1);
            check_conv(kernel, &d, &s, roll_between(&d, 1, 3));
        }
    }
}

/* Planes of odd and even sides, of one block and of several; whole samples together, and too few at the end; channels of one
 * part and of two. */
Test(qconv, equals_direct_convolution_by_tiles)
{
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        const oct_kernel *kernel = all_kernels[i];
        if (!runs_here(kernel)) continue;
        const bool pairs = kernel->bytes.pairs != NULL;
        int by_tiles = 0;
        dice d = {.seed = 26};
        for (int round = 0; round < 10; round++) {
            const int64_t channels = 16 * roll_between(&d, 5, 7);
            oct_conv_shape s =
                shape_of_three(roll_between(&d, 11, 16), roll_between(&d, 15, 24),
                               channels + (round % 5 == 4 ? 144 : 0), 16 * roll_between(&d, 5, 7),
                               (int)roll_between(&d, 0, 2));
            s.pad_left = (int)roll_between(&d, 0, 2);
            s.pad_bottom = (int)roll_between(&d, 0, 4);
            oct_conv_set_out(&s);
            by_tiles += takes_tiles(kernel, &s, 1);
            if (pairs) check_conv(kernel, &d, &s, roll_between(&d, 1, 3));
        }
        cr_assert(pairs ? by_tiles >= 5 : by_tiles == 0);
        if (!pairs) continue;
        const oct_conv_shape small = shape_of_three(8, 8, 64, 80, 1);
        cr_assert(takes_tiles(kernel, &small, 1));
        for (int64_t samples = 1; samples <= 8; samples++)
            check_conv(kernel, &d, &small, samples);
        /* Many weights only for many tiles, of 2 x 2 where 4 x 4 would have too many. */
        const oct_conv_shape heavy = shape_of_three(8, 8, 256, 256, 1);
        cr_assert(takes_tiles(kernel, &heavy, 4));
        check_conv(kernel, &d, &heavy, 4);
        const oct_conv_shape most = shape_of_three(4, 4, 512, 272, 1);
        cr_assert_eq(takes_tiles(kernel, &most, 8), kernel->bytes.pairs_time == 1);
        cr_assert(!takes_tiles(kernel, &most, 1));
        check_conv(kernel, &d, &most, 8);
        const oct_conv_shape least = shape_of_three(2, 2, 64, 64, 1);
        cr_assert(!takes_tiles(kernel, &least, 9));
    }
}

enum { END_SIDE = 8, END_OUTS = 64, END_INS = 1024 };

/* side: of the tiles where bytes are multiplied as pairs. */
static void check_ends_of_tiles(int64_t ins, int side)
{
    const oct_conv_shape s = shape_of_three(END_SIDE, END_SIDE, ins, END_OUTS, 1);
    static uint8_t x[END_SIDE * END_SIDE * END_INS];
    static int8_t w[END_OUTS * 9 * END_INS];
    static int32_t acc[END_SIDE * END_SIDE * END_OUTS];
    for (int64_t i = 0; i < END_SIDE * END_SIDE * ins; i++) { /* stripes, squares, and all */
        const int64_t y = i / ins / END_SIDE, at = i / ins % END_SIDE;
        x[i] = (y / 2 + at / 3) % 3 == 0 && (y + at) % 2 ? 0 : 255;
    }
    for (int64_t i = 0; i < END_OUTS * 9 * ins; i++) {
        const int64_t o = i / ins / 9, ky = i / ins % 9 / 3, kx = i / ins % 3;
        const bool down = o & 1 && ky == 1, across = o & 2 && kx == 1, least = o & 4;
        w[i] = down != across ? (least ? 127 : -128) : least ? -128 : 127;
    }
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        const oct_kernel *kernel = all_kernels[i];
        if (!runs_here(kernel)) continue;
        const bool here = kernel->bytes.pairs && (side == 4 || kernel->bytes.pairs_time == 1);
        cr_assert_eq(oct_winograd_side(&kernel->bytes, &s, 8), here ? side : 0);
        for (int32_t zero_point = 0; zero_point <= 255; zero_point += 255) {
            const oct_qparams in = {.zero_point = zero_point, .qmax = 255};
            planned l = plan_layer(kernel, &s, in, 8, w);
            const oct_qconv_pass pass = {.samples = 1, .x = x, .packed = l.packed, .y = acc};
            oct_qconv_accumulate(&l.plan, &pass, NULL, NULL, l.scratch);
            check_sums(kernel, &s, 1, (oct_qcodes){.q = in, .data = x}, w, acc);
            plan_free(&l);
        }
    }
}

/* The largest sums on the way, with each sign, and the largest results: of tiles of 4 x 4 for the most channels of a part, two
 * such parts, and the fewest that need two; of tiles of 2 x 2 for the most channels of a part. */
Test(qconv, sums_tiles_exactly_at_their_ends)
{
    check_ends_of_tiles(224, 4);
    check_ends_of_tiles(448, 4);
    check_ends_of_tiles(240, 4);
    check_ends_of_tiles(END_INS, 2);
}

/* The ends of everything: products of bytes that fill int32 are combined without loss. */
Test(qconv, sums_16_bit_codes_exactly_at_their_ends)
{
    enum { K = 33152 }; /* a multiple of every tile, next to OCT_MAX_PRODUCTS */
    const oct_conv_shape s = shape_of(1, 1, K, 2, 1, 1, 1, 0, 1);
    static uint16_t x[K];
    static int8_t w[2 * K];
    for (int i = 0; i < K; i++) {
        x[i] = 65535;
        w[i] = 127;
        w[K + i] = -127;
    }
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        const oct_kernel *kernel = all_kernels[i];
        if (!runs_here(kernel)) continue;
        const oct_qparams in = {.zero_point = 32768, .qmax = 65535};
        int64_t acc[2];
        planned l = plan_layer(kernel, &s, in, 1, w);
        oct_qconv_accumulate(&l.plan,
                             &(oct_qconv_pass){.samples = 1, .x = x, .packed = l.packed, .y = acc},
                             NULL, NULL, l.scratch);
        cr_assert_eq(acc[0], INT64_C(127) * 65535 * K);
        cr_assert_eq(acc[1], INT64_C(-127) * 65535 * K);
        plan_free(&l);
    }
}

static void check_affine(const oct_kernel *kernel, dice *d, bool wide, int64_t samples,
                         const oct_conv_shape *s)
{
    const int64_t n = s->out_c, count = samples * oct_conv_out_numel(s);
    void *codes = room(count, 2), *acc = room(count, 8), *y = room(count, 4), *got = room(count, 8);
    int8_t *weight = room(n, 1);
    int32_t *bias32 = room(n, 4);
    int64_t *bias = room(n, 8);
    oct_fixed *fixed = room(n, sizeof *fixed);
    float *multiplier = room(n, 4), range[2] = {INFINITY, -INFINITY};
    uint8_t *addend = room(count, 2), *mask = room((count + 7) / 8, 1);
    const oct_qcodes x = {.q = roll_qparams(d, wide), .data = codes};
    const oct_epilogue f = roll_layer(d, wide, count, n, bias32, bias, multiplier, fixed, addend);
    roll_bytes(d, codes, count * 2);
    for (int64_t c = 0; c < n; c++)
        weight[c] = (int8_t)roll_between(d, -1, 1);
    for (int64_t i = 0; i < count; i++) {
        const int64_t sum = (code_at(x, i) - x.q.zero_point) * weight[i % n] * 32768;
        if (wide)
            ((int64_t *)acc)[i] = sum;
        else
            ((int32_t *)acc)[i] = (int32_t)sum;
    }
    oct_qconv_plan plan;
    oct_qconv_plan_affine(&plan, kernel, s, x.q);
    planned l = plan_memory(&plan, weight);
    oct_qconv_pass pass = {.samples = samples, .x = codes, .packed = l.packed, .y = got};
    oct_qconv_accumulate(&l.plan, &pass, NULL, NULL, l.scratch);
    cr_assert_arr_eq(got, acc, (size_t)count * (wide ? 8 : 4));
    pass.y = y;
    pass.mask = mask;
    pass.range = range;
    oct_qconv_forward(&l.plan, &pass, &f, l.scratch);
    check_epilogue(kernel->name, &f, count, n, acc, y, mask, range);
    plan_free(&l);
    oct_free(&codes);
    oct_free(&acc);
    oct_free(&got);
    oct_free(&y);
    oct_free(&weight);
    oct_free(&bias32);
    oct_free(&bias);
    oct_free(&fixed);
    oct_free(&multiplier);
    oct_free(&addend);
    oct_free(&mask);
}

static oct_conv_shape plane_of(int64_t h, int64_t w, int64_t c)
{
    return shape_of(h, w, c, c, 1, 1, 1, 0, (int)c);
}

Test(qconv, scales_each_channel_by_an_affine_plan)
{
    for (size_t i = 0; i < OCT_COUNT(all_kernels); i++) {
        const oct_kernel *kernel = all_kernels[i];
        if (!runs_here(kernel)) continue;
        dice d = {.seed = 30};
        for (int round = 0; round < 100; round++) {
            const int64_t h = roll_between(&d, 1, 12), w = roll_between(&d, 1, 12);
            const oct_conv_shape s = plane_of(h, w, roll_between(&d, 1, 70));
            check_affine(kernel, &d, round & 1, roll_between(&d, 1, 4), &s);
        }
        const oct_conv_shape flat = plane_of(1, 1, 5), deep = plane_of(1, 1, 1300);
        const oct_conv_shape wide = plane_of(3, 300, 3);
        check_affine(kernel, &d, false, 700, &flat);
        check_affine(kernel, &d, true, 3, &deep);
        check_affine(kernel, &d, true, 2, &wide);
        check_affine(kernel, &d, true, 0, &wide);
    }
}

Test(qconv_bound, is_reached_and_never_passed)
{
    dice d = {.seed = 51};
    for (int round = 0; round < 200; round++) {
        const oct_conv_shape s = shape_of(3, 3, 4, 2, 3, 3, 1, 0, 1);
        int8_t w[2 * 36];
        uint8_t x[36];
        roll_weights(&d, w, 72);
        const int32_t lo = (int32_t)roll_between(&d, 0, 100),
                      hi = (int32_t)roll_between(&d, 100, 255);
        const int32_t bias = (int32_t)roll_between(&d, -900000, 900000);
        const int64_t bound = oct_qconv_bound(&s, w, 1, bias, lo, hi);
        int64_t reached = 0;
        for (int sign = -1; sign <= 1; sign += 2) {
            int64_t sum = bias;
            for (int i = 0; i < 36; i++)
                sum += (int64_t)w[36 + i] * (w[36 + i] * sign > 0 ? hi : lo);
            reached = llabs(sum) > reached ? llabs(sum) : reached;
        }
        cr_assert_geq(bound, reached);
        for (int trial = 0; trial < 20; trial++) {
            int64_t sum = 0;
            for (int i = 0; i < 36; i++) {
                x[i] = (uint8_t)roll_between(&d, lo, hi);
                sum += (int64_t)x[i] * w[36 + i];
                cr_assert_leq(llabs(sum), bound, "partial sums count");
            }
            cr_assert_leq(llabs(sum + bias), bound);
        }
        if (lo == 0) cr_assert_leq(bound, reached + llabs((int64_t)bias));
    }
    const oct_conv_shape deep = shape_of(1, 1, 66312, 1, 1, 1, 1, 0, 1);
    int8_t *w = room(66312, 1);
    memset(w, 127, 66312);
    cr_assert_gt(oct_qconv_bound(&deep, w, 0, 0, 0, 255), INT32_MAX);
    cr_assert_eq(oct_qconv_bound(&deep, w, 0, -5, 0, 1), 66312 * 127);
    oct_free(&w);
}
