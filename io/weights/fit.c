#include "io/weights/fit.h"

#include "core/base/mem.h"
#include "core/nn/modules.h"
#include "core/nn/network.h"
#include "io/weights/layout.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 6, PROBLEMS = 8 };

/* The feature orders of a module's first call. */
typedef struct module_order {
    const oct_module *module;
    oct_feature_order in, out;
} module_order;

typedef struct model_order {
    module_order *modules;
    int64_t count;
    const oct_module *last_layer; /* the linear layer or convolution that is called last; or NULL */
} model_order;

/* A parameter or buffer of the model. */
typedef struct model_tensor {
    char *path;
    const oct_module *module;
    const oct_tensor *tensor;
    oct_value_range range;
    int64_t array; /* of the file; -1: none */
    oct_torch_layout layout;
    const oct_network_name *file_name; /* of a network that was read from a file; or NULL */
    oct_file_order order;              /* of the array, where file_name is known */
} model_tensor;

/* An array of the file under its name in the model. */
typedef struct file_array {
    char *name;
    int64_t array;
    bool used;
} file_array;

typedef struct fit {
    const oct_weights *weights;
    const oct_weight_rules *rules;
    oct_weight_report *report;
    model_order order;
    model_tensor *tensors;
    size_t num_tensors, cap_tensors;
    file_array *names; /* in their order */
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
    const bool from_star = rename->from_length > 0 && equals[-1] == '*';
    const bool to_star = rename->to_length > 0 && equals[rename->to_length] == '*';
    rename->prefix = from_star;
    if (from_star) rename->from_length--;
    if (to_star) rename->to_length--;
    return from_star == to_star &&
           (from_star || (rename->from_length > 0 && rename->to_length > 0)) &&
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

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const file_array *)a)->name, ((const file_array *)b)->name);
}

static const char *array_name(const fit *f, int64_t array)
{
    return oct_weight_name(f->weights, &f->weights->arrays[array]);
}

/* A name as a message shows it; valid until the end of the expression's block. */
#define SHOW(name) oct_show(name, strlen(name)).text

/* Lists the arrays of the file by their names in the model. Refuses rules that fit no array, and names that come
 * twice. */
static oct_status list_names(fit *f)
{
    const int rules = f->rules->map->count;
    OCT_OWNED(oct_free) bool *used = NULL;
    OCT_TRY(oct_alloc(&used, (size_t)rules, sizeof *used));
    OCT_TRY(oct_alloc(&f->names, (size_t)f->weights->count, sizeof *f->names));
    for (; f->num_names < f->weights->count; f->num_names++) {
        file_array *n = &f->names[f->num_names];
        n->array = f->num_names;
        OCT_TRY(rename_array(f, array_name(f, n->array), used, &n->name));
    }
    for (int i = 0; i < rules; i++)
        OCT_CHECK(used[i], OCT_USAGE, "init_map: '%s' fits no name of %s, which begin with %s",
                  f->rules->map->value[i], f->weights->path, SHOW(array_name(f, 0)));
    qsort(f->names, (size_t)f->num_names, sizeof *f->names, compare_names);
    for (int64_t i = 1; i < f->num_names; i++)
        OCT_CHECK(strcmp(f->names[i - 1].name, f->names[i].name) != 0, OCT_USAGE,
                  "init: both %s and %s of %s would be %s; change init_map",
                  SHOW(array_name(f, f->names[i - 1].array)),
                  SHOW(array_name(f, f->names[i].array)), f->weights->path, SHOW(f->names[i].name));
    return OCT_OK;
}

/* Orders of features. */

/* What is known of a value of the trace. */
typedef struct value_order {
    oct_feature_order features; /* of one with a single dimension after the batch */
    bool is_permuted;           /* of four dimensions that are not (N, h, w, c) */
} value_order;

static bool is_op(const oct_trace_node *node, const char *op)
{
    return strcmp(node->op, op) == 0;
}

static bool is_layer(const oct_trace_node *node)
{
    return node->module &&
           (node->module->type == &oct_linear_type || node->module->type == &oct_conv2d_type ||
            node->module->type == &oct_conv_transpose2d_type);
}

/* The order of an image's features, where it matters. */
static oct_feature_order order_of_image(const oct_shape *s)
{
    const bool image = s->ndim == 4 && s->dim[1] * s->dim[2] > 1 && s->dim[3] > 1;
    return image ? (oct_feature_order){s->dim[1], s->dim[2], s->dim[3]} : (oct_feature_order){0};
}

/* Whether a node leaves each feature at its place. */
static bool keeps_places(const oct_trace *trace, const oct_trace_node *node)
{
    const oct_shape *in = &trace->values[node->input[0]].shape;
    return !is_layer(node) && !is_op(node, "move") && !is_op(node, "matmul") &&
           oct_shape_equal(in, &trace->values[node->output].shape);
}

static bool is_view(const oct_trace_node *node)
{
    return is_op(node, "flatten") || is_op(node, "reshape");
}

/* Finds from inputs to outputs which values (N, features) are flattened images: their features come as (h, w, c). */
static void find_orders_forward(const oct_trace *trace, value_order *values)
{
    for (size_t i = 0; i < trace->num_nodes; i++) {
        const oct_trace_node *node = &trace->nodes[i];
        if (node->num_inputs < 1) continue;
        const value_order *in = &values[node->input[0]];
        value_order *out = &values[node->output];
        const oct_shape *shape = &trace->values[node->output].shape;
        if (is_op(node, "move") || is_op(node, "matmul"))
            out->is_permuted = true;
        else if (is_view(node) && shape->ndim == 2 && !in->is_permuted)
            out->features = order_of_image(&trace->values[node->input[0]].shape);
        else if (keeps_places(trace, node))
            *out = *in;
    }
}

/* Finds from outputs to inputs which features become an image: the layers before the reshape give them in its order. */
static void find_orders_backward(const oct_trace *trace, value_order *values)
{
    for (size_t i = trace->num_nodes; i-- > 0;) {
        const oct_trace_node *node = &trace->nodes[i];
        if (node->num_inputs < 1) continue;
        value_order *in = &values[node->input[0]];
        if (trace->values[node->input[0]].shape.ndim != 2 || in->features.c > 0) continue;
        if (is_view(node))
            in->features = order_of_image(&trace->values[node->output].shape);
        else if (keeps_places(trace, node))
            in->features = values[node->output].features;
    }
}

/* NULL: the module is not called. */
static const module_order *find_module_order(const model_order *order, const oct_module *module)
{
    for (int64_t i = 0; i < order->count; i++)
        if (order->modules[i].module == module) return &order->modules[i];
    return NULL;
}

/* Finds the feature orders of each module's input and output, in a trace of the model on the example in evaluation
 * mode. The caller frees the modules. */
static oct_status find_feature_orders(model_order *order, oct_module *root,
                                      const oct_example *example)
{
    OCT_OWNED(oct_trace_free) oct_trace trace = {0};
    OCT_OWNED(oct_free) value_order *values = NULL;
    *order = (model_order){0};
    OCT_TRY(oct_trace_run(&trace, root, example));
    OCT_TRY(oct_alloc(&values, trace.num_values, sizeof *values));
    OCT_TRY(oct_alloc(&order->modules, trace.num_nodes, sizeof *order->modules));
    find_orders_forward(&trace, values);
    find_orders_backward(&trace, values);
    for (size_t i = 0; i < trace.num_nodes; i++) {
        const oct_trace_node *node = &trace.nodes[i];
        if (is_layer(node)) order->last_layer = node->module;
        if (!node->module || node->num_inputs < 1 || find_module_order(order, node->module))
            continue;
        order->modules[order->count++] = (module_order){
            node->module, values[node->input[0]].features, values[node->output].features};
    }
    return OCT_OK;
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

/* Whether dimensions are equal without those of 1 before and after the others. */
static bool equal_but_for_ones(const oct_torch_layout *layout, const oct_weight *array)
{
    int first, array_first;
    const int n = strip_ones(layout->ndim, layout->dim, &first);
    return strip_ones(array->ndim, array->dim, &array_first) == n &&
           memcmp(layout->dim + first, array->dim + array_first,
                  (size_t)n * sizeof array->dim[0]) == 0;
}

/* Whether dimensions are products of neighbouring ones of the order: (O, 9 I) of (O, 3, 3, I). */
static bool merges_into(const oct_file_order *order, int ndim, const int64_t *dim)
{
    int next = 0;
    for (int i = 0; i < ndim; i++) {
        int64_t size = 1;
        while (size < dim[i] && next < order->dims)
            size *= order->size[next++];
        if (size != dim[i]) return false;
    }
    for (; next < order->dims; next++)
        if (order->size[next] != 1) return false;
    return true;
}

/* The parameters and buffers of the model. */

/* Adds a float parameter or buffer to the tensors to fill, under its path in the model. */
static oct_status add_tensor(fit *f, const oct_module *module, const char *name, model_tensor like)
{
    if (like.tensor->dtype != OCT_F32) return OCT_OK;
    const oct_path_text path = oct_module_path(module);
    OCT_TRY(oct_grow(&f->tensors, &f->cap_tensors, f->num_tensors + 1, sizeof *f->tensors));
    OCT_TRY(oct_format(&like.path, "%s%s%s", path.text, *path.text ? "." : "", name));
    like.module = module;
    like.array = -1;
    f->tensors[f->num_tensors++] = like;
    return OCT_OK;
}

/* Lists the parameters and buffers of a module. */
static oct_status list_tensors(void *user, oct_module *module)
{
    fit *f = user;
    for (size_t i = 0; i < module->num_params; i++) {
        const oct_param *p = module->params[i];
        OCT_TRY(
            add_tensor(f, module, p->name, (model_tensor){.tensor = &p->value, .range = p->range}));
    }
    for (size_t i = 0; i < module->num_buffers; i++) {
        const oct_buffer *b = &module->buffers[i];
        OCT_TRY(add_tensor(f, module, b->name,
                           (model_tensor){.tensor = &b->tensor, .range = b->range}));
    }
    return OCT_OK;
}

static bool fits_pattern(const char *path, const char *pattern)
{
    const size_t length = strlen(pattern);
    if (length > 0 && pattern[length - 1] == '*') return begins(path, pattern, length - 1);
    return strcmp(path, pattern) == 0;
}

/* Refuses a rule of init_skip that fits no parameter. */
static oct_status check_skips(const fit *f)
{
    for (int i = 0; i < f->rules->skip->count; i++) {
        bool used = false;
        for (size_t k = 0; k < f->num_tensors && !used; k++)
            used = fits_pattern(f->tensors[k].path, f->rules->skip->value[i]);
        OCT_CHECK(used, OCT_USAGE,
                  "init_skip: '%s' fits no parameter of the model; they are called like %s",
                  f->rules->skip->value[i], f->num_tensors ? f->tensors[0].path : "none");
    }
    return OCT_OK;
}

/* Counts a name, and adds it to a text that lists the first SHOWN of them. */
static oct_status add_name(oct_text *list, int64_t *count, const char *name)
{
    const int64_t at = (*count)++;
    if (at > SHOWN) return OCT_OK;
    if (at == SHOWN) return oct_text_add(list, ", ...");
    return oct_text_add(list, "%s%s", at ? ", " : "", SHOW(name));
}

/* Reports an array that has not a tensor's shape: a problem, but in a classifier, which keeps its initial values. */
static oct_status note_misfit(fit *f, model_tensor *t, const oct_weight *array)
{
    char in_model[OCT_WEIGHT_SHAPE_BYTES], in_file[OCT_WEIGHT_SHAPE_BYTES];
    oct_weight_shape_text(t->layout.ndim, t->layout.dim, in_model);
    oct_weight_shape_text(array->ndim, array->dim, in_file);
    t->array = -1;
    /* The last layer, with another number of outputs. */
    const bool is_classifier = t->module == f->order.last_layer && array->ndim > 0 &&
                               array->ndim == t->layout.ndim &&
                               memcmp(array->dim + 1, t->layout.dim + 1,
                                      (size_t)(array->ndim - 1) * sizeof array->dim[0]) == 0;
    if (is_classifier)
        return oct_text_add(&f->report->classifier, "%s%s is %s in the file and %s here",
                            f->report->classifier.length ? ", " : "", t->path, in_file, in_model);
    if (f->problems++ < PROBLEMS)
        (void)oct_fail_add(OCT_USAGE,
                           "init: %s is %s in %s, but %s in this model; to keep its initial values "
                           "name it in init_skip",
                           t->path, in_file, f->weights->path, in_model);
    return OCT_OK;
}

static int compare_with_name(const void *name, const void *one)
{
    return strcmp(name, ((const file_array *)one)->name);
}

static file_array *find_name(const fit *f, const char *name)
{
    return bsearch(name, f->names, (size_t)f->num_names, sizeof *f->names, compare_with_name);
}

/* Whether an array of the file fits a tensor, whose layout becomes the array's. Dimensions of 1 before and after the
 * others do not count; a parameter added to images may also be as the model has it. An array whose name a network knows has
 * the shape that the network read there, or is its transpose. */
static bool choose_layout(model_tensor *t, const oct_weight *array)
{
    if (t->file_name) {
        const int64_t swapped[] = {array->dim[1], array->dim[0]};
        t->order = t->file_name->order;
        const bool fits = merges_into(&t->order, array->ndim, array->dim);
        const bool fits_swapped = array->ndim == 2 && merges_into(&t->order, 2, swapped);
        if (fits_swapped && (array->transposed || !fits))
            return oct_file_order_turn(&t->order, swapped[0]);
        return fits;
    }
    if (equal_but_for_ones(&t->layout, array)) return true;
    if (t->layout.ndim != 3) return false;
    const oct_torch_layout plain = oct_torch_layout_plain(&t->tensor->shape);
    if (!equal_but_for_ones(&plain, array)) return false;
    t->layout = plain;
    return true;
}

/* Finds a tensor's array, by the name in the file that its network was read from, or by its path. */
static oct_status match_tensor(fit *f, model_tensor *t)
{
    oct_weight_report *report = f->report;
    file_array *found = t->file_name ? find_name(f, t->file_name->file) : NULL;
    if (!found) found = find_name(f, t->path);
    report->wanted++;
    if (found) found->used = true;
    bool skip = !found;
    for (int i = 0; i < f->rules->skip->count; i++)
        skip |= fits_pattern(t->path, f->rules->skip->value[i]);
    if (skip) return add_name(&report->kept_names, &report->kept, t->path);
    const oct_weight *array = &f->weights->arrays[found->array];
    t->array = found->array;
    const module_order *order = find_module_order(&f->order, t->module);
    const bool transposed = t->module->type == &oct_conv_transpose2d_type;
    t->layout = oct_torch_layout_of(
        t->module->type, &t->tensor->shape,
        transposed ? ((const oct_conv2d_module *)t->module)->args.geometry.groups : 1,
        order ? &order->in : NULL, order ? &order->out : NULL);
    if (!choose_layout(t, array)) return note_misfit(f, t, array);
    report->taken++;
    return OCT_OK;
}

/* Finds the array of each tensor, and lists the names that only the file or only the model has. */
static oct_status match_names(fit *f)
{
    for (size_t i = 0; i < f->num_tensors; i++)
        OCT_TRY(match_tensor(f, &f->tensors[i]));
    if (f->problems > 0) return OCT_USAGE;
    for (int64_t i = 0; i < f->num_names; i++)
        if (!f->names[i].used)
            OCT_TRY(add_name(&f->report->unused_names, &f->report->unused,
                             array_name(f, f->names[i].array)));
    const char *unused = f->report->unused_names.data, *kept = f->report->kept_names.data;
    OCT_CHECK(f->report->taken > 0, OCT_USAGE,
              "init: no name of %s is one of this model: there %s, here %s; write init_map: "
              "[FROM=TO], such as ['module.*=*']",
              f->weights->path, unused ? unused : "none", kept ? kept : "none");
    return OCT_OK;
}

/* Copies the arrays into their tensors, after all of them have been checked. */
static oct_status fill_tensors(const fit *f)
{
    for (size_t i = 0; i < f->num_tensors; i++) {
        const model_tensor *t = &f->tensors[i];
        if (t->array < 0 || t->range.min >= t->range.max) continue;
        const oct_weight *array = &f->weights->arrays[t->array];
        const float *values = f->weights->values + array->data_begin;
        for (int64_t k = 0; k < oct_weight_numel(array); k++)
            OCT_CHECK((double)values[k] >= t->range.min && (double)values[k] <= t->range.max,
                      OCT_DATA, "%s: %s holds %g, outside of %g to %g", f->weights->path,
                      SHOW(array_name(f, t->array)), (double)values[k], t->range.min, t->range.max);
    }
    for (size_t i = 0; i < f->num_tensors; i++) {
        const model_tensor *t = &f->tensors[i];
        if (t->array < 0) continue;
        const float *values = f->weights->values + f->weights->arrays[t->array].data_begin;
        if (t->file_name)
            oct_file_order_in(&t->order, values, oct_f32(t->tensor));
        else
            oct_move_copy(&t->layout.map, sizeof(float), values, t->tensor->data);
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
    OCT_TRY_OUT(find_feature_orders(&f.order, root, example));
    OCT_TRY_OUT(oct_module_walk(root, list_tensors, &f));
    const oct_network_name *names; /* of the file that a network was read from */
    const size_t count = oct_network_names(root, &names);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < f.num_tensors; k++)
            if (strcmp(f.tensors[k].path, names[i].path) == 0) f.tensors[k].file_name = &names[i];
    OCT_TRY_OUT(check_skips(&f));
    OCT_TRY_OUT(list_names(&f));
    OCT_TRY_OUT(match_names(&f));
    status = fill_tensors(&f);
out:
    for (size_t i = 0; i < f.num_tensors; i++)
        oct_free(&f.tensors[i].path);
    for (int64_t i = 0; f.names && i < weights->count; i++)
        oct_free(&f.names[i].name);
    OCT_FREE_ALL(&f.tensors, &f.names, &f.order.modules);
    return status;
}
