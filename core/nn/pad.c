/* The module pad is oct_pad with what is asked for. */
#include "core/nn/modules.h"
#include "core/nn/modules_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIDES = 6 };

static oct_tensor *pad_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    const oct_pad_module *m = (const oct_pad_module *)self;
    return oct_needs_inputs(cx, self, n, 1) ? oct_pad(cx, x[0], &m->padding) : NULL;
}

static void pad_describe(const oct_module *self, char *text, size_t size)
{
    oct_padding_text(&((const oct_pad_module *)self)->padding, text, size);
}

static void pad_args(const oct_module *self, oct_op_args *args)
{
    const oct_padding *p = &((const oct_pad_module *)self)->padding;
    *args = *OCT_OP_ARGS((double)p->top, (double)p->bottom, (double)p->left, (double)p->right,
                         (double)p->channels_before, (double)p->channels_after, p->value,
                         (double)p->mode);
}

static oct_status pad_from(oct_module **m, const oct_op_args *args)
{
    int64_t a[SIDES + 1];
    *m = NULL;
    OCT_TRY(oct_args_count("pad", args, SIDES + 2));
    oct_op_args whole = {.count = SIDES + 1};
    memcpy(whole.value, args->value, SIDES * sizeof *whole.value);
    whole.value[SIDES] = args->value[SIDES + 1];
    OCT_TRY(oct_args_integers("pad", &whole, SIDES + 1, a));
    OCT_CHECK(a[SIDES] >= 0 && a[SIDES] < OCT_PAD_MODES, OCT_USAGE,
              "a pad cannot have mode %lld; it is 0 (constant), 1 (reflect) or 2 (edge)",
              (long long)a[SIDES]);
    return oct_pad_create(m, &(oct_padding){a[0], a[1], a[2], a[3], a[4], a[5], args->value[SIDES],
                                            (oct_pad_mode)a[SIDES]});
}

const oct_module_type oct_pad_type = {.name = "pad",
                                      .forward = pad_forward,
                                      .describe = pad_describe,
                                      .atomic = true,
                                      .create = pad_from,
                                      .args = pad_args};

oct_status oct_pad_create(oct_module **m, const oct_padding *padding)
{
    const oct_padding *p = padding;
    *m = NULL;
    OCT_CHECK(p->top >= 0 && p->bottom >= 0 && p->left >= 0 && p->right >= 0 &&
                  p->channels_before >= 0 && p->channels_after >= 0,
              OCT_USAGE, "a pad cannot put less than 0 places around a tensor; slice it");
    OCT_CHECK(isfinite((float)p->value), OCT_USAGE,
              "a pad cannot put %g around a tensor; it must be a finite number", p->value);
    OCT_TRY(oct_module_create(m, &oct_pad_type, sizeof(oct_pad_module)));
    ((oct_pad_module *)*m)->padding = *p;
    return OCT_OK;
}
