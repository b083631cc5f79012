/* What the files of the reader share: they alone see the library's structs.
 *
 * read.c           the model: versions, inputs, outputs, functions, the order of nodes
 * read_whole.c     bytes are checked before the library unpacks them; external data are put into the file
 * read_scope.c     names of values, and whose names a node sees
 * read_body.c      nodes and their attributes; calls, branches and loops are written out
 * read_tensor.c    one tensor
 */
#pragma once

#include "io/onnx/graph.h"

#include <onnx.pb-c.h>

/* What protocol buffers can hold. */
#define OCT_ONNX_FILE_BYTES_MAX ((size_t)INT32_MAX)
/* Calls inside of calls, and rounds of a loop. */
enum { OCT_ONNX_SCOPES_MAX = 32, OCT_ONNX_ROUNDS_MAX = 1024 };

/* Names in the order of their bytes. No hash table: names are untrusted and could all collide. */
typedef struct oct_onnx_names_entry {
    const char *name;
    int32_t value; /* -1: an input that a call leaves out */
} oct_onnx_names_entry;

/* Whose names a node sees: those of the network, of a call, or of a network inside a node and all around it. */
typedef struct oct_onnx_scope {
    const struct oct_onnx_scope *outer;     /* NULL: sees nothing else */
    const OctOnnx__FunctionProto *function; /* NULL: no call */
    const OctOnnx__NodeProto *call;
    const char *prefix; /* before the names of its nodes and values: "" or "call/" */
    int depth;
    int32_t branch; /* of its nodes; -1 */
    oct_onnx_names_entry *list;
    size_t count, capacity;
} oct_onnx_scope;

typedef struct oct_onnx_reader {
    oct_onnx_graph *graph;
    const OctOnnx__ModelProto *model;
    size_t values_capacity, nodes_capacity, branches_capacity;
    size_t copies_left; /* bytes that functions, branches and loops may still take */
} oct_onnx_reader;

/* read_whole.c */

/* Checks a file and unpacks it; *m is freed by oct_onnx__model_proto__free_unpacked. */
oct_status oct_onnx_unpack(const oct_onnx_source *source, OctOnnx__ModelProto **m);

/* read_scope.c */

/* Counts bytes of nodes and names that calls, branches and loops copy, which a small file could repeat without end. */
oct_status oct_onnx_charge(oct_onnx_reader *r, const oct_onnx_scope *s, size_t bytes);
/* Gives a value a name in the scope. It is found after oct_onnx_end_binding. */
oct_status oct_onnx_bind(oct_onnx_reader *r, oct_onnx_scope *s, const char *name, int32_t value);
/* Ends the binding: OCT_DATA when a name comes twice. Names are found from then on. */
oct_status oct_onnx_end_binding(oct_onnx_scope *s, const char *path);
/* Looks a name up, outwards; NULL when nothing has it. */
const oct_onnx_names_entry *oct_onnx_find_name(const oct_onnx_scope *s, const char *name);
/* Makes a value and binds its name; *value is valid until the next one is made. */
oct_status oct_onnx_define_value(oct_onnx_reader *r, oct_onnx_scope *s, const char *name,
                                 oct_onnx_value **value);
/* Makes the constants that a network or body holds, and binds their names. */
oct_status oct_onnx_define_initializers(oct_onnx_reader *r, oct_onnx_scope *s,
                                        const OctOnnx__GraphProto *p);

/* A node as it stands in a scope: attributes that name those of the call have their values. */
typedef struct oct_onnx_resolved {
    OctOnnx__NodeProto node;
    OctOnnx__AttributeProto *values; /* owned, as are the node's pointers to them */
} oct_onnx_resolved;
/* Copies a node of a function's body; attributes that refer to one of the function get the value of the call, or else
 * the function's default. OCT_DATA where there is none, unless a call may leave it out; the caller frees
 * *out then too. */
oct_status oct_onnx_resolve(const oct_onnx_reader *r, const oct_onnx_scope *s,
                            const OctOnnx__NodeProto *p, oct_onnx_resolved *out);
void oct_onnx_free_resolved(oct_onnx_resolved *r);
/* ONNX's own operators have no domain, or this one. */
bool oct_onnx_is_own(const char *domain);
/* The node's name; else that of its first output; else its operator. */
const char *oct_onnx_name_of(const OctOnnx__NodeProto *p);

/* read_body.c */

/* Is f the function of this name, domain and overload? */
bool oct_onnx_is_called(const OctOnnx__FunctionProto *f, const char *name, const char *domain,
                        const char *overload);
/* Adds these nodes to the graph, with calls, Ifs and Loops written out, and binds their results. */
oct_status oct_onnx_read_nodes(oct_onnx_reader *r, oct_onnx_scope *s,
                               OctOnnx__NodeProto *const *nodes, size_t count);

/* read_tensor.c */

/* Are its data in another file? */
bool oct_onnx_is_external(const OctOnnx__TensorProto *t);
/* Bytes that its elements take. */
oct_status oct_onnx_tensor_bytes(const char *path, const OctOnnx__TensorProto *t, int64_t *bytes);
/* Sets dtype, shape and data of a value; sizes are held against the bytes that are there. Its name stays. */
oct_status oct_onnx_read_tensor(const char *path, const OctOnnx__TensorProto *t, oct_onnx_value *v);
/* What an element of this type becomes; OCT_DATA with `name` for those that have no counterpart. */
oct_status oct_onnx_element_type(const char *path, const char *name, int32_t data_type,
                                 oct_dtype *dtype);

/* read_whole.c: memory for the library, from core/base/mem.h. */
extern ProtobufCAllocator oct_wire_allocator;
