/* Modules are called as the file calls their parameters, since people know a model by these names; where they
 * say nothing, as the node is called. */
#include "io/onnx/build_impl.h"

#include "core/base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { PATH = sizeof(((oct_onnx_builder *)0)->path), SEGMENT = 60 };

/* Appends ".text" to a path, in the letters that paths may have: others become '_'. A full path stays as it is. */
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

/* Appends the names between the dots of a text, up to `end`. */
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

/* The path layer1.0.conv1 in the name "layer1.0.conv1.weight". False: it has none, as "onnx::Conv_123". */
static bool path_of_parameter(const char *name, char path[PATH])
{
    const char *dot = strrchr(name, '.');
    path[0] = '\0';
    if (!dot || dot == name || strchr(name, ':') || strchr(name, '/')) return false;
    add_segments(path, name, dot);
    return path[0] != '\0';
}

/* Does a text begin with these `count` letters, large or small? */
static bool starts_with(const char *text, size_t length, const char *begin, size_t count)
{
    if (count == 0 || count > length) return false;
    for (size_t i = 0; i < count; i++)
        if (tolower((unsigned char)text[i]) != tolower((unsigned char)begin[i])) return false;
    return true;
}

/* PyTorch calls a node "/layer1/layer1.0/conv1/Conv": a part may repeat the one before it, and the last one is
 * the operator's type, which is left out when the part before it says the same. */
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

void oct_build_freeze(const oct_onnx_builder *b, int32_t output, const char *name, bool frozen)
{
    oct_param *param = oct_module_param(oct_network_module(b->network, output), name);
    if (!param) return;
    param->frozen = frozen;
    if (frozen) oct_param_untie(param);
}

float *oct_build_data(const oct_onnx_builder *b, int32_t output, const char *name, int64_t *count)
{
    const oct_module *m = oct_network_module(b->network, output);
    const oct_param *param = oct_module_param(m, name);
    const oct_tensor *found = param ? &param->value : NULL;
    for (size_t i = 0; i < m->num_buffers; i++)
        if (strcmp(m->buffers[i].name, name) == 0) found = &m->buffers[i].tensor;
    *count = found ? oct_numel(found) : 0;
    return found ? oct_f32(found) : NULL;
}

/* Records the name of a tensor of the file that a parameter is, unchanged or transposed: then all that have it are
 * tied. One that is `changed` (scaled) or moved is a copy, and a note says so if both are used. */
static oct_status note_name(oct_onnx_builder *b, const oct_module *m, const char *name,
                            const oct_onnx_value *v, const oct_file_order *order, bool changed)
{
    enum { NAMED = 1, APART = 2 };
    const oct_onnx_value *file = origin_of(b, v);
    oct_file_order turned = *order;
    char note[256];
    if (!file || !file->data || oct_onnx_numel(file) != oct_onnx_numel(v)) return OCT_OK;
    const bool named =
        !changed && (v == file || v->turn == OCT_ONNX_AS_IT_IS ||
                     (v->turn == OCT_ONNX_TRANSPOSED && oct_file_order_turn(&turned, v->dim[0])));
    uint8_t *used = &b->usage[file - b->graph->values];
    if (v->learned && (named ? *used & APART : *used)) {
        snprintf(note, sizeof note,
                 "its parameter %.80s is used in different ways, and one scales it or moves "
                 "its dimensions: each has a copy, and training changes them apart",
                 oct_onnx_shown(file->name).text);
        OCT_TRY(oct_network_add_note(b->network, note));
    }
    *used |= named ? NAMED : APART;
    return named ? oct_network_add_name(b->network, m, name, file->name, &turned) : OCT_OK;
}

oct_status oct_build_fill(oct_onnx_builder *b, int32_t output, const char *name,
                          const oct_onnx_value *constant, const oct_file_order *order,
                          double factor)
{
    int64_t count, elements = 1;
    float *state = oct_build_data(b, output, name, &count);
    for (int i = 0; i < order->dims; i++)
        elements *= order->size[i];
    OCT_CHECK(state && elements == count && elements == oct_onnx_numel(constant), OCT_DATA,
              "%s has %lld values, but %lld are needed; export the network again", constant->name,
              (long long)oct_onnx_numel(constant), (long long)count);
    oct_file_order_in(order, constant->data, state);
    for (int64_t i = 0; factor != 1 && i < count; i++)
        state[i] = (float)((double)state[i] * factor);
    OCT_CHECK(oct_all_finite(state, count), OCT_DATA,
              "%s has values that are infinite or not numbers; export the network again",
              constant->name);
    oct_build_freeze(b, output, name, !constant->learned);
    return note_name(b, oct_network_module(b->network, output), name, constant, order, factor != 1);
}

oct_status oct_build_fill_flat(oct_onnx_builder *b, int32_t output, const char *name,
                               const oct_onnx_value *v)
{
    const int64_t size = oct_onnx_numel(v);
    const oct_file_order order = oct_file_order_of(1, &size);
    return oct_build_fill(b, output, name, v, &order, 1);
}
