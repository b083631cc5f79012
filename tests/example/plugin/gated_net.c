/* A model with the layer of one's own in its middle. */
#include "example.h"

typedef struct gated_net {
    oct_module *quant, *stem, *gate, *pool, *dropout, *head, *dequant;
} gated_net;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    gated_net *m = oct_module_data(self);
    (void)n;
    oct_tensor *y = oct_call(cx, m->stem, oct_call(cx, m->quant, x[0]));
    y = oct_call(cx, m->gate, y);
    y = oct_call(cx, m->pool, oct_relu(cx, y)); /* a function where a layer is not worth it */
    y = oct_call(cx, m->dropout, y);            /* acts in training alone */
    return oct_call(cx, m->dequant, oct_call(cx, m->head, y));
}

static const oct_module_spec spec = {
    .name = "gated_net", .data_bytes = sizeof(gated_net), .forward = forward};

static oct_status build(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    (void)h, (void)w;
    OCT_TRY(oct_module_create(root, &spec, NULL));
    oct_module *self = *root;
    gated_net *m = oct_module_data(self);
    OCT_TRY(oct_module_add(self, "quant", &m->quant, oct_quant_stub_create(&m->quant)));
    OCT_TRY(oct_module_add(self, "stem", &m->stem, oct_sequential_create(&m->stem)));
    OCT_TRY(
        oct_append_conv_bn(m->stem, &(oct_conv_bn){.in = c, .out = 16, .stride = 2, .relu = true}));
    OCT_TRY(oct_append_conv_bn(m->stem, &(oct_conv_bn){.in = 16, .out = 16, .relu = true}));
    OCT_TRY(oct_module_add(self, "gate", &m->gate, channel_gate_create(&m->gate, 16)));
    OCT_TRY(oct_module_add(self, "pool", &m->pool, oct_global_avg_pool_create(&m->pool)));
    OCT_TRY(oct_module_add(self, "dropout", &m->dropout, oct_dropout_create(&m->dropout, 0.1)));
    OCT_TRY(oct_module_add(self, "head", &m->head, oct_linear_create(&m->head, 16, classes, true)));
    return oct_module_add(self, "dequant", &m->dequant, oct_dequant_stub_create(&m->dequant));
}

const oct_model_spec gated_net_model = {
    .name = "gated-net",
    .help = "2 convolutions, a gate for each channel, 1 linear layer",
    .min_size = 8,
    .build = build,
};
