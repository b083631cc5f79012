/* cnn-small has two pairs of 3x3 convolutions with batch norm, each pair followed by a pool, and two
 * linear layers. It is the file to copy for a model of one's own. */
#include "launch/model/model.h"

typedef struct cnn_small {
    oct_module base;
    oct_module *quant, *features, *flatten, *head, *dequant;
} cnn_small;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    cnn_small *m = (cnn_small *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, m->quant, x[0]); /* (N, H, W, C) */
    y = oct_call(cx, m->features, y);             /* (N, H/4, W/4, 64) */
    y = oct_call(cx, m->flatten, y);
    y = oct_call(cx, m->head, y); /* (N, classes) */
    return oct_call(cx, m->dequant, y);
}

static const oct_module_type cnn_small_type = {
    .name = "cnn_small", .forward = forward, .calls_only = true};

static oct_status build(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    OCT_TRY(oct_module_alloc(root, &cnn_small_type, sizeof(cnn_small)));
    cnn_small *m = (cnn_small *)*root;
    OCT_ADD(m, quant, oct_quant_stub_create(&m->quant));
    OCT_ADD(m, features, oct_sequential_create(&m->features));
    OCT_ADD(m, flatten, oct_flatten_create(&m->flatten));
    OCT_ADD(m, head, oct_sequential_create(&m->head));
    OCT_ADD(m, dequant, oct_dequant_stub_create(&m->dequant));
    OCT_TRY(oct_append_conv_bn(m->features, &(oct_conv_bn){c, 32, 3, 1, true}));
    OCT_TRY(oct_append_conv_bn(m->features, &(oct_conv_bn){32, 32, 3, 1, true}));
    OCT_APPEND(m->features, oct_max_pool_create(&item, oct_pool_geometry_of(2, 2, 0)));
    OCT_TRY(oct_append_conv_bn(m->features, &(oct_conv_bn){32, 64, 3, 1, true}));
    OCT_TRY(oct_append_conv_bn(m->features, &(oct_conv_bn){64, 64, 3, 1, true}));
    OCT_APPEND(m->features, oct_max_pool_create(&item, oct_pool_geometry_of(2, 2, 0)));
    OCT_APPEND(m->head, oct_linear_create(&item, (h / 4) * (w / 4) * 64, 128, true));
    OCT_APPEND(m->head, oct_relu_create(&item));
    OCT_APPEND(m->head, oct_linear_create(&item, 128, classes, true));
    return OCT_OK;
}

const oct_model_spec oct_model_cnn_small = {
    .name = "cnn-small",
    .help = "4 convolutions (32, 32, 64, 64) and 2 linear layers, for small images",
    .min_size = 8,
    .build = build,
    .fuse = oct_fuse_sequences,
};
