/* vgg11c is VGG-11 with batch norm for 32x32 images (Simonyan and Zisserman 2015, configuration A):
 * every convolution has a bias and a batch norm, and so has the first of two linear layers. */
#include "launch/model/model.h"

typedef struct vgg {
    oct_module base;
    oct_module *features, *avgpool, *quant, *dequant, *classifier;
} vgg;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    vgg *m = (vgg *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, m->quant, x[0]);
    y = oct_call(cx, m->features, y); /* (N, H/32, W/32, 512) */
    y = oct_call(cx, m->avgpool, y);  /* (N, 512) */
    y = oct_call(cx, m->classifier, y);
    return oct_call(cx, m->dequant, y);
}

static const oct_module_type vgg_type = {.name = "vgg", .forward = forward, .calls_only = true};

static oct_status build(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    enum { POOL = 0 };
    static const int64_t layers[] = {64,  POOL, 128,  POOL, 256, 256, POOL,
                                     512, 512,  POOL, 512,  512, POOL};
    const oct_conv_geometry three = oct_conv_geometry_of(3, 3, 1, 1, 1);
    (void)h, (void)w;
    OCT_TRY(oct_module_alloc(root, &vgg_type, sizeof(vgg)));
    vgg *m = (vgg *)*root;
    OCT_ADD(m, features, oct_sequential_create(&m->features));
    OCT_ADD(m, avgpool, oct_global_avg_pool_create(&m->avgpool));
    OCT_ADD(m, quant, oct_quant_stub_create(&m->quant));
    OCT_ADD(m, dequant, oct_dequant_stub_create(&m->dequant));
    OCT_ADD(m, classifier, oct_sequential_create(&m->classifier));
    for (size_t i = 0; i < OCT_COUNT(layers); i++) {
        if (layers[i] == POOL) {
            OCT_APPEND(m->features, oct_max_pool_create(&item, oct_pool_geometry_of(2, 2, 0)));
            continue;
        }
        OCT_APPEND(m->features, oct_conv2d_create(&item, c, layers[i], three, true));
        OCT_APPEND(m->features, oct_batch_norm_create(&item, layers[i]));
        OCT_APPEND(m->features, oct_relu_create(&item));
        c = layers[i];
    }
    OCT_APPEND(m->classifier, oct_linear_create(&item, c, 512, true));
    OCT_APPEND(m->classifier, oct_batch_norm_create(&item, 512));
    OCT_APPEND(m->classifier, oct_relu_create(&item));
    OCT_APPEND(m->classifier, oct_linear_create(&item, 512, classes, true));
    return OCT_OK;
}

const oct_model_spec oct_model_vgg11c = {
    .name = "vgg11c",
    .help = "VGG-11 with batch norm for images of 32x32 or more",
    .min_size = 32,
    .build = build,
    .fuse = oct_fuse_sequences,
};
