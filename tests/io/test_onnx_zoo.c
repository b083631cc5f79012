/* Float networks that PyTorch wrote (tests/golden/onnx): each must give PyTorch's outputs, be prepared, train for
 * a few steps, and be converted, with every value of the integer program as QAT evaluation computes it. The
 * table of the results goes to stderr. OCT_ZOO=FOLDER: the outputs alone, of that folder's networks. */
#include "core/op/loss.h"
#include "io/file/array.h"
#include "io/dataset/npy_file.h"
#include "io/onnx/build.h"
#include "io/onnx/fold.h"
#include "quant/train/train_step.h"
#include "tests/quant/deploy.h"

#include <criterion/parameterized.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>

#define GOLDEN OCT_SOURCE_DIR "/tests/golden/"

/* Of the largest output: float sums in another order. */
static const double tolerance = 1e-4;

typedef struct golden {
    oct_shape shape; /* as PyTorch has it: (N, C, H, W) */
    float *data;
} golden;

static golden read_golden(const char *path, const char *name)
{
    oct_zip *zip = NULL;
    oct_span span;
    oct_array array;
    golden g;
    OK(oct_zip_open(&zip, path));
    OK(oct_zip_member(zip, name, &span));
    OK(oct_npy_take(&array, &span, path, NULL));
    oct_zip_close(&zip);
    cr_assert(array.kind == 'f' && array.bytes == 4);
    g.shape = array.shape;
    OK(oct_alloc(&g.data, (size_t)oct_shape_numel(&g.shape), sizeof(float)));
    OK(oct_array_read(&array, 0, g.shape.dim[0], g.data));
    oct_array_close(&array);
    return g;
}

/* (N, C, H, W) as (N, H, W, C), and (N, H, W) with one channel. */
static void turn(golden *g)
{
    float *turned;
    const int64_t *d = g->shape.dim;
    if (g->shape.ndim == 3) g->shape = OCT_SHAPE(d[0], d[1], d[2], 1); /* as data has it */
    if (g->shape.ndim != 4 || d[3] == 1) return;
    const int64_t c = d[1], h = d[2], w = d[3];
    OK(oct_alloc(&turned, (size_t)oct_shape_numel(&g->shape), sizeof(float)));
    for (int64_t n = 0; n < d[0]; n++)
        for (int64_t i = 0; i < c; i++)
            for (int64_t p = 0; p < h * w; p++)
                turned[(n * h * w + p) * c + i] = g->data[(n * c + i) * h * w + p];
    oct_free(&g->data);
    *g = (golden){OCT_SHAPE(d[0], h, w, c), turned};
}

static oct_module *import(const char *path, const oct_shape *image)
{
    oct_onnx_graph graph;
    oct_onnx_built built;
    oct_module *model = NULL;
    const oct_onnx_build_options options = {
        .h = image->dim[1], .w = image->dim[2], .c = image->dim[3]};
    OK(oct_onnx_read(&graph, path));
    OK(oct_onnx_fold(&graph, options.h, options.w, options.c));
    oct_status status = oct_onnx_build(&model, &graph, &options, &built);
    for (size_t i = 0; status != OCT_OK && i < oct_error_count(); i++)
        fprintf(stderr, "    %s\n", oct_error_message(i));
    cr_assert(status == OCT_OK);
    oct_onnx_free(&graph);
    return model;
}

/* The largest difference to PyTorch's outputs, as a share of the largest of these. */
static double compare_float(oct_module *model, golden *x, const golden *y)
{
    oct_context *cx;
    double most = 0, difference = 0;
    oct_module_train(model, false);
    OK(oct_context_create(&cx, &oct_collective_one));
    oct_context_begin(cx, oct_leaves_split(x->shape.dim[0], 8, 0, 1), false);
    const oct_tensor *out = oct_call(cx, model, oct_tensor_view(cx, OCT_F32, x->shape, x->data));
    OK(oct_context_status(cx));
    cr_assert_eq(oct_numel(out), oct_shape_numel(&y->shape));
    for (int64_t i = 0; i < oct_numel(out); i++) {
        most = fmax(most, fabs((double)y->data[i]));
        difference = fmax(difference, fabs((double)(oct_f32(out)[i] - y->data[i])));
    }
    oct_context_destroy(&cx);
    return difference / most;
}

/* Calibrates, and learns to give zeros, which asks nothing of the shape of outputs. */
static void train(deployment *d, int64_t outputs, int64_t rows)
{
    const oct_optim_config sgd = {.kind = OCT_SGD, .momentum = 0.9F};
    const oct_prepare_options options = deploy_options(OCT_METHOD_JIT_STRIP, NULL);
    oct_train_step step;
    oct_step_result result;
    float *goals;
    oct_batch batch = {.num_inputs = 1, .input = {d->x[0]}, .rows = rows};
    batch.shape[0] = d->example.shape[0];
    batch.shape[0].dim[0] = DEPLOY_SAMPLES;
    OK(oct_alloc(&goals, (size_t)(DEPLOY_SAMPLES * outputs), sizeof *goals));
    batch.targets = goals;
    oct_module_train(d->root, true);
    const oct_status prepared = oct_prepare(&d->root, &d->example, &options, &d->fallbacks);
    for (size_t i = 0; prepared != OCT_OK && i < oct_error_count(); i++)
        fprintf(stderr, "    %s\n", oct_error_message(i));
    cr_assert(prepared == OCT_OK);
    oct_text_free(&d->fallbacks);
    OK(oct_train_step_create(&step, d->root, &sgd, DEPLOY_SAMPLES, DEPLOY_LEAF,
                             &oct_collective_one));
    step.loss = (oct_loss_spec){.kind = oct_loss_find("mse")};
    OK(oct_set_fake_quant(d->root, OCT_STATE_CALIBRATION));
    OK(oct_train_step_forward(&step, &batch, NULL));
    OK(oct_set_fake_quant(d->root, OCT_STATE_QAT));
    for (int i = 0; i < 2; i++)
        OK(oct_train_step_run(&step, &batch, 1e-4F, &result));
    cr_assert(isfinite(result.loss));
    oct_module_train(d->root, false);
    OK(oct_set_fake_quant(d->root, OCT_STATE_VALIDATION));
    oct_train_step_destroy(&step);
    oct_free(&goals);
}

/* The types of layers that stay float, each once. */
static const char *list_fallbacks(const oct_program *p, char text[256])
{
    size_t used = 0;
    text[0] = '\0';
    for (int64_t i = 0; i < p->num_steps; i++) {
        const char *type = p->steps[i].kind == OCT_STEP_FLOAT ? p->steps[i].fallback->type : NULL;
        if (!type || strstr(text, type)) continue;
        used += (size_t)snprintf(text + used, 256 - used, "%s%s", used ? ", " : "", type);
        if (used >= 256) break;
    }
    return used ? text : "none";
}

/* The page of the zoo says the same. */
static void check_page(const char *row)
{
    void *page = NULL;
    size_t size;
    OK(oct_file_read(GOLDEN "onnx/README.md", 1 << 16, &page, &size));
    cr_assert(strstr(page, row), "tests/golden/onnx/README.md has no row\n%s", row);
    oct_free(&page);
}

enum { MOST = 64 };
typedef struct subject {
    char folder[256], name[48];
    bool outputs_alone;
} subject;

static void judge(const subject *s)
{
    char model[512], numbers[512], fallbacks[256], row[384];
    snprintf(model, sizeof model, "%s/%s.onnx", s->folder, s->name);
    snprintf(numbers, sizeof numbers, "%s/%s.npz", s->folder, s->name);
    golden x = read_golden(numbers, "x.npy"), y = read_golden(numbers, "y.npy");
    turn(&x);
    if (y.shape.ndim == 4) turn(&y);
    oct_shape sample = x.shape;
    sample.dim[0] = 1;
    deployment d = {.root = import(model, &sample),
                    .leaves = oct_leaves_split(DEPLOY_SAMPLES, DEPLOY_LEAF, 0, 1)};
    const double difference = compare_float(d.root, &x, &y);
    cr_assert(difference <= tolerance, "%s: outputs differ by %g", s->name, difference);
    snprintf(row, sizeof row, "| `%s` |\n", s->name);
    if (!s->outputs_alone) {
        d.example = *OCT_EXAMPLE(sample);
        OK(oct_context_create(&d.cx, &oct_collective_one));
        const int64_t numel = oct_shape_numel(&sample);
        d.x[0] = calloc((size_t)(DEPLOY_SAMPLES * numel), sizeof(float));
        oct_fill_normal(d.x[0], DEPLOY_SAMPLES * numel, 17, OCT_STREAM_TEST, 0, 0.0F, 1.0F);
        const int64_t outputs = oct_shape_numel(&y.shape) / y.shape.dim[0];
        const int64_t last = y.shape.dim[y.shape.ndim - 1];
        train(&d, outputs, last > 1 ? outputs / last : 1);
        deploy_check(&d);
        snprintf(row, sizeof row, "| `%s` | %lld | %s |\n", s->name, (long long)d.program.num_steps,
                 list_fallbacks(&d.program, fallbacks));
    }
    fprintf(stderr, "%.1e of PyTorch's %s", difference, row);
    if (strcmp(s->folder, GOLDEN "onnx") == 0) check_page(row);
    oct_free(&x.data);
    oct_free(&y.data);
    deploy_end(&d);
}

/* Adds its networks to the list. The runner asks for parameters before any test, so that none could fail. */
static size_t list_folder(const char *path, bool outputs_alone, subject *list, size_t count)
{
    const size_t begin = count;
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        const char *dot = strstr(entry->d_name, ".onnx");
        if (!dot || dot[5]) continue; /* .onnx.data is a part of one */
        if (count == MOST) break;
        subject *s = &list[count++];
        s->outputs_alone = outputs_alone;
        snprintf(s->folder, sizeof s->folder, "%s", path);
        snprintf(s->name, sizeof s->name, "%.*s", (int)(dot - entry->d_name), entry->d_name);
    }
    if (folder) closedir(folder);
    if (count == begin || count == MOST) {
        fprintf(stderr, "test_onnx_zoo: %s: 1 to %d networks are needed there\n", path, MOST - 1);
        exit(1);
    }
    return count;
}

ParameterizedTestParameters(onnx_zoo, becomes_a_network)
{
    static subject list[MOST];
    const char *asked = getenv("OCT_ZOO");
    size_t count;
    if (asked) {
        count = list_folder(asked, true, list, 0);
    } else {
        count = list_folder(GOLDEN "onnx", false, list, 0);
        count = list_folder(GOLDEN "onnx_cases", false, list, count);
    }
    return cr_make_param_array(subject, list, count);
}

ParameterizedTest(subject *s, onnx_zoo, becomes_a_network, .timeout = 120)
{
    judge(s);
}

/* Three steps of SGD with a clipped norm, as make_onnx_tied.py takes them. */
static void learn(oct_module *model, const golden *x, int64_t outputs)
{
    const oct_optim_config sgd = {
        .kind = OCT_SGD, .momentum = 0.9F, .weight_decay = 0.01F, .clip_norm = 0.5F};
    oct_train_step step;
    oct_step_result result;
    float *goals;
    OK(oct_alloc(&goals, (size_t)(x->shape.dim[0] * outputs), sizeof *goals));
    const oct_batch batch = {
        .num_inputs = 1, .shape = {x->shape}, .input = {x->data}, .rows = 1, .targets = goals};
    OK(oct_train_step_create(&step, model, &sgd, x->shape.dim[0], 2, &oct_collective_one));
    step.loss = (oct_loss_spec){.kind = oct_loss_find("mse")};
    for (int i = 0; i < 3; i++)
        OK(oct_train_step_run(&step, &batch, 0.1F, &result));
    oct_train_step_destroy(&step);
    oct_free(&goals);
}

/* One parameter of the file in several layers stays one: each layer has it as PyTorch's SGD leaves it. */
static void check_tied(const char *name, size_t layers)
{
    char model_path[512], numbers[512], array[64], path[256];
    snprintf(model_path, sizeof model_path, GOLDEN "onnx_cases/%s.onnx", name);
    snprintf(numbers, sizeof numbers, GOLDEN "onnx_cases/%s.npz", name);
    golden x = read_golden(numbers, "x.npy"), y = read_golden(numbers, "y.npy");
    turn(&x);
    oct_module *model = import(model_path, &x.shape);
    cr_assert_str_empty(oct_network_notes(model));
    learn(model, &x, y.shape.dim[1]);
    const oct_network_name *names;
    const size_t count = oct_network_names(model, &names);
    cr_assert_eq(count, layers);
    for (size_t i = 0; i < count; i++) {
        snprintf(array, sizeof array, "trained_%s.npy", names[i].file);
        golden trained = read_golden(numbers, array);
        float *there;
        const int64_t n = oct_shape_numel(&trained.shape);
        OK(oct_alloc(&there, (size_t)n, sizeof *there));
        snprintf(path, sizeof path, "%s", names[i].path);
        char *dot = strrchr(path, '.');
        *dot = '\0';
        const oct_param *param = oct_module_param(oct_module_find(model, path), dot + 1);
        const oct_file_order plain = oct_file_order_of(names[i].order.dims, names[i].order.size);
        oct_file_order_move(&names[i].order, oct_f32(&param->value), &plain, there, false);
        for (int64_t k = 0; k < n; k++)
            cr_assert(fabsf(there[k] - trained.data[k]) <= 2e-6F, "%s: %lld: %g, not %g",
                      names[i].path, (long long)k, (double)there[k], (double)trained.data[k]);
        oct_free(&there);
        oct_free(&trained.data);
    }
    oct_module_destroy(&model);
    oct_free(&x.data);
    oct_free(&y.data);
}

Test(onnx_zoo, one_matrix_in_three_layers_is_one_parameter, .timeout = 60)
{
    check_tied("tied_dense", 6);
}

Test(onnx_zoo, kernels_of_two_convolutions_are_one_parameter, .timeout = 60)
{
    check_tied("tied_conv", 5);
}
