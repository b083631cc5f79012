/* The arrays of a checkpoint are listed here, for saving and for loading, and loaded: everything is read into memory of
 * its own before the first value of the model changes. */
#include "io/checkpoint/checkpoint_impl.h"

#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/hdf5/hdf5.h"
#include "quant/module/quant_modules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes "state/layers/0/conv/weight" of "layers.0.conv.weight". */
static void make_item_path(char path[OCT_ITEM_PATH], const char *name)
{
    snprintf(path, OCT_ITEM_PATH, "state/%s", name);
    for (char *dot = path; (dot = strchr(dot, '.'));)
        *dot = '/';
}

/* Makes "head.2.bias" of "state/head/2/bias". */
static void make_module_path(char name[OCT_ITEM_PATH], const char *path)
{
    snprintf(name, OCT_ITEM_PATH, "%s", path + strlen("state/"));
    for (char *slash = name; (slash = strchr(slash, '/'));)
        *slash = '.';
}

/* The list that is made, and where its values come from: the model, or the averages. */
typedef struct listing {
    oct_saved_arrays *list;
    const oct_average *average; /* NULL: there are none */
    bool averages_beside; /* false: averages are in the model, and beside it what is trained */
} listing;

/* Adds a tensor to the list, under its path in the file. buffer: a forward may change it. */
static oct_status add_array(oct_saved_arrays *list, const char *path, const oct_tensor *tensor,
                            oct_value_range range, bool buffer)
{
    OCT_TRY(oct_grow(&list->items, &list->capacity, list->count + 1, sizeof *list->items));
    oct_saved_array *a = &list->items[list->count];
    *a = (oct_saved_array){.dtype = tensor->dtype,
                           .shape = tensor->shape,
                           .data = tensor->data,
                           .range = range,
                           .bytes = (size_t)oct_numel(tensor) * oct_dtype_bytes(tensor->dtype),
                           .offset = list->bytes,
                           .buffer = buffer};
    OCT_TRY(oct_strdup(&a->path, path));
    list->count++;
    list->bytes += a->bytes;
    return OCT_OK;
}

/* Adds an item of the model's state, by its average where it has one beside it. */
static oct_status add_item(void *user, const oct_state_item *item)
{
    char path[OCT_ITEM_PATH];
    const listing *l = user;
    oct_tensor tensor = *item->tensor;
    float *average =
        l->average && l->averages_beside ? oct_average_of(l->average, item->tensor) : NULL;
    if (average) tensor.data = average;
    make_item_path(path, item->path);
    return add_array(l->list, path, &tensor, item->range, !item->param);
}

/* Adds an averaged parameter as it is trained, which the file has beside its average (optimizer/trained). */
static oct_status add_trained(void *user, const oct_state_item *item)
{
    char path[OCT_ITEM_PATH + sizeof "optimizer/trained/"], name[OCT_ITEM_PATH];
    const listing *l = user;
    oct_tensor tensor = *item->tensor;
    float *beside = oct_average_of(l->average, item->tensor);
    if (!beside) return OCT_OK;
    if (!l->averages_beside) tensor.data = beside;
    make_item_path(name, item->path);
    snprintf(path, sizeof path, "optimizer/trained/%s", name + strlen("state/"));
    return add_array(l->list, path, &tensor, item->range, !item->param);
}

oct_status oct_saved_arrays_list(oct_saved_arrays *list, oct_module *root, const oct_optim *optim,
                                 bool averaged, bool averages_beside)
{
    char path[OCT_ITEM_PATH];
    listing l = {list, optim && averaged ? &optim->average : NULL, averages_beside};
    OCT_TRY(oct_module_state(root, add_item, &l));
    for (int i = 0; optim && i < optim->num_slots; i++) {
        const oct_tensor slot = {
            .dtype = OCT_F32, .shape = OCT_SHAPE(optim->numel), .data = optim->slot[i]};
        snprintf(path, sizeof path, "optimizer/%s", optim->type->slot[i]);
        OCT_TRY(add_array(list, path, &slot, (oct_value_range){0}, false));
    }
    if (optim && optim->num_tiers > 0) {
        const oct_tensor tiers = {
            .dtype = OCT_S64, .shape = OCT_SHAPE(optim->num_tiers), .data = optim->tiers};
        const oct_value_range counts = {0, 1e6};
        OCT_TRY(add_array(list, "optimizer/gradient_tiers", &tiers, counts, false));
    }
    return l.average ? oct_module_state(root, add_trained, &l) : OCT_OK;
}

void oct_saved_arrays_free(oct_saved_arrays *list)
{
    for (size_t i = 0; i < list->count; i++)
        oct_free(&list->items[i].path);
    oct_free(&list->items);
    *list = (oct_saved_arrays){0};
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const oct_saved_array *)a)->path, ((const oct_saved_array *)b)->path);
}

static int compare_with_path(const void *path, const void *array)
{
    return strcmp(path, ((const oct_saved_array *)array)->path);
}

/* Lists the arrays that a model wants, sorted by path. */
static oct_status list_wanted(oct_saved_arrays *list, oct_module *root, const oct_optim *optim,
                              bool averaged)
{
    OCT_TRY(oct_saved_arrays_list(list, root, optim, averaged, false));
    if (list->count > 0) qsort(list->items, list->count, sizeof *list->items, compare_paths);
    return OCT_OK;
}

/* Whether a data set of the file is one of those listed (sorted by path), or of its info. */
static bool is_known(const oct_saved_arrays *list, const char *path)
{
#define X(name) "info/" #name,
    static const char *const info[] = {
        "info/format",  "info/step",        "info/updates",
        "info/phase",   "info/recipe",      "info/class_names",
        "info/skipped", "info/skipped_row", OCT_EARLY_STOPPING_NUMBERS(X) "info/best_value_bits"};
#undef X
    for (size_t i = 0; i < OCT_COUNT(info); i++)
        if (strcmp(info[i], path) == 0) return true;
    return list->count > 0 &&
           bsearch(path, list->items, list->count, sizeof *list->items, compare_with_path);
}

/* The file must hold exactly the wanted items, no fewer and no more; its optimizer only where that is wanted. */
static oct_status check_items(oct_h5 *h5, const char *file, const oct_saved_arrays *list,
                              bool optimizer)
{
    enum { NAMED = 3 };
    const char *first_missing = NULL, *path;
    size_t missing = 0, surplus = 0;
    OCT_OWNED(oct_text_free) oct_text names = {0};

    for (size_t i = list->count; i-- > 0;) {
        if (oct_h5_has(h5, list->items[i].path)) continue;
        first_missing = list->items[i].path;
        missing++;
    }
    OCT_CHECK(
        missing == 0, OCT_DATA,
        "%s: is a checkpoint of another model: it lacks %zu of the %zu items of this one, the "
        "first is %s",
        file, missing, list->count, first_missing);
    for (size_t next = 0; (path = oct_h5_next_dataset(h5, "", &next));) {
        const bool unasked = !optimizer && strncmp(path, "optimizer/", strlen("optimizer/")) == 0;
        if (unasked || is_known(list, path) || ++surplus > NAMED) continue;
        OCT_TRY(oct_text_add(&names, "%s%s", surplus > 1 ? ", " : "", path));
    }
    OCT_CHECK(surplus == 0, OCT_DATA,
              "%s: is a checkpoint of another model: %zu of its items are not in this one, such as "
              "%s",
              file, surplus, names.data);
    return OCT_OK;
}

/* Refuses a value outside of what the model allows there. */
static oct_status check_range(const char *file, const oct_saved_array *a, const uint8_t *data)
{
    const oct_value_range r = a->range;
    size_t each = oct_dtype_bytes(a->dtype);
    if (r.min >= r.max) return OCT_OK;
    OCT_ASSERT(a->dtype == OCT_F32 || a->dtype == OCT_S64);
    for (size_t at = 0; at < a->bytes; at += each) {
        float real;
        int64_t whole;
        memcpy(a->dtype == OCT_F32 ? (void *)&real : (void *)&whole, data + at, each);
        double value = a->dtype == OCT_F32 ? (double)real : (double)whole;
        OCT_CHECK(value >= r.min && value <= r.max, OCT_DATA,
                  "%s: %s holds %g, outside of %g to %g", file, a->path, value, r.min, r.max);
    }
    return OCT_OK;
}

/* Gives the optimizer its count of updates, and says that its averages are in the model, as they are loaded. */
static void set_updates(const oct_checkpoint *ckpt, oct_optim *optim)
{
    if (!optim) return;
    optim->updates = ckpt->info.updates;
    optim->average.begun = optim->average.in_model = optim->average.values && optim->updates > 0;
}

oct_status oct_checkpoint_load(const oct_checkpoint *ckpt, oct_module *root, oct_optim *optim)
{
    OCT_OWNED(oct_saved_arrays_free) oct_saved_arrays list = {0};
    oct_h5 *h5 = ckpt->file;
    OCT_OWNED(oct_free) uint8_t *bytes = NULL;
    OCT_TRY(list_wanted(&list, root, optim, ckpt->info.updates > 0));
    OCT_TRY(check_items(h5, ckpt->path, &list, optim != NULL));
    OCT_TRY(oct_alloc(&bytes, list.bytes, 1));
    for (size_t i = list.count; i-- > 0;) { /* a layer says more than the optimizer before it */
        const oct_saved_array *a = &list.items[i];
        OCT_TRY(oct_h5_read(h5, a->path, a->dtype, a->shape, bytes + a->offset));
        OCT_TRY(check_range(ckpt->path, a, bytes + a->offset));
    }
    for (size_t i = 0; i < list.count; i++) {
        const oct_saved_array *a = &list.items[i];
        if (a->bytes > 0) memcpy(a->data, bytes + a->offset, a->bytes);
    }
    set_updates(ckpt, optim);
    return OCT_OK;
}

oct_status oct_checkpoint_load_shared(const oct_checkpoint *ckpt, oct_module *root,
                                      oct_optim *optim, const oct_collective *group)
{
    const bool first = group->rank == 0;
    oct_status status, first_status = OCT_OK;
    OCT_OWNED(oct_saved_arrays_free) oct_saved_arrays list = {0};
    oct_h5 *h5 = ckpt->file;
    status = list_wanted(&list, root, optim, ckpt->info.updates > 0);
    /* All of it must be there with its types and shapes before a value changes. */
    if (status == OCT_OK && first) status = check_items(h5, ckpt->path, &list, optim != NULL);
    for (size_t i = list.count; first && status == OCT_OK && i-- > 0;) {
        const oct_saved_array *a = &list.items[i];
        status = oct_h5_read(h5, a->path, a->dtype, a->shape, NULL);
    }
    OCT_TRY(group->agree(group, status));
    /* What rank 0 cannot read is reported at the end: all ranks keep to the order of the arrays. */
    for (size_t i = 0; i < list.count; i++) {
        const oct_saved_array *a = &list.items[i];
        if (first && first_status == OCT_OK)
            first_status = oct_h5_read(h5, a->path, a->dtype, a->shape, a->data);
        if (first && first_status == OCT_OK) first_status = check_range(ckpt->path, a, a->data);
        if (a->bytes > 0) OCT_TRY(group->broadcast(group, a->data, a->bytes, 0));
    }
    OCT_TRY(group->agree(group, first_status));
    set_updates(ckpt, optim);
    return OCT_OK;
}

/* Adds a line where an array is missing in the file, or has another type or shape there. */
static oct_status compare_array(oct_h5 *h5, const oct_saved_array *a, oct_text *differences)
{
    char name[OCT_ITEM_PATH];
    oct_dtype dtype;
    oct_shape shape;
    make_module_path(name, a->path);
    if (!oct_h5_has(h5, a->path)) return oct_text_add(differences, "%s: only here\n", name);
    OCT_TRY(oct_h5_describe(h5, a->path, &dtype, &shape));
    if (dtype == a->dtype && oct_shape_equal(&shape, &a->shape)) return OCT_OK;
    return oct_text_add(differences, "%s: %s %s there, %s %s here\n", name, oct_dtype_name(dtype),
                        oct_text_shape(&shape).text, oct_dtype_name(a->dtype),
                        oct_text_shape(&a->shape).text);
}

oct_status oct_checkpoint_compare(const oct_checkpoint *ckpt, oct_module *root,
                                  oct_text *differences)
{
    OCT_OWNED(oct_saved_arrays_free) oct_saved_arrays list = {0};
    const char *path;

    OCT_TRY(oct_saved_arrays_list(&list, root, NULL, false, false));
    for (size_t i = 0; i < list.count; i++)
        OCT_TRY(compare_array(ckpt->file, &list.items[i], differences));
    if (list.count > 0) qsort(list.items, list.count, sizeof *list.items, compare_paths);
    for (size_t next = 0; (path = oct_h5_next_dataset(ckpt->file, "state/", &next));) {
        char name[OCT_ITEM_PATH];
        if (is_known(&list, path)) continue;
        make_module_path(name, path);
        OCT_TRY(oct_text_add(differences, "%s: only there\n", name));
    }
    return OCT_OK;
}

/* The walk of oct_checkpoint_fold. */
typedef struct folding {
    oct_h5 *h5; /* NULL: another rank has the file */
    const oct_collective *group;
    oct_status status; /* of this rank alone, until all are through */
} folding;

/* Removes the batch norm of a convolution on all ranks if the file, which rank 0 has, holds none for it: the weights loaded
 * next have it folded in. */
static oct_status drop_missing_norm(void *user, oct_module *module)
{
    folding *f = user;
    oct_qat_conv *conv = (oct_qat_conv *)module;
    char item[OCT_ITEM_PATH];
    if (module->type != &oct_qat_conv_type || !conv->batch_norm || conv->borrows) return OCT_OK;
    make_item_path(item, oct_module_path(conv->batch_norm).text);
    bool in_file = f->h5 && oct_h5_has(f->h5, item);
    OCT_TRY(f->group->broadcast(f->group, &in_file, sizeof in_file, 0));
    /* Kept, not returned: the other ranks wait in the next broadcast. */
    if (!in_file && f->status == OCT_OK) f->status = oct_qat_conv_drop_norm(conv);
    return OCT_OK;
}

oct_status oct_checkpoint_fold(const oct_checkpoint *ckpt, oct_module *root,
                               const oct_collective *group)
{
    folding f = {ckpt->file, group, OCT_OK};
    OCT_TRY(oct_module_walk(root, drop_missing_norm, &f));
    return group->agree(group, f.status);
}
