/* A net has a runtime and buffers of its own, and shares its model, which counts the nets that do. */
#include "quant/program/net_model.h"

#include "core/base/mem.h"
#include "core/base/cpu.h"
#include "quant/program/step.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

typedef struct net_model {
    atomic_int nets; /* and one while it is made */
    oct_net_source source;
    oct_packed *packed;
    char **class_names, **port_names;                    /* NULL: none */
    oct_port input[OCT_PROGRAM_INPUTS], output, *layers; /* of each step */
} net_model;

struct oct_net {
    net_model *model;
    oct_net_options options; /* max_batch 0 is 1 */
    oct_runtime *runtime;
    /* Made when they are first needed, for max_batch samples: what pixels become, and outputs that become classes. */
    float *values;
    void *outputs;
    atomic_flag busy; /* a thread uses them */
};

/* Makes strings of `count` lines of plain text, which are `what`; of none, NULL. One block holds them all. */
static oct_status split_lines(const char *text, size_t bytes, int64_t count, const char *what,
                              char ***lines)
{
    int64_t found = 0;
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        found += c == '\n';
        OCT_CHECK((c >= ' ' || c == '\n' || c == '\t') && c != 0x7f, OCT_DATA,
                  "the names of %s are not lines of text", what);
    }
    if (bytes == 0) return OCT_OK;
    OCT_CHECK(found == count && text[bytes - 1] == '\n', OCT_DATA,
              "has %lld lines of names of %s, and should have %lld", (long long)found, what,
              (long long)count);
    OCT_TRY(oct_alloc(lines, (size_t)count * sizeof **lines + bytes, 1));
    char *at = memcpy(*lines + count, text, bytes);
    for (int64_t i = 0; i < count; i++) {
        (*lines)[i] = at;
        at = memchr(at, '\n', bytes);
        *at++ = '\0';
    }
    return OCT_OK;
}

/* The codes that an input of the program becomes, or that its output comes from; NULL: none. What only shapes, orders or
 * takes numbers may stand between. */
static const oct_value *codes_of(const oct_program *p, int32_t value, bool output)
{
    for (int64_t n = 0; n < p->num_steps; n++) {
        const oct_step *step = &p->steps[output ? p->num_steps - 1 - n : n];
        const int32_t near = output ? step->output : step->input[0];
        const int32_t far = output ? step->input[0] : step->output;
        if (near != value) continue;
        if (step->kind == (output ? OCT_STEP_DEQUANTIZE : OCT_STEP_QUANTIZE))
            return &p->values[far];
        if (step->kind == OCT_STEP_RESHAPE || step->kind == OCT_STEP_MOVE) value = far;
    }
    return NULL;
}

/* Describes a value; codes: those that stand for it, or NULL. */
static oct_port port_of(const oct_value *value, const oct_value *codes, const char *name)
{
    static const oct_port_type types[] = {[OCT_F32] = OCT_PORT_FLOAT,
                                          [OCT_S32] = OCT_PORT_CLASS,
                                          [OCT_U8] = OCT_PORT_U8,
                                          [OCT_U16] = OCT_PORT_U16};
    oct_port port = {.name = name,
                     .h = value->h,
                     .w = value->w,
                     .c = value->c,
                     .numel = oct_value_numel(value),
                     .bytes = oct_value_bytes(value),
                     .type = types[value->dtype]};
    if (!codes) return port;
    while (codes->q.qmax - codes->q.qmin >= 1 << port.bits)
        port.bits++;
    port.scale = codes->q.scale;
    port.zero_point = codes->q.zero_point;
    return port;
}

static oct_status describe_layers(net_model *m)
{
    const oct_program *p = m->source.program;
    OCT_TRY(oct_alloc(&m->layers, (size_t)p->num_steps, sizeof *m->layers));
    for (int64_t i = 0; i < p->num_steps; i++) {
        const oct_value *value = oct_step_output(p, &p->steps[i]);
        const bool is_code = value->dtype == OCT_U8 || value->dtype == OCT_U16;
        m->layers[i] = port_of(value, is_code ? value : NULL, p->steps[i].name);
    }
    return OCT_OK;
}

/* Gives a share of the model back. */
static void release_model(net_model *m)
{
    if (atomic_fetch_sub(&m->nets, 1) > 1) return;
    oct_packed_destroy(&m->packed);
    m->source.release(m->source.owner);
    OCT_FREE_ALL(&m->class_names, &m->port_names, &m->layers, &m);
}

static oct_status make_net(oct_net **net, net_model *model, const oct_net_options *options)
{
    oct_net *made = NULL;
    OCT_TRY(oct_alloc(&made, 1, sizeof *made));
    if (options) made->options = *options;
    if (made->options.max_batch == 0) made->options.max_batch = 1;
    atomic_flag_clear(&made->busy);
    oct_runtime_options of_runtime = {.max_batch = made->options.max_batch,
                                      .threads = made->options.threads,
                                      .host = oct_this_library.host};
    oct_status status = OCT_OK;
    if (!model->packed) /* the first net, which its clones are like */
        status = oct_packed_create(&model->packed, model->source.program, &of_runtime);
    of_runtime.packed = model->packed;
    if (status == OCT_OK)
        status = oct_runtime_create(&made->runtime, model->source.program, &of_runtime);
    if (status != OCT_OK) {
        oct_free(&made);
        return status;
    }
    atomic_fetch_add(&model->nets, 1);
    made->model = model;
    *net = made;
    return OCT_OK;
}

oct_status oct_net_create(oct_net **net, const oct_net_source *source,
                          const oct_net_options *options)
{
    const oct_program *p = source->program;
    net_model *m = NULL;
    oct_status status = oct_alloc(&m, 1, sizeof *m);
    if (status != OCT_OK) {
        source->release(source->owner);
        return status;
    }
    m->source = *source;
    atomic_init(&m->nets, 1);
    if (!options || !options->large) OCT_TRY_OUT(oct_program_check_costs(p, source->golden_count));
    OCT_TRY_OUT(split_lines(source->class_names, source->class_names_bytes, source->classes,
                            "its classes", &m->class_names));
    if (p->num_inputs == 1)
        OCT_TRY_OUT(split_lines(source->port_names, source->port_names_bytes, 2,
                                "its input and its output", &m->port_names));
    for (int i = 0; i < p->num_inputs; i++)
        m->input[i] = port_of(&p->values[p->inputs[i]], codes_of(p, p->inputs[i], false),
                              m->port_names ? m->port_names[0] : "");
    m->output = port_of(&p->values[p->output], codes_of(p, p->output, true),
                        m->port_names ? m->port_names[1] : "");
    OCT_TRY_OUT(describe_layers(m));
    status = make_net(net, m, options);
out:
    release_model(m);
    return status;
}

oct_status oct_net_clone(oct_net **clone, const oct_net *net)
{
    OCT_CHECK(clone, OCT_USAGE, "oct_net_clone has no place for the clone: NULL");
    *clone = NULL;
    OCT_CHECK(net, OCT_USAGE, "oct_net_clone has no net: NULL");
    return make_net(clone, net->model, &net->options);
}

void oct_net_close(oct_net **net)
{
    oct_net *n = net ? *net : NULL;
    if (!n) return;
    oct_runtime_destroy(&n->runtime);
    oct_free(&n->values);
    oct_free(&n->outputs);
    release_model(n->model);
    oct_free(net);
}

int oct_net_num_inputs(const oct_net *net)
{
    return net ? net->model->source.program->num_inputs : 0;
}

const oct_port *oct_net_input(const oct_net *net, int i)
{
    return i >= 0 && i < oct_net_num_inputs(net) ? &net->model->input[i] : NULL;
}

const oct_port *oct_net_output(const oct_net *net)
{
    return net ? &net->model->output : NULL;
}

size_t oct_net_pixels(const oct_net *net)
{
    return oct_net_num_inputs(net) == 1 ? (size_t)net->model->input[0].numel : 0;
}

int oct_net_num_classes(const oct_net *net)
{
    return net ? net->model->source.classes : 0;
}

const char *oct_net_class_name(const oct_net *net, int k)
{
    const bool named = k >= 0 && k < oct_net_num_classes(net) && net->model->class_names;
    return named ? net->model->class_names[k] : NULL;
}

int64_t oct_net_num_rows(const oct_net *net)
{
    const oct_port *out = oct_net_output(net);
    if (!out) return 0;
    return out->type == OCT_PORT_CLASS ? out->numel : out->numel / net->model->source.classes;
}

oct_status oct_net_run(oct_net *net, int64_t samples, const float *const *inputs, void *output)
{
    OCT_CHECK(net, OCT_USAGE, "oct_net_run has no net: NULL");
    return oct_runtime_run(net->runtime, samples, inputs, output);
}

int oct_net_num_layers(const oct_net *net)
{
    return net ? (int)net->model->source.program->num_steps : 0;
}

const oct_port *oct_net_layer(const oct_net *net, int i)
{
    return i >= 0 && i < oct_net_num_layers(net) ? &net->model->layers[i] : NULL;
}

const char *oct_net_layer_kind(const oct_net *net, int i)
{
    if (i < 0 || i >= oct_net_num_layers(net)) return NULL;
    return oct_step_operation(&net->model->source.program->steps[i]);
}

typedef struct layer_watch {
    const oct_program *program;
    oct_net_layer_fn show;
    void *user;
} layer_watch;

static void show_layer(void *user, int64_t value, const oct_step *step, const void *data,
                       size_t bytes)
{
    const layer_watch *watch = user;
    (void)value, (void)bytes;
    watch->show(watch->user, (int)(step - watch->program->steps), data);
}

oct_status oct_net_run_layers(oct_net *net, int64_t samples, const float *const *inputs,
                              void *output, oct_net_layer_fn show, void *user)
{
    OCT_CHECK(net, OCT_USAGE, "oct_net_run_layers has no net: NULL");
    OCT_CHECK(show, OCT_USAGE, "oct_net_run_layers has no function to show layers to: NULL");
    layer_watch watch = {.program = net->model->source.program, .show = show, .user = user};
    return oct_runtime_watch(net->runtime, samples, inputs, output, show_layer, &watch);
}

/* Takes the buffers of the net for this thread, until leave; makes them where they are not there yet. */
static oct_status enter(oct_net *net, const char *function)
{
    OCT_CHECK(net, OCT_USAGE, "%s has no net: NULL", function);
    OCT_CHECK(!atomic_flag_test_and_set_explicit(&net->busy, memory_order_acquire), OCT_USAGE,
              "this net is at work in another thread; make one for each with oct_net_clone");
    const size_t samples = (size_t)net->options.max_batch;
    oct_status status = OCT_OK;
    if (!net->outputs) status = oct_alloc(&net->outputs, samples, net->model->output.bytes);
    if (status == OCT_OK && !net->values)
        status = oct_alloc(&net->values, samples, net->model->input[0].bytes);
    if (status != OCT_OK) atomic_flag_clear(&net->busy);
    return status;
}

static oct_status leave(oct_net *net, oct_status status)
{
    atomic_flag_clear_explicit(&net->busy, memory_order_release);
    return status;
}

oct_status oct_net_verify(oct_net *net)
{
    oct_status status = OCT_OK;
    OCT_TRY(enter(net, "oct_net_verify"));
    const oct_net_source *s = &net->model->source;
    const float *input[OCT_PROGRAM_INPUTS], *next = s->golden_input;
    OCT_CHECK_OUT(s->golden_count > 0, OCT_USAGE, "the model has no golden inputs to compute");
    for (int64_t n = 0; n < s->golden_count; n++) {
        for (int i = 0; i < s->program->num_inputs; i++) {
            input[i] = next;
            next += net->model->input[i].numel;
        }
        OCT_TRY_OUT(oct_runtime_run(net->runtime, 1, input, net->outputs));
        OCT_CHECK_OUT(s->is_golden(s->owner, n, net->outputs), OCT_MISMATCH,
                      "golden input %lld: the output has other bits than the one in the file",
                      (long long)n);
    }
out:
    return leave(net, status);
}

/* Bytes from one channel, column, row and image to the next. */
typedef struct pixel_strides {
    size_t channel, column, row, image;
    bool reversed; /* the last channel comes first */
} pixel_strides;

/* Completes a stride that is 0, or checks it: it leads from one `what` of `least` bytes to the next. */
static oct_status take_stride(size_t given, size_t usual, size_t least, const char *what,
                              size_t *stride)
{
    *stride = given ? given : usual;
    OCT_CHECK(*stride >= least, OCT_USAGE, "%s_stride is %zu bytes, and %ss have %zu", what, given,
              what, least);
    return OCT_OK;
}

static oct_status find_strides(const oct_port *in, const oct_pixels *layout, pixel_strides *strides)
{
    const oct_pixels l = layout ? *layout : (oct_pixels){0};
    const size_t h = (size_t)in->h, w = (size_t)in->w, c = (size_t)in->c;
    const bool padded = l.order == OCT_PIXELS_PADDED || l.order == OCT_PIXELS_REVERSED_PADDED;
    const bool planes = l.order == OCT_PIXELS_PLANES;
    size_t image; /* from its first row to the end of its last */
    strides->reversed = l.order == OCT_PIXELS_REVERSED || l.order == OCT_PIXELS_REVERSED_PADDED;
    OCT_CHECK((unsigned)l.order <= OCT_PIXELS_PLANES, OCT_USAGE,
              "%d is no order of pixels; they are numbered from 0 to %d", (int)l.order,
              OCT_PIXELS_PLANES);
    OCT_CHECK(!strides->reversed || c > 1, OCT_USAGE,
              "pixels of one channel have no reversed order; pass OCT_PIXELS_AS_TRAINED");
    strides->column = planes ? 1 : padded ? c + 1 : c;
    const size_t row = w * strides->column, rows = planes ? c * h : h;
    OCT_TRY(take_stride(l.row_stride, row, row, "row", &strides->row));
    strides->channel = planes ? h * strides->row : 1;
    OCT_CHECK(!__builtin_mul_overflow(rows, strides->row, &image), OCT_USAGE,
              "row_stride is %zu bytes, and %zu rows of them fit into no memory", l.row_stride,
              rows);
    return take_stride(l.image_stride, image, image - (strides->row - row), "image",
                       &strides->image);
}

/* Normalises images by the table of the model, whose values are those of training. */
static void normalise(const net_model *m, int64_t samples, const uint8_t *pixels,
                      const pixel_strides *strides, float *out)
{
    const oct_port *in = &m->input[0];
    const int64_t tables = m->source.pixel_tables;
    for (int64_t row = 0; row < samples * in->h; row++, out += in->w * in->c) {
        const uint8_t *from =
            pixels + (size_t)(row / in->h) * strides->image + (size_t)(row % in->h) * strides->row;
        for (int64_t k = 0; k < in->c; k++) {
            const float *values = m->source.pixels + (tables == 1 ? 0 : k) * OCT_PIXEL_VALUES;
            const uint8_t *at =
                from + (size_t)(strides->reversed ? in->c - 1 - k : k) * strides->channel;
            for (int64_t x = 0; x < in->w; x++, at += strides->column)
                out[x * in->c + k] = values[*at];
        }
    }
}

static oct_status run_pixels(const oct_net *net, int64_t samples, const uint8_t *pixels,
                             const oct_pixels *layout, void *output)
{
    const net_model *m = net->model;
    pixel_strides strides = {0};
    OCT_CHECK(pixels && output, OCT_USAGE,
              "a run needs pixels and room for what comes out; NULL is none");
    OCT_CHECK(m->source.program->num_inputs == 1, OCT_USAGE,
              "the net has %d inputs, and pixels are for one; make floats of them and call "
              "oct_net_run",
              m->source.program->num_inputs);
    OCT_CHECK(samples >= 0 && samples <= net->options.max_batch, OCT_USAGE,
              "%lld samples; a run of this net has 0 to %lld (the option max_batch)",
              (long long)samples, (long long)net->options.max_batch);
    OCT_TRY(find_strides(&m->input[0], layout, &strides));
    normalise(m, samples, pixels, &strides, net->values);
    return oct_runtime_run(net->runtime, samples, (const float *[]){net->values}, output);
}

oct_status oct_net_run_pixels(oct_net *net, int64_t samples, const uint8_t *pixels,
                              const oct_pixels *layout, void *output)
{
    OCT_TRY(enter(net, "oct_net_run_pixels"));
    return leave(net, run_pixels(net, samples, pixels, layout, output));
}

/* Classes of the outputs, and the softmax at each: where several logits are infinite, they share it. */
static void classify(const oct_net *net, int64_t samples, int32_t *classes, float *scores)
{
    const int64_t rows = samples * oct_net_num_rows(net), n = net->model->source.classes;
    if (net->model->output.type == OCT_PORT_CLASS) {
        memcpy(classes, net->outputs, (size_t)rows * sizeof *classes);
        for (int64_t i = 0; scores && i < rows; i++)
            scores[i] = NAN;
        return;
    }
    fenv_t rounding;
    const float *y = net->outputs;
    oct_argmax_rows(OCT_F32, rows, n, y, classes);
    oct_round_to_nearest(&rounding);
    for (int64_t i = 0; scores && i < rows; i++, y += n) {
        const float best = y[classes[i]];
        double sum = 0;
        for (int64_t k = 0; k < n; k++)
            sum += y[k] == best ? 1 : exp((double)y[k] - (double)best);
        scores[i] = (float)(1 / sum);
    }
    oct_round_as_before(&rounding);
}

oct_status oct_net_classify(oct_net *net, int64_t samples, const uint8_t *pixels,
                            const oct_pixels *layout, int32_t *classes, float *scores)
{
    OCT_CHECK(classes, OCT_USAGE, "oct_net_classify has no room for the classes: NULL");
    OCT_TRY(enter(net, "oct_net_classify"));
    const oct_status status = run_pixels(net, samples, pixels, layout, net->outputs);
    if (status == OCT_OK) classify(net, samples, classes, scores);
    return leave(net, status);
}
