/* Each parameter draws its initial values from a sequence of its own, numbered by its position in
 * the tree, so the values depend on the seed and the model alone. */
#include "core/base/rng.h"
#include "core/nn/modules.h"

#include <math.h>

typedef struct init_walk {
    uint64_t seed;
    uint32_t next; /* running number of the module's first parameter, which is its weight */
} init_walk;

static void fill_value(float *values, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        values[i] = value;
}

static void fill_normal(const init_walk *walk, oct_param *weight, float deviation)
{
    oct_fill_normal(oct_f32(&weight->value), oct_numel(&weight->value), walk->seed, OCT_STREAM_INIT,
                    walk->next, 0.0F, deviation);
}

static void fill_kaiming(const init_walk *walk, oct_param *weight, int64_t fan)
{
    fill_normal(walk, weight, (float)sqrt(2.0 / (double)fan));
}

static void fill_zero(oct_param *param)
{
    if (param) fill_value(oct_f32(&param->value), oct_numel(&param->value), 0.0F);
}

/* Sets the initial values of one module by its type (oct_init_parameters). */
static oct_status init_module(void *user, oct_module *module)
{
    init_walk *walk = user;
    if (module->type == &oct_conv2d_type || module->type == &oct_conv_transpose2d_type) {
        oct_conv2d_module *m = (oct_conv2d_module *)module;
        const oct_conv_geometry *g = &m->args.geometry;
        fill_kaiming(walk, m->weight, m->args.out_channels / g->groups * g->kernel_h * g->kernel_w);
        fill_zero(m->bias);
    } else if (module->type == &oct_linear_type) {
        oct_linear_module *m = (oct_linear_module *)module;
        fill_kaiming(walk, m->weight, m->args.in_features);
        fill_zero(m->bias);
    } else if (module->type == &oct_batch_norm_type) {
        oct_batch_norm_module *m = (oct_batch_norm_module *)module;
        fill_value(oct_f32(&m->gamma->value), m->args.channels, 1.0F);
        fill_zero(m->beta);
        fill_value(m->running_mean, m->args.channels, 0.0F);
        fill_value(m->running_var, m->args.channels, 1.0F);
    } else if (module->type == &oct_layer_norm_type || module->type == &oct_group_norm_type) {
        oct_group_norm_module *m = (oct_group_norm_module *)module;
        fill_value(oct_f32(&m->gamma->value), m->args.channels, 1.0F);
        fill_zero(m->beta);
    } else if (module->type == &oct_mul_parameter_type) {
        oct_param *weight = ((oct_parameter_module *)module)->weight;
        fill_value(oct_f32(&weight->value), oct_numel(&weight->value), 1.0F);
    } else if (module->type == &oct_parameter_type || module->type == &oct_add_parameter_type) {
        fill_normal(walk, ((oct_parameter_module *)module)->weight, 0.02F);
    }
    walk->next += (uint32_t)module->num_params;
    return OCT_OK;
}

oct_status oct_init_parameters(oct_module *root, uint64_t seed)
{
    OCT_CHECK(root, OCT_USAGE, "the network whose parameters get initial values is NULL");
    return oct_module_walk(root, init_module, &(init_walk){.seed = seed});
}
