/* Modules are called as the file calls their parameters, since people know a model by these names; where they
 * say nothing, as the node is called. */
#include "io/onnx/build_impl.h"

#include "core/base/mem.h"
#include "core/base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { PATH = sizeof(((oct_onnx_builder *)0)->path), SEGMENT = 60 };

/* Appends a segment in the letters that names may have. */
static void add_segment(char path[PATH], const char *text, size_t length)
{
    size_t used = strlen(path);
    if (length == 0 || used + 8 >= PATH) return;
    if (used > 0) path[used++] = '.';
    for (size_t i = 0; i < length && i < SEGMENT && used + 1 < PATH; i++) {
        const unsigned char c = (unsigned char)text[i];
        path[used++] = (char)(isalnum(c) && c < 128 ? tolower(c) : '_');
    }
    path[used] = '\0';
}

/* Appends what stands between dots, up to `end`. */
static void add_segments(char path[PATH], const char *text, const char *end)
{
    while (text < end) {
        size_t length = 0;
        while (text + length < end && text[length] != '.')
            length++;
        add_segment(path, text, length);
        text += length + 1;
    }
}

/* "layer1.0.conv1.weight" is of the module layer1.0.conv1; "onnx::Conv_123" says nothing. */
static bool path_of_parameter(const char *name, char path[PATH])
{
    const char *dot = strrchr(name, '.');
    path[0] = '\0';
    if (!dot || dot == name || strchr(name, ':') || strchr(name, '/')) return false;
    add_segments(path, name, dot);
    return path[0] != '\0';
}

static bool starts_with(const char *text, size_t length, const char *begin, size_t count)
{
    if (count == 0 || count > length) return false;
    for (size_t i = 0; i < count; i++)
        if (tolower((unsigned char)text[i]) != tolower((unsigned char)begin[i])) return false;
    return true;
}

/* PyTorch calls a node "/layer1/layer1.0/conv1/Conv": a part may repeat the one before it, and the last one is
 * the operator's type, which goes when the part before it says as much. */
static void path_of_node(const oct_onnx_node *n, char path[PATH])
{
    const char *last = "", *at = n->name;
    size_t last_length = 0, before = 0; /* before: where the last segment begins in path */
    path[0] = '\0';
    while (*at) {
        const size_t length = strcspn(at, "/");
        const bool repeats = starts_with(at, length, last, last_length) && at[last_length] == '.';
        const bool type = starts_with(at, length, n->type, strlen(n->type)) && at[length] == '\0' &&
                          starts_with(last, last_length, n->type, strlen(n->type));
        if (length > 0 && !type) {
            if (repeats) path[before] = '\0';
            before = strlen(path);
            add_segments(path, at, at + length);
            last = at;
            last_length = length;
        }
        at += length + (at[length] == '/');
    }
    if (!path[0]) add_segment(path, n->type, strlen(n->type));
}

/* The parameter that a constant is, or that it was rearranged from; NULL. */
static const oct_onnx_value *origin_of(const oct_onnx_builder *b, const oct_onnx_value *v)
{
    if (v->parameter) return v;
    return v->data && v->origin >= 0 ? &b->graph->values[v->origin] : NULL;
}

void oct_build_set_path(oct_onnx_builder *b, const oct_onnx_node *n)
{
    b->named = false;
    for (int i = 0; i < n->inputs; i++) {
        const oct_onnx_value *v =
            n->input[i] >= 0 ? origin_of(b, &b->graph->values[n->input[i]]) : NULL;
        if (v && path_of_parameter(v->name, b->path)) return;
    }
    path_of_node(n, b->path);
}

void oct_build_freeze(const oct_onnx_builder *b, int32_t made, const char *name, bool frozen)
{
    const oct_module *m = oct_network_module(b->network, made);
    for (size_t i = 0; i < m->num_params; i++)
        if (strcmp(m->params[i]->name, name) == 0) m->params[i]->frozen = frozen;
}

float *oct_build_state(const oct_onnx_builder *b, int32_t made, const char *name, int64_t *count)
{
    const oct_module *m = oct_network_module(b->network, made);
    for (size_t i = 0; i < m->num_params; i++)
        if (strcmp(m->params[i]->name, name) == 0) {
            *count = oct_numel(&m->params[i]->value);
            return oct_f32(&m->params[i]->value);
        }
    for (size_t i = 0; i < m->num_buffers; i++)
        if (strcmp(m->buffers[i].name, name) == 0) {
            *count = oct_numel(&m->buffers[i].tensor);
            return oct_f32(&m->buffers[i].tensor);
        }
    *count = 0;
    return NULL;
}

/* Is `to` the transpose of the matrix `from`? */
static bool is_transpose(const oct_onnx_value *from, const oct_onnx_value *to)
{
    if (from->ndim != 2 || to->ndim != 2 || from->dim[0] != to->dim[1] ||
        from->dim[1] != to->dim[0])
        return false;
    const float *f = from->data, *t = to->data;
    const int64_t rows = from->dim[0], columns = from->dim[1];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++)
            if (f[i * columns + k] != t[k * rows + i]) return false;
    return true;
}

/* Writes down which tensor of the file this is, when it is one as it stands there, or its transpose. */
static oct_status note_name(oct_onnx_builder *b, const oct_module *m, const char *name,
                            const oct_onnx_value *v, const oct_file_order *order)
{
    const oct_onnx_value *file = origin_of(b, v);
    oct_file_order turned = *order;
    if (!file || !file->data || oct_onnx_numel(file) != oct_onnx_numel(v)) return OCT_OK;
    if (file != v && memcmp(file->data, v->data, (size_t)oct_onnx_numel(v) * sizeof(float)) != 0) {
        if (!is_transpose(file, v) || order->size[0] != v->dim[0]) return OCT_OK;
        memmove(turned.size, order->size + 1, (size_t)(order->dims - 1) * sizeof(int64_t));
        memmove(turned.stride, order->stride + 1, (size_t)(order->dims - 1) * sizeof(int64_t));
        turned.size[order->dims - 1] = order->size[0];
        turned.stride[order->dims - 1] = order->stride[0];
    }
    const oct_network_name *names;
    char note[256];
    for (size_t i = oct_network_names(b->network, &names); i-- > 0;)
        if (strcmp(names[i].file, file->name) == 0) {
            snprintf(note, sizeof note,
                     "its parameter %.80s is used in different ways (such as transposed): each "
                     "has a copy, and training changes them apart",
                     oct_show(file->name, strlen(file->name)).text);
            OCT_TRY(oct_network_add_note(b->network, note));
        }
    return oct_network_add_name(b->network, m, name, file->name, &turned);
}

oct_status oct_build_fill(oct_onnx_builder *b, int32_t made, const char *name,
                          const oct_onnx_value *constant, const oct_file_order *order)
{
    int64_t count, elements = 1;
    float *state = oct_build_state(b, made, name, &count);
    for (int i = 0; i < order->dims; i++)
        elements *= order->size[i];
    OCT_CHECK(state && elements == count && elements == oct_onnx_numel(constant), OCT_DATA,
              "%s has %lld values, but %lld are needed; export the network again", constant->name,
              (long long)oct_onnx_numel(constant), (long long)count);
    OCT_CHECK(oct_all_finite(constant->data, count), OCT_DATA,
              "%s has values that are infinite or not numbers; export the network again",
              constant->name);
    oct_file_order_in(order, constant->data, state);
    oct_build_freeze(b, made, name, !constant->learned);
    return note_name(b, oct_network_module(b->network, made), name, constant, order);
}

oct_status oct_build_fill_flat(oct_onnx_builder *b, int32_t made, const char *name,
                               const oct_onnx_value *v)
{
    const int64_t size = oct_onnx_numel(v);
    const oct_file_order order = oct_file_order_of(1, &size);
    return oct_build_fill(b, made, name, v, &order);
}
