/* octet calibrate through the real program: an int8 model without training, the same on any number of ranks, that
 * every other command takes; of a recipe and of an ONNX file; what its report says. */
#define SMALL_RUN_ONCE
#include "tests/launch/small_data.h"
#include "tests/support/mpirun.h"

#include "core/base/status.h"
#include "io/file/file.h"

#include <string.h>

TestSuite(calibrate, .init = enter_with_run, .fini = leave_folder, .timeout = 300);

#define CALIBRATE(...)                                                                             \
    (oct_process_free(&job),                                                                       \
     job = oct_mpirun(ranks, 120, OCT_PROGRAM, "calibrate", __VA_ARGS__, NULL))

/* Three have shares that are no subtrees. */
static const int some[] = {1, 3, 2, 5};

static size_t count_of_ranks(void)
{
    return oct_test_is_long() ? OCT_COUNT(some) : 2;
}

/* The report's lines after the paths, which differ. */
static void keep_report(const char *file)
{
    const char *table = strstr(job.out, "\nlayer ");
    cr_assert_not_null(table, "%s%s", job.out, job.err);
    oct_tmp_write_text(&tmp, file, table);
}

Test(calibrate, gives_the_same_model_and_report_on_some_ranks)
{
    for (size_t i = 0; i < count_of_ranks(); i++) {
        const int ranks = some[i];
        char output[32], report[32], compare[200];
        snprintf(output, sizeof output, "output=on%d", ranks);
        snprintf(report, sizeof report, "report%d", ranks);
        CALIBRATE("r.yaml", "init=run", "calibrate.batches=3", "quant.observer=mse", output);
        oct_check_exit(job, 0);
        oct_check_said(job, "0 of 400");
        keep_report(report);
        snprintf(compare, sizeof compare,
                 "cmp report1 report%d && cmp on1/model.int8.h5 on%d/model.int8.h5 && for f in "
                 "on1/checkpoints/*.h5; do cmp $f on%d/checkpoints/${f##*/} || exit 1; done",
                 ranks, ranks, ranks);
        must(compare);
    }
}

Test(calibrate, is_a_training_without_epochs)
{
    OCTET("calibrate", "r.yaml", "init=run", "calibrate.batches=2", "output=calibrated");
    oct_check_exit(job, 0);
    oct_check_said(job, "float accuracy");
    OCTET("train", "r.yaml", "init=run", "calibrate.batches=2", "output=trained", "float.epochs=0",
          "qat.epochs=0");
    oct_check_exit(job, 0);
    must("cmp calibrated/model.int8.h5 trained/model.int8.h5");
    OCTET("calibrate", "r.yaml", "init=run", "calibrate.batches=2", "output=calibrated");
    oct_check_exit(job, 0);
    oct_check_said(job, "is finished; showing its results again");
}

/* The folder of the float phase is not where the model was made. */
Test(calibrate, of_an_onnx_file_gives_a_model_that_every_command_takes)
{
    must(OCT_PROGRAM " export run/checkpoints/step-00000003.h5 --format onnx -o net.onnx >log");
    OCTET("calibrate", "net.onnx", "data", "data.mean=[0.5]", "data.std=[0.5]", "batch.size=32",
          "batch.leaf=4", "calibrate.batches=2", "output=net", "--json");
    oct_check_exit(job, 0);
    oct_tmp_write_text(&tmp, "json", job.out);
    shell("/usr/bin/python3 -c 'import json\n"
          "r = json.load(open(\"json\"))\n"
          "assert r[\"kind\"] == \"calibration\" and r[\"logits_differ\"] == 0\n"
          "assert abs(r[\"float_accuracy\"] - r[\"int8_accuracy\"]) < 20\n"
          "shares = [l[k] or 0 for l in r[\"layers\"] for k in (\"weights_share\", "
          "\"output_share\")]\n"
          "assert abs(sum(shares) - 1) < 1e-3, shares\n"
          "assert r[\"output_sqnr_db\"] > 15, r\n'");
    oct_check_exit(job, 0);
    shell(OCT_PROGRAM " verify net/model.int8.h5 && " OCT_PROGRAM
                      " eval net/model.int8.h5 && " OCT_PROGRAM
                      " run net/model.int8.h5 --input data/t10k-images-idx3-ubyte && " OCT_PROGRAM
                      " export net/model.int8.h5 --format onnx -o int8.onnx && " OCT_PROGRAM
                      " inspect net/model.int8.h5 && " OCT_PROGRAM " report net -o net.html");
    oct_check_exit(job, 0);
    oct_check_said(job, "40 test images");
}

/* The same pictures with and without labels, as PNG files and arrays. */
static const char *const make_pictures =
    "/usr/bin/python3 -c 'import numpy, os, struct, zlib\n"
    "x = numpy.random.default_rng(1).integers(0, 256, (48, 12, 12), dtype=numpy.uint8)\n"
    "y = numpy.arange(48) % 10\n"
    "numpy.savez(\"with.npz\", train_images=x, train_labels=y, test_images=x[:40],\n"
    "            test_labels=y[:40])\n"
    "numpy.savez(\"without.npz\", train_images=x, test_images=x[:40])\n"
    "numpy.save(\"x.npy\", x)\n"
    "numpy.savez(\"one.npz\", samples=x)\n"
    "def chunk(t, d):\n"
    "    return struct.pack(\">I\", len(d)) + t + d + struct.pack(\">I\", zlib.crc32(t + d))\n"
    "os.makedirs(\"plain\")\n"
    "for i, image in enumerate(x):\n"
    "    rows = b\"\".join(b\"\\0\" + bytes(row) for row in image)\n"
    "    open(f\"plain/{i:02}.png\", \"wb\").write(\n"
    "        b\"\\x89PNG\\r\\n\\x1a\\n\" + chunk(b\"IHDR\", struct.pack(\">IIBBBBB\", 12, 12, 8, "
    "0,\n"
    "        0, 0, 0)) + chunk(b\"IDAT\", zlib.compress(rows)) + chunk(b\"IEND\", b\"\"))\n'";

#define NET                                                                                        \
    "data.mean=[0.5]", "data.std=[0.5]", "batch.size=16", "batch.leaf=4", "calibrate.batches=2"

/* Labels do not change what is watched: the program has the same bits. */
Test(calibrate, needs_no_labels)
{
    static const char *const data[] = {"with.npz", "without.npz"};
    must(OCT_PROGRAM " export run/checkpoints/step-00000003.h5 --format onnx -o net.onnx >log");
    must(make_pictures);
    for (size_t i = 0; i < OCT_COUNT(data); i++) {
        const int ranks = i == 0 ? 1 : 2;
        char output[64], export[256];
        snprintf(output, sizeof output, "output=of-%s", data[i]);
        snprintf(export, sizeof export,
                 "mkdir c%zu && " OCT_PROGRAM " export of-%s/model.int8.h5 --format c -o c%zu/net",
                 i, data[i], i);
        CALIBRATE("net.onnx", data[i], NET, output);
        oct_check_exit(job, 0);
        oct_check_said(job, "0 of 400 (40 images, evaluation with codes against int8 model)");
        cr_assert_eq(i == 0, strstr(job.out, "accuracy") != NULL, "%s", job.out);
        must(export);
    }
    /* The header says which file it is of. */
    must("cmp c0/net.c c1/net.c && sed -i /SHA256/d c0/net.h c1/net.h && cmp c0/net.h c1/net.h");
}

/* Numbers of floats and signed bytes are no pixels, which the C form would divide by 255. */
Test(calibrate, of_floats_makes_a_c_form_that_takes_no_pixels)
{
    static const char *const data[] = {"floats.npy", "signed.npy"};
    must(OCT_PROGRAM " export run/checkpoints/step-00000003.h5 --format onnx -o net.onnx >log");
    must("/usr/bin/python3 -c 'import numpy\n"
         "x = numpy.random.default_rng(1).integers(0, 256, (48, 12, 12))\n"
         "numpy.save(\"floats.npy\", (x / 256).astype(numpy.float32))\n"
         "numpy.save(\"signed.npy\", (x - 128).astype(numpy.int8))'");
    for (size_t i = 0; i < OCT_COUNT(data); i++) {
        must("rm -rf out net.c net.h");
        OCTET("calibrate", "net.onnx", data[i], NET, "output=out");
        oct_check_exit(job, 0);
        cr_assert(oct_process_said(&job, "  test (5 images"), "%s", job.err);
        OCTET("export", "out/model.int8.h5", "--format", "c", "-o", "net", "--pixels");
        oct_check_exit(job, 4);
        oct_check_said(job, "--pixels: the inputs of this model were no pixels of a byte");
        cr_assert(!oct_file_exists("net.c") && !oct_file_exists("net.h"));
        must(OCT_PROGRAM " export out/model.int8.h5 --format c -o net >log && "
                         "grep -q 'input are (x - mean) / std as in training' net.h");
    }
}

Test(calibrate, takes_plain_pictures_and_single_arrays)
{
    static const char *const data[] = {"plain", "x.npy", "./x.npy", "one.npz"};
    must(OCT_PROGRAM " export run/checkpoints/step-00000003.h5 --format onnx -o net.onnx >log");
    must(make_pictures);
    for (size_t i = 0; i < OCT_COUNT(data); i++) {
        must("rm -rf out");
        OCTET("calibrate", "net.onnx", data[i], NET, "output=out");
        oct_check_exit(job, 0);
        oct_check_said(job, "output               ");
        cr_assert_null(strstr(job.out, "accuracy"), "%s", job.out);
        cr_assert_eq(oct_process_said_times(&job, "kept for"), 1, "%s", job.err);
        if (i > 0 && !oct_test_is_long()) { /* the recipe says where the data are, and the model */
            shell("set -e; " OCT_PROGRAM " verify out/model.int8.h5; " OCT_PROGRAM
                  " data out/recipe.yaml");
            oct_check_exit(job, 0);
            oct_check_said(job, "none: to calibrate with");
            continue;
        }
        shell("set -e; octet() { " OCT_PROGRAM " \"$@\"; }; octet verify out/model.int8.h5; "
              "octet eval out/model.int8.h5; octet run out/model.int8.h5 -i x.npy; "
              "octet report out -o out.html; octet data out/recipe.yaml --preview p.html; "
              "octet data out/recipe.yaml; octet compare out out/model.int8.h5; "
              "octet sensitivity out -o s");
        oct_check_exit(job, 0);
        oct_check_said(job, "every logit as QAT evaluation computed it\n");
        oct_check_said(job, "none: to calibrate with");
    }
    OCTET("calibrate", "r.yaml", "plain", "init=run", "calibrate.batches=2", "data.channels=1",
          "data.size=12", "data.classes=10", "output=of-a-run");
    oct_check_exit(job, 0);
    OCTET("calibrate", "r.yaml", "plain", "init=run", "data.channels=1", "data.size=12",
          "output=none");
    oct_check_exit(job, 2);
    oct_check_said(job,
                   "data.classes: samples without labels (data.goal: none) do not say how many");
    OCTET("train", "r.yaml", "data.goal=none", "data.classes=10", "output=none");
    oct_check_exit(job, 2);
    oct_check_said(job,
                   "data.goal: none has nothing to learn from, so it is for `octet calibrate`");
}

Test(calibrate, names_the_layers_that_want_more)
{
    OCTET("calibrate", "r.yaml", "init=run", "calibrate.batches=1", "output=a", "--sqnr", "15");
    oct_check_exit(job, 0);
    oct_check_said(job, "nothing: 15 dB were asked for");
    OCTET("calibrate", "r.yaml", "init=run", "calibrate.batches=1", "output=a", "--sqnr", "45");
    oct_check_exit(job, 0);
    oct_check_said(job, "quant.int16_layers=[");
    /* What it says is a key, and with it the output is better. */
    oct_tmp_write_text(&tmp, "said", job.out);
    shell("key=$(grep -o 'quant.int16_layers=.*' said) && " OCT_PROGRAM
          " calibrate r.yaml init=run calibrate.batches=1 output=b \"$key\" >then; "
          "db() { awk '$1 == \"output\" && $2 > 0 {print $2; exit}' $1; }; "
          "awk \"BEGIN {exit !($(db then) > $(db said) + 1)}\" || { cat said then; exit 1; }");
    oct_check_exit(job, 0);
    OCTET("calibrate", "r.yaml", "init=run", "calibrate.batches=1", "output=c", "--sqnr", "60",
          "quant.target=pow2", "quant.batch_norm=folded");
    oct_check_exit(job, 0);
    oct_check_said(job, "want QAT");
    cr_assert_null(strstr(job.out, "16 bits"), "the target has none: %s", job.out);
}

/* Where an observer clips, 16 bits change nothing: the message names the observer that does not, which is better. */
Test(calibrate, distinguishes_clipping_from_rounding)
{
    OCTET("calibrate", "r.yaml", "init=run", "calibrate.batches=1", "output=a", "--sqnr", "45",
          "quant.observer=percentile", "quant.percentile=90");
    oct_check_exit(job, 0);
    oct_check_said(job, "whose largest values are clipped: quant.observer=min_max cuts nothing");
    oct_tmp_write_text(&tmp, "said", job.out);
    shell(OCT_PROGRAM
          " calibrate r.yaml init=run calibrate.batches=1 output=b --sqnr 45 "
          "quant.observer=min_max >then; ! grep -q 'a wider range' then && "
          "db() { awk '$1 == \"output\" && $2 > 0 {print $2; exit}' $1; }; "
          "awk \"BEGIN {exit !($(db then) > $(db said) + 6)}\" || { cat said then; exit 1; }");
    oct_check_exit(job, 0);
}

#define ALL                                                                                        \
    "quant.equalize=true", "quant.rounding=gptq", "quant.bias_correction=true",                    \
        "quant.observer=histogram"

/* The weights that calibration leaves are in the checkpoints of the phases after it. */
Test(calibrate, corrects_weights_to_the_same_bits_on_some_ranks)
{
    for (size_t i = 0; i < count_of_ranks(); i++) {
        const int ranks = some[i];
        char output[32], compare[200];
        snprintf(output, sizeof output, "output=on%d", ranks);
        CALIBRATE("r.yaml", "init=run", "calibrate.batches=2", ALL, output);
        oct_check_exit(job, 0);
        oct_check_said(job, "equalized: 4 pairs of layers");
        oct_check_said(job, "gptq: the weights of 6 layers were rounded");
        oct_check_said(job, "bias correction: 6 layers");
        snprintf(compare, sizeof compare,
                 "cmp on1/model.int8.h5 on%d/model.int8.h5 && for f in on1/checkpoints/*.h5; do "
                 "cmp $f on%d/checkpoints/${f##*/} || exit 1; done",
                 ranks, ranks);
        must(compare);
    }
    OCTET("verify", "on1/model.int8.h5");
    oct_check_exit(job, 0);
    OCTET("calibrate", "r.yaml", "init=run", "calibrate.batches=2", "output=plain");
    oct_check_exit(job, 0);
    must("! cmp -s plain/model.int8.h5 on1/model.int8.h5");
}

/* QAT continues from the rounded weights: a resume from calibration's last checkpoint rounds them again, one of QAT has
 * them. */
Test(calibrate, training_continues_from_the_corrections)
{
    OCTET("train", "r.yaml", "init=run", "float.epochs=0", "checkpoint.every=1",
          "checkpoint.keep=9", ALL, "output=whole");
    oct_check_exit(job, 0);
    must("for step in 1 ${OCT_LONG:+2} 3; do cp -r whole part; cd part; rm model.int8.h5 run.json "
         "metrics.jsonl "
         "checkpoints/manifest.json; "
         "for f in checkpoints/step-*.h5; do n=${f#*-0000000}; [ ${n%.h5} -gt $step ] && rm $f; "
         "done; cd ..; " OCT_PROGRAM
         " train r.yaml init=run float.epochs=0 checkpoint.every=1 checkpoint.keep=9 "
         "quant.equalize=true quant.rounding=gptq quant.bias_correction=true "
         "quant.observer=histogram output=part --ranks 2 >log 2>&1 || { cat log; exit 1; }; "
         "cmp part/model.int8.h5 whole/model.int8.h5 || exit 1; grep -q resuming log || exit 1; "
         "rm -r part; done");
}

Test(calibrate, equalization_wants_a_graph)
{
    OCTET("calibrate", "r.yaml", "init=run", "quant.equalize=true", "quant.method=eager");
    oct_check_exit(job, 2);
    oct_check_said(job, "quant.equalize: needs the network's graph, which the method eager does "
                        "not know; use jit_strip");
}
