/* Sensitivity: the float model runs once for its outputs, then once more for each quantizer with
 * that one alone switched on. Sums are taken in order of the samples by the one rank that
 * measures. */
#include "quant/layers/sensitivity.h"

#include "core/base/mem.h"
#include "core/tensor/tensor.h"
#include "quant/layers/layer_source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is measured: the quantizer of an activation, or of a layer's weights. */
typedef struct subject {
    oct_fake_quant *fq; /* or */
    const oct_qat_conv *conv;
} subject;

typedef struct survey {
    oct_module *root;
    const oct_sensitivity_data *data;
    oct_quantizers quantizers;
    subject *subjects;
    size_t count, capacity;
    oct_context *cx;
    float *input[OCT_MODEL_INPUTS];
    float *exact, *output; /* of all samples: the float model's, and with one quantizer */
} survey;

typedef struct measure {
    double sqnr, cosine, loss_change;
} measure;

static oct_status add_subject(survey *s, subject found)
{
    OCT_TRY(oct_grow(&s->subjects, &s->capacity, s->count + 1, sizeof *s->subjects));
    s->subjects[s->count++] = found;
    return OCT_OK;
}

/* Adds the weights of a layer, unless they are another call's. */
static oct_status add_weights(void *user, oct_module *module)
{
    const oct_qat_conv *conv = (const oct_qat_conv *)module;
    if (module->type != &oct_qat_conv_type || conv->borrows) return OCT_OK;
    return add_subject(user, (subject){.conv = conv});
}

/* Runs samples [first, first + n); a model that returns class numbers gives rows with a 1 at their class. */
static oct_status run_batch(survey *s, int64_t first, int64_t n, float *output)
{
    const oct_sensitivity_data *d = s->data;
    oct_tensor *x[OCT_MODEL_INPUTS];
    OCT_TRY(d->fetch(d->user, first, n, s->input));
    oct_context_begin(s->cx, oct_leaves_split(n, d->leaf, 0, 1), false);
    for (int i = 0; i < d->example.count; i++) {
        oct_shape shape = d->example.shape[i];
        shape.dim[0] = n;
        x[i] = oct_tensor_view(s->cx, OCT_F32, shape, s->input[i]);
    }
    const oct_tensor *y = oct_module_call(s->cx, s->root, x, d->example.count);
    OCT_TRY(oct_context_status(s->cx));
    return oct_class_rows(y, n, d->outputs, output);
}

static oct_status run_all(survey *s, float *output)
{
    const oct_sensitivity_data *d = s->data;
    for (int64_t at = 0; at < d->samples; at += d->batch) {
        int64_t n = d->samples - at < d->batch ? d->samples - at : d->batch;
        OCT_TRY(run_batch(s, at, n, output + at * d->outputs));
    }
    return OCT_OK;
}

/* The cross-entropy of one sample, its largest logit taken out so that no exponential overflows. */
static double cross_entropy(const float *logits, int64_t n, int32_t label)
{
    double largest = (double)logits[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        if ((double)logits[i] > largest) largest = (double)logits[i];
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - largest);
    return log(sum) + largest - (double)logits[label];
}

/* How far the outputs with one quantizer are from the float model's. */
static measure compare_outputs(const survey *s)
{
    const oct_sensitivity_data *d = s->data;
    oct_error_sums sums = {0};
    double loss = 0;
    for (int64_t i = 0; i < d->samples; i++) {
        const float *a = s->exact + i * d->outputs, *b = s->output + i * d->outputs;
        oct_error_add(&sums, a, b, d->outputs);
        if (!d->labels) continue;
        loss +=
            cross_entropy(b, d->outputs, d->labels[i]) - cross_entropy(a, d->outputs, d->labels[i]);
    }
    return (measure){.sqnr = oct_error_sqnr(&sums),
                     .cosine = oct_error_cosine(&sums),
                     .loss_change = loss / (double)d->samples + 0.0};
}

/* Runs with a layer's weights replaced by the values that their codes stand for. */
static oct_status run_with_weights(survey *s, const oct_qat_conv *conv)
{
    oct_param *weight = oct_layer_weight(conv->layer);
    const int64_t numel = oct_numel(&weight->value), channels = weight->value.shape.dim[0];
    const int64_t k = numel / channels; /* weights of a channel */
    const size_t bytes = (size_t)numel * sizeof(float);
    OCT_OWNED(oct_free) float *kept = NULL, *scale = NULL;
    float *w = oct_f32(&weight->value);
    OCT_TRY(oct_alloc(&kept, bytes, 1));
    OCT_TRY(oct_alloc(&scale, (size_t)channels, sizeof *scale));
    memcpy(kept, w, bytes);
    oct_qat_conv_weight_scales(conv, scale);
    for (int64_t c = 0; c < channels; c++) {
        const oct_qparams q = {
            .scale = scale[c], .qmin = -OCT_WEIGHT_CODES, .qmax = OCT_WEIGHT_CODES};
        oct_fake_quantize(w + c * k, k, q, w + c * k, NULL);
    }
    const oct_status status = run_all(s, s->output);
    memcpy(w, kept, bytes);
    return status;
}

/* The module whose quantizer is measured. */
static const oct_module *owner_of(const subject *one)
{
    return one->fq ? one->fq->base.parent : &one->conv->q.base;
}

/* Measures one quantizer, of an activation or of a layer's weights, while all others are off. */
static oct_status measure_one(survey *s, const subject *one, measure *result)
{
    if (one->fq) {
        one->fq->state = OCT_QUANT_SIMULATE;
        oct_status status = run_all(s, s->output);
        one->fq->state = OCT_QUANT_OFF;
        OCT_TRY(status);
    } else {
        OCT_TRY(run_with_weights(s, one->conv));
    }
    *result = compare_outputs(s);
    OCT_CHECK(!isnan(result->sqnr) && isfinite(result->cosine) && isfinite(result->loss_change),
              OCT_NUMERIC, "%s: the model's output is not finite",
              oct_module_path(owner_of(one)).text);
    return OCT_OK;
}

/* Runs the float model, and measures the quantizers of this rank: numbers rank, rank + size, rank + 2 size, ... */
static oct_status measure_share(survey *s, const oct_collective *group, measure *measures)
{
    const oct_sensitivity_data *d = s->data;
    const size_t first = (size_t)group->rank, step = (size_t)group->size;
    const int64_t num_mine = s->count > first ? (int64_t)((s->count - first + step - 1) / step) : 0;
    int64_t done = 1; /* the exact run, which every rank makes */
    OCT_TRY(run_all(s, s->exact));
    for (size_t i = first; i < s->count; i += step) {
        if (d->progress) d->progress(d->user, done++, num_mine + 1);
        OCT_TRY(measure_one(s, &s->subjects[i], &measures[i]));
    }
    return OCT_OK;
}

/* Orders rows by SQNR, the lowest and most sensitive first, then by name. */
static int by_sensitivity(const void *a, const void *b)
{
    const oct_sensitivity_row *x = a, *y = b;
    if (x->sqnr < y->sqnr) return -1;
    if (x->sqnr > y->sqnr) return 1;
    int order = strcmp(x->path, y->path);
    return order ? order : strcmp(x->tensor, y->tensor);
}

static oct_status make_table(const survey *s, const measure *measures, oct_sensitivity *table)
{
    OCT_TRY(oct_alloc(&table->rows, s->count, sizeof *table->rows));
    table->count = s->count;
    for (size_t i = 0; i < s->count; i++) {
        oct_sensitivity_row *row = &table->rows[i];
        *row = (oct_sensitivity_row){.sqnr = measures[i].sqnr,
                                     .cosine = measures[i].cosine,
                                     .loss_change = measures[i].loss_change};
        snprintf(row->path, sizeof row->path, "%s",
                 oct_module_path(owner_of(&s->subjects[i])).text);
        snprintf(row->tensor, sizeof row->tensor, "%s",
                 s->subjects[i].fq ? "activation" : "weight");
    }
    qsort(table->rows, table->count, sizeof *table->rows, by_sensitivity);
    return OCT_OK;
}

/* Turns all quantizers off, lists those to measure (activations that have a range, and weights), and allocates inputs and
 * outputs. The caller frees what s holds, also after a failure. */
static oct_status begin_survey(survey *s)
{
    const oct_sensitivity_data *d = s->data;
    size_t outputs = (size_t)(d->samples * d->outputs);
    OCT_CHECK(d->example.count >= 1 && d->example.count <= OCT_MODEL_INPUTS, OCT_USAGE,
              "a model has 1 to %d inputs, but %d are given", OCT_MODEL_INPUTS, d->example.count);
    OCT_CHECK(oct_graph_of(s->root), OCT_PREPARE,
              "the model has no quantizers: it is not prepared; call oct_prepare first");
    OCT_TRY(oct_quantizers_collect(&s->quantizers, s->root));
    oct_quantizers_set_state(&s->quantizers, OCT_QUANT_OFF);
    oct_module_train(s->root, false);
    for (size_t i = 0; i < s->quantizers.count; i++) {
        oct_fake_quant *fq = s->quantizers.items[i];
        if (fq->updates[0] > 0 || fq->fixed) OCT_TRY(add_subject(s, (subject){.fq = fq}));
    }
    OCT_CHECK(
        s->count > 0, OCT_PREPARE,
        "no quantizer has seen a range; calibrate first, or take a checkpoint of a later phase");
    OCT_TRY(oct_module_walk(s->root, add_weights, s));
    OCT_TRY(oct_context_create(&s->cx, &oct_collective_one));
    for (int i = 0; i < d->example.count; i++) {
        oct_shape sample = d->example.shape[i];
        sample.dim[0] = 1;
        OCT_TRY(
            oct_alloc(&s->input[i], (size_t)(d->batch * oct_shape_numel(&sample)), sizeof(float)));
    }
    OCT_TRY(oct_alloc(&s->exact, outputs, sizeof(float)));
    return oct_alloc(&s->output, outputs, sizeof(float));
}

oct_status oct_sensitivity_measure(oct_sensitivity *table, oct_module *root,
                                   const oct_sensitivity_data *data, const oct_collective *group)
{
    survey s = {.root = root, .data = data};
    measure *mine = NULL, *all = NULL;
    bool training = root->training;
    *table = (oct_sensitivity){0};
    oct_status status = begin_survey(&s);
    if (status == OCT_OK) status = oct_alloc(&mine, s.count, sizeof *mine);
    if (status == OCT_OK) status = oct_alloc(&all, s.count, sizeof *all);
    if (status == OCT_OK) status = measure_share(&s, group, mine);
    OCT_TRY_OUT(group->agree(group, status));
    OCT_ASSERT(all || s.count == 0);
    /* Each number is some rank's, and 0 on all others, so the sum over ranks is exact. */
    const oct_leaves ranks = oct_leaves_split(group->size, 1, group->rank, group->size);
    OCT_TRY_OUT(group->tree_sum(group, &ranks, mine,
                                (int64_t)(s.count * sizeof *mine / sizeof(double)), sizeof(double),
                                all));
    status = make_table(&s, all, table);
out:
    oct_module_train(root, training);
    oct_context_destroy(&s.cx);
    oct_quantizers_free(&s.quantizers);
    oct_free(&s.subjects);
    for (int i = 0; i < OCT_MODEL_INPUTS; i++)
        oct_free(&s.input[i]);
    OCT_FREE_ALL(&s.exact, &s.output, &mine, &all);
    return status;
}
