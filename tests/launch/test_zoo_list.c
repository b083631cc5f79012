/* octet zoo: its list is right about the models that come with it, and an entry is made again, byte for byte. */
#include "tests/launch/small_data.h"

#include <jansson.h>
#include <string.h>

TestSuite(zoo_list, .init = enter_folder, .fini = leave_folder, .timeout = 120);

/* A program of its own with a zoo of its own, whose list may be changed. */
static void copy_program(void)
{
    must("mkdir -p bin share/octet && cp " OCT_PROGRAM " bin/ && cp -r " OCT_SOURCE_DIR
         "/launch/recipes " OCT_SOURCE_DIR "/launch/zoo share/octet/");
}

Test(zoo_list, an_entry_is_made_again_on_two_ranks_and_what_differs_is_said)
{
    copy_program();
    shell("bin/octet zoo make tiny output=new --ranks 2");
    oct_check_exit(job, 0);
    oct_check_said(job, "compared with the list       the same bytes");
    /* The run is finished, so these only compare. */
    shell("f=share/octet/zoo/zoo.json && cp $f list && "
          "sed -i 's/\"model_sha256\": \"../&0/' $f && bin/octet zoo make tiny output=new");
    oct_check_exit(job, 1);
    oct_check_said(job, "zoo: tiny: the checkpoint is that of the list, the int8 model is another; "
                        "data and version are the same, so please report this");
    shell("f=share/octet/zoo/zoo.json && sed 's/\"checkpoint_sha256\": \"../&0/; "
          "s/\"version\": \"/&9/' list >$f && bin/octet zoo make tiny output=new --json");
    oct_check_exit(job, 1);
    oct_check_said(job, "the last checkpoint is another than that of the list; another version of "
                        "octet made that, and a new one may change bits");
    json_t *made = json_loads(job.out, 0, NULL);
    cr_assert(json_is_number(json_object_get(made, "int8_accuracy")), "%s", job.out);
    json_decref(made);
}

Test(zoo_list, other_data_are_said)
{
    must("mkdir data");
    small_idx("data", "train", 64, 28);
    small_idx("data", "t10k", 16, 28);
    OCTET("zoo", "make", "tiny", "output=new", "data.path=data");
    oct_check_exit(job, 1);
    oct_check_said(job, "the last checkpoint is another than that of the list; so are the training "
                        "data");
}

/* Each file is of the list, has its SHA-256 and size, and computes what it did; where its test data are on every machine
 * its accuracy is that of the list, too. */
Test(zoo_list, models_that_come_along_are_those_of_the_list)
{
    OCTET("zoo", "--json");
    oct_check_exit(job, 0);
    json_t *list = json_loads(job.out, 0, NULL), *entry;
    size_t i, found = 0;
    json_array_foreach(list, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        const char *model = json_string_value(json_object_get(entry, "model"));
        const char *recipe = json_string_value(json_object_get(entry, "recipe"));
        const bool has_data = strcmp(recipe, "fashion-mnist") == 0;
        char line[1200];
        if (!model) continue;
        found++;
        snprintf(line, sizeof line,
                 "sha256sum %s && " OCT_PROGRAM " verify zoo:%s %s && " OCT_PROGRAM " zoo %s",
                 model, name, has_data ? "" : "--golden-only", name);
        shell(line);
        oct_check_exit(job, 0);
        oct_check_said(job, json_string_value(json_object_get(entry, "model_sha256")));
        oct_check_said(job, json_string_value(json_object_get(entry, "checkpoint_sha256")));
        const json_t *accuracy = json_object_get(entry, "int8_accuracy");
        snprintf(line, sizeof line, "as QAT evaluation computed it, %.2f %% right",
                 json_number_value(accuracy));
        if (has_data) oct_check_said(job, line);
    }
    json_decref(list);
    shell("ls " OCT_SOURCE_DIR "/launch/zoo/*.int8.h5 | wc -l; du -cb " OCT_SOURCE_DIR
          "/launch/zoo/*.int8.h5 | tail -n 1");
    char *rest;
    cr_assert_eq(found, strtoul(job.out, &rest, 10), "%s", job.out);
    cr_assert(found >= 3 && strtoul(rest, NULL, 10) <= 5000000, "%s", job.out);
}
