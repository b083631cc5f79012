/* QuantStub, residual add and average pool on codes: forward and backward against scalar definitions,
 * with delayed and with current scales. (The convolution has test_qat_conv.c.)
 */
#include "tests/quant/net.h"

#include <math.h>

enum { N = 5, H = 4, W = 4, C = 3, NUMEL = N * H * W * C };

/* quant -> (add of the codes with themselves through a twin) -> dequant, as a tree of its own. */
typedef struct doubler {
    oct_module base;
    oct_module *quant, *add, *relu, *dequant;
} doubler;

static oct_tensor *doubler_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    doubler *m = (doubler *)self;
    (void)n;
    oct_tensor *a = oct_call(cx, m->quant, x[0]);
    oct_tensor *y = oct_call2(cx, m->add, a, a);
    if (m->relu) y = oct_call(cx, m->relu, y);
    return oct_call(cx, m->dequant, y);
}

static const oct_module_type doubler_type = {.name = "doubler", .forward = doubler_forward};

static oct_status doubler_create(oct_module **root, bool relu)
{
    OCT_TRY(oct_module_create(root, &doubler_type, sizeof(doubler)));
    doubler *m = (doubler *)*root;
    OCT_TRY(oct_quant_stub_create(&m->quant));
    OCT_TRY(oct_module_add_child(*root, "quant", &m->quant));
    OCT_TRY(oct_add_create(&m->add));
    OCT_TRY(oct_module_add_child(*root, "add", &m->add));
    if (relu) {
        OCT_TRY(oct_relu_create(&m->relu));
        OCT_TRY(oct_module_add_child(*root, "relu", &m->relu));
    }
    OCT_TRY(oct_dequant_stub_create(&m->dequant));
    return oct_module_add_child(*root, "dequant", &m->dequant);
}

static void begin_doubler(net *n, bool relu)
{
    net_begin(n, H, W, C, N, 2);
    oct_module_destroy(&n->root);
    OK(doubler_create(&n->root, relu));
    OK(net_prepare(n, false, false));
    net_enter(n, OCT_QUANT_QAT, false);
}

static oct_fake_quant *fake_quant(net *n, const char *path)
{
    oct_module *module = oct_module_find(n->root, path);
    cr_assert(module != NULL, "%s", path);
    return (oct_fake_quant *)module;
}

/* Logical code before clamping, and the code. */
static double code_of(double value, double scale, double zero_point, bool *pass)
{
    double code = nearbyint(value / scale) + zero_point;
    *pass = code >= 0 && code <= 255;
    return fmin(fmax(code, 0), 255) - zero_point;
}

/* The gradient that net_backward gave the output, and the one that arrived at the input. */
static void check_doubler(bool relu, bool current)
{
    net n;
    begin_doubler(&n, relu);
    oct_fake_quant *in = fake_quant(&n, "quant.fake_quant"),
                   *out = fake_quant(&n, "add.fake_quant");
    in->scale[0] *= 0.4f; /* so that both clip */
    out->scale[0] *= 0.5f;
    if (current) {
        in->current = out->current = true;
        in->updates[0] = out->updates[0] = 0;
    }
    oct_tensor *y = net_forward(&n, true);
    float grad[NUMEL], got[NUMEL];
    memcpy(got, y->data, sizeof got);
    oct_fill_normal(grad, NUMEL, 11, OCT_STREAM_TEST, 1, 0.0f, 1.0f);
    oct_tensor *x = y;
    while (x->node)
        x = x->node->input[0];
    net_backward(&n, y);

    double sx = (double)in->scale[0], sy = (double)out->scale[0], zero = relu ? 0 : 128;
    double most = 0;
    double widest = 0; /* of the sums */
    int clipped = 0;
    for (int i = 0; i < NUMEL; i++)
        most = fmax(most, fabs((double)n.x[i]));
    if (current) cr_assert_float_eq(sx, most / 127.5, 1e-6);
    for (int i = 0; i < NUMEL; i++) {
        bool in_pass, out_pass;
        double sum = 2 * code_of((double)n.x[i], sx, 128, &in_pass) * sx;
        double code = code_of(sum, sy, zero, &out_pass);
        if (relu) out_pass &= sum > 0;
        clipped += !in_pass + !out_pass;
        widest = fmax(widest, relu ? sum : fabs(sum));
        /* multipliers of 20 bits: a sum next to a tie may go the other way */
        bool tie = fabs(fabs(sum / sy - floor(sum / sy)) - 0.5) < 1e-3;
        cr_assert_float_eq(got[i], code * sy, tie ? sy * 1.01 : 1e-5, "element %d: %g, wanted %g",
                           i, (double)got[i], code * sy);
        double want = in_pass && out_pass ? 2 * (double)grad[i] : 0;
        if (!tie)
            cr_assert_float_eq(x->grad[i], want, 1e-6, "gradient %d: %g, wanted %g", i,
                               (double)x->grad[i], want);
    }
    if (current) cr_assert_float_eq(sy, widest / (relu ? 255 : 127.5), 1e-5);
    if (!current) cr_assert(clipped > 10, "nothing was clipped, so no mask was tried");
    net_end(&n);
}

Test(qat_modules, stub_and_add_are_their_definitions_and_mask_their_gradients)
{
    check_doubler(false, false);
    check_doubler(true, false);
}

Test(qat_modules, stub_and_add_settle_their_scales_in_the_step_itself)
{
    check_doubler(false, true);
    check_doubler(true, true);
}

/* quant -> average pool -> dequant; kernel 0: global. */
static void check_pool(int kernel, int stride)
{
    net n;
    net_begin(&n, H, W, C, N, 2);
    APPEND(&n, oct_quant_stub_create(&item));
    if (kernel)
        APPEND(&n, oct_avg_pool_create(&item, kernel, stride));
    else
        APPEND(&n, oct_global_avg_pool_create(&item));
    APPEND(&n, oct_dequant_stub_create(&item));
    OK(net_prepare(&n, false, false));
    net_enter(&n, OCT_QUANT_QAT, false);
    oct_tensor *y = net_forward(&n, true), *x = y;
    while (x->node)
        x = x->node->input[0];
    int k = kernel ? kernel : H, out = kernel ? (H - k) / stride + 1 : 1;
    float got[NUMEL], grad[NUMEL];
    memcpy(got, y->data, (size_t)oct_numel(y) * sizeof(float));
    oct_fill_normal(grad, oct_numel(y), 11, OCT_STREAM_TEST, 1, 0.0f, 1.0f);
    net_backward(&n, y);

    double scale = (double)fake_quant(&n, "0.fake_quant")->scale[0], want[NUMEL] = {0};
    bool pass[NUMEL];
    for (int i = 0; i < N * out * out * C; i++) {
        int c = i % C, ox = i / C % out, oy = i / C / out % out, s = i / C / out / out;
        double sum = 0;
        for (int ky = 0; ky < k; ky++)
            for (int kx = 0; kx < k; kx++) {
                int at = ((s * H + oy * stride + ky) * W + ox * stride + kx) * C + c;
                sum += code_of((double)n.x[at], scale, 128, &pass[at]);
                want[at] += (double)grad[i] / (k * k);
            }
        cr_assert_float_eq(got[i], nearbyint(sum / (k * k)) * scale, 1e-5, "element %d", i);
    }
    for (int i = 0; i < NUMEL; i++)
        cr_assert_float_eq(x->grad[i], want[i] == 0 || pass[i] ? want[i] : 0, 1e-6,
                           "gradient %d: %g, wanted %g", i, (double)x->grad[i], want[i]);
    net_end(&n);
}

Test(qat_modules, average_pools_are_their_definition_forward_and_backward)
{
    check_pool(2, 2);
    check_pool(2, 1);
    check_pool(0, 1);
}
