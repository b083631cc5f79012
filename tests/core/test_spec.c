/* Modules of others: what they compute, as modules of ours, and what is refused, each with its sentence. */
#include "tests/core/op_rig.h"
#include "tests/core/spec_net.h"

#include <pthread.h>

/* The same two modules as Octet writes its own. */
typedef struct own_gate {
    oct_module base;
    oct_param *gain;
    gate_args args;
} own_gate;

static void own_gate_backward(oct_context *cx, oct_node *node)
{
    const own_gate *m = *(own_gate **)node->saved;
    oct_tensor *x = node->input[0];
    const int64_t c = m->args.channels, rows = oct_numel(x) / c, n = rows / oct_dim(x, 0);
    float *sums = oct_leaf_grads_begin(cx, m->gain), *dx;
    for (int64_t i = 0; i < cx->leaves.local; i++) {
        const int64_t first = oct_leaf_begin(&cx->leaves, i) * n;
        gate_sums(oct_f32(x), node->output->grad, (float)m->args.factor, first,
                  first + oct_leaf_size(&cx->leaves, i) * n, c, sums + i * c);
    }
    oct_leaf_grads_end(cx, m->gain);
    dx = oct_detach_grad(node->output);
    gate_values(dx, oct_f32(&m->gain->value), (float)m->args.factor, rows, c, dx);
    oct_add_grad(cx, x, dx);
}

static oct_tensor *own_gate_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    own_gate *m = (own_gate *)self;
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x[0]->shape);
    if (!y) return NULL;
    gate_values(oct_f32(x[0]), oct_f32(&m->gain->value), (float)m->args.factor,
                oct_numel(x[0]) / m->args.channels, m->args.channels, oct_f32(y));
    oct_node *node = oct_record(cx, "gate", own_gate_backward, x, n, true, y);
    oct_param_used(cx, m->gain);
    return oct_node_save(cx, node, &self, sizeof(own_gate *)) ? y : NULL;
}

static const oct_module_type own_gate_type = {
    .name = "own_gate", .forward = own_gate_forward, .inputs = 1, .atomic = true};

typedef struct own_gated {
    oct_module base;
    gated m;
} own_gated;

static oct_tensor *own_gated_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const gated *m = &((own_gated *)self)->m;
    (void)n;
    oct_tensor *y = oct_relu(cx, oct_call(cx, m->gate, oct_call(cx, m->stem, x[0])));
    return oct_call(cx, m->head, y);
}

static const oct_module_type own_gated_type = {.name = "own_gated", .forward = own_gated_forward};

static oct_module *own_gated_create(void)
{
    oct_module *root;
    RIG_OK(oct_module_alloc(&root, &own_gated_type, sizeof(own_gated)));
    gated *m = &((own_gated *)root)->m;
    const oct_conv_geometry g = oct_conv_geometry_of(3, 3, 1, 1, 1);
    RIG_OK(oct_module_add(root, "stem", &m->stem, oct_conv2d_create(&m->stem, 3, 4, g, true)));
    RIG_OK(oct_module_add(root, "gate", &m->gate,
                          oct_module_alloc(&m->gate, &own_gate_type, sizeof(own_gate))));
    own_gate *own = (own_gate *)m->gate;
    own->args = (gate_args){4, 1.5};
    RIG_OK(oct_module_add_param(m->gate, "gain", OCT_SHAPE(4), false, &own->gain));
    RIG_OK(oct_module_add(root, "head", &m->head, oct_conv2d_create(&m->head, 4, 5, g, true)));
    return root;
}

static oct_module *gated_create(void)
{
    oct_module *root;
    RIG_OK(oct_module_create(&root, &gated_spec, NULL));
    return root;
}

Test(spec, computes_the_bits_of_modules_of_ours, .timeout = 60)
{
    oct_module *roots[] = {gated_create(), own_gated_create()};
    float *y[2], *dx[2], *grads[2];
    for (int i = 0; i < 2; i++) {
        rig r = rig_of(roots[i], rig_call_root, 11, 4);
        rig_input(&r, OCT_SHAPE(11, 6, 5, 3), 0.01F);
        oct_tensor *out = rig_run(&r, true);
        RIG_OK(oct_context_status(r.cx));
        const int64_t n = oct_numel(out), inputs = oct_numel(&r.input[0]);
        float *dy = rig_take((size_t)n, sizeof *dy);
        rig_fill(dy, n, 0.01F, 9);
        y[i] = rig_take((size_t)n, sizeof(float));
        memcpy(y[i], oct_f32(out), (size_t)n * sizeof(float));
        rig_backward(&r, out, dy);
        dx[i] = rig_take((size_t)inputs, sizeof(float));
        memcpy(dx[i], r.input[0].grad, (size_t)inputs * sizeof(float));
        grads[i] = rig_take((size_t)r.params.numel, sizeof(float));
        memcpy(grads[i], r.params.grads, (size_t)r.params.numel * sizeof(float));
        if (i == 1) {
            cr_assert_eq(memcmp(y[0], y[1], (size_t)n * sizeof(float)), 0);
            cr_assert_eq(memcmp(dx[0], dx[1], (size_t)inputs * sizeof(float)), 0);
            cr_assert_eq(memcmp(grads[0], grads[1], (size_t)r.params.numel * sizeof(float)), 0);
        }
        oct_free(&dy);
        rig_end(&r);
    }
    for (int i = 0; i < 2; i++)
        oct_free(&y[i]), oct_free(&dx[i]), oct_free(&grads[i]);
}

Test(spec, a_module_is_made_again_from_its_arguments)
{
    oct_module *m, *again;
    oct_op_args row;
    char text[64];
    RIG_OK(oct_module_create(&m, &gate_spec, &(gate_args){7, -2}));
    oct_module_describe(m, text, sizeof text);
    cr_assert_str_eq(text, "7 channels, times -2");
    oct_module_args(m, &row);
    cr_assert_eq(oct_module_type_find("spec_gate"), m->type);
    RIG_OK(oct_module_from(&again, oct_module_type_find("spec_gate"), &row));
    cr_assert_eq(memcmp(oct_module_own_args(again), &(gate_args){7, -2}, sizeof(gate_args)), 0);
    cr_assert_eq(oct_param_shape(oct_module_param(again, "gain")).dim[0], 7);
    cr_assert(oct_module_data(m) && oct_module_is_training(m));
    oct_module_destroy(&m);
    oct_module_destroy(&again);
    oct_module_destroy(&again);
    oct_module_destroy(NULL);
}

#define REFUSED(call, sentence)                                                                    \
    do {                                                                                           \
        cr_expect_eq((call), OCT_USAGE, #call);                                                    \
        cr_expect_str_eq(oct_error_message(0), sentence);                                          \
    } while (0)
#define SPEC(...) (&(oct_module_spec){__VA_ARGS__})
#define ODD .name = "odd", .forward = gate_forward, .args_bytes = 16
#define ONE_ARG(...)                                                                               \
    .num_args = 1, .args = &(oct_arg)                                                              \
    {                                                                                              \
        .name = "x", __VA_ARGS__                                                                   \
    }

Test(spec, what_is_wrong_is_refused_with_its_sentence)
{
    oct_module *m;
    REFUSED(oct_module_create(&m, NULL, NULL), "a module's spec, or its name, is NULL");
    cr_assert_null(m);
    REFUSED(oct_module_spec_register(NULL), "a module's spec, or its name, is NULL");
    REFUSED(oct_module_create(NULL, &gate_spec, &(gate_args){1, 1}),
            "spec_gate: there is no place for the new module; the pointer to it is NULL");
    REFUSED(oct_module_create(&m, SPEC(.name = "a b", .forward = gate_forward), NULL),
            "'a b' is no name for a module type; use 1 to 63 of a-z, 0-9 and _");
    REFUSED(oct_module_create(&m, SPEC(.name = "conv2d", .forward = gate_forward), NULL),
            "there is a module type 'conv2d' already; give yours another name");
    REFUSED(oct_module_create(&m,
                              SPEC(.name = "spec_gate", .forward = gate_forward, .atomic = true,
                                   .lists_args = true),
                              0),
            "there is a module type 'spec_gate' already; give yours another name");
    REFUSED(oct_module_create(&m, SPEC(.name = "odd"), NULL),
            "module type 'odd' needs a forward, 0 to 64 inputs, and data that fit into memory");
    REFUSED(
        oct_module_create(&m, SPEC(ODD, .num_args = 25, .args = gate_arguments), NULL),
        "module type 'odd' has 25 arguments in 16 bytes; it may have a table of up to 24 in 256");
    REFUSED(
        oct_module_create(&m, SPEC(ODD, ONE_ARG(.type = OCT_ARG_INT64, .offset = 12)), NULL),
        "module type 'odd': argument 0, x, needs a name, a type, a place in the 16 bytes of the "
        "arguments, and bounds in ascending order");
    REFUSED(
        oct_module_create(&m, SPEC(ODD, ONE_ARG(.type = OCT_ARG_INT, .least = (double)NAN)), NULL),
        "module type 'odd': argument 0, x, needs a name, a type, a place in the 16 bytes of the "
        "arguments, and bounds in ascending order");
    REFUSED(oct_module_create(&m, &gate_spec, &(gate_args){0, 1}),
            "spec_gate cannot have channels 0; it must be at least 1");
    REFUSED(oct_module_create(&m, &gate_spec, NULL),
            "spec_gate cannot have channels 0; it must be at least 1");
    REFUSED(oct_module_create(&m, &gate_spec, &(gate_args){1LL << 40, 1}),
            "spec_gate cannot have channels 1.09951e+12; it must be at least 1");
    static oct_module_spec changes;
    changes = gated_spec;
    RIG_OK(oct_module_spec_register(&changes)); /* containers may share a name */
    changes.data_bytes = 8;
    REFUSED(oct_module_create(&m, &changes, NULL),
            "the spec of module type 'spec_net' has changed, but it must stay as it is as long as "
            "the process lives");
    cr_assert_null(m);
}

Test(spec, parts_that_do_not_fit_are_refused)
{
    oct_module *net = gated_create(), *m, *taken;
    gated *data = oct_module_data(net);
    oct_param *param;
    oct_shape wide = {.ndim = 7, .dim = {1, 1, 1, 1}};
    REFUSED(oct_module_add(net, "x", &m, oct_relu_create(&m)),
            "the pointer to child \"x\" of a spec_net is not in the module's data");
    cr_assert_null(m);
    REFUSED(oct_module_add(NULL, "x", &m, oct_relu_create(&m)),
            "a module gets a child, but the module is NULL");
    REFUSED(oct_module_add(net, "x", NULL, OCT_OK), "the pointer to a child is at NULL");
    REFUSED(oct_module_add(net, "x", &m, oct_dropout_create(&m, 2)),
            "dropout cannot have p 2; it must be from 0 to below 1");
    taken = data->stem;
    REFUSED(oct_module_add(net, "x", &taken, OCT_OK),
            "the pointer to child \"x\" of a spec_net is not in the module's data");
    cr_assert_not_null(data->stem);
    REFUSED(oct_module_add_param(net, "stem", OCT_SHAPE(2), true, &param),
            "a spec_net has two parts named \"stem\"; rename one");
    REFUSED(oct_module_add_param(net, "w", wide, true, &param),
            "parameter w cannot have the shape (1, 1, 1, 1, ...)");
    REFUSED(oct_module_add_param(net, NULL, OCT_SHAPE(2), true, &param),
            "a module gets a part, but the part's name is NULL");
    REFUSED(oct_module_add_buffer(net, "b", (oct_dtype)99, OCT_SHAPE(2), &param),
            "a buffer has a pointer to its memory at NULL, or no type");
    REFUSED(oct_module_hook(NULL, NULL, NULL, NULL),
            "a hook needs a module and a function; one of them is NULL");
    REFUSED(oct_sequential_append(net, (oct_module *[]){NULL}),
            "the module to append to a sequential is NULL");
    RIG_OK(oct_relu_create(&m));
    REFUSED(oct_sequential_append(net, &m),
            "modules can be appended only to a sequential, which holds up to 64");
    REFUSED(oct_init_parameters(NULL, 1),
            "the network whose parameters get initial values is NULL");
    REFUSED(oct_pad_create(&m, NULL), "the arguments of a pad are NULL");
    REFUSED(oct_parameter_create(&m, wide),
            "a parameter cannot have the shape (1, 1, 1, 1, ...); it "
            "has 1 to 3 dimensions of at least 1");
    REFUSED(oct_reshape_create(&m, wide),
            "a reshape cannot make samples of shape (1, 1, 1, 1, ...); "
            "each dimension must be at least 1");
    oct_hook_remove(NULL);
    cr_assert_null(oct_module_find(net, NULL));
    cr_assert_null(oct_module_data(data->stem));
    cr_assert_null(oct_module_own_args(NULL));
    oct_module_destroy(&net);
}

static const char *refusal(oct_context *cx, const oct_tensor *y)
{
    cr_expect_null(y);
    cr_expect_eq(oct_context_status(cx), OCT_USAGE);
    return oct_context_status(cx) == OCT_OK ? "" : oct_error_message(0);
}

#define FAILS(call, sentence)                                                                      \
    do {                                                                                           \
        rig_run(&r, true);                                                                         \
        cr_expect_str_eq(refusal(cx, (call)), sentence, #call);                                    \
    } while (0)

static oct_tensor *no_output(oct_context *cx, oct_module *root, oct_tensor *const *x, int n)
{
    (void)cx, (void)root, (void)x, (void)n;
    return NULL;
}

Test(spec, operations_refuse_what_is_null)
{
    rig r = rig_of(NULL, no_output, 2, 1);
    rig_input(&r, OCT_SHAPE(2, 4, 4, 3), 0.1F);
    oct_context *cx = r.cx;
    oct_tensor *x = &r.input[0], *y;
    oct_shape wide = {.ndim = 7, .dim = {2, 48}};
    const oct_conv_geometry g = oct_conv_geometry_of(3, 3, 1, 1, 1);
    FAILS(oct_call(cx, NULL, x), "a module that is called is NULL");
    FAILS(oct_module_call(cx, NULL, NULL, 1),
          "an operation is called with 1 inputs, whose array is NULL");
    FAILS(oct_conv2d(cx, x, NULL, NULL, g), "conv2d is called with a parameter that is NULL");
    FAILS(oct_conv_transpose2d(cx, x, NULL, NULL, g),
          "conv_transpose2d is called with a parameter that is NULL");
    FAILS(oct_linear(cx, x, NULL, NULL), "linear is called with a parameter that is NULL");
    FAILS(oct_batch_norm(cx, x, NULL), "batch_norm is called without its arguments");
    FAILS(oct_layer_norm(cx, x, NULL, NULL, 1),
          "layer_norm is called with a parameter that is NULL");
    FAILS(oct_group_norm(cx, x, NULL, NULL, 1, 1),
          "group_norm is called with a parameter that is NULL");
    FAILS(oct_prelu(cx, x, NULL), "prelu is called with a parameter that is NULL");
    FAILS(oct_parameter(cx, x, NULL), "parameter is called with a parameter that is NULL");
    FAILS(oct_add_parameter(cx, x, NULL), "add_parameter is called with a parameter that is NULL");
    FAILS(oct_pad(cx, x, NULL), "pad is called without a padding");
    FAILS(oct_move(cx, x, NULL),
          "move is called without a map of up to 6 loops to 1 to 4 dimensions");
    FAILS(oct_transpose(cx, x, NULL),
          "transpose: dimension 1 of the output cannot be dimension 0 of "
          "(2, 4, 4, 3); each one from 1 on comes once");
    FAILS(oct_concat(cx, NULL, 2), "an operation is called with 2 inputs, whose array is NULL");
    FAILS(oct_reshape(cx, x, wide), "reshape to 7 dimensions; it makes 1 to 4");
    FAILS(oct_tensor_new(cx, OCT_F32, wide),
          "a tensor cannot have 7 dimensions of type 0; it has at most 4");
    FAILS((oct_param_used(cx, NULL), (oct_tensor *)NULL),
          "a parameter that an operation uses is NULL");
    FAILS((oct_dynamic_block_begin(cx, NULL, NULL), (oct_tensor *)NULL),
          "a dynamic block has no module or no name");
    rig_run(&r, true);
    y = oct_tensor_new(cx, OCT_F32, (oct_shape){0}); /* one number without samples */
    cr_expect_not_null(strstr(refusal(cx, oct_concat(cx, &y, 1)),
                              "concat works along the last dimension and needs the others equal, "
                              "but has () and ()"));
    oct_tensor *few, *none;
    rig_run(&r, true);
    few = oct_tensor_new(cx, OCT_F32, OCT_SHAPE(2, 1));
    none = oct_tensor_new(cx, OCT_F32, OCT_SHAPE(2, 0));
    cr_expect_not_null(strstr(refusal(cx, oct_add(cx, few, none)), "but has (2, 1) and (2, 0)"));
    rig_run(&r, true);
    cr_expect_null(oct_relu(cx, NULL));
    RIG_OK(oct_context_status(cx));
    cr_expect_null(oct_relu(NULL, x));
    cr_expect_str_eq(oct_error_message(0), "an operation is called with a context that is NULL");
    cr_expect_null(oct_tensor_values(NULL));
    cr_expect_eq(oct_tensor_dim(x, -1), 3);
    cr_expect_eq(oct_tensor_dim(x, 4) + oct_tensor_dim(x, -5), 0);
    rig_end(&r);
}

/* Says in *user whether all went well. */
static void *make_gates(void *user)
{
    bool *good = user;
    for (int i = 0; *good && i < 200; i++) {
        oct_module *m;
        *good = oct_module_create(&m, &gate_spec, &(gate_args){2, 1}) == OCT_OK &&
                oct_module_type_find("spec_gate") == m->type;
        oct_module_destroy(&m);
    }
    return NULL;
}

Test(spec, threads_share_the_type_of_a_spec)
{
    pthread_t threads[4];
    bool good[4] = {true, true, true, true};
    for (size_t i = 0; i < OCT_COUNT(threads); i++)
        pthread_create(&threads[i], NULL, make_gates, &good[i]);
    for (size_t i = 0; i < OCT_COUNT(threads); i++) {
        pthread_join(threads[i], NULL);
        cr_assert(good[i]);
    }
}
