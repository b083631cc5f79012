/* The places of a resized side, and images in other sizes against PyTorch and the formulas of ONNX. */
#include "tests/core/op_rig.h"
#include "tests/golden/resize_golden.h"
#include "tests/support/check_status.h"

static struct {
    int64_t h, w;
    oct_interpolation mode;
} wanted;

RIG_FORWARD(resize_of, oct_interpolate(cx, x[0], wanted.h, wanted.w, wanted.mode))

static void check_golden(oct_shape shape, const float *x, const float *y, const float *grad_y,
                         const float *grad_x)
{
    rig r = rig_of(NULL, resize_of, 1, 2);
    rig_input(&r, shape, 0.05F);
    memcpy(r.input[0].data, x, (size_t)oct_shape_numel(&shape) * sizeof *x);
    oct_tensor *made = rig_run(&r, true);
    cr_assert(made, "%s", oct_error_message(0));
    oct_check_near_f32(oct_f32(made), y, oct_numel(made), 2e-6, 2e-6, "output");
    rig_backward(&r, made, grad_y);
    oct_check_near_f32(r.input[0].grad, grad_x, oct_shape_numel(&shape), 4e-6, 2e-6, "gradient");
    rig_end(&r);
}

#define CHECK_GOLDEN(number, size, in_h, in_w, out_h, out_w)                                       \
    do {                                                                                           \
        wanted.h = (out_h), wanted.w = (out_w), wanted.mode = (oct_interpolation)(number);         \
        cr_assert_eq(OCT_COUNT(golden_resize_##number##_##size##_y), (out_h) * (out_w)*2);         \
        check_golden(OCT_SHAPE(1, in_h, in_w, 2), golden_resize_##number##_##size##_x,             \
                     golden_resize_##number##_##size##_y,                                          \
                     golden_resize_##number##_##size##_grad_y,                                     \
                     golden_resize_##number##_##size##_grad_x);                                    \
    } while (0)
#define CHECK_MODE(number)                                                                         \
    CHECK_GOLDEN(number, 0, 4, 5, 7, 3);                                                           \
    CHECK_GOLDEN(number, 1, 3, 4, 6, 9);                                                           \
    CHECK_GOLDEN(number, 2, 5, 2, 1, 5)

Test(resize, agrees_with_pytorch_and_onnx, .timeout = 60)
{
    CHECK_MODE(0);
    CHECK_MODE(1);
    CHECK_MODE(2);
    CHECK_MODE(3);
    CHECK_MODE(4);
    CHECK_MODE(5);
    check_nothing_held();
}

/* A place is a number of the side, and the one after it where two are mixed; the same size is the same image. */
Test(resize, places_lie_inside, .timeout = 60)
{
    for (int mode = 0; mode < OCT_INTERPOLATIONS; mode++)
        for (int64_t in = 1; in < 40; in++)
            for (int64_t out = 1; out < 40; out++)
                for (int64_t at = 0, last = 0; at < out; at++) {
                    const oct_resize_place p =
                        oct_resize_place_of((oct_interpolation)mode, at, in, out);
                    cr_assert(p.low >= last && p.low <= p.high && p.high < in &&
                              p.high <= p.low + 1 && p.part >= 0 && p.part < p.unit);
                    cr_assert(in != out || (p.low == at && p.part == 0), "mode %d", mode);
                    last = p.low;
                }
}

Test(resize, of_the_largest_sides_does_not_overflow, .timeout = 60)
{
    const int64_t most = INT32_MAX;
    for (int mode = 0; mode < OCT_INTERPOLATIONS; mode++) {
        const oct_resize_place p =
            oct_resize_place_of((oct_interpolation)mode, most - 1, most, most);
        cr_assert(p.low == most - 1 && p.high == most - 1 && p.part == 0);
    }
}
