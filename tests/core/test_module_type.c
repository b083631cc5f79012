/* Module types by name, and modules made from arguments. */
#include "tests/core/op_rig.h"

#include <math.h>
#include <stdio.h>

/* One module of each listed type, with arguments that are not the defaults. */
static const struct {
    const char *name;
    oct_op_args args;
    const char *text;
} listed[] = {
    {"conv2d",
     {14, {4, 6, 3, 1, 2, 2, 1, 1, 1, 1, 1, 1, 2, 1}},
     "4 -> 6, 3x1, stride 2, padding 1, groups 2, bias"},
    {"conv_transpose2d",
     {16, {4, 6, 3, 3, 2, 2, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0}},
     "4 -> 6, 3x3, stride 2, padding 1"},
    {"linear", {3, {7, 3, 1}}, "7 -> 3, bias"},
    {"batch_norm", {3, {5, 0.125, 0.25}}, "5 channels"},
    {"relu", {0}, ""},
    {"relu6", {0}, ""},
    {"add", {0}, ""},
    {"mul", {0}, ""},
    {"add_scalar", {1, {-0.1}}, "-0.1"},
    {"mul_scalar", {1, {3}}, "3"},
    {"concat", {0}, ""},
    {"max_pool", {9, {3, 3, 2, 2, 1, 1, 1, 1, 0}}, "3x3, stride 2, padding 1"},
    {"avg_pool", {10, {3, 3, 2, 2, 0, 0, 0, 0, 0, 0}}, "3x3, stride 2"},
    {"global_avg_pool", {0}, ""},
    {"flatten", {0}, ""},
    {"reshape", {3, {4, 2, 8}}, "(N, 4, 2, 8)"},
    {"move", {9, {3, 2, 2, 4, 2, 2, 4, 9, -1}}, "(N, 2, 4)"},
    {"pad",
     {8, {1, 2, 0, 3, 0, 1, -0.5, 0}},
     "1, 2 above and below, 0, 3 at the sides, 0, 1 channels, constant -0.5"},
    {"interpolate", {3, {8, 9, 1}}, "to 8x9, bilinear"},
    {"softmax", {0}, ""},
    {"squeeze", {1, {2}}, "dimension 2"},
    {"argmax", {0}, ""},
    {"cross_entropy_loss", {1, {0.25}}, "smoothing 0.25"},
    {"identity", {0}, ""},
    {"sigmoid", {0}, ""},
    {"silu", {0}, ""},
    {"hard_swish", {0}, ""},
    {"leaky_relu", {1, {0.2}}, "0.2"},
    {"hard_sigmoid", {2, {0.2, 0.5}}, "0.2, 0.5"},
    {"elu", {1, {0.5}}, "0.5"},
    {"gelu", {0}, ""},
    {"sub", {0}, ""},
    {"div", {0}, ""},
    {"clip", {2, {-1.5, HUGE_VAL}}, "-1.5 to inf"},
    {"prelu", {1, {7}}, "7 slopes"},
    {"dropout", {1, {0.25}}, "p 0.25"},
};

static oct_module *make_module(const char *name, const oct_op_args *args)
{
    const oct_module_type *type = oct_module_type_find(name);
    cr_assert(type && type->args && type->size, "%s", name);
    oct_module *m;
    RIG_OK(oct_module_from(&m, type, args));
    cr_assert_eq(m->type, type);
    return m;
}

Test(module_type, a_module_made_from_arguments_returns_them_again, .timeout = 60)
{
    for (size_t i = 0; i < OCT_COUNT(listed); i++) {
        oct_module *m = make_module(listed[i].name, &listed[i].args);
        oct_op_args args;
        oct_module_args(m, &args);
        cr_assert_eq(args.count, listed[i].args.count, "%s", listed[i].name);
        for (int a = 0; a < args.count; a++)
            cr_assert_eq(args.value[a], listed[i].args.value[a], "%s: argument %d", listed[i].name,
                         a + 1);
        char text[128];
        oct_module_describe(m, text, sizeof text);
        cr_assert_str_eq(text, listed[i].text);
        oct_module_destroy(&m);
    }
}

Test(module_type, a_type_refuses_too_many_arguments, .timeout = 60)
{
    for (size_t i = 0; i < OCT_COUNT(listed); i++) {
        oct_op_args args = listed[i].args;
        args.value[args.count++] = 1;
        oct_module *m = (oct_module *)1;
        cr_assert_eq(oct_module_from(&m, oct_module_type_find(listed[i].name), &args), OCT_USAGE,
                     "%s", listed[i].name);
        cr_assert_null(m);
        cr_assert(strstr(oct_error_message(0), listed[i].name), "%s", oct_error_message(0));
    }
}

static void check_refused(const char *name, const oct_op_args *args, const char *sentence)
{
    oct_module *m = (oct_module *)1;
    cr_assert_eq(oct_module_from(&m, oct_module_type_find(name), args), OCT_USAGE, "%s", name);
    cr_assert_null(m);
    cr_assert(strstr(oct_error_message(0), sentence), "\"%s\" lacks \"%s\"", oct_error_message(0),
              sentence);
}

Test(module_type, arguments_out_of_range_are_refused, .timeout = 60)
{
    check_refused("max_pool", OCT_OP_ARGS(2.5, 2, 1, 1, 0, 0, 0, 0, 0),
                  "argument 1 of a max_pool, kernel_h, is 2.5, but must be a whole number");
    check_refused("max_pool", OCT_OP_ARGS(1e12, 2, 1, 1, 0, 0, 0, 0, 0), "at most 32 bits");
    check_refused("avg_pool", OCT_OP_ARGS((double)NAN, 2, 1, 1, 0, 0, 0, 0, 0, 0), "is nan");
    check_refused("max_pool", OCT_OP_ARGS(2, 2), "made from 9 arguments, but has 2");
    check_refused("relu", OCT_OP_ARGS(1), "made from 0 arguments, but has 1");
    check_refused("conv2d", OCT_OP_ARGS(6, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 4, 0),
                  "groups must divide both");
    check_refused("conv_transpose2d", OCT_OP_ARGS(6, 4, 3, 3, 1, 1, 3, 1, 1, 1, 0, 0, 1, 1, 1, 0),
                  "the padding below what the kernel reaches");
    check_refused("conv_transpose2d", OCT_OP_ARGS(6, 0, 3, 3, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0),
                  "conv_transpose2d cannot have out_channels 0; it must be at least 1");
    check_refused("linear", OCT_OP_ARGS(0, 4, 0), "linear cannot have in_features 0");
    check_refused("batch_norm", OCT_OP_ARGS(4, 0, 0.1),
                  "batch_norm cannot have eps 0; it must be a finite number above 0");
    check_refused("batch_norm", OCT_OP_ARGS(4, 1e-5, 2),
                  "batch_norm cannot have momentum 2; it must be from 0 to 1");
    check_refused("batch_norm", OCT_OP_ARGS(0, 1e-5, 0.1), "cannot have channels 0");
    check_refused("interpolate", OCT_OP_ARGS(4, 0, 0), "cannot have out_w 0");
    check_refused("interpolate", OCT_OP_ARGS(4, 4, 6), "cannot have mode 6");
    check_refused("pad", OCT_OP_ARGS(0, 0, -1, 0, 0, 0, 0, 0),
                  "pad cannot have left -1; it must be at least 0");
    check_refused("pad", OCT_OP_ARGS(0, 0, 1, 0, 0, 0, 0, 3), "cannot have mode 3");
    check_refused("pad", OCT_OP_ARGS(0, 0, 1, 0, 0, 0, (double)NAN, 0),
                  "pad cannot have value nan; it must be a finite number");
    check_refused("pad", OCT_OP_ARGS(0, 0, 0.5, 0, 0, 0, 0, 0),
                  "argument 3 of a pad, left, is 0.5");
    check_refused("reshape", OCT_OP_ARGS(4, 0), "each dimension must be at least 1");
    check_refused("reshape", OCT_OP_ARGS(1, 1, 1, 1), "at most 3 dimensions");
    check_refused("squeeze", OCT_OP_ARGS(4), "squeeze cannot have dim 4; it must be from 0 to 3");
    check_refused("squeeze", OCT_OP_ARGS(-1), "cannot have dim -1");
    check_refused("cross_entropy_loss", OCT_OP_ARGS(1.01),
                  "cannot have smoothing 1.01; it must be from 0 to 1");
    check_refused("cross_entropy_loss", OCT_OP_ARGS((double)NAN), "smoothing nan");
    check_refused("leaky_relu", OCT_OP_ARGS(HUGE_VAL),
                  "leaky_relu cannot have alpha inf; it must be a finite number");
    check_refused("clip", OCT_OP_ARGS(2, 1), "the bounds 2 and 1; give two numbers in ascending");
    check_refused("clip", OCT_OP_ARGS((double)NAN, 1),
                  "clip cannot have lo nan; it must be a number");
    check_refused("prelu", OCT_OP_ARGS(0), "cannot have channels 0");
    check_refused("dropout", OCT_OP_ARGS(1),
                  "dropout cannot have p 1; it must be from 0 to below 1");
    check_refused("dropout", OCT_OP_ARGS((double)NAN), "dropout cannot have p nan");
    check_refused("add_scalar", OCT_OP_ARGS((double)NAN), "a finite number");
}

Test(module_type, a_type_is_added_once_and_takes_no_name_of_another, .timeout = 60)
{
    static const oct_module_type bare = {.name = "mine"};
    oct_module_type mine = oct_relu_type, other = oct_relu_type;
    mine.name = other.name = "mine";
    cr_assert_null(oct_module_type_find("mine"));
    cr_assert_eq(oct_module_type_register(&bare), OCT_USAGE);
    cr_assert(strstr(oct_error_message(0), "give it args and size"));
    RIG_OK(oct_module_type_register(&mine));
    RIG_OK(oct_module_type_register(&mine));
    cr_assert_eq(oct_module_type_find("mine"), &mine);
    cr_assert_eq(oct_module_type_register(&other), OCT_USAGE);
    cr_assert(
        strstr(oct_error_message(0), "a module type 'mine' already; give yours another name"));
    other.name = "conv2d";
    cr_assert_eq(oct_module_type_register(&other), OCT_USAGE);
    RIG_OK(oct_module_type_register(&oct_conv2d_type));
}

Test(module_type, types_have_an_end, .timeout = 60)
{
    static oct_module_type types[65];
    static char names[65][24];
    for (int i = 0; i < 65; i++) {
        snprintf(names[i], sizeof names[i], "type_%d", i);
        types[i] = oct_relu_type;
        types[i].name = names[i];
        cr_assert_eq(oct_module_type_register(&types[i]), i < 64 ? OCT_OK : OCT_USAGE);
    }
    cr_assert(strstr(oct_error_message(0),
                     "a module type 'type_64' is one too many; plug-ins can add 64"));
}

Test(module_type, a_module_of_an_elementwise_function_has_its_function, .timeout = 60)
{
    oct_module *m;
    cr_assert_eq(oct_module_make(&m, oct_module_type_find("silu"), &(oct_elementwise_args){0}),
                 OCT_OK);
    cr_assert_eq(((const oct_elementwise_module *)m)->function, &oct_elementwise_silu);
    cr_assert_eq(oct_elementwise_leaky_relu.default_args.alpha, 0.01);
    oct_module_destroy(&m);
}
