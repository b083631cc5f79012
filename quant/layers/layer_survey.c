/* Ranks share the samples in leaves of 8. Sums of a leaf are taken sample by sample, those of leaves along the
 * tree; counts and largest values are exact in any order. */
#include "quant/layers/layer_survey.h"

#include "core/base/mem.h"
#include "quant/observer/observer.h"
#include "quant/program/step.h"

#include <math.h>
#include <string.h>

/* Spreads. */

/* Widths below this are of no use to anybody, and a float has 24 bits. */
enum { SMALLEST = -64, FLOAT_BITS = 24 };

void oct_spread_begin(oct_spread *spread)
{
    *spread = (oct_spread){.min = INFINITY, .max = -INFINITY};
}

static int64_t bin_number(double x, int exponent)
{
    return (int64_t)floor(ldexp(x, -exponent));
}

/* Returns e of the narrowest bins, 2^e wide, that reach over a range. It never falls when the range grows. */
static int bin_exponent(float min, float max)
{
    int magnitude;
    frexp(fmax(fabs((double)min), fabs((double)max)), &magnitude);
    int exponent = magnitude - FLOAT_BITS > SMALLEST ? magnitude - FLOAT_BITS : SMALLEST;
    while (bin_number((double)max, exponent) - bin_number((double)min, exponent) >= OCT_SPREAD_BINS)
        exponent++;
    return exponent;
}

/* Widens a histogram to include [min, max]: where bins become wider, neighbours are merged, so counts stay exact. */
static void widen_spread(oct_spread *s, float min, float max)
{
    int64_t count[OCT_SPREAD_BINS] = {0};
    const bool empty = s->min > s->max;
    if (!empty && min >= s->min && max <= s->max) return;
    if (min < s->min) s->min = min;
    if (max > s->max) s->max = max;
    const int exponent = bin_exponent(s->min, s->max);
    const int64_t first = bin_number((double)s->min, exponent);
    for (int i = 0; i < OCT_SPREAD_BINS && !empty; i++) {
        if (s->count[i] == 0) continue;
        const double low = ldexp((double)(s->first + i), s->exponent);
        count[bin_number(low, exponent) - first] += s->count[i];
    }
    memcpy(s->count, count, sizeof count);
    s->exponent = exponent;
    s->first = first;
}

void oct_spread_add(oct_spread *s, const float *x, int64_t n)
{
    float min = INFINITY, max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) continue;
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    if (min <= max) widen_spread(s, min + 0.0f, max + 0.0f); /* 0 has one sign */
    const double factor = ldexp(1.0, -s->exponent), first = (double)s->first;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(x[i]))
            s->count[(int64_t)(floor((double)x[i] * factor) - first)]++;
        else
            s->unusual++;
}

/* Layers. */

enum { LEAF = 8, SUMS = sizeof(oct_error_sums) / sizeof(double) };

typedef struct survey {
    const oct_layer_survey *spec;
    oct_layer_source program, model, reference;
    oct_layer_pairs exact, referred; /* the program is b */
    oct_quantizers quantizers;
    oct_leaves leaves;
    oct_layer_figures *figures;
    /* By leaf and step, the distances to the model and to the reference. */
    oct_error_sums *sums, *leaf;
    float *input, *float_values, *values;
} survey;

/* Lists the layers of model (quantizers off), program and reference, and pairs the models' with the program's. */
static oct_status open_sources(survey *s)
{
    const oct_program *program = s->spec->program;
    const oct_value *input = &program->values[program->inputs[0]];
    OCT_TRY(oct_layer_source_of_program(&s->program, program));
    const oct_example example = {.count = 1, .shape = {OCT_SHAPE(1, input->h, input->w, input->c)}};
    OCT_TRY(oct_quantizers_collect(&s->quantizers, s->spec->model));
    oct_quantizers_set_state(&s->quantizers, OCT_QUANT_OFF);
    OCT_TRY(oct_layer_source_of_model(&s->model, s->spec->model, &example));
    OCT_TRY(oct_layer_pairs_create(&s->exact, &s->model, &s->program));
    if (!s->spec->reference) return OCT_OK;
    OCT_TRY(oct_layer_source_of_model(&s->reference, s->spec->reference, &example));
    return oct_layer_pairs_create(&s->referred, &s->reference, &s->program);
}

/* Allocates figures of each step, two sums of errors a step for each leaf, and room for the largest output. */
static oct_status alloc_figures(survey *s)
{
    const size_t steps = (size_t)s->program.count;
    size_t most = 0; /* numbers of the largest output */
    for (size_t i = 0; i < steps; i++) {
        const size_t numel = (size_t)oct_value_numel(&s->program.layers[i].value);
        most = numel > most ? numel : most;
    }
    OCT_TRY(oct_alloc(&s->figures, steps, sizeof *s->figures));
    for (size_t i = 0; i < steps; i++) {
        oct_layer_figures *f = &s->figures[i];
        *f = (oct_layer_figures){.known = s->exact.a_of[i] >= 0,
                                 .referred = s->spec->reference && s->referred.a_of[i] >= 0};
        oct_spread_begin(&f->spread);
    }
    OCT_TRY(oct_alloc(&s->sums, (size_t)s->leaves.local * 2 * steps, sizeof *s->sums));
    OCT_TRY(oct_alloc(&s->input, (size_t)oct_inputs_numel(s->spec->program), sizeof(float)));
    OCT_TRY(oct_alloc(&s->float_values, most, sizeof(float)));
    return oct_alloc(&s->values, most, sizeof(float));
}

/* Counts the values that are beyond the codes of q by more than half a step. */
static int64_t count_clipped(const float *x, int64_t n, oct_qparams q)
{
    const double low = ((double)(q.qmin - q.zero_point) - 0.5) * (double)q.scale;
    const double high = ((double)(q.qmax - q.zero_point) + 0.5) * (double)q.scale;
    int64_t clipped = 0;
    for (int64_t i = 0; i < n; i++)
        clipped += (double)x[i] < low || (double)x[i] > high;
    return clipped;
}

/* Measures a step's output against that of a model. */
static void compare(const survey *s, const oct_tensor *of_model, const oct_tensor *of_program,
                    oct_error_sums *sums, double *max_error)
{
    oct_layer_values(of_model, s->float_values);
    oct_layer_values(of_program, s->values);
    const double largest = oct_error_add(sums, s->float_values, s->values, oct_numel(of_program));
    if (largest > *max_error || isnan(largest)) *max_error = largest; /* a NaN, once taken, stays */
}

/* With the same weights, whose values give the spread. */
static void compare_with_model(void *user, int64_t step, const oct_tensor *of_model,
                               const oct_tensor *of_program)
{
    survey *s = user;
    oct_layer_figures *f = &s->figures[step];
    const int64_t n = oct_numel(of_program);
    compare(s, of_model, of_program, &s->leaf[2 * step], &f->same_weights.max_error);
    oct_spread_add(&f->spread, s->float_values, n);
    f->values += n;
    if (oct_is_codes(of_program)) f->clipped += count_clipped(s->float_values, n, of_program->q);
}

static void compare_with_reference(void *user, int64_t step, const oct_tensor *of_reference,
                                   const oct_tensor *of_program)
{
    survey *s = user;
    compare(s, of_reference, of_program, &s->leaf[2 * step + 1],
            &s->figures[step].reference.max_error);
}

/* Runs this rank's samples, and adds the errors of each layer to the sums of its leaf (8 samples). */
static oct_status measure_samples(survey *s)
{
    const oct_layer_survey *spec = s->spec;
    const int64_t first = oct_leaves_first_sample(&s->leaves);
    for (int64_t leaf = 0; leaf < s->leaves.local; leaf++) {
        const int64_t begin = first + oct_leaf_begin(&s->leaves, leaf);
        s->leaf = s->sums + leaf * 2 * s->program.count;
        for (int64_t i = begin; i < begin + oct_leaf_size(&s->leaves, leaf); i++) {
            OCT_TRY(spec->fetch(spec->user, i, s->input));
            OCT_TRY(oct_layer_pairs_run(&s->exact, s->input, s->input, compare_with_model, s));
            if (spec->reference)
                OCT_TRY(oct_layer_pairs_run(&s->referred, s->input, s->input,
                                            compare_with_reference, s));
        }
    }
    return OCT_OK;
}

/* Returns a whole number in the order of errors: they are not below 0, so their bits have it; NaN is above all. */
static int64_t error_key(double largest)
{
    int64_t key;
    if (isnan(largest)) largest = (double)NAN;
    memcpy(&key, &largest, sizeof key);
    return key & INT64_MAX;
}

enum { KEYS = 4 };

/* Writes range (lower end negated) and largest errors of a step as integers, whose maximum is that of all ranks. */
static void write_keys(const oct_layer_figures *f, int64_t keys[KEYS])
{
    keys[0] = -(int64_t)oct_float_key(f->spread.min);
    keys[1] = oct_float_key(f->spread.max);
    keys[2] = error_key(f->same_weights.max_error);
    keys[3] = error_key(f->reference.max_error);
}

/* Takes range and largest errors of all ranks from the maxima of their keys; bins become those of that range. */
static void read_keys(const int64_t keys[KEYS], oct_layer_figures *f)
{
    const float min = oct_float_of_order((int32_t)-keys[0]),
                max = oct_float_of_order((int32_t)keys[1]);
    if (min <= max) widen_spread(&f->spread, min, max);
    memcpy(&f->same_weights.max_error, &keys[2], sizeof(double));
    memcpy(&f->reference.max_error, &keys[3], sizeof(double));
}

enum { COUNTS = OCT_SPREAD_BINS + 3 };

/* Returns where the k-th count of a step is. */
static int64_t *count_at(oct_layer_figures *f, int k)
{
    int64_t *const others[] = {&f->spread.unusual, &f->values, &f->clipped};
    return k < OCT_SPREAD_BINS ? &f->spread.count[k] : others[k - OCT_SPREAD_BINS];
}

/* Gives every rank the figures of all samples. */
static oct_status reduce_figures(survey *s, const oct_collective *group)
{
    const int64_t steps = s->program.count, numbers = steps * 2 * SUMS;
    OCT_OWNED(oct_free) int64_t *keys = NULL, *counts = NULL;
    OCT_OWNED(oct_free) oct_error_sums *total = NULL;
    oct_status status = oct_alloc(&keys, (size_t)steps * KEYS, sizeof *keys);
    if (status == OCT_OK) status = oct_alloc(&counts, (size_t)steps * COUNTS, sizeof *counts);
    if (status == OCT_OK) status = oct_alloc(&total, (size_t)steps * 2, sizeof *total);
    OCT_TRY(group->agree(group, status));
    OCT_ASSERT(keys && counts && total);
    for (int64_t i = 0; i < steps; i++)
        write_keys(&s->figures[i], keys + i * KEYS);
    OCT_TRY(group->max_i64(group, keys, steps * KEYS));
    for (int64_t i = 0; i < steps; i++) {
        read_keys(keys + i * KEYS, &s->figures[i]); /* bins are those of all ranks from here on */
        for (int k = 0; k < COUNTS; k++)
            counts[i * COUNTS + k] = *count_at(&s->figures[i], k);
    }
    OCT_TRY(oct_sum_i64(group, counts, steps * COUNTS));
    oct_tree_fold_f64(&s->leaves, (double *)s->sums, numbers);
    OCT_TRY(group->tree_sum(group, &s->leaves, s->sums, numbers, sizeof(double), total));
    for (int64_t i = 0; i < steps; i++) {
        for (int k = 0; k < COUNTS; k++)
            *count_at(&s->figures[i], k) = counts[i * COUNTS + k];
        s->figures[i].same_weights.sums = total[2 * i];
        s->figures[i].reference.sums = total[2 * i + 1];
    }
    return OCT_OK;
}

oct_status oct_layer_survey_run(const oct_layer_survey *spec, const oct_collective *group,
                                oct_layer_figures **figures)
{
    survey s = {.spec = spec,
                .leaves = oct_leaves_split(spec->samples, LEAF, group->rank, group->size)};
    *figures = NULL;
    oct_status status = open_sources(&s);
    if (status == OCT_OK) status = alloc_figures(&s);
    if (status == OCT_OK) status = measure_samples(&s);
    OCT_TRY_OUT(group->agree(group, status));
    OCT_TRY_OUT(reduce_figures(&s, group));
    *figures = s.figures;
    s.figures = NULL;
out:
    oct_quantizers_set_state(&s.quantizers, OCT_QUANT_FROZEN);
    oct_quantizers_free(&s.quantizers);
    oct_layer_pairs_free(&s.exact);
    oct_layer_pairs_free(&s.referred);
    oct_layer_source_free(&s.program);
    oct_layer_source_free(&s.model);
    oct_layer_source_free(&s.reference);
    OCT_FREE_ALL(&s.figures, &s.sums, &s.input, &s.float_values, &s.values);
    return status;
}

/* Weights. */

oct_status oct_weight_figures_of(const oct_qat_conv *layer, oct_weight_figures *f)
{
    const oct_tensor *weight = &layer->layer->params[0]->value;
    const int64_t channels = weight->shape.dim[0], each = oct_numel(weight) / channels;
    OCT_OWNED(oct_free) float *scale = NULL, *rounded = NULL;
    *f = (oct_weight_figures){.scale_min = INFINITY, .values = oct_numel(weight)};
    oct_spread_begin(&f->spread);
    OCT_TRY(oct_alloc(&scale, (size_t)channels, sizeof *scale));
    OCT_TRY(oct_alloc(&rounded, (size_t)each, sizeof *rounded));
    oct_qat_conv_weight_scales(layer, scale);
    oct_spread_add(&f->spread, oct_f32(weight), f->values);
    for (int64_t c = 0; c < channels; c++) {
        const oct_qparams q = {
            .scale = scale[c], .qmin = -OCT_WEIGHT_CODES, .qmax = OCT_WEIGHT_CODES};
        const float *w = oct_f32(weight) + c * each;
        oct_fake_quantize(w, each, q, rounded, NULL);
        oct_error_add(&f->sums, w, rounded, each);
        f->clipped += count_clipped(w, each, q);
        f->scale_min = fminf(f->scale_min, scale[c]);
        f->scale_max = fmaxf(f->scale_max, scale[c]);
    }
    return OCT_OK;
}
