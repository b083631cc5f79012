/* resnet18c is ResNet-18 (He et al. 2016, table 1) for 32x32 images: a 3x3 stem without a pool. The
 * forwards call relu and add as functions; prepare makes modules of them. For eager, which cannot, fuse
 * puts modules in their places first. */
#include "launch/model/model.h"
#include "launch/model/parts.h"
#include "quant/pass/prepare/prepare.h"

typedef struct block {
    oct_module base;
    oct_module *conv1, *bn1, *conv2, *bn2;
    oct_module *downsample;          /* NULL: identity */
    oct_module *relu1, *add, *relu2; /* NULL: functions */
} block;

static oct_tensor *activate(oct_context *cx, oct_module *relu, oct_tensor *x)
{
    return relu ? oct_call(cx, relu, x) : oct_relu(cx, x);
}

static oct_tensor *block_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    block *b = (block *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, b->bn1, oct_call(cx, b->conv1, x[0]));
    y = activate(cx, b->relu1, y);
    y = oct_call(cx, b->bn2, oct_call(cx, b->conv2, y));
    oct_tensor *residual = b->downsample ? oct_call(cx, b->downsample, x[0]) : x[0];
    y = b->add ? oct_call2(cx, b->add, y, residual) : oct_add(cx, y, residual);
    return activate(cx, b->relu2, y);
}

static const oct_module_type block_type = {
    .name = "basic_block", .forward = block_forward, .calls_only = true};

static oct_status block_layers(block *b, int64_t in, int64_t out, int stride)
{
    oct_module *self = &b->base;
    oct_conv_geometry first = {3, 3, stride, 1, 1}, second = {3, 3, 1, 1, 1};
    OCT_CHILD(self, "conv1", &b->conv1, oct_conv2d_create(&b->conv1, in, out, first, false));
    OCT_CHILD(self, "bn1", &b->bn1, oct_batch_norm_create(&b->bn1, out));
    OCT_CHILD(self, "conv2", &b->conv2, oct_conv2d_create(&b->conv2, out, out, second, false));
    OCT_CHILD(self, "bn2", &b->bn2, oct_batch_norm_create(&b->bn2, out));
    if (stride != 1 || in != out) {
        OCT_CHILD(self, "downsample", &b->downsample, oct_sequential_create(&b->downsample));
        OCT_TRY(oct_append_conv_bn(b->downsample, in, out, 1, stride, false));
    }
    return OCT_OK;
}

static oct_status block_create(oct_module **m, int64_t in, int64_t out, int stride)
{
    OCT_TRY(oct_module_create(m, &block_type, sizeof(block)));
    return oct_module_made(m, block_layers((block *)*m, in, out, stride));
}

enum { STAGES = 4 };
typedef struct resnet {
    oct_module base;
    oct_module *quant, *conv1, *bn1, *relu, *layer[STAGES], *avgpool, *fc, *dequant;
} resnet;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    resnet *m = (resnet *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, m->quant, x[0]);
    y = activate(cx, m->relu, oct_call(cx, m->bn1, oct_call(cx, m->conv1, y)));
    for (int i = 0; i < STAGES; i++)
        y = oct_call(cx, m->layer[i], y);
    y = oct_call(cx, m->fc, oct_call(cx, m->avgpool, y));
    return oct_call(cx, m->dequant, y);
}

static const oct_module_type resnet_type = {
    .name = "resnet", .forward = forward, .calls_only = true};

static oct_status build_stage(oct_module **stage, int64_t in, int64_t out, int stride)
{
    OCT_APPEND(*stage, block_create(&item, in, out, stride));
    OCT_APPEND(*stage, block_create(&item, out, out, 1));
    return OCT_OK;
}

static oct_status build_layers(resnet *m, int64_t c, int64_t classes)
{
    static const char *const names[STAGES] = {"layer1", "layer2", "layer3", "layer4"};
    oct_module *self = &m->base;
    oct_conv_geometry stem = {3, 3, 1, 1, 1};
    OCT_CHILD(self, "quant", &m->quant, oct_quant_stub_create(&m->quant));
    OCT_CHILD(self, "conv1", &m->conv1, oct_conv2d_create(&m->conv1, c, 64, stem, false));
    OCT_CHILD(self, "bn1", &m->bn1, oct_batch_norm_create(&m->bn1, 64));
    int64_t in = 64;
    for (int i = 0; i < STAGES; i++) {
        OCT_CHILD(self, names[i], &m->layer[i], oct_sequential_create(&m->layer[i]));
        OCT_TRY(build_stage(&m->layer[i], in, 64 << i, i == 0 ? 1 : 2));
        in = 64 << i;
    }
    OCT_CHILD(self, "avgpool", &m->avgpool, oct_global_avg_pool_create(&m->avgpool));
    OCT_CHILD(self, "fc", &m->fc, oct_linear_create(&m->fc, in, classes, true));
    OCT_CHILD(self, "dequant", &m->dequant, oct_dequant_stub_create(&m->dequant));
    return OCT_OK;
}

static oct_status build(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    (void)h, (void)w;
    OCT_TRY(oct_module_create(root, &resnet_type, sizeof(resnet)));
    return oct_module_made(root, build_layers((resnet *)*root, c, classes));
}

static oct_status fuse_block(void *user, oct_module *module)
{
    (void)user;
    if (module->type != &block_type) return OCT_OK;
    block *b = (block *)module;
    OCT_CHILD(module, "relu1", &b->relu1, oct_relu_create(&b->relu1));
    OCT_CHILD(module, "add", &b->add, oct_add_create(&b->add));
    OCT_CHILD(module, "relu2", &b->relu2, oct_relu_create(&b->relu2));
    return oct_fuse_module_lists(
        &module,
        (const char *const *const[]){OCT_NAMES("conv1", "bn1", "relu1"),
                                     OCT_NAMES("conv2", "bn2", "add", "relu2"), NULL},
        false);
}

static oct_status fuse(oct_module **root)
{
    resnet *m = (resnet *)*root;
    OCT_CHILD(*root, "relu", &m->relu, oct_relu_create(&m->relu));
    OCT_TRY(oct_fuse_modules(root, OCT_NAMES("conv1", "bn1", "relu"), 3, false));
    OCT_TRY(oct_module_walk(*root, fuse_block, NULL));
    return oct_fuse_sequences(root);
}

const oct_model_spec oct_model_resnet18c = {
    .name = "resnet18c",
    .help = "ResNet-18 for images of about 32x32",
    .min_size = 8,
    .build = build,
    .fuse = fuse,
};
