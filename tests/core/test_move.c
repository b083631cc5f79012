/* Moves: against PyTorch, against the definition by random maps, in every type, there and back; and what is
 * refused. */
#include "core/base/int_math.h"
#include "tests/core/op_rig.h"
#include "tests/golden/move_golden.h"
#include "tests/support/check_status.h"

#include <omp.h>

TestSuite(move, .timeout = 120);

enum { SAMPLES = 3, H = 4, W = 6, C = 8, EACH = H * W * C };

typedef struct move_rig {
    oct_context *cx;
    float data[SAMPLES * EACH];
    oct_tensor x;
} move_rig;

/* Value i of a sample is i, of the next one EACH more. */
static void begin_move(move_rig *r)
{
    RIG_OK(oct_context_create(&r->cx, &oct_collective_one));
    for (int i = 0; i < SAMPLES * EACH; i++)
        r->data[i] = (float)i;
    r->x = (oct_tensor){.shape = OCT_SHAPE(SAMPLES, H, W, C),
                        .data = r->data,
                        .trace_value = -1,
                        .graph_value = -1};
    oct_context_begin(r->cx, oct_leaves_split(SAMPLES, 8, 0, 1), false);
}

static void end_move(move_rig *r)
{
    oct_context_destroy(&r->cx);
    check_nothing_held();
}

static void check_golden(const oct_tensor *y, oct_shape shape, const int *golden, size_t n)
{
    cr_assert(y, "%s", oct_error_message(0));
    cr_assert(oct_shape_equal(&y->shape, &shape));
    cr_assert_eq(oct_numel(y), (int64_t)(SAMPLES * n));
    for (size_t i = 0; i < SAMPLES * n; i++)
        cr_assert_eq(oct_f32(y)[i], (float)(golden[i % n] + EACH * (int)(i / n)), "value %zu", i);
}

#define CHECK_GOLDEN_MOVE(name, shape, op)                                                         \
    check_golden(op, shape, golden_##name, OCT_COUNT(golden_##name))

Test(move, agrees_with_pytorch)
{
    move_rig r;
    begin_move(&r);
    CHECK_GOLDEN_MOVE(slice, OCT_SHAPE(3, 4, 6, 3), oct_slice(r.cx, &r.x, 3, 1, 3, 3));
    CHECK_GOLDEN_MOVE(flip, OCT_SHAPE(3, 4, 6, 8), oct_slice(r.cx, &r.x, 1, 3, -1, 4));
    CHECK_GOLDEN_MOVE(to_nchw, OCT_SHAPE(3, 8, 4, 6), oct_transpose(r.cx, &r.x, (int[]){3, 1, 2}));
    CHECK_GOLDEN_MOVE(whc, OCT_SHAPE(3, 6, 4, 8), oct_transpose(r.cx, &r.x, (int[]){2, 1, 3}));
    CHECK_GOLDEN_MOVE(depth_dcr, OCT_SHAPE(3, 8, 12, 2),
                      oct_depth_to_space(r.cx, &r.x, 2, OCT_DEPTH_DCR));
    CHECK_GOLDEN_MOVE(depth_crd, OCT_SHAPE(3, 8, 12, 2),
                      oct_depth_to_space(r.cx, &r.x, 2, OCT_DEPTH_CRD));
    CHECK_GOLDEN_MOVE(space_dcr, OCT_SHAPE(3, 2, 3, 32),
                      oct_space_to_depth(r.cx, &r.x, 2, OCT_DEPTH_DCR));
    CHECK_GOLDEN_MOVE(space_crd, OCT_SHAPE(3, 2, 3, 32),
                      oct_space_to_depth(r.cx, &r.x, 2, OCT_DEPTH_CRD));
    CHECK_GOLDEN_MOVE(shuffle, OCT_SHAPE(3, 4, 6, 8), oct_channel_shuffle(r.cx, &r.x, 4));
    end_move(&r);
}

static uint64_t drawn;
static int64_t draw(int64_t n)
{
    uint32_t bits[4];
    oct_philox(5, OCT_STREAM_TEST, drawn++, 3, bits);
    return oct_below(bits[0], (uint32_t)n);
}

/* Loops that stay inside a sample of EACH values: strides of either sign, 0 among them. */
static oct_move_map random_map(void)
{
    oct_move_map map = {.dims = (int)draw(OCT_MOVE_DIMS + 1)};
    int64_t room = EACH - 1, numel = 1;
    for (int k = 0; k < map.dims; k++) {
        map.size[k] = 1 + draw(draw(2) ? 3 : 9);
        const int64_t most = map.size[k] > 1 ? room / (map.size[k] - 1) : 50;
        const int64_t wish[] = {0, 1, draw(most + 1)};
        map.stride[k] = oct_min_i64(wish[draw(3)], most);
        room -= (map.size[k] - 1) * map.stride[k];
        numel *= map.size[k];
        if (draw(3) > 0) continue;
        map.offset += (map.size[k] - 1) * map.stride[k];
        map.stride[k] = -map.stride[k];
    }
    map.offset += draw(room + 1);
    map.out = OCT_SHAPE(1, numel);
    return map;
}

/* By the definition. */
static int64_t place_of(const oct_move_map *map, int64_t i)
{
    int64_t at = map->offset;
    for (int k = map->dims - 1; k >= 0; i /= map->size[k--])
        at += i % map->size[k] * map->stride[k];
    return at;
}

static void check_map(move_rig *r, const oct_move_map *map)
{
    static const struct {
        oct_dtype dtype;
        size_t bytes;
    } types[] = {{OCT_F32, 4}, {OCT_U8, 1}, {OCT_U16, 2}, {OCT_S32, 4}};
    uint8_t bytes[SAMPLES * EACH * 4];
    const int64_t n = oct_move_numel(map);
    for (int i = 0; i < SAMPLES * EACH * 4; i++)
        bytes[i] = (uint8_t)draw(256);
    for (size_t t = 0; t < OCT_COUNT(types); t++) {
        const int64_t size = (int64_t)types[t].bytes;
        oct_context_begin(r->cx, oct_leaves_split(SAMPLES, 8, 0, 1), false);
        oct_tensor x = r->x;
        x.dtype = types[t].dtype;
        x.data = bytes;
        x.q = (oct_qparams){0.5F, 7, 0, 255};
        const oct_tensor *y = oct_move(r->cx, &x, map);
        cr_assert(y, "%s", oct_error_message(0));
        cr_assert(y->dtype == x.dtype && y->q.zero_point == 7 && y->q.scale == 0.5F);
        for (int64_t i = 0; i < SAMPLES * n; i++)
            oct_check_bytes((uint8_t *)y->data + i * size,
                            bytes + (i / n * EACH + place_of(map, i % n)) * size, size, "value");
    }
}

static void check_gradient(move_rig *r, const oct_move_map *map)
{
    const int64_t n = SAMPLES * oct_move_numel(map);
    double want[SAMPLES * EACH] = {0};
    oct_context_begin(r->cx, oct_leaves_split(SAMPLES, 2, 0, 1), true);
    r->x.needs_grad = true;
    r->x.grad = NULL;
    oct_tensor *y = oct_move(r->cx, &r->x, map);
    cr_assert(y, "%s", oct_error_message(0));
    float *grad = oct_grad_new(r->cx, y);
    oct_fill_normal(grad, n, 3, OCT_STREAM_TEST, (uint32_t)drawn, 0, 1);
    for (int64_t i = 0, each = n / SAMPLES; i < n; i++)
        want[i / each * EACH + place_of(map, i % each)] += (double)grad[i];
    oct_add_grad(r->cx, y, grad);
    RIG_OK(oct_backward(r->cx, y));
    for (int i = 0; i < SAMPLES * EACH; i++)
        cr_assert_float_eq((double)r->x.grad[i], want[i], 1e-4 * (1 + fabs(want[i])));
}

Test(move, of_random_maps_is_what_they_say_there_and_back)
{
    move_rig r;
    begin_move(&r);
    for (int i = 0; i < 300; i++) {
        oct_move_map map = random_map();
        while (oct_move_numel(&map) > 20000)
            map = random_map();
        omp_set_num_threads(1 + i % 3);
        check_map(&r, &map);
        check_gradient(&r, &map);
    }
    end_move(&r);
}

static void check_refused(const oct_tensor *y, oct_context *cx, const char *sentence)
{
    cr_assert_null(y);
    cr_assert_eq(oct_context_status(cx), OCT_USAGE);
    cr_assert(strstr(oct_error_message(0), sentence), "\"%s\" lacks \"%s\"", oct_error_message(0),
              sentence);
    oct_fail_clear();
    oct_context_begin(cx, oct_leaves_split(SAMPLES, 8, 0, 1), false);
}

Test(move, refuses_what_does_not_fit)
{
    move_rig r;
    begin_move(&r);
    oct_context *cx = r.cx;
    oct_tensor *x = &r.x;
    oct_move_map map = oct_move_over(2, (int64_t[]){2, 5});
    map.out = OCT_SHAPE(1, 11);
    check_refused(oct_move(cx, x, &map), cx, "reads 10 values of each sample of (3, 4, 6, 8)");
    map.out = OCT_SHAPE(1, 10);
    map.offset = EACH - 9;
    check_refused(oct_move(cx, x, &map), cx,
                  "reads value 192 of a sample, whose values are 0 to 191");
    map.offset = -1;
    check_refused(oct_move(cx, x, &map), cx, "reads value -1 of a sample");
    map.offset = 0;
    map.stride[0] = INT64_MAX;
    check_refused(oct_move(cx, x, &map), cx, "more values than can be counted");
    map.size[1] = 0;
    map.out = OCT_SHAPE(1, 0);
    check_refused(oct_move(cx, x, &map), cx, "loop 1 has 0 turns");
    check_refused(oct_slice(cx, x, 0, 0, 1, 1), cx, "axis 0 of (3, 4, 6, 8); axes count from 1");
    check_refused(oct_slice(cx, x, 4, 0, 1, 1), cx, "axis 4");
    check_refused(oct_slice(cx, x, 3, 0, 1, 9), cx, "9 places from 0 in steps of 1");
    check_refused(oct_slice(cx, x, 3, 7, -1, 9), cx, "9 places from 7 in steps of -1");
    check_refused(oct_slice(cx, x, 3, 1, INT64_MAX, 3), cx, "are not those of axis 3");
    check_refused(oct_slice(cx, x, 3, 1, 1, 0), cx, "0 places");
    check_refused(oct_transpose(cx, x, (int[]){1, 2, 2}), cx,
                  "dimension 3 of the output cannot be dimension 2");
    check_refused(oct_transpose(cx, x, (int[]){0, 1, 2}), cx, "dimension 0");
    check_refused(oct_depth_to_space(cx, x, 3, OCT_DEPTH_DCR), cx, "blocks of 3x3 pixels");
    check_refused(oct_depth_to_space(cx, x, INT32_MAX, OCT_DEPTH_DCR), cx, "8 channels");
    check_refused(oct_space_to_depth(cx, x, 3, OCT_DEPTH_CRD), cx, "do not divide 4x6 pixels");
    check_refused(oct_channel_shuffle(cx, x, 3), cx, "3 groups do not divide 8 channels");
    x->shape = OCT_SHAPE(SAMPLES, EACH);
    check_refused(oct_space_to_depth(cx, x, 2, OCT_DEPTH_CRD), cx, "takes images (N, H, W, C)");
    end_move(&r);
}

Test(move, modules_refuse_maps_that_cannot_be)
{
    static const struct {
        oct_op_args args;
        const char *sentence;
    } cases[] = {
        {{0, {0}}, "arguments that do not count so"},
        {{1, {0}}, "arguments that do not count so"},
        {{3, {0, 4, 0}}, "arguments that do not count so"},
        {{3, {0, -1, 0}}, "arguments that do not count so"},
        {{4, {0, 1, 4, 1}}, "arguments that do not count so"},
        {{4, {0, 1, 4, 7}}, "arguments that do not count so"},
        {{6, {0, 1, 4, 1, 4, 0.5}}, "argument 6 of a move is 0.5"},
        {{6, {0, 1, 4, 1, 3, 1}}, "reads 3 values of a sample, but has to make (1, 4)"},
        {{6, {0, 1, 0, 1, 0, 1}}, "cannot make samples of shape (1, 0)"},
        {{6, {-1, 1, 4, 1, 4, 1}}, "reads value -1"},
        {{6, {2, 1, 4, 1, 4, -1}}, "reads value -1"},
        {{8, {0, 1, 4, 2, -2, -2, 1, 1}}, "loop 0 has -2 turns"},
        {{17,
          {0, 3, INT32_MAX, INT32_MAX, INT32_MAX, 6, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX,
           INT32_MAX, INT32_MAX, 1, 1, 1, 1, 1, 1}},
         "arguments that do not count so"},
        {{12, {0, 1, 4, 4, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, 1, 1, 1, 1}},
         "more values than can be counted"},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_module *m = (oct_module *)1;
        cr_assert_eq(oct_module_from(&m, &oct_move_type, &cases[i].args), OCT_USAGE);
        cr_assert_null(m);
        cr_assert(strstr(oct_error_message(0), cases[i].sentence), "case %zu: \"%s\" lacks \"%s\"",
                  i, oct_error_message(0), cases[i].sentence);
        oct_fail_clear();
    }
    check_nothing_held();
}
