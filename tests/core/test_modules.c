/* The float modules: creation, descriptions, sequences, initial values. */
#include "tests/core/op_rig.h"

#include <math.h>

static void check_text(oct_module *m, const char *want)
{
    char text[128];
    oct_module_describe(m, text, sizeof text);
    cr_assert_str_eq(text, want);
    oct_module_destroy(&m);
}

Test(modules, descriptions_say_what_is_not_the_default)
{
    oct_module *m;
    RIG_OK(oct_conv2d_create(&m, 16, 32, oct_conv_geometry_of(3, 3, 2, 1, 4), true));
    check_text(m, "16 -> 32, 3x3, stride 2, padding 1, groups 4, bias");
    RIG_OK(oct_conv2d_create(&m, 16, 32, oct_conv_geometry_of(1, 3, 1, 0, 1), false));
    check_text(m, "16 -> 32, 1x3");
    RIG_OK(oct_linear_create(&m, 64, 10, true));
    check_text(m, "64 -> 10, bias");
    RIG_OK(oct_batch_norm_create(&m, 8));
    check_text(m, "8 channels");
    RIG_OK(oct_max_pool_create(&m, oct_pool_geometry_of(3, 2, 1)));
    check_text(m, "3x3, stride 2, padding 1");
    RIG_OK(oct_avg_pool_create(&m, oct_pool_geometry_of(2, 2, 0)));
    check_text(m, "2x2, stride 2");
}

static void check_fails(oct_status status, oct_module *const *m, const char *sentence)
{
    cr_assert_eq(status, OCT_USAGE);
    cr_assert_null(*m);
    cr_assert(strstr(oct_error_message(0), sentence), "\"%s\" lacks \"%s\"", oct_error_message(0),
              sentence);
}

Test(modules, impossible_ones_are_refused)
{
    oct_module *m = (oct_module *)1;
    check_fails(oct_conv2d_create(&m, 6, 4, oct_conv_geometry_of(3, 3, 1, 1, 4), false), &m,
                "groups must divide both");
    check_fails(oct_conv2d_create(&m, 6, 4, oct_conv_geometry_of(3, 3, 0, 1, 1), false), &m,
                "conv2d cannot have stride_h 0; it must be from 1 to 16384");
    check_fails(oct_conv2d_create(&m, 0, 4, oct_conv_geometry_of(3, 3, 1, 1, 1), false), &m,
                "conv2d cannot have in_channels 0; it must be at least 1");
    check_fails(oct_linear_create(&m, 3, 0, false), &m,
                "linear cannot have out_features 0; it must be at least 1");
    check_fails(oct_batch_norm_create(&m, 0), &m, "batch_norm cannot have channels 0");
    check_fails(oct_max_pool_create(&m, oct_pool_geometry_of(2, 2, 2)), &m,
                "padding below the kernel");
    check_fails(oct_avg_pool_create(&m, oct_pool_geometry_of(0, 2, 0)), &m,
                "avg_pool cannot have kernel_h 0");
}

static void check_creation_without_memory(oct_status (*create)(oct_module **m))
{
    size_t live = oct_mem_live();
    oct_status status = OCT_RESOURCE;
    for (int n = 1; status != OCT_OK; n++) {
        cr_assert_lt(n, 50);
        oct_module *m;
        oct_mem_fail_after(n);
        status = create(&m);
        oct_mem_fail_after(0);
        if (status == OCT_OK) oct_module_destroy(&m);
        cr_assert_eq(oct_mem_live(), live, "failure %d leaks", n);
    }
}

static oct_status create_conv(oct_module **m)
{
    return oct_conv2d_create(m, 2, 2, oct_conv_geometry_of(3, 3, 1, 1, 1), true);
}

static oct_status create_linear(oct_module **m)
{
    return oct_linear_create(m, 2, 2, true);
}

static oct_status create_bn(oct_module **m)
{
    return oct_batch_norm_create(m, 2);
}

static oct_status create_sequential(oct_module **m)
{
    OCT_TRY(oct_sequential_create(m));
    oct_module *item = NULL;
    oct_status status = oct_max_pool_create(&item, oct_pool_geometry_of(2, 2, 0));
    if (status == OCT_OK) status = oct_sequential_append(*m, &item);
    if (status != OCT_OK) oct_module_destroy(m);
    return status;
}

Test(modules, a_creation_without_memory_leaves_nothing_after)
{
    check_creation_without_memory(create_conv);
    check_creation_without_memory(create_linear);
    check_creation_without_memory(create_bn);
    check_creation_without_memory(create_sequential);
}

Test(modules, a_sequence_runs_its_items_in_order_and_names_them_by_number)
{
    oct_module *net, *m;
    RIG_OK(oct_sequential_create(&net));
    RIG_OK(oct_identity_create(&m));
    rig_append(net, m);
    RIG_OK(oct_global_avg_pool_create(&m));
    rig_append(net, m);
    RIG_OK(oct_linear_create(&m, 2, 1, false));
    rig_append(net, m);
    cr_assert_eq(oct_module_find(net, "2"), m);
    cr_assert_str_eq(oct_module_path(m).text, "2");

    rig r = rig_of(net, rig_call_root, 1, 8);
    rig_input(&r, OCT_SHAPE(1, 2, 1, 2), 1);
    memcpy(r.input[0].data, (float[]){1, 10, 3, 30}, 16);
    memcpy(r.params.items[0]->value.data, (float[]){100, 1}, 8);
    oct_check_bits_f32(oct_f32(rig_run(&r, false)), (float[]){220}, 1, "output");
    rig_end(&r);
}

Test(modules, a_full_sequence_refuses_more_and_still_takes_the_item)
{
    oct_module *net, *m;
    RIG_OK(oct_sequential_create(&net));
    for (int i = 0; i < OCT_SEQUENTIAL_MAX; i++) {
        RIG_OK(oct_relu_create(&m));
        rig_append(net, m);
    }
    RIG_OK(oct_relu_create(&m));
    cr_assert_eq(oct_sequential_append(net, &m), OCT_USAGE);
    cr_assert_null(m);
    cr_assert(strstr(oct_error_message(0), "at most 64 modules"));
    oct_module_destroy(&net);
    cr_assert_eq(oct_mem_live(), 0);
}

static oct_tensor *add_one(oct_context *cx, oct_module *root, oct_tensor *const *x, int n)
{
    (void)n;
    return oct_call(cx, root, x[0]);
}

Test(modules, a_call_with_the_wrong_number_of_inputs_is_refused)
{
    oct_module *m;
    RIG_OK(oct_add_create(&m));
    rig r = rig_of(m, add_one, 1, 8);
    rig_input(&r, OCT_SHAPE(1, 4), 1);
    cr_assert_null(rig_run(&r, false));
    cr_assert(strstr(oct_error_message(0), "add takes 2 inputs, but was called with 1"));
    rig_end(&r);
    RIG_OK(oct_concat_create(&m));
    r = rig_of(m, add_one, 1, 8);
    rig_input(&r, OCT_SHAPE(1, 4), 1);
    cr_assert_null(rig_run(&r, false));
    cr_assert(
        strstr(oct_error_message(0), "concat takes two or more inputs, but was called with 1"));
    rig_end(&r);
}

static oct_module *net_of(void)
{
    oct_module *net, *m;
    RIG_OK(oct_sequential_create(&net));
    RIG_OK(oct_conv2d_create(&m, 64, 128, oct_conv_geometry_of(3, 3, 1, 1, 2), true));
    rig_append(net, m);
    RIG_OK(oct_batch_norm_create(&m, 128));
    rig_append(net, m);
    RIG_OK(oct_linear_create(&m, 200, 300, true));
    rig_append(net, m);
    RIG_OK(oct_linear_create(&m, 200, 300, true));
    rig_append(net, m);
    return net;
}

static const oct_param *param_at(oct_module *net, const char *path, size_t i)
{
    return oct_module_find(net, path)->params[i];
}

static void check_normal(const oct_param *p, double std)
{
    double sum = 0, square = 0, n = (double)oct_numel(&p->value);
    for (int64_t i = 0; i < oct_numel(&p->value); i++) {
        double v = (double)oct_f32(&p->value)[i];
        sum += v;
        square += v * v;
    }
    cr_assert_lt(fabs(sum / n), 4 * std / sqrt(n));
    cr_assert_lt(fabs(sqrt(square / n) / std - 1), 0.02);
}

Test(modules, initial_values_have_the_deviations_of_he)
{
    oct_module *net = net_of();
    RIG_OK(oct_init_parameters(net, 1));
    check_normal(param_at(net, "0", 0), sqrt(2.0 / (128 / 2 * 9)));
    check_normal(param_at(net, "2", 0), sqrt(2.0 / 200));
    for (int64_t i = 0; i < 128; i++) {
        cr_assert_eq(oct_f32(&param_at(net, "0", 1)->value)[i], 0);
        cr_assert_eq(oct_f32(&param_at(net, "1", 0)->value)[i], 1);
        cr_assert_eq(oct_f32(&param_at(net, "1", 1)->value)[i], 0);
    }
    oct_module_destroy(&net);
}

Test(modules, initial_values_follow_from_seed_and_place_alone)
{
    oct_module *a = net_of(), *b = net_of();
    RIG_OK(oct_init_parameters(a, 1));
    RIG_OK(oct_init_parameters(b, 2));
    size_t bytes = 200 * 300 * sizeof(float);
    const oct_param *two = param_at(a, "2", 0), *three = param_at(a, "3", 0),
                    *other = param_at(b, "2", 0);
    cr_assert_neq(memcmp(two->value.data, three->value.data, bytes), 0,
                  "two layers got the same values");
    cr_assert_neq(memcmp(two->value.data, other->value.data, bytes), 0,
                  "two seeds gave the same values");
    RIG_OK(oct_init_parameters(b, 1));
    oct_check_tensor(&other->value, &two->value, "same seed");
    oct_module_destroy(&a);
    oct_module_destroy(&b);
}

Test(modules, initial_values_reset_the_running_statistics)
{
    oct_module *m;
    RIG_OK(oct_batch_norm_create(&m, 3));
    const oct_batch_norm_module *bn = (const oct_batch_norm_module *)m;
    cr_assert_eq(bn->running_var[2], 1);
    bn->running_mean[0] = bn->running_var[1] = 5;
    RIG_OK(oct_init_parameters(m, 1));
    cr_assert_eq(bn->running_mean[0], 0);
    cr_assert_eq(bn->running_var[1], 1);
    oct_module_destroy(&m);
}
