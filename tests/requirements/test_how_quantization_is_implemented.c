/* "How does PyTorch implement quantization?": a VGG that is to be fused by names that it does not
 * have, batch norms that are not fused, ResNet-18's forgotten stem, and a layer of the user's own. */
#include "tests/requirements/rig.h"

#include "launch/model/model.h"

#include <stdio.h>

static void begin(rig *r, const char *model)
{
    oct_module *root = NULL;
    OK(oct_model_find(model)->build(&root, 32, 32, 3, 10));
    rig_begin(r, root, OCT_EXAMPLE(OCT_SHAPE(1, 32, 32, 3)));
}

/* torch.quantization.fuse_modules(self, [['conv2d', 'BatchNorm2d', 'ReLU']]): "'Cifar_VGG' object has
 * no attribute 'conv2d'". */
Test(how_quantization_is_implemented, a_wrong_name_is_answered_with_the_right_ones)
{
    rig r;
    begin(&r, "vgg11c");
    const char *names[] = {"conv2d", "batch_norm", "relu"};
    REFUSED(oct_fuse_modules(&r.root, names, 3, false), OCT_PREPARE, "conv2d");
    cr_assert(rig_says("features") && rig_says("classifier"), "%s", oct_error_message(0));
    const char *deeper[] = {"features.conv2d", "features.1"};
    REFUSED(oct_fuse_modules(&r.root, deeper, 2, false), OCT_PREPARE, "features.conv2d");
    cr_assert(rig_says("0, 1, 2"), "%s", oct_error_message(0));
    cr_assert_eq(rig_count(r.root, &oct_batch_norm_type), 9, "nothing changed");
    rig_end(&r);
}

Test(how_quantization_is_implemented, what_fits_no_pattern_is_refused)
{
    rig r;
    begin(&r, "vgg11c");
    const char *backwards[] = {"features.1", "features.0"};
    REFUSED(oct_fuse_modules(&r.root, backwards, 2, false), OCT_PREPARE,
            "features.1 (batch_norm), features.0 (conv2d)");
    const char *apart[] = {"features.0", "features.5"};
    REFUSED(oct_fuse_modules(&r.root, apart, 2, false), OCT_PREPARE, "channels");
    oct_module_train(oct_module_find(r.root, "features.1"), false);
    const char *modes[] = {"features.0", "features.1", "features.2"};
    REFUSED(oct_fuse_modules(&r.root, modes, 3, false), OCT_PREPARE, "mode");
    rig_end(&r);
}

/* "cannot run native_batch_norm on QuantizedCPU", at run time there; here at prepare, with the line. */
Test(how_quantization_is_implemented, an_unfused_batch_norm_is_named_with_the_line_to_add)
{
    rig r;
    begin(&r, "vgg11c");
    oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    REFUSED(rig_try(&r, &options, NULL), OCT_PREPARE, "features.1");
    cr_assert(rig_says("oct_fuse_modules") && rig_says("features.0"), "%s", oct_error_message(0));
    cr_assert_geq(oct_error_count(), 9, "each of them, in one go");
    rig_end(&r);
}

/* The list that PyTorch's user wanted. */
static void fuse_vgg(rig *r)
{
    static const int convolutions[] = {0, 4, 8, 11, 15, 18, 22, 25};
    for (size_t i = 0; i < OCT_COUNT(convolutions); i++) {
        char text[3][32];
        const char *names[] = {text[0], text[1], text[2]};
        for (int j = 0; j < 3; j++)
            snprintf(text[j], sizeof text[j], "features.%d", convolutions[i] + j);
        OK(oct_fuse_modules(&r->root, names, 3, false));
    }
    const char *head[] = {"classifier.0", "classifier.1", "classifier.2"};
    OK(oct_fuse_modules(&r->root, head, 3, false));
}

Test(how_quantization_is_implemented, vgg_fused_by_hand_runs_in_eager)
{
    rig r;
    begin(&r, "vgg11c");
    float before[80];
    oct_module_train(r.root, false);
    memcpy(before, rig_forward(&r)->data, sizeof before);
    oct_module_train(r.root, true);
    fuse_vgg(&r);
    oct_module_train(r.root, false);
    cr_assert_arr_eq(before, rig_forward(&r)->data, sizeof before, "fusing is exact");
    oct_module_train(r.root, true);
    oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    rig_prepare(&r, &options);
    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    rig_step(&r);
    rig_convert(&r);
    rig_end(&r);
}

/* "How to merge batch_norm layer with conv layer?": the graph methods do it by themselves. */
Test(how_quantization_is_implemented, graph_methods_fuse_by_themselves)
{
    rig r;
    begin(&r, "vgg11c");
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    rig_prepare(&r, &options);
    cr_assert_eq(rig_count(r.root, &oct_qat_conv_type), 10, "8 convolutions, 2 linear layers");
    cr_assert_eq(rig_count(r.root, &oct_qat_batch_norm_type), 0);
    rig_end(&r);
}

/* "Got it! I missed fuse_modules(self, ['conv1', 'bn1', 'relu'])." The loop over blocks in ResNet-18
 * fused all but the stem. */
Test(how_quantization_is_implemented, the_forgotten_stem_of_resnet18_is_found)
{
    rig r;
    begin(&r, "resnet18c");
    oct_prepare_options options = rig_options(OCT_METHOD_EAGER);
    oct_status status = rig_try(&r, &options, NULL);
    cr_assert_eq(status, OCT_PREPARE);
    cr_assert(rig_says("oct_fuse_modules"));
    rig_end(&r);
}

/* "My custom layers have to be supported": the channels change places, by a forward and a backward of
 * the user's own. Octet has no integer form of it. */
typedef struct shuffle {
    oct_module base;
} shuffle;

static void turn(int64_t positions, int64_t channels, const float *x, float *y)
{
    for (int64_t i = 0; i < positions; i++)
        for (int64_t c = 0; c < channels; c++)
            y[i * channels + c] = x[i * channels + channels - 1 - c];
}

static void shuffle_backward(oct_context *cx, oct_node *node)
{
    const oct_tensor *y = node->output;
    float *grad = oct_scratch(cx, (size_t)oct_numel(y) * sizeof(float));
    int64_t channels = oct_dim(y, y->shape.ndim - 1);
    if (grad) turn(oct_numel(y) / channels, channels, y->grad, grad);
    oct_add_grad(cx, node->input[0], grad);
}

static oct_tensor *shuffle_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    (void)self;
    oct_tensor *y = oct_tensor_new(cx, OCT_F32, x[0]->shape);
    if (!y) return NULL;
    int64_t channels = oct_dim(y, y->shape.ndim - 1);
    turn(oct_numel(y) / channels, channels, oct_f32(x[0]), oct_f32(y));
    oct_record(cx, "shuffle", shuffle_backward, x, n, false, y);
    return y;
}

static const oct_module_type shuffle_type = {
    .name = "shuffle", .forward = shuffle_forward, .atomic = true, OCT_MODULE_NO_ARGS(shuffle)};

Test(how_quantization_is_implemented, a_layer_of_ones_own_stays_a_float_fallback)
{
    rig r;
    oct_module *root = NULL;
    OK(oct_module_type_register(&shuffle_type));
    OK(oct_sequential_create(&root));
    APPEND(root, oct_quant_stub_create(&item));
    APPEND(root, oct_conv2d_create(&item, 3, 4, rig_same(3), true));
    APPEND(root, oct_module_make(&item, &shuffle_type, NULL));
    APPEND(root, oct_conv2d_create(&item, 4, 2, rig_same(3), true));
    APPEND(root, oct_global_avg_pool_create(&item));
    APPEND(root, oct_dequant_stub_create(&item));
    rig_begin(&r, root, OCT_EXAMPLE(OCT_SHAPE(1, 6, 6, 3)));
    oct_prepare_options options = rig_options(OCT_METHOD_JIT_STRIP);
    oct_text report = {0};
    OK(rig_try(&r, &options, &report));
    cr_assert(strstr(report.data, "shuffle") && strstr(report.data, "float"), "%s", report.data);
    OK(oct_params_bind(&r.params, r.root, &r.leaves));
    OK(oct_quantizers_collect(&r.quantizers, r.root));
    rig_calibrate(&r);
    OK(oct_set_fake_quant(r.root, OCT_STATE_QAT));
    for (int step = 0; step < 3; step++)
        rig_step(&r);
    rig_convert(&r);
    oct_text_free(&report);
    rig_end(&r);
}
