/* Networks: modules that form a tree, and the operations that their forwards call.
 *
 * A module of one's own is a table of functions and a struct of one's own:
 *
 *     typedef struct block { oct_module *conv, *head; } block;
 *     static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
 *     {
 *         block *m = (block *)oct_module_data(self);
 *         return oct_call(cx, m->head, oct_relu(cx, oct_call(cx, m->conv, x[0])));
 *     }
 *     static const oct_module_spec spec = {.name = "block", .data_bytes = sizeof(block), .forward = forward};
 *
 * Operations return a tensor of the step, or NULL when the context has failed; the first failure sticks, and each
 * operation accepts NULL and returns NULL. So a forward checks nothing: whoever runs it gets the failure.
 *
 * Tensors have up to four dimensions, the sample first: images (N, H, W, C), features (N, C). They hold floats where
 * nothing else is said. Tensors, nodes and what they hold live until the end of the step. A module tree is for one thread
 * at a time.
 */
#ifndef OCTET_NN_H
#define OCTET_NN_H

#include <octet/status.h>

OCT_BEGIN_DECLS

typedef struct oct_context oct_context; /* one forward and its backward */
typedef struct oct_tensor oct_tensor;
typedef struct oct_module oct_module;
typedef struct oct_param oct_param;
typedef struct oct_node oct_node; /* an operation that a backward follows */

/* A shape: of a tensor with its samples in dim[0], or of a parameter. */
enum { OCT_MAX_DIMS = 4 };
typedef struct oct_shape {
    int ndim;
    int64_t dim[OCT_MAX_DIMS];
} oct_shape;

typedef enum oct_dtype {
    OCT_F32,
    OCT_U8,  /* codes; a prepared network makes floats of them before a module of one's own */
    OCT_U16, /* the same of 16 bits */
    OCT_S8,
    OCT_S16,
    OCT_S32, /* class numbers */
    OCT_F64,
    OCT_S64
} oct_dtype;

/* ---- layers: each create sets *m to a new module, which the caller owns until it is a child, or to NULL ---- */

/* Windows of a convolution: tap (ky, kx) for output (y, x) looks at the input's row y * stride_h - pad_top + ky *
 * dilation_h and column x * stride_w - pad_left + kx * dilation_w; what lies outside is 0. Of a transposed convolution:
 * the windows of the convolution that it reverses. No size is above 16384. */
typedef struct oct_conv_geometry {
    int kernel_h, kernel_w, stride_h, stride_w;
    int pad_top, pad_left, pad_bottom, pad_right;
    int dilation_h, dilation_w, groups;
    int output_padding_h, output_padding_w; /* transposed: rows and columns more; otherwise 0 */
} oct_conv_geometry;
/* One stride and one padding on all sides, without dilation. */
OCT_API oct_conv_geometry oct_conv_geometry_of(int kernel_h, int kernel_w, int stride, int padding,
                                               int groups);

typedef struct oct_pool_geometry {
    int kernel_h, kernel_w, stride_h, stride_w;
    int pad_top, pad_left, pad_bottom, pad_right;
    bool ceil;              /* a last window may reach beyond the padding, if it begins before it */
    bool count_include_pad; /* of averages: padding counts among the positions */
} oct_pool_geometry;
/* Square windows with one padding on all sides. */
OCT_API oct_pool_geometry oct_pool_geometry_of(int kernel, int stride, int padding);

/* How images are resized; the numbers are those that files and recipes have. Names in brackets are ONNX's. */
typedef enum oct_interpolation {
    OCT_NEAREST,             /* floor(at * in / out) (asymmetric, floor) */
    OCT_BILINEAR,            /* pixel centres, edges repeated (half_pixel) */
    OCT_BILINEAR_CORNERS,    /* first on first and last on last (align_corners) */
    OCT_BILINEAR_ASYMMETRIC, /* at * in / out (asymmetric) */
    OCT_NEAREST_ROUND, /* the nearest pixel centre, of two the first (half_pixel, round_prefer_floor) */
    OCT_NEAREST_HALF, /* the pixel centre before (half_pixel, floor) */
    OCT_INTERPOLATIONS
} oct_interpolation;

typedef enum oct_pad_mode {
    OCT_PAD_CONSTANT,
    OCT_PAD_REFLECT, /* as in a mirror on the first or last value, which is not repeated */
    OCT_PAD_EDGE,    /* the first or last value */
    OCT_PAD_MODES
} oct_pad_mode;
typedef struct oct_padding { /* places around images (H, W, C) */
    int64_t top, bottom, left, right, channels_before, channels_after;
    double value; /* of OCT_PAD_CONSTANT */
    oct_pad_mode mode;
} oct_padding;

/* The order of nested loops that move the values of a sample: value i0..i5 of the output, row-major, is value offset +
 * sum(i_k * stride_k) of the sample. Strides may be 0 or negative; everything stays inside the sample. */
enum { OCT_MOVE_DIMS = 6 };
typedef struct oct_move_map {
    int dims;                                           /* loops, 0 to 6 */
    int64_t size[OCT_MOVE_DIMS], stride[OCT_MOVE_DIMS]; /* 0 beyond `dims` */
    int64_t offset;
    oct_shape out; /* of the output; dim[0] is ignored and stays the batch */
} oct_move_map;

/* Layers with parameters; those of convolutions and linear layers are 0 before oct_init_parameters. Batch norms: eps 1e-5,
 * momentum 0.1. */
OCT_API oct_status oct_conv2d_create(oct_module **m, int64_t in, int64_t out, oct_conv_geometry g,
                                     bool bias);
OCT_API oct_status oct_conv_transpose2d_create(oct_module **m, int64_t in, int64_t out,
                                               oct_conv_geometry g, bool bias);
OCT_API oct_status oct_linear_create(oct_module **m, int64_t in, int64_t out, bool bias);
OCT_API oct_status oct_batch_norm_create(oct_module **m, int64_t channels);
OCT_API oct_status oct_layer_norm_create(oct_module **m, int64_t size, double eps);
OCT_API oct_status oct_group_norm_create(oct_module **m, int64_t groups, int64_t channels,
                                         double eps);
/* channels slopes, 0.25 at first; 1: one for all */
OCT_API oct_status oct_prelu_create(oct_module **m, int64_t channels);
/* shape: of the parameter, 1 to 3 dimensions, without the batch */
OCT_API oct_status oct_parameter_create(oct_module **m, oct_shape shape);
OCT_API oct_status oct_add_parameter_create(oct_module **m, oct_shape shape);
OCT_API oct_status oct_mul_parameter_create(oct_module **m, oct_shape shape);

/* Operations as modules; what they compute is said at the operations. Those of several tensors are called by
 * oct_module_call. */
OCT_API oct_status oct_relu_create(oct_module **m);
OCT_API oct_status oct_relu6_create(oct_module **m);
OCT_API oct_status oct_clip_create(oct_module **m, double lo, double hi);
OCT_API oct_status oct_sigmoid_create(oct_module **m);
OCT_API oct_status oct_silu_create(oct_module **m);
OCT_API oct_status oct_hard_swish_create(oct_module **m);
OCT_API oct_status oct_leaky_relu_create(oct_module **m, double slope);
OCT_API oct_status oct_hard_sigmoid_create(oct_module **m, double alpha, double beta);
OCT_API oct_status oct_tanh_create(oct_module **m);
OCT_API oct_status oct_gelu_create(oct_module **m);
OCT_API oct_status oct_gelu_tanh_create(oct_module **m);
OCT_API oct_status oct_elu_create(oct_module **m, double alpha);
OCT_API oct_status oct_softplus_create(oct_module **m);
OCT_API oct_status oct_softsign_create(oct_module **m);
OCT_API oct_status oct_thresholded_relu_create(oct_module **m, double threshold);
OCT_API oct_status oct_exp_create(oct_module **m);
OCT_API oct_status oct_logarithm_create(oct_module **m);
OCT_API oct_status oct_sqrt_create(oct_module **m);
OCT_API oct_status oct_abs_create(oct_module **m);
OCT_API oct_status oct_neg_create(oct_module **m);
OCT_API oct_status oct_square_create(oct_module **m);
OCT_API oct_status oct_reciprocal_create(oct_module **m);
OCT_API oct_status oct_erf_create(oct_module **m);
OCT_API oct_status oct_power_create(oct_module **m, double exponent);
OCT_API oct_status oct_softmax_create(oct_module **m);
OCT_API oct_status oct_argmax_create(oct_module **m);
OCT_API oct_status oct_dropout_create(oct_module **m, double p);
OCT_API oct_status oct_add_create(oct_module **m);
OCT_API oct_status oct_sub_create(oct_module **m);
OCT_API oct_status oct_mul_create(oct_module **m);
OCT_API oct_status oct_div_create(oct_module **m);
OCT_API oct_status oct_matmul_create(oct_module **m);
OCT_API oct_status oct_concat_create(oct_module **m); /* two or more inputs */
OCT_API oct_status oct_add_scalar_create(oct_module **m, double value);
OCT_API oct_status oct_mul_scalar_create(oct_module **m, double value);
OCT_API oct_status oct_max_pool_create(oct_module **m, oct_pool_geometry g);
OCT_API oct_status oct_avg_pool_create(oct_module **m, oct_pool_geometry g);
OCT_API oct_status oct_global_avg_pool_create(oct_module **m);
OCT_API oct_status oct_mean_create(oct_module **m, int axis, bool keep);
OCT_API oct_status oct_mean_hw_create(oct_module **m, bool keep);
OCT_API oct_status oct_interpolate_create(oct_module **m, int64_t h, int64_t w,
                                          oct_interpolation mode);
OCT_API oct_status oct_flatten_create(oct_module **m);
OCT_API oct_status oct_reshape_create(oct_module **m, oct_shape shape);
OCT_API oct_status oct_squeeze_create(oct_module **m);
OCT_API oct_status oct_squeeze_dim_create(oct_module **m, int dim);
OCT_API oct_status oct_move_create(oct_module **m, const oct_move_map *map);
OCT_API oct_status oct_pad_create(oct_module **m, const oct_padding *padding);
/* two inputs: logits and target */
OCT_API oct_status oct_cross_entropy_loss_create(oct_module **m, double smoothing);
OCT_API oct_status oct_identity_create(oct_module **m);

/* Up to 64 modules that are called one after another. */
OCT_API oct_status oct_sequential_create(oct_module **m);
/* Takes over *item and sets it to NULL, also on failure. Its name is its index, from "0" on. */
OCT_API oct_status oct_sequential_append(oct_module *sequential, oct_module **item);
/* A convolution without bias that keeps the size of the plane (but for the stride), batch norm and perhaps relu: three
 * modules of a sequential. */
typedef struct oct_conv_bn {
    int64_t in, out;
    int kernel, stride; /* 0: 3 and 1 */
    bool relu;
} oct_conv_bn;
OCT_API oct_status oct_append_conv_bn(oct_module *sequential, const oct_conv_bn *l);

/* Where a network that is quantized makes codes of floats, and floats of codes; in a float network the identity. */
OCT_API oct_status oct_quant_stub_create(oct_module **m);
OCT_API oct_status oct_dequant_stub_create(oct_module **m);

/* Sets initial values as a pure function of the seed and of the place of each parameter in the tree: convolutions and
 * linear layers Kaiming normal, fan-out for convolutions and fan-in for linear (He et al. 2015), biases 0, gamma 1, beta
 * 0, running mean 0, running variance 1; parameters that are values or are added normal with deviation 0.02, those that
 * are multiplied with 1. Parameters of modules of one's own stay as they are. */
OCT_API oct_status oct_init_parameters(oct_module *root, uint64_t seed);

/* ---- calls and operations, in a forward ---- */

/* Call a module: hooks and forward. */
OCT_API oct_tensor *oct_call(oct_context *cx, oct_module *module, oct_tensor *x);
OCT_API oct_tensor *oct_module_call(oct_context *cx, oct_module *module, oct_tensor *const *x,
                                    int n);

/* Convolves: x (N, H, W, I), weight (O, kh, kw, I/groups), bias (O) or NULL -> (N, OH, OW, O). */
OCT_API oct_tensor *oct_conv2d(oct_context *cx, oct_tensor *x, oct_param *weight, oct_param *bias,
                               oct_conv_geometry g);
/* Convolves transposed: x (N, H, W, I) -> (N, OH, OW, O) with OH = (H-1) stride_h - pad_top - pad_bottom + extent +
 * output_padding_h, where extent is (kernel_h - 1) dilation_h + 1, and OW likewise. It is computed as the convolution of
 * stride 1 and padding extent - 1 - pad over x with stride - 1 zeros between its values, and weight (O, kh, kw, I/groups)
 * is the weight of that convolution: PyTorch's, rotated by 180 degrees. pad < extent; output padding < stride or
 * dilation. */
OCT_API oct_tensor *oct_conv_transpose2d(oct_context *cx, oct_tensor *x, oct_param *weight,
                                         oct_param *bias, oct_conv_geometry g);
/* Multiplies the last dimension with weights: x (N, ..., I) of 2 to 4 dimensions, weight (O, I), bias (O) or NULL ->
 * (N, ..., O). */
OCT_API oct_tensor *oct_linear(oct_context *cx, oct_tensor *x, oct_param *weight, oct_param *bias);

/* Normalizes by the statistics of the batch (training) or by the running ones. x (N, H, W, C) or (N, C). In training also
 * moves the running values: r += momentum * (batch - r), variance unbiased. The statistics are those of the global batch,
 * or of each of its norm groups where training has them (recipe batch_norm.group). */
typedef struct oct_bn_args {
    oct_param *gamma, *beta;           /* (C) */
    float *running_mean, *running_var; /* (C) */
    float eps, momentum;
    bool batch_stats; /* training and not frozen */
} oct_bn_args;
OCT_API oct_tensor *oct_batch_norm(oct_context *cx, oct_tensor *x, const oct_bn_args *args);
/* Normalizes each row: x (N, ..., C), gamma and beta (C), eps above 0. */
OCT_API oct_tensor *oct_layer_norm(oct_context *cx, oct_tensor *x, oct_param *gamma,
                                   oct_param *beta, double eps);
/* Normalizes each group of neighbouring channels of each sample over its positions: x (N, ..., C), groups that divide C,
 * eps above 0. As many groups as channels: instance norm. */
OCT_API oct_tensor *oct_group_norm(oct_context *cx, oct_tensor *x, oct_param *gamma,
                                   oct_param *beta, int64_t groups, double eps);
/* x above 0, weight * x elsewhere: x (N, ..., C), weight (C) or (1). */
OCT_API oct_tensor *oct_prelu(oct_context *cx, oct_tensor *x, oct_param *weight);
/* Gives each sample the parameter's value: x (N, ...), of any type, only sets N -> (N, dims of weight). */
OCT_API oct_tensor *oct_parameter(oct_context *cx, oct_tensor *x, oct_param *weight);
/* Add the parameter to each sample, or multiply by it: x (N, dims), weight (dims), of 1 where it repeats. */
OCT_API oct_tensor *oct_add_parameter(oct_context *cx, oct_tensor *x, oct_param *weight);
OCT_API oct_tensor *oct_mul_parameter(oct_context *cx, oct_tensor *x, oct_param *weight);

OCT_API oct_tensor *oct_relu(oct_context *cx, oct_tensor *x);
OCT_API oct_tensor *oct_relu6(oct_context *cx, oct_tensor *x);
/* min(max(x, lo), hi), where lo <= hi; either may be infinite. The gradient passes within the bounds and on them. */
OCT_API oct_tensor *oct_clip(oct_context *cx, oct_tensor *x, double lo, double hi);
OCT_API oct_tensor *oct_sigmoid(oct_context *cx, oct_tensor *x);
OCT_API oct_tensor *oct_silu(oct_context *cx, oct_tensor *x);       /* x * sigmoid(x) */
OCT_API oct_tensor *oct_hard_swish(oct_context *cx, oct_tensor *x); /* x * relu6(x + 3) / 6 */
OCT_API oct_tensor *oct_leaky_relu(oct_context *cx, oct_tensor *x, double slope);
/* min(max(alpha * x + beta, 0), 1): PyTorch's with 1/6 and 1/2. */
OCT_API oct_tensor *oct_hard_sigmoid(oct_context *cx, oct_tensor *x, double alpha, double beta);
OCT_API oct_tensor *oct_tanh(oct_context *cx, oct_tensor *x);
OCT_API oct_tensor *oct_gelu(oct_context *cx, oct_tensor *x);
OCT_API oct_tensor *oct_gelu_tanh(oct_context *cx, oct_tensor *x); /* its approximation by tanh */
OCT_API oct_tensor *oct_elu(oct_context *cx, oct_tensor *x, double alpha);
OCT_API oct_tensor *oct_softplus(oct_context *cx, oct_tensor *x); /* log(1 + exp(x)) */
OCT_API oct_tensor *oct_softsign(oct_context *cx, oct_tensor *x); /* x / (1 + |x|) */
/* x above the threshold, 0 elsewhere. */
OCT_API oct_tensor *oct_thresholded_relu(oct_context *cx, oct_tensor *x, double threshold);
OCT_API oct_tensor *oct_exp(oct_context *cx, oct_tensor *x);
OCT_API oct_tensor *oct_logarithm(oct_context *cx, oct_tensor *x);
OCT_API oct_tensor *oct_sqrt(oct_context *cx, oct_tensor *x);
OCT_API oct_tensor *oct_abs(oct_context *cx, oct_tensor *x); /* its slope at 0 is 0 */
OCT_API oct_tensor *oct_neg(oct_context *cx, oct_tensor *x);
OCT_API oct_tensor *oct_square(oct_context *cx, oct_tensor *x);
OCT_API oct_tensor *oct_reciprocal(oct_context *cx, oct_tensor *x);
OCT_API oct_tensor *oct_erf(oct_context *cx, oct_tensor *x);
OCT_API oct_tensor *oct_power(oct_context *cx, oct_tensor *x, double exponent);
OCT_API oct_tensor *oct_softmax(oct_context *cx, oct_tensor *x); /* over the last dimension */
/* Class numbers: (..., C) -> (...) of s32, where the largest value of the last dimension stands, the first of equal ones;
 * a NaN is the largest. No gradient flows through. */
OCT_API oct_tensor *oct_argmax(oct_context *cx, oct_tensor *x);
/* In a step that learns: values are 0 with probability p, others x / (1 - p); elsewhere x itself. 0 <= p < 1. */
OCT_API oct_tensor *oct_dropout(oct_context *cx, oct_tensor *x, double p);

/* Of one shape, or one of them repeats: (N, 1, 1, C), (N, C) or (N, H, W, 1) against (N, H, W, C). */
OCT_API oct_tensor *oct_add(oct_context *cx, oct_tensor *a, oct_tensor *b);
OCT_API oct_tensor *oct_sub(oct_context *cx, oct_tensor *a, oct_tensor *b);
OCT_API oct_tensor *oct_mul(oct_context *cx, oct_tensor *a, oct_tensor *b);
OCT_API oct_tensor *oct_div(oct_context *cx, oct_tensor *a, oct_tensor *b);
/* (N, ..., M, K) x (N, ..., K, L) -> (N, ..., M, L). */
OCT_API oct_tensor *oct_matmul(oct_context *cx, oct_tensor *a, oct_tensor *b);
/* Concatenates 1 to 64 tensors along the last dimension. */
OCT_API oct_tensor *oct_concat(oct_context *cx, oct_tensor *const *x, int n);
OCT_API oct_tensor *oct_add_scalar(oct_context *cx, oct_tensor *x, double value);
OCT_API oct_tensor *oct_mul_scalar(oct_context *cx, oct_tensor *x, double value);

/* Takes the maximum over windows, where padding never counts. The gradient goes to the first maximum of a window in
 * row-major order, as in PyTorch. */
OCT_API oct_tensor *oct_max_pool(oct_context *cx, oct_tensor *x, oct_pool_geometry geometry);
/* Takes the mean over the positions of windows that lie in x, or over those in its padding too. */
OCT_API oct_tensor *oct_avg_pool(oct_context *cx, oct_tensor *x, oct_pool_geometry geometry);
OCT_API oct_tensor *oct_global_avg_pool(oct_context *cx, oct_tensor *x); /* -> (N, C) */
/* Take the mean along dimension `axis`, 1 or more, or over H and W of (N, H, W, C). keep: dimensions of 1 stay in their
 * place. */
OCT_API oct_tensor *oct_mean(oct_context *cx, oct_tensor *x, int axis, bool keep);
OCT_API oct_tensor *oct_mean_hw(oct_context *cx, oct_tensor *x, bool keep);
/* Resizes images: (N, H, W, C) -> (N, out_h, out_w, C). */
OCT_API oct_tensor *oct_interpolate(oct_context *cx, oct_tensor *x, int64_t out_h, int64_t out_w,
                                    oct_interpolation mode);
/* Puts step_h - 1 rows and step_w - 1 columns of zeros between the pixels of x (N, H, W, C). */
OCT_API oct_tensor *oct_dilate(oct_context *cx, oct_tensor *x, int step_h, int step_w);

/* Operations that move values. Axes and dimensions count from 1: 0 is the batch, which stays. */
OCT_API oct_tensor *oct_flatten(oct_context *cx, oct_tensor *x); /* (N, ...) -> (N, F) */
/* The same values in another shape; dim[0] of `shape` is ignored and stays the batch. */
OCT_API oct_tensor *oct_reshape(oct_context *cx, oct_tensor *x, oct_shape shape);
/* Drops the dimensions of size 1 after the batch, or this one, if it has size 1. */
OCT_API oct_tensor *oct_squeeze(oct_context *cx, oct_tensor *x);
OCT_API oct_tensor *oct_squeeze_dim(oct_context *cx, oct_tensor *x, int dim);
/* Copies the values of each sample in the order that the map says: (N, ...) -> (N, dims of map->out). */
OCT_API oct_tensor *oct_move(oct_context *cx, oct_tensor *x, const oct_move_map *map);
/* Takes `count` places of an axis: begin, begin + step, ...; step may be negative. */
OCT_API oct_tensor *oct_slice(oct_context *cx, oct_tensor *x, int axis, int64_t begin, int64_t step,
                              int64_t count);
/* Dimension i of the output is dimension order[i - 1] of x: {3, 1, 2} makes (N, H, W, C) (N, C, H, W). */
OCT_API oct_tensor *oct_transpose(oct_context *cx, oct_tensor *x, const int *order);
/* Which of a pixel's channels go where in a block of pixels: channel (y * block + x) * C + c (ONNX's DCR), or
 * c * block * block + y * block + x (ONNX's CRD, PyTorch's pixel_shuffle). */
typedef enum oct_depth_order { OCT_DEPTH_DCR, OCT_DEPTH_CRD } oct_depth_order;
/* (N, H, W, C block^2) -> (N, H block, W block, C). */
OCT_API oct_tensor *oct_depth_to_space(oct_context *cx, oct_tensor *x, int block,
                                       oct_depth_order o);
/* (N, H block, W block, C) -> (N, H, W, C block^2). */
OCT_API oct_tensor *oct_space_to_depth(oct_context *cx, oct_tensor *x, int block,
                                       oct_depth_order o);
/* Deals the channels of each group to all groups: channel i of group g becomes channel i * groups + g. */
OCT_API oct_tensor *oct_channel_shuffle(oct_context *cx, oct_tensor *x, int groups);
/* Pads images (N, H, W, C), or tensors of fewer dimensions; a dimension that is missing gets none. */
OCT_API oct_tensor *oct_pad(oct_context *cx, oct_tensor *x, const oct_padding *padding);

/* Ends a forward in its loss, as torch.nn.functional.cross_entropy(logits, target): target (N, K), the probability of
 * each class, or (N) class numbers, s32 or f32. The gradient goes to logits and to probabilities. Smoothing: 0 to 1. */
OCT_API oct_tensor *oct_cross_entropy_loss(oct_context *cx, oct_tensor *logits, oct_tensor *target,
                                           double smoothing);

/* A dynamic block is a part of a forward that runs a changing number of times, or not at all. Its body calls the same
 * operations each time it runs, in the order in which it first ran. Blocks do not nest. A name for each block of a
 * module, which lives as long as the module:
 *     for (int i = 0; i < n; i++) {
 *         oct_dynamic_block_begin(cx, self, "refine");
 *         x = oct_add(cx, oct_call(cx, m->conv, x), y);
 *         oct_dynamic_block_end(cx);
 *     } */
OCT_API void oct_dynamic_block_begin(oct_context *cx, oct_module *self, const char *name);
OCT_API void oct_dynamic_block_end(oct_context *cx);

/* ---- modules of one's own ---- */

typedef enum oct_arg_type {
    OCT_ARG_BOOL,
    OCT_ARG_INT, /* and enumerations */
    OCT_ARG_INT64,
    OCT_ARG_FLOAT,
    OCT_ARG_DOUBLE
} oct_arg_type;
/* An argument that a module is made from, a member of a struct, so that a file can make it again. Whole numbers have at
 * most 32 bits in any case. Descriptions have the text with the number in place of #; NULL: nothing. */
typedef struct oct_arg {
    const char *name;
    oct_arg_type type;
    size_t offset;      /* offsetof */
    double least, most; /* it may be each of them; never NaN */
    const char *text;
    bool brief; /* the description leaves out 0 */
} oct_arg;

typedef struct oct_module_spec {
    /* [a-z0-9_]+, at most 63 letters, no name of a layer of Octet; lives as long as the process, as the spec does. */
    const char *name;
    size_t data_bytes; /* of the module's own struct, zeroed when it is made (oct_module_data) */
    /* Returns the output for n inputs. */
    oct_tensor *(*forward)(oct_context *cx, oct_module *self, oct_tensor *const *x, int n);
    int inputs; /* that a call must have; 0: the forward checks */
    /* One operation with a backward of its own, or none; otherwise forward calls modules and operations. */
    bool atomic;
    /* Forward reads tensors by calls alone, never their data, so what no later call reads may be freed while it runs. */
    bool calls_only;
    /* Frees what its data own beside children and parameters; NULL: nothing. */
    void (*destroy)(oct_module *self);
    /* Arguments: a copy of their struct is in the module (oct_module_own_args). Only an atomic module whose arguments are
     * listed, or has args_bytes 0 and lists_args set, can stay float in a deployed model: it is made again from them, and
     * its name is unlike all others'. At most 24 in at most 256 bytes. */
    const oct_arg *args;
    int num_args;
    size_t args_bytes;
    bool lists_args;
    /* Completes a module whose arguments are set and within their bounds: adds parameters. NULL: nothing to do. */
    oct_status (*init)(oct_module *self);
} oct_module_spec;

/* args: the struct of arguments; NULL: zeros, or there are none. Of several threads each may make modules of one spec. */
OCT_API oct_status oct_module_create(oct_module **m, const oct_module_spec *spec, const void *args);
/* Makes a spec known to model files that hold modules of it. Its first oct_module_create does so too. */
OCT_API oct_status oct_module_spec_register(const oct_module_spec *spec);
/* Destroys the module with children, parameters and buffers, and sets *m to NULL; NULL is allowed. */
OCT_API void oct_module_destroy(oct_module **m);
OCT_API void *oct_module_data(oct_module *m); /* NULL: it has none, or is a layer of Octet */
OCT_API const void *oct_module_own_args(const oct_module *m); /* NULL: it has none */
OCT_API bool oct_module_is_training(const oct_module *m);     /* new modules train */
/* Makes *slot, which `created` has just set, the child `name` of self, which owns it from then on. A failure of `created`
 * is passed on; after a failure nothing is left of *slot.
 *     OCT_TRY(oct_module_add(self, "conv", &m->conv, oct_conv2d_create(&m->conv, 3, 16, g, true)));
 * The slot lies in the module's data: a prepare may put another module there. Names: [a-z0-9_]+, at most 63 letters,
 * unique among children, parameters and buffers. */
OCT_API oct_status oct_module_add(oct_module *self, const char *name, oct_module **slot,
                                  oct_status created);
/* Creates a parameter (zeros), which the module owns. decay: weight decay applies to it. */
OCT_API oct_status oct_module_add_param(oct_module *self, const char *name, oct_shape shape,
                                        bool decay, oct_param **param);
OCT_API float *oct_param_values(oct_param *param); /* row-major */
/* Creates a buffer (zeros), which is saved with the module but not trained. data: T **, set to its memory, which lives as
 * long as the module. */
OCT_API oct_status oct_module_add_buffer(oct_module *self, const char *name, oct_dtype dtype,
                                         oct_shape shape, void *data);
/* The module at a path below root, such as "layers.0.conv", and the parameter of this name in a module ("weight"); NULL:
 * there is none. */
OCT_API oct_module *oct_module_find(oct_module *root, const char *path);
OCT_API oct_param *oct_module_param(const oct_module *m, const char *name);
OCT_API oct_shape oct_param_shape(const oct_param *param);

/* Hooks are functions that a module calls around its forward: a pre hook gets input 0, a hook the output, and returns
 * what takes its place, or NULL. What they call belongs to the network as what a forward calls; modules must be part of
 * it. The hooks of the root see what goes into the network and what comes out, and belong to no graph. */
typedef oct_tensor *(*oct_hook_fn)(oct_context *cx, oct_module *module, oct_tensor *value,
                                   void *user);
typedef struct oct_hook_handle {
    uint64_t id;
} oct_hook_handle;
/* Add a hook after those that are there; the handle, or NULL, removes it. */
OCT_API oct_status oct_module_pre_hook(oct_module *module, oct_hook_fn fn, void *user,
                                       oct_hook_handle *handle);
OCT_API oct_status oct_module_hook(oct_module *module, oct_hook_fn fn, void *user,
                                   oct_hook_handle *handle);
/* Removing twice, or after the module's end, is harmless. A hook may remove itself while it runs, but no other hook of
 * its module. */
OCT_API void oct_hook_remove(oct_hook_handle *handle);

/* ---- operations of one's own, in the forward of an atomic module ---- */

OCT_API oct_dtype oct_tensor_dtype(const oct_tensor *x);
OCT_API int oct_tensor_ndim(const oct_tensor *x);
/* negative i: from the end, -1 the channels; 0: there is no such dimension */
OCT_API int64_t oct_tensor_dim(const oct_tensor *x, int i);
OCT_API int64_t oct_tensor_numel(const oct_tensor *x);
OCT_API oct_shape oct_tensor_shape(const oct_tensor *x);
/* Row-major, those of OCT_F32; NULL of other types. A forward reads its inputs and writes what it has made. */
OCT_API float *oct_tensor_values(const oct_tensor *x);
/* Makes a tensor, whose values are not set. */
OCT_API oct_tensor *oct_tensor_new(oct_context *cx, oct_dtype dtype, oct_shape shape);
/* Fails the context with a sentence, before which stands the path of the module that is called, unless it has failed
 * before. Returns NULL. */
OCT_API void *oct_context_fail(oct_context *cx, oct_status code, const char *format, ...)
    OCT_PRINTF(3, 4);
/* True when the context is well and all n inputs are there: the first line of a forward that reads them. */
OCT_API bool oct_inputs_ok(oct_context *cx, oct_tensor *const *inputs, int n);

/* Records y as made by op from inputs. params: parameters had a part in it. Returns the node for oct_node_save; NULL when
 * no backward will come, or on failure. */
OCT_API oct_node *oct_record(oct_context *cx, const char *op,
                             void (*backward)(oct_context *cx, oct_node *node),
                             oct_tensor *const *inputs, int n, bool params, oct_tensor *y);
/* Copies what the backward of a node needs (oct_node_saved); does nothing where node is NULL. False when the context has
 * failed. */
OCT_API bool oct_node_save(oct_context *cx, oct_node *node, const void *what, size_t bytes);
/* In a forward with a recorded node: the parameter has a part in it. Once for each oct_leaf_grads_end of the backward. */
OCT_API void oct_param_used(oct_context *cx, oct_param *param);

/* In a backward: it hands a gradient to each input, and adds those of parameters leaf by leaf. Samples form leaves, runs
 * of few, so that sums over samples have the same bits on any number of ranks: sums are taken inside a leaf in order, and
 * Octet adds the leaves. */
OCT_API void *oct_node_saved(const oct_node *node);
OCT_API oct_tensor *oct_node_input(const oct_node *node, int i);
OCT_API oct_tensor *oct_node_output(const oct_node *node);
OCT_API const float *oct_tensor_grad(const oct_tensor *y); /* of the output; NULL: none */
/* Takes the output's gradient away from it, to be changed in place and handed over. */
OCT_API float *oct_detach_grad(oct_tensor *y);
/* Borrows memory for the gradient of t, not set, which is to be handed over; NULL on failure. */
OCT_API float *oct_grad_new(oct_context *cx, const oct_tensor *t);
/* Hands borrowed or detached memory over as the gradient of x, or a part of it. Nothing happens where x needs none. */
OCT_API void oct_add_grad(oct_context *cx, oct_tensor *x, float *grad);
/* A row of the parameter's size for each leaf of this rank, zeroed by the first use in a backward: add to row i what leaf
 * i contributes, then end. NULL on failure. */
OCT_API float *oct_leaf_grads_begin(oct_context *cx, oct_param *param);
OCT_API void oct_leaf_grads_end(oct_context *cx, oct_param *param);
/* Samples of this rank's leaf i: [*first, *end); false: there is no leaf i. */
OCT_API bool oct_leaf_range(const oct_context *cx, int64_t i, int64_t *first, int64_t *end);

OCT_END_DECLS

#endif
