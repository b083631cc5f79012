/* A 3x3 layer of 64 channels on 16x16 by one kernel, PASSES times: arm_kernels.sh counts its instructions. Usage:
 * arm_count bytes|floats TABLE PASSES. */
#include "core/base/mem.h"
#include "core/kernel/conv.h"
#include "quant/kernel/qconv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIDE = 16,
    CHANNELS = 64,
    VALUES = SIDE * SIDE * CHANNELS,
    WEIGHTS = CHANNELS * 9 * CHANNELS
};

static void *room(int64_t bytes)
{
    void *block = NULL;
    if (oct_alloc(&block, (size_t)bytes, 1) != OCT_OK) abort();
    return block;
}

static void multiply_bytes(const char *name, const oct_conv_shape *s, int passes)
{
    static const oct_kernel *const kernels[] = {
#define OCT_KERNEL(ISA, isa) &oct_kernel_##isa,
#include "quant/kernel/kernel_list.def"
#undef OCT_KERNEL
    };
    size_t k = 0;
    while (strcmp(kernels[k]->name, name) != 0)
        if (++k == OCT_COUNT(kernels)) abort();
    static const int32_t bias[CHANNELS];
    static const float multiplier[CHANNELS];
    oct_qconv_plan plan;
    oct_qconv_plan_init(&plan, kernels[k], s, (oct_qparams){.scale = 1, .qmax = 255}, 1);
    void *scratch = room(plan.scratch_bytes), *packed = room(plan.packed_bytes);
    oct_qconv_plan_tables(&plan, room(plan.table_bytes));
    oct_qconv_pack(&plan, room(WEIGHTS), packed);
    const oct_qconv_pass pass = {
        .samples = 1, .x = room(VALUES), .packed = packed, .y = room(VALUES)};
    const oct_epilogue f = {.requantizer = OCT_REQUANT_FLOAT,
                            .acc = OCT_S32,
                            .out = OCT_U8,
                            .q = {.bias = bias, .multiplier = multiplier, .hi = 255}};
    for (int i = 0; i < passes; i++)
        oct_qconv_forward(&plan, &pass, &f, scratch);
}

static void multiply_floats(const char *name, const oct_conv_shape *s, int passes)
{
    static const oct_float_kernel *const kernels[] = {
#define OCT_FLOAT_KERNEL(ISA, isa) &oct_float_kernel_##isa,
#include "core/kernel/float_kernel_list.def"
#undef OCT_FLOAT_KERNEL
    };
    size_t k = 0;
    while (strcmp(kernels[k]->name, name) != 0)
        if (++k == OCT_COUNT(kernels)) abort();
    const oct_conv_config config = {.shape = *s,
                                    .kernel = kernels[k],
                                    .numerics = OCT_NUMERICS_F32,
                                    .input = OCT_F32,
                                    .leaf = 1,
                                    .max_leaves = 1,
                                    .products = OCT_CONV_FORWARD};
    oct_conv_plan plan;
    oct_conv_plan_init(&plan, &config);
    void *packed = room((int64_t)plan.forward.packed_bytes);
    oct_conv_plan_tables(&plan, room((int64_t)plan.table_bytes));
    oct_conv_forward_pack(&plan, room(WEIGHTS * 4), packed);
    const oct_conv_pass pass = {
        .samples = 1, .x = room(VALUES * 4), .packed = packed, .y = room(VALUES * 4)};
    void *scratch = room((int64_t)plan.forward.scratch_bytes);
    for (int i = 0; i < passes; i++)
        oct_conv_forward(&plan, &pass, scratch);
}

int main(int argc, char **argv)
{
    oct_conv_shape s = {.in_h = SIDE,
                        .in_w = SIDE,
                        .in_c = CHANNELS,
                        .out_c = CHANNELS,
                        .kernel_h = 3,
                        .kernel_w = 3,
                        .stride_h = 1,
                        .stride_w = 1,
                        .pad_top = 1,
                        .pad_bottom = 1,
                        .pad_left = 1,
                        .pad_right = 1,
                        .dilation_h = 1,
                        .dilation_w = 1,
                        .groups = 1};
    oct_conv_set_out(&s);
    if (argc != 4) return EXIT_FAILURE;
    if (strcmp(argv[1], "bytes") == 0)
        multiply_bytes(argv[2], &s, (int)strtol(argv[3], NULL, 10));
    else
        multiply_floats(argv[2], &s, (int)strtol(argv[3], NULL, 10));
    return EXIT_SUCCESS;
}
