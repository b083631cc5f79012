/* Float fallbacks as somebody may write them into a file: any type of module with any arguments, arrays,
 * inputs and output. Each is run or refused as bad data, in little time and memory. */
#include "core/base/mem.h"
#include "core/nn/modules.h"
#include "quant/convert/convert.h"
#include "quant/program/step.h"
#include "tests/support/check_status.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(fallback_sweep, .timeout = 300);

static const char *const types[] = {
#define OCT_MODULE(name) #name,
#include "core/nn/module_list.def"
#undef OCT_MODULE
};

static const double extremes[] = {0,      1,       -1,        2,         3,
                                  0.5,    64,      1023,      16384,     46341,
                                  65536,  1 << 30, INT32_MAX, INT32_MIN, 4294967296.0,
                                  1e-300, -1e300,  1e18,      INFINITY,  NAN};

static uint64_t state = 7;
static size_t pick(size_t n)
{
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (size_t)(state >> 33) % n;
}

enum { INPUTS = 2 };

typedef struct crafted {
    oct_value values[INPUTS + 1];
    oct_step step;
    oct_fallback fallback;
    oct_program program;
} crafted;

static void add_array(oct_fallback *fallback, const char *name, oct_dtype dtype, oct_shape shape)
{
    oct_fallback_array *array = &fallback->arrays[fallback->num_arrays++];
    *array = (oct_fallback_array){.dtype = dtype, .shape = shape};
    MUST(oct_strdup(&array->name, name));
    MUST(oct_alloc(&array->data, (size_t)oct_shape_numel(&shape), oct_dtype_bytes(dtype)));
}

/* The arrays that a module with these arguments has, if it can be made and is small. */
static void add_arrays(oct_fallback *fallback)
{
    oct_module *module = NULL;
    oct_mem_guard(1 << 22);
    if (oct_module_from(&module, oct_module_type_find(fallback->type), &fallback->args) != OCT_OK)
        module = NULL;
    oct_mem_guard(SIZE_MAX);
    MUST(oct_alloc(&fallback->arrays, OCT_FALLBACK_ARRAYS_MAX, sizeof *fallback->arrays));
    for (size_t i = 0; module && i < module->num_params; i++)
        add_array(fallback, module->params[i]->name, OCT_F32, module->params[i]->value.shape);
    for (size_t i = 0; module && i < module->num_buffers; i++)
        add_array(fallback, module->buffers[i].name, module->buffers[i].tensor.dtype,
                  module->buffers[i].tensor.shape);
    oct_module_destroy(&module);
    oct_fail_clear();
}

static void craft(crafted *c, const char *type, int num_args, const double *args, int num_inputs)
{
    static const int64_t sides[] = {1, 2, 5, 16, 300};
    *c = (crafted){.program = {.target = "x", .num_steps = 1, .num_inputs = num_inputs}};
    c->fallback.args.count = num_args;
    snprintf(c->fallback.type, sizeof c->fallback.type, "%s", type);
    for (int i = 0; i < num_args; i++)
        c->fallback.args.value[i] = args[i];
    add_arrays(&c->fallback);
    const int64_t channels = sides[pick(4)], side = sides[pick(OCT_COUNT(sides))];
    for (int i = 0; i <= num_inputs; i++) {
        c->values[i] = (oct_value){.dtype = OCT_F32, .h = side, .w = side, .c = channels};
        if (i == num_inputs && pick(2)) c->values[i].c = sides[pick(4)];
        if (i == num_inputs && pick(3) == 0) c->values[i].h = c->values[i].w = sides[pick(3)];
    }
    snprintf(c->step.name, sizeof c->step.name, "odd");
    c->step.kind = OCT_STEP_FLOAT;
    c->step.fallback = &c->fallback;
    c->step.num_inputs = num_inputs;
    for (int i = 0; i < num_inputs; i++) {
        c->step.input[i] = c->program.inputs[i] = i;
        c->fallback.dims[i] = side > 1 ? 4 : 2 + (int)pick(3);
    }
    c->step.output = c->program.output = num_inputs;
    c->program.num_values = num_inputs + 1;
    c->program.values = c->values;
    c->program.steps = &c->step;
}

static oct_status run_program(const oct_program *p)
{
    oct_runtime *runtime = NULL;
    oct_status status = OCT_OK;
    float *x = NULL, *y = NULL;
    const float *input[OCT_STEP_INPUTS];
    MUST(oct_alloc(&x, (size_t)oct_value_numel(&p->values[0]), sizeof(float)));
    MUST(oct_alloc(&y, (size_t)oct_value_numel(&p->values[p->output]), sizeof(float)));
    for (int i = 0; i < OCT_STEP_INPUTS; i++)
        input[i] = x;
    oct_mem_peak_reset();
    const size_t before = oct_mem_live();
    OCT_TRY_OUT(
        oct_runtime_create(&runtime, p, &(oct_runtime_options){.host = &oct_module_fallbacks}));
    status = oct_runtime_run(runtime, 1, input, y);
out:
    cr_assert(oct_mem_peak() - before < (64 << 20), "%zu bytes", oct_mem_peak() - before);
    oct_runtime_destroy(&runtime);
    oct_free(&x);
    oct_free(&y);
    return status;
}

static void check_fallback(const char *type, int num_args, const double *args, int num_inputs,
                           size_t *ran)
{
    crafted c;
    craft(&c, type, num_args, args, num_inputs);
    oct_status status = run_program(&c.program);
    cr_assert(status == OCT_OK || status == OCT_DATA,
              "%s with %d arguments %g %g %g %g %g %g %g: code %d: %s", type, num_args, args[0],
              args[1], args[2], args[3], args[4], args[5], args[6], (int)status,
              oct_error_message(0));
    *ran += status == OCT_OK;
    for (int64_t i = 0; i < c.fallback.num_arrays; i++) {
        oct_free(&c.fallback.arrays[i].name);
        oct_free(&c.fallback.arrays[i].data);
    }
    oct_free(&c.fallback.arrays);
}

Test(fallback_sweep, extreme_arguments_are_bad_data_and_no_defect)
{
    enum { ARGS = 9, EACH = 400 };
    size_t ran = 0;
    for (size_t t = 0; t < OCT_COUNT(types); t++) {
        for (int i = 0; i < EACH; i++) {
            double args[OCT_MAX_ARGS] = {0};
            for (int a = 0; a < ARGS; a++) /* mostly small: so that some of them are taken */
                args[a] = pick(2) ? extremes[pick(5)] : extremes[pick(OCT_COUNT(extremes))];
            check_fallback(types[t], (int)pick(ARGS), args, 1 + (int)pick(INPUTS), &ran);
        }
    }
    cr_assert(ran > 100, "%zu ran", ran);
    check_nothing_held();
}

/* Those that were seen: each asks for more than its file could pay for. */
Test(fallback_sweep, huge_layers_are_refused_before_they_are_made)
{
    static const struct {
        const char *type;
        int num_args;
        double args[OCT_MAX_ARGS];
    } odd[] = {
        {"conv2d", 14, {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1}},
        {"conv2d", 14, {1, 1, 1, 1, 1, 1, INT32_MAX, 0, 0, 0, 1, 1, 1, 0}},
        {"conv_transpose2d", 16, {65536, 65536, 16384, 16384, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1}},
        {"linear", 3, {INT32_MAX, INT32_MAX, 1}},
        {"batch_norm", 3, {INT32_MAX, 1e-5, 0.1}},
        {"layer_norm", 2, {INT32_MAX, 1e-5}},
        {"group_norm", 3, {INT32_MAX, INT32_MAX, 1e-5}},
        {"parameter", 3, {2, 65536, 65536}},
        {"add_parameter", 4, {3, INT32_MAX, INT32_MAX, INT32_MAX}},
        {"mul_parameter", 2, {1, INT32_MAX}},
        {"interpolate", 3, {INT32_MAX, INT32_MAX, 1}},
        {"interpolate", 3, {65536, 65536, 0}},
        {"reshape", 3, {INT32_MAX, INT32_MAX, INT32_MAX}},
        {"max_pool", 9, {INT32_MAX, 1, 1, 1, INT32_MAX - 1, 0, 0, 0, 0}},
        {"max_pool", 9, {16384, 16384, 1, 1, 16383, 16383, 16383, 16383, 0}},
        {"avg_pool", 10, {46341, 46341, 46341, 46341, 0, 0, 0, 0, 1, 0}},
        {"conv2d", 14, {1, 1, 3, 3, 1, 1, 1, 1, 1, 1, INT32_MAX, INT32_MAX, 1, 0}},
        {"conv2d", 14, {1, 1, 16384, 16384, 1, 1, 1, 1, 1, 1, 16384, 16384, 1, 0}},
        {"conv_transpose2d",
         16,
         {1, 1, 1, 1, 16384, 16384, 0, 0, 0, 0, 0, INT32_MAX, 16384, 16384, 1, 1}},
        {"pad", 8, {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, 0, 0}},
        {"pad", 8, {65536, 65536, 65536, 65536, 0, 0, 0, 0}},
        {"pad", 8, {0, 0, 0, 0, 1 << 30, 1 << 30, 0, 2}},
        {"move", 6, {0, 1, INT32_MAX, 1, INT32_MAX, 0}},
        {"move", 12, {0, 3, 65536, 65536, 16, 3, 65536, 65536, 16, 0, 0, 0}},
        {"move", 6, {INT32_MAX, 1, 1, 1, 1, INT32_MIN}},
    };
    for (size_t i = 0; i < OCT_COUNT(odd); i++) {
        size_t ran = 0;
        check_fallback(odd[i].type, odd[i].num_args, odd[i].args, 1, &ran);
        cr_assert_eq(ran, 0, "%s", odd[i].type);
    }
    check_nothing_held();
}
