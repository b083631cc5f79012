/* Fusing by hand: the names are the user's, so what is wrong with them is said with the names that
 * there are. */
#include "core/base/mem.h"
#include "quant/pass/prepare/fusion.h"
#include "quant/pass/prepare/prepare.h"

#include <stdio.h>
#include <string.h>

typedef struct list {
    const char *const *names;
    oct_module *modules[OCT_MAX_MEMBERS];
    int count;
    const oct_fusion *fusion;
} list;

static oct_module *child_named(const oct_module *m, const char *name, size_t length)
{
    for (size_t i = 0; i < m->num_children; i++)
        if (strlen(m->children[i].name) == length && memcmp(m->children[i].name, name, length) == 0)
            return *m->children[i].slot;
    return NULL;
}

/* A sentence for a name that does not exist, with what stands where it was looked for. */
static oct_status unknown_name(const oct_module *place, const char *path, const char *name,
                               size_t length)
{
    const char **names;
    char where[256], wanted[64], text[OCT_HINT_BYTES];
    oct_text all = {0};
    OCT_TRY(oct_alloc(&names, place->num_children + 1, sizeof *names));
    oct_status status = OCT_OK;
    for (size_t i = 0; i < place->num_children && status == OCT_OK; i++) {
        names[i] = place->children[i].name;
        status = oct_text_add(&all, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    snprintf(wanted, sizeof wanted, "%.*s", (int)length, name);
    const char *hint = oct_did_you_mean(text, wanted, names, place->num_children, "");
    if (status == OCT_OK)
        status = oct_fail_add(OCT_PREPARE, "%s: there is no '%s' in %s, which has %s%s%s", path,
                              wanted, *oct_module_path(place, where) ? where : "the model",
                              all.data ? all.data : "no parts", *hint ? "; " : "", hint);
    oct_text_free(&all);
    oct_free(&names);
    return status;
}

static oct_status find(oct_module *root, const char *path, oct_module **found)
{
    oct_module *place = root;
    *found = NULL;
    for (const char *name = path;;) {
        size_t length = strcspn(name, ".");
        oct_module *child = child_named(place, name, length);
        if (!child) return unknown_name(place, path, name, length);
        place = child;
        name += length;
        if (!*name) break;
        name++;
    }
    *found = place;
    return OCT_OK;
}

static bool is_fused(const oct_module *m)
{
    return m->type == &oct_qat_conv_type || m->type == &oct_qat_batch_norm_type ||
           m->type == &oct_qat_add_type;
}

static const oct_fusion *fitting(const list *l)
{
    for (size_t f = 0; f < oct_fusion_count(); f++) {
        const oct_fusion *fusion = oct_fusion_at(f);
        bool fits = fusion->count == l->count;
        for (int i = 0; i < l->count && fits; i++)
            fits = oct_member_of(l->modules[i]->type) == fusion->members[i];
        if (fits) return fusion;
    }
    return NULL;
}

static oct_status no_pattern(const list *l)
{
    oct_text names = {0}, types = {0}, patterns = {0};
    oct_status status = OCT_OK;
    for (int i = 0; i < l->count && status == OCT_OK; i++) {
        status = oct_text_add(&names, "%s%s", i > 0 ? ", " : "", l->names[i]);
        if (status == OCT_OK)
            status = oct_text_add(&types, "%s%s", i > 0 ? ", " : "", l->modules[i]->type->name);
    }
    for (size_t f = 0; f < oct_fusion_count() && status == OCT_OK; f++)
        status = oct_text_add(&patterns, "%s%s", patterns.length > 0 ? ", " : "",
                              oct_fusion_at(f)->name);
    if (status == OCT_OK)
        status = oct_fail_add(OCT_PREPARE,
                              "%s: no fusion fits %s in this order; these can be fused by name: %s",
                              names.data, types.data, patterns.data);
    oct_text_free(&names);
    oct_text_free(&types);
    oct_text_free(&patterns);
    return status;
}

static oct_status check_hooks(const list *l)
{
    oct_status status = OCT_OK;
    for (int i = 0; i < l->count; i++) {
        if (i > 0 && l->modules[i]->pre_hooks)
            status =
                oct_fail_add(OCT_PREPARE,
                             "%s: its forward-pre hook would be lost when it is fused with %s; "
                             "put it on %s, the first one, or let fusing drop hooks",
                             l->names[i], l->names[0], l->names[0]);
        if (i < l->count - 1 && l->modules[i]->hooks)
            status = oct_fail_add(OCT_PREPARE,
                                  "%s: its forward hook would be lost when it is fused; put it on "
                                  "%s, the last one, or let fusing drop hooks",
                                  l->names[i], l->names[l->count - 1]);
    }
    return status;
}

static oct_status resolve(oct_module *root, list *l)
{
    oct_status status = OCT_OK;
    for (int i = 0; i < l->count; i++) {
        oct_status one = find(root, l->names[i], &l->modules[i]);
        if (one != OCT_OK) status = one;
    }
    return status;
}

static oct_status check_list(list *l, bool drop_hooks)
{
    for (int i = 0; i < l->count; i++)
        if (is_fused(l->modules[i]))
            return oct_fail_add(OCT_PREPARE, "%s is fused already (%s); leave it out", l->names[i],
                                l->modules[i]->type->name);
    l->fusion = fitting(l);
    if (!l->fusion) return no_pattern(l);
    OCT_TRY(oct_members_agree(l->modules, l->count));
    return drop_hooks ? OCT_OK : check_hooks(l);
}

/* No module twice, in one list or in two. */
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

/* Takes a module out of its slot; an identity holds it, with the hooks that live on. */
static oct_status take_out(oct_module **root, oct_module **module)
{
    oct_module *identity = NULL;
    OCT_TRY(oct_identity_create(&identity));
    oct_status status = oct_module_replace(root, *module, identity);
    if (status != OCT_OK) {
        oct_module_destroy(&identity);
        return status;
    }
    oct_hooks_move(&(*module)->pre_hooks, &identity->pre_hooks);
    oct_hooks_move(&(*module)->hooks, &identity->hooks);
    *module = identity;
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
    return oct_qat_add_create(made, activation == OCT_ACT_RELU);
}

/* Where the fused module stands: in the first member's place; with a sum in the sum's, since there both
 * addends are at hand. */
static int place_of(const oct_fusion *fusion)
{
    for (int i = 0; i < fusion->count; i++)
        if (fusion->members[i] == OCT_MEMBER_ADD) return i;
    return 0;
}

static oct_tensor *note_handed_on(oct_context *cx, oct_module *module, oct_tensor *value,
                                  void *fused)
{
    (void)cx, (void)module;
    ((oct_qat_conv *)fused)->handed_on = value->data;
    return NULL;
}

/* The identity before the sum tells the fused module which addend is its own. */
static oct_status watch_order(oct_module *before, oct_module *made)
{
    ((oct_qat_conv *)made)->ordered = true;
    return oct_module_hook(before, note_handed_on, made, NULL);
}

static oct_status fuse(oct_module **root, list *l)
{
    int place = place_of(l->fusion);
    oct_module *taken[OCT_MAX_MEMBERS] = {0}, *made = NULL;
    oct_status status = OCT_OK;
    for (int i = 0; i < l->count && status == OCT_OK; i++) {
        status = oct_drop_hooks(l->modules[i], i > 0, i < l->count - 1);
        taken[i] = l->modules[i];
        if (status == OCT_OK) status = take_out(root, &l->modules[i]);
        if (status != OCT_OK) taken[i] = NULL;
    }
    if (status == OCT_OK) status = make_fused(l->fusion, taken, &made);
    for (int i = 0; i < l->count; i++)
        oct_module_destroy(&taken[i]);
    if (status != OCT_OK) return status;
    oct_module *holder = l->modules[place], *last = l->modules[l->count - 1];
    if (place > 0) status = watch_order(l->modules[place - 1], made);
    if (status == OCT_OK) status = oct_module_replace(root, holder, made);
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
    for (size_t i = 0; i < count; i++) {
        oct_status one = resolve(*root, &lists[i]);
        if (one != OCT_OK) status = one;
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
