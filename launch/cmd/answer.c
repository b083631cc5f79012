/* Each kind of answer prints itself and adds itself to a JSON object. */
#include "launch/cmd/run.h"

#include "core/base/mem.h"
#include "core/op/loss.h"
#include "core/tensor/tensor.h"
#include "io/model/class_names.h"
#include "launch/base/output.h"
#include "quant/program/step.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

/* How many guesses of one class, and how many numbers, people see; JSON has them all. */
enum { SHOWN = 3, LISTED = 100 };

static int64_t outputs_of(const oct_answer *a)
{
    return oct_value_numel(a->out);
}

/* Sets "name" of an object to that of a class, where classes have names; returns the object. */
static json_t *set_name(json_t *object, const char *names, int64_t class)
{
    if (names) json_object_set_new(object, "name", json_string(oct_class_name(names, class).text));
    return object;
}

static void print_rest(int64_t count)
{
    if (count > 0) oct_print(" and %" PRId64 " more, which --json shows", count);
}

/* One class of several: the likeliest by softmax. */

typedef struct guess {
    int class;
    double probability;
} guess;

/* Finds the classes with the largest logits, and their softmax probabilities. */
static int find_best_guesses(const float *logits, int classes, guess best[SHOWN])
{
    double sum = 0, largest = (double)logits[0];
    int n = 0;
    for (int k = 1; k < classes; k++)
        largest = fmax(largest, (double)logits[k]);
    for (int k = 0; k < classes; k++) {
        double p = exp((double)logits[k] - largest);
        int rank = n < SHOWN ? n++ : SHOWN;
        sum += p;
        for (; rank > 0 && best[rank - 1].probability < p; rank--)
            if (rank < SHOWN) best[rank] = best[rank - 1];
        if (rank < SHOWN) best[rank] = (guess){k, p};
    }
    for (int i = 0; i < n; i++)
        best[i].probability /= sum;
    return n;
}

static oct_status print_class(const oct_answer *a)
{
    guess best[SHOWN] = {0};
    const int n = find_best_guesses(a->y, (int)outputs_of(a), best);
    oct_print("%s, %.1f %%", oct_class_name(a->names, best[0].class).text,
              100 * best[0].probability);
    for (int i = 1; i < n; i++)
        oct_print("%s %s %.1f %%", i == 1 ? "; then" : ",",
                  oct_class_name(a->names, best[i].class).text, 100 * best[i].probability);
    return OCT_OK;
}

static oct_status add_class(const oct_answer *a, json_t *object)
{
    guess best[SHOWN] = {0};
    const int n = find_best_guesses(a->y, (int)outputs_of(a), best);
    json_t *top = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(top, set_name(json_pack("{s:i, s:f}", "class", best[i].class,
                                                      "probability", best[i].probability),
                                            a->names, best[i].class));
    json_object_set_new(object, "class", json_integer(best[0].class));
    json_object_set_new(object, "top", top);
    set_name(object, a->names, best[0].class);
    return OCT_OK;
}

/* A model that returns class numbers says nothing of how sure it is. */

static oct_status print_class_numbers(const oct_answer *a)
{
    const int32_t *predicted = a->y;
    const bool named = a->names && outputs_of(a) == 1;
    oct_print("%s", named ? oct_class_name(a->names, predicted[0]).text : "class");
    for (int64_t k = 0; !named && k < outputs_of(a); k++)
        oct_print(" %d", (int)predicted[k]);
    return OCT_OK;
}

static oct_status add_class_numbers(const oct_answer *a, json_t *object)
{
    const int32_t *predicted = a->y;
    if (outputs_of(a) == 1) {
        json_object_set_new(object, "class", json_integer(predicted[0]));
        set_name(object, a->names, predicted[0]);
        return OCT_OK;
    }
    json_t *all = json_array();
    for (int64_t k = 0; k < outputs_of(a); k++)
        json_array_append_new(all, json_integer(predicted[k]));
    json_object_set_new(object, "classes", all);
    return OCT_OK;
}

/* Several labels: each is there or not, as the sigmoid of its output says. */

static double probability_of(const oct_answer *a, int64_t k)
{
    return 1 / (1 + exp(-(double)((const float *)a->y)[k]));
}

static bool is_present(const oct_answer *a, int64_t k)
{
    return probability_of(a, k) > 0.5;
}

/* Prints the labels that are present, or those that are not; at most LISTED of both. */
static void print_labels_if(const oct_answer *a, bool present, int64_t *listed)
{
    int64_t found = 0, printed = 0;
    for (int64_t k = 0; k < outputs_of(a); k++) {
        if (is_present(a, k) != present || found++ + *listed >= LISTED) continue;
        oct_print("%s%s %.1f %%",
                  printed++ ? ", "
                  : present ? ""
                            : "; not ",
                  oct_class_name(a->names, k).text, 100 * probability_of(a, k));
    }
    *listed += printed;
    if (present && found == 0) oct_print("none");
    print_rest(found - printed);
}

static oct_status print_labels(const oct_answer *a)
{
    int64_t listed = 0;
    print_labels_if(a, true, &listed);
    print_labels_if(a, false, &listed);
    return OCT_OK;
}

static oct_status add_labels(const oct_answer *a, json_t *object)
{
    json_t *labels = json_array();
    for (int64_t k = 0; k < outputs_of(a); k++)
        json_array_append_new(
            labels,
            set_name(json_pack("{s:I, s:o, s:b}", "label", (json_int_t)k, "probability",
                               oct_json_number(probability_of(a, k)), "there", is_present(a, k)),
                     a->names, k));
    json_object_set_new(object, "labels", labels);
    return OCT_OK;
}

/* Quantities are the outputs as they are. */

static oct_status print_quantities(const oct_answer *a)
{
    const float *y = a->y;
    const int64_t n = outputs_of(a), listed = n < LISTED ? n : LISTED;
    for (int64_t k = 0; k < listed; k++) {
        const char *before = k == 0 ? "" : ", ";
        a->names ? oct_print("%s%s %g", before, oct_class_name(a->names, k).text, (double)y[k])
                 : oct_print("%s%g", before, (double)y[k]);
    }
    print_rest(n - listed);
    return OCT_OK;
}

static oct_status add_quantities(const oct_answer *a, json_t *object)
{
    json_t *values = json_array();
    for (int64_t k = 0; k < outputs_of(a); k++) {
        json_t *value = oct_json_number((double)((const float *)a->y)[k]);
        json_array_append_new(
            values, a->names ? set_name(json_pack("{s:o}", "value", value), a->names, k) : value);
    }
    json_object_set_new(object, "values", values);
    return OCT_OK;
}

/* A map has a class for each pixel; the answer is the share of each class that is there. */

typedef struct share {
    int32_t class;
    int64_t pixels;
} share;

static int64_t pixels_of(const oct_answer *a)
{
    return a->out->h * a->out->w;
}

static oct_status find_pixel_classes(const oct_answer *a, int32_t **class)
{
    const int64_t pixels = pixels_of(a);
    OCT_TRY(oct_alloc(class, (size_t)pixels, sizeof **class));
    if (a->out->dtype == OCT_F32)
        oct_argmax_rows(OCT_F32, pixels, a->out->c, a->y, *class);
    else
        for (int64_t i = 0; i < pixels; i++)
            (*class)[i] = ((const int32_t *)a->y)[i];
    return OCT_OK;
}

static int by_class(const void *a, const void *b)
{
    const share *x = a, *y = b;
    return (x->class > y->class) - (x->class < y->class);
}

static int by_pixels(const void *a, const void *b)
{
    const share *x = a, *y = b;
    return x->pixels == y->pixels ? by_class(a, b) : x->pixels < y->pixels ? 1 : -1;
}

/* Counts the pixels of each class that occurs, the largest share first. */
static oct_status find_shares(const oct_answer *a, share **shares, size_t *count)
{
    const size_t pixels = (size_t)pixels_of(a);
    OCT_OWNED(oct_free) int32_t *class = NULL;
    *shares = NULL;
    *count = 0;
    OCT_TRY(find_pixel_classes(a, &class));
    OCT_TRY(oct_alloc(shares, pixels, sizeof **shares));
    for (size_t i = 0; i < pixels; i++)
        (*shares)[i] = (share){class[i], 1};
    qsort(*shares, pixels, sizeof **shares, by_class);
    for (size_t i = 0; i < pixels; i++)
        if (*count > 0 && (*shares)[*count - 1].class == (*shares)[i].class)
            (*shares)[*count - 1].pixels++;
        else
            (*shares)[(*count)++] = (*shares)[i];
    qsort(*shares, *count, sizeof **shares, by_pixels);
    return OCT_OK;
}

static double share_of(const oct_answer *a, const share *s)
{
    return (double)s->pixels / (double)pixels_of(a);
}

static oct_status print_pixel_shares(const oct_answer *a)
{
    OCT_OWNED(oct_free) share *shares = NULL;
    size_t count;
    OCT_TRY(find_shares(a, &shares, &count));
    for (size_t i = 0; i < count && i < LISTED; i++)
        oct_print("%s%s %.1f %%", i == 0 ? "" : ", ",
                  oct_class_name(a->names, shares[i].class).text, 100 * share_of(a, &shares[i]));
    print_rest((int64_t)count - LISTED);
    return OCT_OK;
}

static oct_status add_pixel_shares(const oct_answer *a, json_t *object)
{
    OCT_OWNED(oct_free) share *shares = NULL;
    size_t count;
    json_t *all = json_array();
    const oct_status status = find_shares(a, &shares, &count);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(
            all, set_name(json_pack("{s:i, s:I, s:f}", "class", (int)shares[i].class, "pixels",
                                    (json_int_t)shares[i].pixels, "share", share_of(a, &shares[i])),
                          a->names, shares[i].class));
    json_object_set_new(object, "shares", all);
    return status;
}

static oct_status draw_map(const oct_answer *a, oct_image *picture)
{
    OCT_OWNED(oct_free) int32_t *class = NULL;
    OCT_TRY(find_pixel_classes(a, &class));
    OCT_TRY(oct_image_resize(picture, OCT_U8, a->out->h, a->out->w, 1));
    for (int64_t i = 0; i < pixels_of(a); i++) {
        OCT_CHECK(class[i] >= 0 && class[i] <= UINT8_MAX, OCT_DATA,
                  "--output: a pixel is of class %d, but the grey pixels of a PNG file hold "
                  "classes 0 to 255; leave --output out",
                  (int)class[i]);
        ((uint8_t *)picture->data)[i] = (uint8_t) class[i];
    }
    return OCT_OK;
}

/* A model of its own input: the error is large where the input is unlike the training data. */

static double squared_error_of(const oct_answer *a)
{
    const float *y = a->y;
    double sum = 0;
    for (int64_t k = 0; k < outputs_of(a); k++) {
        const double difference = (double)y[k] - (double)a->x[k];
        sum += difference * difference;
    }
    return sum / (double)outputs_of(a);
}

static oct_status print_error(const oct_answer *a)
{
    oct_print("mean squared error %.6g", squared_error_of(a));
    return OCT_OK;
}

static oct_status add_error(const oct_answer *a, json_t *object)
{
    json_object_set_new(object, "mean_squared_error", oct_json_number(squared_error_of(a)));
    return OCT_OK;
}

static const oct_answer_kind answer_class = {print_class, add_class, NULL};
static const oct_answer_kind answer_numbers = {print_class_numbers, add_class_numbers, NULL};
static const oct_answer_kind answer_labels = {print_labels, add_labels, NULL};
static const oct_answer_kind answer_quantities = {print_quantities, add_quantities, NULL};
static const oct_answer_kind answer_error = {print_error, add_error, NULL};
static const oct_answer_kind answer_map = {print_pixel_shares, add_pixel_shares, draw_map};

const oct_answer_kind *oct_answer_kind_of(const oct_recipe *recipe, const oct_value *in,
                                          const oct_value *out)
{
    const bool numbers = out->dtype == OCT_S32, same_plane = in->h == out->h && in->w == out->w;
    const bool map = recipe->data_goal == OCT_GOAL_MAP;
    if (map && same_plane && (!numbers || out->c == 1)) return &answer_map;
    if (numbers) return &answer_numbers;
    if (recipe->data_goal == OCT_GOAL_CLASS) return &answer_class;
    if (recipe->data_goal == OCT_GOAL_VALUES || recipe->data_goal == OCT_GOAL_NONE) {
        /* Where the plug-in of a loss is not loaded, the outputs are shown as they are. */
        const oct_loss_kind *loss = oct_loss_find(recipe->loss_kind);
        if (loss && loss->outputs == OCT_OUTPUTS_SOFTMAX) return &answer_class;
        return loss && loss->outputs == OCT_OUTPUTS_SIGMOID ? &answer_labels : &answer_quantities;
    }
    return !map && oct_value_numel(in) == oct_value_numel(out) ? &answer_error : &answer_quantities;
}
