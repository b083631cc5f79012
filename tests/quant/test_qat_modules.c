/* The elementwise modules and pools on codes: forward and backward against the float ops at the
 * dequantized values, the integer program that they write against their own evaluation, and what they
 * say when they are wired wrongly. (Convolutions have test_qat_conv.c.)
 */
#include "core/nn/params.h"
#include "tests/quant/own_methods.h"
#include "tests/quant/shapes.h"
#include "tests/quant/stubbed.h"
#include "tests/support/check_status.h"

#include <math.h>
#include <omp.h>

/* The modules that are tested: every rule that makes one, with arguments that its type needs and ranges
 * in which its output clips. */
typedef struct kind {
    const char *name;
    const oct_quant_rule *rule;
    oct_op_args args;
    float reach; /* of the output's codes, beyond which it has values; 0: no matter which */
    bool relu;   /* of add: fused with one */
    int repeats; /* which of two inputs does, over positions (1, 2) or channels (-1, -2); 0: none */
    int inputs;
    oct_module *module; /* in float */
} kind;

static const struct {
    const char *type, *name;
    oct_op_args args;
    float reach;
    bool relu;
    int repeats;
} given[] = {
    {.type = "add", .reach = 5},
    {.type = "add", .name = "add + relu", .reach = 5, .relu = true},
    {.type = "add", .name = "add to channels", .reach = 5, .repeats = 2},
    {.type = "add", .name = "add + relu to positions", .reach = 5, .relu = true, .repeats = -1},
    {.type = "sub", .reach = 5},
    {.type = "sub", .name = "sub of channels", .reach = 5, .repeats = 2},
    {.type = "sub", .name = "sub from channels", .reach = 5, .repeats = 1},
    {.type = "mul", .reach = 9},
    {.type = "mul", .name = "mul with channels", .reach = 9, .repeats = 2},
    {.type = "mul", .name = "mul of channels", .reach = 9, .repeats = 1},
    {.type = "mul", .name = "mul with positions", .reach = 9, .repeats = -2},
    {.type = "prelu", .args = {1, {1}}},
    {.type = "prelu", .name = "prelu of channels", .args = {1, {37}}},
    {.type = "clip", .args = {2, {-1.5, 2.25}}},
    {.type = "clip", .name = "clip below", .args = {2, {0.3, HUGE_VAL}}},
    {.type = "hard_sigmoid", .args = {2, {1.0 / 6, 0.5}}, .reach = 0.9f},
    {.type = "sigmoid", .reach = 0.9f},
    {.type = "leaky_relu", .args = {1, {0.1}}},
    {.type = "add_scalar", .args = {1, {-0.3}}},
    {.type = "mul_scalar", .args = {1, {-1.7}}, .reach = 3},
    {.type = "interpolate", .name = "nearest", .args = {3, {7, 5, OCT_NEAREST}}},
    {.type = "interpolate", .name = "bilinear", .args = {3, {7, 16, OCT_BILINEAR}}},
    {.type = "interpolate", .name = "corners", .args = {3, {7, 16, OCT_BILINEAR_CORNERS}}},
    {.type = "interpolate", .name = "asymmetric", .args = {3, {5, 16, OCT_BILINEAR_ASYMMETRIC}}},
    {.type = "interpolate", .name = "nearest centre", .args = {3, {3, 12, OCT_NEAREST_ROUND}}},
    {.type = "interpolate", .name = "centre before", .args = {3, {3, 12, OCT_NEAREST_HALF}}},
    {.type = "pad", .args = {8, {1, 2, 0, 3, 0, 5, 0, OCT_PAD_CONSTANT}}},
    {.type = "pad", .name = "mirror", .args = {8, {3, 0, 1, 2, 4, 1, 0, OCT_PAD_REFLECT}}},
    {.type = "pad", .name = "edge", .args = {8, {1, 0, 9, 2, 0, 2, 0, OCT_PAD_EDGE}}},
    {.type = "avg_pool", .args = {10, {3, 3, 2, 2, 0, 0, 0, 0, 0, 0}}},
    {.type = "avg_pool", .name = "padded", .args = {10, {3, 2, 2, 1, 1, 0, 2, 1, 1, 0}}},
    {.type = "avg_pool", .name = "padding counts", .args = {10, {2, 3, 1, 2, 1, 2, 0, 1, 0, 1}}},
};

static kind kinds[96];
static int num_kinds;

enum { N = 9, H = 8, W = 8, C = 37 }; /* more than one part of elements */

static bool is_kind(const kind *k, const char *name)
{
    return strcmp(k->name, name) == 0;
}

/* Whether codes are mixed by rounded weights. */
static bool mixes(const kind *k)
{
    return is_kind(k, "bilinear") || is_kind(k, "corners") || is_kind(k, "asymmetric");
}

static bool has_fixed_scale(const kind *k)
{
    return k->rule->scale == OCT_SCALE_FIXED;
}

static bool is_shared(const kind *k)
{
    return k->rule->scale == OCT_SCALE_SHARED;
}

static bool has_fake_quant(const kind *k)
{
    return k->rule->scale != OCT_SCALE_INPUT;
}

static oct_module *float_module(const kind *k)
{
    oct_module *m = NULL;
    OK(oct_module_from(&m, k->rule->type, &k->args));
    if (m->type != &oct_prelu_type) return m;
    const oct_tensor *weight = &((oct_prelu_module *)m)->weight->value;
    for (int64_t c = 0; c < oct_numel(weight); c++)
        oct_f32(weight)[c] = (float)(c % 7) * 0.21F - 0.4F;
    return m;
}

static oct_tensor *float_op(oct_context *cx, const kind *k, oct_tensor *const *x)
{
    oct_tensor *y = oct_module_call(cx, k->module, x, k->inputs);
    return k->relu ? oct_relu(cx, y) : y;
}

/* Concat takes as many as it is given, and gets three; others say how many they want. */
static int inputs_of(const kind *k)
{
    if (is_shared(k)) return 3;
    oct_context *cx = NULL;
    OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(1, 1, 0, 1), false);
    oct_tensor *x = oct_tensor_new(cx, OCT_F32, OCT_SHAPE(1, H, W, C));
    memset(x->data, 0, (size_t)oct_numel(x) * sizeof(float));
    const int inputs = oct_call(cx, k->module, x) ? 1 : 2;
    oct_context_destroy(&cx);
    oct_fail_clear();
    return inputs;
}

static void add_kind(const oct_quant_rule *rule, size_t i)
{
    kind *k = &kinds[num_kinds++];
    *k = (kind){.name = rule->type->name, .rule = rule};
    if (rule->elementwise)
        k->args = (oct_op_args){
            .count = rule->elementwise->num_args,
            .value = {rule->elementwise->default_args.alpha, rule->elementwise->default_args.beta}};
    if (i < OCT_COUNT(given)) {
        k->name = given[i].name ? given[i].name : k->name;
        k->args = given[i].args;
        k->reach = given[i].reach;
        k->relu = given[i].relu;
        k->repeats = given[i].repeats;
    }
    k->module = float_module(k);
    k->inputs = inputs_of(k);
}

static void find_kinds(void)
{
    static const oct_quant_rule *const rules[] = {
#define OCT_QUANT_RULE(id) &oct_quant_rule_##id,
#include "quant/module/rule_list.def"
#undef OCT_QUANT_RULE
    };
    num_kinds = 0;
    for (size_t r = 0; r < OCT_COUNT(rules); r++) {
        bool found = !rules[r]->made;
        for (size_t i = 0; i < OCT_COUNT(given) && rules[r]->made; i++) {
            if (strcmp(given[i].type, rules[r]->type->name) != 0) continue;
            add_kind(rules[r], i);
            found = true;
        }
        if (!found) add_kind(rules[r], OCT_COUNT(given));
    }
}

static void end_kinds(void)
{
    for (int i = 0; i < num_kinds; i++)
        oct_module_destroy(&kinds[i].module);
}

static const kind *kind_of(const char *name)
{
    for (const kind *k = kinds; k < kinds + num_kinds; k++)
        if (is_kind(k, name)) return k;
    cr_assert_fail("%s is no kind", name);
    return NULL;
}

TestSuite(qat_modules, .init = find_kinds, .fini = end_kinds);
TestSuite(qat_softmax, .init = find_kinds, .fini = end_kinds);
TestSuite(qat_concat, .init = find_kinds, .fini = end_kinds);
TestSuite(qat_lut, .init = find_kinds, .fini = end_kinds);
TestSuite(quant_stub, .init = find_kinds, .fini = end_kinds);
TestSuite(steps, .init = find_kinds, .fini = end_kinds);

/* The float module that prepare would find, made quantized for a target by its rule. */
static oct_module *make_module_for(const kind *k, const oct_target *target)
{
    oct_module *module = float_module(k), *made = NULL;
    if (k->relu) {
        oct_module_destroy(&module);
        OK(oct_qat_add_create(&made, OCT_ACT_RELU));
        ((oct_quantized *)made)->target = target;
        return made;
    }
    OK(oct_quant_rule_make(k->rule, target, &made, &module));
    cr_assert(!module && made);
    return made;
}

static oct_module *make_module(const kind *k)
{
    return make_module_for(k, oct_target_find("x86"));
}

/* Whether a function has values above 0 only, such as a logarithm. */
static bool is_above_zero(const kind *k)
{
    const oct_elementwise *f = k->rule->elementwise;
    oct_elementwise_args args;
    if (!f) return false;
    oct_args_get(&oct_elementwise_arg_list[f->num_args], &k->args, &args);
    return !(isfinite(f->value(-1, &args)) && isfinite(f->value(0, &args)));
}

/* A sample is no multiple of 8 elements where an input repeats. */
static oct_shape input_shape(const kind *k, int i)
{
    if (!k->repeats) return OCT_SHAPE(N, H, W, is_shared(k) ? C - 11 * i : C);
    if (k->repeats == i + 1) return i ? OCT_SHAPE(N, C) : OCT_SHAPE(N, 1, 1, C);
    return OCT_SHAPE(N, H - 1, W - 1, k->repeats == -(i + 1) ? 1 : C);
}

/* Quantizers such that values reach about +-4 and the output clips some of its own. */
static quantizer quantizer_of(int bits, bool is_signed, float reach, const oct_target *target)
{
    const float codes = (float)(1 << (is_signed || !target->unsigned_codes ? bits - 1 : bits));
    float scale = reach / codes;
    if (oct_requantizer_shifts(target->requantizer)) scale = oct_pow2_ceil(scale);
    return (quantizer){.bits = bits, .is_signed = is_signed, .scale = scale};
}

static const oct_fake_quant_kind *own =
    NULL; /* of all quantizers, where it is not the built-in one */

static void begin_bench(bench *b, const kind *k, const char *target_name, int in_bits, int out_bits)
{
    const oct_target *target = oct_target_find(target_name);
    stubbed_kind = own ? own : &oct_fake_quant_affine;
    oct_module *m = make_module_for(k, target);
    const bool is_signed = !k->relu && !oct_quant_rule_is_non_negative(k->rule);
    if (has_fake_quant(k))
        stubbed_adopt(m, quantizer_of(out_bits, is_signed, k->reach > 0 ? k->reach : 3, target),
                      target);
    quantizer q[3];
    oct_shape shape[3];
    for (int i = 0; i < 3; i++) {
        /* The second input has the other width, and a scale of its own; so has the third. */
        const int bits = i == 1 ? 24 - in_bits : in_bits;
        q[i] = quantizer_of(bits, i != 2, i == 0 ? 4 : i == 1 ? 3.1f : 2.3f, target);
        shape[i] = input_shape(k, i);
    }
    bench_begin(b, target_name, m, k->inputs, shape, q);
    if (own) bench_state(b, OCT_QUANT_QAT);
    bench_bind(b);
    for (int64_t i = 0; is_above_zero(k) && i < oct_shape_numel(&shape[0]); i++)
        b->x[0][i] = 0.9f * fabsf(b->x[0][i]) + 0.1f;
    if (is_kind(k, "relu6")) {
        const int64_t numel = oct_shape_numel(&shape[0]);
        oct_quantized *stub = (oct_quantized *)((stubbed *)b->root)->stub[0];
        ((oct_fake_quant *)stub->fake_quant)->scale[0] *= 2;
        for (int64_t i = 0; i < numel; i++)
            b->x[0][i] *= 1.9f;
    }
}

static oct_fake_quant *fake_quant(const bench *b, const char *path)
{
    oct_module *m = oct_module_find(b->root, path);
    return (oct_fake_quant *)m;
}

static oct_qparams stub_qparams(const bench *b, int i)
{
    const oct_quantized *stub = (const oct_quantized *)((const stubbed *)b->root)->stub[i];
    return oct_fake_quant_qparams((const oct_fake_quant *)stub->fake_quant);
}

/* The float op at the values of the input codes, and its gradients for grad cut by the clip of y. */
typedef struct reference {
    oct_context *cx;
    oct_params params; /* of the float counterpart */
    oct_tensor *x[STUBBED_MAX], *y;
} reference;

static void refer(reference *r, const bench *b, const kind *k)
{
    OK(oct_context_create(&r->cx, &oct_collective_one));
    r->params = (oct_params){0};
    OK(oct_params_bind(&r->params, k->module, &b->leaves));
    oct_context_begin(r->cx, b->leaves, true);
    for (int i = 0; i < b->n; i++) {
        r->x[i] = oct_tensor_new(r->cx, OCT_F32, b->shape[i]);
        r->x[i]->needs_grad = true;
        oct_fake_quantize(b->x[i], oct_numel(r->x[i]), stub_qparams(b, i), oct_f32(r->x[i]), NULL);
    }
    r->y = float_op(r->cx, k, r->x);
    OK(oct_context_status(r->cx));
}

static void end_reference(reference *r)
{
    oct_params_unbind(&r->params);
    oct_context_destroy(&r->cx);
}

/* How far codes may be from the float op's values, in steps of the output. */
static double tolerance(const kind *k, oct_qparams y)
{
    double steps = 0.502 + (y.qmax + 1) * 0x1p-22; /* the op's own value is a float */
    if (mixes(k)) steps += (y.qmax + 1) * 0x1p-10; /* places in steps of 1/2048 */
    return steps;
}

static bool unclear(double steps, oct_qparams q, const kind *k)
{
    const double lo = q.qmin - q.zero_point - 0.5, hi = q.qmax - q.zero_point + 0.5;
    return fabs(steps - lo) < 1e-2 || fabs(steps - hi) < 1e-2 || (k->relu && fabs(steps) < 1e-2);
}

/* What n values with these gradients, of `each` in a sample, add to the gradient of a learned scale: the sum, and how
 * much of it hangs on values that are next to where the code jumps. */
typedef struct share {
    double sum, loose;
} share;

static share share_of(const float *values, const float *grad, int64_t n, oct_qparams q)
{
    const double lo = q.qmin - q.zero_point, hi = q.qmax - q.zero_point, s = (double)q.scale;
    const double factor = 1 / sqrt((double)(n / N) * hi);
    share total = {0};
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)values[i] / s;
        total.sum += factor * (double)grad[i] * lsq_step(v, lo, hi, s);
        total.loose += factor * fabs((double)grad[i]) * (q.qmax > 255 ? 1e-2 : 1e-4);
        if (fabs(fabs(v - nearbyint(v)) - 0.5) < 0.01)
            total.loose += factor * fabs((double)grad[i]);
    }
    return total;
}

static void check_share(const oct_fake_quant *fq, share want, const kind *k)
{
    const double got = (double)fq->learned->grad[0];
    cr_assert_leq(fabs(got - want.sum), want.loose + 1e-4 * fabs(want.sum),
                  "%s, codes to %d: the scale's gradient is %g, not %g (+-%g)", k->name,
                  oct_fake_quant_qparams(fq).qmax, got, want.sum, want.loose);
}

/* grad: of the output; those of the inputs' values are the float counterpart's. */
static void check_learned(const bench *b, const reference *r, const kind *k, const float *grad)
{
    for (int i = 0; i < b->n; i++) {
        oct_quantized *stub = (oct_quantized *)((stubbed *)b->root)->stub[i];
        check_share((oct_fake_quant *)stub->fake_quant,
                    share_of(b->x[i], r->x[i]->grad, oct_numel(r->x[i]), stub_qparams(b, i)), k);
    }
    if (!has_fake_quant(k) || has_fixed_scale(k)) return;
    oct_fake_quant *fq = fake_quant(b, "middle.fake_quant");
    if (!is_shared(k)) {
        check_share(fq, share_of(oct_f32(r->y), grad, oct_numel(r->y), oct_fake_quant_qparams(fq)),
                    k);
        return;
    }
    share all = {0}; /* each input is requantized on its own, unless it is copied */
    const int64_t width = r->y->shape.dim[3];
    for (int64_t i = 0, first = 0; i < b->n; first += r->x[i++]->shape.dim[3]) {
        const int64_t n = oct_numel(r->x[i]), c = r->x[i]->shape.dim[3];
        float *part = calloc((size_t)n, sizeof *part);
        for (int64_t j = 0; j < n; j++)
            part[j] = grad[j / c * width + first + j % c];
        if (oct_qparams_equal(stub_qparams(b, (int)i), oct_fake_quant_qparams(fq)))
            memset(part, 0, (size_t)n * sizeof *part);
        const share one = share_of(oct_f32(r->x[i]), part, n, oct_fake_quant_qparams(fq));
        all.sum += one.sum;
        all.loose += one.loose;
        free(part);
    }
    check_share(fq, all, k);
}

static void check_module(const kind *k, const char *target, int in_bits, int out_bits)
{
    bench b;
    reference r;
    begin_bench(&b, k, target, in_bits, out_bits);
    refer(&r, &b, k);
    oct_tensor *y = bench_forward(&b, true);
    cr_assert(oct_shape_equal(&y->shape, &r.y->shape));
    const int64_t n = oct_numel(y);
    const oct_qparams q = has_fake_quant(k)
                              ? oct_fake_quant_qparams(fake_quant(&b, "middle.fake_quant"))
                              : stub_qparams(&b, 0);
    const double lo = q.qmin - q.zero_point, hi = q.qmax - q.zero_point, s = (double)q.scale;
    float *grad = oct_scratch(r.cx, (size_t)n * sizeof *grad),
          *cut = oct_scratch(r.cx, (size_t)n * 4);
    oct_fill_normal(grad, n, 11, OCT_STREAM_TEST, 1, 0.0f, 1.0f);
    int64_t clipped = 0;
    for (int64_t i = 0; i < n; i++) {
        const double steps = (double)oct_f32(r.y)[i] / s, ideal = fmin(fmax(steps, lo), hi);
        cr_assert_leq(fabs((double)oct_f32(y)[i] / s - ideal), tolerance(k, q),
                      "%s: element %lld: %g steps, wanted %g", k->name, (long long)i,
                      (double)oct_f32(y)[i] / s, ideal);
        if (has_fake_quant(k) && unclear(steps, q, k)) grad[i] = 0;
        const bool pass = !has_fake_quant(k) || (steps > lo - 0.5 && steps < hi + 0.5);
        clipped += !pass;
        cut[i] = pass ? grad[i] : 0;
    }
    if (strcmp(target, "x86") == 0 && k->reach > 0)
        cr_assert_gt(clipped, 10, "%s: nothing was clipped, so no mask was tried", k->name);
    bench_backward(&b, y, grad);
    OK(oct_params_reduce(&b.params, &oct_collective_one, &b.leaves));
    oct_add_grad(r.cx, r.y, cut);
    OK(oct_backward(r.cx, r.y));
    if (own) check_learned(&b, &r, k, grad);
    /* Softmax takes its derivative from rounded codes, bilinear has rounded weights. */
    const double absolute = has_fixed_scale(k) ? 2 * s : mixes(k) ? 4e-3 : 2e-6;
    for (int i = 0; i < b.n; i++)
        oct_check_near_f32(b.input[i]->grad, r.x[i]->grad, oct_numel(r.x[i]), absolute, 1e-5,
                           k->name);
    const oct_module *function = oct_module_find(b.root, "middle.function");
    if (function && function->num_params > 0) {
        OK(oct_params_reduce(&r.params, &oct_collective_one, &b.leaves));
        oct_check_near_f32(function->params[0]->grad, k->module->params[0]->grad,
                           oct_numel(&function->params[0]->value), 1e-3, 1e-4, k->name);
    }
    end_reference(&r);
    bench_end(&b);
}

Test(qat_modules, are_the_float_ops_on_codes_forward_and_backward)
{
    for (const kind *k = kinds; k < kinds + num_kinds; k++)
        for (int bits = 0; bits < 4; bits++)
            check_module(k, "x86", bits & 1 ? 16 : 8, bits & 2 ? 16 : 8);
}

Test(qat_modules, learn_their_scales)
{
    own = &lsq_fake_quant;
    for (const kind *k = kinds; k < kinds + num_kinds; k++)
        for (int bits = 0; bits < 4; bits++) {
            check_module(k, "x86", bits & 1 ? 16 : 8, bits & 2 ? 16 : 8);
            check_module(k, "pow2", bits & 1 ? 16 : 8, bits & 2 ? 16 : 8);
        }
}

Test(qat_modules, follow_a_target_that_shifts)
{
    for (const kind *k = kinds; k < kinds + num_kinds; k++)
        for (int bits = 0; bits < 4; bits++)
            check_module(k, "pow2", bits & 1 ? 16 : 8, bits & 2 ? 16 : 8);
}

static void check_program(const kind *k, const char *target, int in_bits, int out_bits)
{
    bench b;
    oct_program program;
    oct_runtime *runtime = NULL;
    begin_bench(&b, k, target, in_bits, out_bits);
    bench_state(&b, OCT_QUANT_FROZEN);
    bench_program(&b, &program);
    OK(oct_program_check(&program));
    oct_module_train(b.root, false);
    const oct_tensor *y = bench_forward(&b, false);
    float *got = calloc((size_t)oct_numel(y), sizeof *got);
    OK(oct_runtime_create(&runtime, &program, &(oct_runtime_options){.max_batch = N}));
    OK(oct_runtime_run(runtime, N, (const float *const *)b.x, got));
    oct_check_bits_f32(got, y->data, oct_numel(y), "the program's output");
    oct_runtime_destroy(&runtime);
    oct_program_free(&program);
    free(got);
    bench_end(&b);
}

Test(qat_modules, write_programs_that_compute_their_evaluation_bit_for_bit)
{
    for (const kind *k = kinds; k < kinds + num_kinds; k++)
        for (int bits = 0; bits < 4; bits++) {
            check_program(k, "x86", bits & 1 ? 16 : 8, bits & 2 ? 16 : 8);
            check_program(k, "pow2", bits & 1 ? 16 : 8, bits & 2 ? 16 : 8);
        }
}

Test(qat_modules, give_the_same_bits_on_one_and_on_more_threads)
{
    for (const kind *k = kinds; k < kinds + num_kinds; k++) {
        bench b[2];
        oct_tensor *y[2];
        for (int i = 0; i < 2; i++) {
            omp_set_num_threads(i ? 3 : 1);
            begin_bench(&b[i], k, "x86", 8, 8);
            y[i] = bench_forward(&b[i], true);
            if (i) oct_check_bits_f32(y[1]->data, y[0]->data, oct_numel(y[0]), "output");
        }
        float *grad = calloc((size_t)oct_numel(y[0]), sizeof *grad);
        oct_fill_normal(grad, oct_numel(y[0]), 11, OCT_STREAM_TEST, 1, 0.0f, 1.0f);
        for (int i = 0; i < 2; i++) {
            omp_set_num_threads(i ? 3 : 1);
            bench_backward(&b[i], y[i], grad);
        }
        for (int i = 0; i < b[0].n; i++)
            oct_check_bits_f32(b[1].input[i]->grad, b[0].input[i]->grad,
                               oct_shape_numel(&b[0].shape[i]), "gradient");
        if (has_fake_quant(k)) {
            const oct_fake_quant *one = fake_quant(&b[0], "middle.fake_quant"),
                                 *more = fake_quant(&b[1], "middle.fake_quant");
            cr_assert_arr_eq(one->batch_range, more->batch_range, sizeof one->batch_range);
            cr_assert(one->fixed || one->batch_range[0] < one->batch_range[1]);
        }
        free(grad);
        bench_end(&b[0]);
        bench_end(&b[1]);
    }
}

Test(qat_modules, observe_the_range_of_their_values_before_they_are_clipped)
{
    for (const kind *k = kinds; k < kinds + num_kinds; k++) {
        if (k->rule->scale != OCT_SCALE_OWN) continue;
        bench b;
        reference r;
        begin_bench(&b, k, "x86", 8, 8);
        refer(&r, &b, k);
        bench_forward(&b, true);
        float min = INFINITY, max = -INFINITY;
        for (int64_t i = 0; i < oct_numel(r.y); i++) {
            min = fminf(min, oct_f32(r.y)[i]);
            max = fmaxf(max, oct_f32(r.y)[i]);
        }
        const float *range = fake_quant(&b, "middle.fake_quant")->batch_range;
        oct_check_near_f32(&range[0], &min, 1, 1e-5, 1e-5, "least value");
        oct_check_near_f32(&range[1], &max, 1, 1e-5, 1e-5, "largest value");
        oct_module_train(b.root, false);
        bench_state(&b, OCT_QUANT_QAT);
        bench_forward(&b, false);
        cr_assert(range[0] == INFINITY && range[1] == -INFINITY, "evaluation moved an observer");
        end_reference(&r);
        bench_end(&b);
    }
}

Test(qat_modules, settle_current_scales_on_the_values_of_the_step_itself)
{
    for (const kind *k = kinds; k < kinds + num_kinds; k++) {
        if (!has_fake_quant(k)) continue;
        bench b;
        reference r;
        begin_bench(&b, k, "x86", 8, 8);
        oct_quantizers all;
        OK(oct_quantizers_collect(&all, b.root));
        for (size_t i = 0; i < all.count; i++) {
            all.items[i]->qconfig.current_scales = true;
            if (!all.items[i]->fixed) all.items[i]->scale[0] = 77;
        }
        bench_forward(&b, true);
        refer(&r, &b, k);
        float most = 0;
        for (int64_t i = 0; i < oct_numel(r.y); i++)
            most = fmaxf(most, fabsf(oct_f32(r.y)[i]));
        const oct_fake_quant *fq = fake_quant(&b, "middle.fake_quant");
        const float want = fq->is_signed ? most / 127.5f : most / 255;
        if (!has_fixed_scale(k)) oct_check_near_f32(fq->scale, &want, 1, 0, 1e-5, "scale");
        cr_assert(!has_fixed_scale(k) || fq->scale[0] == 0x1p-8f);
        oct_quantizers_free(&all);
        end_reference(&r);
        bench_end(&b);
    }
}

Test(qat_modules, are_the_float_model_in_the_float_states)
{
    for (const kind *k = kinds; k < kinds + num_kinds; k++)
        for (oct_quant_state state = OCT_QUANT_OFF; state <= OCT_QUANT_CALIBRATE; state++) {
            bench b;
            begin_bench(&b, k, "x86", 8, 8);
            bench_state(&b, state);
            const oct_tensor *y = bench_forward(&b, false);
            const oct_tensor *want = float_op(b.cx, k, b.input);
            oct_check_tensor(y, want, "float output");
            if (has_fake_quant(k)) {
                const oct_fake_quant *fq = fake_quant(&b, "middle.fake_quant");
                const bool saw = fq->batch_range[0] <= fq->batch_range[1];
                cr_assert_eq(saw, state == OCT_QUANT_CALIBRATE && !fq->fixed);
            }
            bench_end(&b);
        }
}

/* Rounded values in float represent the codes. */
Test(qat_modules, round_to_their_codes_in_simulation)
{
    for (const kind *k = kinds; k < kinds + num_kinds; k++) {
        if (!has_fake_quant(k) || is_shared(k)) continue;
        bench b;
        reference r;
        begin_bench(&b, k, "x86", 8, 8);
        refer(&r, &b, k);
        bench_state(&b, OCT_QUANT_SIMULATE);
        const oct_tensor *y = bench_forward(&b, false);
        const int64_t n = oct_numel(y);
        float *want = calloc((size_t)n, sizeof *want);
        oct_fake_quantize(oct_f32(r.y), n,
                          oct_fake_quant_qparams(fake_quant(&b, "middle.fake_quant")), want, NULL);
        oct_check_bits_f32(oct_f32(y), want, n, "simulated output");
        free(want);
        end_reference(&r);
        bench_end(&b);
    }
}

/* The gradient of a clipped input stops at the stub. */
Test(quant_stub, masks_what_it_clips_at_both_widths)
{
    for (int bits = 8; bits <= 16; bits += 8) {
        bench b;
        oct_module *relu = make_module(kind_of("relu"));
        const oct_shape shape = OCT_SHAPE(3, 1, 1, 3);
        bench_begin(&b, "x86", relu, 1, &shape, &(quantizer){bits, true, 1});
        const float top = (float)(1 << (bits - 1));
        const float x[9] = {top, top - 1, top - 0.5f, top - 0.6f, 0, 1, -1, 0.5f, 0.6f};
        const float want[9] = {0, 1, 0, 1, 0, 1, 0, 0, 1};
        const float values[9] = {top - 1, top - 1, top - 1, top - 1, 0, 1, 0, 0, 1};
        float grad[9];
        memcpy(b.x[0], x, sizeof x);
        for (int i = 0; i < 9; i++)
            grad[i] = 1;
        oct_tensor *y = bench_forward(&b, true);
        oct_check_bits_f32(oct_f32(y), values, 9, "values");
        bench_backward(&b, y, grad);
        oct_check_bits_f32(b.input[0]->grad, want, 9, "gradient");
        bench_end(&b);
    }
}

Test(quant_stub, lets_a_nan_be_found_at_the_end_of_the_step)
{
    for (int64_t at = 0; at < 60000; at += 29999) {
        bench b;
        oct_module *relu = make_module(kind_of("relu"));
        const oct_shape shape = OCT_SHAPE(2, 100, 100, 3);
        bench_begin(&b, "x86", relu, 1, &shape, &(quantizer){8, true, 1});
        b.x[0][at] = NAN;
        bench_forward(&b, true);
        oct_quantizers all;
        OK(oct_quantizers_collect(&all, b.root));
        int64_t keys[2];
        oct_quantizers_keys(&all, keys);
        cr_assert_eq(oct_quantizers_update(&all, keys), OCT_NUMERIC);
        cr_assert(strstr(oct_error_message(0), "in0.fake_quant"), "%s", oct_error_message(0));
        oct_quantizers_free(&all);
        bench_end(&b);
    }
}

Test(stubs, are_identity_before_prepare)
{
    oct_module *quant = NULL, *dequant = NULL;
    oct_context *cx = NULL;
    OK(oct_quant_stub_create(&quant));
    OK(oct_dequant_stub_create(&dequant));
    OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(1, 1, 0, 1), false);
    oct_tensor *x = oct_tensor_new(cx, OCT_F32, OCT_SHAPE(1, 2));
    oct_f32(x)[0] = NAN;
    oct_f32(x)[1] = -3.5f;
    oct_check_tensor(oct_call(cx, dequant, oct_call(cx, quant, x)), x, "through both stubs");
    oct_module_destroy(&quant);
    oct_module_destroy(&dequant);
    oct_context_destroy(&cx);
}

/* Inputs that share the output's quantizer are copied, not observed, and no mask is needed. */
Test(qat_concat, copies_inputs_of_its_own_qparams_and_leaves_their_observer_alone)
{
    bench b;
    oct_module *concat = make_module(kind_of("concat"));
    const oct_target *target = oct_target_find("x86");
    const oct_shape shape[] = {OCT_SHAPE(N, H, W, 5), OCT_SHAPE(N, H, W, 8)};
    const quantizer q = {8, true, 0.02f};
    bench_begin(&b, "x86", concat, 2, shape, (quantizer[]){q, q});
    oct_fake_quant *shared = fake_quant(&b, "in0.fake_quant");
    oct_quantized_borrow(concat, shared);
    cr_assert(((oct_quantized *)concat)->target == target &&
              !oct_module_find(concat, "fake_quant"));
    oct_tensor *y = bench_forward(&b, true);
    float want[2] = {INFINITY, -INFINITY};
    for (int64_t i = 0; i < oct_shape_numel(&shape[0]); i++) {
        want[0] = fminf(want[0], b.x[0][i]);
        want[1] = fmaxf(want[1], b.x[0][i]);
    }
    oct_check_bits_f32(shared->batch_range, want, 2, "what the stub saw");
    for (int64_t i = 0; i < oct_numel(y); i++) {
        const int64_t row = i / 13, c = i % 13;
        const float x = c < 5 ? b.x[0][row * 5 + c] : b.x[1][row * 8 + c - 5];
        cr_assert_leq(fabsf(oct_f32(y)[i] - x), 0.0101f);
    }
    bench_end(&b);
}

/* A loop: the same module with other scales each time, before the first backward. */
Test(qat_lut, takes_slopes_of_the_scale_of_each_call)
{
    oct_module *lut = make_module(kind_of("silu"));
    const oct_target *target = oct_target_find("x86");
    stubbed_adopt(lut, (quantizer){8, true, 0.05f}, target);
    oct_context *cx = NULL;
    OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(1, 1, 0, 1), true);
    oct_tensor *x[3], *y[3];
    const oct_qparams q[3] = {{0.01f, 128, 0, 255}, {0.0001f, 32768, 0, 65535}, {0.03f, 0, 0, 255}};
    for (int i = 0; i < 3; i++) {
        x[i] = oct_tensor_new(cx, oct_codes_dtype(q[i]), OCT_SHAPE(1, 2));
        x[i]->q = q[i];
        x[i]->needs_grad = true;
        for (int j = 0; j < 2; j++)
            if (i == 1)
                oct_u16(x[i])[j] = (uint16_t)(30000 + 9000 * j);
            else
                oct_u8(x[i])[j] = (uint8_t)(50 + 100 * j);
        y[i] = oct_call(cx, lut, x[i]);
    }
    OK(oct_context_status(cx));
    for (int i = 2; i >= 0; i--) {
        float *grad = oct_scratch(cx, 2 * sizeof *grad);
        grad[0] = grad[1] = 1;
        oct_add_grad(cx, y[i], grad);
    }
    OK(oct_backward(cx, y[2]));
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++) {
            const int code = i == 1 ? oct_u16(x[i])[j] : oct_u8(x[i])[j];
            const double v = (double)(code - q[i].zero_point) * (double)q[i].scale;
            const double s = 1 / (1 + exp(-v));
            cr_assert_float_eq(x[i]->grad[j], s * (1 + v * (1 - s)), 1e-6);
            const double made = (oct_u8(y[i])[j] - 128) * 0.05;
            cr_assert_float_eq(made, v * s, 0.026);
        }
    oct_module_destroy(&lut);
    oct_context_destroy(&cx);
}

Test(qat_softmax, has_a_fixed_scale_that_the_target_decides)
{
    static const struct {
        const char *target;
        int bits;
        float scale;
        int zero_point;
    } cases[] = {{"x86", 8, 0x1p-8f, 0},
                 {"x86", 16, 0x1p-16f, 0},
                 {"pow2", 8, 0x1p-7f, 128},
                 {"pow2", 16, 0x1p-15f, 32768}};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_module *m = make_module(kind_of("softmax"));
        stubbed_adopt(m, (quantizer){cases[i].bits, false, 3}, oct_target_find(cases[i].target));
        const oct_fake_quant *fq = (const oct_fake_quant *)((oct_quantized *)m)->fake_quant;
        const oct_qparams q = oct_fake_quant_qparams(fq);
        cr_assert(fq->fixed && q.scale == cases[i].scale && q.zero_point == cases[i].zero_point);
        oct_module_destroy(&m);
    }
}

Test(qat_softmax, refuses_a_scale_that_integers_cannot_divide_by)
{
    bench b;
    oct_module *m = make_module(kind_of("softmax"));
    const oct_shape shape = OCT_SHAPE(1, 1, 1, 4);
    bench_begin(&b, "x86", m, 1, &shape, &(quantizer){8, true, 0.3f});
    oct_quantized_borrow(m, fake_quant(&b, "in0.fake_quant"));
    cr_assert_null(bench_try(&b, false));
    cr_assert_eq(oct_context_status(b.cx), OCT_PREPARE);
    cr_assert(strstr(oct_error_message(0), "give it a fake-quant of its own"), "%s",
              oct_error_message(0));
    bench_end(&b);
}

/* The float op takes codes as they are: training's side of the runtime's oct_qmax_pool. */
Test(max_pool, of_codes_is_the_runtimes)
{
    for (int bits = 8; bits <= 16; bits += 8) {
        const oct_qparams q = {1, 1 << (bits - 1), 0, (1 << bits) - 1};
        oct_context *cx = NULL;
        OK(oct_context_create(&cx, &oct_collective_one));
        oct_context_begin(cx, oct_leaves_split(N, 2, 0, 1), false);
        oct_tensor *x = oct_tensor_new(cx, oct_codes_dtype(q), OCT_SHAPE(N, H, W, C));
        x->q = q;
        float values[H * W * C];
        for (int64_t i = 0; i < N; i++) {
            oct_fill_uniform(values, H * W * C, 5, OCT_STREAM_TEST, (uint32_t)i, 0, (float)q.qmax);
            for (int64_t j = 0; j < H * W * C; j++) {
                const int32_t code = (int32_t)values[j] - q.zero_point;
                oct_qcodes_store(&code, 1, q, x->data, i * H * W * C + j);
            }
        }
        const oct_tensor *y = oct_max_pool(cx, x, oct_pool_geometry_of(3, 2, 1));
        OK(oct_context_status(cx));
        oct_tensor *want = oct_tensor_new(cx, y->dtype, y->shape);
        const oct_conv_shape s = shape_of(H, W, C, C, 3, 3, 2, 1, 1);
        oct_qmax_pool(N, &s, oct_qcodes_of(x), want->data);
        oct_check_tensor(y, want, "max_pool");
        oct_context_destroy(&cx);
    }
}

Test(qat_modules, are_distinguished_from_other_modules)
{
    for (const kind *k = kinds; k < kinds + num_kinds; k++) {
        oct_module *m = make_module(k);
        char text[128] = "";
        oct_module_describe(m, text, sizeof text);
        cr_assert_eq(oct_is_quantized(m), has_fake_quant(k));
        cr_assert(m->type->emit && m->type->atomic && m->type->step);
        if (is_kind(k, "leaky_relu")) cr_assert(strstr(text, "leaky_relu by table"), "%s", text);
        oct_module_destroy(&m);
    }
    oct_module *conv = NULL;
    OK(oct_conv2d_create(&conv, 1, 1, oct_conv_geometry_of(1, 1, 1, 0, 1), false));
    const oct_quant_rule *rule = oct_quant_rule_find(conv->type);
    cr_assert(!oct_is_quantized(conv) && rule && rule->scale == OCT_SCALE_OWN && !rule->made);
    cr_assert(!oct_quant_rule_find(&oct_sequential_type));
    oct_module_destroy(&conv);
    cr_assert(oct_quant_rule_is_non_negative(&oct_quant_rule_sigmoid) &&
              !oct_quant_rule_is_non_negative(&oct_quant_rule_silu));
    cr_assert(oct_quant_rule_softmax.scale == OCT_SCALE_FIXED);
    cr_assert(oct_quant_rule_concat.scale == OCT_SCALE_SHARED);
    cr_assert(oct_quant_rule_max_pool.scale == OCT_SCALE_INPUT && !oct_quant_rule_max_pool.made);
}

/* What went wrong when `middle` got these inputs. */
static void check_domain(const kind *k, const oct_dtype *dtype, bool with_fake_quant,
                         const char *want)
{
    oct_module *m = make_module(k);
    oct_context *cx = NULL;
    if (with_fake_quant) stubbed_adopt(m, (quantizer){8, true, 1}, oct_target_find("x86"));
    OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(1, 1, 0, 1), false);
    oct_tensor *x[3];
    for (int i = 0; i < k->inputs; i++) {
        x[i] = oct_tensor_new(cx, dtype[i], OCT_SHAPE(1, 2, 2, 2));
        x[i]->q = (oct_qparams){1, 128, 0, 255};
        memset(x[i]->data, 0, 8 * oct_dtype_bytes(dtype[i]));
    }
    cr_assert_null(oct_module_call(cx, m, x, k->inputs));
    cr_assert_eq(oct_context_status(cx), OCT_PREPARE);
    cr_assert(strstr(oct_error_message(0), want), "%s", oct_error_message(0));
    oct_module_destroy(&m);
    oct_context_destroy(&cx);
}

Test(qat_modules, name_the_stub_that_is_missing)
{
    const oct_dtype mixed[] = {OCT_U8, OCT_F32, OCT_U8}, other[] = {OCT_F32, OCT_U8, OCT_U8};
    const oct_dtype floats[] = {OCT_F32, OCT_F32, OCT_F32}, bytes[] = {OCT_U8, OCT_U8, OCT_U8};
    for (const kind *k = kinds; k < kinds + num_kinds; k++) {
        if (!has_fake_quant(k)) continue;
        if (k->inputs > 1) {
            check_domain(k, mixed, true,
                         "input 0 is quantized and input 1 is float; put a QuantStub before the "
                         "float one");
            check_domain(k, other, true, "input 1 is quantized and input 0 is float");
        }
        check_domain(k, floats, true, "its input is float; put a QuantStub before it");
        check_domain(k, bytes, false, "no fake-quant for its output; prepare the model");
    }
}

Test(qat_modules, refuse_shapes_that_do_not_fit)
{
    const quantizer q[] = {{8, true, 1}, {8, true, 1}};
    const oct_shape shape[] = {OCT_SHAPE(1, 2, 2, 2), OCT_SHAPE(1, 3, 2, 2)};
    static const struct {
        const char *kind, *want;
    } cases[] = {{"add", "inputs (1, 2, 2, 2) and (1, 3, 2, 2) differ in shape"},
                 {"mul", "differ in shape"},
                 {"concat", "cannot be concatenated"},
                 {"avg_pool", "a window of 3x3 does not fit (1, 2, 2, 2)"}};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        bench b;
        const kind *k = kind_of(cases[i].kind);
        oct_module *m = make_module(k);
        if (has_fake_quant(k)) stubbed_adopt(m, q[0], oct_target_find("x86"));
        bench_begin(&b, "x86", m, k->inputs == 1 ? 1 : 2, shape, q);
        cr_assert_null(bench_try(&b, false));
        cr_assert_eq(oct_context_status(b.cx), OCT_PREPARE);
        cr_assert(strstr(oct_error_message(0), cases[i].want), "%s", oct_error_message(0));
        cr_assert(strstr(oct_error_message(0), "middle"), "%s", oct_error_message(0));
        bench_end(&b);
    }
}

/* A change that a file might hold, with which a program may not run. */
static void check_refused(const char *name, void (*damage)(oct_program *, oct_step *),
                          const char *want)
{
    bench b;
    oct_program program;
    begin_bench(&b, kind_of(name), strcmp(name, "mul") == 0 ? "pow2" : "x86", 8, 8);
    bench_state(&b, OCT_QUANT_FROZEN);
    bench_program(&b, &program);
    OK(oct_program_check(&program));
    oct_step *step = &program.steps[b.n];
    damage(&program, step);
    cr_assert_eq(oct_program_check(&program), OCT_DATA, "%s was not refused", want);
    cr_assert(strstr(oct_error_message(0), want), "%s", oct_error_message(0));
    cr_assert(strstr(oct_error_message(0), "middle"), "%s", oct_error_message(0));
    oct_program_free(&program);
    bench_end(&b);
}

#define DAMAGE(name, change)                                                                       \
    static void name(oct_program *p, oct_step *s)                                                  \
    {                                                                                              \
        (void)p;                                                                                   \
        change;                                                                                    \
    }

DAMAGE(negative_multiplier, s->add.ma = -1)
DAMAGE(large_multiplier, s->add.mb = INT64_C(1) << 38)
DAMAGE(large_shift, s->add.shift = 62)
DAMAGE(no_shift, s->add.shift = 0)
DAMAGE(other_zero_point, s->add.za++)
DAMAGE(wide_bounds, s->add.hi = 70000)
DAMAGE(nan_factor, s->mul.factor = NAN)
DAMAGE(odd_factor, s->mul.factor = 0.3f)
DAMAGE(no_table, oct_free(&s->lut.table))
DAMAGE(short_table, s->lut.size = 255)
DAMAGE(high_entry, s->lut.table[7] = 256)
DAMAGE(other_scale, p->values[s->output].q.scale = 0.003f)
DAMAGE(first_exponential, s->softmax.exponential[0]--)
DAMAGE(negative_exponential, s->softmax.exponential[255] = -1)
DAMAGE(rising_exponential, s->softmax.exponential[9] = s->softmax.exponential[3] + 1)
DAMAGE(no_exponential, oct_free(&s->softmax.exponential))
DAMAGE(other_channels, p->values[s->output].c++; p->values[s->output + 1].c++)
DAMAGE(other_input_plane, s->interpolate.shape.in_h++)
DAMAGE(other_output_plane, s->interpolate.shape.out_w++)
DAMAGE(other_output_channels, s->interpolate.shape.in_c--)
DAMAGE(high_bound, s->relu.hi = 1 << 20)
DAMAGE(crossed_bounds, s->relu.lo = s->relu.hi + 1)

Test(steps, refuse_programs_that_may_not_run)
{
    check_refused("add", negative_multiplier, "out of range");
    check_refused("add", large_multiplier, "out of range");
    check_refused("add", large_shift, "out of range");
    check_refused("add", no_shift, "out of range");
    check_refused("add", other_zero_point, "zero points are not those of its values");
    check_refused("add", wide_bounds, "are not within the codes");
    check_refused("add", other_channels, "differ in shape");
    check_refused("mul", nan_factor, "is not a power of two within 2^-60 and 2^60");
    check_refused("mul", odd_factor, "is not a power of two within 2^-60 and 2^60");
    check_refused("silu", no_table, "table is missing");
    check_refused("silu", short_table, "has not 256 entries");
    check_refused("silu", high_entry, "entry 7 of its table, 256, is no code");
    check_refused("softmax", other_scale, "is not a power of two from 2^-16 to 1");
    check_refused("softmax", first_exponential, "do not begin with");
    check_refused("softmax", negative_exponential, "exponential 255");
    check_refused("softmax", rising_exponential, "above the one before");
    check_refused("softmax", no_exponential, "table is missing");
    check_refused("concat", other_channels, "channels together");
    check_refused("bilinear", other_input_plane, "its input shape");
    check_refused("bilinear", other_output_plane, "its output shape");
    check_refused("bilinear", other_output_channels, "its input shape");
    check_refused("bilinear", other_scale, "quantized otherwise");
    check_refused("relu", high_bound, "are not within the codes");
    check_refused("relu", crossed_bounds, "are not within the codes");
    check_refused("relu6", other_scale, "quantized otherwise");
}
