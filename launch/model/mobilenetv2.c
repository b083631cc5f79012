/* mobilenetv2 is MobileNetV2 of Sandler et al. 2018, table 2, without the dropout before the last layer.
 * mobilenetv2c is for 32x32 images, with stride 1 in the stem and in the first stage that would halve the
 * image; with relu6, or with relu. */
#include "launch/model/model.h"

typedef oct_status (*create_fn)(oct_module **m);

/* What the networks of the family differ in. */
typedef struct variant {
    create_fn activation;
    int stride; /* of the stem and of the first stage that may halve the image */
} variant;

static oct_status append_conv_bn(oct_module *sequential, int64_t in, int64_t out, int kernel,
                                 int stride, int groups, create_fn activation)
{
    oct_conv_geometry geometry = oct_conv_geometry_of(kernel, kernel, stride, kernel / 2, groups);
    OCT_APPEND(sequential, oct_conv2d_create(&item, in, out, geometry, false));
    OCT_APPEND(sequential, oct_batch_norm_create(&item, out));
    if (activation) OCT_APPEND(sequential, activation(&item));
    return OCT_OK;
}

typedef struct block {
    oct_module base;
    oct_module *body, *add; /* add NULL: no residual */
} block;

static oct_tensor *block_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    block *b = (block *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, b->body, x[0]);
    return b->add ? oct_call2(cx, b->add, x[0], y) : y;
}

static const oct_module_type block_type = {
    .name = "inverted_residual", .forward = block_forward, .calls_only = true};

/* An inverted residual: 1x1 to `expand` times the channels, depthwise 3x3, linear 1x1; plus its input where it fits. */
static oct_status create_block(oct_module **module, int64_t in, int64_t out, int stride, int expand,
                               create_fn activation)
{
    OCT_TRY(oct_module_alloc(module, &block_type, sizeof(block)));
    block *b = (block *)*module;
    int64_t wide = in * expand;
    OCT_ADD(b, body, oct_sequential_create(&b->body));
    if (expand != 1) OCT_TRY(append_conv_bn(b->body, in, wide, 1, 1, 1, activation));
    OCT_TRY(append_conv_bn(b->body, wide, wide, 3, stride, (int)wide, activation));
    OCT_TRY(append_conv_bn(b->body, wide, out, 1, 1, 1, NULL));
    if (stride == 1 && in == out) OCT_ADD(b, add, oct_add_create(&b->add));
    return OCT_OK;
}

typedef struct mobilenet {
    oct_module base;
    oct_module *quant, *stem, *blocks, *top, *pool, *head, *dequant;
} mobilenet;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    mobilenet *m = (mobilenet *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, m->stem, oct_call(cx, m->quant, x[0]));
    y = oct_call(cx, m->top, oct_call(cx, m->blocks, y));
    y = oct_call(cx, m->head, oct_call(cx, m->pool, y));
    return oct_call(cx, m->dequant, y);
}

static const oct_module_type mobilenet_type = {
    .name = "mobilenet", .forward = forward, .calls_only = true};

static oct_status build_variant(oct_module **root, int64_t c, int64_t classes, const variant *v)
{
    const struct {
        int expand, channels, count, stride;
    } stages[] = {{1, 16, 1, 1}, {6, 24, 2, v->stride}, {6, 32, 3, 2}, {6, 64, 4, 2},
                  {6, 96, 3, 1}, {6, 160, 3, 2},        {6, 320, 1, 1}};
    int64_t in = 32;
    OCT_TRY(oct_module_alloc(root, &mobilenet_type, sizeof(mobilenet)));
    mobilenet *m = (mobilenet *)*root;
    OCT_ADD(m, quant, oct_quant_stub_create(&m->quant));
    OCT_ADD(m, stem, oct_sequential_create(&m->stem));
    OCT_TRY(append_conv_bn(m->stem, c, in, 3, v->stride, 1, v->activation));
    OCT_ADD(m, blocks, oct_sequential_create(&m->blocks));
    for (size_t s = 0; s < OCT_COUNT(stages); s++) {
        for (int i = 0; i < stages[s].count; i++) {
            OCT_APPEND(m->blocks,
                       create_block(&item, in, stages[s].channels, i == 0 ? stages[s].stride : 1,
                                    stages[s].expand, v->activation));
            in = stages[s].channels;
        }
    }
    OCT_ADD(m, top, oct_sequential_create(&m->top));
    OCT_TRY(append_conv_bn(m->top, in, 1280, 1, 1, 1, v->activation));
    OCT_ADD(m, pool, oct_global_avg_pool_create(&m->pool));
    OCT_ADD(m, head, oct_linear_create(&m->head, 1280, classes, true));
    OCT_ADD(m, dequant, oct_dequant_stub_create(&m->dequant));
    return OCT_OK;
}

static oct_status build(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    (void)h, (void)w;
    return build_variant(root, c, classes, &(variant){oct_relu6_create, 2});
}

static oct_status build_c(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    (void)h, (void)w;
    return build_variant(root, c, classes, &(variant){oct_relu6_create, 1});
}

static oct_status build_c_relu(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    (void)h, (void)w;
    return build_variant(root, c, classes, &(variant){oct_relu_create, 1});
}

const oct_model_spec oct_model_mobilenetv2 = {
    .name = "mobilenetv2",
    .help = "MobileNetV2 with relu6, for images of about 224x224",
    .min_size = 32,
    .build = build,
    .fuse = oct_fuse_sequences,
};

const oct_model_spec oct_model_mobilenetv2c = {
    .name = "mobilenetv2c",
    .help = "MobileNetV2 with relu6, for images of about 32x32",
    .min_size = 8,
    .build = build_c,
    .fuse = oct_fuse_sequences,
};

const oct_model_spec oct_model_mobilenetv2c_relu = {
    .name = "mobilenetv2c-relu",
    .help = "the same with relu",
    .min_size = 8,
    .build = build_c_relu,
    .fuse = oct_fuse_sequences,
};
