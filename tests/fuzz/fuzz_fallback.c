/* Float fallbacks as a model file could describe them: made by their type's name from any arguments and arrays,
 * run, and written in every format, or refused as input. The input is the bytes of the struct `description`. */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/export/format.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

const char *const fuzz_name = "fallback";
const char *const *const fuzz_words = NULL;

enum { INPUTS = 3, ARRAYS = 6, SIDES = 3, LONGEST = 17 };

static const char *const types[] = {
#define OCT_MODULE(name) #name,
#include "core/nn/module_list.def"
#undef OCT_MODULE
    "no_such_type", "sequential", "qat_conv"};
enum { UNKNOWN = 3 }; /* the last ones: a plug-in could have them */
static const char *const names[] = {"weight", "bias", "running_mean", "running_var", "none"};

typedef struct description {
    uint8_t type, num_inputs, num_args, num_arrays;
    uint8_t input[INPUTS][SIDES + 1]; /* h, w, c and in how many dimensions */
    uint8_t output[SIDES];
    double args[OCT_MAX_ARGS];
    struct {
        uint8_t name, ndim, dim[OCT_MAX_DIMS];
    } array[ARRAYS];
} description;

static uint8_t index_of(const char *const *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], name) == 0) return (uint8_t)i;
    fuzz_found(__FILE__, __LINE__, "%s is not in the list", name);
}

static void describe_array(description *t, const char *name, const oct_shape *shape)
{
    const uint8_t at = t->num_arrays++;
    t->array[at].name = index_of(names, OCT_COUNT(names), name);
    t->array[at].ndim = (uint8_t)shape->ndim;
    for (int i = 0; i < shape->ndim; i++)
        t->array[at].dim[i] = (uint8_t)shape->dim[i];
}

/* The description of a module, which is then destroyed, as a seed. inputs: how many, all of the same shape. */
static void seed_of(oct_status made, oct_module **module, int inputs, int dims,
                    const uint8_t in[SIDES], const uint8_t out[SIDES])
{
    description t = {0};
    oct_op_args args = {0};
    MAKE(made);
    const oct_module *m = *module;
    t.type = index_of(types, OCT_COUNT(types), m->type->name);
    t.num_inputs = (uint8_t)(inputs - 1);
    for (int i = 0; i < INPUTS; i++) {
        memcpy(t.input[i], in, SIDES);
        t.input[i][SIDES] = (uint8_t)dims;
    }
    memcpy(t.output, out, SIDES);
    oct_module_args(m, &args);
    t.num_args = (uint8_t)args.count;
    for (int i = 0; i < args.count; i++)
        t.args[i] = args.value[i];
    for (size_t i = 0; i < m->num_params; i++)
        describe_array(&t, m->params[i]->name, &m->params[i]->value.shape);
    for (size_t i = 0; i < m->num_buffers; i++)
        describe_array(&t, m->buffers[i].name, &m->buffers[i].tensor.shape);
    fuzz_seed(&t, sizeof t);
    oct_module_destroy(module);
}

#define SHAPE(h, w, c) ((const uint8_t[SIDES]){(h), (w), (c)})

void fuzz_seeds(void)
{
    const oct_conv_geometry g = oct_conv_geometry_of(3, 3, 2, 1, 1);
    const oct_conv_geometry t = oct_conv_geometry_of(2, 2, 2, 0, 1);
    const oct_conv_geometry uneven = {.kernel_h = 2,
                                      .kernel_w = 3,
                                      .stride_h = 2,
                                      .stride_w = 1,
                                      .pad_left = 2,
                                      .pad_bottom = 1,
                                      .dilation_h = 1,
                                      .dilation_w = 2,
                                      .groups = 2};
    oct_pool_geometry padded = oct_pool_geometry_of(3, 2, 1);
    padded.ceil = true;
    oct_module *m = NULL;
    seed_of(oct_conv2d_create(&m, 4, 6, uneven, true), &m, 1, 4, SHAPE(6, 5, 4), SHAPE(3, 3, 6));
    seed_of(oct_conv_transpose2d_create(&m, 4, 6, uneven, true), &m, 1, 4, SHAPE(3, 3, 4),
            SHAPE(5, 5, 6));
    seed_of(oct_max_pool_create(&m, padded), &m, 1, 4, SHAPE(6, 6, 2), SHAPE(4, 4, 2));
    seed_of(oct_linear_create(&m, 4, 3, true), &m, 1, 4, SHAPE(3, 2, 4), SHAPE(3, 2, 3));
    seed_of(oct_conv2d_create(&m, 4, 3, g, true), &m, 1, 4, SHAPE(6, 5, 4), SHAPE(3, 3, 3));
    seed_of(oct_conv_transpose2d_create(&m, 4, 3, t, false), &m, 1, 4, SHAPE(2, 3, 4),
            SHAPE(4, 6, 3));
    seed_of(oct_linear_create(&m, 4, 3, true), &m, 1, 2, SHAPE(1, 1, 4), SHAPE(1, 1, 3));
    seed_of(oct_batch_norm_create(&m, 4), &m, 1, 4, SHAPE(3, 3, 4), SHAPE(3, 3, 4));
    seed_of(oct_relu_create(&m), &m, 1, 4, SHAPE(3, 3, 4), SHAPE(3, 3, 4));
    seed_of(oct_add_create(&m), &m, 2, 4, SHAPE(3, 3, 4), SHAPE(3, 3, 4));
    seed_of(oct_mul_create(&m), &m, 2, 4, SHAPE(3, 3, 4), SHAPE(3, 3, 4));
    seed_of(oct_add_scalar_create(&m, 0.5), &m, 1, 4, SHAPE(3, 3, 4), SHAPE(3, 3, 4));
    seed_of(oct_concat_create(&m), &m, 3, 4, SHAPE(3, 3, 4), SHAPE(3, 3, 12));
    seed_of(oct_max_pool_create(&m, oct_pool_geometry_of(2, 2, 0)), &m, 1, 4, SHAPE(4, 4, 2),
            SHAPE(2, 2, 2));
    seed_of(oct_avg_pool_create(&m, oct_pool_geometry_of(2, 2, 0)), &m, 1, 4, SHAPE(4, 4, 2),
            SHAPE(2, 2, 2));
    seed_of(oct_global_avg_pool_create(&m), &m, 1, 4, SHAPE(4, 4, 2), SHAPE(1, 1, 2));
    seed_of(oct_flatten_create(&m), &m, 1, 4, SHAPE(4, 4, 2), SHAPE(1, 1, 32));
    seed_of(oct_reshape_create(&m, OCT_SHAPE(0, 2, 8, 2)), &m, 1, 4, SHAPE(4, 4, 2),
            SHAPE(2, 8, 2));
    seed_of(oct_module_from(&m, &oct_move_type, OCT_OP_ARGS(1, 1, 9, 1, 9, 3)), &m, 1, 4,
            SHAPE(4, 4, 2), SHAPE(1, 1, 9));
    seed_of(oct_pad_create(&m, &(oct_padding){1, 1, 1, 1, 0, 0, 0, OCT_PAD_REFLECT}), &m, 1, 4,
            SHAPE(4, 4, 2), SHAPE(6, 6, 2));
    seed_of(oct_interpolate_create(&m, 7, 9, OCT_BILINEAR), &m, 1, 4, SHAPE(4, 4, 2),
            SHAPE(7, 9, 2));
    seed_of(oct_softmax_create(&m), &m, 1, 4, SHAPE(4, 4, 5), SHAPE(4, 4, 5));
    seed_of(oct_leaky_relu_create(&m, 0.1), &m, 1, 4, SHAPE(4, 4, 5), SHAPE(4, 4, 5));
}

static void value_of(oct_value *value, const uint8_t sides[SIDES])
{
    *value = (oct_value){.dtype = OCT_F32,
                         .h = sides[0] % LONGEST,
                         .w = sides[1] % LONGEST,
                         .c = sides[2] % (2 * LONGEST)};
}

static void arrays_of(oct_fallback *fallback, const description *t)
{
    const int count = t->num_arrays % (ARRAYS + 1);
    MAKE(oct_alloc(&fallback->arrays, ARRAYS, sizeof *fallback->arrays));
    fallback->num_arrays = count;
    for (int i = 0; i < count; i++) {
        oct_fallback_array *array = &fallback->arrays[i];
        array->dtype = OCT_F32;
        array->shape.ndim = t->array[i].ndim % (OCT_MAX_DIMS + 1);
        for (int d = 0; d < array->shape.ndim; d++)
            array->shape.dim[d] = t->array[i].dim[d] % LONGEST;
        const int64_t n = oct_shape_numel(&array->shape);
        MAKE(oct_strdup(&array->name, names[t->array[i].name % OCT_COUNT(names)]));
        MAKE(oct_alloc(&array->data, (size_t)n, sizeof(float)));
        for (int64_t k = 0; k < n; k++)
            ((float *)array->data)[k] = (float)(k % 11 - 5) / 8;
    }
}

/* One step between inputs and output, all in float. */
static void program_of(oct_program *p, const description *t)
{
    const int inputs = 1 + t->num_inputs % INPUTS;
    *p = (oct_program){.target = "x86", .num_steps = 1, .num_inputs = inputs};
    MAKE(oct_alloc(&p->steps, 1, sizeof *p->steps));
    MAKE(oct_alloc(&p->values, INPUTS + 1, sizeof *p->values));
    MAKE(oct_alloc(&p->steps[0].fallback, 1, sizeof *p->steps[0].fallback));
    oct_step *step = &p->steps[0];
    oct_fallback *fallback = step->fallback;
    step->kind = OCT_STEP_FLOAT;
    snprintf(step->name, sizeof step->name, "fallback");
    snprintf(fallback->type, sizeof fallback->type, "%s", types[t->type % OCT_COUNT(types)]);
    step->num_inputs = inputs;
    for (int i = 0; i < inputs; i++) {
        value_of(&p->values[i], t->input[i]);
        p->inputs[i] = step->input[i] = i;
        fallback->dims[i] = t->input[i][SIDES] % 6;
    }
    value_of(&p->values[inputs], t->output);
    p->num_values = inputs + 1;
    p->output = step->output = inputs;
    fallback->args.count = t->num_args % (OCT_MAX_ARGS + 1);
    memcpy(fallback->args.value, t->args, sizeof fallback->args.value);
    arrays_of(fallback, t);
}

static oct_status run_program(const oct_program *p)
{
    static float numbers[LONGEST * LONGEST * 2 * LONGEST], out[LONGEST * LONGEST * 2 * LONGEST];
    const float *inputs[] = {numbers, numbers, numbers};
    oct_runtime *runtime = NULL;
    OCT_TRY(oct_program_check(p));
    oct_status status =
        oct_runtime_create(&runtime, p, &(oct_runtime_options){.host = &oct_module_fallbacks});
    if (status == OCT_OK) status = oct_runtime_run(runtime, 1, inputs, out);
    oct_runtime_destroy(&runtime);
    return status;
}

/* A program that passes the checks of a model file can be exported, or is refused with the layer's name. */
static void export(const oct_program *p)
{
    static const float ones[OCT_REALS_MAX] = {1, 1, 1, 1};
    oct_model m = {.program = *p, .recipe = (char[]){""}, .data_format = (char[]){"idx"}};
    m.classes = (int)oct_value_numel(&p->values[p->output]);
    for (size_t i = 0; i < OCT_REALS_MAX; i++)
        m.std[i] = 1;
    for (size_t i = 0; i < oct_export_format_table.num_listed; i++) {
        const oct_export_format *format = oct_export_format_table.listed[i];
        oct_exported made = {0};
        if (!format->write_model) continue;
        const oct_status status = format->write_model(
            &(oct_export){.model = &m, .mean = m.mean, .std = ones, .name = "m", .version = "0"},
            &made);
        fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_PREPARE) | FUZZ_BIT(OCT_USAGE), NULL);
        oct_exported_free(&made);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    description t = {0};
    oct_program program;
    oct_log_setup(OCT_LOG_ERROR, false);
    memcpy(&t, data, size < sizeof t ? size : sizeof t);
    fuzz_call call = fuzz_begin(size);
    program_of(&program, &t);
    const bool unknown = t.type % OCT_COUNT(types) >= OCT_COUNT(types) - UNKNOWN;
    const oct_status status = run_program(&program);
    fuzz_said(status, FUZZ_BIT(OCT_OK) | FUZZ_BIT(OCT_DATA) | (unknown ? FUZZ_BIT(OCT_PREPARE) : 0),
              NULL);
    if (oct_program_check(&program) == OCT_OK && oct_fallbacks_check(&program, false) == OCT_OK)
        export(&program);
    else
        FUZZ_REQUIRE(status != OCT_OK, "it runs, but the checks of a model file refuse it");
    oct_fail_clear();
    oct_program_free(&program);
    fuzz_end(&call, 0, (size_t)16 << 20);
    return 0;
}
