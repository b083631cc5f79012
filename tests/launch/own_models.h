/* Int8 models as programs of other people make them: no recipe, no checkpoint, and data in memory alone. */
#pragma once

#include "core/op/ops.h"
#include "io/export/format.h"
#include "io/file/file.h"
#include "io/image/decode.h"
#include "io/model/model_file.h"
#include "launch/deploy/certificate.h"
#include "tests/quant/deploy.h"

enum { OWN_SIDE = 8, OWN_CLASSES = 3, OWN_IMAGES = 24 };

typedef enum own_kind {
    OWN_GREY,
    OWN_COLOUR,
    OWN_NUMBERS,
    OWN_MAP,
    OWN_VALUES,
    OWN_TWO,
    OWN_KINDS
} own_kind;
static const char *const own_names[OWN_KINDS] = {"grey", "colour", "numbers",
                                                 "map",  "values", "two"};

static own_kind own_made;

/* Stub a, conv b, the last layer c, and dequant d; of a second input stub e and linear layer f. */
static inline oct_tensor *own_forward(oct_context *cx, oct_module *self, oct_tensor *const *x,
                                      int n)
{
    const parts *p = (parts *)self;
    oct_tensor *y = oct_relu(cx, oct_call(cx, p->m[1], oct_call(cx, p->m[0], x[0])));
    if (own_made != OWN_MAP) y = oct_flatten(cx, oct_global_avg_pool(cx, y));
    if (n == 2) y = oct_add(cx, y, oct_call(cx, p->m[5], oct_call(cx, p->m[4], x[1])));
    y = oct_call(cx, p->m[2], y);
    return own_made == OWN_NUMBERS ? oct_argmax(cx, y) : oct_call(cx, p->m[3], y);
}
static const oct_module_type own_type = {.name = "own", .forward = own_forward};

static inline int64_t own_channels(own_kind kind)
{
    return kind == OWN_GREY ? 1 : 3;
}

static inline oct_module *own_network(own_kind kind)
{
    oct_module *root = parts_create(&own_type);
    own_made = kind;
    PART(root, 0, oct_quant_stub_create(&item));
    PART(root, 1, oct_conv2d_create(&item, own_channels(kind), 4, deploy_conv(3, 1), true));
    if (kind == OWN_MAP)
        PART(root, 2, oct_conv2d_create(&item, 4, OWN_CLASSES, deploy_conv(1, 1), true));
    else
        PART(root, 2, oct_linear_create(&item, 4, kind == OWN_VALUES ? 2 : OWN_CLASSES, true));
    PART(root, 3, oct_dequant_stub_create(&item));
    if (kind == OWN_TWO) {
        PART(root, 4, oct_quant_stub_create(&item));
        PART(root, 5, oct_linear_create(&item, 5, 4, true));
    }
    return root;
}

/* Runs the program over images, and fills what a certificate says of them. */
static inline void own_certify(oct_model *m, const float *images, int64_t count, int32_t *labels)
{
    const oct_value *out = &m->program.values[m->program.output];
    const int64_t k = m->classes;
    const size_t bytes = oct_value_bytes(out);
    uint8_t *y = calloc((size_t)count, bytes);
    float *rows = calloc((size_t)(count * k), sizeof *rows);
    OK(oct_model_run_golden(&m->program, images, count, y));
    oct_tensor all = {
        .dtype = out->dtype, .shape = OCT_SHAPE(count, oct_value_numel(out)), .data = y};
    OK(oct_class_rows(&all, count, k, rows));
    oct_sha256(rows, (size_t)(count * k) * sizeof *rows, m->certificate.logits_digest);
    /* A third of the labels are wrong. */
    oct_argmax_rows(OCT_F32, count, k, rows, labels);
    for (int64_t i = 0; i < count; i += 3)
        labels[i] = (labels[i] + 1) % (int32_t)k;
    m->certificate.images = m->certificate.rows = count;
    if (own_made == OWN_VALUES) goto out;
    m->certificate.correct = count - (count + 2) / 3;
    m->certificate.qat_accuracy = 100.0 * (double)m->certificate.correct / (double)count;
out:
    free(rows);
    free(y);
}

static inline void own_write_npz(const char *path, const oct_npz_array *arrays, int count)
{
    void *bytes = NULL;
    size_t size;
    OK(oct_npz_make(arrays, count, &bytes, &size));
    OK(oct_file_write(path, bytes, size));
    oct_free(&bytes);
}

/* Writes NAME.int8.h5, and NAME.npz with bytes of pixels as "x" and what the outputs should be as "y". golden: inputs that the
 * model keeps. certified: over these pixels. */
static inline void own_write(own_kind kind, int64_t golden, bool certified)
{
    const int64_t c = own_channels(kind), image = OWN_SIDE * OWN_SIDE * c;
    const oct_example *example =
        kind == OWN_TWO ? OCT_EXAMPLE(OCT_SHAPE(1, OWN_SIDE, OWN_SIDE, c), OCT_SHAPE(1, 5))
                        : OCT_EXAMPLE(OCT_SHAPE(1, OWN_SIDE, OWN_SIDE, c));
    const oct_prepare_options options = deploy_options(OCT_METHOD_JIT, NULL);
    deployment d;
    oct_model m = {0};
    uint8_t pixels[OWN_IMAGES * OWN_SIDE * OWN_SIDE * 3];
    static float inputs[OWN_IMAGES * OWN_SIDE * OWN_SIDE * 4];
    int32_t labels[OWN_IMAGES] = {0};
    uint32_t state = 1;
    char path[64];
    for (int64_t i = 0; i < OWN_IMAGES * image; i++)
        pixels[i] = (uint8_t)((state = state * 1664525U + 1013904223U) >> 24);
    deploy_begin(&d, own_network(kind), example);
    deploy_train(&d, &options);
    OK(oct_convert(&m.program, d.root, example, options.target, NULL));
    m.classes = kind == OWN_VALUES ? 2 : OWN_CLASSES;
    for (int64_t i = 0; i < c; i++) {
        m.mean[i] = 0.5F;
        m.std[i] = 0.25F + 0.0625F * (float)i;
    }
    if (kind == OWN_COLOUR) OK(oct_strdup(&m.class_names, "bolt\nnut\nwasher\n"));
    m.certificate.qat_accuracy = -1; /* until it is certified */
    OK(oct_model_find_bounds(&m));
    const int64_t numel = oct_inputs_numel(&m.program);
    for (int64_t n = 0; n < OWN_IMAGES; n++)
        for (int64_t i = 0; i < numel; i++) {
            const int64_t channel = i % c;
            inputs[n * numel + i] =
                i < image
                    ? ((float)pixels[n * image + i] / 255.0F - m.mean[channel]) / m.std[channel]
                    : 0.1F * (float)(i - image);
        }
    m.certificate.golden_count = golden;
    OK(oct_alloc(&m.golden_input, (size_t)(golden * numel), sizeof(float)));
    OK(oct_alloc(&m.golden_digest, (size_t)(golden * m.program.num_values), 32));
    memcpy(m.golden_input, inputs, (size_t)(golden * numel) * sizeof(float));
    OK(oct_golden_digests(&m.program, m.golden_input, golden, m.golden_digest));
    if (certified) own_certify(&m, inputs, OWN_IMAGES, labels);
    snprintf(path, sizeof path, "%s.int8.h5", own_names[kind]);
    OK(oct_model_write(path, &m));
    static int32_t map[OWN_IMAGES * OWN_SIDE * OWN_SIDE];
    static const float values[OWN_IMAGES * 2];
    for (size_t i = 0; i < OCT_COUNT(map); i++)
        map[i] = (int32_t)(i % OWN_CLASSES);
    const oct_npz_array arrays[] = {
        {"x", OCT_U8, OCT_SHAPE(OWN_IMAGES, OWN_SIDE, OWN_SIDE, c), pixels},
        kind == OWN_MAP
            ? (oct_npz_array){"y", OCT_S32, OCT_SHAPE(OWN_IMAGES, OWN_SIDE, OWN_SIDE), map}
        : kind == OWN_VALUES ? (oct_npz_array){"y", OCT_F32, OCT_SHAPE(OWN_IMAGES, 2), values}
                             : (oct_npz_array){"y", OCT_S32, OCT_SHAPE(OWN_IMAGES), labels}};
    snprintf(path, sizeof path, "%s.npz", own_names[kind]);
    own_write_npz(path, arrays, 2);
    oct_model_free(&m);
    deploy_end(&d);
}

/* Writes wrong.npz, ten images of another size, and pics, six pictures of another size in folders of classes. */
static inline void own_write_wrong(void)
{
    static const char *const names[] = {"bolt", "nut", "washer"};
    static const uint8_t pixels[10 * 4 * 4 * 3];
    static const int32_t labels[10] = {0, 1, 2, 0, 1, 2, 0, 1, 2, 0};
    const oct_npz_array arrays[] = {{"x", OCT_U8, OCT_SHAPE(10, 4, 4, 3), pixels},
                                    {"y", OCT_S32, OCT_SHAPE(10), labels}};
    own_write_npz("wrong.npz", arrays, 2);
    for (int i = 0; i < 6; i++) {
        oct_image image = {.dtype = OCT_U8};
        void *bytes = NULL;
        size_t size;
        char path[64];
        OK(oct_image_resize(&image, OCT_U8, 9, 7, 3));
        memset(image.data, 40 * i, 9 * 7 * 3);
        OK(oct_png_write(&image, &bytes, &size));
        snprintf(path, sizeof path, "mkdir -p pics/%s", names[i % 3]);
        cr_assert_eq(system(path), 0);
        snprintf(path, sizeof path, "pics/%s/%d.png", names[i % 3], i);
        OK(oct_file_write(path, bytes, size));
        oct_free(&bytes);
        oct_image_free(&image);
    }
}
