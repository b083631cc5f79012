/* Writes the module tree, a module on each line, with the quantizer of each tensor and of each
 * weight where it belongs. */
#include "quant/prepare/report.h"

#include "core/base/mem.h"

#include <math.h>

static oct_status add_indent(oct_text *text, int depth)
{
    return oct_text_add(text, "%*s", 2 * depth, "");
}

/* Writes by what scales weights are quantized in the next step. */
static oct_status add_weight(oct_text *text, const oct_qat_conv *conv, int depth)
{
    const oct_weight_fake_quant *wq = (const oct_weight_fake_quant *)conv->weight_fake_quant;
    const int64_t channels = oct_dim(&conv->layer->params[0]->value, 0);
    float *scale = NULL, min = INFINITY, max = 0;
    OCT_TRY(oct_alloc(&scale, (size_t)channels, sizeof *scale));
    oct_qat_conv_weight_scales(conv, scale);
    for (int64_t c = 0; c < channels; c++) {
        min = fminf(min, scale[c]);
        max = fmaxf(max, scale[c]);
    }
    oct_free(&scale);
    OCT_TRY(add_indent(text, depth));
    OCT_TRY(oct_text_add(text, "(weight_fake_quant): fake_quant("));
    if (wq)
        OCT_TRY(oct_text_add(text, "kind=%s%s, ", wq->kind->name, wq->scale ? ", learned" : ""));
    return oct_text_add(text,
                        "dtype=s8, codes=-127..127, scheme=%s_symmetric, ch_axis=0, channels=%lld, "
                        "scale=%.6g..%.6g, zero_point=0)\n",
                        wq && wq->per_tensor ? "per_tensor" : "per_channel", (long long)channels,
                        (double)min, (double)max);
}

static bool is_prepared(const oct_module *module)
{
    return oct_is_quantized(module) && ((const oct_quantized *)module)->target;
}

static oct_status add_module(oct_text *text, const oct_module *module, int depth);

static oct_status add_members(oct_text *text, const oct_module *module, int depth)
{
    char path[256];
    const oct_qat_conv *conv =
        module->type == &oct_qat_conv_type ? (const oct_qat_conv *)module : NULL;
    if (conv && conv->borrows) {
        OCT_TRY(add_indent(text, depth));
        OCT_TRY(oct_text_add(text, "(weights): those of %s\n",
                             oct_module_path(conv->layer->parent, path)));
    }
    for (size_t i = 0; i < module->num_children; i++)
        if ((*module->children[i].slot)->type != &oct_weight_fake_quant_type)
            OCT_TRY(add_module(text, *module->children[i].slot, depth));
    const oct_module *fq = is_prepared(module) ? ((const oct_quantized *)module)->fake_quant : NULL;
    if (is_prepared(module) && (!fq || fq->parent != module)) { /* not one of its children */
        OCT_TRY(add_indent(text, depth));
        OCT_TRY(fq ? oct_text_add(text, "(fake_quant): shared with %s\n",
                                  oct_module_path(fq->parent, path))
                   : oct_text_add(text, "(fake_quant): none, the output stays float\n"));
    }
    if (conv && !conv->borrows) OCT_TRY(add_weight(text, conv, depth));
    return OCT_OK;
}

static oct_status add_module(oct_text *text, const oct_module *module, int depth)
{
    char about[512];
    OCT_TRY(add_indent(text, depth));
    if (module->parent) OCT_TRY(oct_text_add(text, "(%s): ", module->name));
    oct_module_describe(module, about, sizeof(about));
    OCT_TRY(oct_text_add(text, "%s(%s", module->type->name, about));
    if (module->num_children == 0 && !is_prepared(module)) return oct_text_add(text, ")\n");
    OCT_TRY(oct_text_add(text, "\n"));
    OCT_TRY(add_members(text, module, depth + 1));
    OCT_TRY(add_indent(text, depth));
    return oct_text_add(text, ")\n");
}

oct_status oct_tree_write(oct_text *text, const oct_module *root)
{
    return add_module(text, root, 0);
}
