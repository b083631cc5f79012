/* The arrays of a checkpoint are listed here, for saving and for loading. */
#include "io/checkpoint/checkpoint_impl.h"

#include "core/base/mem.h"
#include "io/hdf5/hdf5.h"
#include "quant/module/quant_modules.h"

#include <stdio.h>
#include <string.h>

/* Makes "state/layers/0/conv/weight" of "layers.0.conv.weight". */
static void item_path(char text[OCT_ITEM_PATH], const char *path)
{
    snprintf(text, OCT_ITEM_PATH, "state/%s", path);
    for (char *p = text; *p; p++) {
        if (*p == '.') *p = '/';
    }
}

/* Where values come from: the model, or the averages beside it. */
typedef struct listing {
    oct_saved_arrays *list;
    const oct_average *average; /* NULL: there are none */
    bool aside;
} listing;

static oct_status add_array(oct_saved_arrays *list, const char *path, const oct_tensor *tensor,
                            oct_value_range range)
{
    OCT_TRY(oct_grow(&list->items, &list->capacity, list->count + 1, sizeof *list->items));
    oct_saved_array *a = &list->items[list->count];
    *a = (oct_saved_array){.dtype = tensor->dtype,
                           .shape = tensor->shape,
                           .data = tensor->data,
                           .range = range,
                           .bytes = (size_t)oct_numel(tensor) * oct_dtype_bytes(tensor->dtype),
                           .offset = list->bytes};
    OCT_TRY(oct_strdup(&a->path, path));
    list->count++;
    list->bytes += a->bytes;
    return OCT_OK;
}

static oct_status add_item(void *user, const oct_state_item *item)
{
    char path[OCT_ITEM_PATH];
    const listing *l = user;
    oct_tensor tensor = *item->tensor;
    float *other = l->average && l->aside ? oct_average_of(l->average, item->tensor) : NULL;
    if (other) tensor.data = other;
    item_path(path, item->path);
    OCT_TRY(add_array(l->list, path, &tensor, item->range));
    l->list->items[l->list->count - 1].buffer = !item->param;
    return OCT_OK;
}

/* What is trained, where the file's model is of averages. */
static oct_status add_trained(void *user, const oct_state_item *item)
{
    char path[OCT_ITEM_PATH + sizeof "optimizer/trained/"], name[OCT_ITEM_PATH];
    const listing *l = user;
    oct_tensor tensor = *item->tensor;
    float *other = oct_average_of(l->average, item->tensor);
    if (!other) return OCT_OK;
    if (!l->aside) tensor.data = other;
    item_path(name, item->path);
    snprintf(path, sizeof path, "optimizer/trained/%s", name + strlen("state/"));
    OCT_TRY(add_array(l->list, path, &tensor, item->range));
    l->list->items[l->list->count - 1].buffer = !item->param;
    return OCT_OK;
}

oct_status oct_saved_arrays_list(oct_saved_arrays *list, oct_module *root, const oct_optim *optim,
                                 bool averaged, bool aside)
{
    char path[OCT_ITEM_PATH];
    listing l = {list, optim && averaged ? &optim->average : NULL, aside};
    OCT_TRY(oct_module_state(root, add_item, &l));
    for (int i = 0; optim && i < optim->num_slots; i++) {
        const oct_tensor slot = {
            .dtype = OCT_F32, .shape = OCT_SHAPE(optim->numel), .data = optim->slot[i]};
        snprintf(path, sizeof path, "optimizer/%s", optim->type->slot[i]);
        OCT_TRY(add_array(list, path, &slot, (oct_value_range){0}));
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

typedef struct folding {
    oct_h5 *h5; /* NULL: another rank has the file */
    const oct_collective *group;
    oct_status status; /* of this rank alone, until all are through */
} folding;

static oct_status fold_as_there(void *user, oct_module *module)
{
    folding *f = user;
    oct_qat_conv *conv = (oct_qat_conv *)module;
    char path[256], item[OCT_ITEM_PATH];
    if (module->type != &oct_qat_conv_type || !conv->batch_norm || conv->borrows) return OCT_OK;
    item_path(item, oct_module_path(conv->batch_norm, path));
    bool there = f->h5 && oct_h5_has(f->h5, item);
    OCT_TRY(f->group->broadcast(f->group, &there, sizeof there, 0));
    if (!there && f->status == OCT_OK) f->status = oct_qat_conv_drop_norm(conv);
    return OCT_OK;
}

oct_status oct_checkpoint_fold(const oct_checkpoint *ckpt, oct_module *root,
                               const oct_collective *group)
{
    folding f = {ckpt->file, group, OCT_OK};
    OCT_TRY(oct_module_walk(root, fold_as_there, &f));
    return group->agree(group, f.status);
}
