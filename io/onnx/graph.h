/* A network as an ONNX file describes it: values, and the nodes that make them from others.
 *
 * oct_onnx_read takes a file over as it is, oct_onnx_fold makes of it what training needs: shapes for a size
 * of image and a free batch dimension, constants where nothing depends on the input. Values, nodes and their
 * numbers are plain data; io/README.md says what is refused and why.
 */
#pragma once

#include "core/base/text.h"
#include "core/tensor/tensor.h"

/* OCT_ONNX_BATCH stands for the free dimension; a multiple of it, such as -12, for 12 times the batch
 * (attention folds its heads into the batch). */
enum { OCT_ONNX_DIMS = 8, OCT_ONNX_BATCH = -1 };
enum { OCT_ONNX_OPSET_MIN = 9, OCT_ONNX_OPSET_MAX = 27 };

/* The order of a constant's elements, compared with the parameter that it comes from. */
typedef enum oct_onnx_turn {
    OCT_ONNX_AS_IT_IS,
    OCT_ONNX_TRANSPOSED, /* its rows are the columns of a matrix there */
    OCT_ONNX_MOVED,      /* in another order */
} oct_onnx_turn;

typedef struct oct_onnx_value {
    char *name;
    oct_dtype dtype; /* of real numbers F32, of truth values U8 (0 or 1) */
    int ndim;
    int64_t dim[OCT_ONNX_DIMS];
    bool known;     /* dtype, ndim and dim are known (after the folding: of every value) */
    void *data;     /* a constant's elements, row-major; NULL: computed. Owned: free or take it */
    bool parameter; /* a float initializer of the file, not a folded result */
    bool learned;   /* a constant that comes from parameters: others are not trained */
    /* Of a constant that depends on the batch size N: element i is data[i] + times[i] N. NULL: it does not. */
    double *times;   /* owned like data */
    bool from_shape; /* a constant that comes from the shape of a computed value, in whatever way */
    int32_t origin;  /* the parameter that this constant rearranges (a transposed weight); or -1 */
    oct_onnx_turn turn;
} oct_onnx_value;

typedef enum oct_onnx_kind {
    OCT_ONNX_INT,
    OCT_ONNX_FLOAT,
    OCT_ONNX_STRING,
    OCT_ONNX_TENSOR,
    OCT_ONNX_INTS,
    OCT_ONNX_GRAPH, /* a subgraph: only its name is kept */
    OCT_ONNX_OTHER, /* lists of floats or texts, and what else is not read: only its name is kept */
} oct_onnx_kind;

typedef struct oct_onnx_attribute {
    char *name;
    oct_onnx_kind kind;
    int64_t i;
    float f;
    char *s;
    int64_t *ints;
    int64_t count;
    oct_onnx_value tensor;
} oct_onnx_attribute;

/* One of the two networks inside of an If: its nodes count where the condition is as `when` says. */
typedef struct oct_onnx_branch {
    int32_t condition; /* the value */
    bool when;
    int32_t outer; /* the branch that this one is in; -1 */
} oct_onnx_branch;

/* What the attributes and constant inputs of a node say, decoded once, by the shape functions. Lists have a number for
 * each dimension of input 0; an operator sets those that it has. */
typedef struct oct_onnx_arguments {
    int axis;
    int perm[OCT_ONNX_DIMS];
    bool reduced[OCT_ONNX_DIMS]; /* a reduction takes this dimension */
    int64_t start[OCT_ONNX_DIMS],
        step[OCT_ONNX_DIMS]; /* Slice (and Shape: start[0]); how many is in the result's shape */
    int64_t before[OCT_ONNX_DIMS], after[OCT_ONNX_DIMS]; /* padding of Pad and of windows */
    int64_t kernel[OCT_ONNX_DIMS], stride[OCT_ONNX_DIMS], dilation[OCT_ONNX_DIMS]; /* windows */
    int64_t output_padding[OCT_ONNX_DIMS];
    float scale[OCT_ONNX_DIMS]; /* Resize; 0: only sizes are given */
    int64_t block;              /* DepthToSpace, SpaceToDepth */
} oct_onnx_arguments;

/* The networks inside of nodes are taken apart when a file is read: functions are written out where they are called,
 * loops of a known length round by round. The nodes of both branches of an If stand beside it, and it has the
 * condition, the results of one and those of the other as inputs. */
typedef struct oct_onnx_node {
    char *name, *type, *domain; /* "conv1" (never empty), "Conv", "" for ONNX's own operators */
    int32_t *input;             /* numbers of values; -1: left out */
    int inputs;
    int32_t *output; /* the same */
    int outputs;
    oct_onnx_attribute *attributes;
    int num_attributes;
    int32_t branch;          /* -1: of none */
    oct_onnx_arguments args; /* after the folding */
} oct_onnx_node;

typedef struct oct_onnx_graph {
    char *path; /* for messages */
    int64_t opset, ir_version;
    char *producer; /* name and version, "" when the file does not say */
    oct_onnx_value *values;
    int64_t num_values;
    oct_onnx_node *nodes; /* each after those that it needs */
    int64_t num_nodes;
    oct_onnx_branch *branches;
    int64_t num_branches;
    int32_t *inputs; /* the activations that come in, without the initializers */
    int num_inputs;
    int32_t *outputs;
    char **output_names; /* as the file calls them, whatever is folded */
    int num_outputs;
    int64_t fixed_batch; /* the batch size that the file was written for; 0: free */
    bool channels_last;  /* after the folding: input 0 is (batch, h, w, c), as from Keras */
} oct_onnx_graph;

/* Reads a file whole: elements that lie in others of its folder (external data) are put into it, so that the bytes
 * need no other file. Without such it stays as it is. OCT_DATA with one sentence. */
oct_status oct_onnx_load(const char *path, void **bytes, size_t *size);
/* Loads a file and checks it. Constant nodes become values. OCT_DATA with one sentence. */
oct_status oct_onnx_read(oct_onnx_graph *g, const char *path);
/* The same of bytes that were loaded; path is for messages. */
typedef struct oct_onnx_source {
    const void *bytes;
    size_t size;
    const char *path;
} oct_onnx_source;
oct_status oct_onnx_read_bytes(oct_onnx_graph *g, const oct_onnx_source *source);
void oct_onnx_free(oct_onnx_graph *g);
void oct_onnx_free_node(oct_onnx_node *n); /* what it holds */

/* Elements of one sample of a value, or of a constant: without the batch; -1 when there are too many. */
int64_t oct_onnx_numel(const oct_onnx_value *v);
/* A text of the file for messages; of NULL an empty one. */
oct_shown oct_onnx_shown(const char *text);
/* A dimension for messages: "32", "N" for the batch, "4 N". */
typedef struct oct_onnx_dim_text {
    char text[24];
} oct_onnx_dim_text;
oct_onnx_dim_text oct_onnx_show_dim(int64_t dim);
/* "(N, 3, 32, 32)"; N for the batch. Returns text. */
enum { OCT_ONNX_SHAPE_BYTES = 256 };
const char *oct_onnx_shape_text(const oct_onnx_value *v, char text[OCT_ONNX_SHAPE_BYTES]);

/* Attributes of a node; those of another kind than asked for count as missing. */
const oct_onnx_attribute *oct_onnx_attribute_find(const oct_onnx_node *n,
                                                  const char *name); /* NULL */
int64_t oct_onnx_int(const oct_onnx_node *n, const char *name, int64_t otherwise);
float oct_onnx_float(const oct_onnx_node *n, const char *name, float otherwise);
const char *oct_onnx_string(const oct_onnx_node *n, const char *name, const char *otherwise);
/* Integers of an attribute; NULL and a count of 0 when it is missing. */
const int64_t *oct_onnx_ints(const oct_onnx_node *n, const char *name, int64_t *count);
/* Value i of a node's inputs; NULL when it is left out. */
const oct_onnx_value *oct_onnx_input(const oct_onnx_graph *g, const oct_onnx_node *n, int i);
