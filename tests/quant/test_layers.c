/* Figures of layers: spreads against counting by the definition, the layers of a model and of its program side by
 * side, and a survey against sums taken here. */
#include "quant/layers/layer_survey.h"
#include "tests/quant/deploy.h"

#include <math.h>

TestSuite(layers, .timeout = 120);

/* Spreads. */

static void fill_values(float *x, int64_t n, float scale)
{
    oct_fill_normal(x, n, 5, OCT_STREAM_TEST, 0, 0.3f * scale, scale);
}

/* What the definition says of these values. */
static void check_spread(const oct_spread *s, const float *x, int64_t n)
{
    int64_t count[OCT_SPREAD_BINS] = {0}, inside = 0;
    const double width = ldexp(1, s->exponent), from = oct_spread_from(s);
    float min = INFINITY, max = -INFINITY;
    cr_assert_eq(from + OCT_SPREAD_BINS * width, oct_spread_to(s));
    cr_assert_eq(from, floor(from / width) * width, "bins begin at multiples of their width");
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) continue;
        const double bin = floor((double)x[i] / width) - from / width;
        cr_assert(bin >= 0 && bin < OCT_SPREAD_BINS, "%g is in no bin", (double)x[i]);
        count[(int)bin]++;
        inside++;
        min = fminf(min, x[i]), max = fmaxf(max, x[i]);
    }
    cr_assert_eq(s->min, min);
    cr_assert_eq(s->max, max);
    cr_assert_eq(s->unusual, n - inside);
    cr_assert(memcmp(count, s->count, sizeof count) == 0);
}

/* In parts of this size, from the end to the beginning. */
static oct_spread spread_of(const float *x, int64_t n, int64_t part)
{
    oct_spread s;
    oct_spread_begin(&s);
    for (int64_t at = (n - 1) / part * part; at >= 0; at -= part)
        oct_spread_add(&s, x + at, n - at < part ? n - at : part);
    return s;
}

Test(layers, spreads_count_the_same_in_any_order)
{
    enum { N = 3000 };
    static float x[N];
    for (int scale = -30; scale <= 30; scale += 6) {
        fill_values(x, N, ldexpf(1.3f, scale));
        x[17] *= 40; /* the range grows late, or early */
        const oct_spread all = spread_of(x, N, N);
        check_spread(&all, x, N);
        cr_assert(oct_spread_to(&all) - oct_spread_from(&all) <=
                      4 * ((double)all.max - (double)all.min),
                  "no more than half of the bins lie beside the range");
        for (int64_t part = 1; part < N; part = part * 3 + 1) {
            const oct_spread merged = spread_of(x, N, part);
            cr_assert(memcmp(&merged, &all, sizeof all) == 0, "parts of %lld", (long long)part);
        }
    }
}

Test(layers, spreads_take_what_is_no_usual_number)
{
    const float same[] = {0, -0.0f, 0}, one[] = {-3.75f}, odd[] = {NAN, 1, -INFINITY, 2, INFINITY};
    const float wide[] = {-3e38f, 3e38f, 1e-45f, -1e-45f, 0};
    oct_spread s = spread_of(same, 3, 1);
    check_spread(&s, same, 3);
    cr_assert_not(signbit(s.min));
    s = spread_of(one, 1, 1);
    check_spread(&s, one, 1);
    s = spread_of(odd, 5, 2);
    check_spread(&s, odd, 5);
    s = spread_of(wide, 5, 2);
    check_spread(&s, wide, 5);
    s = spread_of(odd, 1, 1);
    cr_assert(s.min > s.max && s.unusual == 1);
}

/* A network with a fusion, an addition, a pool, and a layer that stays float. */

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    parts *p = (parts *)self;
    oct_tensor *y = oct_relu(cx, oct_call(cx, p->m[1], oct_call(cx, p->m[0], x[0])));
    y = oct_add(cx, y, oct_call(cx, p->m[2], y));
    y = oct_flatten(cx, oct_max_pool(cx, y, oct_pool_geometry_of(2, 2, 0)));
    return oct_call(cx, p->m[3], y);
}
static const oct_module_type type = {.name = "couple", .forward = forward};

static void begin_calibrated(deployment *d)
{
    const oct_prepare_options options = deploy_options(OCT_METHOD_JIT, NULL);
    oct_module *root = parts_create(&type);
    PART(root, 0, oct_conv2d_create(&item, 2, 8, deploy_conv(3, 1), false));
    PART(root, 1, oct_batch_norm_create(&item, 8));
    PART(root, 2, oct_conv2d_create(&item, 8, 8, deploy_conv(1, 1), true));
    PART(root, 3, oct_linear_create(&item, 4 * 4 * 8, 5, true));
    deploy_begin(d, root, OCT_EXAMPLE(OCT_SHAPE(1, 8, 8, 2)));
    deploy(d, &options);
}

typedef struct comparison {
    const oct_layer_source *program;
    int pairs, equal;
} comparison;

static void compare(void *user, int64_t b, const oct_tensor *of_a, const oct_tensor *of_b)
{
    comparison *c = user;
    (void)b;
    c->pairs++;
    c->equal +=
        of_a->dtype == of_b->dtype &&
        memcmp(of_a->data, of_b->data, (size_t)oct_numel(of_b) * oct_dtype_bytes(of_b->dtype)) == 0;
}

Test(layers, of_a_model_and_of_its_program_are_pairs)
{
    deployment d;
    oct_layer_source model, program;
    oct_layer_pairs pairs;
    begin_calibrated(&d);
    OK(oct_layer_source_of_model(&model, d.root, &d.example));
    OK(oct_layer_source_of_program(&program, &d.program));
    OK(oct_layer_pairs_create(&pairs, &model, &program));
    for (int64_t i = 0; i < program.count; i++)
        cr_assert(pairs.a_of[i] >= 0, "%s is missing", program.layers[i].name);
    comparison c = {.program = &program};
    for (int64_t i = 0; i < DEPLOY_SAMPLES; i++) {
        const float *x = d.x[0] + i * oct_shape_numel(&d.example.shape[0]);
        OK(oct_layer_pairs_run(&pairs, x, x, compare, &c));
    }
    cr_assert_eq(c.pairs, (int)program.count * DEPLOY_SAMPLES);
    cr_assert_eq(c.equal, c.pairs, "QAT evaluation and program agree in every bit");
    oct_layer_pairs_free(&pairs);
    oct_layer_source_free(&model);
    oct_layer_source_free(&program);
    deploy_end(&d);
}

static oct_status fetch(void *user, int64_t i, float *input)
{
    const deployment *d = user;
    const int64_t numel = oct_shape_numel(&d->example.shape[0]);
    memcpy(input, d->x[0] + i * numel, (size_t)numel * sizeof(float));
    return OCT_OK;
}

static oct_layer_figures *survey_of(deployment *d)
{
    oct_layer_figures *figures;
    const oct_layer_survey survey = {.program = &d->program,
                                     .model = d->root,
                                     .samples = DEPLOY_SAMPLES,
                                     .fetch = fetch,
                                     .user = d};
    OK(oct_layer_survey_run(&survey, &oct_collective_one, &figures));
    return figures;
}

/* The last layer's figures, from the outputs of whole batches. */
static void check_last(deployment *d, const oct_layer_figures *f)
{
    enum { N = DEPLOY_SAMPLES * 5 };
    float real[N], rounded[N];
    double signal = 0, noise = 0, largest = 0;
    memcpy(rounded, deploy_forward(d)->data, sizeof rounded);
    oct_quantizers_set_state(&d->quantizers, OCT_QUANT_OFF);
    memcpy(real, deploy_forward(d)->data, sizeof real);
    oct_quantizers_set_state(&d->quantizers, OCT_QUANT_FROZEN);
    for (int i = 0; i < N; i++) {
        const double off = (double)real[i] - (double)rounded[i];
        signal += (double)real[i] * (double)real[i];
        noise += off * off;
        largest = fmax(largest, fabs(off));
    }
    cr_assert_float_eq(oct_error_sqnr(&f->same_weights.sums), 10 * log10(signal / noise), 1e-3);
    cr_assert_float_eq(f->same_weights.max_error, largest, 1e-4);
    check_spread(&f->spread, real, N);
    cr_assert_eq(f->values, N);
    cr_assert(largest > 0);
}

Test(layers, of_a_survey_have_figures_that_add_up)
{
    deployment d;
    oct_layer_figures *figures;
    begin_calibrated(&d);
    figures = survey_of(&d);
    for (int64_t i = 0; i < d.program.num_steps; i++) {
        const oct_layer_figures *f = &figures[i];
        const double sqnr = oct_error_sqnr(&f->same_weights.sums);
        int64_t counted = 0;
        for (int b = 0; b < OCT_SPREAD_BINS; b++)
            counted += f->spread.count[b];
        cr_assert(f->known && !f->referred, "%s", d.program.steps[i].name);
        cr_assert_eq(f->values, DEPLOY_SAMPLES * oct_value_numel(oct_step_output(
                                                     &d.program, &d.program.steps[i])));
        cr_assert_eq(counted, f->values);
        cr_assert(f->clipped < f->values / 4 && sqnr > 20 && sqnr < 80, "%s: %g dB",
                  d.program.steps[i].name, sqnr);
        cr_assert(oct_error_cosine(&f->same_weights.sums) > 0.99);
    }
    check_last(&d, &figures[d.program.num_steps - 1]);
    oct_free(&figures);
    deploy_end(&d);
}

Test(layers, of_a_survey_count_what_is_clipped)
{
    deployment d;
    oct_layer_figures *figures;
    begin_calibrated(&d);
    /* The input's codes reach half as far as they should. */
    oct_value *input = &d.program.values[d.program.steps[0].output];
    const float half = input->q.scale / 2;
    int64_t beyond = 0;
    cr_assert_eq(d.program.steps[0].kind, OCT_STEP_QUANTIZE);
    input->q.scale = half;
    figures = survey_of(&d);
    for (int64_t i = 0; i < figures[0].values; i++)
        beyond += d.x[0][i] > 127.5f * half || d.x[0][i] < -128.5f * half;
    cr_assert_eq(figures[0].clipped, beyond);
    cr_assert(beyond > 0);
    oct_free(&figures);
    deploy_end(&d);
}

Test(layers, weights_are_compared_with_their_codes)
{
    deployment d;
    oct_weight_figures f;
    begin_calibrated(&d);
    oct_module *m = oct_module_find(d.root, "a");
    cr_assert_eq(m->type, &oct_qat_conv_type);
    OK(oct_weight_figures_of((const oct_qat_conv *)m, &f));
    const oct_tensor *w = &((const oct_qat_conv *)m)->layer->params[0]->value;
    check_spread(&f.spread, oct_f32(w), oct_numel(w));
    cr_assert_eq(f.clipped, 0, "scales follow from the largest weights");
    /* Errors of up to half a code, of 254 codes from end to end. */
    const double sqnr = oct_error_sqnr(&f.sums);
    cr_assert(sqnr > 38 && sqnr < 60, "%g", sqnr);
    cr_assert(f.scale_min > 0 && f.scale_min < f.scale_max);
    cr_assert_float_eq((double)fmaxf(f.spread.max, -f.spread.min), 127 * (double)f.scale_max, 1e-5);
    deploy_end(&d);
}
