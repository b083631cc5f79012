/* What formats that write integer programs share: parts of steps in other forms, and notices of what deviates. */
#pragma once

#include "core/base/text.h"
#include "quant/program/program.h"

typedef struct oct_step_tensor_name {
    char text[sizeof(((oct_step *)0)->name) + 16];
} oct_step_tensor_name;
/* Gives the name of a step's tensor: the step's own; of a layer that is called twice the second has ":2" after it. */
oct_step_tensor_name oct_export_step_name(const oct_program *program, int64_t number);
/* The bias of channel o for sums over code - zero point: bias[o] + zero point of the input * sum of its weights. */
int64_t oct_export_bias(const oct_step *step, oct_qparams in, int64_t o);
/* Gives biases without what the zero point of the input adds to the sums, and their scales, both (O); false where one
 * does not fit into 32 bits. */
bool oct_export_biases(const oct_step *step, oct_qparams in, int32_t *bias, float *scale);
/* Writes weight codes + zero in the order of a file: that of output channel o, tap t and input channel c is number
 * o * strides[0] + t * strides[1] + c * strides[2]. channels: those of the input that a filter has, of a row that was
 * flattened from a plane the plane's. */
void oct_export_weights(const oct_step *step, int64_t channels, const int64_t strides[3], int zero,
                        uint8_t *codes);
enum { OCT_EXPORT_CODES = UINT8_MAX + 1 };
/* Gives what a step of codes makes of each code in each channel: table (channels of conv, OCT_EXPORT_CODES). */
oct_status oct_export_table(const oct_program *program, const oct_step *step, uint8_t *table);
/* May a layer or product of a program that shifts round otherwise than a float requantizer with halves to even? */
bool oct_export_halves_differ(const oct_program *program, const oct_step *step);
/* Gives what codes of 8 bits become where they are concatenated with others of qparams `to`. */
void oct_export_rescale(const oct_program *program, oct_qparams from, oct_qparams to,
                        uint8_t table[OCT_EXPORT_CODES]);

/* What quantizes a program's input, perhaps in another shape; NULL: something reads its floats. */
const oct_step *oct_export_quantizer(const oct_program *program, int32_t input);
/* Gives the codes that a quantizing step makes of normalised pixels 0 to 255: table (channels, OCT_EXPORT_CODES).
 * mean, std: of each channel, or of more than OCT_REALS_MAX channels the first for all. */
void oct_export_pixels(const oct_step *step, oct_qparams q, int64_t channels, const float *mean,
                       const float *std, void *table);

/* Adds what there is one of for each channel, mean or std, with blanks between: of more than OCT_REALS_MAX channels the
 * first holds for all. */
static inline int64_t oct_export_channels(int64_t channels)
{
    return channels > OCT_REALS_MAX ? 1 : channels;
}
oct_status oct_export_numbers(oct_text *text, const float *values, int64_t channels);

/* One way to differ: how many steps do, and the name of the first. */
typedef struct oct_export_diff {
    int64_t count;
    const char *first;
} oct_export_diff;
/* Notes that a step differs in this way; kind: of a format's own list. */
void oct_export_note_diff(oct_export_diff *diffs, int kind, const oct_step *step);
/* Adds a line for each of n kinds of deviation that has occurred: the first such step, and the words for the kind. */
oct_status oct_export_report_diffs(size_t n, const oct_export_diff *diffs, const char *const *words,
                                   oct_text *notices);

/* Loops from the innermost one on: number i of the output is number `first` + the sum of i_k * stride_k. */
enum { OCT_LOOPS = 8 };
typedef struct oct_loops {
    int count;
    int64_t first, size[OCT_LOOPS], stride[OCT_LOOPS];
} oct_loops;

/* Which number of its input a move gives as number i of its output, both counted in Octet's order. */
int64_t oct_move_source(const oct_move_map *map, int64_t i);
/* Finds nested loops with constant strides that give these n indices in order; false: there are none, or too many. */
bool oct_loops_find(oct_loops *l, const int32_t *index, int64_t n);
/* Whether the loops go over all n numbers once: then they transpose numbers of sizes dims[0..count-1], outermost first,
 * to those of dims[perm[0]], dims[perm[1]], ... */
bool oct_loops_transpose(const oct_loops *l, int64_t n, int64_t *dims, int64_t *perm);
