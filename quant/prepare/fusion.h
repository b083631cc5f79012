/* The fusions of fusion_list.def, for prepare and for fusing by name. */
#pragma once

#include "core/nn/modules.h"
#include "quant/module/quant_modules.h"

typedef enum oct_member {
    OCT_MEMBER_NONE, /* no fusion has it */
    OCT_MEMBER_CONV,
    OCT_MEMBER_LINEAR,
    OCT_MEMBER_BN,
    OCT_MEMBER_ADD,
    OCT_MEMBER_RELU,
    OCT_MEMBER_RELU6,
    OCT_MEMBER_CLIP,
} oct_member;

enum { OCT_MAX_MEMBERS = 4 };

typedef struct oct_fusion {
    const char *name;
    oct_member members[OCT_MAX_MEMBERS]; /* NONE after the last */
    int count;
} oct_fusion;

extern const oct_fusion oct_fusions[]; /* longest first, up to one without a name */

oct_member oct_member_of(const oct_module_type *type); /* of a float module; NULL is fine */
bool oct_fusion_has(const oct_fusion *fusion, oct_member member);
oct_activation oct_fusion_activation(const oct_fusion *fusion);
/* The member in whose place the fused module runs: the add, where both operands are there, or else
 * the first one. */
int oct_fusion_runs_at(const oct_fusion *fusion);
bool oct_is_layer(oct_member member); /* has weights: CONV or LINEAR */

/* Checks that modules of types that fit can be fused: they are in one mode, and the batch norm has
 * the layer's channels. Adds to the record what does not agree, naming both modules. */
oct_status oct_members_agree(oct_module *const *members, int count);

/* Fails for each hook that fusing these modules, in this order, would lose (NULL: an op): a pre hook of
 * all but the first one, a forward hook of all but the last one. */
oct_status oct_fusion_check_hooks(oct_module *const *members, int count);

/* Drops hooks; their handles become void. */
void oct_drop_hooks(oct_module *module, bool pre, bool post);
/* Puts a module in the place of `old`, which is detached, and moves the hooks to it. */
oct_status oct_replace_with_hooks(oct_module **root, oct_module *old, oct_module *made);
/* Puts a new identity in the place of `old` in the same way; it is in the tree then. */
oct_status oct_replace_by_identity(oct_module **root, oct_module *old, oct_module **identity);
