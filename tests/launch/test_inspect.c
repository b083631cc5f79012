/* What prepare makes of a model, as a user sees it: octet inspect --graph and --tree, octet check's
 * report, and model_check_result.txt of a run. */
#include "core/base/status.h"
#define SMALL_RUN_ONCE
#include "tests/launch/small_data.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(inspect, .init = enter_with_run, .fini = leave_folder, .timeout = 120);

static void check_refused(const char *sentence)
{
    oct_check_exit(job, 2);
    cr_assert_eq(oct_process_said_times(&job, sentence), 1, "%s\n%s", sentence, job.err);
    cr_assert_eq(oct_process_said_times(&job, "octet: error: "), 1, "%s", job.err);
}

Test(inspect, the_graph_of_recipe_and_checkpoint_is_the_same_table)
{
    OCTET("inspect", "--graph", "r.yaml");
    oct_check_exit(job, 0);
    char *recipe = strdup(job.out);
    cr_assert(strstr(recipe, "placeholder") && strstr(recipe, "call_module"), "%s", recipe);
    OCTET("inspect", "--graph", "run");
    oct_check_exit(job, 0);
    cr_assert_str_eq(job.out, recipe);
    free(recipe);
}

static void check_json(const char *name)
{
    json_error_t error;
    oct_check_exit(job, 0);
    json_t *all = json_loads(job.out, 0, &error);
    cr_assert(all, "%s\n%s", error.text, job.out);
    json_decref(all);
    oct_check_said(job, name);
}

/* JSON is UTF-8, and names of files need not be. */
Test(inspect, every_command_describes_a_file_with_any_name_as_json)
{
    static const char *const of_model[] = {"inspect", "check", "eval", "verify"};
    static const char *const of_run[] = {"inspect", "sensitivity", "plot"};
    cr_assert_eq(symlink("model.int8.h5", "run/m\xff.h5"), 0);
    cr_assert_eq(symlink("run", "d\xff"), 0);
    cr_assert_eq(symlink("r.yaml", "r\xff.yaml"), 0);
    for (size_t i = 0; i < OCT_COUNT(of_model); i++) {
        OCTET(of_model[i], "run/m\xff.h5", "--json");
        check_json("m?.h5");
    }
    for (size_t i = 0; i < OCT_COUNT(of_run); i++) {
        OCTET(of_run[i], "d\xff", "--json");
        check_json("d?");
    }
    OCTET("inspect", "r\xff.yaml", "--json");
    check_json("r?.yaml");
    OCTET("check", "r\xff.yaml", "--json");
    check_json("r?.yaml");
    OCTET("compare", "run/m\xff.h5", "d\xff", "--json");
    check_json("m?.h5");
    OCTET("convert", "d\xff", "-o", "o\xff.h5", "--json");
    check_json("o?.h5");
}

Test(inspect, the_tree_of_a_checkpoint_has_its_ranges)
{
    OCTET("inspect", "--tree", "r.yaml");
    oct_check_exit(job, 0);
    oct_check_said(job, "(fake_quant): fake_quant(");
    oct_check_said(job, "range=not seen");
    oct_check_said(job, "(weight_fake_quant): fake_quant(dtype=s8");
    OCTET("inspect", "--tree", "run");
    oct_check_exit(job, 0);
    oct_check_said(job, "state=frozen");
    cr_assert(!oct_process_said(&job, "range=not seen"), "%s", job.out);
}

Test(inspect, a_checkpoint_of_the_float_phase_is_a_float_tree_and_can_still_be_drawn)
{
    OCTET("train", "r.yaml", "output=early", "float.epochs=1", "checkpoint.keep=100");
    oct_check_exit(job, 0);
    OCTET("inspect", "--tree", "early/checkpoints/step-00000002.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "conv2d(");
    cr_assert(!oct_process_said(&job, "fake_quant"), "%s", job.out);
    OCTET("inspect", "--graph", "early/checkpoints/step-00000002.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "call_module");
}

Test(inspect, json_has_the_quantizers_one_by_one)
{
    OCTET("inspect", "--tree", "run", "--json");
    oct_check_exit(job, 0);
    json_t *root = json_loads(job.out, 0, NULL);
    const json_t *quantizers = json_object_get(root, "quantizers");
    cr_assert_eq(json_array_size(quantizers), 9, "%s", job.out);
    for (size_t i = 0; i < json_array_size(quantizers); i++) {
        const json_t *q = json_array_get(quantizers, i);
        cr_assert_gt(json_real_value(json_object_get(q, "scale")), 0);
        cr_assert_gt(json_integer_value(json_object_get(q, "updates")), 0);
    }
    cr_assert(json_is_string(json_object_get(root, "tree")));
    json_decref(root);
}

/* The figures of a device are those of the C form; those of layers add up. */
Test(inspect, the_report_for_a_device_has_flash_scratch_and_operations)
{
    char line[64];
    OCTET("inspect", "--device", "run/model.int8.h5", "--json");
    oct_check_exit(job, 0);
    json_t *root = json_loads(job.out, 0, NULL);
    const json_int_t scratch = json_integer_value(json_object_get(root, "scratch"));
    json_int_t flash = 0, products = 0, most = 0, first = 0;
    const json_t *layers = json_object_get(root, "layers");
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *layer = json_array_get(layers, i);
        const json_int_t values = json_integer_value(json_object_get(layer, "scratch"));
        flash += json_integer_value(json_object_get(layer, "flash"));
        products += json_integer_value(json_object_get(layer, "multiply_adds"));
        if (values > most) most = values;
        if (first == 0) first = json_integer_value(json_object_get(layer, "multiply_adds"));
    }
    cr_assert_eq(json_integer_value(json_object_get(root, "flash")), flash);
    cr_assert_eq(json_integer_value(json_object_get(root, "multiply_adds")), products);
    cr_assert_gt(first, 0);
    cr_assert_eq(first % (32 * 9), 0); /* a 3x3 convolution of one channel to 32 */
    cr_assert(most > scratch - 64 && most <= scratch, "%lld of %lld", (long long)most,
              (long long)scratch);
    OCTET("export", "run/model.int8.h5", "--format", "c", "-o", "net");
    oct_check_exit(job, 0);
    snprintf(line, sizeof line, "grep -q 'NET_SCRATCH_BYTES %lld ' net.h", (long long)scratch);
    must(line);
    snprintf(line, sizeof line, "grep -q 'NET_CONSTANT_BYTES %lld ' net.h", (long long)flash);
    must(line);
    json_decref(root);
    OCTET("inspect", "--device", "run/model.int8.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "most multiply-adds: ");
    OCTET("inspect", "--device", "run");
    check_refused("command line: --device is for int8 models; run is none");
}

/* Flash is what a compiler makes of the C form, whatever a target's multipliers are and a model's layers. */
Test(inspect, flash_of_a_device_is_what_a_compiler_makes_of_the_constants)
{
    static const char *const targets[] = {"quant.target=x86", "quant.target=tflm",
                                          "quant.target=bpu"};
    small_cifar("cifar");
    for (size_t i = 0; i < OCT_COUNT(targets); i++) {
        must("rm -rf zoo net.c net.h");
        OCTET("calibrate", OCT_SOURCE_DIR "/tests/golden/onnx/mobilenet_v3_small.onnx", "cifar",
              "output=zoo", "calibrate.batches=1", "batch.size=8", "data.mean=[0.5]",
              "data.std=[0.25]", "data.test_limit=8", targets[i]);
        oct_check_exit(job, 0);
        must(OCT_PROGRAM " export zoo/model.int8.h5 --format c -o net >log && "
                         "gcc -std=c99 -c net.c -o net.o && nm -S net.o >symbols");
        must(OCT_PROGRAM " inspect --device zoo/model.int8.h5 --json >device.json");
        shell("/usr/bin/python3 -c 'import json, re\n"
              "rows = [line.split() for line in open(\"symbols\")]\n"
              "size = sum(int(r[1], 16) for r in rows if len(r) == 4 and r[2] in \"rR\")\n"
              "said = int(re.search(r\"CONSTANT_BYTES ([0-9]+)\", open(\"net.h\").read())[1])\n"
              "print(size, said, json.load(open(\"device.json\"))[\"flash\"])\n"
              "assert size == said == json.load(open(\"device.json\"))[\"flash\"]'");
        cr_assert_eq(job.exit_code, 0, "%s: %s%s", targets[i], job.out, job.err);
    }
}

Test(inspect, a_budget_that_is_exceeded_is_a_warning_with_the_layers_that_matter)
{
    OCTET("check", "r.yaml", "quant.flash_limit=1000", "quant.scratch_limit=100000000");
    oct_check_exit(job, 0);
    oct_check_said(job, "octet: warning: quant.flash_limit: the int8 model takes ");
    oct_check_said(job, "more than 1000; most in head.0 ");
    cr_assert_eq(oct_process_said_times(&job, "quant.flash_limit: the int8 model takes "), 1, "%s",
                 job.err);
    cr_assert(!oct_process_said(&job, "quant.scratch_limit"), "%s", job.err);
    OCTET("train", "r.yaml", "output=limited", "quant.scratch_limit=100");
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job, "quant.scratch_limit: the int8 model takes "), 1,
                 "%s", job.err);
    must("cmp limited/model.int8.h5 run/model.int8.h5");
}

Test(inspect, sums_beyond_a_chips_bits_are_reported_once_with_the_layer_of_the_largest_sum)
{
    OCTET("train", "r.yaml", "output=narrow", "quant.target=espdl-s3", "quant.batch_norm=folded");
    oct_check_exit(job, 0);
    oct_check_said(job,
                   "layers could leave 20 bits, where the chip of target espdl-s3 saturates after");
    oct_check_said(job, "furthest features.10, ");
    OCTET("train", "r.yaml", "output=broad", "quant.target=espdl-p4", "quant.batch_norm=folded");
    oct_check_exit(job, 0);
    cr_assert(!oct_process_said(&job, "20 bits"), "%s", job.err);
}

Test(inspect, check_writes_the_report_that_the_run_writes)
{
    OCTET("check", "r.yaml", "--report", "report.txt");
    oct_check_exit(job, 0);
    oct_check_said(job, "the report is in report.txt");
    must("cmp report.txt run/model_check_result.txt");
    OCTET("check", "r.yaml");
    oct_check_exit(job, 0);
    oct_check_said(job, "Modules, in the order in which they run");
    OCTET("check", "r.yaml", "--report", "report.txt"); /* again, over itself */
    oct_check_exit(job, 0);
}

Test(inspect, the_report_of_eager_shows_what_was_fused_by_name)
{
    OCTET("check", "r.yaml", "quant.method=eager");
    oct_check_exit(job, 0);
    oct_check_said(job, "9 operations, 9 in integers, 0 in float");
    oct_check_said(job, "features.0   qat_conv      conv2d + batch_norm + relu  u8");
    oct_check_said(job, "features.1   passes its input on\n");
}

Test(inspect, the_report_says_when_a_member_of_a_fusion_asks_in_vain)
{
    OCTET("check", "r.yaml", "quant.int16_layers=[features.2, flatten]");
    oct_check_exit(job, 0);
    oct_check_said(job, "features.2: its qconfig asks for 16-bit codes, but the qconfig of "
                        "features.0 decides their width.");
    oct_check_said(job, "flatten: its qconfig asks for 16-bit codes, but the qconfig of "
                        "features.10 decides their width.");
    OCTET("check", "r.yaml", "quant.int16_layers=[features.*]");
    oct_check_exit(job, 0);
    cr_assert(!oct_process_said(&job, "decides their width"), "%s", job.out);
}

Test(inspect, a_float_layer_of_an_int8_model_has_its_type_and_parameters)
{
    OCTET("train", "r.yaml", "output=fallback", "quant.float_layers=[head.0]");
    oct_check_exit(job, 0);
    OCTET("inspect", "fallback/model.int8.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "head.0                        float linear");
    oct_check_said(job, "140,138 parameters");
}

Test(inspect, wrong_uses_are_one_sentence)
{
    OCTET("inspect", "--graph", "--tree", "run");
    check_refused("command line: use --graph or --tree, not both");
    OCTET("inspect", "run", "--data", "data");
    check_refused("command line: --data is for --graph and --tree; nothing else needs the data");
    OCTET("inspect", "--graph", "run/model.int8.h5");
    check_refused("command line: run/model.int8.h5 is an int8 model, whose modules are steps of a "
                  "program now");
    OCTET("check", "r.yaml", "--report", "r.yaml");
    check_refused("command line: --report r.yaml: already exists and is not a check report; choose "
                  "another file name");
    OCTET("check", "run/model.int8.h5", "--report", "x");
    check_refused("command line: overrides, --ranks and --report are for recipes");
    OCTET("inspect", "--tree", "run", "--data", "nowhere");
    oct_check_exit(job, 3);
}
