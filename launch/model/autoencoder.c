/* autoencoder is the network of MLPerf Tiny's anomaly detection (Banbury et al. 2021; Koizumi et al. 2020):
 * linear layers of 128 and a waist of 8, each with batch norm and relu, and a linear layer that gives as
 * many values as are asked for. With the input itself as goal it learns what is usual, and a large error
 * marks what is not. */
#include "launch/model/model.h"

typedef struct autoencoder {
    oct_module base;
    oct_module *quant, *flatten, *layers, *dequant;
} autoencoder;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    autoencoder *m = (autoencoder *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, m->flatten, oct_call(cx, m->quant, x[0]));
    return oct_call(cx, m->dequant, oct_call(cx, m->layers, y));
}

static const oct_module_type autoencoder_type = {
    .name = "autoencoder", .forward = forward, .calls_only = true};

static oct_status build(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    static const int64_t widths[] = {128, 128, 128, 128, 8, 128, 128, 128, 128};
    int64_t in = h * w * c;
    OCT_TRY(oct_module_alloc(root, &autoencoder_type, sizeof(autoencoder)));
    oct_module *self = *root;
    autoencoder *m = (autoencoder *)self;
    OCT_TRY(oct_module_add(self, "quant", &m->quant, oct_quant_stub_create(&m->quant)));
    OCT_TRY(oct_module_add(self, "flatten", &m->flatten, oct_flatten_create(&m->flatten)));
    OCT_TRY(oct_module_add(self, "layers", &m->layers, oct_sequential_create(&m->layers)));
    OCT_TRY(oct_module_add(self, "dequant", &m->dequant, oct_dequant_stub_create(&m->dequant)));
    for (size_t i = 0; i < OCT_COUNT(widths); i++) {
        OCT_APPEND(m->layers, oct_linear_create(&item, in, widths[i], true));
        OCT_APPEND(m->layers, oct_batch_norm_create(&item, widths[i]));
        OCT_APPEND(m->layers, oct_relu_create(&item));
        in = widths[i];
    }
    OCT_APPEND(m->layers, oct_linear_create(&item, in, classes, true));
    return OCT_OK;
}

const oct_model_spec oct_model_autoencoder = {
    .name = "autoencoder",
    .help =
        "10 linear layers with a waist of 8, for signals: gives values, such as its input again",
    .min_size = 1,
    .build = build,
    .fuse = oct_fuse_sequences,
};
