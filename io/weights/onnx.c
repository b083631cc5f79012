/* The float initializers of an ONNX file, under their names. Weights of MatMul and of a Gemm that does not
 * transpose them are there as (in, out) and are given as (out, in), as a linear layer has them. */
#include "io/onnx/graph.h"

#include "core/base/mem.h"
#include "core/kernel/transpose.h"
#include "io/weights/format.h"

#include <string.h>

/* An open file; its state (format.h). */
typedef struct initializers {
    oct_onnx_graph graph;
    bool *transposed; /* by value: it is a weight (in, out) */
} initializers;

static bool is_weight(const oct_onnx_value *v)
{
    return v->parameter && v->data && v->dtype == OCT_F32;
}

/* Lists the float initializers of a model; weights (in, out) of a MatMul or Gemm transposed, as (out, in). */
static oct_status open_graph(oct_weight_file *file)
{
    initializers *s;
    OCT_TRY(oct_alloc(&s, 1, sizeof *s));
    file->state = s;
    OCT_TRY(oct_onnx_read(&s->graph, file->path));
    OCT_TRY(oct_alloc(&s->transposed, (size_t)s->graph.num_values, sizeof *s->transposed));
    for (int64_t i = 0; i < s->graph.num_nodes; i++) {
        const oct_onnx_node *n = &s->graph.nodes[i];
        const bool product = strcmp(n->type, "MatMul") == 0 ||
                             (strcmp(n->type, "Gemm") == 0 && oct_onnx_int(n, "transB", 0) == 0);
        const int32_t at = product && n->inputs >= 2 ? n->input[1] : -1;
        const oct_onnx_value *weight = at >= 0 ? &s->graph.values[at] : NULL;
        if (weight && is_weight(weight) && weight->ndim == 2) s->transposed[at] = true;
    }
    for (int64_t i = 0; i < s->graph.num_values; i++) {
        const oct_onnx_value *v = &s->graph.values[i];
        oct_weight like = {.ndim = v->ndim, .place = (int32_t)i, .transposed = s->transposed[i]};
        if (!is_weight(v)) continue;
        for (int d = 0; d < v->ndim; d++)
            like.dim[d] = v->dim[s->transposed[i] ? 1 - d : d];
        OCT_TRY(oct_weight_file_add(file, v->name, &like));
    }
    return OCT_OK;
}

/* Copies the values of an initializer, transposed where it is listed so. */
static oct_status read_value(oct_weight_file *file, const oct_weight *array, float *to)
{
    const initializers *s = file->state;
    const oct_onnx_value *v = &s->graph.values[array->place];
    if (s->transposed[array->place])
        oct_transpose_f32(v->dim[0], v->dim[1], v->data, v->dim[1], to, v->dim[0]);
    else
        memcpy(to, v->data, (size_t)oct_weight_numel(array) * sizeof *to);
    return OCT_OK;
}

static void close_graph(oct_weight_file *file)
{
    initializers *s = file->state;
    if (!s) return;
    oct_onnx_free(&s->graph);
    oct_free(&s->transposed);
    oct_free(&s);
}

const oct_weight_format oct_weight_format_onnx = {
    .name = "onnx",
    .extension = ".onnx",
    .external_values = true,
    .open = open_graph,
    .read = read_value,
    .close = close_graph,
};
