/* unet-small is a U-Net (Ronneberger et al. 2015) of three levels for segmentation: it gives each pixel of
 * the image its classes. Where the paper has an up-convolution, the nearest pixel is repeated, so that any
 * image size comes back as it went in. */
#include "launch/model/model.h"

enum { LEVELS = 3, STEPS = LEVELS - 1, WIDTH = 16 }; /* WIDTH: channels of the finest level */

typedef struct unet {
    oct_module base;
    oct_module *quant, *encoder[LEVELS], *pool[STEPS];
    oct_module *up[STEPS], *concat[STEPS], *decoder[STEPS], *head, *dequant;
} unet;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    unet *m = (unet *)self;
    oct_tensor *level[LEVELS] = {NULL};
    (void)n;
    oct_tensor *y = oct_call(cx, m->quant, x[0]);
    for (int i = 0; i < LEVELS; i++) {
        if (i > 0) y = oct_call(cx, m->pool[i - 1], y);
        level[i] = y = oct_call(cx, m->encoder[i], y);
    }
    for (int i = STEPS - 1; i >= 0; i--) {
        y = oct_call2(cx, m->concat[i], oct_call(cx, m->up[i], y), level[i]);
        y = oct_call(cx, m->decoder[i], y);
    }
    return oct_call(cx, m->dequant, oct_call(cx, m->head, y)); /* (N, H, W, classes) */
}

static const oct_module_type unet_type = {.name = "unet", .forward = forward, .calls_only = true};

static oct_status create_two_convs(oct_module **m, int64_t in, int64_t out)
{
    OCT_TRY(oct_sequential_create(m));
    OCT_TRY(oct_append_conv_bn(*m, &(oct_conv_bn){in, out, 3, 1, true}));
    return oct_append_conv_bn(*m, &(oct_conv_bn){out, out, 3, 1, true});
}

static oct_status build(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    static const char *const encoders[LEVELS] = {"encoder1", "encoder2", "encoder3"};
    static const char *const pools[STEPS] = {"pool1", "pool2"};
    static const char *const ups[STEPS] = {"up1", "up2"};
    static const char *const concats[STEPS] = {"join1", "join2"};
    static const char *const decoders[STEPS] = {"decoder1", "decoder2"};
    OCT_TRY(oct_module_alloc(root, &unet_type, sizeof(unet)));
    oct_module *self = *root;
    unet *m = (unet *)self;
    oct_conv_geometry one = oct_conv_geometry_of(1, 1, 1, 0, 1);
    OCT_ADD(m, quant, oct_quant_stub_create(&m->quant));
    for (int i = 0; i < LEVELS; i++) {
        int64_t out = WIDTH << i;
        if (i > 0)
            OCT_TRY(oct_module_add(
                self, pools[i - 1], &m->pool[i - 1],
                oct_max_pool_create(&m->pool[i - 1], oct_pool_geometry_of(2, 2, 0))));
        OCT_TRY(oct_module_add(self, encoders[i], &m->encoder[i],
                               create_two_convs(&m->encoder[i], c, out)));
        c = out;
    }
    for (int i = STEPS - 1; i >= 0; i--) {
        int64_t out = WIDTH << i;
        OCT_TRY(oct_module_add(self, ups[i], &m->up[i],
                               oct_interpolate_create(&m->up[i], h >> i, w >> i, OCT_NEAREST)));
        OCT_TRY(oct_module_add(self, concats[i], &m->concat[i], oct_concat_create(&m->concat[i])));
        OCT_TRY(oct_module_add(self, decoders[i], &m->decoder[i],
                               create_two_convs(&m->decoder[i], 3 * out, out)));
    }
    OCT_ADD(m, head, oct_conv2d_create(&m->head, WIDTH, classes, one, true));
    OCT_ADD(m, dequant, oct_dequant_stub_create(&m->dequant));
    return OCT_OK;
}

const oct_model_spec oct_model_unet_small = {
    .name = "unet-small",
    .help = "a U-Net of three levels, for segmentation: classes for each pixel",
    .min_size = 8,
    .build = build,
    .fuse = oct_fuse_sequences,
    .per_pixel = true,
};
