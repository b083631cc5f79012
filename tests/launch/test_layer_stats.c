/* A run's report on its layers and its worst samples: the same bytes on any number of ranks, and figures that add up. */
#include "core/base/status.h"
#include "tests/launch/small_data.h"
#include "tests/support/mpirun.h"

#include <jansson.h>
#include <string.h>

TestSuite(layer_stats, .init = enter_with_data, .fini = leave_folder, .timeout = 200);

#define TRAIN(ranks, ...)                                                                          \
    (oct_process_free(&job),                                                                       \
     job = oct_mpirun(ranks, 60, OCT_PROGRAM, "train", "r.yaml", __VA_ARGS__, NULL))

static int64_t numel_of(const json_t *layer)
{
    const json_t *shape = json_object_get(layer, "shape");
    int64_t numel = 1;
    for (size_t i = 0; i < 3; i++)
        numel *= json_integer_value(json_array_get(shape, i));
    return numel;
}

static int64_t counted(const json_t *figures)
{
    const json_t *counts = json_object_get(json_object_get(figures, "histogram"), "counts");
    int64_t sum = 0;
    cr_assert_eq(json_array_size(counts), 64);
    for (size_t i = 0; i < 64; i++)
        sum += json_integer_value(json_array_get(counts, i));
    return sum;
}

static double real_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    cr_assert(json_is_number(value), "%s", key);
    return json_number_value(value);
}

static json_t *layers_of(const char *path, const char *reference)
{
    json_error_t error;
    json_t *document = json_load_file(path, 0, &error);
    cr_assert(document, "%s: %s", path, error.text);
    cr_assert_str_eq(json_string_value(json_object_get(document, "reference")), reference);
    cr_assert_eq(json_integer_value(json_object_get(document, "schema_version")), 1);
    return document;
}

static void check_layer(const json_t *layer, int64_t images)
{
    const json_t *output = json_object_get(layer, "output"),
                 *weight = json_object_get(layer, "weight");
    const char *path = json_string_value(json_object_get(layer, "path"));
    cr_assert(json_is_object(output), "%s", path);
    cr_assert_eq(counted(output), images * numel_of(layer), "%s", path);
    const double clipped = real_of(output, "clipped");
    cr_assert(clipped >= 0 && clipped < 0.2, "%s: %g", path, clipped);
    cr_assert_leq(real_of(output, "min"), real_of(output, "max"));
    cr_assert(real_of(json_object_get(output, "unquantized"), "sqnr_db") > 15, "%s", path);
    if (!json_is_object(weight)) return;
    cr_assert(counted(weight) > 0 && real_of(layer, "operations") > 0, "%s", path);
    cr_assert(real_of(weight, "sqnr_db") > 35, "%s", path);
    cr_assert(real_of(weight, "scale_min") <= real_of(weight, "scale_max"));
}

Test(layer_stats, are_the_same_on_1_2_3_and_5_ranks)
{
    static const int ranks[] = {1, 2, 3, 5};
    for (size_t i = 0; i < OCT_COUNT(ranks); i++) {
        char output[32], same[256];
        snprintf(output, sizeof output, "output=r%d", ranks[i]);
        snprintf(same, sizeof same,
                 "for f in layers worst; do cmp r1/$f.json r%d/$f.json || exit 1; done; "
                 "grep '\"confusion\"' r%d/metrics.jsonl >c%d && cmp c1 c%d",
                 ranks[i], ranks[i], ranks[i], ranks[i]);
        TRAIN(ranks[i], output);
        oct_check_exit(job, 0);
        must(same);
    }
    json_t *document = layers_of("r1/layers.json", "float_phase");
    const json_t *layers = json_object_get(document, "layers");
    const int64_t images = json_integer_value(json_object_get(document, "images"));
    cr_assert_eq(images, 40, "all test images are");
    cr_assert_eq(json_array_size(layers), 10);
    for (size_t i = 0; i < json_array_size(layers); i++)
        check_layer(json_array_get(layers, i), images);
    json_decref(document);
}

Test(layer_stats, without_a_float_phase_compare_with_the_same_weights)
{
    TRAIN(1, "output=first");
    oct_check_exit(job, 0);
    TRAIN(2, "init=first", "float.epochs=0", "qat.fold_batch_norm=true");
    oct_check_exit(job, 0);
    json_t *document = layers_of("new/layers.json", "unquantized");
    const json_t *last = json_array_get(json_object_get(document, "layers"), 9);
    const json_t *output = json_object_get(last, "output");
    cr_assert_eq(real_of(output, "sqnr_db"),
                 real_of(json_object_get(output, "unquantized"), "sqnr_db"));
    json_decref(document);
}

Test(layer_stats, of_float_fallbacks_and_other_fusions_are_there)
{
    TRAIN(2, "quant.float_layers=[features.7]", "quant.int16_layers=[head.0]");
    oct_check_exit(job, 0);
    json_t *document = layers_of("new/layers.json", "float_phase");
    const json_t *layers = json_object_get(document, "layers");
    size_t fallbacks = 0, wide = 0;
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *output = json_object_get(json_array_get(layers, i), "output");
        fallbacks += json_is_null(output);
        wide += json_integer_value(json_object_get(output, "bits")) == 16;
    }
    cr_assert(fallbacks > 0 && wide > 0);
    json_decref(document);
}

Test(layer_stats, scales_are_recorded_at_each_evaluation_after_prepare)
{
    TRAIN(1, "qat.epochs=2");
    oct_check_exit(job, 0);
    must("grep '\"eval\"' new/metrics.jsonl | grep -v '\"float\"' | wc -l >evals");
    must("grep '\"scales\"' new/metrics.jsonl | grep '\"features.0\":' | wc -l | cmp - evals");
    must("! grep '\"scales\"' new/metrics.jsonl | grep '\"phase\":\"float\"'");
    /* The end of the run is made again, and its records with it. */
    must("grep -v '\"result\"' new/metrics.jsonl >m && mv m new/metrics.jsonl && "
         "mv new/layers.json before && rm new/model.int8.h5");
    TRAIN(1, "qat.epochs=2");
    oct_check_exit(job, 0);
    must("grep '\"scales\"' new/metrics.jsonl | wc -l | cmp - evals && cmp before new/layers.json");
}

Test(layer_stats, that_cannot_be_written_cost_a_warning)
{
    TRAIN(1, "output=new");
    must("grep -v '\"result\"' new/metrics.jsonl >m && mv m new/metrics.jsonl && "
         "rm new/layers.json && mkdir -p new/layers.json/in.the.way");
    TRAIN(1, "output=new");
    oct_check_exit(job, 0);
    oct_check_said(job, "layers.json was not written; the run goes on without it");
}
