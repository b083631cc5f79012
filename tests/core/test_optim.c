/* Optimizers against PyTorch's updates. */
#include "core/optim/optim.h"
#include "tests/core/op_rig.h"
#include "tests/golden/core_golden.h"

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
        memcpy(r.params.items[0]->grad, grads + step * SIZE, SIZE * sizeof(float));
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

Test(optim, a_creation_without_memory_leaves_nothing_behind)
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
