/* A convolution's plan of all products, and the memory that it asks for, full of garbage. */
#pragma once

#include "core/base/mem.h"
#include "core/kernel/conv.h"

#include <criterion/criterion.h>
#include <string.h>

static inline void *take_dirty(size_t bytes)
{
    void *block;
    cr_assert_eq(oct_alloc(&block, bytes + 1, 1), OCT_OK);
    memset(block, 0xff, bytes);
    return block;
}

typedef struct planned {
    oct_conv_plan plan;
    void *tables, *packed, *scratch;
} planned;

static inline size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline oct_conv_plan plan_of(const oct_conv_shape *s, const oct_float_kernel *k,
                                    oct_numerics numerics, oct_dtype input, int64_t leaf)
{
    const oct_conv_config config = {.shape = *s,
                                    .kernel = k,
                                    .numerics = numerics,
                                    .input = input,
                                    .leaf = leaf > 0 ? leaf : 1,
                                    .max_leaves = OCT_CONV_MAX_LEAVES,
                                    .products = OCT_CONV_FORWARD | OCT_CONV_BACKWARD_DATA |
                                                OCT_CONV_BACKWARD_WEIGHT};
    oct_conv_plan plan;
    oct_conv_plan_init(&plan, &config);
    return plan;
}

static inline planned planned_for(const oct_conv_config *config)
{
    planned p;
    oct_conv_plan_init(&p.plan, config);
    const oct_conv_product *forward = &p.plan.forward, *data = &p.plan.data;
    const size_t scratch = larger(forward->scratch_bytes, data->scratch_bytes);
    p.tables = take_dirty(p.plan.table_bytes);
    p.packed = take_dirty(larger(forward->packed_bytes, data->packed_bytes));
    p.scratch = take_dirty(larger(scratch, p.plan.weight.scratch_bytes));
    oct_conv_plan_tables(&p.plan, p.tables);
    return p;
}

static inline planned planned_of(const oct_conv_shape *s, const oct_float_kernel *k,
                                 oct_numerics numerics, oct_dtype input, int64_t leaf)
{
    const oct_conv_plan p = plan_of(s, k, numerics, input, leaf);
    return planned_for(&p.config);
}

/* The same whose passes have the gradient as floats. */
static inline planned planned_with_floats(const planned *p)
{
    oct_conv_config config = p->plan.config;
    config.grad_is_floats = true;
    return planned_for(&config);
}

static inline void free_planned(planned *p)
{
    oct_free(&p->tables);
    oct_free(&p->packed);
    oct_free(&p->scratch);
}
