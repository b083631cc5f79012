/* What the functions of operators share. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/onnx/operator.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const oct_onnx_operator operators[] = {
#define OCT_ONNX_OPERATOR(type, since, until, inputs, shape, evaluate)                             \
    {#type, since, until, inputs, oct_onnx_shape_##shape, oct_onnx_evaluate_##evaluate},
#include "io/onnx/operator_list.def"
#undef OCT_ONNX_OPERATOR
};

const oct_onnx_operator *oct_onnx_operator_find(const char *type, int64_t opset)
{
    for (size_t i = 0; i < OCT_COUNT(operators); i++)
        if (strcmp(operators[i].type, type) == 0 && operators[i].since <= opset &&
            opset <= operators[i].until)
            return &operators[i];
    return NULL;
}

const oct_onnx_value *oct_onnx_in(const oct_onnx_call *c, int i)
{
    return oct_onnx_input(c->pass->graph, c->node, i);
}

oct_onnx_value *oct_onnx_result(const oct_onnx_call *c, int i)
{
    if (i >= c->node->outputs || c->node->output[i] < 0) return NULL;
    return &c->pass->graph->values[c->node->output[i]];
}

/* Does a sentence have the word N, which must be explained then? */
static bool names_batch(const char *text)
{
    for (const char *at = text; (at = strchr(at, 'N')); at++)
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[1]))
            return true;
    return false;
}

oct_status oct_onnx_node_problem(const oct_onnx_graph *g, const oct_onnx_node *n, const char *text)
{
    return oct_fail_add(
        OCT_DATA, "%s: node '%s' (%s): %s%s", g->path, oct_onnx_shown(n->name).text,
        oct_onnx_shown(n->type).text, text,
        names_batch(text) ? "; N is the batch, the first dimension of the network's input" : "");
}

oct_status(oct_onnx_problem)(const oct_onnx_call *c, const char *format, ...)
{
    char text[1024];
    if (oct_error_count() > OCT_ONNX_PROBLEMS_MAX) return OCT_DATA;
    if (oct_error_count() == OCT_ONNX_PROBLEMS_MAX)
        return oct_fail_add(OCT_DATA, "%s: has more problems, which are left out here",
                            c->pass->graph->path);
    OCT_PRINT_ARGS(text, format);
    return oct_onnx_node_problem(c->pass->graph, c->node, text);
}

oct_status oct_onnx_declare(oct_onnx_call *c, int i, oct_dtype dtype, const oct_onnx_value *shape)
{
    oct_onnx_value *out = oct_onnx_result(c, i);
    if (!out) return OCT_OK;
    out->dtype = dtype;
    out->ndim = shape->ndim;
    memcpy(out->dim, shape->dim, sizeof out->dim);
    out->known = true;
    return OCT_OK;
}

oct_status oct_onnx_need_ndim(const oct_onnx_call *c, int i, int least, int most)
{
    const oct_onnx_value *v = oct_onnx_in(c, i);
    if (v->ndim >= least && v->ndim <= most) return OCT_OK;
    return oct_onnx_problem(c, "its input %d has %d dimensions in place of %d to %d", i, v->ndim,
                            least, most);
}

oct_status oct_onnx_charge_work(oct_onnx_call *c, int64_t steps)
{
    c->pass->work_left -= steps;
    if (c->pass->work_left >= 0) return OCT_OK;
    return oct_onnx_problem(c, "the network's constants take too much work to compute");
}

oct_status oct_onnx_allocate_result(oct_onnx_call *c, int i)
{
    oct_onnx_value *out = oct_onnx_result(c, i);
    const int64_t numel = oct_onnx_numel(out);
    bool depends = c->node->inputs > 0 && !oct_onnx_in(c, 0)->data; /* Shape and Size */
    for (int k = 0; k < c->node->inputs; k++)
        depends = depends || (oct_onnx_in(c, k) && oct_onnx_in(c, k)->times);
    const int64_t size =
        (int64_t)(oct_dtype_bytes(out->dtype) + (depends ? sizeof *out->times : 0));
    if (numel < 0 || numel > c->pass->bytes_left / size)
        return oct_onnx_problem(c, "the network's constants take too much memory when computed");
    c->pass->bytes_left -= numel * size;
    OCT_TRY(oct_onnx_charge_work(c, numel));
    OCT_TRY(oct_alloc(&out->data, (size_t)numel, oct_dtype_bytes(out->dtype)));
    return depends ? oct_alloc(&out->times, (size_t)numel, sizeof *out->times) : OCT_OK;
}

oct_status oct_onnx_read_affine_list(const oct_onnx_call *c, const char *attribute, int i,
                                     oct_onnx_list *list)
{
    int64_t count;
    const int64_t *ints = attribute ? oct_onnx_ints(c->node, attribute, &count) : NULL;
    const oct_onnx_value *v = i >= 0 ? oct_onnx_in(c, i) : NULL;
    *list = (oct_onnx_list){.given = ints || v};
    if (!ints && !v) return OCT_OK;
    if (!ints && (!v->data || v->dtype == OCT_F32))
        return oct_onnx_problem(
            c, "its input %d must be known when the network is read, and is computed from images",
            i);
    if (!ints) count = oct_onnx_numel(v);
    if (count > OCT_ONNX_LIST_MAX)
        return oct_onnx_problem(c, "it has a list of more than %d numbers", OCT_ONNX_LIST_MAX);
    list->count = (int)count;
    for (int k = 0; k < list->count; k++) {
        list->fixed[k] = ints ? ints[k] : oct_onnx_get_int(v, k);
        list->times[k] = !ints && v->times ? v->times[k] : 0;
        if (isnan(list->times[k]))
            return oct_onnx_problem(
                c,
                "number %d of its input %d depends on the batch, and is no multiple "
                "of the batch size; export it with a constant",
                k, i);
    }
    return OCT_OK;
}

oct_status oct_onnx_read_integer_list(const oct_onnx_call *c, const char *attribute, int i,
                                      oct_onnx_list *list)
{
    OCT_TRY(oct_onnx_read_affine_list(c, attribute, i, list));
    for (int k = 0; k < list->count; k++)
        if (list->times[k] != 0)
            return oct_onnx_problem(c,
                                    "number %d of its input %d follows from the number of samples; "
                                    "export it with a constant",
                                    k, i);
    return OCT_OK;
}

oct_status oct_onnx_wrap_axis(const oct_onnx_call *c, int64_t axis, int ndim, int *found)
{
    if (axis < -ndim || axis >= ndim)
        return oct_onnx_problem(c, "axis %" PRId64 " is none of its %d dimensions", axis, ndim);
    *found = (int)(axis < 0 ? axis + ndim : axis);
    return OCT_OK;
}

oct_status oct_onnx_read_axis(const oct_onnx_call *c, int64_t otherwise)
{
    return oct_onnx_wrap_axis(c, oct_onnx_int(c->node, "axis", otherwise), oct_onnx_in(c, 0)->ndim,
                              &c->node->args.axis);
}

bool oct_onnx_truth(const oct_onnx_value *v, bool *truth)
{
    if (!v->data || v->dtype != OCT_U8 || oct_onnx_numel(v) != 1 || oct_onnx_varies(v, 0))
        return false;
    *truth = *(const uint8_t *)v->data != 0;
    return true;
}

bool oct_onnx_is_if(const oct_onnx_node *n)
{
    return strcmp(n->type, "If") == 0 && n->domain[0] == '\0';
}

int64_t oct_onnx_get_int(const oct_onnx_value *v, int64_t i)
{
    switch (v->dtype) {
    case OCT_S64:
        return ((const int64_t *)v->data)[i];
    case OCT_S32:
        return ((const int32_t *)v->data)[i];
    case OCT_S16:
        return ((const int16_t *)v->data)[i];
    case OCT_U16:
        return ((const uint16_t *)v->data)[i];
    case OCT_S8:
        return ((const int8_t *)v->data)[i];
    case OCT_U8:
        return ((const uint8_t *)v->data)[i];
    case OCT_F32:
    case OCT_F64:
        break;
    }
    OCT_ASSERT(false && "an integer");
    return 0;
}

bool oct_onnx_set_integer(oct_onnx_value *v, int64_t i, int64_t value)
{
    switch (v->dtype) {
    case OCT_S64:
        return !__builtin_add_overflow(value, 0, &((int64_t *)v->data)[i]);
    case OCT_S32:
        return !__builtin_add_overflow(value, 0, &((int32_t *)v->data)[i]);
    case OCT_S16:
        return !__builtin_add_overflow(value, 0, &((int16_t *)v->data)[i]);
    case OCT_U16:
        return !__builtin_add_overflow(value, 0, &((uint16_t *)v->data)[i]);
    case OCT_S8:
        return !__builtin_add_overflow(value, 0, &((int8_t *)v->data)[i]);
    case OCT_U8:
        return !__builtin_add_overflow(value, 0, &((uint8_t *)v->data)[i]);
    case OCT_F32:
    case OCT_F64:
        break;
    }
    return false;
}

oct_status oct_onnx_put_int(const oct_onnx_call *c, oct_onnx_value *v, int64_t i, int64_t value)
{
    return oct_onnx_set_integer(v, i, value) ? OCT_OK : oct_onnx_problem(c, "an integer overflows");
}

int oct_onnx_batch_dim(const oct_onnx_value *v)
{
    for (int i = 0; i < v->ndim; i++)
        if (v->dim[i] < 0) return i;
    return -1;
}

bool oct_onnx_is_fixed_batch(const oct_onnx_call *c, int64_t dim)
{
    return c->pass->graph->fixed_batch > 0 && dim == c->pass->graph->fixed_batch;
}

oct_status oct_onnx_broadcast_shape(const oct_onnx_call *c, oct_onnx_value *shape,
                                    const oct_onnx_value *with)
{
    const int ndim = shape->ndim > with->ndim ? shape->ndim : with->ndim;
    char first[OCT_ONNX_SHAPE_BYTES], second[OCT_ONNX_SHAPE_BYTES];
    int64_t dim[OCT_ONNX_DIMS] = {0};
    for (int i = 0; i < ndim; i++) {
        const int a = i - (ndim - shape->ndim), b = i - (ndim - with->ndim);
        const int64_t da = a < 0 ? 1 : shape->dim[a], db = b < 0 ? 1 : with->dim[b];
        if (da != db && da != 1 && db != 1)
            return oct_onnx_problem(c, "its inputs %s and %s do not go together",
                                    oct_onnx_shape_text(shape, first),
                                    oct_onnx_shape_text(with, second));
        dim[i] = da == 1 ? db : da;
    }
    shape->ndim = ndim;
    memcpy(shape->dim, dim, sizeof dim);
    return OCT_OK;
}

void oct_onnx_broadcast_strides(const oct_onnx_value *v, const oct_onnx_value *shape,
                                int64_t stride[OCT_ONNX_DIMS])
{
    int64_t step = 1;
    for (int i = shape->ndim - 1; i >= 0; i--) {
        const int dim = i - (shape->ndim - v->ndim);
        stride[i] = dim < 0 || v->dim[dim] == 1 ? 0 : step;
        if (dim >= 0) step *= v->dim[dim];
    }
}

void oct_onnx_walk_step(oct_onnx_walk *w)
{
    for (int i = w->shape->ndim - 1; i >= 0; i--) {
        const bool carry = ++w->index[i] == w->shape->dim[i];
        for (int k = 0; k < OCT_ONNX_OPERANDS; k++)
            w->offset[k] += w->stride[k][i] * (carry ? 1 - w->shape->dim[i] : 1); /* back to 0 */
        if (!carry) return;
        w->index[i] = 0;
    }
}
