/* Every shipped recipe, cut small: the script that it names makes its data, it trains, converts and verifies,
 * and the int8 model predicts the test data as the checkpoint does. */
#define PROGRAM_SECONDS 300
#include "tests/launch/small_data.h"

#include "launch/cmd/recipe_args.h"

#include <jansson.h>
#include <string.h>

TestSuite(recipes, .init = enter_folder, .fini = leave_folder, .timeout = 900);

#define SCRIPT "/usr/bin/python3 " OCT_SOURCE_DIR "/launch/recipes/data/"
#define FOLDER SCRIPT "shapes.py folder data --train 20 --test 10 --size 64 >log"
#define FEW " --train 16 --test 10 >log"
#define SMALL_PICTURES "data.train_limit=16 data.size=48 'data.test=[resize 50, center_crop]'"

static const struct {
    const char *recipe;
    const char *data;   /* makes it, at "data" */
    const char *keys;   /* beside those that make every recipe short */
    const char *metric; /* of the result */
} small[] = {
    {"fashion-mnist", "ln -s /usr/share/datasets/fashion-mnist data",
     "data.train_limit=16 data.test_limit=10", NULL},
    {"cifar10-resnet20", NULL, "data.train_limit=16 data.test_limit=10", NULL},
    {"cifar10-mobilenetv2", NULL, "data.train_limit=16 data.test_limit=10", NULL},
    {"segmentation", SCRIPT "shapes.py segmentation data --size 24" FEW, "", "miou"},
    {"multilabel", SCRIPT "shapes.py multilabel data --size 24" FEW, "", "multilabel_f1"},
    {"autoencoder", SCRIPT "sounds.py data" FEW, "", "auc"},
    {"image-folder", FOLDER, SMALL_PICTURES, NULL},
    {"imagenet-resnet50", FOLDER, SMALL_PICTURES, "top5"},
    {"imagenet-mobilenetv2", FOLDER, SMALL_PICTURES, "top5"},
};

static void make_data(const char *command)
{
    if (command) {
        must(command);
        return;
    }
    must("mkdir data");
    small_cifar("data");
}

/* The result that `octet eval --json` reports. */
static void check_result(const char *metric)
{
    OCTET("eval", "new/model.int8.h5", "--data", "data", "--json");
    oct_check_exit(job, 0);
    json_t *result = json_loads(job.out, 0, NULL);
    cr_assert(result, "%s", job.out);
    if (metric)
        cr_assert(json_is_number(json_object_get(json_object_get(result, "metrics"), metric)),
                  "no %s in %s", metric, job.out);
    json_decref(result);
}

static void run_small(size_t i)
{
    char line[1200];
    make_data(small[i].data);
    snprintf(line, sizeof line,
             OCT_PROGRAM
             " recipes %s >r.yaml && " OCT_PROGRAM
             " train r.yaml output=new data.path=data batch.size=8 batch.leaf=4 "
             "float.epochs=1 float.warmup=0 calibrate.batches=1 qat.epochs=1 %s && " OCT_PROGRAM
             " verify new/model.int8.h5 --data data",
             small[i].recipe, small[i].keys);
    shell(line);
    oct_check_exit(job, 0);
    check_result(small[i].metric);
}

Test(recipes, all_of_them_are_here)
{
    static oct_shipped list;
    cr_assert_eq(oct_shipped_list(&list), OCT_OK);
    cr_assert_eq(list.count, OCT_COUNT(small));
    for (size_t i = 0; i < list.count; i++) {
        size_t found = 0;
        for (size_t k = 0; k < OCT_COUNT(small); k++)
            found += strcmp(small[k].recipe, list.name[i]) == 0;
        cr_assert_eq(found, 1U, "%s runs %zu times", list.name[i], found);
    }
}

Test(recipes, each_runs_small)
{
    for (size_t i = 0; i < OCT_COUNT(small); i++) {
        run_small(i);
        must("rm -r new data");
    }
}

static void check_same_bytes(const char *script)
{
    char line[800];
    snprintf(line, sizeof line,
             SCRIPT "%s >log && mv out one && " SCRIPT "%s >log && diff -r one out", script,
             script);
    must(line);
    snprintf(line, sizeof line,
             "rm -r out && " SCRIPT "%s --seed 2 >log && ! diff -rq one out >log", script);
    must(line);
    must("rm -r one out");
}

Test(recipes, made_up_data_follow_from_their_seed)
{
    check_same_bytes("shapes.py segmentation out --train 4 --test 2");
    if (oct_test_is_long()) check_same_bytes("shapes.py multilabel out --train 4 --test 2");
    check_same_bytes("shapes.py folder out --train 5 --test 5 --size 16");
    check_same_bytes("sounds.py out --train 4 --test 2");
}

/* Every pixel, and the label as the folder's name. */
Test(recipes, cifar10_becomes_a_folder)
{
    must("mkdir data");
    small_cifar("data");
    must(SCRIPT "cifar10_folder.py data out --limit 3 >log");
    must("test $(find out/train -name '*.png' | wc -l) = 15");
    must("/usr/bin/python3 -c 'from PIL import Image; import numpy as np\n"
         "record = np.fromfile(\"data/test_batch.bin\", np.uint8).reshape(-1, 3073)[2]\n"
         "image = np.asarray(Image.open(\"out/test/bird/00002.png\"))\n"
         "assert record[0] == 2 and (image.transpose(2, 0, 1).ravel() == record[1:]).all()'");
    shell("head -c 3000 data/test_batch.bin >cut && mv cut data/test_batch.bin && " SCRIPT
          "cifar10_folder.py data out");
    oct_check_exit(job, 1);
    oct_check_said(job, "is no batch of CIFAR-10: 3000 bytes, a record has 3073");
}
