/* Optimizers, clipping and averages against PyTorch, and against the equations of papers where PyTorch has none. */
#include "core/base/rng.h"
#include "core/optim/optim.h"
#include "tests/core/op_rig.h"
#include "tests/golden/core_golden.h"
#include "tests/golden/optim_golden.h"

#include <omp.h>

enum { SIZE = 7, STEPS = 4 };

/* Some roundings of values of order 1: PyTorch contracts products and sums, Octet does not. */
static const double near = 1e-6;

/* The weight decays, the bias does not. */
static rig rig_with(const float *start)
{
    oct_module *m;
    RIG_OK(oct_linear_create(&m, SIZE, 1, true));
    rig r = rig_of(m, rig_call_root, 1, 8);
    memcpy(r.params.items[0]->value.data, start, SIZE * sizeof(float));
    return r;
}

static void check_steps(const oct_optim_config *config, float lr, const float *start,
                        const float *grads, const float *after)
{
    rig r = rig_with(start);
    oct_optim optim;
    RIG_OK(oct_optim_create(&optim, config, &r.params));
    for (int step = 0; step < STEPS; step++) {
        memcpy(r.params.items[0]->own_grad, grads + step * SIZE, SIZE * sizeof(float));
        oct_optim_step(&optim, &r.params, lr);
        oct_check_near_f32(oct_f32(&r.params.items[0]->value), after + step * SIZE, SIZE, near,
                           near, "parameter");
    }
    cr_assert_eq(optim.updates, STEPS);
    oct_optim_destroy(&optim);
    rig_end(&r);
}

Test(optim, sgd_with_momentum_agrees_with_pytorch)
{
    check_steps(&(oct_optim_config){.kind = OCT_SGD, .momentum = 0.9F, .weight_decay = 0.01F}, 0.1F,
                golden_sgd_start, golden_sgd_grads, golden_sgd_after);
}

Test(optim, nesterov_agrees_with_pytorch)
{
    check_steps(
        &(oct_optim_config){
            .kind = OCT_SGD, .momentum = 0.9F, .nesterov = true, .weight_decay = 0.01F},
        0.1F, golden_nesterov_start, golden_nesterov_grads, golden_nesterov_after);
}

Test(optim, adamw_agrees_with_pytorch)
{
    check_steps(
        &(oct_optim_config){
            .kind = OCT_ADAMW, .beta1 = 0.9F, .beta2 = 0.999F, .eps = 1e-8F, .weight_decay = 0.1F},
        0.01F, golden_adamw_start, golden_adamw_grads, golden_adamw_after);
}

Test(optim, lars_agrees_with_its_paper)
{
    check_steps(
        &(oct_optim_config){
            .kind = OCT_LARS, .momentum = 0.9F, .weight_decay = 0.01F, .trust = 0.02F},
        0.1F, golden_lars_start, golden_lars_grads, golden_lars_after);
}

Test(optim, lamb_agrees_with_its_paper)
{
    check_steps(
        &(oct_optim_config){
            .kind = OCT_LAMB, .beta1 = 0.9F, .beta2 = 0.999F, .eps = 1e-6F, .weight_decay = 0.1F},
        0.01F, golden_lamb_start, golden_lamb_grads, golden_lamb_after);
}

/* Weights without a norm would never leave 0 by a step that is a share of it. */
Test(optim, weights_of_zero_learn_by_lars_and_lamb_all_the_same)
{
    static const oct_optim_kind kinds[] = {OCT_LARS, OCT_LAMB};
    const float zero[SIZE] = {0};
    for (size_t k = 0; k < OCT_COUNT(kinds); k++) {
        rig r = rig_with(zero);
        oct_optim optim;
        const oct_optim_config config = {
            .kind = kinds[k], .beta1 = 0.9F, .beta2 = 0.999F, .eps = 1e-6F, .trust = 0.001F};
        RIG_OK(oct_optim_create(&optim, &config, &r.params));
        oct_optim_step(&optim, &r.params, 0.5F); /* the gradient is 0, too */
        oct_check_bits_f32(oct_f32(&r.params.items[0]->value), zero, SIZE, "weight");
        for (int i = 0; i < SIZE; i++)
            r.params.items[0]->own_grad[i] = 1;
        oct_optim_step(&optim, &r.params, 0.5F);
        for (int i = 0; i < SIZE; i++)
            cr_assert_lt(oct_f32(&r.params.items[0]->value)[i], -0.1F);
        oct_optim_destroy(&optim);
        rig_end(&r);
    }
}

/* More elements than a block, so that parts of all sizes occur. */
/* Some blocks of each kind of loop, and a part of one. */
Test(optim, no_bit_of_an_update_depends_on_the_threads)
{
    enum { MANY = 600000 };
    static float before[MANY], after[MANY];
    for (size_t k = 0; k < oct_registry_count(&oct_optim_kind_table); k++) {
        oct_optim_config config = {.kind = (oct_optim_kind)k,
                                   .momentum = 0.9f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.99f,
                                   .eps = 1e-6f,
                                   .trust = 0.01f,
                                   .weight_decay = 0.01f};
        for (int threads = 1; threads <= 3; threads += 2) {
            oct_module *m;
            oct_optim optim;
            RIG_OK(oct_linear_create(&m, MANY, 1, false));
            rig r = rig_of(m, rig_call_root, 1, 8);
            oct_param *param = r.params.items[0];
            RIG_OK(oct_optim_create(&optim, &config, &r.params));
            omp_set_num_threads(threads);
            for (int step = 0; step < 2; step++) {
                for (int i = 0; i < MANY; i++) {
                    if (step == 0) oct_f32(&param->value)[i] = (float)(i % 1013 - 500) / 777;
                    param->parts[i] = (float)((i + step) % 311 - 100) / 333;
                }
                oct_optim_step(&optim, &r.params, 0.1f);
            }
            omp_set_num_threads(1);
            memcpy(threads == 1 ? before : after, param->value.data, sizeof before);
            oct_optim_destroy(&optim);
            rig_end(&r);
        }
        oct_check_bits_f32(after, before, MANY, "parameter");
    }
}

Test(optim, a_sum_of_squares_has_one_shape_for_any_threads)
{
    enum { MOST = 70001 };
    static float x[MOST];
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 1023, 1025, 65536, MOST};
    for (int64_t i = 0; i < MOST; i++) {
        uint32_t draw[4];
        oct_philox(2, OCT_STREAM_TEST, (uint64_t)i, 0, draw);
        x[i] = ((float)draw[0] - 2e9F) * 1e-3F;
    }
    for (size_t s = 0; s < OCT_COUNT(sizes); s++) {
        long double exact = 0;
        for (int64_t i = 0; i < sizes[s]; i++)
            exact += (long double)x[i] * (long double)x[i];
        omp_set_num_threads(1);
        const double one = oct_square_sum(x, sizes[s]);
        omp_set_num_threads(3);
        const double three = oct_square_sum(x, sizes[s]);
        cr_assert_eq(memcmp(&one, &three, sizeof one), 0);
        cr_assert_float_eq(one, (double)exact, 1e-14 * (double)exact);
    }
}

static double clip(rig *r, double most)
{
    for (int i = 0; i <= SIZE; i++)
        r->params.grads[i] = golden_clip_grads[i];
    oct_optim optim;
    const oct_optim_config config = {.kind = OCT_SGD, .clip_norm = (float)most};
    cr_assert_eq(oct_optim_create(&optim, &config, &r->params), OCT_OK);
    const double norm = oct_optim_step(&optim, &r->params, 0);
    oct_optim_destroy(&optim);
    return norm;
}

Test(optim, gradients_are_clipped_by_the_norm_of_all_together_like_pytorch)
{
    rig r = rig_with(golden_sgd_start);
    cr_assert_float_eq(clip(&r, 1.5), (double)golden_clip_norm[0], near * 10);
    oct_check_near_f32(r.params.grads, golden_clip_after, SIZE + 1, near, near, "gradient");
    cr_assert_float_eq(clip(&r, 1000), (double)golden_clip_norm[0], near * 10);
    oct_check_bits_f32(r.params.grads, golden_clip_grads, SIZE + 1, "a gradient below the norm");
    r.params.items[0]->frozen = true;
    cr_assert_float_eq(clip(&r, 1.5), fabs((double)golden_clip_grads[SIZE]), near);
    rig_end(&r);
}

static void check_average(double decay, bool warmup, const float *values, const float *after)
{
    rig r = rig_with(golden_sgd_start);
    oct_average average;
    float *weight = oct_f32(&r.params.items[0]->value);
    const oct_average_options options = {.decay = decay, .warmup = warmup};
    RIG_OK(oct_average_create(&average, &options, r.root, &r.params));
    oct_average_swap(&average, true);
    oct_check_bits_f32(weight, golden_sgd_start, SIZE, "what has no average yet");
    for (int step = 0; step < STEPS; step++) {
        memcpy(weight, values + step * SIZE, SIZE * sizeof(float));
        oct_average_update(&average, step + 1);
        oct_average_swap(&average, true);
        oct_average_swap(&average, true);
        oct_check_near_f32(weight, after + step * SIZE, SIZE, near, near, "average");
        oct_check_bits_f32(oct_average_of(&average, &r.params.items[0]->value),
                           values + step * SIZE, SIZE, "what is trained");
        oct_average_swap(&average, false);
        oct_check_bits_f32(weight, values + step * SIZE, SIZE, "what is trained");
    }
    oct_average_destroy(&average);
    rig_end(&r);
}

Test(optim, averages_of_weights_agree_with_pytorch)
{
    check_average(0.6, false, golden_average_values, golden_average_after);
    check_average(0.25, true, golden_early_average_values, golden_early_average_after);
}

Test(optim, averages_take_statistics_of_batch_norms_and_leave_equal_values_alone)
{
    oct_module *m;
    RIG_OK(oct_batch_norm_create(&m, 1));
    rig r = rig_of(m, rig_call_root, 1, 8);
    oct_batch_norm_module *bn = (oct_batch_norm_module *)m;
    oct_average average;
    const oct_average_options options = {.decay = 0.75};
    RIG_OK(oct_average_create(&average, &options, r.root, &r.params));
    oct_f32(&bn->gamma->value)[0] = 0.1F;
    bn->running_mean[0] = 8;
    oct_average_update(&average, 1);
    bn->running_mean[0] = 16;
    bn->running_var[0] = 5;
    oct_average_update(&average, 2);
    oct_average_swap(&average, true);
    cr_assert_eq(bn->running_mean[0], 10);
    cr_assert_eq(bn->running_var[0], 2);
    cr_assert_eq(oct_f32(&bn->gamma->value)[0], 0.1F);
    oct_average_destroy(&average);
    RIG_OK(oct_average_create(&average, &(oct_average_options){0}, r.root, &r.params));
    oct_average_update(&average, 1);
    oct_average_swap(&average, true);
    cr_assert_null(oct_average_of(&average, &bn->gamma->value));
    cr_assert_eq(bn->running_mean[0], 10);
    rig_end(&r);
}

static void check_decay(oct_optim_kind kind)
{
    const float start[SIZE] = {1, 1, 1, 1, 1, 1, 1};
    rig r = rig_with(start);
    oct_f32(&r.params.items[1]->value)[0] = 1;
    oct_optim optim;
    oct_optim_config config = {
        .kind = kind, .beta1 = 0.9F, .beta2 = 0.999F, .eps = 1e-8F, .weight_decay = 0.5F};
    RIG_OK(oct_optim_create(&optim, &config, &r.params));
    oct_optim_step(&optim, &r.params, 0.5F);
    oct_check_bits_f32(oct_f32(&r.params.items[0]->value), (float[]){0.75F}, 1, "weight");
    oct_check_bits_f32(oct_f32(&r.params.items[1]->value), (float[]){1}, 1, "bias");
    oct_optim_destroy(&optim);
    rig_end(&r);
}

Test(optim, only_parameters_marked_for_it_decay)
{
    check_decay(OCT_SGD);
    check_decay(OCT_ADAMW);
}

Test(optim, slots_start_at_zero_and_are_as_many_as_the_optimizer_needs)
{
    rig r = rig_with(golden_sgd_start);
    oct_optim sgd, adamw;
    RIG_OK(oct_optim_create(&sgd, &(oct_optim_config){.kind = OCT_SGD}, &r.params));
    RIG_OK(oct_optim_create(&adamw, &(oct_optim_config){.kind = OCT_ADAMW}, &r.params));
    cr_assert_eq(sgd.num_slots, 1);
    cr_assert_eq(adamw.num_slots, 2);
    for (int64_t i = 0; i < r.params.numel; i++)
        cr_assert(sgd.slot[0][i] == 0 && adamw.slot[0][i] == 0 && adamw.slot[1][i] == 0);
    oct_optim_destroy(&sgd);
    oct_optim_destroy(&adamw);
    oct_optim_destroy(&adamw);
    rig_end(&r);
}

Test(optim, a_creation_without_memory_leaves_nothing_after)
{
    rig r = rig_with(golden_sgd_start);
    size_t live = oct_mem_live();
    oct_optim optim;
    for (int n = 1; n <= 2; n++) {
        oct_mem_fail_after(n);
        cr_assert_eq(oct_optim_create(&optim, &(oct_optim_config){.kind = OCT_ADAMW}, &r.params),
                     OCT_RESOURCE);
        oct_mem_fail_after(0);
        cr_assert_eq(oct_mem_live(), live);
    }
    rig_end(&r);
}
