/* Nets: the same bits from either kind of file and in memory, pixels as training has them, and a sentence for whatever
 * cannot be. */
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "io/batch/normalise.h"
#include "io/export/format.h"
#include "io/model/model_file.h"
#include "launch/deploy/certificate.h"
#include "quant/convert/convert.h"
#include "tests/quant/program_maker.h"
#include "tests/support/program.h"

#include <fenv.h>
#include <math.h>
#include <octet/net.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define OK(call) cr_assert((call) == OCT_OK, "%s", oct_error_message(0))

enum { GOLDEN = 2, N = 7, ROOM = 1024, H = 3, W = 4, C = 5 };

static oct_model model;
static oct_exported flat;
static oct_net *net;
static float x[N * ROOM], y[N * ROOM], expected[N * ROOM];

/* Logits, or class numbers, of each pixel: the codes of the input themselves. */
static void program_of_pixels(oct_program *p, oct_dtype output, float scale)
{
    program_begin(p);
    const int32_t image = program_input(p, H, W, C);
    const int32_t codes = program_value(p, OCT_U8, H, W, C, scale, 100);
    const bool numbers = output == OCT_S32;
    program_step(p, OCT_STEP_QUANTIZE, "quant", image, NONE, codes);
    const int32_t last = program_value(p, output, H, W, numbers ? 1 : C, 0, 0);
    program_step(p, numbers ? OCT_STEP_ARGMAX : OCT_STEP_DEQUANTIZE, "last", codes, NONE, last);
    p->output = last;
}

static void program_of_logits(oct_program *p)
{
    program_of_pixels(p, OCT_F32, 0.25f);
}

static void program_of_large_logits(oct_program *p)
{
    program_of_pixels(p, OCT_F32, 40.0f);
}

static void program_of_grey_pixels(oct_program *p)
{
    program_begin(p);
    const int32_t image = program_input(p, H, W, 1);
    const int32_t codes = program_value(p, OCT_U8, H, W, 1, 0.25f, 100);
    p->output = program_value(p, OCT_F32, H, W, 1, 0, 0);
    program_step(p, OCT_STEP_QUANTIZE, "quant", image, NONE, codes);
    program_step(p, OCT_STEP_DEQUANTIZE, "last", codes, NONE, p->output);
}

static void program_of_numbers(oct_program *p)
{
    program_of_pixels(p, OCT_S32, 0.25f);
}

/* The same, whose input and output change their shapes in float. */
static void program_of_shapes(oct_program *p)
{
    program_begin(p);
    const int32_t image = program_input(p, H, W, C);
    const int32_t flat_image = program_value(p, OCT_F32, 1, 1, H * W * C, 0, 0);
    const int32_t codes = program_value(p, OCT_U8, 1, 1, H * W * C, 0.25f, 100);
    const int32_t values = program_value(p, OCT_F32, 1, 1, H * W * C, 0, 0);
    p->output = program_value(p, OCT_F32, H, W, C, 0, 0);
    program_step(p, OCT_STEP_RESHAPE, "flat", image, NONE, flat_image);
    program_step(p, OCT_STEP_QUANTIZE, "quant", flat_image, NONE, codes);
    program_step(p, OCT_STEP_DEQUANTIZE, "dequant", codes, NONE, values);
    program_step(p, OCT_STEP_RESHAPE, "plane", values, NONE, p->output);
}

static void begin_model(void (*maker)(oct_program *))
{
    model = (oct_model){0};
    maker(&model.program);
    program_scales(&model.program);
    const oct_value *out = &model.program.values[model.program.output];
    model.classes = out->dtype == OCT_S32 ? C : (int)out->c;
    for (int i = 0; i < OCT_REALS_MAX; i++)
        model.mean[i] = 0.5f - (float)i / 64, model.std[i] = 0.25f + (float)i / 16;
    OK(oct_model_find_bounds(&model));
}

/* Makes the model, net.int8.h5 and, where it has a form, net.flat of it. */
static void make_model(void (*maker)(oct_program *))
{
    static float golden[GOLDEN * ROOM];
    static uint8_t digests[GOLDEN * 32 * 32];
    static char ports[] = "camera\nlogits\n";
    oct_text names = {0};
    begin_model(maker);
    const oct_program *p = &model.program;
    for (int k = 0; k < model.classes; k++)
        OK(oct_text_add(&names, "class no. %d\n", k));
    model.class_names = names.data;
    if (p->num_inputs == 1) OK(oct_strdup(&model.port_names, ports));
    model.golden_input = golden;
    model.golden_digest = digests;
    model.certificate.golden_count = GOLDEN;
    for (int64_t i = 0; i < p->num_steps; i++)
        model.certificate.num_fallbacks += p->steps[i].kind == OCT_STEP_FLOAT;
    oct_fill_uniform(golden, GOLDEN * oct_inputs_numel(p), 3, OCT_STREAM_TEST, 0, -2, 2);
    OK(oct_golden_digests(p, golden, GOLDEN, digests));
    OK(oct_model_write("net.int8.h5", &model));
    if (model.certificate.num_fallbacks > 0) return;
    const oct_export of = {.model = &model, .version = "test", .name = "net"};
    OK(oct_export_format_flat.write_model(&of, &flat));
    oct_tmp_write(&tmp, "net.flat", flat.bytes, flat.size);
}

static void start(void)
{
    enter_folder();
    oct_fill_uniform(x, N * ROOM, 5, OCT_STREAM_TEST, 0, -3, 3);
}

static void end_model(void)
{
    oct_net_close(&net);
    oct_exported_free(&flat);
    model.golden_input = NULL;
    model.golden_digest = NULL;
    oct_model_free(&model);
}

static void stop(void)
{
    end_model();
    oct_process_free(&job);
    cr_assert_eq(oct_mem_live(), 0);
    leave_folder();
}

TestSuite(net, .init = start, .fini = stop, .timeout = 60);

static void said(const char *sentence)
{
    cr_assert(strstr(oct_error_message(0), sentence), "'%s' is not in: %s", sentence,
              oct_error_message(0));
}

static void refused(oct_status status, oct_status expect, const char *sentence)
{
    cr_assert_eq(status, expect, "%d: %s", (int)status, sentence);
    said(sentence);
}

/* What the runtime makes of the program, sample by sample. */
static void run_program(const float *input, float *output)
{
    const oct_program *p = &model.program;
    const oct_runtime_options options = {.host = &oct_module_fallbacks};
    oct_runtime *runtime;
    OK(oct_runtime_create(&runtime, p, &options));
    for (int n = 0; n < N; n++) {
        const float *inputs[OCT_PROGRAM_INPUTS];
        for (int i = 0; i < p->num_inputs; i++) /* inputs of all samples lie ROOM apart */
            inputs[i] = input + n * oct_value_numel(&p->values[p->inputs[i]]) + i * ROOM;
        OK(oct_runtime_run(runtime, 1, inputs,
                           output + n * oct_value_numel(&p->values[p->output])));
    }
    oct_runtime_destroy(&runtime);
}

/* The net computes the bits of the program, in runs of as many samples as it takes, and its golden inputs; closes it. */
static void check_bits(oct_net **of, int64_t batch)
{
    const oct_port *out = oct_net_output(*of);
    memset(y, 0, sizeof y);
    OK(oct_net_verify(*of));
    for (int64_t n = 0; n < N; n += batch) {
        const float *inputs[OCT_PROGRAM_INPUTS];
        for (int i = 0; i < oct_net_num_inputs(*of); i++)
            inputs[i] = x + n * oct_net_input(*of, i)->numel + i * ROOM;
        OK(oct_net_run(*of, batch < N - n ? batch : N - n, inputs, y + n * out->numel));
    }
    cr_assert_arr_eq(y, expected, N * out->bytes);
    oct_net_close(of);
    cr_assert_null(*of);
}

Test(net, bits_are_those_of_the_program_from_any_place_and_in_any_batch)
{
    static void (*const makers[])(oct_program *) = {program_small, program_of_other_kinds,
                                                    program_of_shapes};
    uint8_t *moved = NULL;
    for (size_t i = 0; i < OCT_COUNT(makers); i++) {
        end_model();
        make_model(makers[i]);
        run_program(x, expected);
        OK(oct_alloc(&moved, flat.size + 64, 1));
        for (int k = 0; k < 6; k++) {
            const oct_net_options options = {.max_batch = 1 + 3 * (k % 3), .threads = k};
            oct_net *clone, *second;
            OK(oct_net_open(&net, "net.flat", &options));
            OK(oct_net_clone(&clone, net));
            check_bits(&net, options.max_batch);
            OK(oct_net_clone(&second, clone)); /* also after the first is closed */
            check_bits(&clone, options.max_batch);
            check_bits(&second, options.max_batch);
            OK(oct_net_open(&net, "net.int8.h5", &options));
            check_bits(&net, options.max_batch);
            memcpy(moved + 13 * k, flat.bytes, flat.size);
            OK(oct_net_open_bytes(&net, moved + 13 * k, flat.size, &options));
            if (k > 0) memset(moved, 255, flat.size + 64); /* of odd addresses there is a copy */
            check_bits(&net, options.max_batch);
        }
        oct_free(&moved);
    }
    OK(oct_net_of_model(&net, &model, NULL)); /* which may be gone while the net is there */
    oct_net *of_memory = net;
    net = NULL;
    end_model();
    check_bits(&of_memory, 1);
}

/* Several inputs, and a layer that stays float. */
Test(net, layers_that_stay_float_run_by_their_modules)
{
    const oct_net_options options = {.max_batch = N, .threads = 2};
    make_model(program_with_fallback);
    run_program(x, expected);
    OK(oct_net_open(&net, "net.int8.h5", &options));
    cr_assert_eq(oct_net_num_inputs(net), 2);
    cr_assert_eq(oct_net_pixels(net), 0);
    refused(oct_net_run_pixels(net, 1, (uint8_t[1]){0}, NULL, y), OCT_USAGE,
            "the net has 2 inputs");
    check_bits(&net, N);
    OK(oct_net_of_model(&net, &model, NULL));
    check_bits(&net, 1);
}

/* The digest of what a layer gives is that of the program's value in the file. */
static void check_layer(void *user, int i, const void *values)
{
    uint8_t digest[32];
    const oct_program *p = &model.program;
    const oct_value *value = &p->values[p->steps[i].output];
    const oct_port *layer = oct_net_layer(net, i);
    int *next = user;
    cr_assert_eq(i, (*next)++);
    if (layer->type == OCT_PORT_U8) cr_assert(value->dtype == OCT_U8 && layer->bits == 8);
    if (layer->type == OCT_PORT_U16) cr_assert(value->dtype == OCT_U16 && layer->bits == 16);
    if (layer->bits) cr_assert(layer->scale == value->q.scale, "layer %d", i);
    oct_sha256(values, layer->bytes, digest);
    cr_assert_arr_eq(digest, model.golden_digest + p->steps[i].output * 32, 32, "layer %d", i);
}

Test(net, shows_what_each_layer_gives)
{
    static void (*const makers[])(oct_program *) = {program_small, program_of_other_kinds};
    for (size_t i = 0; i < 2 * OCT_COUNT(makers); i++) {
        const oct_net_options options = {.max_batch = 1 + 2 * (int64_t)i, .threads = 2};
        int layers = 0;
        end_model();
        make_model(makers[i / 2]);
        OK(oct_net_open(&net, i % 2 ? "net.flat" : "net.int8.h5", &options));
        OK(oct_net_run_layers(net, 1, (const float *[]){model.golden_input}, y, check_layer,
                              &layers));
        cr_assert_eq(layers, oct_net_num_layers(net));
        OK(oct_net_run(net, 1, (const float *[]){model.golden_input}, expected));
        cr_assert_arr_eq(y, expected, oct_net_output(net)->bytes);
        cr_assert_null(oct_net_layer(net, layers));
        cr_assert_null(oct_net_layer_kind(net, -1));
        cr_assert_str_eq(oct_net_layer_kind(net, 0), "quantize");
        cr_assert_float_eq(oct_net_layer(net, 0)->scale, oct_net_input(net, 0)->scale, 0);
    }
    refused(oct_net_run_layers(net, 1, NULL, y, NULL, NULL), OCT_USAGE, "no function");
}

Test(net, the_rounding_mode_matters_nowhere_and_stays)
{
    const oct_net_options options = {.max_batch = N, .threads = 3};
    make_model(program_small);
    run_program(x, expected);
    fesetround(FE_UPWARD);
    OK(oct_net_open(&net, "net.int8.h5", &options));
    check_bits(&net, N);
    OK(oct_net_open(&net, "net.flat", &options));
    check_bits(&net, N);
    cr_assert_eq(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
}

static void check_port(const oct_port *port, const char *name, int64_t c, oct_port_type type,
                       int bits, float scale, int32_t zero_point)
{
    cr_assert(strcmp(port->name, name) == 0 && port->c == c && port->type == type, "%s", name);
    cr_assert(port->bits == bits && port->scale == scale && port->zero_point == zero_point,
              "%s: %d bits, %g, %d", name, port->bits, (double)port->scale, port->zero_point);
    cr_assert(port->numel == port->h * port->w * port->c);
    cr_assert_eq(port->bytes, (size_t)port->numel * 4);
}

Test(net, inputs_outputs_and_classes_are_described)
{
    static const char *const files[] = {"net.flat", "net.int8.h5"};
    for (int i = 0; i < 2; i++) {
        end_model();
        make_model(program_small);
        OK(oct_net_open(&net, files[i], NULL));
        check_port(oct_net_input(net, 0), "camera", 3, OCT_PORT_FLOAT, 8, 0.02f, 128);
        cr_assert(oct_net_input(net, 0)->h == 9 && oct_net_input(net, 0)->w == 8);
        check_port(oct_net_output(net), "logits", 10, OCT_PORT_FLOAT, 0, 0, 0);
        cr_assert(!oct_net_input(net, 1) && !oct_net_input(net, -1));
        cr_assert_eq(oct_net_pixels(net), 9 * 8 * 3);
        cr_assert_eq(oct_net_num_classes(net), 10);
        cr_assert_str_eq(oct_net_class_name(net, 9), "class no. 9");
        cr_assert(!oct_net_class_name(net, 10) && !oct_net_class_name(net, -1));
        end_model();
        make_model(program_of_numbers);
        OK(oct_net_open(&net, files[i], NULL));
        check_port(oct_net_output(net), "logits", 1, OCT_PORT_CLASS, 0, 0, 0);
        cr_assert_eq(oct_net_num_classes(net), C);
        end_model();
        make_model(program_of_other_kinds);
        OK(oct_net_open(&net, files[i], NULL));
        check_port(oct_net_input(net, 0), "camera", 2, OCT_PORT_FLOAT, 16, 0.001f, 32768);
        check_port(oct_net_output(net), "logits", 3, OCT_PORT_FLOAT, 8, 1.0f / 256, 0);
        end_model();
        make_model(program_of_shapes);
        OK(oct_net_open(&net, files[i], NULL));
        check_port(oct_net_input(net, 0), "camera", C, OCT_PORT_FLOAT, 8, 0.25f, 100);
        check_port(oct_net_output(net), "logits", C, OCT_PORT_FLOAT, 8, 0.25f, 100);
    }
    oct_net_close(&net);
    oct_free(&model.class_names);
    oct_free(&model.port_names);
    OK(oct_net_of_model(&net, &model, NULL));
    cr_assert_null(oct_net_class_name(net, 0));
    cr_assert_str_eq(oct_net_input(net, 0)->name, "");
}

/* Where the byte of (image n, row h, column w, channel c) lies in each order, with strides of `row` and `image` bytes. */
static size_t place(oct_pixel_order order, size_t row, size_t image, size_t n, size_t h, size_t w,
                    size_t c)
{
    static const struct {
        size_t pixel;
        bool reversed;
    } of[] = {{C, false}, {C, true}, {C + 1, false}, {C + 1, true}};
    const size_t first = n * image;
    if (order == OCT_PIXELS_PLANES) return first + (c * H + h) * row + w;
    return first + h * row + w * of[order].pixel + (of[order].reversed ? C - 1 - c : c);
}

/* Pixels in every order and with every stride are those of training: normalised by its own function. */
Test(net, pixels_are_normalised_as_in_training_in_every_order_and_stride)
{
    static uint8_t plain[N][H][W][C], pixels[1 << 16];
    const oct_net_options options = {.max_batch = N};
    make_model(program_of_logits);
    for (int i = 0; i < N * H * W * C; i++)
        (&plain[0][0][0][0])[i] = (uint8_t)(i * 89 + i / 7);
    oct_normalise(&plain[0][0][0][0], N * H * W, C, model.mean, model.std, x);
    run_program(x, expected);
    for (size_t k = 0; k < 5 * 6; k++) {
        const oct_pixel_order order = (oct_pixel_order)(k % 5);
        const size_t width = order == OCT_PIXELS_PLANES
                                 ? W
                                 : place(order, 0, 0, 0, 0, 1, 0) - place(order, 0, 0, 0, 0, 0, 0);
        const size_t bytes = order == OCT_PIXELS_PLANES ? W : W * width;
        const size_t rows = order == OCT_PIXELS_PLANES ? H * C : H;
        const size_t row = bytes + (k / 5 % 3) * 5, image = rows * row + (k / 15) * 31;
        const oct_pixels layout = {
            .row_stride = k < 5 ? 0 : row, .image_stride = k < 15 ? 0 : image, .order = order};
        memset(pixels, 77, sizeof pixels);
        for (size_t i = 0; i < N * H * W * C; i++)
            pixels[place(order, row, image, i / (H * W * C), i / (W * C) % H, i / C % W, i % C)] =
                (&plain[0][0][0][0])[i];
        OK(oct_net_open(&net, k % 2 ? "net.flat" : "net.int8.h5", &options));
        memset(y, 0, sizeof y);
        OK(oct_net_run_pixels(net, N, pixels, &layout, y));
        cr_assert_arr_eq(y, expected, sizeof(float) * N * H * W * C);
        OK(oct_net_run_pixels(net, N, &plain[0][0][0][0], NULL, y));
        cr_assert_arr_eq(y, expected, sizeof(float) * N * H * W * C);
        oct_net_close(&net);
    }
}

/* The softmax by its formula in long double, of logits up to 6200, whose exponentials are no numbers. */
Test(net, classes_are_the_first_of_the_largest_with_their_softmax)
{
    static uint8_t pixels[N * H * W * C];
    static void (*const makers[])(oct_program *) = {program_of_logits, program_of_large_logits};
    const oct_net_options options = {.max_batch = N};
    int32_t classes[N * H * W];
    float scores[N * H * W];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i / (W * C) % 2 ? i * 89 : 200); /* rows of equal pixels, too */
    for (int k = 0; k < 2; k++) {
        end_model();
        make_model(makers[k]);
        for (int c = 0; c < C; c++) /* logits of equal pixels are equal */
            model.mean[c] = k ? -100 : 0.5f, model.std[c] = k ? 0.03125f : 0.0625f;
        OK(oct_net_of_model(&net, &model, &options));
        OK(oct_net_run_pixels(net, N, pixels, NULL, y));
        memset(scores, 0, sizeof scores);
        OK(oct_net_classify(net, N, pixels, NULL, classes, scores));
        for (int r = 0; r < N * H * W; r++) {
            int best = 0;
            long double sum = 0;
            for (int c = C - 1; c >= 0; c--)
                if (y[r * C + c] >= y[r * C + best]) best = c;
            for (int c = 0; c < C; c++)
                sum += expl((long double)y[r * C + c] - (long double)y[r * C + best]);
            cr_assert_eq(classes[r], best, "row %d", r);
            cr_assert(fabsl((long double)scores[r] - 1 / sum) < 1e-7L, "row %d: %.9g and %.9Lg", r,
                      (double)scores[r], 1 / sum);
        }
        cr_assert_eq(scores[0], 0.2f);
        OK(oct_net_classify(net, N, pixels, NULL, classes, NULL));
    }
    end_model();
    make_model(program_of_numbers);
    OK(oct_net_open(&net, "net.flat", &options));
    int32_t numbers[N * H * W];
    OK(oct_net_run_pixels(net, N, pixels, NULL, numbers));
    OK(oct_net_classify(net, N, pixels, NULL, classes, scores));
    cr_assert_arr_eq(classes, numbers, sizeof numbers);
    for (int r = 0; r < N * H * W; r++)
        cr_assert(isnan(scores[r]));
}

/* Threads with a net each are right; with one for all each run is right or refused. */

typedef struct worker {
    pthread_t thread;
    oct_net *net;
    const uint8_t *pixels;
    int right, busy, wrong;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    float out[H * W * C];
    for (int i = 0; i < 2000; i++) {
        const int n = i % N;
        const oct_status status =
            oct_net_run_pixels(w->net, 1, w->pixels + n * H * W * C, NULL, out);
        const bool busy = status == OCT_USAGE && strstr(oct_error_message(0), "another thread");
        w->busy += busy;
        if (busy) continue;
        const bool right =
            status == OCT_OK && memcmp(out, expected + n * H * W * C, sizeof out) == 0;
        w->right += right;
        w->wrong += !right;
    }
    return NULL;
}

Test(net, each_thread_has_a_clone_and_one_net_is_for_one_at_a_time)
{
    enum { THREADS = 8 };
    static uint8_t pixels[N * H * W * C];
    worker workers[THREADS];
    make_model(program_of_logits);
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 89 + i / 7);
    oct_normalise(pixels, N * H * W, C, model.mean, model.std, x);
    run_program(x, expected);
    for (int shared = 0; shared < 2; shared++) {
        OK(oct_net_open(&net, "net.flat", NULL));
        for (int t = 0; t < THREADS; t++) {
            workers[t] = (worker){.net = net, .pixels = pixels};
            if (!shared) OK(oct_net_clone(&workers[t].net, net));
        }
        if (!shared) oct_net_close(&net);
        for (int t = 0; t < THREADS; t++)
            cr_assert(pthread_create(&workers[t].thread, NULL, work, &workers[t]) == 0);
        for (int t = 0; t < THREADS; t++) {
            worker *w = &workers[t];
            pthread_join(w->thread, NULL);
            cr_assert(w->wrong == 0 && (shared || w->busy == 0), "%d wrong, %d busy", w->wrong,
                      w->busy);
            if (!shared) oct_net_close(&w->net);
        }
        oct_net_close(&net);
    }
}

Test(net, wrong_arguments_have_a_sentence)
{
    const oct_net_options options = {.max_batch = 4};
    const uint8_t pixels[4 * H * W * C] = {0};
    const float *const inputs[] = {x};
    int32_t classes[4 * H * W];
    oct_net *none = (oct_net *)&none;
    make_model(program_of_logits);
    refused(oct_net_open(NULL, "net.flat", NULL), OCT_USAGE, "no place for the net");
    refused(oct_net_open(&none, NULL, NULL), OCT_USAGE, "oct_net_open has no model: NULL");
    cr_assert_null(none);
    refused(oct_net_open_bytes(&none, NULL, 8, NULL), OCT_USAGE, "has no model: NULL");
    refused(oct_net_open_bytes(&none, pixels + 1, 0, NULL), OCT_DATA, "is no flat file");
    refused(oct_net_open(&none, "net.flat", &(oct_net_options){.max_batch = -2}), OCT_USAGE,
            "max_batch is -2");
    refused(oct_net_open(&none, "net.flat", &(oct_net_options){.threads = -1}), OCT_USAGE,
            "threads is -1; give 1 to 1024");
    refused(oct_net_open(&none, "net.flat", &(oct_net_options){.max_batch = INT64_MAX}),
            OCT_RESOURCE, "net.flat: ");
    refused(oct_net_clone(NULL, net), OCT_USAGE, "no place");
    refused(oct_net_clone(&none, NULL), OCT_USAGE, "no net");
    refused(oct_net_verify(NULL), OCT_USAGE, "no net");
    refused(oct_net_run(NULL, 1, inputs, y), OCT_USAGE, "no net");
    refused(oct_net_run_pixels(NULL, 1, pixels, NULL, y), OCT_USAGE, "no net");
    refused(oct_net_classify(NULL, 1, pixels, NULL, classes, NULL), OCT_USAGE, "no net");
    cr_assert(!oct_net_num_inputs(NULL) && !oct_net_input(NULL, 0) && !oct_net_output(NULL) &&
              !oct_net_pixels(NULL) && !oct_net_num_classes(NULL) && !oct_net_class_name(NULL, 0));
    oct_net_close(NULL);

    OK(oct_net_open(&net, "net.flat", &options));
    refused(oct_net_run(net, 5, inputs, y), OCT_USAGE, "5 samples; a run of this net has 0 to 4");
    refused(oct_net_run(net, -1, inputs, y), OCT_USAGE, "-1 samples");
    refused(oct_net_run(net, 1, NULL, y), OCT_USAGE, "NULL");
    refused(oct_net_run(net, 1, (const float *[]){NULL}, y), OCT_USAGE, "input 0 is NULL");
    refused(oct_net_run(net, 1, inputs, NULL), OCT_USAGE, "NULL");
    refused(oct_net_run_pixels(net, 5, pixels, NULL, y), OCT_USAGE, "5 samples");
    refused(oct_net_run_pixels(net, -1, pixels, NULL, y), OCT_USAGE, "-1 samples");
    refused(oct_net_run_pixels(net, 1, NULL, NULL, y), OCT_USAGE, "NULL");
    refused(oct_net_run_pixels(net, 1, pixels, NULL, NULL), OCT_USAGE, "NULL");
    refused(oct_net_classify(net, 1, pixels, NULL, NULL, NULL), OCT_USAGE, "no room");
    refused(oct_net_run_pixels(net, 1, pixels, &(oct_pixels){.row_stride = 19}, y), OCT_USAGE,
            "row_stride is 19 bytes, and rows have 20");
    refused(oct_net_run_pixels(net, 1, pixels, &(oct_pixels){.image_stride = 59}, y), OCT_USAGE,
            "image_stride is 59 bytes, and images have 60");
    refused(oct_net_run_pixels(net, 1, pixels, &(oct_pixels){.row_stride = SIZE_MAX - 19}, y),
            OCT_USAGE, "fit into no memory");
    refused(oct_net_run_pixels(net, 1, pixels, &(oct_pixels){.order = (oct_pixel_order)5}, y),
            OCT_USAGE, "5 is no order of pixels");
    OK(oct_net_run(net, 0, inputs, y));
    OK(oct_net_run_pixels(net, 0, pixels, NULL, y));
    OK(oct_net_run_pixels(net, 4, pixels, NULL, y)); /* what went wrong before has left nothing */
    oct_net_close(&net);

    model.certificate.golden_count = 0;
    OK(oct_net_of_model(&net, &model, NULL));
    refused(oct_net_verify(net), OCT_USAGE, "has no golden inputs");
    refused(oct_net_of_model(&none, NULL, NULL), OCT_USAGE, "no model");
    oct_net_close(&net);
    model.golden_digest[2 * 32] ^= 1; /* of the output of the first */
    model.certificate.golden_count = GOLDEN;
    OK(oct_net_of_model(&net, &model, NULL));
    model.golden_digest[2 * 32] ^= 1;
    refused(oct_net_verify(net), OCT_MISMATCH, "golden input 0: the output has other bits");
    end_model();
    begin_model(program_of_grey_pixels);
    OK(oct_net_of_model(&net, &model, NULL));
    refused(oct_net_run_pixels(net, 1, pixels, &(oct_pixels){.order = OCT_PIXELS_REVERSED}, y),
            OCT_USAGE, "one channel");
    OK(oct_net_run_pixels(net, 1, pixels, &(oct_pixels){.order = OCT_PIXELS_PADDED}, y));
}

Test(net, files_that_are_no_model_are_refused_by_their_name)
{
    make_model(program_small);
    oct_tmp_write(&tmp, "float.onnx", "any other file of some bytes", 28);
    refused(oct_net_open(&net, "float.onnx", NULL), OCT_DATA, "float.onnx: is not an int8 model");
    refused(oct_net_open(&net, "none", NULL), OCT_DATA, "none: cannot be opened");
    refused(oct_net_open(&net, ".", NULL), OCT_DATA, ".: is not an int8 model");
    shell("printf x | dd of=net.flat bs=1 seek=5000 conv=notrunc status=none; "
          "printf x | dd of=net.int8.h5 bs=1 seek=5000 conv=notrunc status=none");
    refused(oct_net_open(&net, "net.flat", NULL), OCT_DATA, "net.flat: is damaged");
    refused(oct_net_open(&net, "net.int8.h5", NULL), OCT_DATA, "net.int8.h5: is damaged");
    refused(oct_net_open_bytes(&net, "\211HDF\r\n\032\n and so on", 20, NULL), OCT_USAGE,
            "these bytes are an HDF5 model");
    cr_assert_null(net);
}

/* Opens, clones and runs pixels; frees everything. */
static oct_status use_net(const char *path)
{
    static const uint8_t pixels[9 * 8 * 3];
    int32_t class;
    oct_net *clone = NULL;
    oct_status status = oct_net_open(&net, path, NULL);
    if (status == OCT_OK) status = oct_net_clone(&clone, net);
    if (status == OCT_OK) status = oct_net_classify(clone, 1, pixels, NULL, &class, NULL);
    if (status == OCT_OK) status = oct_net_verify(net);
    oct_net_close(&net);
    oct_net_close(&clone);
    return status;
}

Test(net, whichever_allocation_fails_nothing_is_left)
{
    static const char *const files[] = {"net.flat", "net.int8.h5"};
    make_model(program_small);
    for (int i = 0; i < 2; i++) {
        OK(use_net(files[i]));
        oct_status status = OCT_RESOURCE;
        for (int64_t k = 1; status != OCT_OK; k++) {
            const size_t before = oct_mem_live();
            oct_mem_fail_after(k);
            status = use_net(files[i]);
            oct_mem_fail_after(0);
            cr_assert(status == OCT_OK || status == OCT_RESOURCE, "%s, %d: %s", files[i], (int)k,
                      oct_error_message(0));
            cr_assert_eq(oct_mem_live(), before);
            cr_assert(status != OCT_OK || k > 15, "%d", (int)k);
        }
    }
}

/* A plane of 2^28 numbers: half a gigabyte of codes, which a file of a few kilobytes asks for. */
static void program_of_a_large_plane(oct_program *p)
{
    program_begin(p);
    const int32_t image = program_input(p, 16384, 16384, 1);
    const int32_t codes = program_value(p, OCT_U16, 16384, 16384, 1, 0.25f, 100);
    p->output = program_value(p, OCT_F32, 16384, 16384, 1, 0, 0);
    program_step(p, OCT_STEP_QUANTIZE, "quant", image, NONE, codes);
    program_step(p, OCT_STEP_DEQUANTIZE, "out", codes, NONE, p->output);
}

Test(net, models_that_take_a_lot_are_asked_for)
{
    const oct_net_options large = {.large = true};
    begin_model(program_of_a_large_plane);
    OK(oct_model_write("net.int8.h5", &model));
    refused(oct_net_open(&net, "net.int8.h5", NULL), OCT_DATA,
            "net.int8.h5: the values of one sample take 537 MB, more than 268 MB; if you trust "
            "it, --allow-large, or `large` in options");
    OK(oct_net_open(&net, "net.int8.h5", &large));
}
