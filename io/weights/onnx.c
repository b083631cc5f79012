/* The float initializers of an ONNX file, under their names. Weights of MatMul and of a Gemm that does not
 * transpose them are there as (in, out) and are given as (out, in), as a linear layer has them. A matrix that is also
 * read in another way, such as by the Gather of an embedding, is given as it is stored. */
#include "io/onnx/graph.h"

#include "core/base/mem.h"
#include "core/tensor/move.h"
#include "io/weights/format.h"

#include <string.h>

/* Opens a model and lists its float initializers; weights (in, out) are listed transposed. */
static oct_status open_graph(oct_weight_file *file)
{
    enum { AS_IN_OUT = 1, AS_STORED = 2 };
    oct_onnx_graph *g;
    OCT_OWNED(oct_free) uint8_t *reads = NULL; /* by value: in which of these ways nodes read it */
    OCT_TRY(oct_alloc(&g, 1, sizeof *g));
    file->state = g;
    OCT_TRY(oct_onnx_read(g, file->path));
    OCT_TRY(oct_alloc(&reads, (size_t)g->num_values, sizeof *reads));
    for (int64_t i = 0; i < g->num_nodes; i++) {
        const oct_onnx_node *n = &g->nodes[i];
        const bool product = strcmp(n->type, "MatMul") == 0 ||
                             (strcmp(n->type, "Gemm") == 0 && oct_onnx_int(n, "transB", 0) == 0);
        for (int k = 0; k < n->inputs; k++)
            if (n->input[k] >= 0) reads[n->input[k]] |= product && k == 1 ? AS_IN_OUT : AS_STORED;
    }
    for (int64_t i = 0; i < g->num_values; i++) {
        const oct_onnx_value *v = &g->values[i];
        const bool transposed = v->ndim == 2 && reads[i] == AS_IN_OUT;
        oct_weight like = {.ndim = v->ndim, .place = (int32_t)i, .transposed = transposed};
        if (!v->parameter || !v->data || v->dtype != OCT_F32) continue;
        for (int d = 0; d < v->ndim; d++)
            like.dim[d] = v->dim[transposed ? 1 - d : d];
        OCT_TRY(oct_weight_file_add(file, v->name, &like));
    }
    return OCT_OK;
}

/* Copies the values of an initializer, transposed where it is listed so. */
static oct_status read_value(oct_weight_file *file, const oct_weight *array, float *to)
{
    const oct_onnx_graph *g = file->state;
    const oct_onnx_value *v = &g->values[array->place];
    if (array->transposed)
        oct_transpose_f32(v->dim[0], v->dim[1], v->data, v->dim[1], to, v->dim[0]);
    else
        memcpy(to, v->data, (size_t)oct_weight_numel(array) * sizeof *to);
    return OCT_OK;
}

static void close_graph(oct_weight_file *file)
{
    oct_onnx_graph *g = file->state;
    if (g) oct_onnx_free(g);
    oct_free(&g);
}

const oct_weight_format oct_weight_format_onnx = {
    .name = "onnx",
    .extension = ".onnx",
    .external_values = true,
    .open = open_graph,
    .read = read_value,
    .close = close_graph,
};
