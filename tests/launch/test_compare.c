/* octet compare through the real program: equal files, a damaged weight, float against codes, two targets, networks
 * that differ, and what it refuses. */
#include "tests/launch/small_data.h"

#include "core/base/status.h"
#include "io/model/model_file.h"
#include "quant/program/step.h"

#include <jansson.h>
#include <string.h>

TestSuite(compare, .init = enter_with_run, .fini = leave_folder, .timeout = 200);

static json_t *compared(int exit_code, const char *a, const char *b, const char *option)
{
    OCTET("compare", a, b, "--json", "--samples", "8", option);
    oct_check_exit(job, exit_code);
    json_t *document = json_loads(job.out, 0, NULL);
    cr_assert(document, "%s", job.out);
    return document;
}

static const json_t *layer_of(const json_t *document, const char *path)
{
    size_t i;
    json_t *layer;
    json_array_foreach(json_object_get(document, "layers"), i,
                       layer) if (strcmp(json_string_value(json_object_get(layer, "path")), path) ==
                                  0) return layer;
    cr_assert_fail("no layer %s", path);
    return NULL;
}

static void scale_weights(oct_step *step, float factor)
{
    for (int64_t c = 0; c < step->conv.shape.out_c; c++)
        step->conv.weight_scale[c] *= factor;
}

/* Changes one weight code of a layer, or (weight -1) the scale between it and the next one, and writes a new checksum. */
static void damage(const char *path, const char *layer, int weight)
{
    oct_model model;
    cr_assert_eq(oct_model_load(&model, "run/model.int8.h5", false), OCT_OK);
    for (int64_t i = 0; i < model.program.num_steps; i++) {
        oct_step *step = &model.program.steps[i];
        if (strcmp(step->name, layer) != 0) continue;
        if (weight < 0) {
            model.program.values[step->output].q.scale *= 2;
            scale_weights(step, 2);
            scale_weights(step + 1, 0.5F);
        } else
            step->conv.weight[weight] = (int8_t)(step->conv.weight[weight] > 0 ? -100 : 100);
        cr_assert_eq(oct_model_write(path, &model), OCT_OK, "%s", oct_error_message(0));
        oct_model_free(&model);
        return;
    }
    cr_assert_fail("no layer %s", layer);
}

Test(compare, a_run_and_its_model_are_the_same_bit_for_bit)
{
    OCTET("compare", "run", "run/model.int8.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "every layer is the same, bit for bit");
    json_t *document = compared(0, "run/model.int8.h5", "run", NULL);
    cr_assert(json_is_true(json_object_get(document, "equal")));
    cr_assert(json_is_true(json_object_get(document, "bit_for_bit")));
    cr_assert(json_is_null(json_object_get(document, "first_to_depart")));
    cr_assert_eq(json_integer_value(json_object_get(document, "images")), 8);
    json_decref(document);
}

Test(compare, one_changed_weight_is_found_in_its_layer)
{
    static const char *const layers[] = {"features.0", "features.7", "head.2"};
    for (size_t i = 0; i < OCT_COUNT(layers); i++) {
        /* Some weights have an input that is 0 throughout. */
        for (int weight = 0; weight == 0 || (job.exit_code == 0 && weight < 99); weight++) {
            damage("damaged.int8.h5", layers[i], weight);
            OCTET("compare", "run", "damaged.int8.h5", "--samples", "8");
        }
        json_t *document = compared(1, "run", "damaged.int8.h5", NULL);
        cr_assert_str_eq(json_string_value(json_object_get(document, "first_to_depart")),
                         layers[i]);
        const json_t *first = json_object_get(layer_of(document, layers[i]), "first");
        cr_assert_neq(json_number_value(json_object_get(first, "a")),
                      json_number_value(json_object_get(first, "b")));
        cr_assert_eq(json_integer_value(json_object_get(layer_of(document, "quant"), "different")),
                     0);
        json_decref(document);
        OCTET("compare", "run/model.int8.h5", "damaged.int8.h5");
        oct_check_exit(job, 1);
        char words[96];
        snprintf(words, sizeof words, "first to depart: %s, image ", layers[i]);
        oct_check_said(job, words);
        snprintf(words, sizeof words, "first in %s (image ", layers[i]);
        oct_check_said(job, words);
    }
}

Test(compare, another_scale_is_a_difference_though_all_codes_are_the_same)
{
    damage("damaged.int8.h5", "features.7", -1);
    OCTET("compare", "run/model.int8.h5", "damaged.int8.h5");
    oct_check_exit(job, 1);
    oct_check_said(job, "other scale");
    shell("octet=" OCT_PROGRAM "; $octet compare run/model.int8.h5 damaged.int8.h5 | "
          "grep '^!' | head -n 1 | grep -q 'features.7 .* first .*other scale'");
    oct_check_exit(job, 0);
}

Test(compare, float_and_codes_by_their_signal_to_noise)
{
    json_t *document = compared(0, "run", "run/model.int8.h5", "--unquantized");
    size_t i;
    json_t *layer;
    cr_assert(json_is_false(json_object_get(document, "bit_for_bit")));
    json_array_foreach(json_object_get(document, "layers"), i, layer)
    {
        const double db = json_number_value(json_object_get(layer, "sqnr_db"));
        cr_assert(db > 20 && db < 80, "%s: %g", json_string_value(json_object_get(layer, "path")),
                  db);
    }
    cr_assert(json_is_string(json_object_get(document, "worst")));
    json_decref(document);
    OCTET("compare", "run", "run/model.int8.h5", "--unquantized", "--sqnr", "200");
    oct_check_exit(job, 1);
    oct_check_said(job, "a layer departs below 200 dB of SQNR");
    /* The float phase has other weights, but the same layers. */
    OCTET("compare", "run/checkpoints/step-00000003.h5", "run", "--sqnr", "-200");
    oct_check_exit(job, 0);
    oct_check_said(job, "(float, float)");
    OCTET("compare", "run/checkpoints/step-00000003.h5", "run/checkpoints/step-00000003.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "every layer is the same, bit for bit");
}

Test(compare, models_of_two_targets)
{
    OCTET("train", "r.yaml", "output=x86", "quant.batch_norm=folded");
    oct_check_exit(job, 0);
    OCTET("train", "r.yaml", "output=pow2", "quant.batch_norm=folded", "quant.target=pow2");
    oct_check_exit(job, 0);
    json_t *document = compared(0, "x86/model.int8.h5", "pow2/model.int8.h5", "--sqnr=0");
    cr_assert(json_is_false(json_object_get(layer_of(document, "features.0"), "same_format")));
    cr_assert_str_eq(
        json_string_value(json_object_get(json_object_get(document, "b"), "arithmetic")), "pow2");
    json_decref(document);
    OCTET("compare", "x86/model.int8.h5", "pow2/model.int8.h5");
    oct_check_said(job, "a layer departs below 20 dB of SQNR");
}

Test(compare, says_which_layers_a_network_lacks)
{
    OCTET("train", "r.yaml", "output=other", "model.name=resnet20");
    oct_check_exit(job, 0);
    OCTET("compare", "run/model.int8.h5", "other/model.int8.h5");
    oct_check_exit(job, 3);
    oct_check_said(job, "the networks differ; what only ");
    oct_check_said(job, "what only run/model.int8.h5 has: features.0, features.3, ");
    oct_check_said(job, "--common compares the other layers");
    OCTET("compare", "run/model.int8.h5", "other/model.int8.h5", "--common");
    oct_check_said(job, "only in b");
    cr_assert(job.exit_code == 0 || job.exit_code == 1);
}

Test(compare, without_the_data_takes_golden_inputs)
{
    must("mv data elsewhere");
    OCTET("compare", "run/model.int8.h5", "run/model.int8.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "comparing on the golden inputs of the model instead");
    oct_check_said(job, "8 images; a layer departs where a bit differs");
    OCTET("compare", "run", "run/model.int8.h5");
    oct_check_exit(job, 3);
    OCTET("compare", "run", "run/model.int8.h5", "--data", "elsewhere");
    oct_check_exit(job, 0);
}

Test(compare, refuses_what_it_cannot_compare)
{
    OCTET("compare", "run", "r.yaml");
    oct_check_exit(job, 3);
    oct_check_said(job,
                   "r.yaml: is a recipe; compare takes checkpoints, run folders and int8 models");
    OCTET("compare", "run/model.int8.h5", "run", "--unquantized");
    oct_check_exit(job, 2);
    oct_check_said(job, "is an int8 model, which has no weights but codes");
    OCTET("compare", "run", "run/model.int8.h5", "--sqnr", "much");
    oct_check_exit(job, 2);
    oct_check_said(job, "--sqnr 'much': must be a number of dB, such as 20");
    OCTET("compare", "run");
    oct_check_exit(job, 2);
    OCTET("compare", "run", "nowhere.h5");
    oct_check_exit(job, 3);
    must("mkdir wide && cd wide && mkdir data && cd .. && cp r.yaml wide.yaml");
    small_idx("wide/data", "train", 96, 14);
    small_idx("wide/data", "t10k", 40, 14);
    OCTET("compare", "run/model.int8.h5", "run/model.int8.h5", "--data", "wide/data");
    oct_check_exit(job, 3);
    oct_check_said(job, "takes images of 12 x 12 x 1, but those of the data are 14 x 14 x 1");
}
