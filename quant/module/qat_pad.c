/* Codes with codes around them: the input's qparams serve the output too. What lies around is 0, which every
 * scale has, or codes from inside, or a value of its own: that one is rounded to the nearest code, and the range
 * from which the scale follows includes it. (A scale that is taken from the values of this very step is set
 * before they are padded, and may cut it.) */
#include "core/op/ops.h"
#include "quant/module/quantized_impl.h"
#include "quant/module/rule.h"

#include "quant/rounding/qparams.h"

#include <stdio.h>

typedef struct qat_pad {
    oct_quantized base; /* fake_quant: of value_type alone, the input's */
    oct_padding padding;
} qat_pad;

static oct_tensor *compute_in_float(oct_context *cx, oct_module *self, oct_tensor *const *x)
{
    return oct_pad(cx, x[0], &((const qat_pad *)self)->padding);
}

/* Gives the padding of such an input, and the shape of its output. */
static oct_status shape_padding(const oct_module *self, const oct_tensor *x, oct_pad_shape *plane,
                                oct_shape *out)
{
    return oct_pad_tensor_shape(plane, &((const qat_pad *)self)->padding, &x->shape, out);
}

static bool check_input(oct_context *cx, const oct_module *self, const oct_tensor *x)
{
    oct_pad_shape plane;
    oct_shape out;
    if (shape_padding(self, x, &plane, &out) != OCT_OK)
        oct_context_adopt(cx, oct_fail_prefix("input %s", oct_text_shape(&x->shape).text));
    return cx->status == OCT_OK;
}

static oct_shape output_shape(const oct_module *self, const oct_tensor *x)
{
    oct_pad_shape plane;
    oct_shape out;
    const oct_status status = shape_padding(self, x, &plane, &out);
    OCT_ASSERT(status == OCT_OK); /* it fits */
    return out;
}

static int32_t nearest_code(float value, oct_qparams q)
{
    uint16_t code; /* with room for both widths */
    oct_quantize16(&value, 1, q, &code, NULL, NULL);
    return code;
}

static oct_status set_constants(oct_module *self, const oct_program *program, oct_step *step)
{
    const oct_padding *padding = &((const qat_pad *)self)->padding;
    const oct_value *in = oct_step_input(program, step, 0);
    step->pad.fill =
        nearest_code(padding->mode == OCT_PAD_CONSTANT ? (float)padding->value : 0, in->q);
    return oct_pad_shape_of(&step->pad.shape, padding, in->h, in->w, in->c);
}

static void backward(oct_context *cx, oct_node *node)
{
    oct_pad_shape plane;
    oct_shape out;
    const oct_status status = shape_padding(node->module, node->input[0], &plane, &out);
    OCT_ASSERT(status == OCT_OK);
    oct_pad_add_grad(cx, node, &plane);
}

static const oct_quantized_op step = {.kind = OCT_STEP_PAD,
                                      .inputs = 1,
                                      .unit = OCT_UNIT_SAMPLE,
                                      .keeps_qparams = true,
                                      .in_float = compute_in_float,
                                      .fits = check_input,
                                      .shape = output_shape,
                                      .constants = set_constants,
                                      .backward = backward};

static void describe(const oct_module *self, char *text, size_t size)
{
    char around[96];
    oct_padding_text(&((const qat_pad *)self)->padding, around, sizeof around);
    snprintf(text, size, "%s, input's qparams", around);
}

static const oct_module_type type = {
    .name = "qat_pad",
    .describe = describe,
    OCT_QUANTIZED_OP(&step, qat_pad),
    .args_at = offsetof(qat_pad, padding),
};

/* Observes the padding's value, which the range includes, unless the scale is from this step and set by now. */
static oct_tensor *observe_and_forward(oct_context *cx, oct_module *self, oct_tensor *const *x,
                                       int n)
{
    const qat_pad *m = (const qat_pad *)self;
    const float value = (float)m->padding.value;
    oct_fake_quant *fq = oct_quantized_fq(&m->base);
    if (fq && !oct_fake_quant_updates_first(fq, self->training))
        oct_fake_quant_observe(fq, self->training, value, value);
    return oct_quantized_forward(cx, self, x, n);
}

static const oct_module_type value_type = {
    .name = "qat_pad",
    .forward = observe_and_forward,
    .describe = describe,
    .atomic = true,
    .emit = oct_quantized_emit,
    .quantized = true,
    .step = &step,
};

/* A value of its own has a part in the range. */
static oct_status choose_type(oct_module *made, oct_module **old)
{
    const oct_padding *padding = &((const qat_pad *)made)->padding;
    (void)old;
    if (padding->mode == OCT_PAD_CONSTANT && padding->value != 0) made->type = &value_type;
    return OCT_OK;
}

static bool makes_negative(const oct_op_args *args)
{
    oct_padding padding;
    oct_args_get(&oct_pad_arg_list, args, &padding);
    return padding.mode == OCT_PAD_CONSTANT && padding.value < 0;
}

const oct_quant_rule oct_quant_rule_pad = {.type = &oct_pad_type,
                                           .scale = OCT_SCALE_INPUT,
                                           .made = &type,
                                           .complete = choose_type,
                                           .makes_negative = makes_negative};
