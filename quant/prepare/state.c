/* The states of a prepared model: what its quantizers and its batch norms do. */
#include "quant/prepare/prepare.h"

static oct_status freeze_one(void *user, oct_module *module)
{
    if (module->type == &oct_batch_norm_type)
        ((oct_batch_norm_module *)module)->frozen = *(const bool *)user;
    return OCT_OK;
}

void oct_freeze_batch_norm(oct_module *root, bool frozen)
{
    oct_status status = oct_module_walk(root, freeze_one, &frozen);
    OCT_ASSERT(status == OCT_OK);
}

oct_status oct_fold_batch_norm(oct_module *root)
{
    const oct_graph *graph = oct_graph_of(root);
    OCT_CHECK(graph, OCT_USAGE,
              "batch norms cannot be folded: the model is not prepared; call oct_prepare first");
    for (size_t i = 0; i < graph->num_nodes; i++) {
        const oct_graph_node *node = &graph->nodes[i];
        bool exactly;
        if (node->action != OCT_NODE_RUN || node->module->type != &oct_qat_conv_type) continue;
        oct_qat_conv *conv = (oct_qat_conv *)node->module;
        if (!conv->batch_norm || conv->borrows || oct_qat_conv_is_tied(conv)) continue;
        const oct_fake_quant *fq =
            graph->values[oct_graph_input(graph, node, 0, oct_graph_mode_of(node))].fq;
        OCT_CHECK(fq, OCT_DEFECT, "%s: nothing says what scale its input has",
                  oct_module_path(node->module).text);
        const oct_qparams input = oct_fake_quant_qparams(fq);
        OCT_TRY(oct_qat_conv_folds_exactly(conv, input, &exactly));
        if (exactly) OCT_TRY(oct_qat_conv_fold(conv, input));
    }
    return OCT_OK;
}

oct_status oct_set_fake_quant(oct_module *root, oct_fake_quant_state state)
{
    static const oct_quant_state states[] = {
        [OCT_STATE_CALIBRATION] = OCT_QUANT_CALIBRATE,
        [OCT_STATE_QAT] = OCT_QUANT_QAT,
        [OCT_STATE_VALIDATION] = OCT_QUANT_FROZEN,
        [OCT_STATE_FLOAT] = OCT_QUANT_OFF,
    };
    OCT_OWNED(oct_quantizers_free) oct_quantizers all = {0};
    bool calibrating = false, any_range = false;
    const oct_fake_quant *uncalibrated = NULL; /* wants the scale of a calibration that never was */
    OCT_CHECK(oct_graph_of(root), OCT_USAGE,
              "the model has no quantizers: it is not prepared; call oct_prepare first");
    OCT_CHECK(state != OCT_STATE_CALIBRATION || root->training, OCT_USAGE,
              "calibration observes, which happens in training mode only; call "
              "oct_module_train(model, true) first");
    OCT_CHECK(state != OCT_STATE_QAT || root->training, OCT_USAGE,
              "quantization-aware training needs training mode; call oct_module_train(model, true) "
              "first");
    OCT_CHECK(state != OCT_STATE_VALIDATION || !root->training, OCT_USAGE,
              "validation must not move the model; call oct_module_train(model, false) first");
    OCT_TRY(oct_quantizers_collect(&all, root));
    for (size_t i = 0; i < all.count; i++) {
        const oct_fake_quant *fq = all.items[i];
        const bool has_range = fq->updates[0] > 0 || fq->fixed;
        calibrating |= fq->state == OCT_QUANT_CALIBRATE;
        any_range |= has_range;
        if (fq->qconfig.fixed_scale && !has_range) uncalibrated = fq;
    }
    OCT_CHECK(state != OCT_STATE_VALIDATION || any_range, OCT_USAGE,
              "no quantizer has seen a range, so there is nothing to validate; calibrate "
              "first");
    OCT_CHECK(state != OCT_STATE_QAT || !uncalibrated, OCT_USAGE,
              "%s: its scale is to stay as calibration left it, but there was no calibration; "
              "calibrate first",
              uncalibrated ? oct_module_path(&uncalibrated->base).text : "");
    if (state == OCT_STATE_CALIBRATION || calibrating)
        oct_freeze_batch_norm(root, state == OCT_STATE_CALIBRATION);
    oct_quantizers_set_state(&all, states[state]);
    return OCT_OK;
}
