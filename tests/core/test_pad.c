/* Padding: against numpy and PyTorch, in values and codes, and what is refused. */
#include "tests/core/op_rig.h"
#include "tests/golden/move_golden.h"
#include "tests/support/check_status.h"

#include <omp.h>

enum { SAMPLES = 3, H = 4, W = 6, C = 8, EACH = H * W * C };

typedef struct golden_pad {
    oct_padding padding;
    oct_shape out;
    const int *from; /* the value of the sample that is shown; -1: the constant */
} golden_pad;

static const float around = -2.5F;

static golden_pad golden[OCT_PAD_MODES];

static void find_golden(void)
{
    golden[0] = (golden_pad){{1, 2, 0, 3, 2, 1, (double)around, OCT_PAD_CONSTANT},
                             OCT_SHAPE(SAMPLES, 7, 9, 11),
                             golden_pad_constant};
    golden[1] = (golden_pad){{3, 1, 2, 0, 1, 7, (double)around, OCT_PAD_REFLECT},
                             OCT_SHAPE(SAMPLES, 8, 8, 16),
                             golden_pad_reflect};
    golden[2] = (golden_pad){{1, 5, 2, 0, 0, 3, (double)around, OCT_PAD_EDGE},
                             OCT_SHAPE(SAMPLES, 10, 8, 11),
                             golden_pad_edge};
}

TestSuite(pad, .init = find_golden, .timeout = 60);

RIG_FORWARD(pad_of, oct_pad(cx, x[0], &golden[0].padding))
RIG_FORWARD(mirror_of, oct_pad(cx, x[0], &golden[1].padding))
RIG_FORWARD(edge_of, oct_pad(cx, x[0], &golden[2].padding))

static void check_golden(rig_forward forward, const golden_pad *g)
{
    rig r = rig_of(NULL, forward, SAMPLES, 2);
    rig_input(&r, OCT_SHAPE(SAMPLES, H, W, C), 0.05F);
    oct_tensor *y = rig_run(&r, true);
    cr_assert(y, "%s", oct_error_message(0));
    cr_assert(oct_shape_equal(&y->shape, &g->out));
    const int64_t each = oct_numel(y) / SAMPLES;
    float *grad = rig_take((size_t)oct_numel(y), sizeof(float));
    double want[SAMPLES * EACH] = {0};
    oct_fill_normal(grad, oct_numel(y), 3, OCT_STREAM_TEST, 1, 0, 1);
    for (int64_t i = 0; i < oct_numel(y); i++) {
        const int from = g->from[i % each];
        const int64_t at = i / each * EACH + from;
        cr_assert_eq(oct_f32(y)[i], from < 0 ? around : oct_f32(&r.input[0])[at]);
        if (from >= 0) want[at] += (double)grad[i];
    }
    rig_backward(&r, y, grad);
    for (int i = 0; i < SAMPLES * EACH; i++)
        cr_assert_float_eq((double)r.input[0].grad[i], want[i], 1e-5);
    oct_free(&grad);
    rig_end(&r);
}

Test(pad, agrees_with_numpy_and_pytorch)
{
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        check_golden(pad_of, &golden[0]);
        check_golden(mirror_of, &golden[1]);
        check_golden(edge_of, &golden[2]);
    }
    check_nothing_held();
}

Test(pad, of_codes_of_either_width_is_that_of_values)
{
    uint8_t x[EACH], y[2000];
    uint16_t wide_x[EACH], wide_y[2000];
    const uint8_t fill = 200;
    const uint16_t wide_fill = 60000;
    for (int i = 0; i < EACH; i++) {
        x[i] = (uint8_t)i;
        wide_x[i] = (uint16_t)(300 * i);
    }
    for (int mode = 0; mode < OCT_PAD_MODES; mode++) {
        oct_pad_shape shape;
        MUST(oct_pad_shape_of(&shape, &golden[mode].padding, H, W, C));
        oct_pad_copy(&shape, 1, &fill, x, y);
        oct_pad_copy(&shape, 2, &wide_fill, wide_x, wide_y);
        for (int64_t i = 0; i < shape.out[0] * shape.out[1] * shape.out[2]; i++) {
            const int from = golden[mode].from[i];
            cr_assert_eq(y[i], from < 0 ? fill : from);
            cr_assert_eq(wide_y[i], from < 0 ? wide_fill : 300 * from);
        }
    }
}

static void check_refused(oct_shape shape, oct_padding padding, const char *sentence)
{
    float x[2 * 3 * 4 * 5] = {0};
    oct_context *cx;
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(2, 8, 0, 1), false);
    oct_tensor in = {.shape = shape, .data = x, .trace_value = -1, .graph_value = -1};
    cr_assert_null(oct_pad(cx, &in, &padding));
    cr_assert_eq(oct_context_status(cx), OCT_USAGE);
    check_said(sentence);
    oct_context_destroy(&cx);
    oct_fail_clear();
}

Test(pad, refuses_what_does_not_fit)
{
    const oct_shape image = OCT_SHAPE(2, 3, 4, 5), row = OCT_SHAPE(2, 4, 5), flat = OCT_SHAPE(2, 5);
    check_refused(image, (oct_padding){.top = 3, .mode = OCT_PAD_REFLECT},
                  "pad of (2, 3, 4, 5): a mirror of height 3 cannot show 3 before it");
    check_refused(image, (oct_padding){.right = 4, .mode = OCT_PAD_REFLECT},
                  "a mirror of width 4 cannot show 0 before it and 4 after it");
    check_refused(image, (oct_padding){.left = -1}, "width 4 with -1 before it");
    check_refused(image, (oct_padding){.channels_after = -1}, "channels 5 with 0 before it");
    check_refused(image, (oct_padding){.mode = OCT_PAD_MODES}, "its mode is 3");
    check_refused(image, (oct_padding){.top = INT64_MAX}, "more values than can be counted");
    check_refused(image, (oct_padding){.top = INT64_MAX / 8, .left = 9}, "can be counted");
    check_refused(row, (oct_padding){.bottom = 1}, "it has 3 dimensions; the missing ones");
    check_refused(flat, (oct_padding){.left = 1}, "it has 2 dimensions; the missing ones");
    check_refused(OCT_SHAPE(2), (oct_padding){0}, "it has 1 dimensions");
    check_nothing_held();
}

/* What has fewer dimensions is a plane of height 1, and a row of one pixel. */
Test(pad, of_fewer_dimensions)
{
    float x[6] = {1, 2, 3, 4, 5, 6};
    oct_context *cx;
    RIG_OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(1, 8, 0, 1), false);
    oct_tensor in = {.shape = OCT_SHAPE(1, 2, 3), .data = x, .trace_value = -1, .graph_value = -1};
    const oct_tensor *y = oct_pad(cx, &in, &(oct_padding){.left = 1, .value = 9});
    const oct_shape rows = OCT_SHAPE(1, 3, 3), flat = OCT_SHAPE(2, 5);
    cr_assert(oct_shape_equal(&y->shape, &rows));
    oct_check_bits_f32(y->data, (float[]){9, 9, 9, 1, 2, 3, 4, 5, 6}, 9, "rows");
    in.shape = OCT_SHAPE(2, 3);
    y = oct_pad(cx, &in,
                &(oct_padding){.channels_before = 1, .channels_after = 1, .mode = OCT_PAD_EDGE});
    cr_assert(oct_shape_equal(&y->shape, &flat));
    oct_check_bits_f32(y->data, (float[]){1, 1, 2, 3, 3, 4, 4, 5, 6, 6}, 10, "flat");
    oct_context_destroy(&cx);
    check_nothing_held();
}
