/* The fusions of fusion_list.def, and fusing by hand: the names are the user's, so what is wrong with them is said with
 * the names that there are. */
#include "quant/prepare/fusion.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <string.h>

#define CONV OCT_MEMBER_CONV
#define LINEAR OCT_MEMBER_LINEAR
#define BN OCT_MEMBER_BN
#define ADD OCT_MEMBER_ADD
#define RELU OCT_MEMBER_RELU
#define RELU6 OCT_MEMBER_RELU6
#define CLIP OCT_MEMBER_CLIP

const oct_fusion oct_fusions[] = {
#define OCT_FUSION(title, ...)                                                                     \
    {.name = #title,                                                                               \
     .members = {__VA_ARGS__},                                                                     \
     .count = (int)OCT_COUNT(((const oct_member[]){__VA_ARGS__}))},
#include "quant/prepare/fusion_list.def"
#undef OCT_FUSION
    {.name = NULL},
};

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

oct_status oct_members_agree(oct_module *const *members, int count)
{
    oct_status status = OCT_OK;
    const oct_path_text a = oct_module_path(members[0]);
    for (int i = 1; i < count; i++) {
        const oct_path_text b = oct_module_path(members[i]);
        if (members[i]->training != members[0]->training)
            status = oct_fail_add(OCT_PREPARE,
                                  "%s is in %s mode and %s in %s mode; bring both into the same "
                                  "mode with oct_module_train before they are fused",
                                  a.text, members[0]->training ? "train" : "eval", b.text,
                                  members[i]->training ? "train" : "eval");
        if (oct_member_of(members[i]->type) != BN || !oct_is_layer(oct_member_of(members[0]->type)))
            continue;
        int64_t channels = ((const oct_batch_norm_module *)members[i])->args.channels;
        const int64_t made = oct_dim(&oct_layer_weight(members[0])->value, 0);
        if (channels != made)
            status =
                oct_fail_add(OCT_PREPARE,
                             "%s has %lld channels and %s makes %lld; they cannot be fused, so "
                             "give the batch norm the channels of the layer",
                             b.text, (long long)channels, a.text, (long long)made);
    }
    return status;
}

oct_status oct_fusion_check_hooks(oct_module *const *members, int count)
{
    oct_status status = OCT_OK;
    for (int i = 0; i < count; i++) {
        if (!members[i]) continue;
        if (i > 0 && members[i]->pre_hooks)
            status = oct_fail_add(OCT_PREPARE,
                                  "%s: its forward-pre hook would be lost when it is fused; put it "
                                  "on the first of the fused modules, or drop hooks (drop_hooks)",
                                  oct_module_path(members[i]).text);
        if (i < count - 1 && members[i]->hooks)
            status = oct_fail_add(
                OCT_PREPARE,
                "%s: its forward hook would be lost when it is fused; %s, or drop "
                "hooks (drop_hooks)",
                oct_module_path(members[i]).text,
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

/* Fusing by hand. */

typedef struct list {
    const char *const *names;
    oct_module *modules[OCT_MAX_MEMBERS];
    int count;
    const oct_fusion *fusion;
} list;

/* Fails for a name that does not exist, with the names that its container has. */
static oct_status refuse_unknown_name(oct_module *root, const char *path)
{
    OCT_OWNED(oct_free) const char **names = NULL;
    const char *name = path;
    char known[256], wanted[64], text[OCT_HINT_BYTES];
    OCT_OWNED(oct_text_free) oct_text all = {0};
    oct_module *parent = root;
    for (oct_module *next = root; next; name += next ? strcspn(name, ".") + 1 : 0) {
        parent = next;
        snprintf(known, sizeof known, "%.*s", (int)(name - path) + (int)strcspn(name, "."), path);
        next = oct_module_find(root, known);
    }
    OCT_ASSERT(parent);
    OCT_TRY(oct_alloc(&names, parent->num_children + 1, sizeof *names));
    for (size_t i = 0; i < parent->num_children; i++) {
        names[i] = parent->children[i].name;
        OCT_TRY(oct_text_add(&all, "%s%s", i > 0 ? ", " : "", names[i]));
    }
    snprintf(wanted, sizeof wanted, "%.*s", (int)strcspn(name, "."), name);
    const char *hint = oct_did_you_mean(text, wanted, names, parent->num_children, "");
    return oct_fail_add(OCT_PREPARE, "%s: there is no '%s' in %s, which has %s%s%s", path, wanted,
                        parent->parent ? oct_module_path(parent).text : "the model",
                        all.data ? all.data : "no children", *hint ? "; " : "", hint);
}

/* How many members a list and a fusion have in common at their beginning. */
static int count_common_members(const list *l, const oct_fusion *fusion)
{
    int i = 0;
    while (i < l->count && i < fusion->count &&
           oct_member_of(l->modules[i]->type) == fusion->members[i])
        i++;
    return i;
}

/* How many members only one of them has, whatever their order. */
static int count_different_members(const list *l, const oct_fusion *fusion)
{
    int count = l->count + fusion->count;
    for (int i = 0; i < l->count; i++)
        count -= 2 * oct_fusion_has(fusion, oct_member_of(l->modules[i]->type));
    return count;
}

/* Fails: no fusion has these members in this order; names the fusions that differ least. */
static oct_status refuse_unknown_order(const list *l)
{
    enum { NEAREST = 3 };
    OCT_OWNED(oct_text_free) oct_text members = {0}, nearest = {0};
    int fit = 0, found = 0;
    for (int i = 0; i < l->count; i++)
        OCT_TRY(oct_text_add(&members, "%s%s (%s)", i > 0 ? ", " : "", l->names[i],
                             l->modules[i]->type->name));
    for (int differ = 0; differ <= 2 * OCT_MAX_MEMBERS; differ++)
        for (const oct_fusion *fusion = oct_fusions; fusion->name; fusion++) {
            fit = (int)oct_max_i64(fit, count_common_members(l, fusion));
            if (count_different_members(l, fusion) == differ && found < NEAREST)
                OCT_TRY(oct_text_add(&nearest, "%s%s", found++ > 0 ? ", " : "", fusion->name));
        }
    return oct_fail_add(OCT_PREPARE,
                        "%s: no fusion has this order, none %s with %s; the nearest are %s, and "
                        "quant/prepare/fusion_list.def has all",
                        members.data, fit > 0 ? "goes on" : "begins", l->names[fit], nearest.data);
}

/* Finds the fusion of a list, whose members and hooks must allow it. */
static oct_status find_fusion(list *l, bool drop_hooks)
{
    for (int i = 0; i < l->count; i++) {
        OCT_ASSERT(l->modules[i]);
        const oct_module_type *type = l->modules[i]->type;
        if (type == &oct_qat_conv_type || type == &oct_qat_batch_norm_type ||
            type == &oct_qat_add_type)
            return oct_fail_add(OCT_PREPARE, "%s is fused already (%s); leave it out", l->names[i],
                                type->name);
    }
    for (const oct_fusion *f = oct_fusions; f->name && !l->fusion; f++)
        if (f->count == l->count && count_common_members(l, f) == l->count) l->fusion = f;
    if (!l->fusion) return refuse_unknown_order(l);
    OCT_TRY(oct_members_agree(l->modules, l->count));
    return drop_hooks ? OCT_OK : oct_fusion_check_hooks(l->modules, l->count);
}

/* Refuses a module that is named twice, in one list or in two. */
static oct_status check_twice(const list *lists, size_t count)
{
    for (size_t a = 0; a < count; a++)
        for (int i = 0; i < lists[a].count; i++)
            for (size_t b = 0; b <= a; b++)
                for (int k = 0; k < (b == a ? i : lists[b].count); k++)
                    if (lists[a].modules[i] == lists[b].modules[k])
                        return oct_fail_add(OCT_PREPARE,
                                            "%s is named twice; a module can be fused once",
                                            lists[a].names[i]);
    return OCT_OK;
}

/* Makes the fused module of its members, which it takes over. */
static oct_status make_fused(const oct_fusion *fusion, oct_module **taken, oct_module **made)
{
    oct_activation activation = oct_fusion_activation(fusion);
    oct_module **norm = NULL, *none = NULL;
    for (int i = 0; i < fusion->count; i++)
        if (fusion->members[i] == OCT_MEMBER_BN) norm = &taken[i];
    if (oct_is_layer(fusion->members[0]))
        return oct_qat_conv_create(made, &taken[0], norm ? norm : &none,
                                   oct_fusion_has(fusion, OCT_MEMBER_ADD), activation);
    if (norm) return oct_qat_batch_norm_create(made, norm, activation);
    return oct_qat_add_create(made, activation);
}

/* Notes which member of a fused list follows which; the fused module has the place of member `place`, identities have
 * the others. prepare refuses the fusion where the traced calls contradict it (prepare.c). */
static void set_order(const list *l, int place, oct_module *made)
{
    for (int i = 0; i < l->count; i++) {
        oct_identity_module *member = (oct_identity_module *)l->modules[i];
        if (i == place) continue;
        member->fused = true;
        if (i > 0) member->follows = i - 1 == place ? made : l->modules[i - 1];
    }
    if (place > 0) ((oct_qat_conv *)made)->operand = (oct_identity_module *)l->modules[place - 1];
}

/* Fuses a list: the fused module takes the place of one member, identities those of the others. */
static oct_status fuse_list(oct_module **root, list *l)
{
    int place = oct_fusion_runs_at(l->fusion);
    oct_module *taken[OCT_MAX_MEMBERS] = {0}, *made = NULL;
    oct_status status = OCT_OK;
    for (int i = 0; i < l->count && status == OCT_OK; i++) {
        oct_drop_hooks(l->modules[i], i > 0, i < l->count - 1);
        oct_module *old = l->modules[i];
        status = oct_replace_by_identity(root, old, &l->modules[i]);
        if (status == OCT_OK) taken[i] = old;
    }
    if (status == OCT_OK) status = make_fused(l->fusion, taken, &made);
    /* The clip that is the last member; NULL: it was taken over. */
    const oct_clip_module *clip = (const oct_clip_module *)taken[l->count - 1];
    if (status == OCT_OK && clip && clip->base.type == &oct_clip_type)
        ((oct_quantized *)made)->clip = clip->args;
    for (int i = 0; i < l->count; i++)
        oct_module_destroy(&taken[i]);
    if (status != OCT_OK) return status;
    oct_module *holder = l->modules[place], *last = l->modules[l->count - 1];
    set_order(l, place, made);
    status = oct_module_replace(root, holder, made);
    if (status != OCT_OK) {
        oct_module_destroy(&made);
        return status;
    }
    oct_hooks_move(&holder->pre_hooks, &made->pre_hooks);
    oct_hooks_move(&last->hooks, &made->hooks);
    oct_module_destroy(&holder);
    return OCT_OK;
}

/* Fuses all lists, or none where one is wrong: all are checked before the first one is fused. */
static oct_status fuse_lists(oct_module **root, list *lists, size_t count, bool drop_hooks)
{
    oct_status status = OCT_OK;
    oct_fail_clear();
    for (list *l = lists; l < lists + count; l++)
        for (int i = 0; i < l->count; i++) {
            OCT_CHECK(l->names[i], OCT_USAGE, "oct_fuse_modules: name %d is NULL", i);
            l->modules[i] = oct_module_find(*root, l->names[i]);
            if (!l->modules[i]) status = refuse_unknown_name(*root, l->names[i]);
        }
    if (status == OCT_OK) status = check_twice(lists, count);
    for (size_t i = 0; i < count && status == OCT_OK; i++)
        status = find_fusion(&lists[i], drop_hooks);
    for (size_t i = 0; i < count && status == OCT_OK; i++)
        status = fuse_list(root, &lists[i]);
    return status;
}

static oct_status check_count(size_t count)
{
    OCT_CHECK(count >= 2 && count <= OCT_MAX_MEMBERS, OCT_PREPARE,
              "%zu names are to be fused; give 2 to %d that follow each other", count,
              OCT_MAX_MEMBERS);
    return OCT_OK;
}

oct_status oct_fuse_modules(oct_module **root, const char *const *names, size_t count,
                            bool drop_hooks)
{
    OCT_CHECK(root && *root && names, OCT_USAGE, "oct_fuse_modules: root or names is NULL");
    OCT_TRY(check_count(count));
    list one = {.names = names, .count = (int)count};
    return fuse_lists(root, &one, 1, drop_hooks);
}

oct_status oct_fuse_module_lists(oct_module **root, const char *const *const *lists,
                                 bool drop_hooks)
{
    size_t count = 0;
    OCT_OWNED(oct_free) list *all = NULL;
    OCT_CHECK(root && *root && lists, OCT_USAGE, "oct_fuse_module_lists: root or lists is NULL");
    while (lists[count])
        count++;
    OCT_TRY(oct_alloc(&all, count, sizeof *all));
    for (size_t i = 0; i < count; i++) {
        size_t names = 0;
        while (lists[i][names])
            names++;
        OCT_TRY(check_count(names));
        all[i] = (list){.names = lists[i], .count = (int)names};
    }
    return fuse_lists(root, all, count, drop_hooks);
}
