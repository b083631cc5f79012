/* A network and the data beside it become one file: exporters of today write "net.onnx" and "net.onnx.data". */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/file/file.h"
#include "io/onnx/read_impl.h"
#include "io/onnx/wire.h"

#include <string.h>

oct_status oct_onnx_unpack(const oct_onnx_source *source, Onnx__ModelProto **m)
{
    OCT_CHECK(source->size <= OCT_ONNX_FILE_BYTES_MAX, OCT_DATA,
              "%s: has %s; an ONNX file has at most %s; larger tensors belong in external data",
              source->path, oct_text_size((int64_t)source->size).text,
              oct_text_size(OCT_ONNX_FILE_BYTES_MAX).text);
    OCT_TRY(
        oct_wire_check(&onnx__model_proto__descriptor, source->bytes, source->size, source->path));
    oct_fail_clear();
    *m = onnx__model_proto__unpack(&oct_wire_allocator, source->size, source->bytes);
    if (*m) return OCT_OK;
    return oct_fail_code() != OCT_OK
               ? oct_fail_prefix("%s", source->path)
               : oct_fail(OCT_DATA, "%s: is no ONNX file, or it is damaged", source->path);
}

/* What is done to each tensor of a file. */
typedef oct_status (*visit)(oct_external *x, Onnx__TensorProto *t);

static oct_status visit_graph(oct_external *x, const Onnx__GraphProto *g, visit function);

static oct_status visit_attributes(oct_external *x, Onnx__AttributeProto *const *list, size_t count,
                                   visit function)
{
    for (size_t i = 0; i < count; i++) {
        const Onnx__AttributeProto *a = list[i];
        if (a->t) OCT_TRY(function(x, a->t));
        for (size_t m = 0; m < a->n_tensors; m++)
            OCT_TRY(function(x, a->tensors[m]));
        if (a->g) OCT_TRY(visit_graph(x, a->g, function));
        for (size_t m = 0; m < a->n_graphs; m++)
            OCT_TRY(visit_graph(x, a->graphs[m], function));
    }
    return OCT_OK;
}

static oct_status visit_nodes(oct_external *x, Onnx__NodeProto *const *nodes, size_t count,
                              visit function)
{
    for (size_t i = 0; i < count; i++)
        OCT_TRY(visit_attributes(x, nodes[i]->attribute, nodes[i]->n_attribute, function));
    return OCT_OK;
}

static oct_status visit_graph(oct_external *x, const Onnx__GraphProto *g, visit function)
{
    for (size_t i = 0; i < g->n_initializer; i++)
        OCT_TRY(function(x, g->initializer[i]));
    return visit_nodes(x, g->node, g->n_node, function);
}

static oct_status visit_all(oct_external *x, const Onnx__ModelProto *m, visit function)
{
    if (m->graph) OCT_TRY(visit_graph(x, m->graph, function));
    for (size_t i = 0; i < m->n_functions; i++) {
        const Onnx__FunctionProto *f = m->functions[i];
        OCT_TRY(visit_attributes(x, f->attribute_proto, f->n_attribute_proto, function));
        OCT_TRY(visit_nodes(x, f->node, f->n_node, function));
    }
    return OCT_OK;
}

/* All is held against the files before anything is read. */
static oct_status put_in(oct_external *x, const Onnx__ModelProto *m, size_t size)
{
    uint64_t all = size;
    OCT_TRY(oct_external_check(x));
    for (size_t i = 0; i < x->count; i++)
        all += (uint64_t)x->pieces[i].length;
    OCT_CHECK(all <= OCT_ONNX_FILE_BYTES_MAX, OCT_DATA,
              "%s: has %s with its external data; networks of up to %s are read", x->path,
              oct_text_size((int64_t)all).text, oct_text_size(OCT_ONNX_FILE_BYTES_MAX).text);
    return visit_all(x, m, oct_onnx_take_external);
}

/* Puts the data into the file at `bytes`, where it has any outside. */
static oct_status make_whole(oct_external *x, void **bytes, size_t *size)
{
    const oct_onnx_source source = {*bytes, *size, x->path};
    Onnx__ModelProto *m = NULL;
    void *whole = NULL;
    oct_status status = OCT_OK;
    OCT_TRY(oct_onnx_unpack(&source, &m));
    OCT_TRY_OUT(visit_all(x, m, oct_onnx_note_external));
    if (x->count == 0) goto out;
    OCT_TRY_OUT(put_in(x, m, *size));
    const size_t packed = onnx__model_proto__get_packed_size(m);
    OCT_TRY_OUT(oct_alloc(&whole, packed, 1));
    (void)onnx__model_proto__pack(m, whole);
    oct_free(bytes);
    *bytes = whole;
    *size = packed;
out:
    onnx__model_proto__free_unpacked(m, &oct_wire_allocator);
    return status;
}

oct_status oct_onnx_load(const char *path, void **bytes, size_t *size)
{
    const char *slash = strrchr(path, '/');
    char *folder = NULL;
    oct_status status = OCT_OK;
    oct_external x = {.path = path};
    *bytes = NULL;
    OCT_TRY(oct_format(&folder, "%.*s", slash ? (int)(slash - path) + 1 : 2, slash ? path : "./"));
    x.folder = folder;
    OCT_TRY_OUT(oct_file_read(path, OCT_ONNX_FILE_BYTES_MAX, bytes, size));
    OCT_TRY_OUT(make_whole(&x, bytes, size));
out:
    if (status != OCT_OK) oct_free(bytes);
    oct_external_free(&x);
    oct_free(&folder);
    return status;
}
