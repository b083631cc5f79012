#include "io/export/program_parts.h"

#include "core/base/mem.h"
#include "io/batch/normalise.h"
#include "quant/program/step.h"
#include "quant/rounding/qparams.h"

#include <stdio.h>
#include <string.h>

oct_step_tensor_name oct_export_step_name(const oct_program *program, int64_t number)
{
    oct_step_tensor_name name;
    int calls = 1;
    for (int64_t i = 0; i < number; i++)
        calls += strcmp(program->steps[i].name, program->steps[number].name) == 0;
    snprintf(name.text, sizeof name.text, calls > 1 ? "%s:%d" : "%s", program->steps[number].name,
             calls);
    return name;
}

/* Sums of an affine step are over code - zero point already, so its biases stay. */
int64_t oct_export_bias(const oct_step *step, oct_qparams in, int64_t o)
{
    const int64_t depth = oct_conv_depth(&step->conv.shape);
    int64_t sum = 0;
    for (int64_t i = 0; step->kind != OCT_STEP_AFFINE && i < depth; i++)
        sum += step->conv.weight[o * depth + i];
    return step->conv.bias[o] + in.zero_point * sum;
}

bool oct_export_biases(const oct_step *step, oct_qparams in, int32_t *bias, float *scale)
{
    for (int64_t o = 0; o < step->conv.shape.out_c; o++) {
        const int64_t wide = oct_export_bias(step, in, o);
        if (wide < INT32_MIN || wide > INT32_MAX) return false;
        bias[o] = (int32_t)wide;
        scale[o] = in.scale * step->conv.weight_scale[o];
    }
    return true;
}

void oct_export_weights(const oct_step *step, int64_t channels, const int64_t strides[3], int zero,
                        uint8_t *codes)
{
    const int8_t *weight = step->conv.weight;
    const int64_t taps = oct_conv_depth(&step->conv.shape) / channels;
    for (int64_t o = 0; o < step->conv.shape.out_c; o++)
        for (int64_t t = 0; t < taps; t++)
            for (int64_t c = 0; c < channels; c++)
                codes[o * strides[0] + t * strides[1] + c * strides[2]] =
                    (uint8_t)(*weight++ + zero);
}

oct_status oct_export_numbers(oct_text *text, const float *values, int64_t channels)
{
    for (int64_t i = 0; i < oct_export_channels(channels); i++)
        OCT_TRY(oct_text_add(text, "%s%.9g", i ? " " : "", (double)values[i]));
    return OCT_OK;
}

/* The step runs on a plane whose pixel i is code i throughout. */
oct_status oct_export_table(const oct_program *program, const oct_step *step, uint8_t *table)
{
    const oct_step_type *type = oct_step_type_of(step->kind);
    const oct_kernel *kernel = oct_kernel_here();
    const int64_t channels = step->conv.shape.in_c;
    OCT_OWNED(oct_free) uint8_t *codes = NULL, *made = NULL, *packed = NULL, *scratch = NULL;
    oct_step plane = *step;
    plane.conv.shape.in_h = plane.conv.shape.out_h = OCT_EXPORT_CODES;
    plane.conv.shape.in_w = plane.conv.shape.out_w = 1;
    OCT_TRY(oct_alloc(&codes, (size_t)channels, OCT_EXPORT_CODES));
    OCT_TRY(oct_alloc(&made, (size_t)channels, OCT_EXPORT_CODES));
    OCT_TRY(oct_alloc(&packed, (size_t)type->packed_bytes(program, &plane, kernel, 1), 1));
    OCT_TRY(oct_alloc(&scratch, (size_t)type->scratch_bytes(program, &plane, kernel, 1), 1));
    for (int64_t i = 0; i < OCT_EXPORT_CODES * channels; i++)
        codes[i] = (uint8_t)(i / channels);
    type->pack(program, &plane, kernel, 1, packed);
    type->run(&(oct_step_run){.program = program,
                              .step = &plane,
                              .kernel = kernel,
                              .packed = packed,
                              .samples = 1,
                              .input = (const void *[]){codes},
                              .output = made,
                              .scratch = scratch});
    for (int64_t c = 0; c < channels; c++)
        for (int64_t code = 0; code < OCT_EXPORT_CODES; code++)
            table[c * OCT_EXPORT_CODES + code] = made[code * channels + c];
    return OCT_OK;
}

void oct_export_rescale(const oct_program *program, oct_qparams from, oct_qparams to,
                        uint8_t table[OCT_EXPORT_CODES])
{
    uint8_t in[OCT_EXPORT_CODES];
    for (int c = 0; c < OCT_EXPORT_CODES; c++)
        in[c] = (uint8_t)c;
    const oct_qconcat_input one = {.x = {.q = from, .data = in}, .c = 1};
    oct_qconcat_forward(OCT_EXPORT_CODES, 1, &one, program->requantizer, to, table);
}

/* Floats hold whole numbers below 2^24, and products of those with powers of two. */
bool oct_export_halves_differ(const oct_program *program, const oct_step *step)
{
    const oct_rounding_row *rounding = oct_rounding_of(program->requantizer);
    if (!rounding->shifts) return false;
    if (!rounding->halves_even) return true;
    if (!oct_step_type_of(step->kind)->weights) return false;
    const oct_qparams q = oct_step_input(program, step, 0)->q;
    const oct_conv_step *s = &step->conv;
    for (int64_t c = 0; c < s->shape.out_c; c++)
        if (oct_qconv_bound(&s->shape, s->weight, c, s->bias[c], q.qmin, q.qmax) >= 1 << 24)
            return true;
    return false;
}

/* The only step that reads a value; NULL: more do, or none. */
static const oct_step *find_reader(const oct_program *program, int32_t value)
{
    const oct_step *found = NULL;
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        for (int k = 0; k < step->num_inputs; k++) {
            if (step->input[k] != value) continue;
            if (found) return NULL;
            found = step;
        }
    }
    return found;
}

const oct_step *oct_export_quantizer(const oct_program *program, int32_t input)
{
    const oct_step *step = find_reader(program, input);
    while (step && (step->kind == OCT_STEP_RESHAPE || step->kind == OCT_STEP_MOVE))
        step = find_reader(program, step->output);
    return step && step->kind == OCT_STEP_QUANTIZE ? step : NULL;
}

void oct_export_pixels(const oct_step *step, oct_qparams q, int64_t channels, const float *mean,
                       const float *std, void *table)
{
    uint8_t pixels[OCT_EXPORT_CODES];
    float values[OCT_EXPORT_CODES];
    const int64_t bytes = OCT_EXPORT_CODES * (int64_t)oct_dtype_bytes(oct_codes_dtype(q));
    for (int i = 0; i < OCT_EXPORT_CODES; i++)
        pixels[i] = (uint8_t)i;
    for (int64_t c = 0; c < channels; c++) {
        const int64_t at = channels > OCT_REALS_MAX ? 0 : c;
        oct_normalise(pixels, OCT_EXPORT_CODES, 1, &mean[at], &std[at], values);
        oct_step_quantize_values(step, q, values, OCT_EXPORT_CODES, (uint8_t *)table + c * bytes,
                                 NULL, NULL);
    }
}

void oct_export_note_diff(oct_export_diff *diffs, int kind, const oct_step *step)
{
    if (diffs[kind].count++ == 0) diffs[kind].first = step->name;
}

oct_status oct_export_report_diffs(size_t n, const oct_export_diff *diffs, const char *const *words,
                                   oct_text *notices)
{
    for (size_t i = 0; i < n; i++)
        if (diffs[i].count > 0)
            OCT_TRY(oct_text_add(notices, "%s%s: %s\n", diffs[i].first,
                                 diffs[i].count > 1 ? " and others" : "", words[i]));
    return OCT_OK;
}

int64_t oct_move_source(const oct_move_map *map, int64_t i)
{
    int64_t at = map->offset;
    for (int k = map->dims - 1; k >= 0; k--) {
        at += i % map->size[k] * map->stride[k];
        i /= map->size[k];
    }
    return at;
}

bool oct_loops_find(oct_loops *l, const int32_t *index, int64_t n)
{
    *l = (oct_loops){.first = index[0]};
    for (int64_t block = 1; block < n; block *= l->size[l->count++]) {
        if (l->count == OCT_LOOPS || n % block != 0) return false;
        const int64_t stride = (int64_t)index[block] - index[0];
        int64_t size = 2;
        while (size * block < n && index[size * block] - index[0] == size * stride)
            size++;
        l->size[l->count] = size;
        l->stride[l->count] = stride;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = l->first, rest = i;
        for (int k = 0; k < l->count; k++) {
            at += rest % l->size[k] * l->stride[k];
            rest /= l->size[k];
        }
        if (rest != 0 || at != index[i]) return false;
    }
    return true;
}

bool oct_loops_transpose(const oct_loops *l, int64_t n, int64_t *dims, int64_t *perm)
{
    int order[OCT_LOOPS]; /* the loops by falling stride */
    int64_t covered = 1;
    if (l->first != 0) return false;
    for (int placed = 0; placed < l->count; placed++) {
        int next = 0;
        while (next < l->count && l->stride[next] != covered)
            next++;
        if (next == l->count) return false;
        covered *= l->size[next];
        order[l->count - 1 - placed] = next;
    }
    for (int i = 0; i < l->count; i++) {
        dims[i] = l->size[order[i]];
        for (int k = 0; k < l->count; k++) /* the output's dimension i is the loop count - 1 - i */
            if (order[k] == l->count - 1 - i) perm[i] = k;
    }
    return covered == n;
}
