/* A network calls its modules as its nodes say, under paths as a file would name them. */
#include "core/autograd/context.h"
#include "core/nn/module.h"
#include "core/nn/modules.h"
#include "core/nn/network.h"
#include "tests/support/check_status.h"

#include <criterion/criterion.h>
#include <string.h>

enum { N = 3, F = 4 };

static int32_t add_module(oct_module *net, const char *path, oct_module *module, int32_t a,
                          int32_t b)
{
    const int32_t inputs[] = {a, b};
    int32_t value;
    cr_assert(oct_network_add(net, path, &module, inputs, b < 0 ? 1 : 2, &value) == OCT_OK);
    cr_assert_null(module);
    return value;
}

static oct_module *linear(void)
{
    oct_module *m;
    cr_assert(oct_linear_create(&m, F, F, true) == OCT_OK);
    return m;
}

static oct_module *relu(void)
{
    oct_module *m;
    cr_assert(oct_relu_create(&m) == OCT_OK);
    return m;
}

static oct_module *sum(void)
{
    oct_module *m;
    cr_assert(oct_add_create(&m) == OCT_OK);
    return m;
}

static oct_module *network(void)
{
    oct_module *m;
    cr_assert(oct_network_create(&m, 1) == OCT_OK);
    return m;
}

static void run_network(oct_module *net, const float *x, float *y)
{
    oct_context *cx;
    cr_assert(oct_context_create(&cx, &oct_collective_one) == OCT_OK);
    oct_context_begin(cx, oct_leaves_split(N, 8, 0, 1), false);
    oct_tensor *in = oct_tensor_view(cx, OCT_F32, OCT_SHAPE(N, F), (float *)(uintptr_t)x);
    const oct_tensor *out = oct_call(cx, net, in);
    cr_assert(oct_context_status(cx) == OCT_OK, "%s", oct_error_message(0));
    memcpy(y, out->data, N * F * sizeof(float));
    oct_context_destroy(&cx);
}

static const float input[N * F] = {1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12};

/* relu(fc(x)) + fc(relu(fc(x))), with one fc */
Test(network, calls_its_nodes_in_order_and_a_shared_module_again)
{
    oct_module *net = network();
    float y[N * F];
    const int32_t a = add_module(net, "body.fc", linear(), 0, -1);
    const int32_t b = add_module(net, "body.act", relu(), a, -1);
    int32_t c;
    cr_assert(oct_network_add_again(net, a, &b, 1, &c) == OCT_OK);
    cr_assert_eq(oct_network_module(net, a), oct_network_module(net, c));
    cr_assert_null(oct_network_module(net, 0));
    add_module(net, "sum", sum(), b, c);
    oct_linear_module *fc = (oct_linear_module *)oct_module_find(net, "body.fc");
    cr_assert_not_null(fc);
    for (int i = 0; i < F; i++) { /* fc(x) = 2 x + 1 */
        oct_f32(&fc->weight->value)[i * F + i] = 2;
        oct_f32(&fc->bias->value)[i] = 1;
    }
    cr_assert(oct_module_calls_only(net));
    run_network(net, input, y);
    for (int i = 0; i < N * F; i++) {
        const float r = 2 * input[i] + 1 > 0 ? 2 * input[i] + 1 : 0;
        cr_assert_eq(y[i], r + 2 * r + 1);
    }
    oct_network_set_output(net, b);
    run_network(net, input, y);
    cr_assert_eq(y[1], 0);
    cr_assert_eq(y[2], 7);
    oct_module_destroy(&net);
    check_nothing_held();
}

Test(network, gives_every_module_a_path_of_its_own)
{
    oct_module *net = network();
    static const char *const wanted[] = {"a.b", "a.b_2", "a.b_.c", "a.b_.c_2", "a.b_3"};
    static const char *const given[] = {"a.b", "a.b", "a.b.c", "a.b.c", "a.b"};
    for (size_t i = 0; i < OCT_COUNT(given); i++) {
        const int32_t value = add_module(net, given[i], relu(), 0, -1);
        cr_assert_str_eq(oct_module_path(oct_network_module(net, value)).text, wanted[i]);
    }
    oct_module_destroy(&net);
    check_nothing_held();
}

Test(network, finds_the_same_call_but_never_one_with_parameters)
{
    oct_module *net = network();
    const int32_t a = add_module(net, "r", relu(), 0, -1),
                  b = add_module(net, "fc", linear(), a, -1);
    const int32_t zero = 0;
    oct_op_args args;
    oct_module_args(oct_network_module(net, b), &args);
    cr_assert_eq(oct_network_find_call(net, &oct_relu_type, OCT_NO_ARGS, &zero, 1), a);
    cr_assert_eq(oct_network_find_call(net, &oct_relu_type, OCT_NO_ARGS, &a, 1), -1);
    cr_assert_eq(oct_network_find_call(net, &oct_linear_type, &args, &a, 1), -1);
    oct_module_destroy(&net);
}

Test(network, is_called_with_as_many_inputs_as_it_has)
{
    oct_module *net;
    oct_context *cx;
    cr_assert(oct_network_create(&net, 2) == OCT_OK);
    add_module(net, "sum", sum(), 0, 1);
    cr_assert(oct_context_create(&cx, &oct_collective_one) == OCT_OK);
    oct_context_begin(cx, oct_leaves_split(N, 8, 0, 1), false);
    oct_tensor *x = oct_tensor_new(cx, OCT_F32, OCT_SHAPE(N, F));
    cr_assert_null(oct_call(cx, net, x));
    cr_assert_eq(oct_context_status(cx), OCT_USAGE);
    check_said("network takes 2 inputs");
    oct_context_destroy(&cx);
    oct_module_destroy(&net);
}

/* A file's tensor of (2, 3), transposed, and turned round after an offset. */
Test(network, keeps_the_names_of_a_file_and_the_order_there)
{
    oct_module *net = network();
    const oct_network_name *names;
    const int32_t value = add_module(net, "fc", linear(), 0, -1);
    const int64_t size[] = {2, 3};
    oct_file_order order = oct_file_order_of(2, size);
    float file[6] = {1, 2, 3, 4, 5, 6}, place[6], back[6];
    oct_file_order_in(&order, file, place);
    cr_assert(memcmp(file, place, sizeof file) == 0);
    order = (oct_file_order){2, {2, 3}, {1, 2}, 0};
    oct_file_order_in(&order, file, place);
    cr_assert(memcmp(place, (float[]){1, 4, 2, 5, 3, 6}, sizeof place) == 0);
    oct_file_order_move(&order, place, &(oct_file_order){2, {2, 3}, {3, 1}, 0}, back, false);
    cr_assert(memcmp(file, back, sizeof file) == 0);
    order = (oct_file_order){1, {6}, {-1}, 5};
    oct_file_order_in(&order, file, place);
    cr_assert(memcmp(place, (float[]){6, 5, 4, 3, 2, 1}, sizeof place) == 0);
    cr_assert(oct_network_add_name(net, oct_network_module(net, value), "weight", "model/W",
                                   &order) == OCT_OK);
    cr_assert_eq(oct_network_names(net, &names), 1);
    cr_assert_str_eq(names[0].file, "model/W");
    cr_assert_str_eq(names[0].path, "fc.weight");
    cr_assert_eq(oct_network_names(oct_network_module(net, value), &names), 0);
    oct_network_forget_names(net, "f");
    cr_assert_eq(oct_network_names(net, &names), 1);
    oct_network_forget_names(net, "fc");
    cr_assert_eq(oct_network_names(net, &names), 0);
    oct_module_destroy(&net);
    check_nothing_held();
}
