/* mlp has two hidden layers of 128 with relu, for rows of features: the network to begin with where samples have no
 * neighbouring pixels. */
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

static oct_status build(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    enum { WIDTH = 128 };
    OCT_TRY(oct_module_alloc(root, &mlp_type, sizeof(mlp)));
    oct_module *self = *root;
    mlp *m = (mlp *)self;
    OCT_TRY(oct_module_add(self, "quant", &m->quant, oct_quant_stub_create(&m->quant)));
    OCT_TRY(oct_module_add(self, "flatten", &m->flatten, oct_flatten_create(&m->flatten)));
    OCT_TRY(oct_module_add(self, "layers", &m->layers, oct_sequential_create(&m->layers)));
    OCT_TRY(oct_module_add(self, "dequant", &m->dequant, oct_dequant_stub_create(&m->dequant)));
    OCT_APPEND(m->layers, oct_linear_create(&item, h * w * c, WIDTH, true));
    OCT_APPEND(m->layers, oct_relu_create(&item));
    OCT_APPEND(m->layers, oct_linear_create(&item, WIDTH, WIDTH, true));
    OCT_APPEND(m->layers, oct_relu_create(&item));
    OCT_APPEND(m->layers, oct_linear_create(&item, WIDTH, classes, true));
    return OCT_OK;
}

const oct_model_spec oct_model_mlp = {
    .name = "mlp",
    .help = "3 linear layers (128, 128, classes), for rows of features",
    .min_size = 1,
    .build = build,
    .fuse = oct_fuse_sequences,
};
