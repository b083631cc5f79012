/* Data types and shapes. */
#include "core/tensor/tensor.h"

#include <criterion/criterion.h>

Test(tensor, dtypes_know_name_and_size)
{
    static const struct {
        oct_dtype dtype;
        const char *name;
        size_t bytes;
    } all[] = {{OCT_F32, "f32", 4}, {OCT_U8, "u8", 1},   {OCT_U16, "u16", 2}, {OCT_S8, "s8", 1},
               {OCT_S16, "s16", 2}, {OCT_S32, "s32", 4}, {OCT_F64, "f64", 8}, {OCT_S64, "s64", 8}};
    for (size_t i = 0; i < OCT_COUNT(all); i++) {
        cr_assert_eq((size_t)all[i].dtype, i);
        cr_assert_str_eq(oct_dtype_name(all[i].dtype), all[i].name);
        cr_assert_eq(oct_dtype_bytes(all[i].dtype), all[i].bytes);
    }
}

Test(tensor, numel_is_the_product_or_minus_one)
{
    static const struct {
        oct_shape shape;
        int64_t numel;
    } all[] = {{{0, {0}}, 1},
               {{1, {7}}, 7},
               {{4, {2, 3, 4, 5}}, 120},
               {{2, {0, 5}}, 0},
               {{2, {-1, 5}}, -1},
               {{2, {5, -1}}, -1},
               {{2, {INT64_MAX, 2}}, -1},
               {{4, {1 << 16, 1 << 16, 1 << 16, 1 << 16}}, -1}};
    for (size_t i = 0; i < OCT_COUNT(all); i++) {
        cr_assert_eq(oct_shape_numel(&all[i].shape), all[i].numel, "%zu", i);
        oct_tensor tensor = {.shape = all[i].shape};
        cr_assert_eq(oct_numel(&tensor), all[i].numel);
    }
}

Test(tensor, shapes_are_equal_in_all_dimensions)
{
    oct_shape a = OCT_SHAPE(2, 3), b = OCT_SHAPE(2, 3), c = OCT_SHAPE(2, 4), d = OCT_SHAPE(2, 3, 1);
    cr_assert(oct_shape_equal(&a, &b));
    cr_assert_not(oct_shape_equal(&a, &c));
    cr_assert_not(oct_shape_equal(&a, &d));
    cr_assert_not(oct_shape_equal(&d, &a));
}

Test(tensor, shapes_read_well)
{
    oct_shape none = {0}, one = OCT_SHAPE(5), four = OCT_SHAPE(8, 28, 28, 32);
    oct_shape widest = OCT_SHAPE(INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN);
    cr_assert_str_eq(oct_text_shape(&none).text, "()");
    cr_assert_str_eq(oct_text_shape(&one).text, "(5)");
    cr_assert_str_eq(oct_text_shape(&four).text, "(8, 28, 28, 32)");
    cr_assert_str_eq(oct_text_shape(&widest).text,
                     "(-9223372036854775808, -9223372036854775808, -9223372036854775808, "
                     "-9223372036854775808)");
}
