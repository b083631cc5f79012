/* Losses and metrics as the program runs them: every one trains, converts and is measured, with the same bytes on
 * any number of ranks and the same figures for a checkpoint as for its int8 model; distillation; what does not fit
 * together. */
#include "tests/launch/small_data.h"
#include "tests/support/mpirun.h"

#include <criterion/criterion.h>

static const char *const recipe = "schema: 1\n"
                                  "model: {name: cnn-small}\n"
                                  "data: {path: data}\n"
                                  "batch: {size: 32, leaf: 4}\n"
                                  "float: {epochs: 1, lr: 0.01}\n"
                                  "calibrate: {batches: 2}\n"
                                  "qat: {epochs: 1}\n"
                                  "checkpoint: {every: 1, keep: 100}\n"
                                  "metrics: [top1, top5, precision, recall, f1, miou, confusion, "
                                  "auc, mean_ap, mae, rmse]\n";

static void start(void)
{
    enter_folder();
    small_make(12, recipe);
}

TestSuite(tasks, .init = start, .fini = leave_folder, .timeout = 600);

static void train_on(int ranks, const char *keys)
{
    char script[1000];
    snprintf(script, sizeof script,
             OCT_PROGRAM " train r.yaml output=r%d %s --ranks %d && "
                         "for f in $(cd r1 && echo checkpoints/*.h5 model.int8.h5); do "
                         "cmp r1/$f r%d/$f || exit 1; done",
             ranks, keys, ranks, ranks);
    shell(script);
    oct_check_exit(job, 0);
}

#define FIGURES                                                                                    \
    "figures() { " OCT_PROGRAM                                                                     \
    " eval \"$@\" --json | grep -vE '\"(file|kind|phase|images_per_s)\"'; }; "

/* Trains on 1 and 3 ranks, or with OCT_LONG=1 on 1, 2, 3 and 5, into r1 to r5: one state. Then the figures of
 * checkpoint and model, `everywhere` or with OCT_LONG=1 those of 3 ranks, too. */
static void check_task_on(const char *keys, bool everywhere)
{
    static const int ranks[] = {1, 3, 2, 5};
    const size_t count = oct_test_is_long() ? 4 : 2;
    for (size_t i = 0; i < count; i++)
        train_on(ranks[i], keys);
    shell(OCT_PROGRAM " verify r1/model.int8.h5 && " FIGURES
                      "figures r1 >a && figures r1/model.int8.h5 >b && cmp a b && cat a");
    oct_check_exit(job, 0);
    if (everywhere || oct_test_is_long())
        must(FIGURES "figures r1/model.int8.h5 --ranks 3 | cmp a -");
}

static void check_task(const char *keys)
{
    check_task_on(keys, false);
}

Test(tasks, losses_of_quantities)
{
    check_task_on("loss.kind=huber loss.delta=0.3", true);
    oct_check_said(job, "\"auc\": 0.");
    oct_check_said(job, "\"rmse\": 0.");
}

Test(tasks, losses_of_labels)
{
    check_task("loss.kind=bce loss.positive_weights='[1, 2, 3, 4, 5, 4, 3, 2, 1, 0.5]'");
    oct_check_said(job, "\"miou\": ");
    shell(OCT_PROGRAM " train r.yaml output=r1 loss.kind=bce "
                      "loss.positive_weights='[1, 2, 3, 4, 5, 4, 3, 2, 1, 0.5]'");
    oct_check_said(job, "\nfloat mean IoU ");
    oct_check_said(job, "\nQAT mean IoU ");
    oct_check_said(job, "\nint8 mean IoU ");
}

Test(tasks, weights_of_classes)
{
    check_task("loss.class_weights='[1, 2, 3, 4, 5, 4, 3, 2, 1, 0.5]' loss.label_smoothing=0.1");
}

/* The last checkpoints are gone as after a kill in the middle of QAT. No earlier one replaces the teacher. */
Test(tasks, a_resumed_run_has_the_teacher_that_its_float_phase_was)
{
    check_task("loss.kind=distillation");
    shell("cp -r r1 again && cd again && rm model.int8.h5 checkpoints/manifest.json && "
          "ls checkpoints/*.h5 | tail -1 | xargs rm && cd .. && mv r1 gone && mv again r1 "
          "&& " OCT_PROGRAM " train r.yaml output=r1 loss.kind=distillation --ranks 2 && "
          "cmp r1/model.int8.h5 gone/model.int8.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "resuming r1 from step ");
    oct_check_said(job, "teacher: r1/checkpoints/step-");
    shell("cd r1 && rm model.int8.h5 checkpoints/manifest.json checkpoints/step-00000003.h5 && "
          "ls checkpoints/*.h5 | tail -1 | xargs rm && cd .. && " OCT_PROGRAM
          " train r.yaml output=r1 loss.kind=distillation");
    oct_check_exit(job, 3);
    oct_check_said(job, "the end of the float phase, which is the teacher");
}

Test(tasks, a_teacher_of_another_architecture)
{
    shell(OCT_PROGRAM " train r.yaml output=big model.name=fpn-small");
    oct_check_exit(job, 0);
    check_task("loss.kind=distillation distill.teacher=big distill.weight=1 "
               "distill.temperature=2");
    shell(OCT_PROGRAM " train r.yaml output=r1 loss.kind=distillation distill.teacher=r3 "
                      "distill.weight=1 distill.temperature=2");
    oct_check_exit(job, 2);
    oct_check_said(job, "distill.sha256: ");
}

/* An array of a .npy file, whose elements of `bytes` bytes follow. */
static FILE *npy_create(const char *name, const char *descr, const char *shape)
{
    enum { HEADER = 118 };
    char header[HEADER + 1];
    FILE *file = small_create("arrays", name);
    const int length =
        snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                 descr, shape);
    cr_assert(length < HEADER);
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file);
    fprintf(file, "%-*s\n", HEADER - 1, header);
    return file;
}

enum { SIDE = 16, QUADRANTS = 4 };

/* The sample `i` is bright in the quadrants whose bits are set in its number; a bright pixel is of class 1, a
 * dark one of class 0, and those of the first row have none. Odd samples are negatives. */
static void put_pixels(FILE *file, int i, bool map)
{
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            const int bright = i >> (y / (SIDE / 2) * 2 + x / (SIDE / 2)) & 1;
            const int32_t class = y == 0 ? -1 : bright;
            if (map)
                fwrite(&class, sizeof class, 1, file);
            else
                fputc((bright ? 200 : 30) + (i * 7 + x * 5 + y * 3) % 40, file);
        }
}

static void put_labels(const char *split, int count)
{
    char name[64], shape[64];
    snprintf(name, sizeof name, "%s_several.npy", split);
    snprintf(shape, sizeof shape, "%d, %d", count, QUADRANTS);
    FILE *several = npy_create(name, "<f4", shape);
    snprintf(name, sizeof name, "%s_odd.npy", split);
    snprintf(shape, sizeof shape, "%d,", count);
    FILE *odd = npy_create(name, "|u1", shape);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < QUADRANTS; k++)
            fwrite(&(const float){(float)(i >> k & 1)}, sizeof(float), 1, several);
        fputc(i & 1, odd);
    }
    fclose(several);
    fclose(odd);
}

static void put_split(const char *split, int count)
{
    char name[64], shape[64];
    snprintf(name, sizeof name, "%s_images.npy", split);
    snprintf(shape, sizeof shape, "%d, %d, %d, 1", count, SIDE, SIDE);
    FILE *images = npy_create(name, "|u1", shape);
    snprintf(name, sizeof name, "%s_maps.npy", split);
    snprintf(shape, sizeof shape, "%d, %d, %d", count, SIDE, SIDE);
    FILE *maps = npy_create(name, "<i4", shape);
    for (int i = 0; i < count; i++) {
        put_pixels(images, i, false);
        put_pixels(maps, i, true);
    }
    fclose(images);
    fclose(maps);
    put_labels(split, count);
}

static void make_arrays(void)
{
    must("mkdir arrays && sed -i 's/^metrics.*//; s/^data.*//' r.yaml");
    put_split("train", 64);
    put_split("test", 30);
}

/* What octet run says of test samples with these options, as `said`, must agree with the lines of Python; beside it
 * is what it says to people of the first one (text). */
static void check_run(const char *options, const char *python)
{
    char script[2000];
    snprintf(script, sizeof script,
             "tail -c 7680 arrays/test_images.npy >raw && " OCT_PROGRAM
             " run r1/model.int8.h5 --input raw --raw >text && " OCT_PROGRAM
             " run r1/model.int8.h5 --input raw --raw %s >json && /usr/bin/python3 -c \"$0\"",
             options);
    char program[2000];
    snprintf(program, sizeof program, "import json, math\nsaid = json.load(open('json'))\n%s",
             python);
    RUN("bash", "-c", script, program);
    oct_check_exit(job, 0);
}

#define ARRAYS "data.format=npy data.path=arrays "

Test(tasks, several_labels_of_a_sample)
{
    make_arrays();
    check_task(ARRAYS "data.goal=values data.labels={split}_several loss.kind=bce "
                      "metrics='[multilabel_f1, auc, mean_ap, rmse]'");
    oct_check_said(job, "\"multilabel_f1\": ");
    cr_assert(!strstr(job.out, "accuracy"), "%s", job.out);
    check_run("--count 3 --json",
              "for i, image in enumerate(said['images']):\n"
              "    assert image['image'] == i and len(image['labels']) == 4, image\n"
              "    for k, label in enumerate(image['labels']):\n"
              "        assert label['label'] == k and 0 <= label['probability'] <= 1, label\n"
              "        assert label['there'] == (label['probability'] > 0.5), label\n");
    shell(OCT_PROGRAM " run r1/model.int8.h5 --input raw --raw --output map.png");
    oct_check_exit(job, 2);
    oct_check_said(job, "command line: --output writes a map of classes, but data.goal of "
                        "r1/model.int8.h5 is values; leave it out");
}

Test(tasks, quantities_of_a_sample)
{
    make_arrays();
    must(OCT_PROGRAM
         " train r.yaml output=r1 " ARRAYS
         "data.goal=values data.labels={split}_several loss.kind=mse metrics='[mae]' >log");
    check_run("--json", "values = said['images'][0]['values']\n"
                        "assert len(values) == 4\n"
                        "text = open('text').read().splitlines()[0]\n"
                        "assert text == 'image 0: ' + ', '.join('%g' % v for v in values), text\n");
}

Test(tasks, a_class_for_each_pixel)
{
    make_arrays();
    check_task_on(ARRAYS
                  "data.goal=map data.labels={split}_maps data.classes=2 model.name=unet-small "
                  "metrics='[miou, confusion]' loss.class_weights='[1, 2]'",
                  true);
    oct_check_said(job, "\"miou\": ");
    shell(OCT_PROGRAM " eval r1/model.int8.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, " of 7,200"); /* 30 samples of 15 rows that count */
    check_run("--index 6 --output map.png --json",
              "from PIL import Image\n"
              "pixels = list(Image.open('map.png').getdata())\n"
              "shares = said['images'][0]['shares']\n"
              "assert said['output'] == 'map.png' and len(pixels) == 256\n"
              "assert sum(s['pixels'] for s in shares) == 256, shares\n"
              "for s in shares:\n"
              "    assert pixels.count(s['class']) == s['pixels'] == 256 * s['share'], shares\n");
    shell(OCT_PROGRAM " run r1/model.int8.h5 --input raw --raw --output two.png --count 2 ; "
                      "code=$?; test ! -e two.png && exit $code");
    oct_check_exit(job, 2);
    oct_check_said(job,
                   "command line: --output is for one image; name one PATH and write --count 1");
}

/* A model that learns its input is to find samples that are unlike the others; away from its run it is measured
 * all the same. */
Test(tasks, an_input_that_is_its_own_goal)
{
    make_arrays();
    check_task(ARRAYS "data.goal=input data.labels={split}_odd loss.kind=mse "
                      "model.name=autoencoder metrics='[auc, mae]'");
    oct_check_said(job, "\"auc\": ");
    shell("cp r1/model.int8.h5 moved.h5 && " OCT_PROGRAM " eval moved.h5 --data arrays");
    oct_check_exit(job, 0);
    oct_check_said(job, "MAE ");
    shell(OCT_PROGRAM " eval moved.h5 --data arrays --require 50");
    oct_check_exit(job, 2);
    oct_check_said(job, "--require is a percentage of right answers");
    shell(OCT_PROGRAM " eval r1/model.int8.h5 --metrics rmse --json >eval");
    oct_check_exit(job, 0);
    check_run("--count 30 --json",
              "errors = [image['mean_squared_error'] for image in said['images']]\n"
              "rmse = json.load(open('eval'))['metrics']['rmse']\n"
              "assert math.isclose(math.sqrt(sum(errors) / 30), rmse, rel_tol=1e-5), rmse\n");
}

static void check_refused(const char *keys, const char *sentence)
{
    char script[1000];
    snprintf(script, sizeof script, OCT_PROGRAM " check r.yaml %s", keys);
    shell(script);
    oct_check_exit(job, 2);
    oct_check_said(job, sentence);
}

Test(tasks, what_does_not_fit_is_said_at_once)
{
    make_arrays();
    must("cd arrays && /usr/bin/python3 -c \"import numpy as n; x = n.load('test_several.npy'); "
         "n.save('train_pm.npy', n.load('train_several.npy') * 2. - 1); n.save('test_pm.npy', x); "
         "n.save('test_images.npy', n.load('test_images.npy').astype('f4'))\"");
    check_refused(ARRAYS "data.goal=values data.labels={split}_pm loss.kind=bce metrics='[auc]'",
                  "data.path: training samples are u8, test samples f32, and only bytes are "
                  "divided by 255; save both as one type");
    check_refused(ARRAYS "data.goal=values data.labels={split}_pm loss.kind=bce metrics='[auc]'",
                  "loss.kind: bce takes values from 0 to 1, but value ");
    must(
        "echo 'data: {path: data}' >>r.yaml"); /* all of Fashion-MNIST takes as long as twenty of these */
    check_refused("loss.kind=mse loss.class_weights='[1]'",
                  "loss.class_weights: mse has no weights of classes; leave the key out");
    check_refused("loss.class_weights='[1, 2]'",
                  "loss.class_weights: 2 values, but there are 10 classes; give one for each");
    check_refused("loss.kind=bce loss.positive_weights='[1]'",
                  "loss.positive_weights: 1 values, but there are 10 outputs; give one for each");
    check_refused("loss.delta=2", "loss.delta: cross_entropy has no delta; leave the key out");
    check_refused("metrics='[multilabel_f1]'",
                  "metrics: multilabel_f1 needs several values for each sample, but data.goal is "
                  "class and loss.kind cross_entropy; use another one, such as top1");
    check_refused("loss.ignore=10", "loss.ignore: 10 is no label of the data; those are 0 to 9");
    check_refused("data.goal=input loss.kind=mse metrics='[top1]'",
                  "metrics: top1 needs a class for each sample, but data.goal is input and "
                  "loss.kind mse; use another one, such as mae");
    check_refused("data.goal=input loss.kind=bce metrics='[mae]'",
                  "loss.kind: bce takes outputs as logits, but data.goal: input wants the input "
                  "itself; use mse, mae or huber");
    check_refused("distill.teacher=r.yaml",
                  "distill.teacher: cross_entropy asks no teacher, which loss.kind: distillation "
                  "does; leave the key out");
    check_refused("loss.kind=distillation float.epochs=0",
                  "distill.teacher: float is the end of the float phase, which float.epochs: 0 "
                  "leaves out; name a checkpoint or a run folder, or start from one by init");
    check_refused(
        "loss.ignore=2 data.mixup=0.2",
        "loss.ignore: data.mixup and data.cutmix blend labels, so that ignored ones would "
        "be learned, too; leave one of them out, or take those samples out of the data");
    check_refused("distill.temperature=2",
                  "distill.weight, distill.temperature: cross_entropy asks no teacher; leave the "
                  "key out");
    check_refused("float.milestones='[1]'",
                  "float.milestones: float.schedule: cosine does not use it; leave it out, or "
                  "write float.schedule: step");
    check_refused("qat.schedule=one_cycle qat.final_lr=0.1",
                  "qat.final_lr: qat.schedule: one_cycle does not use it; leave it out, or write "
                  "qat.schedule: cosine");
    check_refused("optimizer.kind=lars optimizer.nesterov=false",
                  "optimizer.nesterov: optimizer.kind: lars does not use it; leave it out, or "
                  "write optimizer.kind: sgd");
    check_refused("data.mean='[123.7]'",
                  "data.mean: 123.7, but bytes are divided by 255 first; divide it, too");
    check_refused("loss.kind=distillation distill.sha256=0",
                  "distill.sha256: there is no distill.teacher that it could be of");
}
