/* What holds of every int8 model. */
#include "io/model/model.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "io/model/class_names.h"
#include "quant/kernel/qconv.h"
#include "quant/program/step.h"

#include <math.h>
#include <string.h>

bool oct_model_gives_values(const oct_model *m)
{
    const oct_certificate *c = &m->certificate;
    if (oct_model_has_recipe(m)) return c->qat_accuracy < 0;
    return m->classes < 2 || (c->images > 0 && c->qat_accuracy < 0 && !m->class_names);
}

/* The largest |accumulator| that a step can reach for any codes of its input; 0: it has no weights. */
static int64_t accumulator_bound(const oct_program *program, const oct_step *step)
{
    int64_t most = 0;
    if (!oct_step_type_of(step->kind)->weights) return 0;
    const oct_qparams x = oct_step_input(program, step, 0)->q;
    for (int64_t c = 0; c < step->conv.shape.out_c; c++)
        most = oct_max_i64(most, oct_qconv_bound(&step->conv.shape, step->conv.weight, c,
                                                 step->conv.bias[c], x.qmin, x.qmax));
    return most;
}

oct_status oct_model_find_bounds(oct_model *model)
{
    const oct_program *program = &model->program;
    OCT_TRY(oct_program_check(program));
    OCT_TRY(oct_alloc(&model->overflow_bound, (size_t)program->num_steps, sizeof(int64_t)));
    for (int64_t i = 0; i < program->num_steps; i++)
        model->overflow_bound[i] = accumulator_bound(program, &program->steps[i]);
    return OCT_OK;
}

/* Whether a layer's multipliers are in_scale * weight_scale / out_scale: exported files have only the scales. */
static bool fits_scales(const oct_program *program, const oct_step *step)
{
    if (!oct_step_type_of(step->kind)->weights) return true;
    const oct_value *out = oct_step_output(program, step);
    const float in_scale = oct_step_input(program, step, 0)->q.scale;
    const float out_scale = out->dtype == OCT_F32 ? 1.0f : out->q.scale;
    const float addend =
        step->num_inputs > 1 ? oct_step_input(program, step, 1)->q.scale / out_scale : 0;
    bool fits = step->conv.addend_multiplier == addend;
    for (int64_t c = 0; c < step->conv.shape.out_c; c++)
        fits =
            fits && step->conv.multiplier[c] == in_scale * step->conv.weight_scale[c] / out_scale;
    return fits;
}

/* Checks that the figures of the certificate agree; whether they are true shows on the test set (octet verify). */
static oct_status check_certificate(const oct_model *model)
{
    const oct_certificate *c = &model->certificate;
    const double rows = (double)oct_certificate_rows(c);
    int64_t fallbacks = 0;
    for (int64_t i = 0; i < model->program.num_steps; i++)
        fallbacks += model->program.steps[i].kind == OCT_STEP_FLOAT;
    OCT_CHECK(c->golden_count >= 0 && c->golden_count <= OCT_MODEL_GOLDEN_MAX, OCT_DATA,
              "%lld golden inputs; 0 to %d are allowed", (long long)c->golden_count,
              OCT_MODEL_GOLDEN_MAX);
    const double accuracy = rows > 0 ? 100.0 * (double)c->correct / rows : 0;
    OCT_CHECK(c->images >= 0 && c->rows >= 0 && c->logits_differ == 0 && c->correct >= 0 &&
                  c->correct <= oct_certificate_rows(c) && c->num_fallbacks == fallbacks &&
                  (c->qat_accuracy == accuracy || (c->qat_accuracy == -1 && c->correct == 0)),
              OCT_DATA,
              "the figures of the certificate contradict each other: %lld images, %lld rows, %lld "
              "right, an accuracy of %g %%, %lld logits that differ, %lld float layers of %lld",
              (long long)c->images, (long long)c->rows, (long long)c->correct, c->qat_accuracy,
              (long long)c->logits_differ, (long long)c->num_fallbacks, (long long)fallbacks);
    return OCT_OK;
}

oct_status oct_model_check(const oct_model *model)
{
    const oct_program *program = &model->program;
    const char *texts[] = {model->recipe, model->data_format, model->plugins,
                           model->certificate.fallbacks};
    OCT_CHECK(program->num_steps >= 1 && program->num_steps <= OCT_MODEL_STEPS_MAX &&
                  program->num_values >= 1 && program->num_values <= OCT_MODEL_VALUES_MAX,
              OCT_DATA,
              "the program has %lld steps and %lld values; 1 to %d and 1 to %d are allowed",
              (long long)program->num_steps, (long long)program->num_values, OCT_MODEL_STEPS_MAX,
              OCT_MODEL_VALUES_MAX);
    OCT_TRY(oct_program_check(program));
    OCT_CHECK(model->overflow_bound, OCT_DATA, "the overflow bounds are missing");
    for (size_t i = 0; i < OCT_COUNT(texts); i++)
        OCT_CHECK(!texts[i] ||
                      (oct_is_plain_text(texts[i]) && strlen(texts[i]) <= OCT_MODEL_TEXT_MAX),
                  OCT_DATA, "a text holds control characters or more than 1 MiB");
    OCT_CHECK(!model->class_names || oct_class_names_fit(model->class_names, model->classes),
              OCT_DATA, "the names of the classes are not %d lines of plain text", model->classes);
    OCT_CHECK(!model->port_names ||
                  (program->num_inputs == 1 && oct_class_names_fit(model->port_names, 2)),
              OCT_DATA, "the names of the input and the output are not 2 lines of plain text");
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        OCT_CHECK(memchr(step->name, '\0', sizeof step->name) && oct_is_plain_text(step->name) &&
                      !strchr(step->name, '\n'),
                  OCT_DATA, "the name of step %lld is not a line of text", (long long)i);
        OCT_CHECK(model->overflow_bound[i] == accumulator_bound(program, step), OCT_DATA,
                  "the overflow bound of step %lld is not that of its weights", (long long)i);
        OCT_CHECK(fits_scales(program, step), OCT_DATA,
                  "the multipliers of step %lld are not those of its scales", (long long)i);
    }
    int64_t channels = program->values[program->inputs[0]].c;
    for (int64_t i = 0; i < (channels <= OCT_REALS_MAX ? channels : 1); i++)
        OCT_CHECK(isfinite(model->mean[i]) && isfinite(model->std[i]) && model->std[i] > 0.0f,
                  OCT_DATA, "mean or std of input channel %lld is not a usable number",
                  (long long)i);
    const oct_value *output = &program->values[program->output];
    OCT_CHECK(output->dtype == OCT_S32 ? model->classes >= 1
                                       : model->classes == output->h * output->w * output->c ||
                                             model->classes == output->c,
              OCT_DATA, "%d classes, but the output has %lld numbers", model->classes,
              (long long)(output->h * output->w * output->c));
    return check_certificate(model);
}

oct_status oct_model_run_golden(const oct_program *program, const float *inputs, int64_t samples,
                                uint8_t *outputs)
{
    const float *input[OCT_PROGRAM_INPUTS];
    const size_t output_bytes = oct_value_bytes(&program->values[program->output]);
    OCT_OWNED(oct_runtime_destroy) oct_runtime *runtime = NULL;
    if (samples == 0) return OCT_OK;
    OCT_TRY(oct_runtime_create(&runtime, program, NULL));
    for (int64_t n = 0; n < samples; n++, outputs += output_bytes) {
        for (int i = 0; i < program->num_inputs; i++) {
            input[i] = inputs;
            inputs += oct_value_numel(&program->values[program->inputs[i]]);
        }
        OCT_TRY(oct_runtime_run(runtime, 1, input, outputs));
    }
    return OCT_OK;
}

void oct_model_free(oct_model *model)
{
    oct_program_free(&model->program);
    OCT_FREE_ALL(&model->recipe, &model->plugins, &model->data_format, &model->class_names,
                 &model->port_names, &model->overflow_bound, &model->golden_input,
                 &model->golden_digest, &model->certificate.fallbacks);
    *model = (oct_model){0};
}
