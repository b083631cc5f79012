/* What a device must have for an int8 model: room for constants and values, and time for products. */
#include "launch/cmd/device_view.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "launch/base/meter.h"
#include "launch/base/output.h"
#include "launch/run/certificate.h"
#include "quant/runtime/planner.h"
#include "quant/runtime/step.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* What is told of each layer. */
enum { FLASH, VALUES, PRODUCTS, FIGURES };
static const char *const figure_names[FIGURES] = {"flash", "scratch", "multiply-adds"};
static const char *const json_names[FIGURES] = {"flash", "values", "multiply_adds"};

typedef struct device {
    const oct_program *program;
    int64_t (*of)[FIGURES]; /* of each step */
    int64_t flash, scratch, products;
} device;

/* Products of codes and weights; of a transposed convolution without those of the zeros that dilate its input. */
static int64_t products_of(const oct_step *step)
{
    const oct_conv_shape *s = &step->conv;
    if (!oct_step_type_of(step->kind)->weights) return 0;
    const int64_t products = oct_conv_out_numel(s) * oct_conv_depth(s);
    const int64_t zeros = (step->input_step_h > 1 ? step->input_step_h : 1) *
                          (int64_t)(step->input_step_w > 1 ? step->input_step_w : 1);
    return products / zeros;
}

/* The last step that uses each value, or the one that makes it. */
static void find_last_uses(const oct_program *program, int64_t *last)
{
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        last[step->output] = i;
        for (int k = 0; k < step->num_inputs; k++)
            last[step->input[k]] = i;
    }
}

/* How far the values reach that are in memory while a step runs. */
static int64_t reach(const oct_program *program, const int64_t *offsets, const int64_t *last,
                     int64_t number)
{
    int64_t end = 0;
    for (int64_t i = 0; i <= number; i++) {
        const int32_t value = program->steps[i].output;
        if (last[value] < number || offsets[value] < 0) continue;
        end = oct_max_i64(end, offsets[value] + (int64_t)oct_value_bytes(&program->values[value]));
    }
    return end;
}

static oct_status find_figures(device *d)
{
    const oct_program *program = d->program;
    int64_t *offsets = NULL, *last = NULL;
    oct_status status;
    OCT_TRY_OUT(oct_alloc(&d->of, (size_t)program->num_steps, sizeof *d->of));
    OCT_TRY_OUT(oct_alloc(&offsets, (size_t)program->num_values, sizeof *offsets));
    OCT_TRY_OUT(oct_alloc(&last, (size_t)program->num_values, sizeof *last));
    OCT_TRY_OUT(oct_plan_values(program, offsets, &d->scratch));
    find_last_uses(program, last);
    for (int64_t i = 0; i < program->num_steps; i++) {
        const oct_step *step = &program->steps[i];
        d->of[i][FLASH] = oct_step_bytes(program, step);
        d->of[i][VALUES] = reach(program, offsets, last, i);
        d->of[i][PRODUCTS] = products_of(step);
        d->flash += d->of[i][FLASH];
        d->products += d->of[i][PRODUCTS];
    }
out:
    oct_free(&offsets);
    oct_free(&last);
    return status;
}

static oct_status print_layers(const device *d)
{
    const oct_program *p = d->program;
    char flash[32], values[32], products[32];
    int width = 5;
    for (int64_t i = 0; i < p->num_steps; i++)
        if ((int)strlen(p->steps[i].name) > width) width = (int)strlen(p->steps[i].name);
    OCT_TRY(oct_print("%3s  %-*s  %-11s %12s %12s %16s\n", "#", width, "layer", "kind", "flash",
                      "scratch", "multiply-adds"));
    for (int64_t i = 0; i < p->num_steps; i++)
        OCT_TRY(oct_print("%3" PRId64 "  %-*s  %-11s %12s %12s %16s\n", i, width, p->steps[i].name,
                          oct_step_type_of(p->steps[i].kind)->name,
                          oct_text_count(d->of[i][FLASH], flash),
                          oct_text_count(d->of[i][VALUES], values),
                          oct_text_count(d->of[i][PRODUCTS], products)));
    return OCT_OK;
}

/* The three layers with most of a figure. */
static oct_status print_largest(const device *d, int figure, int64_t all)
{
    enum { SHOWN = 3 };
    int64_t best[SHOWN];
    int count = 0;
    for (int64_t i = 0; i < d->program->num_steps; i++) {
        int at = count;
        while (at > 0 && d->of[best[at - 1]][figure] < d->of[i][figure])
            at--;
        if (at == SHOWN || d->of[i][figure] == 0) continue;
        if (count < SHOWN) count++;
        for (int k = count - 1; k > at; k--)
            best[k] = best[k - 1];
        best[at] = i;
    }
    if (count == 0) return OCT_OK;
    OCT_TRY(oct_print("most %s: ", figure_names[figure]));
    for (int k = 0; k < count; k++)
        OCT_TRY(oct_print("%s%s %.0f %%", k ? ", " : "", d->program->steps[best[k]].name,
                          100.0 * (double)d->of[best[k]][figure] / (double)all));
    return oct_print("\n");
}

static oct_status print_text(const device *d, const char *path)
{
    char flash[32], scratch[32], products[32];
    OCT_TRY(oct_print("int8 model  %s\nflash       %s bytes: weights, biases, multipliers, tables\n"
                      "scratch     %s bytes: values between layers, of one sample\n"
                      "operations  %s multiply-adds of codes a sample\n",
                      path, oct_text_count(d->flash, flash), oct_text_count(d->scratch, scratch),
                      oct_text_count(d->products, products)));
    OCT_TRY(print_layers(d));
    OCT_TRY(print_largest(d, FLASH, d->flash));
    OCT_TRY(print_largest(d, VALUES, d->scratch));
    return print_largest(d, PRODUCTS, d->products);
}

static oct_status print_json(const device *d, const char *path)
{
    json_t *layers = json_array();
    for (int64_t i = 0; i < d->program->num_steps; i++) {
        json_t *layer = json_pack("{s:s, s:s}", "name", d->program->steps[i].name, "kind",
                                  oct_step_type_of(d->program->steps[i].kind)->name);
        for (int k = 0; k < FIGURES; k++)
            json_object_set_new(layer, json_names[k], json_integer((json_int_t)d->of[i][k]));
        json_array_append_new(layers, layer);
    }
    return oct_print_json(json_pack("{s:s, s:s, s:I, s:I, s:I, s:o}", "kind", "device", "file",
                                    path, "flash", (json_int_t)d->flash, "scratch",
                                    (json_int_t)d->scratch, "multiply_adds",
                                    (json_int_t)d->products, "layers", layers));
}

oct_status oct_print_device(const oct_model *model, const char *path, bool json)
{
    device d = {.program = &model->program};
    oct_status status = find_figures(&d);
    if (status == OCT_OK) status = json ? print_json(&d, path) : print_text(&d, path);
    oct_free(&d.of);
    return status;
}
