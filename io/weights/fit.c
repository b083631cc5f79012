#include "io/weights/fit.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 6, PROBLEMS = 8 };

/* A parameter or buffer of the model. */
typedef struct slot {
    char *path;
    const oct_module *module;
    const oct_tensor *tensor;
    oct_value_range range;
    int64_t array; /* of the file; -1: none */
    oct_weight_layout layout;
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

static bool take_layout(slot *s, const oct_weight *array)
{
    oct_weight_layout fitting = s->layout;
    if (s->known) {
        s->order = s->known->order;
        return oct_weight_order_fits(&s->order, array);
    }
    if (!oct_weight_layout_fits(&fitting, s->tensor, array)) return false;
    s->layout = fitting;
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
    s->layout =
        oct_weight_layout_of(s->module, s->tensor, oct_module_order_of(&f->order, s->module));
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
    oct_model_order_free(&f.order);
    return status;
}

void oct_weight_report_free(oct_weight_report *report)
{
    oct_text_free(&report->kept_names);
    oct_text_free(&report->unused_names);
    oct_text_free(&report->classifier);
}
