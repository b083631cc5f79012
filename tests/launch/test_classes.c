/* Data sets of other than ten classes, from training to the deployed model: letters that count from 1,
 * three classes of one's own, more than a byte holds. */
#include "io/model/model_file.h"
#include "tests/launch/small_data.h"

#include <criterion/criterion.h>
#include <string.h>

enum { SIDE = 12 };

TestSuite(classes, .fini = leave_folder);

/* Labels `first` to first + classes - 1 in turn, as 16-bit numbers where bytes do not do. */
static void write_split(const char *split, uint32_t count, uint32_t first, uint32_t classes)
{
    char name[64];
    bool wide = first + classes > 256;
    small_idx("data", split, count, SIDE);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", split);
    FILE *file = small_create("data", name);
    small_put(file, wide ? 0xb01 : 0x801), small_put(file, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t label = first + i % classes;
        if (wide) fputc((int)(label >> 8), file);
        fputc((int)(label & 255), file);
    }
    fclose(file);
}

/* Trains into run/ and looks at the model from all sides. */
static void check_job(uint32_t first, uint32_t classes, const char *key, int expected)
{
    char said[64];
    oct_model model = {0};
    enter_folder();
    must("mkdir data");
    write_split("train", 3 * classes < 64 ? 64 : 3 * classes, first, classes);
    write_split("t10k", classes / 2 + 2, first, classes);
    oct_tmp_write_text(&tmp, "r.yaml", small_recipe);

    OCTET("train", "r.yaml", "output=run", key, "-q");
    oct_check_exit(job, 0);
    oct_check_said(job, "0 of ");
    cr_assert(oct_model_load(&model, "run/model.int8.h5", false) == OCT_OK, "%s",
              oct_error_message(0));
    cr_assert_eq(model.classes, expected);
    oct_model_free(&model);
    OCTET("verify", "run/model.int8.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "every logit as QAT evaluation computed it");
    OCTET("eval", "run");
    oct_check_exit(job, 0);
    OCTET("sensitivity", "run", "--batches", "1");
    oct_check_exit(job, 0);
    OCTET("run", "run/model.int8.h5", "--input", "data/t10k-images-idx3-ubyte", "--count", "2");
    oct_check_exit(job, 0);
    OCTET("inspect", "run/model.int8.h5");
    snprintf(said, sizeof said, "%d classes", expected);
    oct_check_said(job, said);

    /* A model knows its classes: where only the test files exist, they are not counted again. */
    cr_assert(system("rm data/train-*") == 0);
    OCTET("eval", "run/model.int8.h5");
    oct_check_exit(job, 0);
}

Test(classes, of_letters_that_count_from_1)
{
    check_job(1, 26, "data.first_label=1", 26);
}

Test(classes, three_of_ones_own)
{
    check_job(0, 3, "seed=1", 3);
}

Test(classes, more_than_a_byte_holds)
{
    check_job(0, 300, "seed=1", 300);
}

Test(classes, said_by_the_recipe)
{
    check_job(0, 3, "data.classes=5", 5);
}

Test(classes, that_changed_are_another_recipe)
{
    check_job(0, 3, "seed=1", 3);
    write_split("train", 64, 0, 3);
    OCTET("train", "r.yaml", "output=run", "data.classes=4");
    oct_check_exit(job, 2);
    oct_check_said(job, "data.classes: 0 there, 4 here");
}
