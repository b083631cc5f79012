/* The life of networks of one's own through quant/train/train_step.h: float steps, prepare, calibration, QAT,
 * folding, evaluation, convert, run in integers. Prints a line for each: the digest of its trained state
 * and of what it computes, which depends on no instruction set and no thread. Arguments (a network, a
 * method, a target, a way to fold) choose one.
 */
#include "core/base/rng.h"
#include "io/file/file.h"
#include "launch/model/model.h"
#include "quant/train/train_step.h"
#include "quant/convert/convert.h"

#include <stdio.h>
#include <string.h>

enum { N = 24, LEAF = 4, SIDE = 7, CLASSES = 3, IMAGE = SIDE * SIDE * 2 };

static float images[2][N * IMAGE];
static int32_t labels[N];

typedef struct net {
    oct_module base;
    oct_module *quant, *quant1, *stem, *body, *bn, *side, *pool, *flat, *head, *dequant;
    oct_module *gate, *slopes, *dropout;
} net;

/* stem, then conv and batch norm that are called twice around a sum */
static oct_tensor *residual_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    net *m = (net *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, m->stem, oct_call(cx, m->quant, x[0]));
    oct_tensor *z = oct_relu(cx, oct_call(cx, m->bn, oct_call(cx, m->body, y)));
    y = oct_relu(cx, oct_add(cx, oct_call(cx, m->bn, oct_call(cx, m->body, z)), y));
    y = oct_call(cx, m->flat, oct_call(cx, m->pool, y));
    return oct_call(cx, m->dequant, oct_call(cx, m->head, y));
}

/* two inputs, a layer for each */
static oct_tensor *pair_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    net *m = (net *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, m->stem, oct_call(cx, m->quant, x[0]));
    y = oct_add(cx, y, oct_call(cx, m->side, oct_call(cx, m->quant1, x[1])));
    y = oct_call(cx, m->flat, oct_call(cx, m->pool, y));
    return oct_call(cx, m->dequant, oct_call(cx, m->head, y));
}

/* channels that are weighed by what is in all of them, and a dropout */
static oct_tensor *excited_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    net *m = (net *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, m->stem, oct_call(cx, m->quant, x[0]));
    oct_tensor *all = oct_call(cx, m->gate, oct_global_avg_pool(cx, y));
    oct_tensor *gate = oct_hard_sigmoid(cx, oct_call(cx, m->slopes, all), 1.0 / 6, 0.5);
    y = oct_gelu(cx, oct_sub(cx, oct_mul(cx, gate, y), all));
    y = oct_call(cx, m->dropout, oct_clip(cx, y, -0.1, 3));
    y = oct_call(cx, m->flat, oct_call(cx, m->pool, y));
    return oct_call(cx, m->dequant, oct_call(cx, m->head, oct_call(cx, m->dropout, y)));
}

/* modules alone, as eager wants them */
static oct_tensor *chain_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    net *m = (net *)self;
    (void)n;
    oct_tensor *y = oct_call(cx, m->stem, oct_call(cx, m->quant, x[0]));
    y = oct_call(cx, m->bn, oct_call(cx, m->body, y));
    y = oct_call(cx, m->flat, oct_call(cx, m->pool, y));
    return oct_call(cx, m->dequant, oct_call(cx, m->head, y));
}

static const struct kind {
    oct_module_type type;
    int inputs;
    bool eager, excited;
} kinds[] = {
    {.type = {.name = "residual", .forward = residual_forward}, .inputs = 1},
    {.type = {.name = "pair", .forward = pair_forward}, .inputs = 2},
    {.type = {.name = "chain", .forward = chain_forward}, .inputs = 1, .eager = true},
    {.type = {.name = "excited", .forward = excited_forward}, .inputs = 1, .excited = true},
};

static oct_status build(oct_module **root, const struct kind *kind)
{
    const oct_conv_geometry g = oct_conv_geometry_of(3, 3, 1, 1, 1);
    OCT_TRY(oct_module_alloc(root, &kind->type, sizeof(net)));
    net *m = (net *)*root;
    OCT_TRY(oct_module_add(*root, "quant", &m->quant, oct_quant_stub_create(&m->quant)));
    if (kind->inputs > 1)
        OCT_TRY(oct_module_add(*root, "quant1", &m->quant1, oct_quant_stub_create(&m->quant1)));
    OCT_TRY(oct_module_add(*root, "stem", &m->stem, oct_sequential_create(&m->stem)));
    OCT_TRY(oct_append_conv_bn(m->stem, &(oct_conv_bn){2, 6, 3, 1, true}));
    if (kind->excited) {
        OCT_TRY(oct_module_add(*root, "gate", &m->gate, oct_linear_create(&m->gate, 6, 6, true)));
        OCT_TRY(oct_module_add(*root, "slopes", &m->slopes, oct_prelu_create(&m->slopes, 6)));
        OCT_TRY(
            oct_module_add(*root, "dropout", &m->dropout, oct_dropout_create(&m->dropout, 0.2)));
    } else if (kind->inputs > 1) {
        OCT_TRY(oct_module_add(*root, "side", &m->side, oct_sequential_create(&m->side)));
        OCT_TRY(oct_append_conv_bn(m->side, &(oct_conv_bn){2, 6, 3, 1, true}));
    } else {
        OCT_TRY(
            oct_module_add(*root, "body", &m->body, oct_conv2d_create(&m->body, 6, 6, g, false)));
        OCT_TRY(oct_module_add(*root, "bn", &m->bn, oct_batch_norm_create(&m->bn, 6)));
    }
    OCT_TRY(oct_module_add(*root, "pool", &m->pool, oct_global_avg_pool_create(&m->pool)));
    OCT_TRY(oct_module_add(*root, "flat", &m->flat, oct_flatten_create(&m->flat)));
    OCT_TRY(oct_module_add(*root, "head", &m->head, oct_linear_create(&m->head, 6, CLASSES, true)));
    OCT_TRY(oct_module_add(*root, "dequant", &m->dequant, oct_dequant_stub_create(&m->dequant)));
    return oct_init_parameters(*root, 3);
}

typedef enum fold { LIVE, AT_PREPARE, LATER, FOLDS } fold;
static const char *const folds[FOLDS] = {"live", "at_prepare", "later"};

/* What is made on the way, in the order in which nothing may be freed too early. */
typedef struct life {
    const struct kind *kind;
    oct_prepare_options options;
    fold fold;
    oct_module *root;
    oct_train_step step;
    oct_program program;
    oct_runtime *runtime;
    float trained[N * CLASSES], deployed[N * CLASSES];
} life;

static oct_batch batch_of(const life *l)
{
    oct_batch batch = {.num_inputs = l->kind->inputs, .labels = labels};
    for (int i = 0; i < l->kind->inputs; i++) {
        batch.shape[i] = OCT_SHAPE(N, SIDE, SIDE, 2);
        batch.input[i] = images[i];
    }
    return batch;
}

static oct_status steps(life *l, int count, float lr)
{
    const oct_batch batch = batch_of(l);
    oct_step_result result;
    for (int i = 0; i < count; i++)
        OCT_TRY(oct_train_step_run(&l->step, &batch, lr, &result));
    return OCT_OK;
}

/* In eager the user says what runs together. */
static oct_status fuse_by_hand(life *l)
{
    static const char *const stem[] = {"stem.0", "stem.1", "stem.2"}, *const body[] = {"body",
                                                                                       "bn"};
    OCT_TRY(oct_fuse_modules(&l->root, stem, 3, false));
    return oct_fuse_modules(&l->root, body, 2, false);
}

static oct_status train(life *l)
{
    const oct_optim_config sgd = {.kind = OCT_SGD, .momentum = 0.9f, .weight_decay = 1e-3f};
    const oct_batch batch = batch_of(l);
    oct_example example = *OCT_EXAMPLE(batch.shape[0], batch.shape[0]);
    example.count = l->kind->inputs;
    OCT_TRY(build(&l->root, l->kind));
    OCT_TRY(oct_train_step_create(&l->step, l->root, &sgd, N, LEAF, &oct_collective_one));
    OCT_TRY(steps(l, 3, 0.05f));
    if (l->options.method == OCT_METHOD_EAGER) OCT_TRY(fuse_by_hand(l));
    OCT_TRY(oct_prepare(&l->root, &example, &l->options, NULL));
    if (l->fold == LATER) l->step.numerics = OCT_NUMERICS_INT8;
    OCT_TRY(oct_train_step_rebind(&l->step, l->root));
    OCT_TRY(oct_set_fake_quant(l->root, OCT_STATE_CALIBRATION));
    OCT_TRY(oct_train_step_forward(&l->step, &batch, NULL));
    OCT_TRY(oct_set_fake_quant(l->root, OCT_STATE_QAT));
    OCT_TRY(steps(l, 3, 0.02f));
    if (l->fold == LATER) {
        OCT_TRY(oct_fold_batch_norm(l->root));
        OCT_TRY(oct_train_step_rebind(&l->step, l->root));
        OCT_TRY(steps(l, 2, 0.01f));
    }
    oct_module_train(l->root, false);
    OCT_TRY(oct_set_fake_quant(l->root, OCT_STATE_VALIDATION));
    OCT_TRY(oct_train_step_forward(&l->step, &batch, l->trained));
    OCT_TRY(oct_convert(&l->program, l->root, &example, l->options.target, NULL));
    OCT_TRY(
        oct_runtime_create(&l->runtime, &l->program,
                           &(oct_runtime_options){.max_batch = N, .host = &oct_module_fallbacks}));
    return oct_runtime_run(l->runtime, N, (const float *[]){images[0], images[1]}, l->deployed);
}

static oct_status add_state(void *user, const oct_state_item *item)
{
    oct_sha256_add(user, item->path, strlen(item->path));
    oct_sha256_add(user, item->tensor->data,
                   (size_t)oct_numel(item->tensor) * oct_dtype_bytes(item->tensor->dtype));
    return OCT_OK;
}

static oct_status print_digest(const life *l)
{
    uint8_t digest[32];
    char hex[65];
    oct_sha256_state *state;
    OCT_CHECK(memcmp(l->trained, l->deployed, sizeof l->trained) == 0, OCT_MISMATCH,
              "the program computes other bits than were trained");
    OCT_TRY(oct_sha256_begin(&state));
    OCT_TRY(oct_module_state(l->root, add_state, state));
    oct_sha256_add(state, l->trained, sizeof l->trained);
    oct_sha256_end(&state, digest);
    printf("%s %s %s %s %s\n", l->kind->type.name, oct_method_name(l->options.method),
           l->options.target->name, folds[l->fold], oct_hex(digest, hex));
    return OCT_OK;
}

static bool chosen(const life *l, int argc, char **argv)
{
    const char *const is[] = {l->kind->type.name, oct_method_name(l->options.method),
                              l->options.target->name, folds[l->fold]};
    for (int i = 1; i < argc && i <= 4; i++)
        if (strcmp(argv[i], is[i - 1]) != 0) return false;
    /* a target that shifts cannot run a batch norm; eager wants modules */
    bool shifts = oct_requantizer_shifts(l->options.target->requantizer);
    return (!shifts || l->fold == AT_PREPARE) &&
           (l->options.method != OCT_METHOD_EAGER || l->kind->eager);
}

static oct_status live(life *l)
{
    oct_status status = train(l);
    if (status == OCT_OK) status = print_digest(l);
    oct_train_step_destroy(&l->step);
    oct_runtime_destroy(&l->runtime);
    oct_program_free(&l->program);
    oct_module_destroy(&l->root);
    return status;
}

int main(int argc, char **argv)
{
    const oct_qconfig qconfig = oct_qconfig_default();
    const oct_qconfig_setter setter = oct_setter_default(&qconfig);
    static const char *const targets[] = {"x86", "pow2"};
    for (int i = 0; i < 2; i++)
        oct_fill_normal(images[i], N * IMAGE, 1, OCT_STREAM_TEST, (uint32_t)i, 0.0f, 1.0f);
    for (int i = 0; i < N; i++)
        labels[i] = i % CLASSES;
    for (size_t k = 0; k < OCT_COUNT(kinds); k++)
        for (int method = 0; method < OCT_METHODS; method++)
            for (size_t t = 0; t < OCT_COUNT(targets); t++)
                for (fold f = LIVE; f < FOLDS; f++) {
                    static life l;
                    l = (life){.kind = &kinds[k], .fold = f};
                    l.options = (oct_prepare_options){.method = (oct_prepare_method)method,
                                                      .target = oct_target_find(targets[t]),
                                                      .setters = &setter,
                                                      .num_setters = 1,
                                                      .fold_batch_norm = f == AT_PREPARE};
                    if (!chosen(&l, argc, argv) || live(&l) == OCT_OK) continue;
                    fprintf(stderr, "%s, method %d, %s, %s: %s\n", kinds[k].type.name, method,
                            targets[t], folds[f], oct_error_message(0));
                    return 1;
                }
    return 0;
}
