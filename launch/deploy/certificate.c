/* A conversion ends in a certificate.
 *
 * Ranks share the test images as in evaluation; each runs QAT evaluation and integer program over its
 * own and compares bits. On the golden images, the first of the test set, every value of the program is
 * compared as well, with what the QAT model computes there. The digests of these values are
 * stored with the model, so that any machine can repeat the comparison from the file alone.
 */
#include "launch/deploy/certificate.h"

#include "core/base/int_math.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/tensor/tensor.h"
#include "core/nn/network.h"
#include "io/model/class_names.h"
#include "io/export/program_parts.h"
#include "io/file/file.h"
#include "launch/base/meter.h"
#include "launch/session/job.h"
#include "launch/session/plugin_load.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"

#include <inttypes.h>
#include <string.h>

enum { DIGEST = 32, BATCH_BYTES = 1 << 30 };

int64_t oct_model_outputs(const oct_model *model)
{
    const oct_value *output = &model->program.values[model->program.output];
    return output->dtype == OCT_F32 ? oct_value_numel(output) : model->classes;
}

int64_t oct_count_fallbacks(const oct_program *program)
{
    int64_t fallbacks = 0;
    for (int64_t i = 0; i < program->num_steps; i++)
        fallbacks += program->steps[i].kind == OCT_STEP_FLOAT;
    return fallbacks;
}

/* Whether a target makes these constants of a step from the scales of a, b and y; a subtraction has a negative mb. */
static bool fits_target(const oct_program *p, const oct_step *s, const oct_target *target)
{
    const oct_qparams a = oct_step_input(p, s, 0)->q, y = oct_step_output(p, s)->q;
    const oct_qparams b = s->num_inputs > 1 ? oct_step_input(p, s, 1)->q : a;
    const bool floats = target->float_ratios;
    if (s->kind == OCT_STEP_QUANTIZE) return s->quantize.quotient == target->quotient;
    if (s->kind == OCT_STEP_AVG_POOL)
        return s->pool.of_codes == target->pools_codes && s->pool.half_up == target->pools_half_up;
    if (s->kind == OCT_STEP_MUL)
        return s->mul.offset_first == target->offset_first &&
               s->mul.factor == (target->offset_first || floats ? oct_qmul_factor_float(a, b, y)
                                                                : oct_qmul_factor(a, b, y));
    if (s->kind != OCT_STEP_ADD) return true;
    const oct_qadd add = floats ? oct_qadd_of_floats(a, b, y, false) : oct_qadd_of(a, b, y, false);
    return add.ma == s->add.ma && add.mb == (s->add.mb < 0 ? -s->add.mb : s->add.mb) &&
           add.shift == s->add.shift;
}

/* Names the key of the recipe that says something else of the model than the model itself; NULL: there is none. */
static const char *find_contradiction(const oct_model *m, const oct_recipe *r)
{
    const oct_program *p = &m->program;
    const oct_target *target = oct_target_at(r->quant_target);
    const oct_normaliser n = oct_normaliser_of(&r->data_mean, &r->data_std);
    const int64_t channels = p->values[p->inputs[0]].c;
    const size_t bytes = (size_t)(channels <= OCT_REALS_MAX ? channels : 1) * sizeof(float);
    float mean[OCT_REALS_MAX], std[OCT_REALS_MAX];
    oct_normaliser_spread(&n, channels, mean, std);
    if (strcmp(p->target, target->name) != 0 || p->requantizer != target->requantizer)
        return "quant.target";
    for (int64_t i = 0; i < p->num_steps; i++)
        if (!fits_target(p, &p->steps[i], target)) return "quant.target";
    if (strcmp(m->data_format, oct_registry_name(&oct_dataset_id_table, r->data_format)) != 0)
        return "data.format";
    if (memcmp(mean, m->mean, bytes) != 0) return "data.mean";
    return memcmp(std, m->std, bytes) != 0 ? "data.std" : NULL;
}

oct_status oct_model_check_recipe(const oct_model *model, const char *path)
{
    OCT_OWNED(oct_recipe_free) oct_recipe recipe = {0};
    if (!oct_model_has_recipe(model)) return OCT_OK;
    OCT_TRY(oct_recipe_read(&recipe, path, model->recipe, NULL, 0));
    const char *key = find_contradiction(model, &recipe);
    OCT_CHECK(
        !key, OCT_DATA,
        "%s: computes with another %s than the recipe inside it says, so it was changed after "
        "its conversion; convert its checkpoint again",
        path, key);
    return OCT_OK;
}

oct_status oct_model_check_runnable(const oct_model *model, const char *path)
{
    OCT_CHECK(model->program.num_inputs == 1, OCT_DATA,
              "%s: takes %d inputs, but this command feeds it one image; run it with the library "
              "(octet/net.h)",
              path, model->program.num_inputs);
    OCT_TRY(oct_model_check_recipe(model, path));
    if (oct_count_fallbacks(&model->program) == 0) return OCT_OK;
    OCT_OWNED(oct_recipe_free) oct_recipe recipe = {0};
    OCT_TRY(oct_job_model_recipe(&recipe, path, model, NULL));
    if (oct_fallbacks_check(&model->program, true) != OCT_OK) return oct_fail_prefix("%s", path);
    return OCT_OK;
}

oct_status oct_program_evaluate(const oct_program *program, const oct_recipe *recipe,
                                const oct_dataset *data, int64_t batch, oct_outputs *o)
{
    const oct_value *value = &program->values[program->output];
    oct_program_cost cost;
    OCT_OWNED(oct_runtime_destroy) oct_runtime *runtime = NULL;
    OCT_OWNED(oct_loader_deinit) oct_loader loader = {0};
    OCT_OWNED(oct_free) float *images = NULL;
    OCT_OWNED(oct_free) void *outputs = NULL;
    OCT_OWNED(oct_meter_end) oct_meter meter = {0};

    /* As many samples at a time as their values have room for; no result depends on it. */
    OCT_TRY(oct_program_costs(program, &cost));
    batch = oct_min_i64(batch, oct_max_i64(BATCH_BYTES / oct_max_i64(cost.bytes, 1), 1));
    OCT_TRY(oct_runtime_create(
        &runtime, program,
        &(oct_runtime_options){.max_batch = batch, .host = &oct_module_fallbacks}));
    OCT_TRY(oct_evaluation_loader(&loader, recipe, data));
    oct_loader_read_ahead(&loader, recipe);
    OCT_TRY(oct_alloc(&outputs, (size_t)batch, oct_value_bytes(value)));
    OCT_TRY(oct_alloc(&images, (size_t)(batch * data->h * data->w * data->c), sizeof(float)));
    oct_tensor y = {.dtype = value->dtype, .data = outputs};
    oct_meter_begin(&meter, "evaluate int8", "images", o->samples);
    for (int64_t at = 0; at < o->samples; at += batch) {
        oct_meter_show(&meter, at);
        int64_t n = o->samples - at < batch ? o->samples - at : batch;
        OCT_TRY(oct_outputs_read(o, &loader, at, n, images));
        const oct_example x = oct_dataset_inputs(data, images, n, 0, n);
        OCT_TRY(oct_runtime_run(runtime, n, x.data, y.data));
        y.shape = OCT_SHAPE(n, oct_value_numel(value));
        if (o->rows > 1) y.shape = OCT_SHAPE(n * o->rows, oct_value_numel(value) / o->rows);
        OCT_TRY(oct_class_rows(&y, n * o->rows, o->row, o->y + at * o->rows * o->row));
    }
    return OCT_OK;
}

/* Golden vectors of the program. */

/* user: the digests of one image, num_values x DIGEST. */
static void digest_value(void *user, int64_t value, const oct_step *step, const void *data,
                         size_t bytes)
{
    (void)step;
    oct_sha256(data, bytes, (uint8_t *)user + value * DIGEST);
}

oct_status oct_golden_digests(const oct_program *program, const float *samples, int64_t count,
                              uint8_t *digests)
{
    const int64_t numel = oct_inputs_numel(program);
    const float *input[OCT_PROGRAM_INPUTS];
    OCT_OWNED(oct_runtime_destroy) oct_runtime *runtime = NULL;
    OCT_OWNED(oct_free) float *output = NULL;
    OCT_TRY(oct_runtime_create(&runtime, program,
                               &(oct_runtime_options){.host = &oct_module_fallbacks}));
    OCT_TRY(oct_alloc(&output, oct_value_bytes(&program->values[program->output]), 1));
    for (int64_t i = 0; i < count; i++) {
        uint8_t *sample = digests + i * program->num_values * DIGEST;
        const float *at = samples + i * numel; /* the inputs of a sample, one after another */
        for (int k = 0; k < program->num_inputs; k++) {
            const oct_value *value = &program->values[program->inputs[k]];
            input[k] = at;
            at += oct_value_numel(value);
            digest_value(sample, program->inputs[k], NULL, input[k], oct_value_bytes(value));
        }
        OCT_TRY(oct_runtime_watch(runtime, 1, input, output, digest_value, sample));
    }
    return OCT_OK;
}

/* The same values seen from the QAT model. */

typedef struct comparison {
    const oct_program *program;
    const uint8_t *expected; /* num_values x DIGEST */
    bool *seen, *differs;    /* of each value */
} comparison;

/* Compares a value of QAT evaluation with the digest of the same value of the int8 model. */
static void compare_value(void *user, int64_t value, const void *data, size_t bytes)
{
    const comparison *c = user;
    uint8_t digest[DIGEST];
    oct_sha256(data, bytes, digest);
    c->seen[value] = true;
    if (bytes != oct_value_bytes(&c->program->values[value]) ||
        memcmp(digest, c->expected + value * DIGEST, DIGEST) != 0)
        c->differs[value] = true;
}

static oct_status check_all_layers_equal(const comparison *c, int64_t image, int64_t *compared)
{
    *compared = 0;
    for (int64_t i = 0; i < c->program->num_steps; i++) {
        const oct_step *step = &c->program->steps[i];
        OCT_CHECK(
            c->seen[step->output], OCT_DEFECT,
            "layer %s of the int8 model was not seen in QAT evaluation of test image %lld, so "
            "it was not compared; nothing was saved; please report this",
            step->name, (long long)image);
        OCT_CHECK(!c->differs[step->output], OCT_MISMATCH,
                  "layer %s differs between QAT evaluation and int8 model on test image %lld; "
                  "nothing was saved",
                  step->name, (long long)image);
        (*compared)++;
    }
    return OCT_OK;
}

/* Compares every layer of QAT evaluation on the golden images with the digests of the int8 model. */
static oct_status compare_golden(const oct_model *model, oct_conversion *conversion)
{
    const oct_program *program = &model->program;
    const size_t values = (size_t)program->num_values;
    const int64_t numel = oct_inputs_numel(program);
    OCT_OWNED(oct_free) bool *seen = NULL, *differs = NULL;
    OCT_TRY(oct_alloc(&seen, values, sizeof(bool)));
    OCT_TRY(oct_alloc(&differs, values, sizeof(bool)));
    comparison c = {.program = program, .seen = seen, .differs = differs};
    for (int64_t i = 0; i < model->certificate.golden_count; i++) {
        memset(seen, 0, values * sizeof(bool));
        memset(differs, 0, values * sizeof(bool));
        c.expected = model->golden_digest + i * program->num_values * DIGEST;
        const oct_example example =
            oct_dataset_inputs(conversion->test_data, model->golden_input + i * numel, 1, 0, 1);
        OCT_TRY(oct_convert_watch(program, conversion->root, &example, compare_value, &c));
        OCT_TRY(check_all_layers_equal(&c, i, &conversion->layers_compared));
    }
    return OCT_OK;
}

oct_status oct_golden_read(const oct_recipe *recipe, const oct_dataset *test_data, int64_t count,
                           float *samples)
{
    const int64_t numel = test_data->h * test_data->w * test_data->c;
    OCT_OWNED(oct_loader_deinit) oct_loader loader = {0};
    oct_goals goals;
    OCT_TRY(oct_evaluation_loader(&loader, recipe, test_data));
    for (int64_t i = 0; i < count; i++)
        OCT_TRY(oct_loader_read(&loader, i, 1, samples + i * numel, &goals));
    return OCT_OK;
}

/* Takes the first test images as golden inputs, unless the model has some. */
static oct_status make_golden(oct_model *model, oct_conversion *conversion)
{
    const oct_dataset *data = conversion->test_data;
    int64_t count = data->count < OCT_GOLDEN_IMAGES ? data->count : OCT_GOLDEN_IMAGES;
    size_t image = (size_t)(data->h * data->w * data->c);
    if (model->certificate.golden_count > 0) return OCT_OK;
    model->certificate.golden_count = count;
    OCT_TRY(oct_alloc(&model->golden_input, (size_t)count, image * sizeof(float)));
    OCT_TRY(oct_alloc(&model->golden_digest, (size_t)(count * model->program.num_values), DIGEST));
    OCT_TRY(oct_golden_read(conversion->recipe, data, count, model->golden_input));
    return oct_golden_digests(&model->program, model->golden_input, count, model->golden_digest);
}

static oct_status describe_model(oct_model *model, const oct_conversion *conversion)
{
    const oct_recipe *recipe = conversion->recipe;
    oct_text identity = {0}, plugins = {0};
    oct_status status = oct_recipe_write(recipe, true, &identity);
    model->recipe = identity.data;
    OCT_TRY(status);
    status = oct_plugins_record(&plugins, true);
    model->plugins = plugins.data;
    OCT_TRY(status);
    OCT_TRY(oct_strdup(&model->data_format,
                       oct_registry_name(&oct_dataset_id_table, recipe->data_format)));
    OCT_TRY(oct_class_names_make(&model->class_names, conversion->test_data));
    const oct_normaliser n = oct_normaliser_of(&recipe->data_mean, &recipe->data_std);
    oct_normaliser_spread(&n, conversion->test_data->c, model->mean, model->std);
    model->classes = (int)conversion->test_data->classes;
    memcpy(model->checkpoint_digest, conversion->checkpoint_digest, DIGEST);
    memcpy(model->certificate.data_digest, conversion->test_data->digest, DIGEST);
    return OCT_OK;
}

/* The largest magnitude of a sum of a layer, or of a part of it, for any codes. */
static int64_t largest_sum(const oct_program *program, const oct_step *step)
{
    const oct_qparams q = oct_step_input(program, step, 0)->q;
    const int64_t depth = oct_conv_depth(&step->conv.shape), most = q.zero_point - q.qmin;
    int64_t largest = 0;
    for (int64_t c = 0; c < step->conv.shape.out_c; c++) {
        const int64_t bias = oct_export_bias(step, q, c);
        int64_t all = 0;
        for (int64_t i = 0; i < depth; i++) {
            const int64_t w = step->conv.weight[c * depth + i];
            all += w < 0 ? -w : w;
        }
        largest = oct_max_i64(largest, most * all + (bias < 0 ? -bias : bias));
    }
    return largest;
}

/* Logs how many layers have sums that could exceed the accumulator of the target, and which one by most. The chip
 * saturates after each addition, Octet only the complete sum, so their results could differ there. */
static void report_saturating_sums(const oct_program *program)
{
    const int bits = oct_rounding_of(program->requantizer)->sum_bits;
    const int64_t limit = bits > 0 ? INT64_C(1) << (bits - 1) : 0;
    int64_t layers = 0, beyond = 0, most = 0;
    const char *furthest = "";
    if (bits == 0) return;
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        if (step->kind != OCT_STEP_CONV) continue;
        const int64_t largest = largest_sum(program, step);
        layers++;
        beyond += largest >= limit;
        if (largest > most) furthest = step->name;
        most = oct_max_i64(most, largest);
    }
    if (beyond > 0)
        oct_log(
            OCT_LOG_INFO,
            "sums of %" PRId64 " of %" PRId64 " layers could leave %d bits, where the chip of "
            "target %s saturates after each addition and Octet at the end: furthest %s, %.1f times",
            beyond, layers, bits, program->target, furthest, (double)most / (double)limit);
}

oct_status oct_model_convert(oct_model *model, const oct_conversion *conversion)
{
    const oct_graph *graph = oct_graph_of(conversion->root);
    const oct_target *target = conversion->target;
    const oct_example example = oct_dataset_inputs(conversion->test_data, NULL, 1, 0, 1);
    const char *ports = oct_network_port_names(conversion->root);
    oct_text fallbacks = {0};
    OCT_CHECK(graph, OCT_PREPARE, "the model is not prepared: train its QAT phase first");
    oct_status status = oct_convert(&model->program, conversion->root, &example,
                                    target ? target : graph->target, &fallbacks);
    model->certificate.num_fallbacks = oct_count_fallbacks(&model->program);
    model->certificate.fallbacks = fallbacks.data;
    OCT_TRY(status);
    report_saturating_sums(&model->program);
    if (ports) OCT_TRY(oct_strdup(&model->port_names, ports));
    return oct_model_find_bounds(model);
}

/* Computes the outputs of this rank's samples by both models. */
static oct_status evaluate_qat_and_int8(oct_outputs *qat, oct_outputs *int8, const oct_model *model,
                                        const oct_conversion *conversion,
                                        const oct_collective *group)
{
    const oct_recipe *recipe = conversion->recipe;
    const oct_dataset *data = conversion->test_data;
    const int64_t batch = oct_evaluation_batch(recipe, group->size);
    OCT_TRY(oct_outputs_create(qat, recipe, data, group));
    OCT_TRY(oct_outputs_create(int8, recipe, data, group));
    OCT_TRY(oct_evaluate_local(conversion->root, recipe, data, batch, qat));
    return oct_program_evaluate(&model->program, recipe, data, batch, int8);
}

/* Counts the logits that differ in any bit, over all ranks, and scores both outputs; OCT_MISMATCH names the first. */
static oct_status compare_and_score(oct_certificate *certificate, const oct_outputs *qat,
                                    const oct_outputs *int8, oct_conversion *conversion,
                                    const oct_collective *group)
{
    const oct_recipe *recipe = conversion->recipe;
    const int64_t numel = qat->rows * qat->row; /* of a sample */
    const int64_t begin = oct_leaves_first_sample(&qat->leaves) * numel;
    /* A count below 2^53 is exact as a double, so tree_sum (one leaf for each rank) adds the counts exactly. */
    const oct_leaves ranks = oct_leaves_split(group->size, 1, group->rank, group->size);
    double different = 0, sum = 0;
    /* Minus the index of the first differing logit; the maximum over ranks is the smallest index. */
    int64_t key = -INT64_MAX;
    for (int64_t i = 0; i < qat->samples * numel; i++) {
        if (memcmp(qat->y + i, int8->y + i, sizeof(float)) == 0) continue;
        if (different++ == 0) key = -(begin + i);
    }
    OCT_TRY(group->tree_sum(group, &ranks, &different, 1, sizeof(double), &sum));
    certificate->logits_differ = (int64_t)sum;
    OCT_TRY(group->max_i64(group, &key, 1));
    OCT_TRY(oct_score(group, recipe, int8, &conversion->scores));
    OCT_TRY(oct_score(group, recipe, qat, &conversion->qat_scores));
    certificate->images = conversion->scores.images;
    certificate->rows = conversion->scores.rows;
    certificate->correct = oct_max_i64(conversion->scores.correct, 0);
    certificate->qat_accuracy = oct_scores_accuracy(&conversion->qat_scores);
    OCT_ASSERT(numel > 0);
    OCT_CHECK(certificate->logits_differ == 0, OCT_MISMATCH,
              "%lld of %lld logits differ between QAT evaluation and int8 model, first logit %lld "
              "of test image %lld; nothing was saved",
              (long long)certificate->logits_differ, (long long)(certificate->images * numel),
              (long long)(-key % numel), (long long)(-key / numel));
    return OCT_OK;
}

static oct_status digest_logits(oct_certificate *certificate, const oct_outputs *qat,
                                const oct_collective *group)
{
    OCT_OWNED(oct_free) float *all = NULL;
    const int64_t numel = qat->rows * qat->row;
    const size_t count = (size_t)(qat->leaves.samples * numel);
    const bool first = group->rank == 0;
    OCT_TRY(group->agree(group, first ? oct_alloc(&all, count, sizeof(float)) : OCT_OK));
    OCT_TRY(oct_gather_rows(group, &qat->leaves, numel, qat->y, all));
    if (first) oct_sha256(all, count * sizeof(float), certificate->logits_digest);
    return OCT_OK;
}

oct_status oct_model_compare(oct_model *model, oct_conversion *conversion,
                             const oct_collective *group)
{
    OCT_OWNED(oct_outputs_free) oct_outputs qat = {0}, int8 = {0};
    if (conversion->outputs) *conversion->outputs = (oct_outputs){0};
    oct_status status = make_golden(model, conversion);
    if (status == OCT_OK) status = compare_golden(model, conversion);
    if (status == OCT_OK) status = evaluate_qat_and_int8(&qat, &int8, model, conversion, group);
    OCT_TRY(group->agree(group, status));
    OCT_TRY(compare_and_score(&model->certificate, &qat, &int8, conversion, group));
    OCT_TRY(digest_logits(&model->certificate, &qat, group));
    if (conversion->outputs) {
        *conversion->outputs = int8;
        int8 = (oct_outputs){0};
    }
    return OCT_OK;
}

oct_status oct_certify(oct_model *model, oct_conversion *conversion, const oct_collective *group)
{
    *model = (oct_model){0};
    oct_status status = oct_model_convert(model, conversion);
    if (status == OCT_OK) status = describe_model(model, conversion);
    OCT_TRY_OUT(group->agree(group, status));
    status = oct_model_compare(model, conversion, group);
out:
    if (status != OCT_OK) oct_model_free(model);
    return status;
}
