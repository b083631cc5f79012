/* The kernels for ARM against the reference, bit for bit, on random layers: convolutions, depthwise and
 * grouped ones, codes of 8 and 16 bits, second addends, masks and ranges. A program of its own, with
 * neither Criterion nor MPI, so that a cross compiler builds it; see arm_kernels.sh. */
#include "core/base/mem.h"
#include "quant/kernel/qconv.h"
#include "tests/quant/quant_random.h"
#include "tests/quant/shapes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 400 };

/* What a kernel makes of a layer. */
typedef struct made {
    void *acc, *y;
    uint8_t *mask;
    float range[2];
} made;

typedef struct layer {
    oct_conv_shape s;
    int64_t samples, out;
    oct_qcodes x;
    int8_t *w;
    oct_epilogue f;
} layer;

static void *room(int64_t count, size_t size)
{
    void *block = NULL;
    if (oct_alloc(&block, (size_t)count, size) != OCT_OK) abort();
    return block;
}

static made make(const oct_kernel *kernel, const layer *l)
{
    made m = {room(l->out, 8), room(l->out, 4), room(l->out / 8 + 8, 1), {INFINITY, -INFINITY}};
    oct_qconv_plan plan;
    oct_qconv_plan_init(&plan, kernel, &l->s, l->x.q);
    void *tables = room(plan.table_bytes, 1), *packed = room(plan.packed_bytes, 1),
         *scratch = room(plan.scratch_bytes, 1);
    oct_qconv_plan_tables(&plan, tables);
    oct_qconv_pack(&plan, l->w, packed);
    oct_qconv_pass pass = {.samples = l->samples, .x = l->x.data, .packed = packed, .y = m.acc};
    oct_qconv_accumulate(&plan, &pass, NULL, NULL, scratch);
    pass.y = m.y;
    pass.mask = m.mask;
    pass.range = m.range;
    oct_qconv_forward(&plan, &pass, &l->f, scratch);
    oct_free(&tables);
    oct_free(&packed);
    oct_free(&scratch);
    return m;
}

static void unmake(made *m)
{
    oct_free(&m->acc);
    oct_free(&m->y);
    oct_free(&m->mask);
}

static bool same(const layer *l, const made *a, const made *b)
{
    const size_t width = oct_codes_dtype(l->x.q) == OCT_U16 ? 8 : 4;
    return memcmp(a->acc, b->acc, (size_t)l->out * width) == 0 &&
           memcmp(a->y, b->y, (size_t)l->out) == 0 &&
           memcmp(a->mask, b->mask, (size_t)(l->out + 7) / 8) == 0 &&
           memcmp(a->range, b->range, sizeof a->range) == 0;
}

static oct_conv_shape roll_shape(dice *d)
{
    const int kernel = (int)roll_between(d, 1, 5), stride = (int)roll_between(d, 1, 3);
    const int padding = (int)roll_between(d, 0, 2);
    const int64_t h = roll_between(d, kernel, 11), w = roll_between(d, kernel, 11);
    const int64_t in = roll_between(d, 1, 36);
    oct_conv_shape s =
        shape_of(h, w, in, roll_between(d, 1, 40), kernel, kernel, stride, padding, 1);
    switch (roll_between(d, 0, 3)) {
    case 0:
        s = shape_of(h, w, in, in, kernel, kernel, stride, padding, (int)in);
        break;
    case 1:
        s = shape_of(h, w, 3 * in, 6, kernel, kernel, stride, padding, 3);
        break;
    default:
        break;
    }
    return roll_between(d, 0, 2) == 0 ? uneven_shape(s, roll(d) % 20736) : s;
}

static bool check(dice *d, const oct_kernel *kernel)
{
    layer l = {.s = roll_shape(d), .samples = roll_between(d, 1, 3)};
    const bool wide = roll_between(d, 0, 3) == 0;
    const int64_t n = l.s.out_c, in = l.samples * oct_conv_in_numel(&l.s) * (wide ? 2 : 1);
    const int64_t weights = n * oct_conv_depth(&l.s);
    uint8_t *codes = room(in, 1), *addend = NULL;
    int32_t *bias32 = room(n, 4);
    int64_t *bias = room(n, 8);
    float *multiplier = room(n, 4);
    l.out = l.samples * oct_conv_out_numel(&l.s);
    l.w = room(weights, 1);
    addend = room(l.out, 1);
    roll_bytes(d, codes, in);
    roll_bytes(d, addend, l.out);
    roll_weights(d, l.w, weights);
    l.x = (oct_qcodes){.q = {1.0f,
                             roll(d) & 1 ? 0
                             : wide      ? 32768
                                         : 128,
                             0, wide ? 65535 : 255},
                       .data = codes};
    for (int64_t c = 0; c < n; c++) {
        bias[c] = bias32[c] = (int32_t)roll_between(d, -3000, 3000);
        multiplier[c] = oct_uniform(roll(d)) * (wide ? 0x1p-14f : 0x1p-6f);
    }
    l.f = (oct_epilogue){.requantizer = OCT_REQUANT_FLOAT,
                         .wide = wide,
                         .acc = wide ? OCT_S64 : OCT_S32,
                         .out = OCT_U8,
                         .q = {.bias = bias32,
                               .multiplier = multiplier,
                               .hi = 255,
                               .relu = roll(d) & 1,
                               .six = roll(d) & 1 ? 60.5f : INFINITY},
                         .bias = bias};
    if (roll(d) & 1) {
        l.f.addend = (oct_qcodes){.q = {1.0f, 128, 0, 255}, .data = addend};
        l.f.addend_multiplier = 0.37f;
    }
    made a = make(kernel, &l), b = make(&oct_kernel_ref, &l);
    const bool equal = same(&l, &a, &b);
    char window[OCT_WINDOW_TEXT];
    if (!equal)
        printf("%s: %lldx%lldx%lld -> %lld, %s, padding %d %d %d %d, groups %d, %s\n", kernel->name,
               (long long)l.s.in_h, (long long)l.s.in_w, (long long)l.s.in_c, (long long)n,
               oct_window_text(&l.s, window), l.s.pad_top, l.s.pad_left, l.s.pad_bottom,
               l.s.pad_right, l.s.groups, wide ? "16 bits" : "8 bits");
    unmake(&a);
    unmake(&b);
    oct_free(&codes);
    oct_free(&addend);
    oct_free(&bias32);
    oct_free(&bias);
    oct_free(&multiplier);
    oct_free(&l.w);
    return equal;
}

int main(void)
{
    static const oct_kernel *const kernels[] = {
#define OCT_KERNEL(ISA, isa) &oct_kernel_##isa,
#include "quant/kernel/kernel_list.def"
#undef OCT_KERNEL
    };
    int wrong = 0;
    for (size_t i = 0; i < OCT_COUNT(kernels); i++) {
        if (!oct_isa_has(oct_cpu_isa(), kernels[i]->isa)) {
            printf("%s: not on this machine\n", kernels[i]->name);
            continue;
        }
        dice d = {.seed = 51};
        int differ = 0;
        for (int round = 0; round < ROUNDS; round++)
            differ += !check(&d, kernels[i]);
        printf("%s: %d of %d layers differ from the reference\n", kernels[i]->name, differ, ROUNDS);
        wrong += differ;
    }
    return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
