/* resnet20 is the CIFAR ResNet of He et al. 2016, section 4.2, with n = 3 (20 layers) and 1x1
 * convolutions on the shortcuts that change shape. */
#include "launch/model/model.h"

typedef struct block {
    oct_module base;
    oct_module *body, *shortcut; /* shortcut NULL: identity */
    oct_module *add, *relu;
} block;

static oct_tensor *block_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    block *b = (block *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, b->body, x[0]);
    oct_tensor *residual = b->shortcut ? oct_call(cx, b->shortcut, x[0]) : x[0];
    return oct_call(cx, b->relu, oct_call2(cx, b->add, y, residual));
}

static const oct_module_type block_type = {
    .name = "residual_block", .forward = block_forward, .calls_only = true};

static oct_status create_block(oct_module **module, int64_t in, int64_t out, int stride)
{
    OCT_TRY(oct_module_alloc(module, &block_type, sizeof(block)));
    block *b = (block *)*module;
    OCT_ADD(b, body, oct_sequential_create(&b->body));
    OCT_TRY(oct_append_conv_bn(b->body, &(oct_conv_bn){in, out, 3, stride, true}));
    OCT_TRY(oct_append_conv_bn(b->body, &(oct_conv_bn){out, out, 3, 1, false}));
    if (stride != 1 || in != out) {
        OCT_ADD(b, shortcut, oct_sequential_create(&b->shortcut));
        OCT_TRY(oct_append_conv_bn(b->shortcut, &(oct_conv_bn){in, out, 1, stride, false}));
    }
    OCT_ADD(b, add, oct_add_create(&b->add));
    OCT_ADD(b, relu, oct_relu_create(&b->relu));
    return OCT_OK;
}

typedef struct resnet {
    oct_module base;
    oct_module *quant, *stem, *blocks, *pool, *head, *dequant;
} resnet;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    resnet *m = (resnet *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, m->quant, x[0]);
    y = oct_call(cx, m->blocks, oct_call(cx, m->stem, y));
    y = oct_call(cx, m->head, oct_call(cx, m->pool, y));
    return oct_call(cx, m->dequant, y);
}

static const oct_module_type resnet_type = {
    .name = "resnet", .forward = forward, .calls_only = true};

static oct_status build(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    (void)h, (void)w;
    OCT_TRY(oct_module_alloc(root, &resnet_type, sizeof(resnet)));
    resnet *m = (resnet *)*root;
    OCT_ADD(m, quant, oct_quant_stub_create(&m->quant));
    OCT_ADD(m, stem, oct_sequential_create(&m->stem));
    OCT_TRY(oct_append_conv_bn(m->stem, &(oct_conv_bn){c, 16, 3, 1, true}));
    OCT_ADD(m, blocks, oct_sequential_create(&m->blocks));
    int64_t in = 16;
    for (int stage = 0; stage < 3; stage++) {
        int64_t out = 16 << stage;
        for (int i = 0; i < 3; i++) {
            OCT_APPEND(m->blocks, create_block(&item, in, out, i == 0 && stage > 0 ? 2 : 1));
            in = out;
        }
    }
    OCT_ADD(m, pool, oct_global_avg_pool_create(&m->pool));
    OCT_ADD(m, head, oct_linear_create(&m->head, in, classes, true));
    OCT_ADD(m, dequant, oct_dequant_stub_create(&m->dequant));
    return OCT_OK;
}

static oct_status fuse_block(void *user, oct_module *module)
{
    (void)user;
    if (module->type != &block_type) return OCT_OK;
    return oct_fuse_modules(&module, OCT_NAMES("add", "relu"), 2, false);
}

static oct_status fuse(oct_module **root)
{
    OCT_TRY(oct_module_walk(*root, fuse_block, NULL));
    return oct_fuse_sequences(root);
}

const oct_model_spec oct_model_resnet20 = {
    .name = "resnet20",
    .help = "ResNet-20 for images of about 32x32",
    .min_size = 8,
    .build = build,
    .fuse = fuse,
};
