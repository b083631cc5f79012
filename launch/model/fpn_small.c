/* fpn-small is a feature pyramid (Lin et al. 2017) over a small backbone. The backbone knows nothing of
 * the pyramid: forward hooks on its stages hand their features over, as the hooks of a backbone that
 * somebody else wrote would. */
#include "launch/model/model.h"

enum { LEVELS = 3, WIDTH = 32 };

typedef struct backbone {
    oct_module base;
    oct_module *stem, *stage[LEVELS];
} backbone;

static oct_tensor *backbone_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    backbone *b = (backbone *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, b->stem, x[0]);
    for (int i = 0; i < LEVELS; i++)
        y = oct_call(cx, b->stage[i], y);
    return y;
}

static const oct_module_type backbone_type = {
    .name = "backbone", .forward = backbone_forward, .calls_only = true};

static oct_status create_backbone(oct_module **module, int64_t c)
{
    static const char *const names[LEVELS] = {"stage1", "stage2", "stage3"};
    OCT_TRY(oct_module_alloc(module, &backbone_type, sizeof(backbone)));
    oct_module *self = *module;
    backbone *b = (backbone *)self;
    OCT_ADD(b, stem, oct_sequential_create(&b->stem));
    OCT_TRY(oct_append_conv_bn(b->stem, &(oct_conv_bn){c, 16, 3, 1, true}));
    int64_t in = 16;
    for (int i = 0; i < LEVELS; i++) {
        int64_t out = 16 << i;
        OCT_TRY(oct_module_add(self, names[i], &b->stage[i], oct_sequential_create(&b->stage[i])));
        OCT_TRY(oct_append_conv_bn(b->stage[i], &(oct_conv_bn){in, out, 3, i == 0 ? 1 : 2, true}));
        OCT_TRY(oct_append_conv_bn(b->stage[i], &(oct_conv_bn){out, out, 3, 1, true}));
        in = out;
    }
    return OCT_OK;
}

typedef struct fpn {
    oct_module base;
    oct_module *quant, *backbone, *lateral[LEVELS], *output[LEVELS], *head, *dequant;
    oct_tensor *feature[LEVELS]; /* of the forward that runs */
} fpn;

/* Each stage has this hook; user: where its features go. */
static oct_tensor *collect_features(oct_context *cx, oct_module *stage, oct_tensor *value,
                                    void *user)
{
    (void)cx, (void)stage;
    *(oct_tensor **)user = value;
    return NULL;
}

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    fpn *m = (fpn *)self;
    (void)n;
    for (int i = 0; i < LEVELS; i++)
        m->feature[i] = NULL;
    if (!oct_call(cx, m->backbone, oct_call(cx, m->quant, x[0]))) return NULL;
    oct_tensor *level[LEVELS] = {NULL}, *above = NULL;
    for (int i = LEVELS - 1; i >= 0; i--) {
        if (!m->feature[i])
            return oct_context_fail(cx, OCT_USAGE,
                                    "backbone.stage%d handed no features over; leave its hook on",
                                    i + 1);
        oct_tensor *lateral = oct_call(cx, m->lateral[i], m->feature[i]);
        /* A level's own features and those from above, brought to its size. */
        if (above && lateral)
            above = oct_add(
                cx, lateral,
                oct_interpolate(cx, above, oct_dim(lateral, 1), oct_dim(lateral, 2), OCT_NEAREST));
        else
            above = i == LEVELS - 1 ? lateral : NULL;
        level[i] = oct_relu(cx, oct_call(cx, m->output[i], above));
        level[i] = oct_global_avg_pool(cx, level[i]);
    }
    oct_tensor *y = oct_concat(cx, level, LEVELS); /* (N, 3 WIDTH) */
    return oct_call(cx, m->dequant, oct_call(cx, m->head, y));
}

static const oct_module_type fpn_type = {.name = "fpn", .forward = forward, .calls_only = true};

static oct_status build(oct_module **root, int64_t h, int64_t w, int64_t c, int64_t classes)
{
    static const char *const laterals[LEVELS] = {"lateral1", "lateral2", "lateral3"};
    static const char *const outputs[LEVELS] = {"output1", "output2", "output3"};
    const oct_conv_geometry one = oct_conv_geometry_of(1, 1, 1, 0, 1),
                            three = oct_conv_geometry_of(3, 3, 1, 1, 1);
    (void)h, (void)w;
    OCT_TRY(oct_module_alloc(root, &fpn_type, sizeof(fpn)));
    oct_module *self = *root;
    fpn *m = (fpn *)self;
    OCT_ADD(m, quant, oct_quant_stub_create(&m->quant));
    OCT_ADD(m, backbone, create_backbone(&m->backbone, c));
    for (int i = 0; i < LEVELS; i++) {
        OCT_TRY(oct_module_add(self, laterals[i], &m->lateral[i],
                               oct_conv2d_create(&m->lateral[i], 16 << i, WIDTH, one, true)));
        OCT_TRY(oct_module_add(self, outputs[i], &m->output[i],
                               oct_conv2d_create(&m->output[i], WIDTH, WIDTH, three, true)));
        OCT_TRY(oct_module_hook(((backbone *)m->backbone)->stage[i], collect_features,
                                &m->feature[i], NULL));
    }
    OCT_ADD(m, head, oct_linear_create(&m->head, LEVELS * WIDTH, classes, true));
    OCT_ADD(m, dequant, oct_dequant_stub_create(&m->dequant));
    return OCT_OK;
}

const oct_model_spec oct_model_fpn_small = {
    .name = "fpn-small",
    .help = "a feature pyramid over a small backbone, whose features hooks collect",
    .min_size = 8,
    .build = build,
};
