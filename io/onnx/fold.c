#include "io/onnx/fold.h"

#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/onnx/operator.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const int64_t input_numel_max = (int64_t)1 << 32; /* of a sample */

/* The input. */

/* Numbers that are only scaled, each channel in its way. */
static bool rescales(const oct_onnx_graph *g, const oct_onnx_node *n, int32_t value)
{
    static const char *const types[] = {"Add", "Cast", "Clip", "Div", "Mul", "Sub"};
    size_t type = 0;
    while (type < OCT_COUNT(types) && strcmp(types[type], n->type) != 0)
        type++;
    for (int k = 0; k < n->inputs; k++)
        if (n->input[k] != value && n->input[k] >= 0 && !g->values[n->input[k]].data) return false;
    return type < OCT_COUNT(types) && n->outputs == 1 && n->output[0] >= 0;
}

/* Converters from Keras turn their images round at once, or when they have rescaled them. */
static bool is_turned(const oct_onnx_graph *g, int32_t value)
{
    static const int64_t turn[4] = {0, 3, 1, 2};
    int64_t count;
    int users = 0;
    for (int64_t i = 0; i < g->num_nodes; i++) {
        const oct_onnx_node *n = &g->nodes[i];
        for (int k = 0; k < n->inputs; k++) {
            if (n->input[k] != value) continue;
            const int64_t *perm = oct_onnx_ints(n, "perm", &count);
            const bool turns = strcmp(n->type, "Transpose") == 0 && count == 4 &&
                               memcmp(perm, turn, sizeof turn) == 0;
            if (!turns && (users > 0 || !rescales(g, n, value))) return false;
            if (!turns) value = n->output[0];
            users += turns;
        }
    }
    return users > 0;
}

typedef struct image_size {
    int64_t h, w, c; /* 0: as the file declares it */
} image_size;

static oct_status set_image(oct_onnx_graph *g, oct_onnx_value *v, const image_size *size)
{
    const oct_shown name = oct_show(v->name, strlen(v->name));
    g->channels_last = is_turned(g, g->inputs[0]);
    const int channel = g->channels_last ? 3 : 1;
    const int64_t last[4] = {0, size->h, size->w, size->c};
    const int64_t first[4] = {0, size->c, size->h, size->w};
    v->dim[0] = OCT_ONNX_BATCH;
    for (int i = 1; i < 4; i++) {
        const int64_t wanted = g->channels_last ? last[i] : first[i];
        OCT_CHECK(i != channel || !wanted || v->dim[i] < 0 || v->dim[i] == wanted, OCT_DATA,
                  "%s: the input '%s' has %" PRId64 " channels, and the images have %" PRId64
                  "; set data.channels",
                  g->path, name.text, v->dim[i], wanted);
        if (wanted > 0) v->dim[i] = wanted;
        OCT_CHECK(v->dim[i] > 0, OCT_DATA,
                  "%s: the input '%s' is written for any size; say which, such as --size 224x224",
                  g->path, name.text);
    }
    return OCT_OK;
}

static oct_status set_numbers(const oct_onnx_graph *g, oct_onnx_value *v, const image_size *size)
{
    const oct_shown name = oct_show(v->name, strlen(v->name));
    int64_t numel = 1, numbers;
    OCT_CHECK(!size->h || !size->w || size->c, OCT_USAGE,
              "%s: the input '%s' is no image, so that it has no height and width to set; leave "
              "the size out",
              g->path, name.text);
    v->dim[0] = OCT_ONNX_BATCH;
    for (int i = 1; i < v->ndim; i++) {
        OCT_CHECK(v->dim[i] > 0, OCT_DATA,
                  "%s: dimension %d of the input '%s' is free; only the first may be", g->path, i,
                  name.text);
        OCT_CHECK(!__builtin_mul_overflow(numel, v->dim[i], &numel), OCT_DATA,
                  "%s: the input '%s' is too large", g->path, name.text);
    }
    if (!size->h || !size->w || !size->c) return OCT_OK;
    OCT_CHECK(!__builtin_mul_overflow(size->h, size->w, &numbers) &&
                  !__builtin_mul_overflow(numbers, size->c, &numbers) && numel == numbers,
              OCT_DATA,
              "%s: the input '%s' has %" PRId64 " numbers, and the samples have %" PRId64
              " x %" PRId64 " x %" PRId64,
              g->path, name.text, numel, size->h, size->w, size->c);
    return OCT_OK;
}

/* Sizes that shape functions may add to and multiply. */
static oct_status check_size(const oct_onnx_graph *g, const oct_onnx_value *v)
{
    const int64_t numel = oct_onnx_numel(v);
    bool fine = numel >= 0 && numel <= input_numel_max;
    for (int i = 0; i < v->ndim; i++)
        fine = fine && v->dim[i] <= INT32_MAX;
    OCT_CHECK(fine, OCT_DATA, "%s: the input '%s' is too large", g->path,
              oct_show(v->name, strlen(v->name)).text);
    return OCT_OK;
}

static oct_status set_input(oct_onnx_graph *g, const image_size *size)
{
    oct_onnx_value *v = &g->values[g->inputs[0]];
    OCT_CHECK(g->num_inputs == 1, OCT_PREPARE,
              "%s: it has %d inputs, and a data set gives one; export it with one input", g->path,
              g->num_inputs);
    OCT_CHECK(!v->known || v->ndim > 1, OCT_PREPARE,
              "%s: the input '%s' has no dimension but the batch; give it a second one for the "
              "numbers of a sample",
              g->path, oct_show(v->name, strlen(v->name)).text);
    if (!v->known)
        *v = (oct_onnx_value){.name = v->name,
                              .dtype = v->dtype,
                              .ndim = 4,
                              .known = true,
                              .origin = -1,
                              .dim = {-1, -1, -1, -1}};
    OCT_TRY(v->ndim == 4 ? set_image(g, v, size) : set_numbers(g, v, size));
    return check_size(g, v);
}

/* Nodes that do nothing. */

static bool same_shape(const oct_onnx_value *a, const oct_onnx_value *b)
{
    bool same = a->known && b->known && a->dtype == b->dtype && a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->dim[i] == b->dim[i];
    return same;
}

/* Is output 0 input 0, given that both have the same shape? */
static bool keeps_numbers(const oct_onnx_node *n)
{
    static const char *const types[] = {"Cast",    "CastLike", "Expand", "Flatten",
                                        "Reshape", "Squeeze",  "Tile",   "Unsqueeze"};
    static const char *const many_inputs[] = {"Concat", "Max", "Mean", "Min", "Split", "Sum"};
    bool pads = strcmp(n->type, "Pad") == 0;
    for (int i = 0; pads && i < OCT_ONNX_DIMS; i++)
        if (n->args.before[i] != 0 || n->args.after[i] != 0) return false;
    if (pads) return true;
    for (size_t i = 0; i < OCT_COUNT(types); i++)
        if (strcmp(n->type, types[i]) == 0) return true;
    for (size_t i = 0; i < OCT_COUNT(many_inputs); i++)
        if (strcmp(n->type, many_inputs[i]) == 0) return n->inputs == 1 && n->outputs == 1;
    return false;
}

static bool does_nothing(const oct_onnx_graph *g, const oct_onnx_node *n)
{
    if (n->domain[0] != '\0' || n->inputs < 1 || n->outputs < 1 || n->input[0] < 0 ||
        n->output[0] < 0)
        return false;
    if (strcmp(n->type, "Identity") == 0) return true;
    if (strcmp(n->type, "Dropout") == 0) { /* of inference, unless its third input is true */
        const oct_onnx_value *training = oct_onnx_input(g, n, 2);
        bool trains = false;
        return (n->outputs == 1 || n->output[1] < 0) &&
               (!training || (oct_onnx_truth(training, &trains) && !trains));
    }
    return same_shape(&g->values[n->input[0]], &g->values[n->output[0]]) && keeps_numbers(n);
}

/* The value that output k of an If stands for, when its condition is known; -1. */
static int32_t chosen(const oct_onnx_graph *g, const oct_onnx_node *n, int k)
{
    bool when;
    if (!oct_onnx_truth(&g->values[n->input[0]], &when)) return -1;
    return n->input[1 + k + (when ? 0 : n->outputs)];
}

/* Lets all users of such a node's output use its input. Without users it is removed with the others. */
static oct_status bypass(oct_onnx_graph *g)
{
    int32_t *same_as = NULL;
    OCT_TRY(oct_alloc(&same_as, (size_t)g->num_values, sizeof *same_as));
    for (int64_t i = 0; i < g->num_values; i++)
        same_as[i] = (int32_t)i;
    for (int64_t i = 0; i < g->num_nodes; i++) {
        oct_onnx_node *n = &g->nodes[i];
        for (int k = 0; k < n->inputs; k++)
            if (n->input[k] >= 0) n->input[k] = same_as[n->input[k]];
        if (does_nothing(g, n)) same_as[n->output[0]] = n->input[0];
        for (int k = 0; oct_onnx_is_if(n) && k < n->outputs; k++)
            if (n->output[k] >= 0 && chosen(g, n, k) >= 0) same_as[n->output[k]] = chosen(g, n, k);
    }
    for (int64_t i = 0; i < g->num_branches; i++)
        g->branches[i].condition = same_as[g->branches[i].condition];
    for (int i = 0; i < g->num_outputs; i++)
        g->outputs[i] = same_as[g->outputs[i]];
    oct_free(&same_as);
    return OCT_OK;
}

/* What is left. */

/* Marks the values that the outputs need, from the last node to the first. */
static void mark_needed(const oct_onnx_graph *g, bool *needed, bool *kept)
{
    for (int i = 0; i < g->num_outputs; i++)
        needed[g->outputs[i]] = true;
    for (int64_t i = g->num_nodes - 1; i >= 0; i--) {
        const oct_onnx_node *n = &g->nodes[i];
        for (int k = 0; k < n->outputs; k++) {
            const int32_t value = n->output[k];
            if (value >= 0 && needed[value] && !g->values[value].data) kept[i] = true;
        }
        for (int k = 0; kept[i] && k < n->inputs; k++)
            if (n->input[k] >= 0) needed[n->input[k]] = true;
        for (int32_t k = kept[i] ? n->branch : -1; k >= 0; k = g->branches[k].outer)
            needed[g->branches[k].condition] = true;
    }
}

static oct_status keep_needed(oct_onnx_graph *g)
{
    bool *needed = NULL, *kept = NULL;
    oct_status status = OCT_OK;
    int64_t count = 0;
    OCT_TRY_OUT(oct_alloc(&needed, (size_t)g->num_values, sizeof *needed));
    OCT_TRY_OUT(oct_alloc(&kept, (size_t)g->num_nodes, sizeof *kept));
    mark_needed(g, needed, kept);
    for (int64_t i = 0; i < g->num_nodes; i++) {
        if (kept[i])
            g->nodes[count++] = g->nodes[i];
        else
            oct_onnx_free_node(&g->nodes[i]);
    }
    g->num_nodes = count;
    for (int64_t i = 0; i < g->num_values; i++)
        if (!needed[i]) {
            oct_free(&g->values[i].data);
            oct_free(&g->values[i].times);
        }
out:
    oct_free(&needed);
    oct_free(&kept);
    return status;
}

/* What no function has a word for, in a network without other problems. */
static oct_status check_known(const oct_onnx_graph *g)
{
    for (int64_t i = 0; i < g->num_nodes; i++) {
        const oct_onnx_node *n = &g->nodes[i];
        bool known = true, constant = n->inputs > 0;
        for (int k = 0; k < n->inputs; k++) {
            const oct_onnx_value *v = oct_onnx_input(g, n, k);
            known = known && (!v || v->known);
            constant = constant && (!v || (v->data && !v->times));
        }
        const oct_shown name = oct_show(n->name, strlen(n->name));
        const oct_shown type = oct_show(n->type, strlen(n->type));
        if (!known)
            oct_fail_add(OCT_DATA, "%s: node '%s' (%s): it uses a result that is not known",
                         g->path, name.text, type.text);
        else if (constant)
            oct_fail_add(OCT_DATA,
                         "%s: node '%s' (%s): it computes with constants alone, which Octet does "
                         "not do for this operator; put its result into the file as a constant",
                         g->path, name.text, type.text);
        for (int k = 0; k < n->outputs; k++)
            if (n->output[k] >= 0 && g->values[n->output[k]].known &&
                oct_onnx_numel(&g->values[n->output[k]]) == 0)
                oct_fail_add(OCT_DATA,
                             "%s: node '%s' (%s): its result has no numbers; use larger images",
                             g->path, name.text, type.text);
    }
    return oct_fail_code() == OCT_OK ? OCT_OK : OCT_DATA;
}

/* Codes are what Octet makes; scales that somebody else has chosen are not trained on. */
static oct_status check_float(const oct_onnx_graph *g)
{
    for (int64_t i = 0; i < g->num_nodes; i++) {
        const oct_onnx_node *n = &g->nodes[i];
        OCT_CHECK(
            !strstr(n->type, "QuantizeLinear") && strncmp(n->type, "QLinear", 7) != 0, OCT_DATA,
            "%s: node '%s' (%s): the network is quantized already; Octet trains float networks and "
            "quantizes them itself, so give the float network that this one was made of",
            g->path, oct_show(n->name, strlen(n->name)).text,
            oct_show(n->type, strlen(n->type)).text);
    }
    return OCT_OK;
}

oct_status oct_onnx_fold(oct_onnx_graph *g, int64_t h, int64_t w, int64_t c)
{
    oct_fail_clear();
    OCT_TRY(check_float(g));
    OCT_TRY(bypass(g));
    OCT_TRY(keep_needed(g));
    OCT_TRY(set_input(g, &(image_size){h, w, c}));
    OCT_TRY(oct_onnx_find_shapes(g));
    OCT_TRY(bypass(g));
    OCT_TRY(keep_needed(g));
    return check_known(g);
}
