/* A network of one's own on made-up stripes: trained, quantized, saved, and run in integers with the same bits. */
#include <octet/train.h>
#include <stdio.h>
#include <string.h>

enum { N = 64, SIDE = 8, CLASSES = 4 };
static float images[N * SIDE * SIDE], qat[N * CLASSES], integer[N * CLASSES];
static int32_t labels[N];

typedef struct net {
    oct_module *body, *head;
} net;

static oct_tensor *forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    net *m = oct_module_data(self);
    oct_tensor *y = oct_relu(cx, oct_call(cx, m->body, x[n - 1])); /* functions become int8, too */
    return oct_call(cx, m->head, oct_global_avg_pool(cx, y));
}

static oct_status build(oct_module **root)
{
    static const oct_module_spec spec = {"net", sizeof(net), forward, .inputs = 1};
    OCT_TRY(oct_module_create(root, &spec, NULL));
    net *m = oct_module_data(*root);
    OCT_TRY(oct_module_add(*root, "body", &m->body, oct_sequential_create(&m->body)));
    OCT_TRY(oct_append_conv_bn(m->body, &(oct_conv_bn){.in = 1, .out = 16, .relu = true}));
    OCT_TRY(oct_append_conv_bn(m->body, &(oct_conv_bn){.in = 16, .out = 16}));
    return oct_module_add(*root, "head", &m->head, oct_linear_create(&m->head, 16, CLASSES, true));
}

static oct_status work(void)
{
    const oct_data data = oct_data_of(N, images, labels);
    const oct_training_options options = {.input = {{SIDE, SIDE, 1}}, .batch = 16};
    oct_module *root = NULL; /* on failure the end of the program frees all */
    oct_training *t = NULL;
    oct_model *model = NULL;
    oct_net *net = NULL;
    OCT_TRY(build(&root));
    OCT_TRY(oct_training_create(&t, &root, &options)); /* which owns the network from now on */
    OCT_TRY(oct_training_fit(t, &data, 15, 0.05, NULL, NULL));
    OCT_TRY(oct_quantize(t, &data, &(oct_quantize_options){.epochs = 5}, &model));
    OCT_TRY(oct_training_evaluate(t, &data, qat, NULL, NULL));
    OCT_TRY(oct_model_save("stripes.int8.h5", model));
    OCT_TRY(oct_net_open(&net, "stripes.int8.h5", &(oct_net_options){.max_batch = N}));
    OCT_TRY(oct_net_run(net, N, (const float *[]){images}, integer));
    puts(memcmp(qat, integer, sizeof(qat)) ? "other bits" : "the same bits in integers");
    oct_net_close(&net), oct_model_destroy(&model), oct_training_destroy(&t);
    return OCT_OK;
}

int main(void)
{
    for (int i = 0; i < N * SIDE * SIDE; i++) { /* noise; image k has bright rows k, k + 4, ... */
        labels[i / SIDE / SIDE] = i / SIDE / SIDE % CLASSES;
        images[i] = (float)(i * 7919 % 101) / 101 + (i / SIDE % CLASSES == labels[i / SIDE / SIDE]);
    }
    return work() == OCT_OK ? 0 : (puts(oct_error_message(0)), 1);
}
