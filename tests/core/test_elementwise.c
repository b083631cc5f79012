/* Elementwise functions, clip, PReLU and functions of two tensors that broadcast: against PyTorch's values
 * (tests/golden/make_elementwise_golden.py), at large values, over leaves, and in the sentences with which they refuse.
 * test_gradcheck.c checks their gradients by differences. */
#include "core/op/ops.h"
#include "core/tensor/broadcast.h"
#include "tests/core/op_rig.h"
#include "tests/golden/elementwise_golden.h"

#include <float.h>
#include <math.h>

static const double near = 2e-5;

#define CHECK(got, want)                                                                           \
    oct_check_near_f32((got), (want), (int64_t)OCT_COUNT(want), near, near, #want)

static void add_input(rig *r, oct_shape shape, const float *values)
{
    rig_input(r, shape, 1);
    memcpy(r->input[r->num_inputs - 1].data, values,
           (size_t)oct_shape_numel(&shape) * sizeof *values);
}

/* What PyTorch says of one call. */
typedef struct golden {
    const char *name;
    rig_forward forward;
    const float *x, *y, *grad_y, *grad_x;
} golden;

#define FUNCTION(name, ...) RIG_FORWARD(name##_of, oct_##name(cx, x[0] __VA_ARGS__))
FUNCTION(hard_sigmoid, , 1.0 / 6, 0.5)
FUNCTION(tanh)
FUNCTION(gelu)
FUNCTION(gelu_tanh)
FUNCTION(elu, , 0.7)
FUNCTION(softplus)
FUNCTION(exp)
FUNCTION(logarithm)
FUNCTION(sqrt)
FUNCTION(abs)
FUNCTION(neg)
FUNCTION(square)
FUNCTION(reciprocal)
FUNCTION(erf)
RIG_FORWARD(clip_of, oct_clip(cx, x[0], -1.5, 3))
RIG_FORWARD(clip_above_of, oct_clip(cx, x[0], -INFINITY, 0.5))
RIG_FORWARD(clip_below_of, oct_clip(cx, x[0], -0.25, INFINITY))

#define GOLDEN(name)                                                                               \
    {                                                                                              \
#name, name##_of, golden_##name##_x0, golden_##name##_y, golden_##name##_grad_y,           \
            golden_##name##_grad_x0                                                                \
    }

Test(elementwise, functions_agree_with_pytorch)
{
    static const golden cases[] = {GOLDEN(hard_sigmoid), GOLDEN(tanh),      GOLDEN(gelu),
                                   GOLDEN(gelu_tanh),    GOLDEN(elu),       GOLDEN(softplus),
                                   GOLDEN(exp),          GOLDEN(logarithm), GOLDEN(sqrt),
                                   GOLDEN(abs),          GOLDEN(neg),       GOLDEN(square),
                                   GOLDEN(reciprocal),   GOLDEN(erf),       GOLDEN(clip),
                                   GOLDEN(clip_above),   GOLDEN(clip_below)};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        const golden *g = &cases[i];
        rig r = rig_of(NULL, g->forward, 3, 2);
        add_input(&r, OCT_SHAPE(3, 7), g->x);
        oct_tensor *y = rig_run(&r, true);
        cr_assert(y, "%s: %s", g->name, oct_error_message(0));
        oct_check_near_f32(oct_f32(y), g->y, 21, near, near, g->name);
        rig_backward(&r, y, g->grad_y);
        oct_check_near_f32(r.input[0].grad, g->grad_x, 21, near, near, g->name);
        rig_end(&r);
    }
}

/* Where the limit of a function is a number, no infinity times 0 makes another of it. */
Test(elementwise, nothing_is_lost_at_large_values)
{
    static const oct_elementwise *const functions[] = {
#define OCT_ELEMENTWISE(name, args) &oct_elementwise_##name,
#include "core/op/elementwise_list.def"
#undef OCT_ELEMENTWISE
    };
    static const double large[] = {40, 800, 1e6, FLT_MAX};
    for (size_t i = 0; i < OCT_COUNT(functions); i++)
        for (size_t k = 0; k < 2 * OCT_COUNT(large); k++) {
            const oct_elementwise *f = functions[i];
            const double x = k % 2 ? large[k / 2] : -large[k / 2];
            const double y = f->value(x, &f->default_args), slope = f->slope(x, &f->default_args);
            const bool domain =
                x > 0 || (f != &oct_elementwise_logarithm && f != &oct_elementwise_sqrt);
            cr_assert(!isnan(y) || !domain, "%s(%g) is %g", f->name, x, y);
            cr_assert(!isnan(slope) || !domain, "the slope of %s at %g is %g", f->name, x, slope);
            cr_assert(!f->non_negative || !(y < 0), "%s(%g) is %g", f->name, x, y);
        }
}

static oct_tensor *two(oct_context *cx, const oct_binary *f, oct_tensor *const *x)
{
    return oct_binary_apply(cx, f, x[0], x[1]);
}

RIG_FORWARD(add_of, two(cx, &oct_binary_add, x))
RIG_FORWARD(sub_of, two(cx, &oct_binary_sub, x))
RIG_FORWARD(mul_of, two(cx, &oct_binary_mul, x))
RIG_FORWARD(div_of, two(cx, &oct_binary_div, x))

#define FULL OCT_SHAPE(2, 2, 3, 3)
#define CHECK_TWO(op, how, a, b)                                                                   \
    do {                                                                                           \
        rig r = rig_of(NULL, op##_of, 2, 1);                                                       \
        add_input(&r, a, golden_##op##_##how##_x0);                                                \
        add_input(&r, b, golden_##op##_##how##_x1);                                                \
        oct_tensor *y = rig_run(&r, true);                                                         \
        cr_assert(y, "%s", oct_error_message(0));                                                  \
        const oct_shape full = FULL;                                                               \
        cr_assert(oct_shape_equal(&y->shape, &full));                                              \
        CHECK(oct_f32(y), golden_##op##_##how##_y);                                                \
        rig_backward(&r, y, golden_##op##_##how##_grad_y);                                         \
        CHECK(r.input[0].grad, golden_##op##_##how##_grad_x0);                                     \
        CHECK(r.input[1].grad, golden_##op##_##how##_grad_x1);                                     \
        rig_end(&r);                                                                               \
    } while (0)
#define CHECK_ALL_TWO(op)                                                                          \
    do {                                                                                           \
        CHECK_TWO(op, equal, FULL, FULL);                                                          \
        CHECK_TWO(op, channels, FULL, OCT_SHAPE(2, 1, 1, 3));                                      \
        CHECK_TWO(op, channels, FULL, OCT_SHAPE(2, 3));                                            \
        CHECK_TWO(op, positions, FULL, OCT_SHAPE(2, 2, 3, 1));                                     \
        CHECK_TWO(op, first, OCT_SHAPE(2, 1, 1, 3), FULL);                                         \
        CHECK_TWO(op, first, OCT_SHAPE(2, 3), FULL);                                               \
    } while (0)

Test(elementwise, functions_of_two_agree_with_pytorch_where_one_repeats)
{
    CHECK_ALL_TWO(add);
    CHECK_ALL_TWO(sub);
    CHECK_ALL_TWO(mul);
    CHECK_ALL_TWO(div);
}

Test(broadcast, knows_which_shapes_are_compatible)
{
    static const struct {
        oct_shape a, b;
        bool compatible;
        int larger;
    } cases[] = {
        {{4, {2, 3, 4, 5}}, {4, {2, 3, 4, 5}}, true, 0},
        {{4, {2, 3, 4, 5}}, {4, {2, 1, 1, 5}}, true, 0},
        {{4, {2, 1, 1, 5}}, {4, {2, 3, 4, 5}}, true, 1},
        {{2, {2, 5}}, {4, {2, 3, 4, 5}}, true, 1},
        {{4, {2, 3, 4, 5}}, {4, {2, 3, 4, 1}}, true, 0},
        {{4, {2, 3, 4, 5}}, {4, {2, 1, 1, 1}}, true, 0},
        {{3, {2, 4, 5}}, {3, {2, 1, 5}}, true, 0},
        {{3, {2, 4, 5}}, {3, {2, 4, 1}}, true, 0},
        {{2, {2, 5}}, {2, {2, 1}}, true, 0},
        {{1, {2}}, {1, {2}}, true, 0},
        {{4, {2, 3, 4, 5}}, {4, {2, 4, 3, 5}}, false, 0},
        {{4, {2, 3, 4, 5}}, {4, {1, 3, 4, 5}}, false, 0},
        {{4, {2, 3, 4, 5}}, {4, {2, 3, 1, 5}}, false, 0},
        {{4, {2, 1, 1, 5}}, {4, {2, 3, 4, 1}}, false, 0},
        {{4, {2, 3, 4, 5}}, {3, {2, 4, 5}}, false, 0},
        {{4, {2, 3, 4, 5}}, {1, {2}}, false, 0},
        {{4, {2, 3, 4, 5}}, {4, {2, 12, 1, 5}}, false, 0},
        {{4, {2, 3, 4, 5}}, {2, {2, 4}}, false, 0},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_broadcast b;
        cr_assert_eq(oct_broadcast_of(&cases[i].a, &cases[i].b, &b), cases[i].compatible,
                     "case %zu", i);
        if (cases[i].compatible)
            cr_assert_eq(oct_broadcast_larger(&b), cases[i].larger, "case %zu", i);
    }
}

static void check_prelu(int64_t channels, const float *x, const float *w, const float *y,
                        const float *grad_y, const float *grad_x, const float *grad_w)
{
    oct_module *m;
    RIG_OK(oct_prelu_create(&m, channels));
    oct_param *weight = ((oct_prelu_module *)m)->weight;
    for (int64_t c = 0; c < channels; c++)
        cr_assert_eq(oct_f32(&weight->value)[c], 0.25F);
    cr_assert(!weight->decay);
    rig r = rig_of(m, rig_call_root, 2, 1);
    memcpy(weight->value.data, w, (size_t)channels * sizeof *w);
    add_input(&r, FULL, x);
    oct_tensor *got = rig_run(&r, true);
    cr_assert(got, "%s", oct_error_message(0));
    oct_check_near_f32(oct_f32(got), y, 36, near, near, "prelu");
    rig_backward(&r, got, grad_y);
    oct_check_near_f32(r.input[0].grad, grad_x, 36, near, near, "prelu's input gradient");
    oct_check_near_f32(weight->grad, grad_w, channels, near, near, "prelu's weight gradient");
    rig_end(&r);
}

Test(elementwise, prelu_agrees_with_pytorch)
{
    check_prelu(3, golden_prelu_x0, golden_prelu_x1, golden_prelu_y, golden_prelu_grad_y,
                golden_prelu_grad_x0, golden_prelu_grad_x1);
    check_prelu(1, golden_prelu_one_x0, golden_prelu_one_x1, golden_prelu_one_y,
                golden_prelu_one_grad_y, golden_prelu_one_grad_x0, golden_prelu_one_grad_x1);
}

/* Dropout: what is drawn depends on the places of values in the update alone. */

enum { SAMPLES = 12, EACH = 600 };

typedef struct draw_case {
    int rank, ranks;
    int64_t batches; /* that the update is cut into */
    uint64_t seed, update;
    double p;
} draw_case;

/* y of ones, of this rank's samples in place. */
static void draw_ones(const draw_case *c, float *y, uint32_t calls)
{
    oct_context *cx;
    oct_module *m;
    float ones[SAMPLES * EACH];
    for (int i = 0; i < SAMPLES * EACH; i++)
        ones[i] = 1;
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    RIG_OK(oct_dropout_create(&m, c->p));
    oct_module_train(m, true);
    const int64_t samples = SAMPLES / c->batches;
    for (int64_t b = 0; b < c->batches; b++) {
        const oct_leaves leaves = oct_leaves_split(samples, 2, c->rank, c->ranks);
        const int64_t first = b * samples + oct_leaves_first_sample(&leaves);
        const int64_t local = oct_leaves_local_samples(&leaves);
        oct_context_begin(cx, leaves, false);
        cx->draws = (oct_draws){.active = true,
                                .seed = c->seed,
                                .update = c->update,
                                .first_sample = b * samples,
                                .calls = calls};
        oct_tensor *x = oct_tensor_view(cx, OCT_F32, OCT_SHAPE(local, EACH), ones);
        const oct_tensor *got = oct_call(cx, m, x);
        cr_assert(got, "%s", oct_error_message(0));
        memcpy(y + first * EACH, got->data, (size_t)(local * EACH) * sizeof *y);
    }
    oct_module_destroy(&m);
    oct_context_destroy(&cx);
}

static bool same_draws(const float *a, const float *b)
{
    return memcmp(a, b, sizeof(float[SAMPLES * EACH])) == 0;
}

Test(dropout, draws_the_same_on_any_number_of_ranks_and_batches_of_an_update)
{
    static float one[SAMPLES * EACH], other[SAMPLES * EACH];
    draw_case c = {.ranks = 1, .batches = 1, .seed = 7, .update = 3, .p = 0.3};
    draw_ones(&c, one, 0);
    int kept = 0;
    for (int i = 0; i < SAMPLES * EACH; i++) {
        cr_assert(one[i] == 0 || one[i] == (float)(1 / 0.7));
        kept += one[i] != 0;
    }
    cr_assert(kept > 4920 && kept < 5160, "%d of 7200 were kept", kept); /* 5040 +- 3 deviations */
    for (c.ranks = 2; c.ranks <= 3; c.ranks++) {
        for (c.rank = 0; c.rank < c.ranks; c.rank++)
            draw_ones(&c, other, 0);
        cr_assert(same_draws(one, other), "%d ranks draw otherwise", c.ranks);
    }
    c.ranks = 1, c.rank = 0;
    c.batches = 3;
    draw_ones(&c, other, 0);
    cr_assert(same_draws(one, other));
    c.update = 4;
    draw_ones(&c, other, 0);
    cr_assert(!same_draws(one, other));
    c.update = 3, c.seed = 8;
    draw_ones(&c, other, 0);
    cr_assert(!same_draws(one, other));
    c.seed = 7;
    draw_ones(&c, other, 1); /* a second call of the same forward */
    cr_assert(!same_draws(one, other));
}

Test(dropout, hands_its_input_on_where_nothing_is_learned)
{
    oct_context *cx;
    oct_module *m;
    float values[6] = {1, 2, 3, 4, 5, 6};
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    RIG_OK(oct_dropout_create(&m, 0.5));
    for (int training = 0; training < 2; training++)
        for (int active = 0; active < 2; active++) {
            oct_module_train(m, training);
            oct_context_begin(cx, oct_leaves_split(2, 1, 0, 1), false);
            cx->draws.active = active;
            oct_tensor *x = oct_tensor_view(cx, OCT_F32, OCT_SHAPE(2, 3), values);
            cr_assert_eq(oct_call(cx, m, x) == x, !training || !active);
        }
    oct_module_destroy(&m);
    oct_context_destroy(&cx);
}

static oct_tensor *drop_of(oct_context *cx, oct_module *root, oct_tensor *const *x, int n)
{
    (void)root, (void)n;
    cx->draws = (oct_draws){.active = true, .seed = 5};
    return oct_dropout(cx, x[0], 0.25);
}

Test(dropout, passes_gradients_as_it_passes_values)
{
    rig r = rig_of(NULL, drop_of, 3, 2);
    rig_input(&r, OCT_SHAPE(3, 5, 3, 2), 0.05F);
    oct_tensor *y = rig_run(&r, true);
    cr_assert(y, "%s", oct_error_message(0));
    float values[90], ones[90];
    memcpy(values, y->data, sizeof values);
    for (int i = 0; i < 90; i++)
        ones[i] = 1;
    rig_backward(&r, y, ones);
    for (int i = 0; i < 90; i++)
        cr_assert_float_eq(r.input[0].grad[i] * oct_f32(&r.input[0])[i], values[i], 1e-6);
    rig_end(&r);
}

/* Codes that are kept stay what they are: the scale takes the factor. One that is a power of two stays one. */
Test(dropout, of_codes_lets_the_scale_grow)
{
    static const struct {
        float scale;
        double p;
        float grown;
    } cases[] = {
        {0.3F, 0.5, 0.6F}, {0.3F, 0.2, 0.3F * 1.25F}, {0.25F, 0.5, 0.5F}, {0.25F, 0.2, 0.5F}};
    oct_context *cx;
    uint8_t bytes[512];
    uint16_t words[512];
    for (int i = 0; i < 512; i++) {
        bytes[i] = (uint8_t)i;
        words[i] = (uint16_t)(127 * i);
    }
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    for (size_t k = 0; k < 2 * OCT_COUNT(cases); k++) {
        const bool wide = k % 2;
        oct_context_begin(cx, oct_leaves_split(2, 1, 0, 1), false);
        cx->draws.active = true;
        oct_tensor *x = wide ? oct_tensor_view(cx, OCT_U16, OCT_SHAPE(2, 256), words)
                             : oct_tensor_view(cx, OCT_U8, OCT_SHAPE(2, 256), bytes);
        x->q = (oct_qparams){cases[k / 2].scale, wide ? 900 : 77, 0, wide ? 65535 : 255};
        const oct_tensor *y = oct_dropout(cx, x, cases[k / 2].p);
        cr_assert(y, "%s", oct_error_message(0));
        cr_assert_eq(y->dtype, x->dtype);
        cr_assert_float_eq(y->q.scale, cases[k / 2].grown, 1e-7);
        cr_assert_eq(y->q.zero_point, x->q.zero_point);
        int kept = 0;
        for (int i = 0; i < 512; i++) {
            const int32_t z = x->q.zero_point;
            const int32_t in = (wide ? words[i] : bytes[i]) - z;
            const int32_t out = (wide ? oct_u16(y)[i] : oct_u8(y)[i]) - z;
            const double want = in * (double)x->q.scale / (1 - cases[k / 2].p);
            cr_assert(out == 0 ||
                          fabs(out * (double)y->q.scale - want) <= 0.501 * (double)y->q.scale,
                      "code %d became %d", in, out);
            kept += out != 0;
        }
        const double rate = 1 - cases[k / 2].p;
        cr_assert(kept > 512 * rate - 45 && kept < 512 * rate + 45, "%d kept", kept);
    }
    oct_context_destroy(&cx);
}

static void check_refused(const oct_tensor *y, oct_context *cx, const char *want)
{
    cr_assert_null(y);
    cr_assert(strstr(oct_error_message(0), want), "\"%s\" lacks \"%s\"", oct_error_message(0),
              want);
    oct_context_begin(cx, cx->leaves, false);
}

Test(elementwise, what_cannot_be_is_refused)
{
    oct_context *cx;
    oct_module *prelu;
    float values[60] = {0};
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    RIG_OK(oct_prelu_create(&prelu, 4));
    oct_param *slopes = ((oct_prelu_module *)prelu)->weight;
    oct_context_begin(cx, oct_leaves_split(2, 8, 0, 1), false);
    oct_tensor x = {.shape = OCT_SHAPE(2, 2, 5, 3), .data = values, .trace_value = -1};
    oct_tensor row = {.shape = OCT_SHAPE(2, 6), .data = values, .trace_value = -1};
    check_refused(oct_clip(cx, &x, 1, 0), cx, "clip cannot have the bounds 1 and 0");
    check_refused(oct_clip(cx, &x, (double)NAN, 0), cx, "clip cannot have the bounds nan and 0");
    check_refused(oct_prelu(cx, &x, slopes), cx,
                  "prelu has 4 weights, but its input is (2, 2, 5, 3)");
    check_refused(oct_dropout(cx, &x, 1), cx, "dropout cannot have the probability 1");
    check_refused(oct_dropout(cx, &x, -0.1), cx, "dropout cannot have the probability -0.1");
    check_refused(oct_sub(cx, &x, &row), cx, "sub takes two tensors of one shape");
    check_refused(oct_div(cx, &row, &x), cx, "(N, H, W, 1), but has (2, 6) and (2, 2, 5, 3)");
    check_refused(oct_elu(cx, &x, (double)INFINITY), cx, "elu takes finite numbers, but has inf");
    oct_module_destroy(&prelu);
    oct_context_destroy(&cx);
}
