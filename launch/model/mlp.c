/* Linear layers for samples without neighbouring pixels. mlp has two hidden layers of 128 with relu, for rows of features:
 * the network to begin with.
 *
 * autoencoder is the network of MLPerf Tiny's anomaly detection (Banbury et al. 2021; Koizumi et al. 2020):
 * linear layers of 128 and a waist of 8, each with batch norm and relu, and a linear layer that gives as
 * many values as are asked for. With the input itself as goal it learns what is usual, and a large error
 * marks what is not. */
#include "launch/model/model.h"

typedef struct mlp {
    oct_module base;
    oct_module *quant, *flatten, *layers, *dequant;
} mlp;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    mlp *m = (mlp *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, m->flatten, oct_call(cx, m->quant, x[0])); /* (N, H W C) */
    return oct_call(cx, m->dequant, oct_call(cx, m->layers, y));            /* (N, classes) */
}

static const oct_module_type mlp_type = {.name = "mlp", .forward = forward, .calls_only = true};
static const oct_module_type autoencoder_type = {
    .name = "autoencoder", .forward = forward, .calls_only = true};

/* Makes a linear layer of each width, with a relu, and before it a batch norm where `norm`; then one of `classes`. */
static oct_status build_layers(oct_module **root, const oct_module_type *type, int64_t in,
                               const int64_t *widths, size_t count, bool norm, int64_t classes)
{
    OCT_TRY(oct_module_alloc(root, type, sizeof(mlp)));
    mlp *m = (mlp *)*root;
    OCT_ADD(m, quant, oct_quant_stub_create(&m->quant));
    OCT_ADD(m, flatten, oct_flatten_create(&m->flatten));
    OCT_ADD(m, layers, oct_sequential_create(&m->layers));
    OCT_ADD(m, dequant, oct_dequant_stub_create(&m->dequant));
    for (size_t i = 0; i < count; in = widths[i++]) {
        OCT_APPEND(m->layers, oct_linear_create(&item, in, widths[i], true));
        if (norm) OCT_APPEND(m->layers, oct_batch_norm_create(&item, widths[i]));
        OCT_APPEND(m->layers, oct_relu_create(&item));
    }
    OCT_APPEND(m->layers, oct_linear_create(&item, in, classes, true));
    return OCT_OK;
}

static oct_status build_mlp(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    static const int64_t widths[] = {128, 128};
    return build_layers(root, &mlp_type, h * w * c, widths, OCT_COUNT(widths), false, classes);
}

static oct_status build_autoencoder(oct_module **root, int64_t h, int64_t w, int64_t c,
                                    int64_t classes)
{
    static const int64_t widths[] = {128, 128, 128, 128, 8, 128, 128, 128, 128};
    return build_layers(root, &autoencoder_type, h * w * c, widths, OCT_COUNT(widths), true,
                        classes);
}

const oct_model_spec oct_model_mlp = {
    .name = "mlp",
    .help = "3 linear layers (128, 128, classes), for rows of features",
    .min_size = 1,
    .build = build_mlp,
    .fuse = oct_fuse_sequences,
};

const oct_model_spec oct_model_autoencoder = {
    .name = "autoencoder",
    .help =
        "10 linear layers with a waist of 8, for signals: gives values, such as its input again",
    .min_size = 1,
    .build = build_autoencoder,
    .fuse = oct_fuse_sequences,
};
