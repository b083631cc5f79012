/* Elementwise functions on every code, also on those outside of a function's domain; and dropout of codes in
 * training, which evaluation and the program do not know. */
#include "core/nn/modules.h"
#include "tests/quant/stubbed.h"

#include <math.h>

static const oct_quant_rule *const rules[] = {
#define OCT_ELEMENTWISE(name, args) &oct_quant_rule_##name,
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE
};

static oct_module *by_table(const oct_quant_rule *rule)
{
    const oct_elementwise *f = rule->elementwise;
    oct_module *m = NULL, *made = NULL;
    OK(oct_module_make(&m, rule->type, &f->default_args));
    OK(oct_quant_rule_make(rule, oct_target_find("x86"), &made, &m));
    stubbed_adopt(made, (quantizer){8, !oct_quant_rule_is_non_negative(rule), 0.02f},
                  oct_target_find("x86"));
    return made;
}

/* All codes, from -scale * 2^(bits - 1) on. */
static void begin_all_codes(bench *b, const oct_quant_rule *rule, int bits, float scale)
{
    const int codes = 1 << bits;
    const oct_shape shape = OCT_SHAPE(2, codes / 2);
    bench_begin(b, "x86", by_table(rule), 1, &shape, &(quantizer){bits, true, scale});
    for (int i = 0; i < codes; i++)
        b->x[0][i] = scale * (float)(i - codes / 2);
}

/* Scales so fine and so coarse that exp(x) is 1, and infinite; every table has numbers all the same. */
Test(elementwise_codes, have_a_value_and_a_slope_each)
{
    static const float scales[] = {0x1p-20f, 0.03f, 9.0f};
    for (size_t k = 0; k < OCT_COUNT(rules) * OCT_COUNT(scales) * 2; k++) {
        bench b;
        const oct_quant_rule *rule = rules[k / 2 / OCT_COUNT(scales)];
        const int bits = k % 2 ? 16 : 8;
        begin_all_codes(&b, rule, bits, scales[k / 2 % OCT_COUNT(scales)]);
        oct_tensor *y = bench_forward(&b, true);
        const int64_t n = oct_numel(y);
        const oct_fake_quant *fq =
            (const oct_fake_quant *)oct_module_find(b.root, "middle.fake_quant");
        cr_assert(isfinite(fq->batch_range[0]) && isfinite(fq->batch_range[1]),
                  "%s: range [%g, %g]", rule->type->name, (double)fq->batch_range[0],
                  (double)fq->batch_range[1]);
        float *ones = malloc((size_t)n * sizeof *ones);
        for (int64_t i = 0; i < n; i++)
            ones[i] = 1;
        bench_backward(&b, y, ones);
        cr_assert(oct_all_finite(b.input[0]->grad, n), "%s: a gradient is not finite",
                  rule->type->name);
        free(ones);
        bench_end(&b);
    }
}

static float at(const bench *b, const oct_tensor *y, float x)
{
    for (int i = 0; i < 256; i++)
        if (b->x[0][i] == x) return oct_f32(y)[i];
    cr_assert_fail("%g is no code", (double)x);
    return 0;
}

/* Below 0 a root is that of 0; a logarithm, as at 0, the least that there is; 1 / 0 is the largest. */
Test(elementwise_codes, continue_a_domain_at_its_end)
{
    bench b;
    begin_all_codes(&b, &oct_quant_rule_sqrt, 8, 0.25f);
    const oct_tensor *y = bench_forward(&b, false);
    cr_assert(at(&b, y, -0.25f) == 0 && at(&b, y, -9) == 0 && at(&b, y, 1) == 1);
    bench_end(&b);
    begin_all_codes(&b, &oct_quant_rule_logarithm, 8, 0.25f);
    y = bench_forward(&b, false);
    const float least = -128 * 0.02f;
    cr_assert(at(&b, y, 0) == least && at(&b, y, -0.25f) == least && at(&b, y, -9) == least);
    cr_assert(at(&b, y, 1) == 0 && at(&b, y, 0.25f) > least);
    bench_end(&b);
    begin_all_codes(&b, &oct_quant_rule_reciprocal, 8, 0.25f);
    y = bench_forward(&b, false);
    cr_assert(at(&b, y, 0) == 127 * 0.02f && at(&b, y, -1) == -1 && at(&b, y, 1) == 1);
    bench_end(&b);
}

/* Dropout between two quantized layers. */
static void begin_dropout(bench *b, const char *target)
{
    oct_module *dropout;
    const oct_shape shape = OCT_SHAPE(6, 5, 5, 7);
    OK(oct_dropout_create(&dropout, 0.25));
    oct_module_train(dropout, true);
    bench_begin(b, target, dropout, 1, &shape, &(quantizer){8, true, 0x1p-5f});
}

static oct_tensor *drop(bench *b, bool active)
{
    oct_context_begin(b->cx, b->leaves, true);
    b->cx->draws = (oct_draws){.active = active, .seed = 11};
    b->input[0] = oct_tensor_view(b->cx, OCT_F32, b->shape[0], b->x[0]);
    b->input[0]->needs_grad = true;
    oct_tensor *y = oct_module_call(b->cx, b->root, b->input, 1);
    OK(oct_context_status(b->cx));
    return y;
}

Test(dropout_codes, act_on_the_values_that_evaluation_has)
{
    static const char *const targets[] = {"x86", "pow2"};
    for (size_t t = 0; t < OCT_COUNT(targets); t++) {
        bench b;
        begin_dropout(&b, targets[t]);
        const int64_t n = oct_shape_numel(&b.shape[0]);
        float *plain = malloc((size_t)n * sizeof *plain), *ones = malloc((size_t)n * sizeof *ones);
        memcpy(plain, drop(&b, false)->data, (size_t)n * sizeof *plain);
        oct_tensor *y = drop(&b, true);
        float *dropped = malloc((size_t)n * sizeof *dropped);
        memcpy(dropped, y->data, (size_t)n * sizeof *dropped);
        for (int64_t i = 0; i < n; i++)
            ones[i] = 1;
        bench_backward(&b, y, ones);
        int64_t kept = 0;
        for (int64_t i = 0; i < n; i++) {
            const float grad = b.input[0]->grad[i];
            kept += grad != 0;
            cr_assert(grad == 0 || fabsf(grad - 1 / 0.75f) < 1e-6f);
            cr_assert_float_eq(dropped[i], grad * plain[i], 0x1p-5, "%g became %g",
                               (double)plain[i], (double)dropped[i]);
        }
        cr_assert(kept > n * 7 / 10 && kept < n * 8 / 10);
        free(plain);
        free(ones);
        free(dropped);
        bench_end(&b);
    }
}
