/* A network of one's own: trained, prepared, calibrated, trained quantized, converted, and run in
 * integers, on made-up stripes. */
#include <octet.h>
#include <stdio.h>
#include <string.h>

enum { N = 64, SIDE = 8, CLASSES = 4 };
static float images[N * SIDE * SIDE], qat[N * CLASSES], integer[N * CLASSES];
static int32_t labels[N];

typedef struct net {
    oct_module base; /* always first */
    oct_module *stem, *body, *head;
} net;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    net *m = (net *)self;
    oct_tensor *y = oct_call(cx, m->stem, x[n - 1]);
    y = oct_relu(cx, oct_add(cx, oct_call(cx, m->body, y), y)); /* functions are quantized too */
    return oct_call(cx, m->head, oct_global_avg_pool(cx, y));
}

static oct_status build(oct_module **root)
{
    static const oct_module_type type = {.name = "net", .forward = forward};
    OCT_TRY(oct_module_alloc(root, &type, sizeof(net)));
    net *m = (net *)*root;
    OCT_TRY(oct_module_add(*root, "stem", &m->stem, oct_sequential_create(&m->stem)));
    OCT_TRY(oct_append_conv_bn(
        m->stem, &(oct_conv_bn){1, 16, 3, 2, true})); /* 1 to 16 channels, 3x3, stride 2 */
    OCT_TRY(oct_module_add(*root, "body", &m->body, oct_sequential_create(&m->body)));
    OCT_TRY(oct_append_conv_bn(m->body, &(oct_conv_bn){16, 16, 3, 1, false}));
    OCT_TRY(
        oct_module_add(*root, "head", &m->head, oct_linear_create(&m->head, 16, CLASSES, true)));
    return oct_init_parameters(*root, 1);
}

static oct_status work(oct_module *root, oct_program *program, oct_runtime *runtime)
{
    const oct_qconfig qconfig = oct_qconfig_default();
    const oct_qconfig_setter setter = oct_setter_default(&qconfig);
    oct_prepare_options options = {.method = OCT_METHOD_JIT, .target = oct_target_find("x86")};
    options.setters = &setter, options.num_setters = 1;
    const oct_optim_config sgd = {.kind = OCT_SGD, .momentum = 0.9f};
    const oct_shape shape = OCT_SHAPE(N, SIDE, SIDE, 1);
    const oct_batch batch = {1, {shape}, {images}, .labels = labels};
    oct_train_step step;
    oct_step_result result;
    OCT_TRY(build(&root));
    OCT_TRY(oct_train_step_create(&step, root, &sgd, N, 8, &oct_collective_one));
    for (int i = 0; i < 60; i++) /* in float */
        OCT_TRY(oct_train_step_run(&step, &batch, 0.05f, &result));
    OCT_TRY(oct_prepare(&root, OCT_EXAMPLE(shape), &options, NULL));
    OCT_TRY(oct_train_step_rebind(&step, root));
    OCT_TRY(oct_set_fake_quant(root, OCT_STATE_CALIBRATION));
    OCT_TRY(oct_train_step_forward(&step, &batch, NULL));
    OCT_TRY(oct_set_fake_quant(root, OCT_STATE_QAT));
    for (int i = 0; i < 20; i++)
        OCT_TRY(oct_train_step_run(&step, &batch, 0.01f, &result));
    oct_module_train(root, false);
    OCT_TRY(oct_set_fake_quant(root, OCT_STATE_VALIDATION));
    OCT_TRY(oct_train_step_forward(&step, &batch, qat));
    OCT_TRY(oct_convert(program, root, OCT_EXAMPLE(shape), options.target, NULL));
    OCT_TRY(oct_runtime_create(&runtime, program, &(oct_runtime_options){.max_batch = N}));
    printf("%g %% right after training\n", result.metric);
    return oct_runtime_run(runtime, N, (const float *[]){images}, integer);
}

int main(void)
{
    for (int i = 0; i < N * SIDE * SIDE; i++) { /* noise; image k has bright rows k, k + 4, ... */
        labels[i / SIDE / SIDE] = i / SIDE / SIDE % CLASSES;
        images[i] = (float)(i * 7919 % 101) / 101 + (i / SIDE % CLASSES == labels[i / SIDE / SIDE]);
    }
    if (work(NULL, &(oct_program){0}, NULL) != OCT_OK) return puts(oct_error_message(0)), 1;
    return puts(memcmp(qat, integer, sizeof(qat)) ? "other bits" : "the same bits in integers") < 0;
}
