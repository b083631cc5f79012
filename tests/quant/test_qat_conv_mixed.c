/* qat_conv in all its kinds: codes of 8 and 16 bits in any mixture, a second addend, transposed and
 * linear layers, both targets; forward against an oracle from the definition, backward against the
 * float operations, and the program against the evaluation.
 */
#include "core/nn/params.h"
#include "tests/quant/conv_case.h"
#include "tests/support/check_status.h"

#include <omp.h>

/* Every mixture that a target allows. */
static void each_case(void (*check)(const conv_case *v))
{
    static const int widths[][3] = {{8, 0, 8},  {8, 8, 8},   {8, 0, 0},  {8, 8, 0},  {16, 0, 16},
                                    {16, 0, 8}, {8, 0, 16},  {16, 0, 0}, {16, 8, 8}, {16, 16, 16},
                                    {8, 16, 8}, {8, 16, 16}, {8, 16, 0}, {8, 8, 16}};
    for (conv_kind kind = 0; kind < CONV_KINDS; kind++)
        for (size_t i = 0; i < OCT_COUNT(widths); i++)
            for (int norm = 0; norm < 3; norm++) {
                conv_case v = {.kind = kind,
                               .target = "x86",
                               .in_bits = widths[i][0],
                               .add_bits = widths[i][1],
                               .out_bits = widths[i][2],
                               .batch_norm = norm > 0,
                               .live = norm == 2,
                               .bias = (i + (size_t)norm) % 2,
                               .activation = (oct_activation)((i + (size_t)norm + kind) % 3)};
                check(&v);
                if (v.add_bits || v.batch_norm) continue;
                v.target = "pow2";
                check(&v);
            }
}

typedef struct oracle {
    int64_t in, out, k, rows; /* of a sample: rows of O */
    int32_t *x, *r;           /* logical codes */
    float sx, sr;
    int8_t w[CASE_O * 9 * CASE_C];
    float sw[CASE_O];
    int64_t *acc;
    double gain[CASE_O], shift[CASE_O];
    double *v; /* in units of the output scale, before rounding and clipping */
    int64_t *rounded;
} oracle;

static int32_t *logical_codes(const bench *b, int i, float *scale)
{
    const oct_quantized *stub = (const oct_quantized *)((const stubbed *)b->root)->stub[i];
    const oct_qparams q = oct_fake_quant_qparams((const oct_fake_quant *)stub->fake_quant);
    const int64_t n = oct_shape_numel(&b->shape[i]);
    int32_t *codes = calloc((size_t)n, sizeof *codes);
    *scale = q.scale;
    for (int64_t j = 0; j < n; j++) {
        const double code = nearbyint((double)(b->x[i][j] * (1.0f / q.scale))) + q.zero_point;
        codes[j] = (int32_t)fmin(fmax(code, 0), q.qmax) - q.zero_point;
    }
    return codes;
}

/* wq: of the weights, or NULL. */
static void quantize_weights(oracle *o, const float *weight, const oct_weight_fake_quant *wq,
                             bool pow2)
{
    for (int c = 0; c < CASE_O; c++) {
        const float *w = weight + c * o->k;
        float absmax = 0;
        for (int64_t i = 0; i < o->k; i++)
            absmax = fmaxf(absmax, fabsf(w[i]));
        o->sw[c] = absmax / 127.0f;
        if (wq) o->sw[c] = wq->scale ? oct_f32(&wq->scale->value)[c] : o->sw[c] * 0.66f;
        if (pow2) o->sw[c] = exp2f(ceilf(log2f(o->sw[c])));
        for (int64_t i = 0; i < o->k; i++)
            o->w[c * o->k + i] =
                (int8_t)fmin(fmax(nearbyint((double)(w[i] * (1.0f / o->sw[c]))), -127), 127);
    }
}

/* Output pixel (oy, ox) of a convolution; a transposed one is taken apart by which inputs reach it. */
static int64_t sum_at(const oracle *o, conv_kind kind, int64_t sample, int64_t oy, int64_t ox,
                      int64_t c)
{
    const oct_conv_geometry g = case_geometry(kind);
    const int64_t group_c = CASE_C / g.groups, group = c / (CASE_O / g.groups);
    int64_t sum = 0;
    for (int64_t i = 0; i < o->k; i++) {
        const int64_t wy = i / (g.kernel_w * group_c), wx = i / group_c % g.kernel_w;
        const int64_t from = group * group_c + i % group_c;
        int64_t y, x;
        if (case_transposes(kind)) { /* out = in * stride - padding + k * dilation, weight turned */
            const int64_t ty = oy + g.pad_top - (g.kernel_h - 1 - wy) * g.dilation_h;
            const int64_t tx = ox + g.pad_left - (g.kernel_w - 1 - wx) * g.dilation_w;
            if (ty % g.stride_h != 0 || tx % g.stride_w != 0) continue;
            y = ty / g.stride_h;
            x = tx / g.stride_w;
        } else {
            y = oy * g.stride_h - g.pad_top + wy * g.dilation_h;
            x = ox * g.stride_w - g.pad_left + wx * g.dilation_w;
        }
        if (y < 0 || y >= CASE_H || x < 0 || x >= CASE_W) continue;
        sum += (int64_t)o->x[((sample * CASE_H + y) * CASE_W + x) * CASE_C + from] *
               o->w[c * o->k + i];
    }
    return sum;
}

static void convolve(oracle *o, conv_kind kind)
{
    const oct_shape out = case_output(kind);
    o->acc = calloc((size_t)o->out, sizeof *o->acc);
    for (int64_t i = 0; i < o->out; i++) {
        const int64_t c = i % CASE_O, row = i / CASE_O;
        if (case_is_linear(kind)) {
            for (int64_t j = 0; j < CASE_C; j++)
                o->acc[i] += (int64_t)o->x[row * CASE_C + j] * o->w[c * CASE_C + j];
            continue;
        }
        const int64_t plane = out.dim[1] * out.dim[2];
        o->acc[i] = sum_at(o, kind, row / plane, row % plane / out.dim[2], row % out.dim[2], c);
    }
}

static void take_affine(oracle *o, const oct_qat_conv *m, bool live)
{
    const oct_batch_norm_module *bn = (const oct_batch_norm_module *)m->batch_norm;
    const oct_param *bias = m->layer->num_params > 1 ? m->layer->params[1] : NULL;
    const int64_t rows = o->out / CASE_O;
    for (int64_t c = 0; c < CASE_O; c++) {
        const double b = bias ? (double)oct_f32(&bias->value)[c] : 0;
        o->gain[c] = 1;
        o->shift[c] = b;
        if (!bn) continue;
        const double scale = (double)o->sx * (double)o->sw[c];
        long double sum = 0, square = 0;
        for (int64_t i = 0; i < rows; i++) {
            sum += o->acc[i * CASE_O + c];
            square += (long double)o->acc[i * CASE_O + c] * o->acc[i * CASE_O + c];
        }
        double mean = (double)bn->running_mean[c], var = (double)bn->running_var[c];
        if (live) {
            mean = (double)(float)((double)(sum / rows) * scale + b);
            var = (double)(square / rows - sum / rows * (sum / rows)) * scale * scale;
        }
        o->gain[c] = (double)oct_f32(&bn->gamma->value)[c] *
                     (double)(float)(1 / sqrt(var + (double)bn->args.eps));
        o->shift[c] = (double)oct_f32(&bn->beta->value)[c] + (b - mean) * o->gain[c];
    }
}

/* Scaling and rounding as epilogue.h and fold.h define them; sy is 1 for a float output. */
static void scale_sums(oracle *o, const conv_case *v, float sy)
{
    const bool wide = v->in_bits == 16 || v->add_bits == 16 || v->out_bits == 16;
    const bool shift = strcmp(v->target, "pow2") == 0;
    o->v = calloc((size_t)o->out, sizeof *o->v);
    o->rounded = calloc((size_t)o->out, sizeof *o->rounded);
    for (int64_t i = 0; i < o->out; i++) {
        const int64_t c = i % CASE_O;
        const float beta = (float)o->shift[c];
        float e = (float)(127.0 * (double)o->sw[c] * o->gain[c]) / 127.0f;
        int64_t sum;
        if (o->gain[c] == 0) { /* by its bias alone */
            e = (float)(fabs((double)beta) / 0x1p20 / (double)o->sx);
            sum = beta > 0 ? 1 << 20 : beta < 0 ? -(1 << 20) : 0;
        } else {
            sum = o->acc[i] + (int64_t)nearbyint((double)beta / (double)(o->sx * e));
        }
        const float multiplier = o->sx * e / sy, residual = o->sr / sy;
        if (wide || shift) {
            o->v[i] = (double)sum * (double)multiplier;
            if (o->r) o->v[i] += o->r[i] * (double)residual;
        } else {
            float value = (float)(int32_t)sum * multiplier;
            if (o->r) value = value + (float)o->r[i] * residual;
            o->v[i] = (double)value;
        }
        o->rounded[i] = (int64_t)(shift ? floor(o->v[i] + 0.5) : nearbyint(o->v[i]));
    }
}

static void oracle_begin(oracle *o, const bench *b, const conv_case *v, bool live, float sy)
{
    const oct_qat_conv *m = case_conv(b);
    const oct_shape in = case_input(v->kind), out = case_output(v->kind);
    *o = (oracle){.in = oct_shape_numel(&in), .out = oct_shape_numel(&out)};
    const oct_conv_geometry g = case_geometry(v->kind);
    o->k = case_is_linear(v->kind) ? CASE_C : g.kernel_h * g.kernel_w * CASE_C / g.groups;
    o->x = logical_codes(b, 0, &o->sx);
    if (v->add_bits) o->r = logical_codes(b, 1, &o->sr);
    const oct_weight_fake_quant *wq = (const oct_weight_fake_quant *)m->weight_fake_quant;
    quantize_weights(o, oct_f32(&m->layer->params[0]->value), wq, strcmp(v->target, "pow2") == 0);
    convolve(o, v->kind);
    take_affine(o, m, live);
    scale_sums(o, v, sy);
}

static void oracle_end(oracle *o)
{
    free(o->x);
    free(o->r);
    free(o->acc);
    free(o->v);
    free(o->rounded);
}

static oct_qparams output_qparams(const bench *b)
{
    const oct_fake_quant *fq = (const oct_fake_quant *)case_conv(b)->q.fake_quant;
    return fq ? oct_fake_quant_qparams(fq) : (oct_qparams){.scale = 1.0f};
}

/* Bounds of logical codes. */
static void bounds(const conv_case *v, oct_qparams q, int64_t *lo, int64_t *hi)
{
    *lo = v->activation == OCT_ACT_NONE ? -q.zero_point : 0;
    *hi = q.qmax - q.zero_point;
    const double six = nearbyint((double)(6.0f / q.scale));
    if (v->activation == OCT_ACT_RELU6 && six < (double)*hi) *hi = (int64_t)six;
}

static void check_output(const conv_case *v, const oracle *o, oct_qparams q, const oct_tensor *y)
{
    int64_t lo, hi;
    bounds(v, q, &lo, &hi);
    for (int64_t i = 0; i < o->out; i++) {
        float want = (float)o->v[i];
        if (v->activation != OCT_ACT_NONE) want = fmaxf(want, 0);
        if (v->activation == OCT_ACT_RELU6) want = fminf(want, 6);
        if (v->out_bits) {
            const int64_t code = o->rounded[i] < lo ? lo : o->rounded[i] > hi ? hi : o->rounded[i];
            want = (float)code * q.scale;
        }
        cr_assert(oct_f32(y)[i] == want,
                  "kind %d, %s, %d + %d -> %d bits, norm %d live %d, activation %d: element %lld: "
                  "%.9g, not %.9g",
                  v->kind, v->target, v->in_bits, v->add_bits, v->out_bits, v->batch_norm, v->live,
                  v->activation, (long long)i, (double)oct_f32(y)[i], (double)want);
    }
}

static void check_forward(const conv_case *v)
{
    bench b;
    oracle o;
    case_begin(&b, v);
    const oct_qparams q = output_qparams(&b);
    oracle_begin(&o, &b, v, v->live, q.scale);
    check_output(v, &o, q, bench_forward(&b, true));
    oracle_end(&o);
    bench_end(&b);
}

Test(qat_conv_mixed, forward_is_the_definition, .timeout = 300)
{
    each_case(check_forward);
}

/* The float counterpart: dequantized inputs and weights through the float ops. */
static oct_tensor *float_counterpart(oct_context *cx, const bench *b, const conv_case *v,
                                     oct_tensor **x)
{
    const oct_qat_conv *m = case_conv(b);
    const oct_batch_norm_module *bn = (const oct_batch_norm_module *)m->batch_norm;
    oct_param *weight = m->layer->params[0],
              *bias = m->layer->num_params > 1 ? m->layer->params[1] : NULL;
    for (int i = 0; i < b->n; i++) {
        const oct_quantized *stub = (const oct_quantized *)((const stubbed *)b->root)->stub[i];
        x[i] = oct_tensor_new(cx, OCT_F32, b->shape[i]);
        x[i]->needs_grad = true;
        oct_fake_quantize(b->x[i], oct_numel(x[i]),
                          oct_fake_quant_qparams((const oct_fake_quant *)stub->fake_quant),
                          oct_f32(x[i]), NULL);
    }
    oct_tensor *y;
    if (case_is_linear(v->kind))
        y = oct_linear(cx, x[0], weight, bias);
    else if (case_transposes(v->kind))
        y = oct_conv_transpose2d(cx, x[0], weight, bias, case_geometry(v->kind));
    else
        y = oct_conv2d(cx, x[0], weight, bias, case_geometry(v->kind));
    if (bn) {
        const oct_bn_args args = {.gamma = bn->gamma,
                                  .beta = bn->beta,
                                  .running_mean = bn->running_mean,
                                  .running_var = bn->running_var,
                                  .eps = bn->args.eps,
                                  .batch_stats = v->live};
        y = oct_batch_norm(cx, y, &args);
    }
    return v->add_bits ? oct_add(cx, y, x[1]) : y;
}

/* Gradients are compared where it is clear whether they pass: next to an edge both are cleared. */
static void cut_gradient(const conv_case *v, const oracle *o, oct_qparams q, float *grad,
                         float *cut)
{
    int64_t lo, hi, stopped = 0;
    bounds(v, q, &lo, &hi);
    for (int64_t i = 0; i < o->out; i++) {
        const double value = o->v[i], six = (double)(6.0f / q.scale);
        bool pass = true, unclear = false;
        if (v->out_bits) {
            pass = o->rounded[i] >= lo && o->rounded[i] <= hi;
            unclear =
                fabs(value - ((double)lo - 0.5)) < 0.01 || fabs(value - ((double)hi + 0.5)) < 0.01;
            /* A learned scale's slope jumps where the code does. */
            const double to_edge = fabs(fabs(value - nearbyint(value)) - 0.5);
            unclear |= v->method && to_edge < 0.01;
        }
        if (v->activation != OCT_ACT_NONE) {
            pass &= value > 0;
            unclear |= fabs(value) < 1e-3;
        }
        if (v->activation == OCT_ACT_RELU6) {
            pass &= value < six;
            unclear |= fabs(value - six) < 1e-3;
        }
        if (unclear) grad[i] = 0;
        cut[i] = pass ? grad[i] : 0;
        stopped += !pass;
    }
    if (v->activation != OCT_ACT_NONE) cr_assert(stopped > 0 && stopped < o->out);
}

static double distance(const float *got, const float *want, int64_t n)
{
    double error = 0, norm = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        error += pow((double)got[i] - (double)want[i], 2);
        norm += pow((double)want[i], 2);
    }
    return sqrt(error / norm);
}

static void use_dequantized_weights(const bench *b, const oracle *o)
{
    float *weight = oct_f32(&case_conv(b)->layer->params[0]->value);
    for (int64_t i = 0; i < CASE_O * o->k; i++)
        weight[i] = (float)o->w[i] * o->sw[i / o->k];
}

/* Weights beyond the codes get no gradient; scales get LSQ's (arXiv 1902.08153, equations 3 and 4). weight: before
 * they became the values of their codes. total: gradients of the float counterpart. */
static void check_learned_weights(const bench *b, const oracle *o, const float *weight,
                                  const float *got, float *total)
{
    const oct_weight_fake_quant *wq = (oct_weight_fake_quant *)case_conv(b)->weight_fake_quant;
    const int64_t each = (wq->per_tensor ? CASE_O : 1) * o->k;
    float *of_weight = total + wq->weight->offset, want[CASE_O] = {0};
    int64_t cut = 0;
    for (int64_t i = 0; i < CASE_O * o->k; i++) {
        const float s = o->sw[i / o->k];
        const double v = (double)(weight[i] * (1.0f / s));
        const double factor = 1 / sqrt((double)each * 127);
        want[i / each] +=
            (float)(factor * (double)of_weight[i] * lsq_step(v, -127, 127, (double)s));
        if (fabs(nearbyint(v)) <= 127) continue;
        of_weight[i] = 0;
        cut++;
    }
    cr_assert((cut > 0 || wq->shift || o->k < 9) && cut < CASE_O * o->k / 2, "%lld weights are cut",
              (long long)cut);
    if (!wq->scale) return;
    for (int i = 1; wq->per_tensor && i < CASE_O; i++)
        want[i] = want[0];
    cr_assert_leq(distance(got + wq->scale->offset, want, CASE_O), 1e-4, "scales of weights: %g",
                  distance(got + wq->scale->offset, want, CASE_O));
}

static void check_learned_output(const bench *b, const conv_case *v, const oracle *o,
                                 const float *grad, const float *got)
{
    const oct_qparams q = output_qparams(b);
    const oct_fake_quant *fq = (const oct_fake_quant *)case_conv(b)->q.fake_quant;
    const double lo = q.qmin - q.zero_point, hi = q.qmax - q.zero_point;
    double want = 0;
    for (int64_t i = 0; i < o->out; i++) {
        double value = o->v[i];
        if (v->activation != OCT_ACT_NONE) value = fmax(value, 0);
        if (v->activation == OCT_ACT_RELU6) value = fmin(value, (double)(6.0f / q.scale));
        want += (double)grad[i] * lsq_step(value, lo, hi, (double)q.scale);
    }
    /* A value in steps of 2^-16 of the range has 7 bits after the point in float. */
    const double factor = 1 / sqrt((double)(o->out / CASE_N) * hi);
    const double loose = (v->out_bits == 16 ? 0.1 : 1e-3) * factor;
    want *= factor;
    cr_assert_float_eq((double)got[fq->learned->offset], want, 1e-4 * fabs(want) + loose,
                       "kind %d, %s, %d + %d -> %d bits, live %d: %g, not %g", v->kind, v->target,
                       v->in_bits, v->add_bits, v->out_bits, v->live,
                       (double)got[fq->learned->offset], want);
}

static void check_backward(const conv_case *v)
{
    bench b;
    oracle o;
    oct_params params = {0};
    oct_context *cx = NULL;
    oct_tensor *x[2];
    case_begin(&b, v);
    const oct_qparams q = output_qparams(&b);
    oracle_begin(&o, &b, v, v->live, q.scale);
    b.cx->numerics = OCT_NUMERICS_F32;
    OK(oct_params_bind(&params, b.root, &b.leaves));
    float *grad = calloc((size_t)o.out, 4), *cut = calloc((size_t)o.out, 4),
          *got = calloc((size_t)params.numel, 4);
    oct_fill_normal(grad, o.out, 11, OCT_STREAM_TEST, 1, 0.0f, 1.0f);
    cut_gradient(v, &o, q, grad, cut);

    oct_params_zero(&params);
    bench_backward(&b, bench_forward(&b, true), grad);
    OK(oct_params_reduce(&params, &oct_collective_one, &b.leaves));
    oct_quantizers quantizers;
    OK(oct_quantizers_collect(&quantizers, b.root));
    OK(oct_quantizers_backward(&quantizers));
    oct_quantizers_free(&quantizers);
    memcpy(got, params.grads, (size_t)params.numel * 4);

    float weight[CASE_O * 9 * CASE_C];
    memcpy(weight, case_conv(&b)->layer->params[0]->value.data, (size_t)(CASE_O * o.k) * 4);
    use_dequantized_weights(&b, &o);
    oct_params_zero(&params);
    OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, b.leaves, true);
    oct_tensor *y = float_counterpart(cx, &b, v, x);
    OK(oct_context_status(cx));
    float *given = oct_scratch(cx, (size_t)o.out * 4);
    memcpy(given, cut, (size_t)o.out * 4);
    oct_add_grad(cx, y, given);
    OK(oct_backward(cx, y));
    OK(oct_params_reduce(&params, &oct_collective_one, &b.leaves));

    if (v->method) check_learned_weights(&b, &o, weight, got, params.grads);
    if (v->method && v->method->slope && v->out_bits) check_learned_output(&b, v, &o, grad, got);
    /* The sums are exact on one side and rounded on the other. */
    for (size_t i = 0; i < params.count; i++) {
        const oct_param *p = params.items[i];
        if (strcmp(p->name, "scale") == 0) continue;
        const int64_t n = oct_numel(&p->value);
        /* A layer's bias before live batch norm has no gradient but rounding's. */
        if (v->live && strcmp(p->name, "bias") == 0 && p == case_conv(&b)->layer->params[1])
            continue;
        cr_assert_leq(distance(got + p->offset, params.grads + p->offset, n), 2e-5,
                      "kind %d, %s, %d + %d -> %d bits, norm %d live %d: %s is off by %g", v->kind,
                      v->target, v->in_bits, v->add_bits, v->out_bits, v->batch_norm, v->live,
                      p->name, distance(got + p->offset, params.grads + p->offset, n));
    }
    for (int i = 0; i < b.n; i++)
        cr_assert_leq(distance(b.input[i]->grad, x[i]->grad, oct_numel(x[i])), 2e-5,
                      "kind %d, %s, %d + %d -> %d bits, norm %d live %d: input %d is off by %g",
                      v->kind, v->target, v->in_bits, v->add_bits, v->out_bits, v->batch_norm,
                      v->live, i, distance(b.input[i]->grad, x[i]->grad, oct_numel(x[i])));
    oct_context_destroy(&cx);
    oct_params_unbind(&params);
    free(grad);
    free(cut);
    free(got);
    oracle_end(&o);
    bench_end(&b);
}

Test(qat_conv_mixed, backward_is_the_straight_through_gradient, .timeout = 300)
{
    each_case(check_backward);
}

static void check_learned(const conv_case *v)
{
    conv_case own = *v;
    own.method = v->bias ? &lsq_fake_quant : &lsq_tensor_fake_quant;
    check_forward(&own);
    check_backward(&own);
    if (v->in_bits != 8 || v->add_bits || v->out_bits != 8) return;
    own.method = &clipping_fake_quant;
    check_forward(&own);
    check_backward(&own);
}

Test(qat_conv_mixed, learned_scales_have_the_gradients_of_their_definition, .timeout = 300)
{
    each_case(check_learned);
}

static void check_program(const conv_case *v);

static void check_offset(const conv_case *v)
{
    conv_case own = *v;
    own.offset = true;
    if (strcmp(v->target, "pow2") == 0) return;
    check_forward(&own);
    check_backward(&own);
    check_program(&own);
}

Test(qat_conv_mixed, zero_points_may_be_any_code, .timeout = 300)
{
    each_case(check_offset);
}

static void check_program(const conv_case *v)
{
    bench b;
    oracle o;
    oct_program program;
    oct_runtime *runtime = NULL;
    case_begin(&b, v);
    bench_state(&b, OCT_QUANT_FROZEN);
    bench_program(&b, &program);
    OK(oct_program_check(&program));
    oct_module_train(b.root, false);
    const oct_qparams q = output_qparams(&b);
    const oct_tensor *y = bench_forward(&b, false);
    oracle_begin(&o, &b, v, false, q.scale);
    check_output(v, &o, q, y);
    float *got = calloc((size_t)oct_numel(y), sizeof *got);
    OK(oct_runtime_create(&runtime, &program, &(oct_runtime_options){.max_batch = CASE_N}));
    OK(oct_runtime_run(runtime, CASE_N, (const float *const *)b.x, got));
    oct_check_bits_f32(got, y->data, oct_numel(y), "the program's output");
    oct_runtime_destroy(&runtime);
    oct_program_free(&program);
    free(got);
    oracle_end(&o);
    bench_end(&b);
}

Test(qat_conv_mixed, programs_compute_the_evaluation_bit_for_bit, .timeout = 300)
{
    each_case(check_program);
}

/* One training step of a case, and what may be done otherwise in it. */
typedef struct way {
    int threads;
    oct_hold hold;
    oct_numerics numerics;
    bool current_scales;
} way;

typedef struct stepped {
    bench b;
    oct_params params;
    oct_tensor *y;
} stepped;

static void stepped_begin(stepped *s, const conv_case *v, way w)
{
    omp_set_num_threads(w.threads);
    case_begin(&s->b, v);
    s->b.cx->numerics = w.numerics;
    case_conv(&s->b)->hold = w.hold;
    if (v->out_bits)
        ((oct_fake_quant *)case_conv(&s->b)->q.fake_quant)->qconfig.current_scales =
            w.current_scales;
    OK(oct_params_bind(&s->params, s->b.root, &s->b.leaves));
    oct_params_zero(&s->params);
    s->y = bench_forward(&s->b, true);
    float *grad = calloc((size_t)oct_numel(s->y), sizeof *grad);
    oct_fill_normal(grad, oct_numel(s->y), 11, OCT_STREAM_TEST, 1, 0.0f, 1.0f);
    bench_backward(&s->b, s->y, grad);
    OK(oct_params_reduce(&s->params, &oct_collective_one, &s->b.leaves));
    free(grad);
}

static void stepped_end(stepped *s)
{
    oct_params_unbind(&s->params);
    bench_end(&s->b);
}

static void check_same(const conv_case *v, way first, way second)
{
    stepped s[2];
    stepped_begin(&s[0], v, first);
    stepped_begin(&s[1], v, second);
    oct_check_bits_f32(s[1].y->data, s[0].y->data, oct_numel(s[0].y), "output");
    oct_check_bits_f32(s[1].params.grads, s[0].params.grads, s[0].params.numel, "parameters");
    for (int i = 0; i < s[0].b.n; i++)
        oct_check_bits_f32(s[1].b.input[i]->grad, s[0].b.input[i]->grad,
                           oct_shape_numel(&s[0].b.shape[i]), "gradient");
    stepped_end(&s[0]);
    stepped_end(&s[1]);
}

static void check_threads(const conv_case *v)
{
    for (oct_numerics numerics = OCT_NUMERICS_BF16; numerics <= OCT_NUMERICS_INT8; numerics++)
        check_same(v, (way){.threads = 1, .numerics = numerics},
                   (way){.threads = 3, .numerics = numerics});
}

Test(qat_conv_mixed, threads_change_no_bit, .timeout = 300)
{
    each_case(check_threads);
}

static void check_hold(const conv_case *v)
{
    for (int current = 0; current < 2; current++)
        check_same(v, (way){2, OCT_HOLD_NEVER, OCT_NUMERICS_F32, current},
                   (way){2, OCT_HOLD_ALWAYS, OCT_NUMERICS_F32, current});
}

Test(qat_conv_mixed, accumulators_held_or_computed_again_change_no_bit, .timeout = 300)
{
    each_case(check_hold);
}

/* Rounding to bfloat16 is off by 2^-9 of a value at most, to 8 bits by a code; sums of random terms stay well below. */
static void check_close(const conv_case *v, oct_numerics numerics, double bound)
{
    stepped s[2];
    stepped_begin(&s[0], v, (way){.threads = 1, .numerics = OCT_NUMERICS_F32});
    stepped_begin(&s[1], v, (way){.threads = 1, .numerics = numerics});
    oct_check_bits_f32(s[1].y->data, s[0].y->data, oct_numel(s[0].y), "output");
    for (size_t i = 0; i < s[0].params.count; i++) {
        const oct_param *p = s[0].params.items[i];
        const float *f32 = s[0].params.grads + p->offset, *other = s[1].params.grads + p->offset;
        const int64_t n = oct_numel(&p->value);
        if (p->value.shape.ndim == 1) /* of biases and batch norms nothing is rounded */
            oct_check_bits_f32(other, f32, n, p->name);
        else
            cr_assert_leq(distance(other, f32, n), bound, "kind %d: %s is off by %g", v->kind,
                          p->name, distance(other, f32, n));
    }
    const int64_t n = oct_numel(s[0].b.input[0]);
    const double off = distance(s[1].b.input[0]->grad, s[0].b.input[0]->grad, n);
    cr_assert_leq(off, bound, "kind %d: the input is off by %g", v->kind, off);
    if (v->kind == CONV_PLAIN) cr_assert_gt(off, 0, "nothing was rounded");
    stepped_end(&s[0]);
    stepped_end(&s[1]);
}

static void check_numerics(const conv_case *v)
{
    check_close(v, OCT_NUMERICS_BF16, 0x1p-8);
    check_close(v, OCT_NUMERICS_INT8, 0x1p-5);
}

Test(qat_conv_mixed, other_numerics_are_float32_to_their_rounding, .timeout = 300)
{
    each_case(check_numerics);
}

/* Current scales: the range is that of the sum, before it is clipped to codes. */
static void check_settles(const conv_case *v)
{
    bench b;
    oracle o;
    case_begin(&b, v);
    oct_fake_quant *fq = (oct_fake_quant *)case_conv(&b)->q.fake_quant;
    fq->qconfig.current_scales = true;
    fq->scale[0] = 77;
    oct_tensor *y = bench_forward(&b, true);
    oracle_begin(&o, &b, v, v->live, fq->scale[0]);
    check_output(v, &o, oct_fake_quant_qparams(fq), y);
    double most = 0;
    for (int64_t i = 0; i < o.out; i++)
        most = fmax(most, v->activation == OCT_ACT_NONE ? fabs(o.v[i]) : o.v[i]);
    const double codes = (double)((1 << v->out_bits) - 1);
    cr_assert_float_eq(most, v->activation == OCT_ACT_NONE ? codes / 2 : codes, 1e-5 * codes,
                       "the largest value is %g steps", most);
    oracle_end(&o);
    bench_end(&b);
}

Test(qat_conv_mixed, current_scales_are_those_of_the_sum, .timeout = 300)
{
    for (int bits = 8; bits <= 16; bits += 8)
        for (int add = 0; add <= 16; add += 8)
            for (int live = 0; live < 2; live++)
                check_settles(&(conv_case){.kind = CONV_PLAIN,
                                           .target = "x86",
                                           .in_bits = 8,
                                           .add_bits = add,
                                           .out_bits = bits,
                                           .batch_norm = true,
                                           .live = live,
                                           .activation = live ? OCT_ACT_RELU : OCT_ACT_NONE});
}

/* Two call sites of one layer: one set of weights, whose gradients add up. */
Test(qat_conv_mixed, a_shared_layer_has_one_gradient_of_both_call_sites)
{
    const conv_case v = {.kind = CONV_PLAIN,
                         .target = "x86",
                         .in_bits = 8,
                         .out_bits = 8,
                         .batch_norm = true,
                         .bias = true,
                         .activation = OCT_ACT_RELU};
    bench b;
    case_begin(&b, &v);
    stubbed *w = (stubbed *)b.root;
    oct_module *again = NULL;
    OK(oct_qat_conv_create_shared(&again, case_conv(&b), false, OCT_ACT_NONE));
    stubbed_adopt(again, (quantizer){16, true, 0.01f / 256}, oct_target_find("x86"));
    OK(oct_module_add_child(b.root, "again", &again));
    oct_params params = {0};
    OK(oct_params_bind(&params, b.root, &b.leaves));
    cr_assert_eq(params.count, 4, "weight, bias, gamma and beta are there once");
    float *sum[3] = {0};
    float *grad = NULL;
    for (int pass = 0; pass < 3; pass++) { /* the first site, the second one, both */
        oct_context_begin(b.cx, b.leaves, true);
        oct_params_zero(&params);
        oct_tensor *x = oct_tensor_view(b.cx, OCT_F32, b.shape[0], b.x[0]);
        oct_tensor *codes = oct_call(b.cx, w->stub[0], x);
        oct_tensor *first = oct_call(b.cx, w->dequant, oct_call(b.cx, w->middle, codes));
        oct_tensor *second = oct_call(b.cx, w->dequant, oct_call(b.cx, again, codes));
        OK(oct_context_status(b.cx));
        const int64_t n = oct_numel(first);
        if (!grad) {
            grad = calloc((size_t)n, 4);
            oct_fill_normal(grad, n, 11, OCT_STREAM_TEST, 1, 0.0f, 1.0f);
        }
        oct_tensor *zero = oct_tensor_new(b.cx, OCT_F32, first->shape);
        memset(zero->data, 0, (size_t)n * 4);
        oct_tensor *used = oct_add(b.cx, pass == 1 ? zero : first, pass == 0 ? zero : second);
        bench_backward(&b, used, grad);
        OK(oct_params_reduce(&params, &oct_collective_one, &b.leaves));
        sum[pass] = calloc((size_t)params.numel, 4);
        memcpy(sum[pass], params.grads, (size_t)params.numel * 4);
    }
    double own[2] = {0};
    for (int64_t i = 0; i < params.numel; i++) {
        own[0] += fabs((double)sum[0][i]);
        own[1] += fabs((double)sum[1][i]);
        cr_assert_float_eq((double)sum[2][i], (double)sum[0][i] + (double)sum[1][i], 1e-4);
    }
    cr_assert(own[0] > 1 && own[1] > 1);
    for (int pass = 0; pass < 3; pass++)
        free(sum[pass]);
    free(grad);
    oct_params_unbind(&params);
    bench_end(&b);
    oct_module_destroy(&again);
}

static void check_refused(const conv_case *v, void (*damage)(bench *b), const char *want)
{
    bench b;
    case_begin(&b, v);
    damage(&b);
    cr_assert_null(bench_try(&b, true));
    cr_assert_eq(oct_context_status(b.cx), OCT_PREPARE);
    cr_assert_str_eq(oct_error_message(0), want);
    bench_end(&b);
}

static void shrink_summand(bench *b)
{
    b->shape[1].dim[3]--;
}
static void shrink_input(bench *b)
{
    b->shape[0].dim[3]--;
}
static void shift(bench *b)
{
    ((oct_quantized *)case_conv(b))->target = oct_target_find("pow2");
}
static void turn_off(bench *b)
{
    ((oct_fake_quant *)case_conv(b)->q.fake_quant)->state = OCT_QUANT_OFF;
}

Test(qat_conv_mixed, refuses_what_does_not_fit)
{
    const conv_case v = {
        .kind = CONV_PLAIN, .target = "x86", .in_bits = 8, .add_bits = 8, .out_bits = 8};
    check_refused(&v, shrink_summand,
                  "middle: its second addend (5, 5, 4, 5) differs in shape from its sum (5, 5, 4, "
                  "6)");
    check_refused(&v, shrink_input, "middle: input (5, 5, 4, 5) does not fit the layer");
    check_refused(&v, shift,
                  "middle: only a target that requantizes in float can add a second addend");
    check_refused(&v, turn_off, "middle: codes came in while its own fake-quant is off");
}

/* Gradients that are 0 but for a few, so that with a live batch norm most of dC is below half a code. */
static void draw_step(stepped *s, int draw)
{
    const int64_t n = oct_numel(s->y);
    float *grad = calloc((size_t)n, sizeof *grad);
    oct_params_zero(&s->params);
    s->y = bench_forward(&s->b, true);
    s->b.cx->draws.update = (uint64_t)draw;
    oct_fill_normal(grad, n, 11, OCT_STREAM_TEST, 1, 0.0f, 1.0f);
    for (int64_t i = 0; i < n; i++)
        grad[i] *= i / CASE_O % 16 == 0 ? 1.0f : 0.0f;
    bench_backward(&s->b, s->y, grad);
    OK(oct_params_reduce(&s->params, &oct_collective_one, &s->b.leaves));
    free(grad);
}

Test(qat_conv_mixed, int8_gradients_are_right_in_the_mean, .timeout = 60)
{
    enum { DRAWS = 2000, MOST = 1024 };
    const conv_case v = {.kind = CONV_PLAIN,
                         .target = "x86",
                         .in_bits = 8,
                         .out_bits = 8,
                         .batch_norm = true,
                         .live = true};
    static double sum[2][MOST], square[2][MOST];
    stepped s[2];
    stepped_begin(&s[0], &v, (way){.threads = 1, .numerics = OCT_NUMERICS_F32});
    stepped_begin(&s[1], &v, (way){.threads = 1, .numerics = OCT_NUMERICS_INT8});
    const int64_t offset = case_conv(&s[0].b)->layer->params[0]->offset;
    const int64_t n[2] = {oct_numel(&case_conv(&s[0].b)->layer->params[0]->value),
                          oct_numel(s[0].b.input[0])};
    cr_assert(n[0] <= MOST && n[1] <= MOST);
    draw_step(&s[0], 0);
    for (int draw = 0; draw < DRAWS; draw++) {
        draw_step(&s[1], draw);
        for (int k = 0; k < 2; k++)
            for (int64_t i = 0; i < n[k]; i++) {
                const float *right = k ? s[0].b.input[0]->grad : s[0].params.grads + offset;
                const float *got = k ? s[1].b.input[0]->grad : s[1].params.grads + offset;
                const double off = (double)got[i] - (double)right[i];
                sum[k][i] += off;
                square[k][i] += off * off;
            }
    }
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < n[k]; i++) {
            const double error = sqrt(square[k][i]) / DRAWS; /* of the mean */
            cr_assert_leq(fabs(sum[k][i] / DRAWS), 5 * error, "%d: element %d is off by %g, +- %g",
                          k, (int)i, sum[k][i] / DRAWS, error);
        }
    stepped_end(&s[0]);
    stepped_end(&s[1]);
}
