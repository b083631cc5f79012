/* The arithmetic of targets espdl-s3, espdl-p4 and bpu against their published formulas, which a script computes in
 * whole numbers (tests/golden/make_hardware_golden.py): programs of one layer, run by the runtime. */
#include "tests/golden/hardware_golden.h"

typedef struct cases {
    const char *target;
    const layer_conv *conv;
    const layer_binary *add, *mul, *concat;
    const layer_pool *pool;
    size_t convs, adds, muls, concats, pools;
} cases;

#define CASES(name, prefix)                                                                        \
    {                                                                                              \
        .target = (name), .conv = prefix##_conv_cases, .convs = OCT_COUNT(prefix##_conv_cases),    \
        .add = prefix##_add_cases, .adds = OCT_COUNT(prefix##_add_cases),                          \
        .mul = prefix##_mul_cases, .muls = OCT_COUNT(prefix##_mul_cases),                          \
        .concat = prefix##_concat_cases, .concats = OCT_COUNT(prefix##_concat_cases),              \
        .pool = prefix##_pool_cases, .pools = OCT_COUNT(prefix##_pool_cases),                      \
    }
static const cases all[] = {CASES("espdl-s3", espdl_s3), CASES("espdl-p4", espdl_p4),
                            CASES("bpu", bpu)};

Test(hardware, convolutions_are_the_formulas)
{
    uint8_t codes[1024];
    for (size_t t = 0; t < OCT_COUNT(all); t++)
        for (size_t i = 0; i < all[t].convs; i++)
            layer_run_conv(all[t].target, &all[t].conv[i], codes);
    check_nothing_held();
}

Test(hardware, sums_are_the_formulas)
{
    for (size_t t = 0; t < OCT_COUNT(all); t++)
        for (size_t i = 0; i < all[t].adds; i++) {
            const layer_binary *k = &all[t].add[i];
            layer l;
            uint8_t codes[1024];
            layer_begin_binary(&l, all[t].target, OCT_STEP_ADD, k);
            const oct_value *v = l.program.values;
            l.step->add = oct_qadd_of(v[l.x[0]].q, v[l.x[1]].q, v[l.y].q, k->relu);
            layer_run_binary(&l, k, codes);
        }
    check_nothing_held();
}

Test(hardware, products_are_the_formulas)
{
    for (size_t t = 0; t < OCT_COUNT(all); t++)
        for (size_t i = 0; i < all[t].muls; i++) {
            const layer_binary *k = &all[t].mul[i];
            layer l;
            uint8_t codes[1024];
            layer_begin_binary(&l, all[t].target, OCT_STEP_MUL, k);
            const oct_value *v = l.program.values;
            l.step->mul.factor = oct_qmul_factor(v[l.x[0]].q, v[l.x[1]].q, v[l.y].q);
            layer_run_binary(&l, k, codes);
        }
    check_nothing_held();
}

Test(hardware, concatenated_codes_are_the_formulas)
{
    for (size_t t = 0; t < OCT_COUNT(all); t++)
        for (size_t i = 0; i < all[t].concats; i++) {
            const layer_binary *k = &all[t].concat[i];
            const uint8_t *const x[] = {k->a, k->b};
            layer l;
            uint8_t codes[2048];
            oct_value v[3];
            for (int j = 0; j < 3; j++)
                v[j] = (oct_value){
                    .h = 1, .w = 1, .c = 1 + j / 2, .q = layer_qparams(k->scale[j], 128)};
            layer_begin(&l, all[t].target, OCT_STEP_CONCAT, v, 2, v[2]);
            layer_run(&l, k->count, x, codes);
            for (int e = 0; e < k->count; e++) {
                cr_assert_eq(codes[2 * e], k->a[e]);
                cr_assert_eq(codes[2 * e + 1], k->y[e], "%s, %s: code %d of %d is %d, not %d",
                             all[t].target, k->name, e, k->b[e], codes[2 * e + 1], k->y[e]);
            }
        }
    check_nothing_held();
}

Test(hardware, averages_are_the_formulas)
{
    for (size_t t = 0; t < OCT_COUNT(all); t++)
        for (size_t i = 0; i < all[t].pools; i++) {
            const layer_pool *k = &all[t].pool[i];
            const oct_qparams q = {0x1p-5f, 128, 0, 255};
            layer l;
            uint8_t codes[1024];
            layer_begin(&l, all[t].target, OCT_STEP_AVG_POOL,
                        &(oct_value){.h = k->in_h, .w = k->in_w, .c = k->c, .q = q}, 1,
                        (oct_value){.h = k->out_h, .w = k->out_w, .c = k->c, .q = q});
            l.step->pool.shape =
                program_shape(k->in_h, k->in_w, k->c, k->c, k->kernel, k->stride, k->padding, k->c);
            l.step->pool.half_up = oct_target_find(all[t].target)->pools_half_up;
            l.step->pool.fixed =
                oct_rounding_of(oct_target_find(all[t].target)->requantizer)->averages;
            l.step->pool.count_include_pad = k->include_pad;
            layer_run(&l, 1, &k->x, codes);
            for (int e = 0; e < k->out_h * k->out_w * k->c; e++)
                cr_assert_eq(codes[e], k->y[e], "%s, %s: code %d is %d, not %d", all[t].target,
                             k->name, e, codes[e], k->y[e]);
        }
    check_nothing_held();
}
