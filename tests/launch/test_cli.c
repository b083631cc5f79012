/* The program from a user's side: the output and exit status of each command, alone and under mpirun. */
#include "core/base/mem.h"
#include "io/model/model_file.h"
#include "launch/cmd/command.h"
#include <octet/version.h>
#include "quant/target/target.h"
#define SMALL_RUN_ONCE
#include "tests/launch/small_data.h"
#include "tests/support/mpirun.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

TestSuite(cli, .fini = leave_folder);

/* Help. */

Test(cli, without_words_shows_the_commands_and_ends_with_2)
{
    job = oct_process_run(PROGRAM_SECONDS, OCT_PROGRAM, NULL);
    oct_check_exit(job, 2);
    for (size_t i = 0; i < oct_command_count(); i++)
        oct_check_said(job, oct_command_at(i)->summary);
    cr_assert_str_eq(job.err, "");
}

Test(cli, help_shows_every_exit_code)
{
    OCTET("help");
    oct_check_exit(job, 0);
#define X(name, code, meaning)                                                                     \
    if (OCT_##name != OCT_PEER) oct_check_said(job, meaning);
    OCT_STATUS_LIST(X)
#undef X
}

Test(cli, help_of_a_command_is_the_same_in_both_spellings)
{
    for (size_t i = 0; i < oct_command_count(); i++) {
        const char *name = oct_command_at(i)->name;
        OCTET("help", name);
        oct_check_exit(job, 0);
        oct_check_said(job, oct_command_at(i)->usage);
        oct_process other = oct_process_run(PROGRAM_SECONDS, OCT_PROGRAM, name, "--help", NULL);
        oct_check_exit(other, 0);
        cr_assert_str_eq(other.out, job.out);
        oct_process_free(&other);
    }
}

Test(cli, help_knows_recipe_keys_models_and_data)
{
    OCTET("help", "recipe");
    oct_check_exit(job, 0);
    oct_check_said(job, "qat.freeze_scales");
    OCTET("help", "qat.lr");
    oct_check_said(job, "peak learning rate");
    cr_assert(!oct_process_said(&job, "qat.epochs"), "%s", job.out);
    OCTET("help", "qat");
    oct_check_said(job, "qat.epochs");
    OCTET("help", "models");
    oct_check_said(job, "resnet20");
    OCTET("help", "formats");
    oct_check_said(job, "/usr/share/datasets/fashion-mnist");
    oct_check_said(job, "images   00 00 08 03, count, height, width");
}

Test(cli, targets_says_what_each_one_computes)
{
    OCTET("targets");
    oct_check_exit(job, 0);
    for (size_t i = 0; i < oct_registry_count(&oct_target_id_table); i++)
        oct_check_said(job, oct_target_at(i)->help);
    OCTET("targets", "pow2");
    oct_check_exit(job, 0);
    oct_check_said(job, oct_target_pow2.help);
    oct_check_said(job, "\n  refused      ");
    oct_check_said(job, "\n  shown by     ");
    cr_assert(!oct_process_said(&job, oct_target_x86.help), "%s", job.out);
    OCTET("targets", "onnx_runtime");
    oct_check_exit(job, 2);
    oct_check_said(job,
                   "command line: there is no target 'onnx_runtime'; did you mean 'onnxruntime'?");
}

Test(cli, help_is_quick_and_the_version_is_short)
{
    OCTET("help");
    cr_assert_lt(job.seconds, 1.0, "%.3f s", job.seconds);
    OCTET("--version");
    oct_check_exit(job, 0);
    cr_assert_str_eq(job.out, "octet " OCT_VERSION "\n");
}

Test(cli, recipes_lists_what_it_can_print)
{
    OCTET("recipes");
    oct_check_exit(job, 0);
    oct_check_said(job, "fashion-mnist");
    OCTET("recipes", "fashion-mnist");
    oct_check_exit(job, 0);
    oct_check_said(job, "cnn-small");
}

/* Commands on a run. */

Test(cli, check_of_a_good_recipe_judges_and_writes_nothing)
{
    enter_with_run();
    OCTET("check", "r.yaml", "--ranks", "3", "output=never");
    oct_check_exit(job, 0);
    oct_check_said(job, "96 training and 40 test images of 12x12x1, 10 classes");
    oct_check_said(job, "8 leaves of 4 samples; 3 ranks: 2 or 3 each");
    oct_check_said(job, "3 steps an epoch");
    oct_check_said(job, "OK          ready to train");
    cr_assert_neq(access("never", F_OK), 0);
}

/* The predicted size is that of the tensors in the file. */
Test(cli, check_predicts_the_size_of_a_checkpoint)
{
    enter_with_run();
    OCTET("check", "r.yaml", "--json");
    oct_check_exit(job, 0);
    json_t *said = json_loads(job.out, 0, NULL);
    cr_assert_not_null(said, "%s", job.out);
    json_int_t predicted = json_integer_value(json_object_get(said, "checkpoint_bytes"));
    json_int_t parameters = json_integer_value(json_object_get(said, "parameters"));
    json_decref(said);
    char bytes[64];
    OCTET("inspect", "run/checkpoints/step-00000007.h5");
    oct_check_exit(job, 0);
    snprintf(bytes, sizeof(bytes), "f32  (%lld)", (long long)parameters);
    oct_check_said(job, bytes);
    OCTET("inspect", "run/checkpoints/step-00000007.h5", "--json");
    snprintf(bytes, sizeof(bytes), "\"tensor_bytes\": %lld,", (long long)predicted);
    oct_check_said(job, bytes);
}

Test(cli, inspect_knows_all_kinds_of_files)
{
    enter_with_run();
    OCTET("inspect", "run/model.int8.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "features.0");
    oct_check_said(job, "12x12x32");
    oct_check_said(job, "0 logits differ");
    OCTET("inspect", "run");
    oct_check_exit(job, 0);
    oct_check_said(job, "step 7, phase qat-scales-frozen");
    OCTET("inspect", "r.yaml");
    oct_check_exit(job, 0);
    oct_check_said(job, "freeze_scales");
    OCTET("inspect", "run/checkpoints/step-00000007.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "state/features/0/conv/weight");
    oct_check_said(job, "optimizer/slot0");
}

Test(cli, run_says_what_the_images_are_in_every_format)
{
    enter_with_run();
    OCTET("run", "run/model.int8.h5", "--input", "data/t10k-images-idx3-ubyte", "--index", "5",
          "--count", "2");
    oct_check_exit(job, 0);
    oct_check_said(job, "image 5: class ");
    oct_check_said(job, "image 6: class ");
    oct_check_said(job, "ms an image");

    /* The same pixels from a picture, from raw bytes and from a gzipped file: the same answer. */
    char wanted[256];
    snprintf(wanted, sizeof(wanted), "%s", strstr(job.out, "image 5:") + strlen("image 5:"));
    wanted[strcspn(wanted, "\n") + 1] = '\0';
    must("tail -c +737 data/t10k-images-idx3-ubyte | head -c 144 > raw");
    must("{ printf 'P5\\n# a comment\\n12 12\\n255\\n'; cat raw; } > x.pgm");
    must("gzip -k raw");
    must("/usr/bin/python3 -c \"import numpy as n; x = n.fromfile('raw', 'u1').reshape(12, 12); "
         "n.save('one.npy', x); n.save('rows.npy', x[None]); n.save('nhwc.npy', x[None, ..., "
         "None]); "
         "n.save('float.npy', (x.astype('f4') * n.float32(1 / 255)).astype('>f4'))\"");
    static const char *const files[] = {"raw",      "x.pgm",    "raw.gz",   "one.npy",
                                        "rows.npy", "nhwc.npy", "float.npy"};
    for (size_t i = 0; i < OCT_COUNT(files); i++) {
        OCTET("run", "run/model.int8.h5", "--input", files[i],
              strncmp(files[i], "raw", 3) == 0 ? "--raw" : "-q");
        oct_check_exit(job, 0);
        oct_check_said(job, wanted);
    }
}

/* The pixels of images 5 and 6 from everything that a recipe reads: the same numbers from each, by name. */
Test(cli, run_reads_what_recipes_read)
{
    enter_with_run();
    must("/usr/bin/python3 -c \"import h5py, os, struct, zlib, numpy as n\n"
         "x = n.fromfile('data/t10k-images-idx3-ubyte', 'u1')[16:].reshape(-1, 12, 12)[5:7]\n"
         "n.savez('a.npz', x); n.savez('b.npz', test_images=x, train_images=x[:0], c=x)\n"
         "h5py.File('c.h5', 'w')['test/images'] = x; h5py.File('d.h5', 'w')['odd'] = x\n"
         "chunk = lambda k, d: struct.pack('>I', len(d)) + k + d + struct.pack('>I', "
         "zlib.crc32(k + d))\n"
         "os.mkdir('p')\n"
         "for i in range(2): open('p/%d.png' % i, 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + "
         "chunk(b'IHDR', struct.pack('>IIBBBBB', 12, 12, 8, 0, 0, 0, 0)) + chunk(b'IDAT', "
         "zlib.compress(b''.join(b'\\0' + r.tobytes() for r in x[i]))) + chunk(b'IEND', b''))\n"
         "open('t.csv', 'w').write('p/0.png,1\\np/1.png,2\\n')\" && mkdir plain && cp -r p "
         "plain/class && cp p/0.png p/1.png .");
    static const char *const ways[] = {
        "data --index 5 --count 2",
        "a.npz --count 2",
        "b.npz --count 2",
        "c.h5 --count 2",
        "d.h5 --count 2 --images odd",
        "p/",
        "plain",
        "t.csv",
        "0.png 1.png",
    };
    for (size_t i = 0; i < OCT_COUNT(ways); i++) {
        char command[512];
        snprintf(command, sizeof command,
                 "%s run run/model.int8.h5 -q --json --logits --input %s > %zu.json && "
                 "/usr/bin/python3 -c \"import json; a, b = (json.load(open('%%d.json' %% i))"
                 "['images'] for i in (0, %zu)); assert len(b) == 2; assert all(x['logits'] == "
                 "y['logits'] and len(y['logits']) == 10 and y['file'] for x, y in zip(a, b))\"",
                 OCT_PROGRAM, ways[i], i, i);
        must(command);
    }
    OCTET("run", "run/model.int8.h5", "--input", "p/");
    oct_check_said(job, "p/0.png: class ");
    OCTET("eval", "run/", "--data", "data//");
    oct_check_said(job, "run/checkpoints/step-");
    OCTET("eval", "run/", "--data", "p//");
    oct_check_said(job, " p: neither t10k-images-idx3-ubyte nor");
    OCTET("run", "run/model.int8.h5", "-i", "a.npz", "1.png", "--logits");
    oct_check_said(job, "a.npz: 1 of its 2 images; --count 2 takes all");
    oct_check_said(job, "a.npz, image 0: class ");
    oct_check_said(job, "1.png: class ");
    oct_check_said(job, "; outputs ");
}

Test(cli, verify_repeats_the_certificate)
{
    enter_with_run();
    OCTET("verify", "run/model.int8.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "verified: 8 golden inputs, all 10 layers bit for bit");
    oct_check_said(job, "verified: 40 test images: every logit as QAT evaluation computed it");
    OCTET("verify", "run/checkpoints/step-00000007.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "every tensor of cnn-small");
}

Test(cli, convert_refuses_another_target_than_the_one_trained_for)
{
    enter_with_run();
    OCTET("convert", "run", "-o", "again.int8.h5", "--target", "x86");
    oct_check_exit(job, 0);
    oct_check_said(job, "target               x86\n");
    OCTET("convert", "run", "-o", "other.int8.h5", "--target", "pow2");
    oct_check_exit(job, 4);
    oct_check_said(job, "the model was prepared for x86 and learned that target's rounding, so it "
                        "cannot be converted for pow2; train its QAT phase with quant.target pow2");
    OCTET("convert", "run", "-o", "other.int8.h5", "--target", "x68");
    oct_check_exit(job, 2);
    oct_check_said(job, "--target: there is no target 'x68'; did you mean 'x86'?");
    cr_assert(access("other.int8.h5", F_OK) != 0);
}

Test(cli, layers_that_stay_float_are_part_of_the_model_and_named)
{
    enter_with_run();
    OCTET("train", "r.yaml", "output=mixed", "quant.float_layers=[features.3]");
    oct_check_exit(job, 0);
    OCTET("convert", "mixed", "-o", "again.int8.h5", "--ranks", "2");
    oct_check_exit(job, 0);
    oct_check_said(job, "logits that differ   0 of 400");
    oct_check_said(job, "float layers         ");
    oct_check_said(job, "features.3 (conv2d): ");
    must("cmp again.int8.h5 mixed/model.int8.h5");
    OCTET("verify", "again.int8.h5", "--data", "data");
    oct_check_exit(job, 0);
    oct_check_said(job, "verified: 40 test images: every logit as QAT evaluation computed it");
    OCTET("eval", "again.int8.h5", "--data", "data", "--ranks", "2");
    oct_check_exit(job, 0);
    OCTET("run", "again.int8.h5", "--input", "data/t10k-images-idx3-ubyte");
    oct_check_exit(job, 0);
    OCTET("inspect", "again.int8.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "features.3");
}

Test(cli, verify_says_when_the_test_data_is_not_here)
{
    enter_with_run();
    must("mv data elsewhere");
    OCTET("verify", "run/model.int8.h5");
    oct_check_exit(job, 1);
    oct_check_said(job, "not verified: test data: ");
    oct_check_said(job, "; name its folder with --data, or ask for no data with --golden-only");
    oct_check_said(job, "run/model.int8.h5: nothing differs, but not everything was verified");
    OCTET("verify", "run/model.int8.h5", "--golden-only");
    oct_check_exit(job, 0);
    oct_check_said(job, "verified: 8 golden inputs");
    OCTET("verify", "run/checkpoints/step-00000007.h5");
    oct_check_exit(job, 1);
    OCTET("verify", "run/model.int8.h5", "--data", "elsewhere");
    oct_check_exit(job, 0);
    oct_check_said(job, "verified: 40 test images");
}

Test(cli, verify_refuses_other_data_when_it_was_named)
{
    enter_with_run();
    must("cp -r data other && printf x | dd of=other/t10k-images-idx3-ubyte bs=1 seek=99 "
         "conv=notrunc status=none");
    OCTET("verify", "run/model.int8.h5", "--data", "other");
    oct_check_exit(job, 3);
    oct_check_said(job, "not the test data of the certificate");
}

/* A model whose file is whole, but whose certificate says something else. */
static void change_model(void (*change)(oct_model *model))
{
    oct_model model = {0};
    cr_assert_eq(oct_model_load(&model, "run/model.int8.h5", false), OCT_OK);
    change(&model);
    cr_assert_eq(oct_model_write("changed.int8.h5", &model), OCT_OK);
    oct_model_free(&model);
}

static void change_golden(oct_model *model)
{
    int64_t value = model->program.steps[3].output;
    model->golden_digest[(2 * model->program.num_values + value) * 32] ^= 1;
}

static void change_logits(oct_model *model)
{
    model->certificate.logits_digest[31] ^= 1;
}

static void change_weight(oct_model *model)
{
    model->program.steps[1].conv.weight[0] ^= 1;
}

Test(cli, verify_names_the_first_layer_that_differs)
{
    enter_with_run();
    change_model(change_golden);
    OCTET("verify", "changed.int8.h5");
    oct_check_exit(job, 1);
    oct_check_said(job, "golden input 2: layer features.6 is the first that differs");
}

Test(cli, verify_finds_one_weight_that_was_changed)
{
    enter_with_run();
    change_model(change_weight);
    OCTET("verify", "changed.int8.h5");
    oct_check_exit(job, 1);
    oct_check_said(job, "golden input 0: layer features.0 is the first that differs");
}

Test(cli, verify_finds_logits_that_differ)
{
    enter_with_run();
    change_model(change_logits);
    OCTET("verify", "changed.int8.h5", "--data", "data");
    oct_check_exit(job, 1);
    oct_check_said(job, "the logits of the test set are not those of the certificate");
}

Test(cli, json_is_one_document)
{
    enter_with_run();
    static const char *const lines[][6] = {
        {"check", "r.yaml", "--json"},
        {"check", "run/model.int8.h5", "--json"},
        {"inspect", "run", "--json"},
        {"inspect", "r.yaml", "--json"},
        {"inspect", "run/model.int8.h5", "--json"},
        {"inspect", "run/checkpoints/step-00000007.h5", "--json"},
        {"verify", "run/model.int8.h5", "--json"},
        {"run", "run/model.int8.h5", "--input", "data/t10k-images-idx3-ubyte", "--json"},
        {"recipes", "--json"},
        {"targets", "--json"},
        {"eval", "run", "--json"},
        {"bench", "infer", "run/model.int8.h5", "--steps=2", "--json"},
    };
    for (size_t i = 0; i < OCT_COUNT(lines); i++) {
        const char *const *w = lines[i];
        oct_process_free(&job);
        job =
            oct_process_run(PROGRAM_SECONDS, OCT_PROGRAM, w[0], w[1], w[2], w[3], w[4], w[5], NULL);
        oct_check_exit(job, 0);
        json_error_t error;
        json_t *document = json_loads(job.out, 0, &error);
        cr_assert_not_null(document, "%s %s: %s\n%s", w[0], w[1], error.text, job.out);
        json_decref(document);
    }
}

Test(cli, bench_times_a_model_file)
{
    enter_with_run();
    OCTET("bench", "infer", "run/model.int8.h5", "--steps", "2");
    oct_check_exit(job, 0);
    oct_check_said(job, "images/s");
}

/* Ranks. */

Test(cli, ranks_gives_the_bits_of_one_rank)
{
    enter_with_run();
    OCTET("train", "r.yaml", "output=three", "--ranks", "3", "-q");
    oct_check_exit(job, 0);
    must("cmp run/model.int8.h5 three/model.int8.h5");
    must("cmp run/checkpoints/step-00000007.h5 three/checkpoints/step-00000007.h5");
}

Test(cli, ranks_keeps_exit_code_and_sentence)
{
    enter_with_run();
    OCTET("train", "r.yaml", "--ranks", "3", "batch.size=8");
    oct_check_exit(job, 2);
    cr_assert_eq(oct_process_said_times(&job, "octet: error: more ranks (3) than leaves (2)"), 1,
                 "%s", job.err);
    OCTET("train", "r.yaml", "--ranks", "2", "data.path=nowhere");
    oct_check_exit(job, 3);
    cr_assert_eq(oct_process_said_times(&job, "octet: error: nowhere: there is no such folder"), 1,
                 "%s", job.err);
}

/* A wrong recipe is found before mpirun is. */
Test(cli, ranks_judges_the_recipe_before_it_starts_any)
{
    enter_with_run();
    must("mkdir none");
    setenv("PATH", "none", 1);
    OCTET("train", "r.yaml", "--ranks", "2", "batch.size=10x");
    oct_check_exit(job, 2);
    OCTET("train", "r.yaml", "--ranks", "2");
    oct_check_exit(job, 7);
    oct_check_said(job, "--ranks 2: mpirun cannot be started");
}

Test(cli, ranks_under_mpirun_is_refused_once)
{
    job = oct_mpirun(2, PROGRAM_SECONDS, OCT_PROGRAM, "bench", "reduce", "--ranks", "2", NULL);
    oct_check_exit(job, 2);
    cr_assert_eq(
        oct_process_said_times(
            &job, "--ranks cannot be used under mpirun or another launcher; use only one of them"),
        1, "%s", job.err);
}

Test(cli, commands_for_one_process_refuse_mpirun_once)
{
    job = oct_mpirun(3, PROGRAM_SECONDS, OCT_PROGRAM, "help", NULL);
    oct_check_exit(job, 2);
    cr_assert_eq(oct_process_said_times(&job, "octet help is for one process, but 3 were started"),
                 1, "%s", job.err);
}

Test(cli, an_mpirun_of_one_is_no_reason_to_refuse)
{
    job = oct_mpirun(1, PROGRAM_SECONDS, OCT_PROGRAM, "help", NULL);
    oct_check_exit(job, 0);
}

Test(cli, version_under_mpirun_is_said_once)
{
    job = oct_mpirun(3, PROGRAM_SECONDS, OCT_PROGRAM, "--version", NULL);
    oct_check_exit(job, 0);
    cr_assert_eq(oct_process_said_times(&job, "octet " OCT_VERSION), 1, "%s", job.out);
}

/* One rank alone has a mistake that the others do not see. */
Test(cli, a_mistake_of_one_rank_is_said_with_its_number)
{
    enter_with_run();
    job = oct_mpirun(2, PROGRAM_SECONDS, "/bin/bash", "-c",
                     "f=r.yaml; [ $OMPI_COMM_WORLD_RANK = 1 ] && f=missing.yaml; exec " OCT_PROGRAM
                     " train $f output=lone",
                     NULL);
    oct_check_exit(job, 3);
    cr_assert_eq(oct_process_said_times(&job, "missing.yaml: there is no such file"), 1, "%s",
                 job.err);
    oct_check_said(job, "octet: error: rank 1 (");
}

Test(cli, data_that_is_missing_on_one_rank_is_said_once_with_its_number)
{
    enter_with_run();
    job = oct_mpirun(3, PROGRAM_SECONDS, "/bin/bash", "-c",
                     "d=data; [ $OMPI_COMM_WORLD_RANK = 2 ] && d=nowhere; exec " OCT_PROGRAM
                     " train r.yaml output=lone data.path=$d",
                     NULL);
    oct_check_exit(job, 3);
    cr_assert_eq(oct_process_said_times(&job, "nowhere: there is no such folder"), 1, "%s",
                 job.err);
    oct_check_said(job, "octet: error: rank 2 (");
    cr_assert_neq(access("lone", F_OK), 0, "a folder was made");
}

/* A pipe. */

Test(cli, a_reader_that_leaves_early_is_no_error)
{
    enter_with_run();
    static const char *const commands[] = {"help recipe", "recipes", "inspect run/model.int8.h5",
                                           "inspect --json run/model.int8.h5",
                                           "train r.yaml output=run"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char line[400];
        snprintf(line, sizeof line,
                 "{ sleep 0.3; " OCT_PROGRAM " %s; echo \"ended with $?\" >&2; } | true",
                 commands[i]);
        oct_process_free(&job);
        job = oct_process_run(PROGRAM_SECONDS, "bash", "-c", line, NULL);
        oct_check_said(job, "ended with 0");
        cr_assert(!oct_process_said(&job, "error"), "%s\n%s", commands[i], job.err);
    }
}
