/* Views are laid out where a module needs it, and modules are called. */
#include "io/onnx/build_impl.h"

#include "core/base/int_math.h"

#include <stdio.h>
#include <string.h>

const oct_onnx_value *oct_build_constant(const oct_onnx_builder *b, const oct_onnx_node *n, int i)
{
    const oct_onnx_value *v = oct_onnx_input(b->graph, n, i);
    return v && v->data ? v : NULL;
}

oct_status oct_build_weights(const oct_onnx_builder *b, const oct_onnx_node *n, int i,
                             const oct_onnx_value **constant)
{
    *constant = oct_build_constant(b, n, i);
    OCT_CHECK(*constant, OCT_PREPARE,
              "its input %d is computed by the network, but must be a constant; such a node cannot "
              "be trained here",
              i + 1);
    OCT_CHECK((*constant)->dtype == OCT_F32, OCT_PREPARE,
              "%s has the type %s; export the network in float32", (*constant)->name,
              oct_dtype_name((*constant)->dtype));
    return OCT_OK;
}

static bool moves_only(const char *type)
{
    return strcmp(type, "move") == 0 || strcmp(type, "reshape") == 0 ||
           strcmp(type, "flatten") == 0;
}

oct_status oct_build_call(oct_onnx_builder *b, const char *type, const oct_op_args *args,
                          const int32_t *inputs, int n, int32_t *value)
{
    oct_module *module = NULL;
    char path[sizeof b->path + 32];
    const bool only_moves = moves_only(type);
    OCT_CHECK(n <= OCT_MAX_INPUTS, OCT_PREPARE, "it has %d inputs; at most %d are supported", n,
              OCT_MAX_INPUTS);
    const oct_module_type *module_type = oct_module_type_find(type);
    OCT_CHECK(module_type, OCT_PREPARE, "there is no module %s here", type);
    OCT_TRY(oct_module_from(&module, module_type, args));
    if (only_moves) {
        const int32_t found = oct_network_find_call(b->network, module->type, args, inputs, n);
        if (found >= 0) {
            oct_module_destroy(&module);
            *value = found; /* may be an input too */
            return OCT_OK;
        }
    }
    if (only_moves || b->named)
        snprintf(path, sizeof path, "%s_%s", b->path, type);
    else
        snprintf(path, sizeof path, "%s", b->path);
    if (!only_moves) b->named = true;
    return oct_network_add(b->network, path, &module, inputs, n, value);
}

/* The first constant that rearranges the same parameter to the same elements: each call of a function makes one. */
static const oct_onnx_value *equal_constant(const oct_onnx_builder *b, const oct_onnx_value *v)
{
    for (const oct_onnx_value *other = b->graph->values; v && v->origin >= 0 && other < v;
         other++) {
        if (other->origin != v->origin || !other->data || other->ndim != v->ndim ||
            other->turn != v->turn ||
            memcmp(other->dim, v->dim, (size_t)v->ndim * sizeof v->dim[0]) != 0)
            continue;
        if (memcmp(other->data, v->data, (size_t)oct_onnx_numel(v) * sizeof(float)) == 0)
            return other;
    }
    return v;
}

oct_status oct_build_call_layer(oct_onnx_builder *b, const char *type, const oct_op_args *args,
                                const oct_onnx_layer *layer, int32_t input, int32_t *value,
                                bool *is_new)
{
    oct_onnx_layer *first = &b->first_layer[equal_constant(b, layer->weight) - b->graph->values];
    *is_new = false;
    if (first->weight && equal_constant(b, first->bias) == equal_constant(b, layer->bias) &&
        first->alpha == layer->alpha && first->beta == layer->beta &&
        memcmp(&first->order, &layer->order, sizeof layer->order) == 0) {
        const oct_module *shared = oct_network_module(b->network, first->output);
        oct_op_args has;
        oct_module_args(shared, &has);
        if (strcmp(shared->type->name, type) == 0 && oct_op_args_equal(&has, args))
            return oct_network_add_again(b->network, first->output, &input, 1, value);
    }
    OCT_TRY(oct_build_call(b, type, args, &input, 1, value));
    *is_new = true;
    if (!first->weight) {
        *first = *layer;
        first->output = *value;
    }
    return oct_build_fill(b, *value, "weight", layer->weight, &layer->order, layer->alpha);
}

oct_status oct_build_set_view(oct_onnx_builder *b, int32_t value, const oct_onnx_view *v)
{
    const oct_onnx_value *y = &b->graph->values[value];
    char text[OCT_ONNX_SHAPE_BYTES];
    bool fits = y->ndim == v->dims || !y->known;
    for (int d = 0; fits && d < v->dims; d++)
        fits = oct_view_size(v, d) != 0 && (!y->known || y->dim[d] == oct_view_size(v, d));
    OCT_CHECK(fits, OCT_DATA, "%s cannot have the shape %s; export the network again", y->name,
              oct_onnx_shape_text(y, text));
    const oct_module *module = oct_network_module(b->network, v->value);
    OCT_CHECK(!y->known || y->dtype == OCT_F32 || !module || moves_only(module->type->name),
              OCT_PREPARE,
              "it computes with integers, which are not trained; export the network in float32");
    b->view[value] = *v;
    b->has_view[value] = true;
    return OCT_OK;
}

oct_status oct_build_set_result(oct_onnx_builder *b, const oct_onnx_view *v)
{
    return oct_build_set_view(b, b->result, v);
}

/* A constant whose dimension 0 is 1 becomes a parameter that each sample sees, with dimension 0 as the batch. */
static oct_status view_of_constant(oct_onnx_builder *b, const oct_onnx_value *v, oct_onnx_view *out)
{
    int64_t size[OCT_ONNX_DIMS];
    oct_shape shape = {.ndim = v->ndim, .dim = {1}};
    int32_t output;
    OCT_CHECK(v->dtype == OCT_F32 && v->ndim >= 2 && v->dim[0] == 1 && oct_onnx_numel(v) > 0,
              OCT_PREPARE,
              "its input %s is a constant, and Octet has this operator only for what the network "
              "computes from samples; compute it before the export, or leave it out",
              v->name);
    size[0] = OCT_ONNX_BATCH;
    for (int d = 1; d < v->ndim; d++)
        size[d] = v->dim[d];
    if (v->ndim > OCT_MAX_DIMS)
        shape = OCT_SHAPE(1, oct_onnx_numel(v));
    else
        for (int d = 1; d < v->ndim; d++)
            shape.dim[d] = v->dim[d];
    oct_parameter_args sample_shape = oct_shape_of(shape.ndim - 1, shape.dim + 1);
    oct_op_args args;
    const int32_t network_input = 0; /* the parameter repeats for each of its samples */
    oct_args_write(&oct_parameter_arg_list, &sample_shape, &args);
    OCT_TRY(oct_build_call(b, "parameter", &args, &network_input, 1, &output));
    const oct_file_order order = oct_file_order_of(v->ndim - 1, v->dim + 1);
    OCT_TRY(oct_build_fill(b, output, "weight", v, &order, 1));
    *out = oct_view_of(output, shape, v->ndim, size);
    return OCT_OK;
}

oct_status oct_build_operand(oct_onnx_builder *b, const oct_onnx_node *n, int i, oct_onnx_view *v)
{
    const oct_onnx_value *c = oct_build_constant(b, n, i);
    const int dims = b->graph->values[b->result].ndim, front = c ? dims - c->ndim : 0;
    if (front <= 0) return oct_build_view(b, n, i, v);
    oct_onnx_value wide = *c;
    if (c->parameter) wide.origin = n->input[i];
    wide.parameter = false;
    wide.ndim = dims;
    for (int d = 0; d < dims; d++)
        wide.dim[d] = d < front ? 1 : c->dim[d - front];
    return view_of_constant(b, &wide, v);
}

oct_status oct_build_view(oct_onnx_builder *b, const oct_onnx_node *n, int i, oct_onnx_view *v)
{
    OCT_CHECK(i < n->inputs && n->input[i] >= 0, OCT_DATA,
              "its input %d is missing; export the network again", i + 1);
    const int32_t value = n->input[i];
    if (b->graph->values[value].data) return view_of_constant(b, &b->graph->values[value], v);
    *v = b->view[value];
    return OCT_OK;
}

/* Calls a module that copies the view's elements, in the order of these loops, into a new tensor of this shape. */
static oct_status add_move(oct_onnx_builder *b, const oct_onnx_view *v, const oct_view_atom *loop,
                           int loops, const oct_shape *shape, int32_t *value)
{
    oct_move_map map = {.offset = v->offset, .dims = loops, .out = *shape};
    oct_op_args args;
    OCT_CHECK(loops <= OCT_MOVE_DIMS, OCT_PREPARE,
              "its values are moved in %d nested loops, and at most 6 are supported; write it in "
              "two steps",
              loops);
    for (int i = 0; i < loops; i++) {
        map.size[i] = loop[i].size;
        map.stride[i] = loop[i].stride;
    }
    oct_args_write(&oct_move_arg_list, &map, &args);
    return oct_build_call(b, "move", &args, &v->value, 1, value);
}

oct_status oct_build_lay_out(oct_onnx_builder *b, oct_onnx_view *v, const int *order, int n,
                             oct_shape shape)
{
    oct_view_atom loop[OCT_VIEW_ATOMS];
    oct_shape sample = shape;
    sample.dim[0] = 1;
    const oct_onnx_view ordered = oct_view_transpose(v, order, n);
    const int loops = oct_view_merge_atoms(&ordered, loop);
    const int64_t numel = oct_view_numel(v);
    OCT_CHECK(oct_shape_numel(&sample) == numel, OCT_DEFECT, "a view of %lld values has no layout",
              (long long)numel);
    const bool laid = v->offset == 0 && numel == oct_view_tensor_numel(v) &&
                      (loops == 0 || (loops == 1 && loop[0].stride == 1));
    shape.dim[0] = v->shape.dim[0];
    if (!laid) {
        OCT_TRY(add_move(b, v, loop, loops, &shape, &v->value));
    } else if (!oct_shape_equal(&shape, &v->shape)) {
        oct_op_args args = {0};
        if (shape.ndim != 2) oct_args_write(&oct_reshape_arg_list, &shape, &args);
        OCT_TRY(oct_build_call(b, shape.ndim == 2 ? "flatten" : "reshape", &args, &v->value, 1,
                               &v->value));
    }
    int64_t stride = 1;
    for (int i = n - 1; i >= 0; i--) {
        const int first = oct_view_first_atom(v, order[i]);
        for (int k = first + v->num_atoms[order[i]] - 1; k >= first; k--) {
            v->atom[k].stride = stride;
            stride *= v->atom[k].size;
        }
    }
    v->offset = 0;
    v->shape = shape;
    return OCT_OK;
}

/* Dimensions that hold the batch and more are split first, and merged again. */
static oct_onnx_view without_merged_batch(const oct_onnx_view *v)
{
    const int dim = oct_view_batch(v);
    return dim >= 0 && v->num_atoms[dim] > 1 ? oct_view_split(v) : *v;
}

/* Gives the layout of `from` to a view that has the same atoms in other dimensions. */
static void copy_layout(oct_onnx_view *v, const oct_onnx_view *from)
{
    memcpy(v->atom, from->atom, sizeof v->atom);
    v->value = from->value;
    v->shape = from->shape;
    v->offset = from->offset;
}

oct_status oct_build_lay_out_natural(oct_onnx_builder *b, oct_onnx_view *v)
{
    int order[OCT_VIEW_ATOMS];
    if (oct_view_is_whole(v)) return OCT_OK;
    oct_onnx_view split = without_merged_batch(v);
    const int n = oct_view_order(&split, order);
    oct_shape shape = {.ndim = n == 0 ? 2 : (int)oct_min_i64(n, 3) + 1, .dim = {1, 1, 1, 1}};
    for (int i = 0; i < n; i++) { /* the outer ones together, where there are more than three */
        const int before = n > 3 ? n - 3 : 0;
        shape.dim[i > before ? i - before + 1 : 1] *= oct_view_size(&split, order[i]);
    }
    OCT_TRY(oct_build_lay_out(b, &split, order, n, shape));
    copy_layout(v, &split);
    return OCT_OK;
}

oct_status oct_build_lay_out_last(oct_onnx_builder *b, oct_onnx_view *v,
                                  const bool last[OCT_VIEW_ATOMS])
{
    int natural[OCT_VIEW_ATOMS], order[OCT_VIEW_ATOMS], count = 0;
    bool after[OCT_VIEW_ATOMS] = {false};
    int64_t size = 1;
    oct_onnx_view split = without_merged_batch(v);
    for (int d = 0; d < v->dims; d++)
        for (int i = 0, first = oct_view_first_atom(v, d); i < v->num_atoms[d]; i++)
            if (split.dims != v->dims) after[first + i] = last[d]; /* each atom is a dimension */
    if (split.dims == v->dims) memcpy(after, last, sizeof after);
    const int n = oct_view_order(&split, natural);
    for (int i = 0; i < n; i++)
        if (!after[natural[i]]) order[count++] = natural[i];
    for (int d = 0; d < split.dims; d++)
        if (after[d] && oct_view_size(&split, d) > 0) {
            order[count++] = d;
            size *= oct_view_size(&split, d);
        }
    const int64_t rest = oct_view_numel(v) / size;
    oct_shape shape = rest == 1 ? OCT_SHAPE(1, size) : OCT_SHAPE(1, rest, size);
    if (rest > 1 && v->shape.dim[v->shape.ndim - 1] == size && v->shape.ndim > 2 &&
        oct_view_tensor_numel(v) == oct_view_numel(v))
        shape = v->shape;
    OCT_TRY(oct_build_lay_out(b, &split, order, count, shape));
    copy_layout(v, &split);
    return OCT_OK;
}

oct_onnx_view oct_build_image(int32_t value, int dims, int64_t h, int64_t w, int64_t c)
{
    static const int order4[] = {2, 3, 1}, order3[] = {2, 1};
    const int64_t size4[] = {OCT_ONNX_BATCH, c, h, w}, size3[] = {OCT_ONNX_BATCH, c, w};
    return oct_view_in_order(value, OCT_SHAPE(1, h, w, c), dims, dims == 4 ? size4 : size3,
                             dims == 4 ? order4 : order3, dims - 1);
}

oct_status oct_build_lay_out_image(oct_onnx_builder *b, oct_onnx_view *v)
{
    const int order4[] = {2, 3, 1}, order3[] = {2, 1};
    OCT_CHECK(v->dims == 4 || v->dims == 3, OCT_PREPARE,
              "its input has %d dimensions; only images and sequences of channels are supported",
              v->dims);
    OCT_CHECK(oct_view_batch(v) == 0 && v->num_atoms[0] == 1, OCT_PREPARE,
              "the first dimension of its input is not the batch; export it with the batch first");
    const int64_t h = v->dims == 4 ? oct_view_size(v, 2) : 1;
    return oct_build_lay_out(b, v, v->dims == 4 ? order4 : order3, v->dims - 1,
                             OCT_SHAPE(1, h, oct_view_size(v, v->dims - 1), oct_view_size(v, 1)));
}

oct_status oct_build_call_unary(oct_onnx_builder *b, const char *type, const oct_op_args *args,
                                oct_onnx_view *v)
{
    if (oct_view_numel(v) < oct_view_tensor_numel(v)) OCT_TRY(oct_build_lay_out_natural(b, v));
    return oct_build_call(b, type, args, &v->value, 1, &v->value);
}

const oct_onnx_value *oct_build_take_constant(oct_onnx_builder *b, const char *type, int dims,
                                              const int64_t *size, int count, int after)
{
    int64_t numel = 1;
    const int32_t user = b->last_reader[b->result];
    if (b->reads[b->result] != 1 || user < 0 || b->fused[user].type) return NULL;
    const oct_onnx_node *n = &b->graph->nodes[user];
    if (strcmp(n->type, type) != 0 || n->inputs != 2) return NULL;
    const oct_onnx_value *c = oct_build_constant(b, n, n->input[0] == b->result ? 1 : 0);
    if (!c || c->dtype != OCT_F32 || c->ndim < count + after || c->ndim > dims) return NULL;
    const int64_t *dim = c->dim + c->ndim - after - count;
    for (int d = 0; d < count; d++) {
        if (dim[d] != size[d]) return NULL;
        numel *= size[d];
    }
    if (oct_onnx_numel(c) != numel) return NULL;
    b->absorbed[user] = true;
    b->result = n->output[0];
    return c;
}
