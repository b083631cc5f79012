/* States as calls: what each does, what each refuses, and how batch norm follows them. */
#include "tests/quant/net.h"
#include "tests/support/check_status.h"

static net n;

static void build(void)
{
    net_begin(&n, 6, 6, 3, 4, 2);
    APPEND(&n, oct_quant_stub_create(&item));
    APPEND(&n, oct_conv2d_create(&item, 3, 8, conv3x3(1, 1), false));
    APPEND(&n, oct_batch_norm_create(&item, 8));
    APPEND(&n, oct_relu_create(&item));
    APPEND(&n, oct_conv2d_create(&item, 8, 4, conv3x3(1, 1), true));
    APPEND(&n, oct_dequant_stub_create(&item));
}

static void set_up(void)
{
    build();
    OK(net_prepare(&n, false, false));
}

static void tear_down(void)
{
    net_end(&n);
}

TestSuite(state, .init = set_up, .fini = tear_down, .timeout = 30);

static void check_refused(oct_fake_quant_state state, const char *why)
{
    cr_assert_eq(oct_set_fake_quant(n.root, state), OCT_USAGE);
    check_said(why);
}

static void check_all(oct_quant_state state)
{
    for (size_t i = 0; i < n.quantizers.count; i++)
        cr_assert_eq(n.quantizers.items[i]->state, state);
}

static bool frozen(void)
{
    const oct_module *conv = *n.root->children[1].slot;
    return ((const oct_batch_norm_module *)((const oct_qat_conv *)conv)->batch_norm)->frozen;
}

static void calibrate(void)
{
    oct_module_train(n.root, true);
    OK(oct_set_fake_quant(n.root, OCT_STATE_CALIBRATION));
    net_forward(&n, false);
    net_update(&n);
}

Test(state, follows_the_calls_of_a_whole_run)
{
    calibrate();
    check_all(OCT_QUANT_CALIBRATE);
    cr_assert(frozen(), "calibration observes the model as it is");
    cr_assert_eq(n.quantizers.items[0]->updates[0], 1);
    oct_module_train(n.root, false);
    OK(oct_set_fake_quant(n.root, OCT_STATE_VALIDATION));
    check_all(OCT_QUANT_FROZEN);
    oct_module_train(n.root, true);
    OK(oct_set_fake_quant(n.root, OCT_STATE_QAT));
    check_all(OCT_QUANT_QAT);
    cr_assert_not(frozen(), "training goes on as before calibration");
    oct_freeze_batch_norm(n.root, true);
    OK(oct_set_fake_quant(n.root, OCT_STATE_QAT));
    cr_assert(frozen(), "who froze it himself finds it frozen");
    OK(oct_set_fake_quant(n.root, OCT_STATE_FLOAT));
    check_all(OCT_QUANT_OFF);
}

Test(state, that_observes_wants_training_mode)
{
    oct_module_train(n.root, false);
    check_refused(OCT_STATE_CALIBRATION, "calibration observes, which happens in training mode "
                                         "only; call oct_module_train(model, true) first");
    check_refused(OCT_STATE_QAT, "quantization-aware training needs training mode; call "
                                 "oct_module_train(model, true) first");
    check_all(OCT_QUANT_OFF);
    cr_assert_not(frozen());
}

Test(state, validation_wants_evaluation_mode_and_ranges)
{
    check_refused(OCT_STATE_VALIDATION, "validation must not move the model; call "
                                        "oct_module_train(model, false) first");
    oct_module_train(n.root, false);
    check_refused(OCT_STATE_VALIDATION, "no quantizer has seen a range, so there is nothing to "
                                        "validate; calibrate first");
    calibrate();
    check_refused(OCT_STATE_VALIDATION, "oct_module_train(model, false)");
    oct_module_train(n.root, false);
    OK(oct_set_fake_quant(n.root, OCT_STATE_VALIDATION));
}

Test(state, qat_with_fixed_scales_wants_a_calibration)
{
    for (size_t i = 0; i < n.quantizers.count; i++)
        n.quantizers.items[i]->qconfig.fixed_scale = true;
    check_refused(OCT_STATE_QAT, "its scale is to stay as calibration left it, but there was no "
                                 "calibration; calibrate first");
    calibrate();
    OK(oct_set_fake_quant(n.root, OCT_STATE_QAT));
}

Test(state, in_evaluation_mode_no_forward_moves_anything)
{
    static const oct_quant_state states[] = {OCT_QUANT_OFF, OCT_QUANT_CALIBRATE, OCT_QUANT_SIMULATE,
                                             OCT_QUANT_QAT, OCT_QUANT_FROZEN};
    calibrate();
    oct_module_train(n.root, false);
    for (size_t s = 0; s < OCT_COUNT(states); s++) {
        oct_quantizers_set_state(&n.quantizers, states[s]);
        net_forward(&n, false);
        net_update(&n);
        for (size_t i = 0; i < n.quantizers.count; i++)
            cr_assert_eq(n.quantizers.items[i]->updates[0], 1, "state %zu", s);
    }
}

Test(state, of_a_model_that_is_not_prepared_is_refused)
{
    net_end(&n);
    build();
    check_refused(OCT_STATE_QAT, "it is not prepared; call oct_prepare first");
    cr_assert_eq(oct_fold_batch_norm(n.root), OCT_USAGE);
    check_said("the model is not prepared; call oct_prepare first");
}

Test(state, folded_batch_norm_leaves_every_bit_of_evaluation)
{
    float before[4 * 6 * 6 * 4];
    net_enter(&n, OCT_QUANT_FROZEN, true);
    oct_module_train(n.root, false);
    const oct_tensor *y = net_forward(&n, false);
    cr_assert_eq(oct_numel(y), OCT_COUNT(before));
    memcpy(before, y->data, sizeof before);
    oct_params_unbind(&n.params);
    OK(oct_fold_batch_norm(n.root));
    cr_assert_null(((const oct_qat_conv *)*n.root->children[1].slot)->batch_norm);
    y = net_forward(&n, false);
    cr_assert_arr_eq(y->data, before, sizeof before);
    OK(oct_fold_batch_norm(n.root));
}

/* A gain that takes the weights' scale below its floor has no place in the weights. */
Test(state, a_batch_norm_that_cannot_be_folded_exactly_stays)
{
    float before[4 * 6 * 6 * 4];
    net_enter(&n, OCT_QUANT_FROZEN, true);
    oct_module_train(n.root, false);
    const oct_qat_conv *conv = (const oct_qat_conv *)*n.root->children[1].slot;
    const oct_batch_norm_module *norm = (const oct_batch_norm_module *)conv->batch_norm;
    oct_f32(&norm->gamma->value)[1] = 1e-6F;
    oct_f32(&norm->beta->value)[1] = 0; /* or the channel is carried by its bias alone, exactly */
    oct_tensor *y = net_forward(&n, false);
    memcpy(before, y->data, sizeof before);
    oct_params_unbind(&n.params);
    OK(oct_fold_batch_norm(n.root));
    cr_assert_not_null(conv->batch_norm);
    y = net_forward(&n, false);
    cr_assert_arr_eq(y->data, before, sizeof before);
}
