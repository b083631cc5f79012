#include "io/onnx/graph.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void free_value(oct_onnx_value *v)
{
    OCT_FREE_ALL(&v->name, &v->data, &v->times);
}

void oct_onnx_free_node(oct_onnx_node *n)
{
    for (int i = 0; i < n->num_attributes; i++) {
        oct_onnx_attribute *a = &n->attributes[i];
        OCT_FREE_ALL(&a->name, &a->s, &a->ints);
        free_value(&a->tensor);
    }
    OCT_FREE_ALL(&n->name, &n->type, &n->domain, &n->input, &n->output, &n->attributes);
}

void oct_onnx_free(oct_onnx_graph *g)
{
    for (int64_t i = 0; i < g->num_values; i++)
        free_value(&g->values[i]);
    for (int64_t i = 0; i < g->num_nodes; i++)
        oct_onnx_free_node(&g->nodes[i]);
    for (int i = 0; g->output_names && i < g->num_outputs; i++)
        oct_free(&g->output_names[i]);
    OCT_FREE_ALL(&g->output_names, &g->path, &g->producer, &g->values, &g->nodes, &g->branches,
                 &g->inputs, &g->outputs);
    *g = (oct_onnx_graph){0};
}

int64_t oct_onnx_numel(const oct_onnx_value *v)
{
    int64_t numel = 1;
    for (int i = 0; i < v->ndim; i++) {
        if (v->dim[i] == INT64_MIN) return -1;
        if (__builtin_mul_overflow(numel, v->dim[i] < 0 ? -v->dim[i] : v->dim[i], &numel))
            return -1;
    }
    return numel;
}

oct_shown oct_onnx_shown(const char *text)
{
    return oct_show(text ? text : "", text ? strlen(text) : 0);
}

oct_onnx_dim_text oct_onnx_show_dim(int64_t dim)
{
    oct_onnx_dim_text shown;
    if (dim == OCT_ONNX_BATCH)
        snprintf(shown.text, sizeof shown.text, "N");
    else if (dim < 0)
        snprintf(shown.text, sizeof shown.text, "%" PRIu64 " N", -(uint64_t)dim);
    else
        snprintf(shown.text, sizeof shown.text, "%" PRId64, dim);
    return shown;
}

const char *oct_onnx_shape_text(const oct_onnx_value *v, char text[OCT_ONNX_SHAPE_BYTES])
{
    size_t used = (size_t)snprintf(text, OCT_ONNX_SHAPE_BYTES, "(");
    for (int i = 0; i < v->ndim; i++)
        used += (size_t)snprintf(text + used, OCT_ONNX_SHAPE_BYTES - used, "%s%s", i ? ", " : "",
                                 oct_onnx_show_dim(v->dim[i]).text);
    snprintf(text + used, OCT_ONNX_SHAPE_BYTES - used, ")");
    return text;
}

const oct_onnx_attribute *oct_onnx_attribute_find(const oct_onnx_node *n, const char *name)
{
    for (int i = 0; i < n->num_attributes; i++)
        if (strcmp(n->attributes[i].name, name) == 0) return &n->attributes[i];
    return NULL;
}

static const oct_onnx_attribute *find_kind(const oct_onnx_node *n, const char *name,
                                           oct_onnx_kind kind)
{
    const oct_onnx_attribute *a = oct_onnx_attribute_find(n, name);
    return a && a->kind == kind ? a : NULL;
}

int64_t oct_onnx_int(const oct_onnx_node *n, const char *name, int64_t otherwise)
{
    const oct_onnx_attribute *a = find_kind(n, name, OCT_ONNX_INT);
    return a ? a->i : otherwise;
}

float oct_onnx_float(const oct_onnx_node *n, const char *name, float otherwise)
{
    const oct_onnx_attribute *a = find_kind(n, name, OCT_ONNX_FLOAT);
    return a ? a->f : otherwise;
}

const char *oct_onnx_string(const oct_onnx_node *n, const char *name, const char *otherwise)
{
    const oct_onnx_attribute *a = find_kind(n, name, OCT_ONNX_STRING);
    return a ? a->s : otherwise;
}

const int64_t *oct_onnx_ints(const oct_onnx_node *n, const char *name, int64_t *count)
{
    const oct_onnx_attribute *a = find_kind(n, name, OCT_ONNX_INTS);
    *count = a ? a->count : 0;
    return a ? a->ints : NULL;
}

const oct_onnx_value *oct_onnx_input(const oct_onnx_graph *g, const oct_onnx_node *n, int i)
{
    return i < n->inputs && n->input[i] >= 0 ? &g->values[n->input[i]] : NULL;
}
