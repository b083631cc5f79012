/* Programs of whole models, with float fallbacks, several inputs, 16-bit codes, functional ops, loops and
 * shared layers: what QAT evaluates and what the program computes agree in every bit. */
#include "tests/core/spec_net.h"
#include "tests/quant/deploy.h"

#include <stdio.h>

TestSuite(fallbacks, .timeout = 120);
TestSuite(programs, .timeout = 120);

static const oct_prepare_method graph_methods[] = {OCT_METHOD_JIT, OCT_METHOD_JIT_STRIP,
                                                   OCT_METHOD_SYMBOLIC};

/* stub, a, b, c, ... one after another, dequant */
static oct_tensor *chain_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    parts *p = (parts *)self;
    oct_tensor *y = x[0];
    for (int i = 0; i < DEPLOY_PARTS && p->m[i]; i++)
        y = oct_call(cx, p->m[i], y);
    return y;
}
static const oct_module_type chain_type = {.name = "chain", .forward = chain_forward};

/* Stub a, conv b, `middle` c, conv d, dequant e. */
static oct_module *chain_around(oct_module *middle, int64_t channels)
{
    oct_module *root = parts_create(&chain_type);
    PART(root, 0, oct_quant_stub_create(&item));
    PART(root, 1, oct_conv2d_create(&item, 3, 4, deploy_conv(3, 1), true));
    ((parts *)root)->m[2] = middle;
    OK(oct_module_add_child(root, "c", &((parts *)root)->m[2]));
    PART(root, 3, oct_conv2d_create(&item, channels, 5, deploy_conv(1, 1), true));
    PART(root, 4, oct_dequant_stub_create(&item));
    return root;
}

static void check_fallback(const oct_program *p, const char *type)
{
    for (int64_t i = 0; i < p->num_steps; i++) {
        const oct_step *step = &p->steps[i];
        if (step->kind != OCT_STEP_FLOAT) continue;
        cr_assert_str_eq(step->name, "c");
        cr_assert_str_eq(step->fallback->type, type);
    }
    cr_assert_eq(deploy_count(p, OCT_STEP_FLOAT), 1);
}

/* Takes middle over; it keeps the plane and has 4 input channels. */
static void deploy_around(oct_module *middle, int64_t channels, oct_prepare_method method)
{
    deployment d;
    const char *type = middle->type->name;
    const oct_qconfig_setter none = oct_setter_by_name("c", NULL);
    const oct_prepare_options options = deploy_options(method, &none);
    deploy_begin(&d, chain_around(middle, channels), OCT_EXAMPLE(OCT_SHAPE(1, 6, 5, 3)));
    deploy(&d, &options);
    check_fallback(&d.program, type);
    cr_assert(strncmp(d.fallbacks.data, "c (", 3) == 0, "%s", d.fallbacks.data);
    deploy_end(&d);
}

#define AROUND(channels, create)                                                                   \
    for (size_t i_ = 0; i_ < OCT_COUNT(graph_methods); i_++) {                                     \
        oct_module *item = NULL;                                                                   \
        OK(create);                                                                                \
        deploy_around(item, channels, graph_methods[i_]);                                          \
    }

Test(fallbacks, of_layers_with_weights)
{
    AROUND(6, oct_conv2d_create(&item, 4, 6, deploy_conv(3, 1), true));
    AROUND(6, oct_conv2d_create(&item, 4, 6, deploy_conv(3, 2), false));
    AROUND(2, oct_conv_transpose2d_create(&item, 4, 2, oct_conv_geometry_of(2, 2, 2, 0, 1), true));
    AROUND(4, oct_batch_norm_create(&item, 4));
}

Test(fallbacks, of_functions)
{
    AROUND(4, oct_sigmoid_create(&item));
    AROUND(4, oct_leaky_relu_create(&item, 0.2));
    AROUND(4, oct_softmax_create(&item));
    AROUND(4, oct_mul_scalar_create(&item, -1.5));
    AROUND(4, oct_interpolate_create(&item, 9, 7, OCT_BILINEAR));
    AROUND(4, oct_avg_pool_create(&item, oct_pool_geometry_of(2, 1, 0)));
    AROUND(4, oct_max_pool_create(&item, oct_pool_geometry_of(3, 1, 1)));
}

/* The float fallback's own bits are the output: here it shows whether samples of a leaf share a product. */
Test(fallbacks, of_a_linear_layer_whose_samples_would_share_a_product)
{
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        deployment d;
        const oct_qconfig_setter none = oct_setter_by_name("d", NULL);
        const oct_prepare_options options = deploy_options(graph_methods[i], &none);
        oct_module *root = parts_create(&chain_type);
        PART(root, 0, oct_quant_stub_create(&item));
        PART(root, 1, oct_conv2d_create(&item, 3, 32, deploy_conv(3, 1), true));
        PART(root, 2, oct_flatten_create(&item));
        PART(root, 3, oct_linear_create(&item, 32 * 16, 10, true));
        PART(root, 4, oct_dequant_stub_create(&item));
        deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 4, 4, 3)));
        deploy(&d, &options);
        cr_assert_eq(deploy_count(&d.program, OCT_STEP_FLOAT), 1);
        deploy_end(&d);
    }
}

/* In eager the user places the stubs around the float fallback. */
Test(fallbacks, of_eager_models)
{
    deployment d;
    const oct_qconfig_setter none = oct_setter_by_name("d", NULL);
    const oct_prepare_options options = deploy_options(OCT_METHOD_EAGER, &none);
    oct_module *root = parts_create(&chain_type);
    PART(root, 0, oct_quant_stub_create(&item));
    PART(root, 1, oct_conv2d_create(&item, 3, 4, deploy_conv(3, 1), true));
    PART(root, 2, oct_dequant_stub_create(&item));
    PART(root, 3, oct_conv2d_create(&item, 4, 8, deploy_conv(3, 1), true));
    PART(root, 4, oct_quant_stub_create(&item));
    PART(root, 5, oct_conv2d_create(&item, 8, 2, deploy_conv(3, 1), true));
    PART(root, 6, oct_dequant_stub_create(&item));
    deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 5, 3)));
    deploy(&d, &options);
    cr_assert_eq(deploy_count(&d.program, OCT_STEP_FLOAT), 1);
    cr_assert_eq(deploy_count(&d.program, OCT_STEP_QUANTIZE), 2);
    deploy_end(&d);
}

/* A user's own layer. */
typedef struct own_layer {
    oct_module base;
    oct_param *weight;
    oct_scalar_args args;
} own_layer;

static oct_tensor *own_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const own_layer *m = (own_layer *)self;
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x[0]->shape);
    for (int64_t i = 0; y && i < oct_numel(y); i++)
        oct_f32(y)[i] = oct_f32(x[0])[i] * (oct_f32(x[0])[i] < 0 ? -1.0f : 1.0f) +
                        oct_f32(&m->weight->value)[0];
    if (y) oct_record(cx, "own", NULL, x, n, true, y);
    return y;
}

static oct_status own_init(oct_module *self)
{
    own_layer *own = (own_layer *)self;
    OCT_TRY(oct_module_add_param(self, "weight", OCT_SHAPE(1), true, &own->weight));
    oct_f32(&own->weight->value)[0] = 0.25f;
    return OCT_OK;
}

static const oct_module_type own_type = {.name = "own",
                                         .forward = own_forward,
                                         .atomic = true,
                                         OCT_MODULE_ARGS(oct_scalar_arg_list, own_layer),
                                         .init = own_init};

static oct_status own_make(oct_module **m, const oct_module_type *type)
{
    OCT_TRY(oct_module_alloc(m, type, sizeof(own_layer)));
    return own_init(*m);
}

Test(fallbacks, of_a_users_own_layer)
{
    OK(oct_module_type_register(&own_type));
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        oct_module *item;
        OK(own_make(&item, &own_type));
        deploy_around(item, 4, graph_methods[i]);
    }
}

/* A network of specs alone: its convolutions quantize, what it calls between them stays float and is made again. */
Test(fallbacks, of_specs)
{
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        deployment d;
        oct_module *root;
        const oct_prepare_options options = deploy_options(graph_methods[i], NULL);
        OK(oct_module_create(&root, &gated_spec, NULL));
        deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 5, 3)));
        float *gain = oct_param_values(oct_module_param(oct_module_find(root, "gate"), "gain"));
        for (int c = 0; c < 4; c++)
            gain[c] = (float)c - 1.5f;
        deploy(&d, &options);
        int gates = 0;
        cr_assert_eq(deploy_count(&d.program, OCT_STEP_CONV), 2);
        for (int64_t k = 0; k < d.program.num_steps; k++) {
            const oct_step *step = &d.program.steps[k];
            const oct_fallback *fallback = step->fallback;
            if (step->kind != OCT_STEP_FLOAT || strcmp(fallback->type, "relu") == 0) continue;
            cr_assert_str_eq(fallback->type, "spec_gate");
            gates++;
            cr_assert(fallback->args.count == 2 && fallback->args.value[1] == 1.5);
            cr_assert_eq(fallback->num_arrays, 1);
        }
        cr_assert_eq(gates, 1);
        deploy_end(&d);
    }
}

/* Only a list of arguments says that a module can be made again: prepare finds out. */
Test(fallbacks, of_specs_without_a_list_are_refused)
{
    deployment d;
    oct_module *item;
    static oct_module_spec shy;
    const oct_prepare_options options = deploy_options(OCT_METHOD_JIT, NULL);
    shy = gate_spec;
    shy.name = "shy", shy.num_args = 0;
    OK(oct_module_create(&item, &shy, &(gate_args){4, 1}));
    deploy_begin(&d, chain_around(item, 4), OCT_EXAMPLE(OCT_SHAPE(1, 6, 5, 3)));
    cr_assert_eq(oct_prepare(&d.root, &d.example, &options, NULL), OCT_PREPARE);
    cr_assert_str_eq(oct_error_message(0),
                     "c: its type shy has no list of arguments, so it could not be deployed; list "
                     "them in its spec (octet/nn.h)");
    deploy_end(&d);
}

/* Prepare refuses them too, but a module may get into a prepared tree in other ways. */
Test(fallbacks, that_cannot_be_made_again_are_refused)
{
    deployment d;
    oct_module *item;
    oct_module_type shy = own_type;
    const oct_prepare_options options = deploy_options(OCT_METHOD_JIT, NULL);
    OK(own_make(&item, &shy));
    deploy_begin(&d, chain_around(item, 4), OCT_EXAMPLE(OCT_SHAPE(1, 6, 5, 3)));
    deploy_train(&d, &options);
    shy.args = NULL;
    cr_assert_eq(oct_convert(&d.program, d.root, &d.example, options.target, NULL), OCT_PREPARE);
    cr_assert_str_eq(oct_error_message(0),
                     "c: own stays float and cannot be made again from arguments, so it cannot be "
                     "part of the deployed model; quantize it, list the arguments in its spec, "
                     "or move it out of the model");
    deploy_end(&d);
}

/* The host of float fallbacks finds a program that does not describe its modules. */
Test(fallbacks, in_programs_that_do_not_fit_their_modules_are_refused)
{
    deployment d;
    oct_runtime *rt = NULL;
    oct_module *item;
    const oct_qconfig_setter none = oct_setter_by_name("c", NULL);
    const oct_prepare_options options = deploy_options(OCT_METHOD_JIT, &none);
    OK(oct_conv2d_create(&item, 4, 4, deploy_conv(3, 1), true));
    deploy_begin(&d, chain_around(item, 4), OCT_EXAMPLE(OCT_SHAPE(1, 6, 5, 3)));
    deploy(&d, &options);
    oct_fallback *fallback = NULL;
    for (int64_t i = 0; i < d.program.num_steps; i++)
        if (d.program.steps[i].kind == OCT_STEP_FLOAT) fallback = d.program.steps[i].fallback;
    const oct_fallback good = *fallback;

    snprintf(fallback->type, sizeof fallback->type, "unheard_of");
    cr_assert_eq(
        oct_runtime_create(&rt, &d.program, &(oct_runtime_options){.host = &oct_module_fallbacks}),
        OCT_PREPARE);
    cr_assert_str_eq(oct_error_message(0),
                     "c: it stays float and is a unheard_of, which is not known "
                     "here; load the plug-in that has it");
    snprintf(fallback->type, sizeof fallback->type, "sigmoid");
    cr_assert_neq(
        oct_runtime_create(&rt, &d.program, &(oct_runtime_options){.host = &oct_module_fallbacks}),
        OCT_OK);
    *fallback = good;
    fallback->args.value[1] = 5; /* output channels */
    cr_assert_eq(
        oct_runtime_create(&rt, &d.program, &(oct_runtime_options){.host = &oct_module_fallbacks}),
        OCT_DATA);
    cr_assert_str_eq(oct_error_message(0), "c: a conv2d with these arguments has a weight that the "
                                           "program lacks or has otherwise");
    *fallback = good;
    fallback->num_arrays = 1;
    cr_assert_eq(
        oct_runtime_create(&rt, &d.program, &(oct_runtime_options){.host = &oct_module_fallbacks}),
        OCT_DATA);
    *fallback = good;
    fallback->args.value[4] = fallback->args.value[5] = 2; /* stride: the plane shrinks */
    OK(oct_runtime_create(&rt, &d.program, &(oct_runtime_options){.host = &oct_module_fallbacks}));
    float y[150];
    cr_assert_eq(oct_runtime_run(rt, 1, (const float *const *)d.x, y), OCT_DATA);
    cr_assert_str_eq(oct_error_message(0),
                     "c: it makes 36 numbers of type f32 where the program has "
                     "120 of type f32");
    oct_runtime_destroy(&rt);
    *fallback = good;
    deploy_end(&d);
}

/* Two inputs, and functional ops between them. */
static oct_tensor *two_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    parts *p = (parts *)self;
    oct_tensor *a = oct_call(cx, p->m[2], oct_call(cx, p->m[0], x[0]));
    oct_tensor *b = oct_call(cx, p->m[3], oct_call(cx, p->m[1], x[1]));
    oct_tensor *sum = oct_add(cx, a, b), *gate = oct_mul(cx, oct_sigmoid(cx, a), b);
    oct_tensor *all = oct_concat(cx, (oct_tensor *[]){sum, gate, a}, 3);
    oct_tensor *large = oct_interpolate(cx, oct_relu(cx, all), 8, 10, OCT_NEAREST);
    oct_tensor *mean =
        oct_global_avg_pool(cx, oct_max_pool(cx, large, oct_pool_geometry_of(2, 2, 0)));
    return oct_call(cx, p->m[5], oct_call(cx, p->m[4], mean));
}
static const oct_module_type two_type = {.name = "two", .forward = two_forward};

static oct_module *two_create(void)
{
    oct_module *root = parts_create(&two_type);
    PART(root, 0, oct_quant_stub_create(&item));
    PART(root, 1, oct_quant_stub_create(&item));
    PART(root, 2, oct_conv2d_create(&item, 3, 4, deploy_conv(3, 1), true));
    PART(root, 3, oct_conv2d_create(&item, 2, 4, deploy_conv(1, 1), true));
    PART(root, 4, oct_linear_create(&item, 12, 5, true));
    PART(root, 5, oct_dequant_stub_create(&item));
    return root;
}

static void begin_two(deployment *d)
{
    deploy_begin(d, two_create(), OCT_EXAMPLE(OCT_SHAPE(1, 4, 5, 3), OCT_SHAPE(1, 4, 5, 2)));
}

static void deploy_two(const oct_prepare_options *options, const oct_dtype *codes)
{
    deployment d;
    begin_two(&d);
    deploy(&d, options);
    cr_assert_eq(d.program.num_inputs, 2);
    for (int64_t i = 0; i < d.program.num_values && codes; i++) {
        const oct_dtype dtype = d.program.values[i].dtype;
        cr_assert(dtype == OCT_F32 || dtype == *codes, "value %lld", (long long)i);
    }
    deploy_end(&d);
}

Test(programs, of_two_inputs_and_functional_ops)
{
    const oct_dtype codes = OCT_U8;
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        const oct_prepare_options options = deploy_options(graph_methods[i], NULL);
        deploy_two(&options, &codes);
    }
}

Test(programs, of_functional_ops_that_stay_float)
{
    static const char *const types[] = {"add", "mul", "sigmoid", "concat", "interpolate"};
    for (size_t i = 0; i < OCT_COUNT(types); i++) {
        const oct_qconfig_setter none = oct_setter_by_type(types[i], NULL);
        const oct_prepare_options options = deploy_options(OCT_METHOD_JIT, &none);
        deployment d;
        begin_two(&d);
        deploy(&d, &options);
        cr_assert_geq(deploy_count(&d.program, OCT_STEP_FLOAT), 1, "%s", types[i]);
        cr_assert_not_null(strstr(d.fallbacks.data, types[i]), "%s", d.fallbacks.data);
        deploy_end(&d);
    }
}

Test(programs, of_16_bit_codes)
{
    const oct_dtype codes = OCT_U16;
    oct_qconfig wide = oct_qconfig_default();
    wide.bits = 16;
    const oct_qconfig_setter all = oct_setter_default(&wide);
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        const oct_prepare_options options = deploy_options(graph_methods[i], &all);
        deploy_two(&options, &codes);
    }
}

Test(programs, of_8_and_16_bit_codes_mixed)
{
    static const char *const some[] = {"c", "d", "e", "a", "*add*", "*mul*", "*sigmoid*"};
    oct_qconfig wide = oct_qconfig_default();
    wide.bits = 16;
    for (size_t i = 0; i < OCT_COUNT(some); i++) {
        const oct_qconfig_setter setter = oct_setter_by_name(some[i], &wide);
        const oct_prepare_options options = deploy_options(OCT_METHOD_JIT, &setter);
        deploy_two(&options, NULL);
    }
}

Test(programs, of_a_float_output)
{
    const oct_qconfig_setter setter = oct_setter_float_output();
    const oct_prepare_options options = deploy_options(OCT_METHOD_JIT, &setter);
    deployment d;
    begin_two(&d);
    deploy(&d, &options);
    cr_assert_eq(deploy_count(&d.program, OCT_STEP_CONV_FLOAT), 1);
    deploy_end(&d);
}

Test(programs, for_a_target_that_shifts)
{
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        oct_prepare_options options = deploy_options(graph_methods[i], NULL);
        options.target = oct_target_find("pow2");
        options.fold_batch_norm = true;
        deployment d;
        begin_two(&d);
        deploy(&d, &options);
        cr_assert_eq(d.program.requantizer, OCT_REQUANT_SHIFT);
        cr_assert_str_eq(d.program.target, "pow2");
        deploy_end(&d);
    }
}

/* A convolution that is called twice, at two scales. */
static oct_tensor *shared_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    parts *p = (parts *)self;
    oct_tensor *y = oct_call(cx, p->m[1], oct_call(cx, p->m[0], x[0]));
    return oct_call(cx, p->m[2], oct_call(cx, p->m[1], y));
}
static const oct_module_type shared_type = {.name = "shared", .forward = shared_forward};

Test(programs, of_layers_that_are_called_twice)
{
    for (int ranges = 0; ranges < 2; ranges++) {
        oct_prepare_options options = deploy_options(OCT_METHOD_JIT, NULL);
        options.shared_range = ranges == 1;
        deployment d;
        oct_module *root = parts_create(&shared_type);
        PART(root, 0, oct_quant_stub_create(&item));
        PART(root, 1, oct_conv2d_create(&item, 3, 3, deploy_conv(3, 1), true));
        PART(root, 2, oct_dequant_stub_create(&item));
        deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 5, 3)));
        deploy(&d, &options);
        cr_assert_eq(deploy_count(&d.program, OCT_STEP_CONV), 2);
        deploy_end(&d);
    }
}

/* A loop in a dynamic block: unrolled as evaluation runs it, and said so. */
static int loops = 3;

static oct_tensor *loop_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    parts *p = (parts *)self;
    oct_tensor *y = oct_call(cx, p->m[1], oct_call(cx, p->m[0], x[0])), *z = y;
    for (int i = 0; i < loops; i++) {
        oct_dynamic_block_begin(cx, self, "conv_bn_add");
        z = oct_add(cx, oct_call(cx, p->m[3], oct_call(cx, p->m[2], z)), y);
        oct_dynamic_block_end(cx);
    }
    return oct_call(cx, p->m[4], z);
}
static const oct_module_type loop_type = {.name = "loop", .forward = loop_forward};

Test(programs, of_dynamic_blocks)
{
    const oct_prepare_options options = deploy_options(OCT_METHOD_JIT, NULL);
    deployment d;
    oct_module *root = parts_create(&loop_type);
    PART(root, 0, oct_quant_stub_create(&item));
    PART(root, 1, oct_conv2d_create(&item, 3, 4, deploy_conv(3, 1), true));
    PART(root, 2, oct_conv2d_create(&item, 4, 4, deploy_conv(3, 1), false));
    PART(root, 3, oct_batch_norm_create(&item, 4));
    PART(root, 4, oct_dequant_stub_create(&item));
    deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 5, 3)));
    deploy(&d, &options);
    cr_assert_eq(deploy_count(&d.program, OCT_STEP_CONV), 4);
    cr_assert_str_eq(d.fallbacks.data, "the model (dynamic block conv_bn_add): unrolled, it runs 3 "
                                       "times as in this evaluation\n");

    /* Another number of runs is another program. */
    loops = 2;
    cr_assert_eq(oct_convert_watch(&d.program, d.root, &d.example, NULL, NULL), OCT_MISMATCH);
    cr_assert_str_eq(oct_error_message(0),
                     "the model's forward calls other operations on this sample than the program "
                     "has; what a forward does must not depend on the values of its input");
    deploy_end(&d);
}

/* Reshapes on the way: they cost a step where the shape matters to what follows. */
static oct_tensor *reshape_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)n;
    parts *p = (parts *)self;
    oct_tensor *y = oct_flatten(cx, oct_call(cx, p->m[0], x[0]));
    y = oct_reshape(cx, oct_call(cx, p->m[1], y), OCT_SHAPE(1, 4, 3, 2));
    return oct_call(cx, p->m[3], oct_call(cx, p->m[2], y));
}
static const oct_module_type reshape_type = {.name = "reshaping", .forward = reshape_forward};

Test(programs, of_reshapes)
{
    for (size_t i = 0; i < OCT_COUNT(graph_methods); i++) {
        const oct_prepare_options options = deploy_options(graph_methods[i], NULL);
        deployment d;
        oct_module *root = parts_create(&reshape_type);
        PART(root, 0, oct_quant_stub_create(&item));
        PART(root, 1, oct_linear_create(&item, 18, 24, true));
        PART(root, 2, oct_conv2d_create(&item, 2, 3, deploy_conv(3, 1), true));
        PART(root, 3, oct_dequant_stub_create(&item));
        deploy_begin(&d, root, OCT_EXAMPLE(OCT_SHAPE(1, 3, 3, 2)));
        deploy(&d, &options);
        cr_assert_eq(deploy_count(&d.program, OCT_STEP_RESHAPE), 2);
        deploy_end(&d);
    }
}
