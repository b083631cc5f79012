/* Names of values. What is inside of a function sees its own names alone; what is inside of an If sees those
 * around it too. */
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/onnx/read_impl.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(((const oct_onnx_names_entry *)a)->name, ((const oct_onnx_names_entry *)b)->name);
}

oct_status oct_onnx_charge(oct_onnx_reader *r, const oct_onnx_scope *s, size_t bytes)
{
    if (s->depth == 0) return OCT_OK; /* the file itself bounds it */
    OCT_CHECK(bytes <= r->copies_left, OCT_DATA,
              "%s: grows too large when its functions and loops are written out; export it "
              "without them",
              r->graph->path);
    r->copies_left -= bytes;
    return OCT_OK;
}

oct_status oct_onnx_bind(oct_onnx_reader *r, oct_onnx_scope *s, const char *name, int32_t value)
{
    OCT_TRY(oct_onnx_charge(r, s, 2 * sizeof *s->list));
    OCT_TRY(oct_grow(&s->list, &s->capacity, s->count + 1, sizeof *s->list));
    s->list[s->count++] = (oct_onnx_names_entry){name, value};
    return OCT_OK;
}

oct_status oct_onnx_end_binding(oct_onnx_scope *s, const char *path)
{
    if (s->count > 1) qsort(s->list, s->count, sizeof *s->list, by_name);
    for (size_t i = 1; i < s->count; i++)
        OCT_CHECK(strcmp(s->list[i - 1].name, s->list[i].name) != 0, OCT_DATA,
                  "%s: the value '%s' is defined twice", path,
                  oct_show(s->list[i].name, strlen(s->list[i].name)).text);
    return OCT_OK;
}

const oct_onnx_names_entry *oct_onnx_find(const oct_onnx_scope *s, const char *name)
{
    const oct_onnx_names_entry wanted = {.name = name};
    for (; s; s = s->outer) {
        const oct_onnx_names_entry *found =
            s->count ? bsearch(&wanted, s->list, s->count, sizeof *s->list, by_name) : NULL;
        if (found) return found;
    }
    return NULL;
}

oct_status oct_onnx_define(oct_onnx_reader *r, oct_onnx_scope *s, const char *name,
                           oct_onnx_value **value)
{
    oct_onnx_graph *g = r->graph;
    *value = NULL;
    OCT_CHECK(name && name[0] != '\0', OCT_DATA,
              "%s: has an input or a tensor without a name; it is damaged", g->path);
    OCT_TRY(oct_onnx_bind(r, s, name, (int32_t)g->num_values));
    OCT_TRY(oct_onnx_charge(r, s, 2 * sizeof **value + strlen(name) + strlen(s->prefix)));
    OCT_TRY(
        oct_grow(&g->values, &r->values_capacity, (size_t)g->num_values + 1, sizeof *g->values));
    *value = &g->values[g->num_values];
    **value = (oct_onnx_value){.origin = -1};
    OCT_TRY(oct_format(&(*value)->name, "%s%s", s->prefix, name));
    g->num_values++;
    return OCT_OK;
}

oct_status oct_onnx_define_initializers(oct_onnx_reader *r, oct_onnx_scope *s,
                                        const Onnx__GraphProto *p)
{
    oct_onnx_value *v;
    OCT_CHECK(p->n_sparse_initializer == 0, OCT_DATA, "%s: has sparse tensors, which are not read",
              r->graph->path);
    for (size_t i = 0; i < p->n_initializer; i++) {
        OCT_TRY(oct_onnx_define(r, s, p->initializer[i]->name, &v));
        OCT_TRY(oct_onnx_charge(r, s, onnx__tensor_proto__get_packed_size(p->initializer[i])));
        OCT_TRY(oct_onnx_take_tensor(r->graph->path, p->initializer[i], v));
        v->parameter = v->learned = v->dtype == OCT_F32;
    }
    return OCT_OK;
}
