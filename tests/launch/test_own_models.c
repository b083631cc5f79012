/* Every command on int8 models that programs of other people have made: no recipe, no checkpoint, with golden inputs and
 * certificate and without; one channel, three, two inputs; classes, class numbers, a class for each pixel, values. */
#include "tests/launch/own_models.h"
#include "tests/support/program.h"

#include <stdio.h>

TestSuite(own_models, .init = enter_folder, .fini = leave_folder, .timeout = 120);

/* A case: a command, in which $m is the name of a model, how it ends, and what it says. */
typedef struct own_case {
    unsigned kinds; /* bits */
    const char *command;
    int exit_code;
    const char *said, *unsaid;
} own_case;

#define ONE(kind) (1U << (kind))
enum {
    ALL = (1U << OWN_KINDS) - 1,
    ALONE = ALL & ~ONE(OWN_TWO), /* have one input */
    SOME = ONE(OWN_COLOUR) | ONE(OWN_NUMBERS) | ONE(OWN_TWO),
    JUDGED = ONE(OWN_GREY) | ONE(OWN_COLOUR) | ONE(OWN_NUMBERS), /* by labels */
    CERTIFIED = JUDGED | ONE(OWN_VALUES),
    OTHERS = ALL & ~CERTIFIED,
};

static void check_cases(const own_case *cases, size_t count)
{
    char script[700];
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < OWN_KINDS; k++) {
            const own_case *c = &cases[i];
            if (!(c->kinds & ONE(k))) continue;
            snprintf(script, sizeof script, "m=%s; %s %s", own_names[k], OCT_PROGRAM, c->command);
            shell(script);
            cr_assert(job.exit_code == c->exit_code &&
                          (!c->said || oct_process_said(&job, c->said)) &&
                          !(c->unsaid && oct_process_said(&job, c->unsaid)),
                      "%s\nexit %d, wanted %d and \"%s\"\n%s%s", script, job.exit_code,
                      c->exit_code, c->said ? c->said : "", job.out, job.err);
        }
}

#define MANY                                                                                       \
    "takes 2 inputs, but this command feeds it one image; run it with the library (octet/net.h)"
#define NO_GOLDEN                                                                                  \
    "notice         the model holds no golden inputs, so nothing goes with the file by which its " \
    "outputs can be checked; the program that made the model adds them with oct_model_set_golden"

/* What no golden input and no certificate changes. */
static const own_case of_all[] = {
    {ALL, "inspect $m.int8.h5", 0, "made by     a program, from no checkpoint", "0000"},
    {ONE(OWN_COLOUR), "inspect $m.int8.h5", 0, "class names bolt, nut, washer", NULL},
    {SOME, "inspect $m.int8.h5 --json", 0, "\"layers\"", "\"checkpoint\""},
    {ONE(OWN_TWO), "inspect $m.int8.h5 --device", 0, "operations", NULL},
    {ONE(OWN_TWO), "inspect $m.int8.h5 --graph --dot", 0, "digraph", NULL},
    {ONE(OWN_TWO), "inspect $m.int8.h5 --graph", 2, "whose modules are steps of a program now",
     NULL},
    {ONE(OWN_TWO), "check $m.int8.h5", 0, "program and bounds are sound", NULL},
    {ONE(OWN_TWO), "export $m.int8.h5 --format safetensors -o $m.s", 2, "is for checkpoints", NULL},
    {ONE(OWN_TWO), "convert $m.int8.h5 -o x.int8.h5", 3,
     "convert takes a checkpoint or a run folder", NULL},
};

static const own_case with_golden[] = {
    {JUDGED, "inspect $m.int8.h5", 0,
     "certificate 24 test images, 0 logits differ from QAT evaluation, 66.67 % right; 3 golden",
     NULL},
    {ONE(OWN_VALUES), "inspect $m.int8.h5", 0,
     "122 parameters, 2 values\ncertificate 24 test images, 0 logits differ from QAT evaluation, 3 "
     "golden",
     NULL},
    {OTHERS, "inspect $m.int8.h5", 0, "certificate none, 3 golden inputs;", NULL},
    {CERTIFIED, "verify $m.int8.h5", 1,
     "so only --data PATH names its test data; name its folder with --data, or ask for no data "
     "with --golden-only",
     NULL},
    {JUDGED, "verify $m.int8.h5 --data $m.npz", 0,
     "verified: 24 test images: every logit as QAT evaluation computed it, 66.67 % right", NULL},
    {ONE(OWN_VALUES), "verify $m.int8.h5 --data $m.npz", 0,
     "verified: 24 test images: every logit as QAT evaluation computed it", "right"},
    {ONE(OWN_GREY), "verify $m.int8.h5 --data wrong.npz", 3,
     "wrong.npz: not the test data of the certificate (10 images here, 24 there)", NULL},
    {OTHERS, "verify $m.int8.h5", 0, "3 golden inputs, all", "not verified"},
    {OTHERS, "verify $m.int8.h5 --data $m.npz", 2,
     "has no certificate, so there is nothing to compare test data with; leave it out, or measure "
     "with octet eval",
     NULL},
    {ALL, "verify $m.int8.h5 --golden-only", 0, "3 golden inputs, all", "not verified"},
    {ONE(OWN_MAP), "compare $m.int8.h5 $m.int8.h5", 0, "the golden inputs of the model instead",
     NULL},
    {ALL, "export $m.int8.h5 --format onnx -o $m.onnx", 0, "(3 inputs and outputs)", NULL},
    {SOME, "export $m.int8.h5 --format tflite -o $m.tflite", 0, "(3 inputs and outputs)", NULL},
    {SOME, "export $m.int8.h5 --format c -o $m.c", 0, NULL, "golden"},
    {SOME, "export $m.int8.h5 --format flat -o $m.flat", 0, NULL, "golden"},
    {SOME, "verify $m.flat --golden-only", 0, "3 golden inputs, all", "not verified"},
    {ONE(OWN_GREY) | ONE(OWN_MAP), "export $m.int8.h5 --format onnx -o $m.p.onnx --pixels", 0,
     "(3 inputs and outputs)", NULL},
    {ONE(OWN_GREY) | ONE(OWN_MAP), "export $m.int8.h5 --format c -o ${m}_p.c --pixels", 0, NULL,
     "golden"},
};

static const own_case without_golden[] = {
    {SOME, "inspect $m.int8.h5", 0, "certificate none, 0 golden inputs;", NULL},
    {SOME, "verify $m.int8.h5", 1,
     "not verified: layers: the file holds no golden inputs; the program that made it adds them "
     "with "
     "oct_model_set_golden before oct_model_save, and octet convert adds them to a model of a "
     "checkpoint",
     "test data"},
    {ONE(OWN_GREY), "compare $m.int8.h5 $m.int8.h5", 3,
     "a program made grey.int8.h5, so only --data PATH names its test data", NULL},
    {SOME, "export $m.int8.h5 --format onnx -o $m.onnx", 0, NO_GOLDEN, "golden samples"},
    {SOME, "export $m.int8.h5 --format tflite -o $m.tflite", 0, NO_GOLDEN, "golden samples"},
    {SOME, "export $m.int8.h5 --format c -o $m.c", 0, NO_GOLDEN, NULL},
    {SOME, "export $m.int8.h5 --format flat -o $m.flat", 0, NO_GOLDEN, NULL},
    {SOME, "inspect $m.flat", 0, "made by     a program, from no checkpoint", NULL},
};

/* What commands read of data: their own golden inputs, or what a command line names. */
static const own_case on_data[] = {
    {ONE(OWN_GREY), "eval $m.int8.h5", 2, "command line: --data is missing: a program made ", NULL},
    {JUDGED, "eval $m.int8.h5 --data $m.npz", 0, "correct      16 of 24", NULL},
    {ONE(OWN_NUMBERS), "eval $m.int8.h5 --data $m.npz --metrics f1 --require 60", 0, "F1", NULL},
    {ONE(OWN_GREY), "eval $m.int8.h5 --data $m.npz --require 70", 1,
     "accuracy 66.67 % is below the 70 %", NULL},
    {ONE(OWN_GREY), "eval $m.int8.h5 --data $m.npz data.test_limit=6", 0, "correct      4 of 6",
     NULL},
    {ONE(OWN_VALUES), "eval $m.int8.h5 --data $m.npz", 0, "MAE", "accuracy"},
    {ONE(OWN_VALUES), "eval $m.int8.h5 --data colour.npz", 3,
     "gives 2 numbers for a sample, but the data have 1 (data.goal: values)", NULL},
    {ONE(OWN_MAP), "eval $m.int8.h5 --data $m.npz --metrics miou", 0, "of 1,536", NULL},
    {ONE(OWN_COLOUR), "eval $m.int8.h5 --data wrong.npz", 3,
     "takes images of 8 x 8 x 3, but those of the data are 4 x 4 x 3", NULL},
    {ONE(OWN_COLOUR), "eval $m.int8.h5 --data wrong.npz data.size=8", 0, "of 10", NULL},
    {ONE(OWN_COLOUR), "eval $m.int8.h5 --data $m.npz data.mean=[-9,9,9] data.std=[1,0.1,0.01]", 0,
     "of 24", "16 of 24"},
    {ONE(OWN_COLOUR), "eval $m.int8.h5 --data pics", 0, "of 6", NULL},
    {ONE(OWN_GREY), "eval $m.int8.h5 --data pics", 0,
     "octet: pics: pictures of another size become 8x8; data.size changes it", NULL},
    {ONE(OWN_COLOUR), "eval $m.int8.h5 --data nowhere", 3, "nowhere: there is no such folder",
     NULL},
    {ONE(OWN_COLOUR), "eval $m.int8.h5 --data $m.npz data.labels=w", 3,
     "data.images and data.labels say what the arrays are called", NULL},
    {ONE(OWN_COLOUR), "eval $m.int8.h5 --data $m.npz data.kind=w", 2, "unknown key 'data.kind'",
     NULL},
    {ONE(OWN_COLOUR), "run $m.int8.h5 --input $m.npz", 0, "image 0: washer, ", NULL},
    {ONE(OWN_GREY), "run $m.int8.h5 --input $m.npz", 0, "image 0: class ", NULL},
    {ONE(OWN_NUMBERS), "run $m.int8.h5 --input $m.npz --logits", 0, "image 0: class 2; outputs 2",
     NULL},
    {ONE(OWN_MAP), "run $m.int8.h5 --input $m.npz --output map.png", 0,
     "map.png: the class of each pixel", NULL},
    {ONE(OWN_VALUES), "run $m.int8.h5 --input $m.npz", 0, "image 0: 0.", "class"},
    {ONE(OWN_COLOUR), "run $m.int8.h5 --input wrong.npz", 3,
     "images of 4x4x3, but the model takes 8x8x3; resize them", NULL},
    {ONE(OWN_MAP) | ONE(OWN_VALUES), "compare $m.int8.h5 $m.int8.h5 --data $m.npz", 0,
     "every layer is the same, bit for bit", "warning"},
    {ONE(OWN_GREY), "bench infer $m.int8.h5 --steps 1 --batch 1", 0, "images/s", NULL},
    {ONE(OWN_TWO), "run $m.int8.h5 --input $m.npz", 3, MANY, NULL},
    {ONE(OWN_TWO), "eval $m.int8.h5 --data $m.npz", 3, MANY, NULL},
    {ONE(OWN_TWO), "compare $m.int8.h5 $m.int8.h5", 3, MANY, NULL},
    {ONE(OWN_TWO), "bench infer $m.int8.h5", 3, MANY, NULL},
};

Test(own_models, with_golden_inputs_and_certificate)
{
    for (int k = 0; k < OWN_KINDS; k++)
        own_write((own_kind)k, 3, CERTIFIED & ONE(k));
    own_write_wrong();
    check_cases(of_all, OCT_COUNT(of_all));
    check_cases(with_golden, OCT_COUNT(with_golden));
}

Test(own_models, on_data_of_the_command_line)
{
    for (int k = 0; k < OWN_KINDS; k++)
        own_write((own_kind)k, 0, CERTIFIED & ONE(k));
    own_write_wrong();
    check_cases(on_data, OCT_COUNT(on_data));
}

Test(own_models, without_golden_inputs)
{
    for (int k = 0; k < OWN_KINDS; k++)
        own_write((own_kind)k, 0, false);
    check_cases(without_golden, OCT_COUNT(without_golden));
    /* The C form has no self-test, and is compiled as strictly as one that has. */
    must("cc -std=c99 -Wall -Wextra -Wpedantic -Werror -DCOLOUR_SELF_TEST -c colour.c");
    must("! grep -q self_test colour.c colour.h");
}

/* An export with --force leaves no golden samples of another model beside its file. */
Test(own_models, exports_leave_no_samples_of_others)
{
    own_write(OWN_GREY, 3, false);
    must("mv grey.int8.h5 golden.int8.h5");
    own_write(OWN_GREY, 0, false);
    OCTET("export", "golden.int8.h5", "--format", "onnx", "-o", "x.onnx");
    must("test -e x.onnx.golden.npz");
    OCTET("export", "grey.int8.h5", "--format", "onnx", "-o", "x.onnx", "--force");
    oct_check_exit(job, 0);
    must("test ! -e x.onnx.golden.npz");
}
