#include "io/weights/fit.h"

#include "core/base/mem.h"
#include "core/nn/modules.h"
#include "core/nn/network.h"
#include "core/tensor/move.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 6, PROBLEMS = 8 };

/* The layout of a parameter or buffer of a module in files of frameworks with channels first, and the move that brings it into
 * the module's own layout. */
typedef struct weight_layout {
    int ndim;
    int64_t dim[OCT_WEIGHT_DIMS]; /* in the file */
    oct_move_map map;             /* from the file's values to the tensor's */
} weight_layout;

/* A parameter or buffer of the model. */
typedef struct slot {
    char *path;
    const oct_module *module;
    const oct_tensor *tensor;
    oct_value_range range;
    int64_t array; /* of the file; -1: none */
    weight_layout layout;
    const oct_network_name *known; /* of a network that was read from a file; or NULL */
    oct_file_order order;          /* of the array, where it is known */
} slot;

/* An array of the file under its name in the model. */
typedef struct named {
    char *name;
    int64_t array;
    bool used;
} named;

typedef struct fit {
    const oct_weights *weights;
    const oct_weight_rules *rules;
    oct_weight_report *report;
    oct_model_order order;
    slot *slots;
    size_t num_slots, cap_slots;
    named *names; /* in their order */
    int64_t num_names;
    int problems;
} fit;

bool oct_weight_rename_of(const char *rule, oct_weight_rename *rename)
{
    const char *equals = strchr(rule, '=');
    if (!equals) return false;
    *rename = (oct_weight_rename){.from = rule,
                                  .to = equals + 1,
                                  .from_length = (size_t)(equals - rule),
                                  .to_length = strlen(equals + 1)};
    const bool from = rename->from_length > 0 && equals[-1] == '*';
    const bool to = rename->to_length > 0 && equals[rename->to_length] == '*';
    rename->prefix = from;
    if (from) rename->from_length--;
    if (to) rename->to_length--;
    return from == to && (from || (rename->from_length > 0 && rename->to_length > 0)) &&
           !memchr(rename->from, '*', rename->from_length) &&
           !memchr(rename->to, '*', rename->to_length);
}

static bool begins(const char *text, const char *with, size_t length)
{
    return strncmp(text, with, length) == 0;
}

/* Gives an array of the file its name in the model: by the first rule that fits, or its own. */
static oct_status rename_array(const fit *f, const char *name, bool *rule_used, char **renamed)
{
    for (int i = 0; i < f->rules->map->count; i++) {
        oct_weight_rename r;
        if (!oct_weight_rename_of(f->rules->map->value[i], &r)) continue;
        const bool fits =
            begins(name, r.from, r.from_length) && (r.prefix || name[r.from_length] == '\0');
        if (!fits) continue;
        rule_used[i] = true;
        return oct_format(renamed, "%.*s%s", (int)r.to_length, r.to,
                          r.prefix ? name + r.from_length : "");
    }
    return oct_strdup(renamed, name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

static const char *name_of(const fit *f, int64_t array)
{
    return oct_weight_name(f->weights, &f->weights->arrays[array]);
}

/* A name as a message shows it; valid until the end of the expression's block. */
#define SHOW(name) oct_show(name, strlen(name)).text

static oct_status list_names(fit *f)
{
    const int rules = f->rules->map->count;
    bool *used = NULL;
    oct_status status = OCT_OK;
    OCT_TRY_OUT(oct_alloc(&used, (size_t)rules, sizeof *used));
    OCT_TRY_OUT(oct_alloc(&f->names, (size_t)f->weights->count, sizeof *f->names));
    for (; f->num_names < f->weights->count; f->num_names++) {
        named *n = &f->names[f->num_names];
        n->array = f->num_names;
        OCT_TRY_OUT(rename_array(f, name_of(f, n->array), used, &n->name));
    }
    for (int i = 0; i < rules; i++)
        OCT_CHECK_OUT(used[i], OCT_USAGE, "init_map: '%s' fits no name of %s, which begin with %s",
                      f->rules->map->value[i], f->weights->path, SHOW(name_of(f, 0)));
    qsort(f->names, (size_t)f->num_names, sizeof *f->names, by_name);
    for (int64_t i = 1; i < f->num_names; i++)
        OCT_CHECK_OUT(strcmp(f->names[i - 1].name, f->names[i].name) != 0, OCT_USAGE,
                      "init: both %s and %s of %s would be %s; change init_map",
                      SHOW(name_of(f, f->names[i - 1].array)), SHOW(name_of(f, f->names[i].array)),
                      f->weights->path, SHOW(f->names[i].name));
out:
    oct_free(&used);
    return status;
}

/* Layouts. */

/* The values in the order of memory. */
static weight_layout layout_as_it_is(const oct_shape *shape)
{
    weight_layout layout = {.ndim = shape->ndim};
    memcpy(layout.dim, shape->dim, sizeof shape->dim);
    layout.map = oct_move_over(shape->ndim, shape->dim);
    return layout;
}

/* (O, kh, kw, I) of (O, I, kh, kw). */
static weight_layout layout_of_convolution(const oct_shape *s)
{
    const int64_t taps = s->dim[1] * s->dim[2];
    return (weight_layout){
        .ndim = 4,
        .dim = {s->dim[0], s->dim[3], s->dim[1], s->dim[2]},
        .map = {.dims = 4,
                .size = {s->dim[0], s->dim[1], s->dim[2], s->dim[3]},
                .stride = {s->dim[3] * taps, s->dim[2], 1, taps}},
    };
}

/* (O, kh, kw, I/groups) of (I, O/groups, kh, kw), rotated by 180 degrees. */
static weight_layout layout_of_transposed(const oct_shape *s, int64_t groups)
{
    const int64_t taps = s->dim[1] * s->dim[2], outs = s->dim[0] / groups, ins = s->dim[3];
    return (weight_layout){
        .ndim = 4,
        .dim = {ins * groups, outs, s->dim[1], s->dim[2]},
        .map = {.dims = 5,
                .size = {groups, outs, s->dim[1], s->dim[2], ins},
                .stride = {ins * outs * taps, taps, -s->dim[2], -1, outs * taps},
                .offset = taps - 1},
    };
}

/* Adds the loops of one dimension, whose neighbours are `step` values apart: (h, w, c) of (c, h, w) where an image
 * is in it. */
static void add_loops(oct_move_map *map, int64_t size, int64_t step, const oct_feature_order *o)
{
    const bool image = o && o->c > 0 && o->h * o->w * o->c == size;
    const int64_t plain_size[] = {size}, plain_step[] = {step};
    const int64_t image_size[] = {o ? o->h : 0, o ? o->w : 0, o ? o->c : 0};
    const int64_t image_step[] = {o ? o->w * step : 0, step, o ? o->h * o->w * step : 0};
    const int loops = image ? 3 : 1;
    memcpy(map->size + map->dims, image ? image_size : plain_size, (size_t)loops * sizeof size);
    memcpy(map->stride + map->dims, image ? image_step : plain_step, (size_t)loops * sizeof step);
    map->dims += loops;
}

static weight_layout layout_of(const oct_module *module, const oct_tensor *tensor,
                               const oct_module_order *order)
{
    const oct_shape *s = &tensor->shape;
    const oct_module_type *type = module->type;
    const bool linear = type == &oct_linear_type;
    const bool parameter = type == &oct_parameter_type || type == &oct_add_parameter_type ||
                           type == &oct_mul_parameter_type;
    if (type == &oct_conv2d_type && s->ndim == 4) return layout_of_convolution(s);
    if (type == &oct_conv_transpose2d_type && s->ndim == 4)
        return layout_of_transposed(s, ((const oct_conv2d_module *)module)->args.geometry.groups);
    weight_layout layout = {.ndim = s->ndim};
    if ((linear && s->ndim == 2) || ((linear || type == &oct_batch_norm_type) && s->ndim == 1)) {
        memcpy(layout.dim, s->dim, (size_t)s->ndim * sizeof s->dim[0]);
        add_loops(&layout.map, s->dim[0], s->ndim == 2 ? s->dim[1] : 1, order ? &order->out : NULL);
        if (s->ndim == 2) add_loops(&layout.map, s->dim[1], 1, order ? &order->in : NULL);
        return layout;
    }
    if (parameter && s->ndim == 3) { /* (H, W, C) of (C, H, W) */
        const oct_feature_order image = {s->dim[0], s->dim[1], s->dim[2]};
        layout.dim[0] = image.c;
        layout.dim[1] = image.h;
        layout.dim[2] = image.w;
        add_loops(&layout.map, oct_shape_numel(s), 1, image.c > 0 ? &image : NULL);
        return layout;
    }
    return layout_as_it_is(s);
}

/* Drops dimensions of 1 at both ends; returns how many are left, from *first on. */
static int strip_ones(int ndim, const int64_t *dim, int *first)
{
    *first = 0;
    while (ndim > 0 && dim[ndim - 1] == 1)
        ndim--;
    while (*first < ndim && dim[*first] == 1)
        (*first)++;
    return ndim - *first;
}

static bool equal_inside(const weight_layout *layout, const oct_weight *array)
{
    int a, b;
    const int n = strip_ones(layout->ndim, layout->dim, &a);
    return strip_ones(array->ndim, array->dim, &b) == n &&
           memcmp(layout->dim + a, array->dim + b, (size_t)n * sizeof array->dim[0]) == 0;
}

/* Whether dimensions are products of neighbouring ones of the order. */
static bool refines(const oct_file_order *order, int ndim, const int64_t *dim)
{
    int at = 0;
    for (int i = 0; i < ndim; i++) {
        int64_t size = 1;
        while (size < dim[i] && at < order->dims)
            size *= order->size[at++];
        if (size != dim[i]) return false;
    }
    for (; at < order->dims; at++)
        if (order->size[at] != 1) return false;
    return true;
}

/* The parameters and buffers of the model. */

static oct_status add_slot(fit *f, const oct_module *module, const char *name, slot like)
{
    char path[256];
    if (like.tensor->dtype != OCT_F32) return OCT_OK;
    oct_module_path(module, path);
    OCT_TRY(oct_grow(&f->slots, &f->cap_slots, f->num_slots + 1, sizeof *f->slots));
    OCT_TRY(oct_format(&like.path, "%s%s%s", path, path[0] ? "." : "", name));
    like.module = module;
    like.array = -1;
    f->slots[f->num_slots++] = like;
    return OCT_OK;
}

static oct_status list_slots(void *user, oct_module *module)
{
    fit *f = user;
    for (size_t i = 0; i < module->num_params; i++) {
        const oct_param *p = module->params[i];
        OCT_TRY(add_slot(f, module, p->name, (slot){.tensor = &p->value, .range = p->range}));
    }
    for (size_t i = 0; i < module->num_buffers; i++) {
        const oct_buffer *b = &module->buffers[i];
        OCT_TRY(add_slot(f, module, b->name, (slot){.tensor = &b->tensor, .range = b->range}));
    }
    return OCT_OK;
}

static bool fits_pattern(const char *path, const char *pattern)
{
    const size_t length = strlen(pattern);
    if (length > 0 && pattern[length - 1] == '*') return begins(path, pattern, length - 1);
    return strcmp(path, pattern) == 0;
}

static oct_status check_skips(const fit *f)
{
    for (int i = 0; i < f->rules->skip->count; i++) {
        bool used = false;
        for (size_t k = 0; k < f->num_slots && !used; k++)
            used = fits_pattern(f->slots[k].path, f->rules->skip->value[i]);
        OCT_CHECK(used, OCT_USAGE,
                  "init_skip: '%s' fits no parameter of the model; they are called like %s",
                  f->rules->skip->value[i], f->num_slots ? f->slots[0].path : "none");
    }
    return OCT_OK;
}

/* Adds a name to the first ones of a list. */
static oct_status add_name(oct_text *list, int64_t *count, const char *name)
{
    const int64_t at = (*count)++;
    if (at > SHOWN) return OCT_OK;
    if (at == SHOWN) return oct_text_add(list, ", ...");
    return oct_text_add(list, "%s%s", at ? ", " : "", SHOW(name));
}

static oct_status take_misfit(fit *f, slot *s, const oct_weight *array)
{
    char here[OCT_WEIGHT_SHAPE_BYTES], there[OCT_WEIGHT_SHAPE_BYTES];
    oct_weight_shape_text(s->layout.ndim, s->layout.dim, here);
    oct_weight_shape_text(array->ndim, array->dim, there);
    s->array = -1;
    /* The last layer, with another number of outputs. */
    const bool is_classifier = s->module == f->order.last_layer && array->ndim > 0 &&
                               array->ndim == s->layout.ndim &&
                               memcmp(array->dim + 1, s->layout.dim + 1,
                                      (size_t)(array->ndim - 1) * sizeof array->dim[0]) == 0;
    if (is_classifier)
        return oct_text_add(&f->report->classifier, "%s%s is %s in the file and %s here",
                            f->report->classifier.length ? ", " : "", s->path, there, here);
    if (f->problems++ < PROBLEMS)
        (void)oct_fail_add(OCT_USAGE,
                           "init: %s is %s in %s, but %s in this model; to keep its initial values "
                           "name it in init_skip",
                           s->path, there, f->weights->path, here);
    return OCT_OK;
}

static int against_name(const void *name, const void *one)
{
    return strcmp(name, ((const named *)one)->name);
}

static named *find_name(const fit *f, const char *name)
{
    return bsearch(name, f->names, (size_t)f->num_names, sizeof *f->names, against_name);
}

/* Whether an array of the file has the layout of a slot, which becomes the array's. Dimensions of 1 before and after the
 * others do not count; a parameter added to images may also be as the model has it. An array whose name a network knows has
 * the shape that the network read there, or is its transpose. */
static bool take_layout(slot *s, const oct_weight *array)
{
    if (s->known) {
        const int64_t back[] = {array->dim[1], array->dim[0]};
        s->order = s->known->order;
        const bool along = refines(&s->order, array->ndim, array->dim);
        const bool across = array->ndim == 2 && refines(&s->order, 2, back);
        if (across && (array->turned || !along)) return oct_file_order_turn(&s->order, back[0]);
        return along;
    }
    if (equal_inside(&s->layout, array)) return true;
    if (s->layout.ndim != 3) return false;
    const weight_layout plain = layout_as_it_is(&s->tensor->shape);
    if (!equal_inside(&plain, array)) return false;
    s->layout = plain;
    return true;
}

static oct_status match_slot(fit *f, slot *s)
{
    oct_weight_report *report = f->report;
    named *n = s->known ? find_name(f, s->known->file) : NULL;
    if (!n) n = find_name(f, s->path);
    report->wanted++;
    if (n) n->used = true;
    bool keeps = !n;
    for (int i = 0; i < f->rules->skip->count; i++)
        keeps |= fits_pattern(s->path, f->rules->skip->value[i]);
    if (keeps) return add_name(&report->kept_names, &report->kept, s->path);
    const oct_weight *array = &f->weights->arrays[n->array];
    s->array = n->array;
    s->layout = layout_of(s->module, s->tensor, oct_module_order_of(&f->order, s->module));
    if (!take_layout(s, array)) return take_misfit(f, s, array);
    report->taken++;
    return OCT_OK;
}

static oct_status match_names(fit *f)
{
    for (size_t i = 0; i < f->num_slots; i++)
        OCT_TRY(match_slot(f, &f->slots[i]));
    if (f->problems > 0) return OCT_USAGE;
    for (int64_t i = 0; i < f->num_names; i++)
        if (!f->names[i].used)
            OCT_TRY(add_name(&f->report->unused_names, &f->report->unused,
                             name_of(f, f->names[i].array)));
    const char *there = f->report->unused_names.data, *here = f->report->kept_names.data;
    OCT_CHECK(f->report->taken > 0, OCT_USAGE,
              "init: no name of %s is one of this model: there %s, here %s; write init_map: "
              "[FROM=TO], such as ['module.*=*']",
              f->weights->path, there ? there : "none", here ? here : "none");
    return OCT_OK;
}

static oct_status check_range(const fit *f, const slot *s)
{
    const oct_weight *array = &f->weights->arrays[s->array];
    const float *values = f->weights->values + array->data;
    if (s->range.min >= s->range.max) return OCT_OK;
    for (int64_t i = 0; i < oct_weight_numel(array); i++)
        OCT_CHECK((double)values[i] >= s->range.min && (double)values[i] <= s->range.max, OCT_DATA,
                  "%s: %s holds %g, outside of %g to %g", f->weights->path,
                  SHOW(name_of(f, s->array)), (double)values[i], s->range.min, s->range.max);
    return OCT_OK;
}

static oct_status fill_slots(const fit *f)
{
    for (size_t i = 0; i < f->num_slots; i++)
        if (f->slots[i].array >= 0) OCT_TRY(check_range(f, &f->slots[i]));
    for (size_t i = 0; i < f->num_slots; i++) {
        const slot *s = &f->slots[i];
        if (s->array < 0) continue;
        const float *values = f->weights->values + f->weights->arrays[s->array].data;
        if (s->known)
            oct_file_order_in(&s->order, values, oct_f32(s->tensor));
        else
            oct_move_copy(&s->layout.map, sizeof(float), values, s->tensor->data);
    }
    return OCT_OK;
}

oct_status oct_weights_load(const oct_weights *weights, oct_module *root,
                            const oct_example *example, const oct_weight_rules *rules,
                            oct_weight_report *report)
{
    fit f = {.weights = weights, .rules = rules, .report = report};
    oct_status status = OCT_OK;
    *report = (oct_weight_report){0};
    OCT_TRY_OUT(oct_model_order_of(&f.order, root, example));
    OCT_TRY_OUT(oct_module_walk(root, list_slots, &f));
    const oct_network_name *names; /* of the file that a network was read from */
    const size_t count = oct_network_names(root, &names);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < f.num_slots; k++)
            if (strcmp(f.slots[k].path, names[i].path) == 0) f.slots[k].known = &names[i];
    OCT_TRY_OUT(check_skips(&f));
    OCT_TRY_OUT(list_names(&f));
    OCT_TRY_OUT(match_names(&f));
    status = fill_slots(&f);
out:
    for (size_t i = 0; i < f.num_slots; i++)
        oct_free(&f.slots[i].path);
    for (int64_t i = 0; f.names && i < weights->count; i++)
        oct_free(&f.names[i].name);
    oct_free(&f.slots);
    oct_free(&f.names);
    oct_free(&f.order.modules);
    return status;
}

void oct_weight_report_free(oct_weight_report *report)
{
    oct_text_free(&report->kept_names);
    oct_text_free(&report->unused_names);
    oct_text_free(&report->classifier);
}
