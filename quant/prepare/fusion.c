#include "quant/prepare/fusion.h"

#include <string.h>

#define CONV OCT_MEMBER_CONV
#define LINEAR OCT_MEMBER_LINEAR
#define BN OCT_MEMBER_BN
#define ADD OCT_MEMBER_ADD
#define RELU OCT_MEMBER_RELU
#define RELU6 OCT_MEMBER_RELU6
#define CLIP OCT_MEMBER_CLIP

static const oct_fusion fusions[] = {
#define OCT_FUSION(title, ...)                                                                     \
    {.name = #title,                                                                               \
     .members = {__VA_ARGS__},                                                                     \
     .count = (int)OCT_COUNT(((const oct_member[]){__VA_ARGS__}))},
#include "quant/prepare/fusion_list.def"
#undef OCT_FUSION
};

size_t oct_fusion_count(void)
{
    return OCT_COUNT(fusions);
}

const oct_fusion *oct_fusion_at(size_t i)
{
    return &fusions[i];
}

oct_member oct_member_of(const oct_module_type *type)
{
    static const struct {
        const oct_module_type *type;
        oct_member member;
    } table[] = {
        {&oct_conv2d_type, CONV},   {&oct_conv_transpose2d_type, CONV},
        {&oct_linear_type, LINEAR}, {&oct_batch_norm_type, BN},
        {&oct_add_type, ADD},       {&oct_relu_type, RELU},
        {&oct_relu6_type, RELU6},   {&oct_clip_type, CLIP},
    };
    for (size_t i = 0; i < OCT_COUNT(table); i++)
        if (table[i].type == type) return table[i].member;
    return OCT_MEMBER_NONE;
}

int oct_fusion_runs_at(const oct_fusion *fusion)
{
    for (int i = 0; i < fusion->count; i++)
        if (fusion->members[i] == ADD) return i;
    return 0;
}

bool oct_fusion_has(const oct_fusion *fusion, oct_member member)
{
    for (int i = 0; i < fusion->count; i++)
        if (fusion->members[i] == member) return true;
    return false;
}

oct_activation oct_fusion_activation(const oct_fusion *fusion)
{
    if (oct_fusion_has(fusion, RELU)) return OCT_ACT_RELU;
    if (oct_fusion_has(fusion, CLIP)) return OCT_ACT_CLIP;
    return oct_fusion_has(fusion, RELU6) ? OCT_ACT_RELU6 : OCT_ACT_NONE;
}

bool oct_is_layer(oct_member member)
{
    return member == CONV || member == LINEAR;
}

int64_t oct_layer_channels(const oct_module *layer)
{
    return layer->type == &oct_linear_type ? ((const oct_linear_module *)layer)->args.out_features
                                           : ((const oct_conv2d_module *)layer)->args.out_channels;
}

int64_t oct_layer_products(const oct_module *layer)
{
    if (layer->type == &oct_linear_type)
        return ((const oct_linear_module *)layer)->args.in_features;
    const oct_conv2d_module *c = (const oct_conv2d_module *)layer;
    return c->args.in_channels / c->args.geometry.groups * c->args.geometry.kernel_h *
           c->args.geometry.kernel_w;
}

oct_status oct_members_agree(oct_module *const *members, int count)
{
    char a[256], b[256];
    oct_status status = OCT_OK;
    oct_module_path(members[0], a);
    for (int i = 1; i < count; i++) {
        oct_module_path(members[i], b);
        if (members[i]->training != members[0]->training)
            status = oct_fail_add(OCT_PREPARE,
                                  "%s is in %s mode and %s in %s mode; bring both into the same "
                                  "mode with oct_module_train before they are fused",
                                  a, members[0]->training ? "train" : "eval", b,
                                  members[i]->training ? "train" : "eval");
        if (oct_member_of(members[i]->type) != BN || !oct_is_layer(oct_member_of(members[0]->type)))
            continue;
        int64_t channels = ((const oct_batch_norm_module *)members[i])->args.channels;
        if (channels != oct_layer_channels(members[0]))
            status =
                oct_fail_add(OCT_PREPARE,
                             "%s has %lld channels and %s makes %lld; they cannot be fused, so "
                             "give the batch norm the channels of the layer",
                             b, (long long)channels, a, (long long)oct_layer_channels(members[0]));
    }
    return status;
}

oct_status oct_fusion_check_hooks(oct_module *const *members, int count)
{
    char path[256];
    oct_status status = OCT_OK;
    for (int i = 0; i < count; i++) {
        if (!members[i]) continue;
        if (i > 0 && members[i]->pre_hooks)
            status = oct_fail_add(OCT_PREPARE,
                                  "%s: its forward-pre hook would be lost when it is fused; put it "
                                  "on the first of the fused modules, or drop hooks (drop_hooks)",
                                  oct_module_path(members[i], path));
        if (i < count - 1 && members[i]->hooks)
            status = oct_fail_add(
                OCT_PREPARE,
                "%s: its forward hook would be lost when it is fused; %s, or drop "
                "hooks (drop_hooks)",
                oct_module_path(members[i], path),
                members[count - 1] ? "put it on the last of the fused modules"
                                   : "it is fused up to an op of the forward, which has no "
                                     "hooks: make that a module and put the hook there");
    }
    return status;
}

void oct_drop_hooks(oct_module *module, bool pre, bool post)
{
    if (pre) oct_hooks_free(&module->pre_hooks);
    if (post) oct_hooks_free(&module->hooks);
}

oct_status oct_replace_with_hooks(oct_module **root, oct_module *old, oct_module *made)
{
    OCT_TRY(oct_module_replace(root, old, made));
    oct_hooks_move(&old->pre_hooks, &made->pre_hooks);
    oct_hooks_move(&old->hooks, &made->hooks);
    return OCT_OK;
}

oct_status oct_replace_by_identity(oct_module **root, oct_module *old, oct_module **identity)
{
    OCT_TRY(oct_identity_create(identity));
    oct_status status = oct_replace_with_hooks(root, old, *identity);
    if (status != OCT_OK) oct_module_destroy(identity);
    return status;
}
