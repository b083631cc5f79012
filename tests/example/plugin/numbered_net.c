/* A model that returns logits while it trains and class numbers otherwise; and one of two inputs, which
 * the commands have no data for. */
#include "example.h"

typedef struct numbered_net {
    oct_module *quant, *stem, *head, *dequant;
} numbered_net;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    numbered_net *m = oct_module_data(self);
    (void)n;
    oct_tensor *y = oct_call(cx, m->stem, oct_call(cx, m->quant, x[0]));
    y = oct_squeeze(cx, oct_call(cx, m->head, y));
    return oct_module_is_training(self) ? oct_call(cx, m->dequant, y) : oct_argmax(cx, y);
}

static const oct_module_spec spec = {
    .name = "numbered_net", .data_bytes = sizeof(numbered_net), .forward = forward};

/* The classifier is a convolution over the whole plane. */
static oct_status build(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    OCT_TRY(oct_module_create(root, &spec, NULL));
    oct_module *self = *root;
    numbered_net *m = oct_module_data(self);
    oct_conv_geometry plane = oct_conv_geometry_of((int)(h + 1) / 2, (int)(w + 1) / 2, 1, 0, 1);
    OCT_TRY(oct_module_add(self, "quant", &m->quant, oct_quant_stub_create(&m->quant)));
    OCT_TRY(oct_module_add(self, "stem", &m->stem, oct_sequential_create(&m->stem)));
    OCT_TRY(
        oct_append_conv_bn(m->stem, &(oct_conv_bn){.in = c, .out = 8, .stride = 2, .relu = true}));
    OCT_TRY(oct_module_add(self, "head", &m->head,
                           oct_conv2d_create(&m->head, 8, classes, plane, true)));
    return oct_module_add(self, "dequant", &m->dequant, oct_dequant_stub_create(&m->dequant));
}

const oct_model_spec numbered_net_model = {
    .name = "numbered-net",
    .help = "2 convolutions; class numbers in evaluation",
    .min_size = 4,
    .build = build,
};

const oct_model_spec paired_net_model = {
    .name = "paired-net",
    .help = "2 convolutions of an image, and a second input",
    .min_size = 4,
    .build = build,
    .num_inputs = 2,
};
