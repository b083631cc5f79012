/* Conversion with its certificate.
 *
 * Ranks share the test images as in evaluation; each runs QAT evaluation and integer program over its
 * own and compares bits. The golden images, the first of the test set, are compared layer by layer as
 * well: forward hooks take the digest of what each module of the QAT model hands over, the runtime's
 * watch that of each value of the program. The latter are stored with the model, so that any machine
 * can repeat the comparison from the file alone.
 */
#include "launch/certificate.h"

#include "core/base/mem.h"
#include "io/file.h"
#include "quant/pass/convert.h"

#include <string.h>

enum { DIGEST = 32 };

static int64_t value_size(const oct_value *value)
{
    return value->h * value->w * value->c;
}

static size_t value_bytes(const oct_program *program, int64_t value)
{
    const oct_value *v = &program->values[value];
    return (size_t)value_size(v) * oct_dtype_bytes(v->dtype);
}

int64_t oct_float_bytes(oct_module *root)
{
    int64_t numel = 0;
    for (size_t i = 0; i < root->num_params; i++)
        numel += oct_numel(&root->params[i]->value);
    int64_t bytes = numel * (int64_t)sizeof(float);
    for (size_t i = 0; i < root->num_children; i++)
        bytes += oct_float_bytes(*root->children[i].slot);
    return bytes;
}

int64_t oct_int8_bytes(const oct_program *program)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        const oct_conv_shape *s = &step->conv;
        if (step->kind != OCT_STEP_CONV && step->kind != OCT_STEP_CONV_FLOAT) continue;
        bytes += s->out_c * s->kernel_h * s->kernel_w * (s->in_c / s->groups);
        bytes += s->out_c * (int64_t)(sizeof(*step->bias) + sizeof(*step->multiplier));
    }
    return bytes;
}

oct_status oct_program_evaluate(const oct_program *program, const oct_recipe *recipe,
                                const oct_dataset *data, const oct_leaves *leaves, float *logits)
{
    int64_t samples = oct_leaves_local_samples(leaves), first = oct_leaves_first_sample(leaves);
    int64_t batch = oct_evaluation_batch(recipe);
    oct_runtime *runtime = NULL;
    float *images = NULL;
    oct_status status = OCT_OK;

    OCT_TRY_OUT(oct_runtime_create(&runtime, program, batch));
    OCT_TRY_OUT(oct_alloc(&images, (size_t)(batch * data->h * data->w * data->c), sizeof(float)));
    for (int64_t at = 0; at < samples; at += batch) {
        int64_t n = samples - at < batch ? samples - at : batch;
        oct_evaluation_images(recipe, data, first + at, n, images);
        oct_runtime_run(runtime, n, images, logits + at * data->classes);
    }
out:
    oct_free(&images);
    oct_runtime_destroy(&runtime);
    return status;
}

/* Golden vectors of the program. */

/* user: the digests of one image, num_values x DIGEST. */
static void take_value(void *user, int64_t value, const oct_step *step, const void *data,
                       size_t bytes)
{
    (void)step;
    oct_sha256(data, bytes, (uint8_t *)user + value * DIGEST);
}

oct_status oct_golden_digests(const oct_program *program, const float *images, int64_t count,
                              uint8_t *digests)
{
    int64_t input = value_size(&program->values[program->input]);
    oct_runtime *runtime = NULL;
    float *output = NULL;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_runtime_create(&runtime, program, 1));
    OCT_TRY_OUT(oct_alloc(&output, value_bytes(program, program->output), 1));
    for (int64_t i = 0; i < count; i++) {
        const float *image = images + i * input;
        uint8_t *own = digests + i * program->num_values * DIGEST;
        take_value(own, program->input, NULL, image, (size_t)input * sizeof(float));
        oct_runtime_watch(runtime, 1, image, output, take_value, own);
    }
out:
    oct_free(&output);
    oct_runtime_destroy(&runtime);
    return status;
}

/* The same values seen from the QAT model. */

typedef struct layer {
    const oct_step *step;
    oct_hook_handle hook;
    uint8_t digest[DIGEST];
    bool own_module;
    size_t bytes; /* 0: did not run */
} layer;

static oct_tensor *take_output(oct_context *cx, oct_module *module, oct_tensor *value, void *user)
{
    (void)cx, (void)module;
    layer *its = user;
    its->bytes = (size_t)oct_numel(value) * oct_dtype_bytes(value->dtype);
    oct_sha256(value->data, its->bytes, its->digest);
    return NULL;
}

/* A module that is called at two places has one output after the other: not to be told apart here. */
static bool has_own_module(const oct_program *program, const oct_step *step)
{
    for (int64_t i = 0; i < program->num_steps; i++)
        if (&program->steps[i] != step && strcmp(program->steps[i].name, step->name) == 0)
            return false;
    return true;
}

static oct_status hook_layers(const oct_program *program, oct_module *root, layer *layers)
{
    for (int64_t i = 0; i < program->num_steps; i++) {
        layers[i].step = &program->steps[i];
        layers[i].own_module = has_own_module(program, layers[i].step);
        oct_module *module = oct_module_find(root, layers[i].step->name);
        if (module && layers[i].own_module)
            OCT_TRY(oct_module_hook(module, take_output, &layers[i], &layers[i].hook));
    }
    return OCT_OK;
}

/* Takes what the hooks left, so that a layer that does not run on the next image is missed. */
static oct_status compare_layers(const oct_program *program, layer *layers, int64_t image,
                                 const uint8_t *digests, int64_t *compared)
{
    *compared = 0;
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = layers[i].step;
        if (!layers[i].own_module) continue;
        OCT_CHECK(
            layers[i].bytes > 0, OCT_DEFECT,
            "layer %s of the int8 model did not run under this name in QAT evaluation of test "
            "image %lld, so it was not compared; nothing was saved; please report this",
            step->name, (long long)image);
        OCT_CHECK(layers[i].bytes == value_bytes(program, step->output) &&
                      memcmp(layers[i].digest, digests + step->output * DIGEST, DIGEST) == 0,
                  OCT_NO,
                  "layer %s differs between QAT evaluation and int8 model on test image %lld; "
                  "nothing was "
                  "saved",
                  step->name, (long long)image);
        layers[i].bytes = 0;
        (*compared)++;
    }
    return OCT_OK;
}

static oct_status compare_golden(const oct_model *model, oct_conversion *conversion)
{
    const oct_program *program = &model->program;
    oct_dataset one = *conversion->test_data;
    float logits[256], *all = logits;
    layer *layers = NULL;
    oct_status status = OCT_OK;
    OCT_CHECK(one.classes <= (int)OCT_COUNT(logits), OCT_USAGE,
              "%d classes; at most %zu are supported", one.classes, OCT_COUNT(logits));
    OCT_TRY(oct_alloc(&layers, (size_t)program->num_steps, sizeof(*layers)));
    OCT_TRY_OUT(hook_layers(program, conversion->root, layers));
    int64_t image_bytes = one.h * one.w * one.c;
    one.count = 1;
    for (int64_t i = 0; i < model->certificate.golden_count; i++) {
        oct_leaves leaf = oct_leaves_split(1, conversion->recipe->batch_leaf, 0, 1);
        one.images = conversion->test_data->images + i * image_bytes;
        OCT_TRY_OUT(oct_evaluate_local(conversion->root, conversion->recipe, &one, &leaf, all));
        OCT_TRY_OUT(compare_layers(program, layers, i,
                                   model->golden_digest + i * program->num_values * DIGEST,
                                   &conversion->layers_compared));
    }
out:
    for (int64_t i = 0; i < program->num_steps; i++)
        oct_hook_remove(&layers[i].hook);
    oct_free(&layers);
    return status;
}

static oct_status make_golden(oct_model *model, oct_conversion *conversion)
{
    const oct_dataset *data = conversion->test_data;
    int64_t count = data->count < OCT_GOLDEN_IMAGES ? data->count : OCT_GOLDEN_IMAGES;
    size_t image = (size_t)(data->h * data->w * data->c);
    model->certificate.golden_count = count;
    OCT_TRY(oct_alloc(&model->golden_input, (size_t)count, image * sizeof(float)));
    OCT_TRY(oct_alloc(&model->golden_digest, (size_t)(count * model->program.num_values), DIGEST));
    oct_evaluation_images(conversion->recipe, data, 0, count, model->golden_input);
    OCT_TRY(oct_golden_digests(&model->program, model->golden_input, count, model->golden_digest));
    return compare_golden(model, conversion);
}

static oct_status prove_bounds(oct_model *model)
{
    const oct_program *program = &model->program;
    OCT_TRY(oct_alloc(&model->overflow_bound, (size_t)program->num_steps, sizeof(int64_t)));
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        if (step->kind != OCT_STEP_CONV && step->kind != OCT_STEP_CONV_FLOAT) continue;
        oct_qparams x = program->values[step->input[0]].q;
        for (int64_t c = 0; c < step->conv.out_c; c++) {
            int64_t bound =
                oct_qconv_bound(&step->conv, step->weight, c, step->bias[c], x.qmin, x.qmax);
            if (bound > model->overflow_bound[i]) model->overflow_bound[i] = bound;
        }
    }
    return OCT_OK;
}

static oct_status describe(oct_model *model, const oct_conversion *conversion)
{
    const oct_recipe *recipe = conversion->recipe;
    oct_text identity = {0};
    oct_status status = oct_recipe_write(recipe, true, &identity);
    model->recipe = identity.data;
    OCT_TRY(status);
    OCT_TRY(oct_strdup(&model->data_format, recipe->data_format));
    for (int64_t c = 0; c < conversion->test_data->c; c++) {
        model->mean[c] = (float)recipe->data_mean.value[c];
        model->std[c] = (float)recipe->data_std.value[c];
    }
    model->classes = conversion->test_data->classes;
    memcpy(model->checkpoint_digest, conversion->checkpoint_digest, DIGEST);
    memcpy(model->certificate.data_digest, conversion->test_data->digest, DIGEST);
    model->certificate.float_accuracy = -1;
    return OCT_OK;
}

static oct_status convert(oct_model *model, const oct_conversion *conversion)
{
    const oct_dataset *data = conversion->test_data;
    oct_text islands = {0};
    oct_status status = oct_convert(&model->program, conversion->root,
                                    OCT_SHAPE(1, data->h, data->w, data->c), &islands);
    for (size_t i = 0; i < islands.length; i++)
        model->certificate.num_islands += islands.data[i] == '\n';
    model->certificate.islands = islands.data;
    return status;
}

/* Logits of this rank's samples, from both. */
typedef struct both {
    oct_leaves leaves;
    int64_t samples, classes;
    float *qat, *int8;
} both;

static oct_status evaluate_both(both *b, const oct_model *model, const oct_conversion *conversion)
{
    size_t count = (size_t)(b->samples * b->classes);
    OCT_TRY(oct_alloc(&b->qat, count, sizeof(float)));
    OCT_TRY(oct_alloc(&b->int8, count, sizeof(float)));
    OCT_TRY(oct_evaluate_local(conversion->root, conversion->recipe, conversion->test_data,
                               &b->leaves, b->qat));
    return oct_program_evaluate(&model->program, conversion->recipe, conversion->test_data,
                                &b->leaves, b->int8);
}

/* How many logits differ in any bit, and the number of the first in the whole test set. */
static int64_t count_different(const both *b, int64_t *first)
{
    int64_t different = 0;
    *first = INT64_MAX;
    for (int64_t i = 0; i < b->samples * b->classes; i++) {
        if (memcmp(b->qat + i, b->int8 + i, sizeof(float)) == 0) continue;
        if (different++ == 0) *first = oct_leaves_first_sample(&b->leaves) * b->classes + i;
    }
    return different;
}

static oct_status compare_logits(oct_certificate *certificate, const both *b, const uint8_t *labels,
                                 const oct_collective *group)
{
    int64_t qat_correct, first;
    int64_t different = count_different(b, &first), key = -first;
    OCT_TRY(oct_sum_count(group, different, &certificate->logits_differ));
    OCT_TRY(group->max_i64(group, &key, 1));
    labels += oct_leaves_first_sample(&b->leaves);
    OCT_TRY(oct_sum_count(group, oct_count_correct(b->int8, labels, b->samples, b->classes),
                          &certificate->correct));
    OCT_TRY(oct_sum_count(group, oct_count_correct(b->qat, labels, b->samples, b->classes),
                          &qat_correct));
    certificate->images = b->leaves.samples;
    certificate->qat_accuracy = 100.0 * (double)qat_correct / (double)certificate->images;
    OCT_CHECK(certificate->logits_differ == 0, OCT_NO,
              "%lld of %lld logits differ between QAT evaluation and int8 model, first logit %lld "
              "of test "
              "image %lld; nothing was saved",
              (long long)certificate->logits_differ, (long long)(certificate->images * b->classes),
              (long long)(-key % b->classes), (long long)(-key / b->classes));
    return OCT_OK;
}

static oct_status digest_logits(oct_certificate *certificate, const both *b,
                                const oct_collective *group)
{
    float *all = NULL;
    size_t count = (size_t)(b->leaves.samples * b->classes);
    oct_status status = OCT_OK;
    if (group->rank == 0) status = oct_alloc(&all, count, sizeof(float));
    OCT_TRY_OUT(group->agree(group, status));
    OCT_TRY_OUT(oct_gather_rows(group, &b->leaves, b->classes, b->qat, all));
    if (group->rank == 0) oct_sha256(all, count * sizeof(float), certificate->logits_digest);
out:
    oct_free(&all);
    return status;
}

oct_status oct_certify(oct_model *model, oct_conversion *conversion, const oct_collective *group)
{
    const oct_dataset *data = conversion->test_data;
    both b = {.leaves = oct_evaluation_leaves(conversion->recipe, data, group),
              .classes = data->classes};
    b.samples = oct_leaves_local_samples(&b.leaves);
    *model = (oct_model){0};

    oct_status status = convert(model, conversion);
    if (status == OCT_OK) status = describe(model, conversion);
    if (status == OCT_OK) status = prove_bounds(model);
    if (status == OCT_OK) status = make_golden(model, conversion);
    if (status == OCT_OK) status = evaluate_both(&b, model, conversion);
    OCT_TRY_OUT(group->agree(group, status));
    OCT_TRY_OUT(compare_logits(&model->certificate, &b, data->labels, group));
    OCT_TRY_OUT(digest_logits(&model->certificate, &b, group));
out:
    oct_free(&b.qat);
    oct_free(&b.int8);
    if (status != OCT_OK) oct_model_free(model);
    return status;
}
