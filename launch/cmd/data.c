/* octet data says what a data set holds before anything is trained on it, or draws what training will see. */
#include "io/batch/normalise.h"
#include "io/file/file.h"
#include "launch/base/machine.h"
#include "launch/cmd/command.h"
#include "launch/cmd/begun_recipe.h"
#include "launch/cmd/data.h"
#include "launch/cmd/recipe_args.h"
#include "launch/report/page.h"
#include "launch/session/build.h"
#include "launch/session/file_kind.h"

#include <math.h>
#include <omp.h>

enum { PREVIEW, SAMPLES };
enum { SAMPLES_STANDARD = 8, CLASSES_SHOWN = 40, CLASSES_CUT = 10, SIZES_SHOWN = 5 };

static const oct_option options[] = {
    [PREVIEW] =
        OCT_TEXT(0, "--preview", "FILE.html",
                 "write a page of training samples as the model will get them, and nothing else"),
    [SAMPLES] = OCT_NUMBER(0, "--samples", "N", 1, 100, "samples of that page (default 8)"),
    {0},
};

/* Below this standard deviation a channel has the same value everywhere. */
#define SAME_STD 1e-9

static const char *const split_names[2] = {"training", "test"};

/* Prints the goal of data with several values a sample: labels, where all are 0 or 1, or numbers and their range. */
static void print_values(const oct_dataset *data)
{
    const int64_t all = data->count * data->classes;
    double least = (double)data->values[0], most = least, sum = 0;
    bool labels = true;
    for (int64_t i = 0; i < all; i++) {
        const double value = (double)data->values[i];
        least = value < least ? value : least;
        most = value > most ? value : most;
        labels &= value == 0 || value == 1;
        sum += value;
    }
    if (labels)
        oct_print("%-12s %" PRId64 " labels, each 0 or 1; %.2f of them in a sample\n", "goal",
                  data->classes, sum / (double)data->count);
    else
        oct_print("%-12s %" PRId64 " values a sample, from %g to %g, %g on average\n", "goal",
                  data->classes, least, most, sum / (double)all);
}

static void print_counts(const oct_dataset data[2])
{
    oct_print("%-12s %s\n", "format", data[0].format->name);
    oct_print("%-12s %s training, %s test\n", "samples", oct_text_count(data[0].count).text,
              oct_text_count(data[1].count).text);
    const oct_goal_kind goal = data[0].goal;
    if (goal == OCT_GOAL_CLASS || goal == OCT_GOAL_MAP)
        oct_print("%-12s %s%" PRId64 " classes\n", "goal",
                  goal == OCT_GOAL_MAP ? "a class for each pixel, " : "", data[0].classes);
    else if (goal == OCT_GOAL_VALUES)
        print_values(&data[0]);
    else if (goal == OCT_GOAL_NONE)
        oct_print("%-12s none: to calibrate with\n", "goal");
    else
        oct_print("%-12s the sample itself, %" PRId64 " numbers\n", "goal", data[0].classes);
}

typedef struct shown_name {
    char text[160];
} shown_name;

/* "sample 81", or its file. */
static shown_name sample_name(const oct_dataset *data, int64_t index)
{
    shown_name name;
    if (data->format->sample_name)
        snprintf(name.text, sizeof name.text, "%.150s", data->format->sample_name(data, index));
    else
        snprintf(name.text, sizeof name.text, "sample %" PRId64, index);
    oct_text_clean(name.text); /* JSON holds nothing but UTF-8 */
    return name;
}

static void print_extreme(const oct_dataset *data, const char *what, const oct_survey_size *s)
{
    oct_print("%-12s %s %" PRId64 "x%" PRId64 " (%s)\n", "", what, s->h, s->w,
              sample_name(data, s->first).text);
}

/* How many times as long as wide a size is, or as wide as long. */
static double elongation(const oct_survey_size *s)
{
    const double shape = (double)s->h / (double)s->w;
    return shape < 1 ? 1 / shape : shape;
}

/* Prints the i-th most frequent size; of a rare one also the first sample that has it. */
static void print_size(const oct_survey_split *split, int64_t i)
{
    const oct_survey_size *s = &split->sizes[i];
    const int64_t good = split->data->count - split->damaged;
    const bool odd = i > 0 && s->count < good / 20;
    oct_print("%-12s %" PRId64 "x%" PRId64 "x%" PRId64 " %s: %s%s%s\n", i ? "" : "size", s->h, s->w,
              split->data->read_c, oct_dtype_name(split->data->dtype),
              s->count == good ? "all" : oct_text_count(s->count).text,
              odd ? ", the first is " : "", odd ? sample_name(split->data, s->first).text : "");
}

static void print_sizes(const oct_survey_split *split, const char *name)
{
    const int64_t good = split->data->count - split->damaged;
    const bool mixed = split->num_sizes > SIZES_SHOWN && split->sizes[0].count < good / 2;
    if (mixed)
        oct_print("%-12s %s sizes of %s samples, %" PRId64 " %s of %s\n", "size",
                  oct_text_count(split->num_sizes).text, name, split->data->read_c,
                  split->data->read_c == 1 ? "channel" : "channels",
                  oct_dtype_name(split->data->dtype));
    for (int64_t i = 0; !mixed && i < split->num_sizes && i < SIZES_SHOWN; i++)
        print_size(split, i);
    if (!mixed && split->num_sizes > SIZES_SHOWN)
        oct_print("%-12s and %s more sizes of %s samples\n", "",
                  oct_text_count(split->num_sizes - SIZES_SHOWN).text, name);
    if (split->num_sizes <= 1) return;
    /* Where sizes differ, the smallest, the largest and the longest shape are what goes wrong. */
    const oct_survey_size *small = split->sizes, *large = small, *odd = small;
    for (const oct_survey_size *s = small; s < split->sizes + split->num_sizes; s++) {
        if (s->h * s->w < small->h * small->w) small = s;
        if (s->h * s->w > large->h * large->w) large = s;
        if (elongation(s) > elongation(odd)) odd = s;
    }
    print_extreme(split->data, "smallest", small);
    print_extreme(split->data, "largest", large);
    print_extreme(split->data, "longest shape", odd);
}

static shown_name class_name(const oct_dataset *data, int64_t class)
{
    shown_name name;
    snprintf(name.text, sizeof name.text, "%" PRId64 "%s%.60s", class, data->class_names ? " " : "",
             data->class_names ? data->class_names[class] : "");
    return name;
}

/* All classes or, of many, the first ones, and how uneven they are. */
static void print_classes(const oct_survey *s)
{
    const oct_survey_split *train = &s->split[0];
    const int64_t classes = train->data->classes;
    int64_t least = 0, most = 0, empty = 0;
    const bool map = train->data->goal == OCT_GOAL_MAP;
    oct_print("\n%-34s %14s %14s\n", map ? "pixels of class" : "class", "training", "test");
    for (int64_t i = 0; i < classes; i++) {
        if (train->of_class[i] < train->of_class[least]) least = i;
        if (train->of_class[i] > train->of_class[most]) most = i;
        empty += train->of_class[i] == 0;
        if (classes > CLASSES_SHOWN && i >= CLASSES_CUT) continue;
        const shown_name name = class_name(train->data, i);
        int extra = 0; /* bytes that are no letters of their own, which a column does not count */
        for (const char *at = name.text; *at; at++)
            extra += (*at & 0xc0) == 0x80;
        oct_print("  %-*s %14s %14s\n", 32 + extra, name.text,
                  oct_text_count(train->of_class[i]).text,
                  oct_text_count(s->split[1].of_class[i]).text);
    }
    if (classes > CLASSES_SHOWN)
        oct_print("  and %" PRId64 " more, with --json\n", classes - CLASSES_CUT);
    oct_print("  least: %s (%s), most: %s (%s)\n", class_name(train->data, least).text,
              oct_text_count(train->of_class[least]).text, class_name(train->data, most).text,
              oct_text_count(train->of_class[most]).text);
    if (map)
        oct_print("  without a class: %s of training, %s of test\n",
                  oct_text_count(train->ignored).text, oct_text_count(s->split[1].ignored).text);
    if (empty) oct_print("  %" PRId64 " classes have no training sample\n", empty);
}

static void print_yaml_list(const char *key, const double *values, int count)
{
    oct_print("  %s: [", key);
    for (int c = 0; c < count; c++)
        oct_print(fabs(values[c]) < 0.01 ? "%s%.4g" : "%s%.4f", c ? ", " : "", values[c]);
    oct_print("]\n");
}

/* Prints data.mean and data.std to paste (1 for a constant channel), and warns where the recipe's are far from them. */
static void print_channels(const oct_survey_split *train, const oct_recipe *recipe)
{
    double to_paste[OCT_SURVEY_CHANNELS];
    for (int c = 0; c < train->channels; c++)
        to_paste[c] = train->std[c] < SAME_STD ? 1 : train->std[c];
    oct_print("\nfor the recipe, of the training samples%s\n",
              train->channels == 1 && train->data->read_c > 1 ? ", all channels together" : "");
    print_yaml_list("data.mean", train->mean, train->channels);
    print_yaml_list("data.std", to_paste, train->channels);
    /* Inputs far from a mean of 0 and a standard deviation of 1 train badly or not at all. */
    const oct_normaliser n = oct_normaliser_of(&recipe->data_mean, &recipe->data_std);
    bool said = false;
    for (int c = 0; c < train->channels && !said; c++) {
        const int i = c < n.count ? c : 0;
        const double mean = (train->mean[c] - (double)n.mean[i]) / (double)n.std[i];
        const double std = train->std[c] / (double)n.std[i];
        const bool constant = train->std[c] < SAME_STD;
        said = fabs(mean) > 5 || std > 10 || (std < 0.05 && !constant);
        if (said)
            oct_print(
                "  with data.mean and data.std as they are, channel %d has the mean %.3g and the "
                "standard deviation %.3g, which should be about 0 and 1\n",
                c, mean, std);
    }
}

static void print_duplicates(const oct_survey *s)
{
    if (s->num_pairs == 0) {
        oct_print("\n%-12s none\n", "duplicates");
        return;
    }
    oct_print("\n%-12s %s of the test samples are training samples too; %s training and %s "
              "test samples repeat an earlier one\n",
              "duplicates", oct_text_count(s->shared).text, oct_text_count(s->repeated[0]).text,
              oct_text_count(s->repeated[1]).text);
    if (s->contradictions)
        oct_print("%-12s %s equal samples have different classes\n", "",
                  oct_text_count(s->contradictions).text);
    for (int i = 0; i < s->num_pairs; i++) {
        const oct_surveyed *one = s->pair[i].one, *other = s->pair[i].other;
        oct_print("  %s %s = %s %s%s\n", split_names[one->split],
                  sample_name(s->split[one->split].data, one->index).text,
                  split_names[other->split],
                  sample_name(s->split[other->split].data, other->index).text,
                  s->pair[i].labels_differ ? ", of different classes" : "");
    }
}

static void print_damaged(const oct_survey *s)
{
    const int64_t all = s->split[0].damaged + s->split[1].damaged;
    oct_print("%-12s %s\n", "damaged", all ? oct_text_count(all).text : "none");
    for (int k = 0; k < 2; k++)
        if (s->split[k].warned)
            oct_print("%-12s %s of %s break a rule of JPEG and are read, the first is %s\n", "",
                      oct_text_count(s->split[k].warned).text, split_names[k],
                      sample_name(s->split[k].data, s->split[k].first_warned).text);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < OCT_SURVEY_NAMED && s->split[k].sentence[i]; i++)
            oct_print("  %s\n", s->split[k].sentence[i]);
}

static json_t *class_names_json(const oct_dataset *data)
{
    if (!data->class_names) return json_null();
    json_t *list = json_array();
    for (int64_t i = 0; i < data->classes; i++)
        json_array_append_new(list, oct_json_string(data->class_names[i]));
    return list;
}

static json_t *split_json(const oct_survey_split *split)
{
    json_t *sizes = json_array(), *damaged = json_array();
    json_t *counts = split->of_class ? json_array() : json_null();
    for (int64_t i = 0; split->of_class && i < split->data->classes; i++)
        json_array_append_new(counts, json_integer(split->of_class[i]));
    for (int64_t i = 0; i < split->num_sizes; i++)
        json_array_append_new(sizes,
                              json_pack("{s:I, s:I, s:I, s:I}", "height", split->sizes[i].h,
                                        "width", split->sizes[i].w, "count", split->sizes[i].count,
                                        "first", split->sizes[i].first));
    for (int i = 0; i < OCT_SURVEY_NAMED && split->sentence[i]; i++)
        json_array_append_new(damaged, oct_json_string(split->sentence[i]));
    return json_pack("{s:I, s:o, s:I, s:o, s:o, s:o, s:I, s:o, s:I, s:I}", "samples",
                     split->data->count, "of_class", counts, "ignored_pixels", split->ignored,
                     "sizes", sizes, "mean", oct_json_reals(split->mean, (size_t)split->channels),
                     "std", oct_json_reals(split->std, (size_t)split->channels), "damaged",
                     split->damaged, "damaged_samples", damaged, "not_finite", split->not_finite,
                     "warned", split->warned);
}

static json_t *duplicates_json(const oct_survey *s)
{
    json_t *pairs = json_array();
    for (int i = 0; i < s->num_pairs; i++) {
        const oct_surveyed *one = s->pair[i].one, *other = s->pair[i].other;
        json_array_append_new(
            pairs, json_pack("{s:[s, I, s], s:[s, I, s], s:b}", "one", split_names[one->split],
                             one->index, sample_name(s->split[one->split].data, one->index).text,
                             "other", split_names[other->split], other->index,
                             sample_name(s->split[other->split].data, other->index).text,
                             "classes_differ", s->pair[i].labels_differ));
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:o}", "test_in_training", s->shared, "in_training",
                     s->repeated[0], "in_test", s->repeated[1], "of_different_classes",
                     s->contradictions, "pairs", pairs);
}

static void print_json(const oct_survey *s, const oct_dataset *data)
{
    oct_print_json(json_pack(
        "{s:s, s:s, s:s, s:I, s:o, s:I, s:s, s:o, s:o, s:o}", "kind", "data set", "format",
        data->format->name, "goal", oct_registry_name(&oct_goal_kind_table, data->goal), "classes",
        data->classes, "class_names", class_names_json(data), "channels", data->read_c, "type",
        oct_dtype_name(data->dtype), "training", split_json(&s->split[0]), "test",
        split_json(&s->split[1]), "duplicates", duplicates_json(s)));
}

/* OCT_MISMATCH for samples that would stop a training: damaged ones, and those that are not finite. */
static oct_status judge_survey(const oct_survey *s, const char *recipe)
{
    const int64_t damaged = s->split[0].damaged + s->split[1].damaged;
    const int64_t not_finite = s->split[0].not_finite + s->split[1].not_finite;
    OCT_CHECK(damaged == 0, OCT_MISMATCH,
              "%s: %" PRId64
              " sample%s of the data set cannot be read; repair or leave them out, or "
              "train with data.damaged=skip",
              recipe, damaged, damaged == 1 ? "" : "s");
    OCT_CHECK(not_finite == 0, OCT_MISMATCH,
              "%s: %" PRId64 " sample%s of the data set hold infinity or NaN", recipe, not_finite,
              not_finite == 1 ? "" : "s");
    return OCT_OK;
}

static oct_status survey_data(const oct_args *args, const oct_recipe *recipe,
                              const oct_dataset data[2])
{
    OCT_OWNED(oct_survey_free) oct_survey found = {0};
    OCT_TRY(oct_survey_make(&found, data));
    if (args->json) {
        print_json(&found, &data[0]);
    } else {
        const oct_survey_split *train = &found.split[0], *test = &found.split[1];
        print_counts(data);
        print_sizes(train, split_names[0]);
        if (test->num_sizes != 1 || train->num_sizes != 1) print_sizes(test, split_names[1]);
        if (train->of_class) print_classes(&found);
        print_channels(train, recipe);
        print_duplicates(&found);
        print_damaged(&found);
    }
    return judge_survey(&found, args->word[0]);
}

static oct_status write_preview(const oct_args *args, const oct_recipe *recipe,
                                const oct_dataset *data)
{
    const char *file = args->option[PREVIEW].text;
    OCT_OWNED(oct_text_free) oct_text page = {0};
    OCT_CHECK_ARGS(oct_page_is_name(file),
                   "--preview %s: the sheet is an HTML page; give it a name that ends in .html",
                   file);
    OCT_TRY(oct_data_sheet(recipe, data, oct_option_count(args, SAMPLES, SAMPLES_STANDARD), &page));
    OCT_TRY(oct_file_write(file, page.data, page.length));
    args->json
        ? oct_print_json(json_pack("{s:s, s:o}", "kind", "preview", "file", oct_json_string(file)))
        : oct_print("%s: training samples as the model will get them\n", file);
    return OCT_OK;
}

static oct_status run_data(const oct_args *args)
{
    OCT_OWNED(oct_recipe_free) oct_recipe recipe = {0};
    OCT_OWNED(oct_dataset_close) oct_dataset train = {0}, test = {0};
    oct_file_kind kind;
    const bool previews = args->option[PREVIEW].given;
    OCT_CHECK_ARGS(previews || !args->option[SAMPLES].given,
                   "--samples is for --preview; write --preview FILE.html too");
    OCT_TRY(oct_shipped_hint(args->word[0]));
    if (!oct_data_is(args->word[0])) {
        OCT_TRY(oct_file_kind_of(args->word[0], &kind));
        OCT_CHECK_ARGS(kind == OCT_FILE_RECIPE,
                       "%s is no recipe (%s); data takes one, such as the recipe.yaml of a run, or "
                       "the data themselves",
                       args->word[0], oct_file_kind_name(kind));
    }
    OCT_TRY(oct_recipe_of_args(&recipe, args));
    omp_set_num_threads((int)oct_machine_cores());
    OCT_TRY(oct_load_data(&recipe, OCT_TRAIN, NULL, &train));
    if (previews) return write_preview(args, &recipe, &train);
    OCT_TRY(oct_load_data(&recipe, OCT_TEST, NULL, &test));
    return survey_data(args, &recipe, (const oct_dataset[]){train, test});
}

const oct_command oct_command_data = {
    .name = "data",
    .usage = "octet data RECIPE|DATA [key=value ...] [--preview FILE.html [--samples N]]",
    .summary = "says what a data set holds, or draws what training will see",
    .help =
        "Reads every sample of the recipe's data set once: how many there are of each class,\n"
        "their sizes, mean and standard deviation of each channel to paste into the recipe\n"
        "(exact for bytes), samples that are there twice, also in training and test, and damaged\n"
        "ones. Exit status 1 when some are damaged.\n"
        "\n"
        "--preview writes a page of training samples with their labels instead: each as it is\n"
        "evaluated, and as the transforms of the recipe (data.train, data.mixup, ...) will\n"
        "change it in the first epochs.\n"
        "\n"
        "`octet help formats` lists the files that a data set may be.\n"
        "\n"
        "    octet data my.yaml\n"
        "    octet data my.yaml --preview page.html data.path=FOLDER\n",
    .options = options,
    .min_words = 1,
    .max_words = OCT_ARGS_MAX,
    .run = run_data,
};
