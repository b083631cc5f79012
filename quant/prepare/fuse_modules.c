/* Fuses by hand. The names are the user's, so what is wrong with them is said with the names that
 * there are. */
#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "quant/prepare/fusion.h"
#include "quant/prepare/prepare.h"

#include <stdio.h>
#include <string.h>

typedef struct list {
    const char *const *names;
    oct_module *modules[OCT_MAX_MEMBERS];
    int count;
    const oct_fusion *fusion;
} list;

/* Fails for a name that does not exist, with the names that its container has. */
static oct_status unknown_name(oct_module *root, const char *path)
{
    const char **names, *name = path;
    char known[256], where[256], wanted[64], text[OCT_HINT_BYTES];
    oct_text all = {0};
    oct_module *parent = root;
    for (oct_module *next = root; next; name += next ? strcspn(name, ".") + 1 : 0) {
        parent = next;
        snprintf(known, sizeof known, "%.*s", (int)(name - path) + (int)strcspn(name, "."), path);
        next = oct_module_find(root, known);
    }
    OCT_ASSERT(parent);
    OCT_TRY(oct_alloc(&names, parent->num_children + 1, sizeof *names));
    oct_status status = OCT_OK;
    for (size_t i = 0; i < parent->num_children && status == OCT_OK; i++) {
        names[i] = parent->children[i].name;
        status = oct_text_add(&all, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    snprintf(wanted, sizeof wanted, "%.*s", (int)strcspn(name, "."), name);
    const char *hint = oct_did_you_mean(text, wanted, names, parent->num_children, "");
    if (status == OCT_OK)
        status = oct_fail_add(OCT_PREPARE, "%s: there is no '%s' in %s, which has %s%s%s", path,
                              wanted, *oct_module_path(parent, where) ? where : "the model",
                              all.data ? all.data : "no children", *hint ? "; " : "", hint);
    oct_text_free(&all);
    oct_free(&names);
    return status;
}

/* The first members of a list that are those of a fusion. */
static int begins_as(const list *l, const oct_fusion *fusion)
{
    int i = 0;
    while (i < l->count && i < fusion->count &&
           oct_member_of(l->modules[i]->type) == fusion->members[i])
        i++;
    return i;
}

/* Members that only one of them has, whatever their order. */
static int difference(const list *l, const oct_fusion *fusion)
{
    int count = l->count + fusion->count;
    for (int i = 0; i < l->count; i++)
        count -= 2 * oct_fusion_has(fusion, oct_member_of(l->modules[i]->type));
    return count;
}

static oct_status no_pattern(const list *l)
{
    enum { NEAREST = 3 };
    oct_text members = {0}, nearest = {0};
    oct_status status = OCT_OK;
    int fit = 0, found = 0;
    for (int i = 0; i < l->count && status == OCT_OK; i++)
        status = oct_text_add(&members, "%s%s (%s)", i > 0 ? ", " : "", l->names[i],
                              l->modules[i]->type->name);
    for (int differ = 0; differ <= 2 * OCT_MAX_MEMBERS; differ++)
        for (size_t f = 0; f < oct_fusion_count() && status == OCT_OK; f++) {
            const oct_fusion *fusion = oct_fusion_at(f);
            fit = (int)oct_max_i64(fit, begins_as(l, fusion));
            if (difference(l, fusion) == differ && found < NEAREST)
                status = oct_text_add(&nearest, "%s%s", found++ > 0 ? ", " : "", fusion->name);
        }
    if (status == OCT_OK)
        status =
            oct_fail_add(OCT_PREPARE,
                         "%s: no fusion has this order, none %s with %s; the nearest are %s, "
                         "and quant/prepare/fusion_list.def has all",
                         members.data, fit > 0 ? "goes on" : "begins", l->names[fit], nearest.data);
    oct_text_free(&members);
    oct_text_free(&nearest);
    return status;
}

static oct_status check_list(list *l, bool drop_hooks)
{
    for (int i = 0; i < l->count; i++) {
        const oct_module_type *type = l->modules[i]->type;
        if (type == &oct_qat_conv_type || type == &oct_qat_batch_norm_type ||
            type == &oct_qat_add_type)
            return oct_fail_add(OCT_PREPARE, "%s is fused already (%s); leave it out", l->names[i],
                                type->name);
    }
    for (size_t f = 0; f < oct_fusion_count() && !l->fusion; f++) {
        const oct_fusion *fusion = oct_fusion_at(f);
        if (fusion->count == l->count && begins_as(l, fusion) == l->count) l->fusion = fusion;
    }
    if (!l->fusion) return no_pattern(l);
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

/* Notes which member follows which: prepare refuses the fusion where the traced calls contradict it (fuse.c). */
static void set_order(const list *l, int at, oct_module *made)
{
    for (int i = 0; i < l->count; i++) {
        oct_identity_module *member = (oct_identity_module *)l->modules[i];
        if (i == at) continue;
        member->fused = true;
        if (i > 0) member->follows = i - 1 == at ? made : l->modules[i - 1];
    }
    if (at > 0) ((oct_qat_conv *)made)->operand = (oct_identity_module *)l->modules[at - 1];
}

static oct_status fuse(oct_module **root, list *l)
{
    int at = oct_fusion_runs_at(l->fusion);
    oct_module *taken[OCT_MAX_MEMBERS] = {0}, *made = NULL;
    oct_status status = OCT_OK;
    for (int i = 0; i < l->count && status == OCT_OK; i++) {
        oct_drop_hooks(l->modules[i], i > 0, i < l->count - 1);
        oct_module *old = l->modules[i];
        if (status == OCT_OK) status = oct_replace_by_identity(root, old, &l->modules[i]);
        if (status == OCT_OK) taken[i] = old;
    }
    if (status == OCT_OK) status = make_fused(l->fusion, taken, &made);
    /* The clip that is the last member; NULL: it was taken over. */
    const oct_clip_module *clip = (const oct_clip_module *)taken[l->count - 1];
    if (status == OCT_OK && clip && clip->base.type == &oct_clip_type)
        oct_qat_set_clip(made, (oct_clip_bounds){clip->args.lo, clip->args.hi});
    for (int i = 0; i < l->count; i++)
        oct_module_destroy(&taken[i]);
    if (status != OCT_OK) return status;
    oct_module *holder = l->modules[at], *last = l->modules[l->count - 1];
    set_order(l, at, made);
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

static oct_status fuse_lists(oct_module **root, list *lists, size_t count, bool drop_hooks)
{
    oct_status status = OCT_OK;
    oct_fail_clear();
    for (list *l = lists; l < lists + count; l++)
        for (int i = 0; i < l->count; i++) {
            l->modules[i] = oct_module_find(*root, l->names[i]);
            if (!l->modules[i]) status = unknown_name(*root, l->names[i]);
        }
    if (status == OCT_OK) status = check_twice(lists, count);
    for (size_t i = 0; i < count && oct_fail_count() == 0; i++)
        status = check_list(&lists[i], drop_hooks);
    for (size_t i = 0; i < count && status == OCT_OK; i++)
        status = fuse(root, &lists[i]);
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
    OCT_TRY(check_count(count));
    list one = {.names = names, .count = (int)count};
    return fuse_lists(root, &one, 1, drop_hooks);
}

oct_status oct_fuse_module_lists(oct_module **root, const char *const *const *lists,
                                 bool drop_hooks)
{
    size_t count = 0;
    oct_status status = OCT_OK;
    list *all = NULL;
    while (lists[count])
        count++;
    OCT_TRY(oct_alloc(&all, count, sizeof *all));
    for (size_t i = 0; i < count; i++) {
        size_t names = 0;
        while (lists[i][names])
            names++;
        OCT_TRY_OUT(check_count(names));
        all[i] = (list){.names = lists[i], .count = (int)names};
    }
    status = fuse_lists(root, all, count, drop_hooks);
out:
    oct_free(&all);
    return status;
}
