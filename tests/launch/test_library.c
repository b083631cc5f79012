/* Training for programs of others (octet/train.h), on networks in memory. */
#include "tests/launch/train_rig.h"

#include "tests/support/thread_ranks.h"

#include <fenv.h>
#include <octet/train.h>

TestSuite(library, .init = set_up, .fini = tear_down, .timeout = 120);

enum { NUMEL = SIZE * SIZE, BATCH = 16 };
static const oct_dims one_image[OCT_INPUTS_MAX] = {{SIZE, SIZE, 1}};

static void must(oct_status status)
{
    cr_assert_eq(status, OCT_OK, "%s", status ? oct_error_message(0) : "");
}

/* The samples of a data set as the octet program gives them to its network. */
static oct_data samples_of(const oct_dataset *data, const oct_recipe *recipe)
{
    static float images[2][TRAIN * NUMEL];
    float *x = images[data == &test_data];
    oct_loader loader;
    oct_goals goals;
    must(oct_evaluation_loader(&loader, recipe, data));
    must(oct_loader_read(&loader, 0, data->count, x, &goals));
    oct_loader_deinit(&loader);
    return oct_data_of(data->count, x, data->labels);
}

static oct_training *make_training(const oct_recipe *recipe, const char *const *settings,
                                   const oct_comm *comm)
{
    oct_training *t = NULL;
    oct_module *root = NULL;
    must(oct_build_model(&root, recipe, &train_data));
    const oct_training_options options = {
        .input = {one_image[0]}, .batch = BATCH, .comm = comm, .settings = settings};
    must(oct_training_create(&t, &root, &options));
    cr_assert_null(root);
    return t;
}

/* The bytes of what a model computes, without what it says of its origin. */
static size_t program_bytes(const oct_program *program, void **bytes)
{
    oct_model model = {.program = *program, .certificate.qat_accuracy = -1};
    size_t size = 0;
    for (int i = 0; i < OCT_REALS_MAX; i++)
        model.std[i] = 1;
    model.classes = CLASSES;
    must(oct_model_find_bounds(&model));
    must(oct_model_write_flat(&model, bytes, &size));
    oct_free(&model.overflow_bound);
    return size;
}

/* Trains and quantizes by the single calls, which oct_quantize makes, and gives the bytes of the saved model. */
typedef struct saved {
    const oct_recipe *recipe;
    const oct_data *train;
    bool singly;
    void *bytes;
    size_t size;
} saved;

static void train_and_save(const oct_comm *comm, void *user)
{
    static const char *const settings[] = {"batch.leaf=4", "quant.rounding=gptq", "metrics=[top5]",
                                           NULL};
    static const float mean = 0.25F, std = 0.5F;
    static const char *const names[CLASSES] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
    saved *s = user;
    const bool first = !comm || oct_comm_rank(comm) == 0;
    oct_training *t = make_training(s->recipe, settings, comm);
    oct_model *model = NULL;
    double loss, metric;
    float outputs[TRAIN * CLASSES];
    const oct_data batch = oct_data_of(BATCH - 1, s->train->input[0], s->train->labels);
    must(oct_training_step(t, &batch, 0.01, &loss, NULL));
    must(oct_training_fit(t, s->train, 1, 0.05, &loss, &metric));
    if (comm) {
        const double other = 0.1 * (1 + oct_comm_rank(comm));
        cr_assert_eq(oct_training_fit(t, s->train, 1, other, NULL, NULL), OCT_USAGE);
    }
    if (s->singly) {
        const char *report;
        must(oct_training_prepare(t, &report));
        cr_assert(strlen(report) > 100);
        must(oct_training_calibrate(t, s->train));
        must(oct_training_fit(t, s->train, 1, 0.01, NULL, NULL));
        must(oct_training_freeze(t));
        must(oct_model_make(&model, t));
        must(oct_model_certify(model, t, s->train));
        must(oct_model_set_golden(model, s->train, 8));
    } else {
        must(oct_quantize(t, s->train, &(oct_quantize_options){.epochs = 1}, &model));
    }
    must(oct_training_evaluate(t, s->train, outputs, &loss, &metric));
    cr_assert(loss > 0 && metric > 0 && metric <= 100);
    must(oct_model_set_pixels(model, &mean, &std, 1));
    must(oct_model_set_class_names(model, names, CLASSES));
    uint8_t digest[32];
    oct_sha256(outputs, sizeof outputs, digest);
    cr_assert_arr_eq(digest, model->certificate.logits_digest, 32);
    if (first) {
        char path[512];
        snprintf(path, sizeof path, "%s/model.int8.h5", tmp.path);
        must(oct_model_save(path, model));
        must(oct_file_read(path, 1 << 24, &s->bytes, &s->size));
    }
    oct_model_destroy(&model);
    oct_training_destroy(&t);
}

Test(library, no_number_of_ranks_or_threads_changes_the_model)
{
    const oct_recipe recipe = make_recipe(NULL);
    const oct_data train = samples_of(&train_data, &recipe);
    saved one = {.recipe = &recipe, .train = &train},
          singly = {.recipe = &recipe, .train = &train, .singly = true};
    train_and_save(NULL, &one);
    omp_set_num_threads(3);
    train_and_save(NULL, &singly);
    cr_assert_eq(one.size, singly.size);
    cr_assert_arr_eq(one.bytes, singly.bytes, one.size);
    for (int ranks = 2; ranks <= 3; ranks++) {
        saved many = {.recipe = &recipe, .train = &train};
        oct_run_thread_ranks(ranks, ranks, train_and_save, &many);
        cr_assert_eq(one.size, many.size);
        cr_assert_arr_eq(one.bytes, many.bytes, one.size, "%d ranks", ranks);
        oct_free(&many.bytes);
    }
    oct_free(&one.bytes);
    oct_free(&singly.bytes);
}

/* Trains by the program and by the library, where settings and recipe say the same, and compares the models. */
static void compare_with_program(const char *keys, const char *const *settings, int64_t epochs)
{
    const oct_recipe recipe = make_recipe(keys);
    oct_trainer trainer;
    oct_step_result result;
    oct_model of_program;
    oct_conversion conversion = {.recipe = &recipe, .test_data = &test_data};
    must(oct_trainer_create(&trainer, &recipe, &oct_collective_one, &train_data, &test_data));
    while (!oct_trainer_done(&trainer))
        must(oct_trainer_step(&trainer, &result));
    conversion.root = trainer.model;
    must(oct_certify(&of_program, &conversion, &oct_collective_one));

    const oct_data train = samples_of(&train_data, &recipe), test = samples_of(&test_data, &recipe);
    oct_training *t = make_training(&recipe, settings, NULL);
    oct_model *model = NULL;
    double loss, metric;
    must(oct_training_fit(t, &train, 1, 0.05, &loss, &metric));
    must(oct_quantize(
        t, &train, &(oct_quantize_options){.epochs = epochs, .lr = 0.02, .test = &test}, &model));
    void *bytes[2];
    const size_t size = program_bytes(&of_program.program, &bytes[0]);
    cr_assert_eq(size, program_bytes(&model->program, &bytes[1]));
    cr_assert_arr_eq(bytes[0], bytes[1], size);
    cr_assert_arr_eq(of_program.certificate.logits_digest, model->certificate.logits_digest, 32);
    cr_assert_eq(of_program.certificate.correct, model->certificate.correct);
    cr_assert_eq(model->certificate.images, TEST);
    cr_assert_eq(model->certificate.golden_count, 8);
    oct_free(&bytes[0]);
    oct_free(&bytes[1]);
    oct_model_free(&of_program);
    oct_model_destroy(&model);
    oct_training_destroy(&t);
    oct_trainer_destroy(&trainer);
}

/* Calibration sees all samples, since the program has another order of them there where QAT follows. */
Test(library, the_program_trains_the_same_bits)
{
    static const char *const qat[] = {"batch.leaf=4",
                                      "quant.observer=min_max",
                                      "calibrate.batches=3",
                                      "qat.freeze_batch_norm=0.34",
                                      "qat.freeze_scales=0.67",
                                      "ema.decay=0.9",
                                      "optimizer.weight_decay=0.001",
                                      NULL};
    static const char *const calibration[] = {"batch.leaf=4", "calibrate.batches=2", NULL};
    compare_with_program("data.crop_padding=0 data.flip=false quant.observer=min_max "
                         "calibrate.batches=3 ema.decay=0.9 optimizer.weight_decay=0.001",
                         qat, 2);
    compare_with_program("data.crop_padding=0 data.flip=false qat.epochs=0", calibration, 0);
}

/* Small networks. */

enum { SMALL = 12, FEATURES = 3, HIDDEN = 4, KINDS = 2 };
static float small_x[2][SMALL * FEATURES], small_y[SMALL * KINDS];
static int32_t small_labels[SMALL];

static void fill_small(void)
{
    for (int i = 0; i < SMALL * FEATURES; i++) {
        small_x[0][i] = (float)(i * 37 % 23) / 23.0F - 0.5F;
        small_x[1][i] = (float)(i * 17 % 29) / 29.0F - 0.5F;
    }
    for (int i = 0; i < SMALL; i++) {
        const float *x = small_x[0] + i * FEATURES, *z = small_x[1] + i * FEATURES;
        small_labels[i] = x[0] + z[1] > 0;
        small_y[i * KINDS] = x[0] + x[1];
        small_y[i * KINDS + 1] = z[2];
    }
}

/* Two inputs of one size and a head, perhaps with an argmax at the end. */
typedef struct pair_net {
    oct_module *left, *right, *head;
    bool argmax;
} pair_net;

static oct_tensor *pair_forward(oct_context *cx, oct_module *self, oct_tensor *const *x, int n)
{
    pair_net *m = oct_module_data(self);
    oct_tensor *sum = oct_add(cx, oct_call(cx, m->left, x[0]), oct_call(cx, m->right, x[n - 1]));
    oct_tensor *y = oct_call(cx, m->head, oct_relu(cx, sum));
    return m->argmax ? oct_argmax(cx, y) : y;
}

static oct_status make_pair(oct_module **root, bool argmax)
{
    static const oct_module_spec spec = {
        .name = "pair_net", .data_bytes = sizeof(pair_net), .forward = pair_forward, .inputs = 2};
    OCT_TRY(oct_module_create(root, &spec, NULL));
    pair_net *m = oct_module_data(*root);
    m->argmax = argmax;
    OCT_TRY(oct_module_add(*root, "left", &m->left,
                           oct_linear_create(&m->left, FEATURES, HIDDEN, true)));
    OCT_TRY(oct_module_add(*root, "right", &m->right,
                           oct_linear_create(&m->right, FEATURES, HIDDEN, true)));
    return oct_module_add(*root, "head", &m->head,
                          oct_linear_create(&m->head, HIDDEN, KINDS, true));
}

static const oct_dims pair_dims[OCT_INPUTS_MAX] = {{0, 0, FEATURES}, {0, 0, FEATURES}};

static oct_data small_data(bool targets)
{
    oct_data data = oct_data_of(SMALL, small_x[0], targets ? NULL : small_labels);
    data.input[1] = small_x[1];
    if (targets) data.targets = small_y;
    return data;
}

static oct_status create_small(oct_training **t, bool argmax, const char *const *settings)
{
    oct_module *root = NULL;
    *t = NULL;
    const oct_status status = make_pair(&root, argmax);
    if (status != OCT_OK) {
        oct_module_destroy(&root);
        return status;
    }
    const oct_training_options options = {
        .input = {pair_dims[0], pair_dims[1]}, .batch = 4, .settings = settings};
    return oct_training_create(t, &root, &options);
}

static oct_status from_create_to_save(void)
{
    const oct_data data = small_data(false);
    oct_training *t = NULL;
    oct_model *model = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/small.int8.h5", tmp.path);
    oct_status status = create_small(&t, false, NULL);
    if (status == OCT_OK) status = oct_training_fit(t, &data, 2, 0.1, NULL, NULL);
    if (status == OCT_OK)
        status = oct_quantize(t, &data, &(oct_quantize_options){.epochs = 2}, &model);
    if (status == OCT_OK) status = oct_model_save(path, model);
    oct_model_destroy(&model);
    oct_training_destroy(&t);
    oct_training_destroy(&t);
    return status;
}

Test(library, no_allocation_that_fails_leaves_anything)
{
    fill_small();
    must(from_create_to_save());
    const size_t live = oct_mem_live();
    oct_status status = OCT_RESOURCE;
    int failed = 0;
    for (int64_t n = 1; status != OCT_OK; n += 1 + n / 64) {
        oct_mem_fail_after(n);
        status = from_create_to_save();
        oct_mem_fail_after(0);
        cr_assert(status == OCT_OK || status == OCT_RESOURCE, "allocation %lld: %d: %s",
                  (long long)n, status, oct_error_message(0));
        cr_assert_eq(oct_mem_live(), live, "allocation %lld leaks", (long long)n);
        failed += status != OCT_OK;
    }
    cr_assert_gt(failed, 150);
}

Test(library, targets_class_numbers_and_several_inputs)
{
    static const char *const mse[] = {"loss.kind=mse", "metrics=[mae]", NULL};
    const oct_data values = small_data(true), labels = small_data(false);
    double first, loss, metric;
    float y[SMALL * KINDS], number[SMALL];
    oct_training *t;
    oct_model *model;
    fill_small();
    must(create_small(&t, false, mse));
    must(oct_training_evaluate(t, &values, NULL, &first, NULL));
    must(oct_training_fit(t, &values, 40, 0.2, &loss, NULL));
    cr_assert_lt(loss, first / 4, "%g of %g", loss, first);
    must(oct_quantize(t, &values, NULL, &model));
    must(oct_training_evaluate(t, &values, y, &loss, &metric));
    double sum = 0;
    for (int i = 0; i < SMALL * KINDS; i++)
        sum += fabs((double)(y[i] - small_y[i]));
    cr_assert_float_eq(metric, sum / (SMALL * KINDS), 1e-6);
    cr_assert_eq(model->certificate.images, SMALL);
    cr_assert_eq(model->certificate.qat_accuracy, -1);
    oct_model_destroy(&model);
    oct_training_destroy(&t);

    must(create_small(&t, true, NULL));
    must(oct_training_evaluate(t, &labels, number, &loss, &metric));
    cr_assert(isnan(loss) && isnan(metric));
    must(oct_quantize(t, &labels, NULL, &model));
    cr_assert_eq(model->classes, KINDS);
    must(oct_training_evaluate(t, &labels, number, NULL, NULL));
    int right = 0;
    for (int i = 0; i < SMALL; i++)
        right += number[i] == (float)small_labels[i];
    cr_assert_eq(model->certificate.correct, right);
    must(oct_forward(oct_training_root(t), pair_dims, &labels, y));
    cr_assert_arr_eq(y, number, sizeof number);
    oct_model_destroy(&model);
    oct_training_destroy(&t);
}

Test(library, a_network_of_a_file_is_evaluated_and_quantized_by_calibration_alone)
{
    enum { N = 4, SOME = 3, OUTPUTS = 10 };
    static float x[N * 32 * 32 * 3], y[N * OUTPUTS], q[N * OUTPUTS], z[N * OUTPUTS];
    const char *file = OCT_SOURCE_DIR "/tests/golden/onnx/resnet8.onnx";
    const float *inputs[] = {x};
    oct_training_options options = {.batch = 2};
    oct_module *root;
    oct_training *t;
    oct_model *model;
    oct_net *net;
    int64_t outputs;
    for (int i = 0; i < N * 32 * 32 * 3; i++)
        x[i] = (float)(i * 7919 % 1009) / 504.0F - 1;
    must(oct_module_from_onnx(&root, file, &(oct_onnx_options){.new_head = SOME}, options.input));
    must(oct_module_outputs(root, options.input, &outputs));
    cr_assert_eq(outputs, SOME);
    oct_module_destroy(&root);
    must(oct_module_from_onnx(&root, file, NULL, options.input));
    const oct_data data = oct_data_of(N, x, NULL);
    must(oct_module_outputs(root, options.input, &outputs));
    cr_assert_eq(outputs, OUTPUTS);
    must(oct_forward(root, options.input, &data, y));
    must(oct_training_create(&t, &root, &options));
    must(oct_training_evaluate(t, &data, q, NULL, NULL));
    cr_assert_arr_eq(y, q, sizeof y, "another float network");
    must(oct_quantize(t, &data, &(oct_quantize_options){.golden = 2}, &model));
    must(oct_training_evaluate(t, &data, q, NULL, NULL));
    must(oct_net_open_model(&net, model, &(oct_net_options){.max_batch = N}));
    oct_model_destroy(&model);
    must(oct_net_run(net, N, inputs, z));
    must(oct_net_verify(net));
    cr_assert_arr_eq(q, z, sizeof q);
    for (int i = 0; i < N * OUTPUTS; i++)
        cr_assert_float_eq(q[i], y[i], 0.1);
    oct_net_close(&net);
    oct_training_destroy(&t);
}

/* Refusals. */

static void refuses(oct_status status, oct_status code, const char *words)
{
    cr_assert_eq(status, code, "%d: %s", status, oct_error_message(0));
    cr_assert(strstr(oct_error_message(0), words), "'%s' is not in: %s", words,
              oct_error_message(0));
}

Test(library, settings_that_recipes_refuse_or_have_for_runs_are_refused)
{
    static const char *const cases[][2] = {
        {"optimizer.kind=sgdd", "did you mean 'sgd'"},
        {"optimizer.momentum=-1", "out of range"},
        {"quant.target=z80", "is not known"},
        {"quant.observer=eye", "quant.observer"},
        {"loss.kind=hinges", "loss.kind"},
        {"loss.kind=distillation", "teacher"},
        {"metrics=[top7]", "metrics"},
        {"lr=0.1", "lr"},
        {"data.path=x", "data.path=x: a training in memory has no such key"},
        {"output=x", "no such key"},
        {"checkpoint.every=5", "no such key"},
        {"model.name=mlp", "model.name"},
        {"plugins=[a.so]", "no such key"},
        {"init=x.h5", "no such key"},
        {"batch.size=4", "no such key"},
        {"qat.epochs=4", "no such key"},
        {"batch.leaf=64", "batch.leaf (64) is larger than batch.size (4)"},
        {"optimizer.trust=0.1", "optimizer.trust"},
    };
    oct_training *t;
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        const char *const settings[] = {cases[i][0], NULL};
        refuses(create_small(&t, false, settings), OCT_USAGE, cases[i][1]);
        cr_assert_null(t);
    }
}

Test(library, wrong_arguments_and_orders_are_refused)
{
    const oct_dims no_dims[OCT_INPUTS_MAX] = {{0, 0, 0}}, flat[OCT_INPUTS_MAX] = {{3, 0, 1}};
    oct_data data = small_data(false), bad = data;
    oct_training *t = NULL;
    oct_model *model = NULL;
    float y[SMALL * KINDS];
    fill_small();
    oct_module *root = NULL;
    oct_training_options options = {.batch = 4};
    refuses(oct_training_create(&t, &root, &options), OCT_USAGE, "NULL");
    refuses(oct_training_create(NULL, NULL, NULL), OCT_USAGE, "NULL");
    must(make_pair(&root, false));
    refuses(oct_forward(root, no_dims, &data, y), OCT_USAGE, "no input has dims");
    refuses(oct_forward(root, flat, &data, y), OCT_USAGE, "0 columns");
    refuses(oct_training_create(&t, &root, &options), OCT_USAGE, "no input has dims");
    cr_assert_null(root);
    options.batch = -1;
    must(make_pair(&root, false));
    refuses(oct_training_create(&t, &root, &options), OCT_USAGE, "out of range");
    oct_training_destroy(NULL);
    oct_model_destroy(NULL);
    cr_assert_null(oct_training_root(NULL));

    must(create_small(&t, false, NULL));
    refuses(oct_training_fit(NULL, &data, 1, 0.1, NULL, NULL), OCT_USAGE, "NULL");
    refuses(oct_training_fit(t, NULL, 1, 0.1, NULL, NULL), OCT_USAGE, "NULL");
    refuses(oct_training_fit(t, &data, 1, -1, NULL, NULL), OCT_USAGE, "rate is -1");
    refuses(oct_training_fit(t, &data, 1, NAN, NULL, NULL), OCT_USAGE, "rate is nan");
    refuses(oct_training_fit(t, &data, -1, 0.1, NULL, NULL), OCT_USAGE, "epochs: -1");
    refuses(oct_training_step(t, &data, 0.1, NULL, NULL), OCT_USAGE, "a batch of 12 samples");
    bad.input[1] = NULL;
    refuses(oct_training_fit(t, &bad, 1, 0.1, NULL, NULL), OCT_USAGE, "array of input 1");
    bad = data, bad.rows = 3;
    refuses(oct_training_fit(t, &bad, 1, 0.1, NULL, NULL), OCT_USAGE, "3 labels");
    bad = data, bad.rows = INT64_MAX;
    refuses(oct_training_fit(t, &bad, 1, 0.1, NULL, NULL), OCT_USAGE, "rows; give 0 to");
    bad = data, bad.targets = small_y;
    refuses(oct_training_fit(t, &bad, 1, 0.1, NULL, NULL), OCT_USAGE, "both");
    bad = small_data(true);
    small_y[0] = 2;
    refuses(oct_training_fit(t, &bad, 1, 0.1, NULL, NULL), OCT_USAGE, "values from 0 to 1");
    bad = data, bad.count = 0;
    refuses(oct_training_evaluate(t, &bad, y, NULL, NULL), OCT_USAGE, "0 samples");
    bad = data, bad.labels = NULL;
    refuses(oct_training_fit(t, &bad, 1, 0.1, NULL, NULL), OCT_USAGE, "neither labels");
    small_labels[5] = KINDS;
    refuses(oct_training_fit(t, &data, 1, 0.1, NULL, NULL), OCT_DATA, "label");
    fill_small();
    must(oct_training_fit(t, &data, 1, 0.1, NULL, NULL));

    static const struct {
        oct_quantize_options options;
        const char *said;
    } wrong[] = {{{.epochs = -1}, "epochs: -1"},
                 {{.epochs = 1, .lr = NAN}, "rate is nan"},
                 {{.golden = -1}, "golden: -1"}};
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) /* before anything is prepared */
        refuses(oct_quantize(t, &data, &wrong[i].options, &model), OCT_USAGE, wrong[i].said);
    bad = data, bad.input[1] = NULL;
    refuses(oct_quantize(t, &data, &(oct_quantize_options){.test = &bad}, &model), OCT_USAGE,
            "array of input 1");
    refuses(oct_training_calibrate(t, &data), OCT_USAGE, "oct_training_prepare first");
    refuses(oct_training_freeze(t), OCT_USAGE, "oct_training_prepare first");
    refuses(oct_model_make(&model, t), OCT_USAGE, "oct_training_prepare first");
    must(oct_training_prepare(t, NULL));
    refuses(oct_training_prepare(t, NULL), OCT_USAGE, "prepared already");
    refuses(oct_training_fit(t, &data, 1, 0.1, NULL, NULL), OCT_USAGE,
            "oct_training_calibrate first");
    refuses(oct_training_freeze(t), OCT_USAGE, "oct_training_calibrate first");
    refuses(oct_model_make(&model, t), OCT_USAGE, "oct_training_calibrate first");
    must(oct_training_calibrate(t, &data));
    refuses(oct_training_calibrate(t, &data), OCT_USAGE, "calibrated already");
    refuses(oct_model_make(&model, t), OCT_USAGE, "oct_training_freeze first");
    must(oct_training_freeze(t));
    must(oct_model_make(&model, t));
    refuses(oct_model_set_golden(model, &data, 13), OCT_USAGE, "13 golden");
    oct_training *other;
    must(create_small(&other, true, NULL));
    refuses(oct_model_certify(model, other, &data), OCT_USAGE, "another network");
    oct_training_destroy(&other);
    refuses(oct_model_set_pixels(model, y, y, 2), OCT_USAGE, "2 means");
    const float zero = 0;
    refuses(oct_model_set_pixels(model, &zero, &zero, 1), OCT_USAGE, "above 0");
    refuses(oct_model_set_class_names(model, (const char *const[]){"a"}, 1), OCT_USAGE, "1 names");
    refuses(oct_model_set_class_names(model, (const char *const[]){"a", "b\n"}, 2), OCT_USAGE,
            "plain text");
    refuses(oct_model_save(NULL, model), OCT_USAGE, "NULL");
    refuses(oct_model_save("/nowhere/x", NULL), OCT_USAGE, "NULL");
    oct_model_destroy(&model);
    oct_training_destroy(&t);
}

/* Threads that OpenMP has started have the rounding of who started them. */
Test(library, no_thread_may_round_otherwise)
{
    oct_training *t;
    oct_module *root;
    const oct_data data = small_data(false);
    int threads = 0;
    fill_small();
    must(create_small(&t, false, NULL));
    fesetround(FE_UPWARD);
    refuses(oct_training_fit(t, &data, 1, 0.1, NULL, NULL), OCT_USAGE, "this thread does not");
    refuses(oct_module_from_onnx(&root, "none.onnx", NULL, NULL), OCT_USAGE,
            "this thread does not");
    omp_set_num_threads(3);
#pragma omp parallel reduction(+ : threads)
    threads++;
    fesetround(FE_TONEAREST);
    cr_assert_eq(threads, 3);
    refuses(oct_training_fit(t, &data, 1, 0.1, NULL, NULL), OCT_USAGE, "2 threads of OpenMP");
#pragma omp parallel
    fesetround(FE_TONEAREST);
    must(oct_training_fit(t, &data, 1, 0.1, NULL, NULL));
    oct_training_destroy(&t);
}
