/* resnet18 and resnet50 are the ResNets of He et al. 2016, table 1, as torchvision names and orders their
 * layers; in resnet50 the 3x3 convolution of a block has its stride ("v1.5"). resnet18c has a 3x3 stem
 * without a pool, for 32x32 images. The forwards call relu and add as functions; prepare makes modules of
 * them. For eager, which cannot, fuse puts modules in their places first. */
#include "launch/model/model.h"

enum { STAGES = 4, MOST_CONVS = 3 };

typedef struct block {
    oct_module base;
    int convs; /* 2, or 3 in a bottleneck */
    oct_module *conv[MOST_CONVS], *bn[MOST_CONVS];
    oct_module *downsample;             /* NULL: identity */
    oct_module *relu[MOST_CONVS], *add; /* NULL: functions */
} block;

/* What the networks of the family differ in. */
typedef struct variant {
    int blocks[STAGES];
    bool bottleneck; /* blocks of 1x1, 3x3 and 1x1 convolutions, four times as wide outside */
    bool small;      /* 32x32 images: the stem keeps their size */
} variant;

static oct_tensor *activate(oct_context *cx, oct_module *relu, oct_tensor *x)
{
    return relu ? oct_call(cx, relu, x) : oct_relu(cx, x);
}

static oct_tensor *block_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    block *b = (block *)self;
    int last = b->convs - 1;
    (void)n;
    oct_tensor *y = x[0];
    for (int i = 0; i < last; i++)
        y = activate(cx, b->relu[i], oct_call(cx, b->bn[i], oct_call(cx, b->conv[i], y)));
    y = oct_call(cx, b->bn[last], oct_call(cx, b->conv[last], y));
    oct_tensor *residual = b->downsample ? oct_call(cx, b->downsample, x[0]) : x[0];
    y = b->add ? oct_call2(cx, b->add, y, residual) : oct_add(cx, y, residual);
    return activate(cx, b->relu[last], y);
}

static const oct_module_type basic_type = {
    .name = "basic_block", .forward = block_forward, .calls_only = true};
static const oct_module_type bottleneck_type = {
    .name = "bottleneck", .forward = block_forward, .calls_only = true};

static const char *const conv_names[] = {"conv1", "conv2", "conv3"};
static const char *const bn_names[] = {"bn1", "bn2", "bn3"};
static const char *const relu_names[] = {"relu1", "relu2", "relu3"};

/* Channels of a block: those that come, those inside, those that go. */
typedef struct widths {
    int64_t in, inner, out;
} widths;

/* A residual block of two 3x3 convolutions, or a bottleneck of 1x1, 3x3 and 1x1. */
static oct_status create_block(oct_module **module, const variant *v, const widths *w, int stride)
{
    OCT_TRY(
        oct_module_alloc(module, v->bottleneck ? &bottleneck_type : &basic_type, sizeof(block)));
    block *b = (block *)*module;
    const int convs = b->convs = v->bottleneck ? 3 : 2;
    for (int i = 0; i < convs; i++) {
        const bool is_3x3 = convs == 2 || i == 1;
        const int kernel = is_3x3 ? 3 : 1,
                  strided = convs == 2 ? 0 : 1; /* which one has the stride */
        int64_t in = i == 0 ? w->in : w->inner, out = i == convs - 1 ? w->out : w->inner;
        oct_conv_geometry geometry =
            oct_conv_geometry_of(kernel, kernel, i == strided ? stride : 1, kernel / 2, 1);
        OCT_TRY(oct_module_add(&b->base, conv_names[i], &b->conv[i],
                               oct_conv2d_create(&b->conv[i], in, out, geometry, false)));
        OCT_TRY(oct_module_add(&b->base, bn_names[i], &b->bn[i],
                               oct_batch_norm_create(&b->bn[i], out)));
    }
    if (stride != 1 || w->in != w->out) {
        OCT_ADD(b, downsample, oct_sequential_create(&b->downsample));
        OCT_TRY(oct_append_conv_bn(b->downsample, &(oct_conv_bn){w->in, w->out, 1, stride, false}));
    }
    return OCT_OK;
}

typedef struct resnet {
    oct_module base;
    oct_module *quant, *conv1, *bn1, *relu;
    oct_module *maxpool; /* NULL: none */
    oct_module *layer[STAGES], *avgpool, *fc, *dequant;
} resnet;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    resnet *m = (resnet *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, m->quant, x[0]);
    y = activate(cx, m->relu, oct_call(cx, m->bn1, oct_call(cx, m->conv1, y)));
    if (m->maxpool) y = oct_call(cx, m->maxpool, y);
    for (int i = 0; i < STAGES; i++)
        y = oct_call(cx, m->layer[i], y);
    y = oct_call(cx, m->fc, oct_call(cx, m->avgpool, y));
    return oct_call(cx, m->dequant, y);
}

static const oct_module_type resnet_type = {
    .name = "resnet", .forward = forward, .calls_only = true};

static oct_status build_variant(oct_module **root, const variant *v, int64_t c, int64_t classes)
{
    static const char *const names[STAGES] = {"layer1", "layer2", "layer3", "layer4"};
    widths w = {.in = 64};
    OCT_TRY(oct_module_alloc(root, &resnet_type, sizeof(resnet)));
    oct_module *self = *root;
    resnet *m = (resnet *)self;
    oct_conv_geometry stem = oct_conv_geometry_of(7, 7, 2, 3, 1);
    if (v->small) stem = oct_conv_geometry_of(3, 3, 1, 1, 1);
    OCT_ADD(m, quant, oct_quant_stub_create(&m->quant));
    OCT_ADD(m, conv1, oct_conv2d_create(&m->conv1, c, 64, stem, false));
    OCT_ADD(m, bn1, oct_batch_norm_create(&m->bn1, 64));
    if (!v->small)
        OCT_ADD(m, maxpool, oct_max_pool_create(&m->maxpool, oct_pool_geometry_of(3, 2, 1)));
    for (int i = 0; i < STAGES; i++) {
        OCT_TRY(oct_module_add(self, names[i], &m->layer[i], oct_sequential_create(&m->layer[i])));
        w.inner = 64 << i;
        w.out = v->bottleneck ? 4 * w.inner : w.inner;
        for (int k = 0; k < v->blocks[i]; k++) {
            OCT_APPEND(m->layer[i], create_block(&item, v, &w, k == 0 && i > 0 ? 2 : 1));
            w.in = w.out;
        }
    }
    OCT_ADD(m, avgpool, oct_global_avg_pool_create(&m->avgpool));
    OCT_ADD(m, fc, oct_linear_create(&m->fc, w.out, classes, true));
    OCT_ADD(m, dequant, oct_dequant_stub_create(&m->dequant));
    return OCT_OK;
}

static oct_status build_18c(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    (void)h, (void)w;
    return build_variant(root, &(variant){.blocks = {2, 2, 2, 2}, .small = true}, c, classes);
}

static oct_status build_18(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    (void)h, (void)w;
    return build_variant(root, &(variant){.blocks = {2, 2, 2, 2}}, c, classes);
}

static oct_status build_50(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    (void)h, (void)w;
    return build_variant(root, &(variant){.blocks = {3, 4, 6, 3}, .bottleneck = true}, c, classes);
}

/* Adds modules for the relus and the addition of a block, since only modules can be fused, and fuses them with its
 * convolutions. */
static oct_status fuse_block(void *user, oct_module *module)
{
    (void)user;
    if (module->type != &basic_type && module->type != &bottleneck_type) return OCT_OK;
    block *b = (block *)module;
    const bool drop_hooks = false;
    const int last = module->type == &bottleneck_type ? 2 : 1;
    for (int i = 0; i < last; i++) {
        OCT_TRY(oct_module_add(module, relu_names[i], &b->relu[i], oct_relu_create(&b->relu[i])));
        OCT_TRY(oct_fuse_modules(&module, OCT_NAMES(conv_names[i], bn_names[i], relu_names[i]), 3,
                                 drop_hooks));
    }
    OCT_ADD(b, add, oct_add_create(&b->add));
    OCT_TRY(
        oct_module_add(module, relu_names[last], &b->relu[last], oct_relu_create(&b->relu[last])));
    return oct_fuse_modules(&module,
                            OCT_NAMES(conv_names[last], bn_names[last], "add", relu_names[last]), 4,
                            drop_hooks);
}

static oct_status fuse(oct_module **root)
{
    resnet *m = (resnet *)*root;
    OCT_ADD(m, relu, oct_relu_create(&m->relu));
    OCT_TRY(oct_fuse_modules(root, OCT_NAMES("conv1", "bn1", "relu"), 3, false));
    OCT_TRY(oct_module_walk(*root, fuse_block, NULL));
    return oct_fuse_sequences(root);
}

const oct_model_spec oct_model_resnet18c = {
    .name = "resnet18c",
    .help = "ResNet-18 for images of about 32x32",
    .min_size = 8,
    .build = build_18c,
    .fuse = fuse,
};

const oct_model_spec oct_model_resnet18 = {
    .name = "resnet18",
    .help = "ResNet-18 for images of about 224x224",
    .min_size = 32,
    .build = build_18,
    .fuse = fuse,
};

const oct_model_spec oct_model_resnet50 = {
    .name = "resnet50",
    .help = "ResNet-50 (v1.5) for images of about 224x224",
    .min_size = 32,
    .build = build_50,
    .fuse = fuse,
};
