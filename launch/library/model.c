/* From a float network to an int8 model: prepared, calibrated, frozen; made, compared, completed, saved. */
#include "core/base/mem.h"
#include "io/model/class_names.h"
#include "io/model/model_file.h"
#include "launch/deploy/certificate.h"
#include "launch/library/library.h"
#include "quant/program/step.h"

#include <math.h>
#include <string.h>

static const double default_lr = 0.01;

oct_status oct_training_prepare(oct_training *t, const char **report)
{
    oct_status status = OCT_OK;
    OCT_NEED(t);
    if (report) *report = NULL;
    if (t->trainer.phase != OCT_PHASE_FLOAT)
        status = oct_fail(OCT_USAGE, "the network is prepared already");
    OCT_TRY(oct_training_begin(t, NULL, status, 0, 0));
    OCT_TRY(oct_training_change(t, OCT_PHASE_CALIBRATE));
    if (report) *report = t->trainer.report.data;
    return OCT_OK;
}

oct_status oct_training_calibrate(oct_training *t, const oct_data *data)
{
    oct_status status = OCT_OK;
    OCT_NEED(t && data);
    oct_trainer *trainer = &t->trainer;
    if (trainer->phase == OCT_PHASE_FLOAT)
        status =
            oct_fail(OCT_USAGE, "the network is not prepared; call oct_training_prepare first");
    else if (t->calibrated)
        status = oct_fail(OCT_USAGE, "the network is calibrated already");
    oct_data samples = *data; /* ranges need neither labels nor targets */
    samples.labels = NULL;
    samples.targets = NULL;
    OCT_TRY(oct_training_begin(t, &samples, status, 0, 0));
    t->recipe.float_epochs = t->recipe.qat_epochs = 0;
    trainer->plan = oct_plan_of(&t->recipe, data->count);
    for (int64_t step = 0; step < trainer->plan.begin[OCT_PHASE_QAT]; step++) {
        const oct_step_batches b = oct_trainer_batches(trainer, step);
        oct_step_result result;
        OCT_TRY(oct_trainer_take_step(trainer, &b, 0, &result));
    }
    /* Here, since it may correct weights on the same samples. */
    OCT_TRY(oct_training_change(t, OCT_PHASE_QAT));
    t->calibrated = true;
    return OCT_OK;
}

oct_status oct_training_freeze(oct_training *t)
{
    oct_status status = OCT_OK;
    OCT_NEED(t);
    if (!t->calibrated)
        status = oct_fail(OCT_USAGE, "the network has no ranges yet; call oct_training_%s first",
                          t->trainer.phase == OCT_PHASE_FLOAT ? "prepare" : "calibrate");
    OCT_TRY(oct_training_begin(t, NULL, status, 0, 0));
    return oct_training_change(t, OCT_PHASE_QAT_SCALES_FROZEN);
}

oct_status oct_model_make(oct_model **model, oct_training *t)
{
    oct_status status = OCT_OK;
    OCT_NEED(model && t);
    *model = NULL;
    oct_average *average = &t->trainer.training.optim.average;
    const oct_conversion conversion = {
        .root = t->trainer.model, .recipe = &t->recipe, .test_data = &t->data};
    if (t->trainer.phase != OCT_PHASE_QAT_SCALES_FROZEN)
        status = oct_fail(OCT_USAGE,
                          "the scales of the network may still move; call oct_training_%s first",
                          t->trainer.phase == OCT_PHASE_FLOAT ? "prepare"
                          : t->calibrated                     ? "freeze"
                                                              : "calibrate");
    OCT_TRY(oct_training_begin(t, NULL, status, 0, 0));
    status = oct_alloc(model, 1, sizeof **model);
    oct_average_swap(average, true);
    if (status == OCT_OK) status = oct_model_convert(*model, &conversion);
    oct_average_swap(average, false);
    status = t->group->agree(t->group, status);
    if (status != OCT_OK) oct_model_destroy(model);
    OCT_TRY(status);
    const oct_program *program = &(*model)->program;
    const oct_value *output = &program->values[program->output];
    (*model)->classes = (int)output->c;
    for (int64_t i = 0; output->dtype == OCT_S32 && i < program->num_steps; i++)
        if (program->steps[i].kind == OCT_STEP_ARGMAX)
            (*model)->classes = (int)oct_step_input(program, &program->steps[i], 0)->c;
    (*model)->certificate.qat_accuracy = -1; /* nothing is compared yet */
    for (int c = 0; c < OCT_REALS_MAX; c++)
        (*model)->std[c] = 1;
    return OCT_OK;
}

oct_status oct_model_certify(oct_model *model, oct_training *t, const oct_data *data)
{
    OCT_NEED(model && t && data);
    oct_average *average = &t->trainer.training.optim.average;
    oct_conversion conversion = {
        .root = t->trainer.model, .recipe = &t->recipe, .test_data = &t->data};
    const oct_program *program = &model->program;
    oct_dataset *d = &t->data;
    bool fits = program->num_inputs == d->num_inputs &&
                oct_value_numel(&program->values[program->output]) == t->outputs;
    for (int i = 0; fits && i < d->num_inputs; i++)
        fits =
            oct_value_numel(&program->values[program->inputs[i]]) == oct_shape_numel(&d->input[i]);
    const oct_status made =
        fits ? OCT_OK : oct_fail(OCT_USAGE, "the model is of another network than the training");
    OCT_TRY(oct_training_begin(t, data, made, 0, 0));
    if (t->class_numbers) d->classes = model->classes;
    if (d->goal == OCT_GOAL_VALUES && d->classes <= OCT_CLASSES_MAX)
        model->classes = (int)d->classes;
    const size_t rows = (size_t)(d->count * d->rows);
    oct_sha256_state *digest = NULL;
    OCT_TRY(oct_sha256_begin(&digest));
    for (int i = 0; i < d->num_inputs; i++)
        oct_sha256_add(digest, d->array[i],
                       (size_t)(d->count * oct_shape_numel(&d->input[i])) * sizeof(float));
    if (d->labels) oct_sha256_add(digest, d->labels, rows * sizeof *d->labels);
    if (d->values) oct_sha256_add(digest, d->values, rows * (size_t)d->classes * sizeof *d->values);
    oct_sha256_end(&digest, model->certificate.data_digest);
    oct_average_swap(average, true);
    const oct_status status = oct_model_compare(model, &conversion, t->group);
    oct_average_swap(average, false);
    OCT_TRY(status);
    return t->group->broadcast(t->group, model->certificate.logits_digest,
                               sizeof model->certificate.logits_digest, 0);
}

oct_status oct_model_set_golden(oct_model *model, const oct_data *data, int64_t count)
{
    OCT_OWNED(oct_free) float *inputs = NULL;
    OCT_OWNED(oct_free) uint8_t *digests = NULL;
    OCT_NEED(model && data);
    const oct_program *program = &model->program;
    OCT_CHECK(count >= 0 && count <= data->count && count <= OCT_MODEL_GOLDEN_MAX, OCT_USAGE,
              "%lld golden inputs of %lld samples; allowed: 0 to %d, and no more than there are",
              (long long)count, (long long)data->count, OCT_MODEL_GOLDEN_MAX);
    for (int k = 0; k < program->num_inputs; k++)
        OCT_CHECK(k < OCT_INPUTS_MAX && data->input[k], OCT_USAGE,
                  "the array of input %d is missing (NULL)", k);
    OCT_TRY(oct_alloc(&inputs, (size_t)(count * oct_inputs_numel(program)), sizeof *inputs));
    OCT_TRY(oct_alloc(&digests, (size_t)(count * program->num_values), 32));
    float *at = inputs;
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < program->num_inputs; k++) {
            const int64_t numel = oct_value_numel(&program->values[program->inputs[k]]);
            memcpy(at, data->input[k] + i * numel, (size_t)numel * sizeof *at);
            at += numel;
        }
    OCT_TRY(oct_golden_digests(program, inputs, count, digests));
    oct_free(&model->golden_input);
    oct_free(&model->golden_digest);
    model->golden_input = inputs;
    model->golden_digest = digests;
    inputs = NULL;
    digests = NULL;
    model->certificate.golden_count = count;
    return OCT_OK;
}

oct_status oct_model_set_pixels(oct_model *model, const float *mean, const float *std, int n)
{
    OCT_NEED(model && mean && std);
    const int64_t channels = model->program.values[model->program.inputs[0]].c;
    OCT_CHECK(n == 1 || (n == channels && n <= OCT_REALS_MAX), OCT_USAGE,
              "%d means and deviations for %lld channels; give one for all, or one for each of at "
              "most %d",
              n, (long long)channels, OCT_REALS_MAX);
    for (int c = 0; c < n; c++)
        OCT_CHECK(isfinite(mean[c]) && isfinite(std[c]) && std[c] > 0, OCT_USAGE,
                  "mean %g and deviation %g of channel %d: both must be finite, and the deviation "
                  "above 0",
                  (double)mean[c], (double)std[c], c);
    for (int c = 0; c < OCT_REALS_MAX; c++) {
        const bool given = c < channels || c == 0;
        model->mean[c] = given ? mean[n == 1 ? 0 : c] : 0;
        model->std[c] = given ? std[n == 1 ? 0 : c] : 1;
    }
    return OCT_OK;
}

oct_status oct_model_set_class_names(oct_model *model, const char *const *names, int n)
{
    char *text = NULL;
    OCT_NEED(model && names);
    OCT_CHECK(n == model->classes, OCT_USAGE, "%d names for %d classes; give one for each", n,
              model->classes);
    for (int i = 0; i < n; i++)
        OCT_CHECK(names[i], OCT_USAGE, "the name of class %d is missing (NULL)", i);
    const oct_dataset named = {.classes = n, .class_names = (char **)(uintptr_t)names};
    const oct_status status = oct_class_names_make(&text, &named);
    if (status == OCT_DATA) return oct_fail(OCT_USAGE, "%s", oct_error_message(0));
    OCT_TRY(status);
    oct_free(&model->class_names);
    model->class_names = text;
    return OCT_OK;
}

oct_status oct_model_save(const char *path, const oct_model *model)
{
    OCT_NEED(path && model);
    return oct_model_write(path, model);
}

oct_status oct_net_open_model(oct_net **net, const oct_model *model, const oct_net_options *options)
{
    return oct_net_of_model(net, model, options);
}

void oct_model_destroy(oct_model **model)
{
    if (!model || !*model) return;
    oct_model_free(*model);
    oct_free(model);
}

oct_status oct_quantize(oct_training *t, const oct_data *data, const oct_quantize_options *options,
                        oct_model **model)
{
    static const oct_quantize_options standard;
    oct_status status = OCT_OK;
    OCT_NEED(t && data && model);
    const oct_quantize_options *o = options ? options : &standard;
    const oct_data *test = o->test ? o->test : data;
    const int64_t golden = o->golden != 0 ? o->golden : OCT_GOLDEN_IMAGES;
    *model = NULL;
    status = oct_training_check_learning((double)o->epochs, o->lr);
    if (status == OCT_OK && (golden < 0 || golden > OCT_MODEL_GOLDEN_MAX))
        status = oct_fail(OCT_USAGE, "golden: %lld; allowed: 0 to %d", (long long)golden,
                          OCT_MODEL_GOLDEN_MAX);
    /* Samples that only calibrate need no labels. */
    OCT_TRY(oct_training_begin(t, o->epochs != 0 ? data : NULL, status, (double)o->epochs, o->lr));
    OCT_TRY(oct_training_begin(t, test, OCT_OK, 0, 0));
    OCT_TRY(oct_training_prepare(t, NULL));
    OCT_TRY(oct_training_calibrate(t, data));
    if (o->epochs != 0)
        OCT_TRY(oct_training_fit(t, data, o->epochs, o->lr != 0 ? o->lr : default_lr, NULL, NULL));
    OCT_TRY(oct_training_freeze(t));
    OCT_TRY(oct_model_make(model, t));
    OCT_TRY_OUT(oct_model_certify(*model, t, test));
    status = oct_model_set_golden(*model, test, golden < test->count ? golden : test->count);
out:
    if (status != OCT_OK) oct_model_destroy(model);
    return status;
}
