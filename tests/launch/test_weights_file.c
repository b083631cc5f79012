/* Runs that start from a file of weights as PyTorch's users write it: they are the runs that start from the same
 * weights in a checkpoint, on how many ranks ever, and say what did not fit. */
#include "tests/launch/checkpoint_items.h"
#include "tests/launch/small_data.h"
#include "tests/support/mpirun.h"

#include <stdint.h>

/* The run that small_start makes: float to step 3, calibration at step 4, QAT to step 7. */
#define FLOAT_END "run/checkpoints/step-00000003.h5"

/* A parameter of cnn-small for images of 12x12: (outs, rest) with rest (h, w, c) here and (c, h, w) in the
 * file; taps 0: a vector. */
static const struct {
    const char *name;
    int outs, h, w, c;
} items[] = {
    {"features.0.weight", 32, 3, 3, 1},
    {"features.1.weight", 32, 0, 0, 0},
    {"features.1.bias", 32, 0, 0, 0},
    {"features.1.running_mean", 32, 0, 0, 0},
    {"features.1.running_var", 32, 0, 0, 0},
    {"features.3.weight", 32, 3, 3, 32},
    {"features.4.weight", 32, 0, 0, 0},
    {"features.4.bias", 32, 0, 0, 0},
    {"features.4.running_mean", 32, 0, 0, 0},
    {"features.4.running_var", 32, 0, 0, 0},
    {"features.7.weight", 64, 3, 3, 32},
    {"features.8.weight", 64, 0, 0, 0},
    {"features.8.bias", 64, 0, 0, 0},
    {"features.8.running_mean", 64, 0, 0, 0},
    {"features.8.running_var", 64, 0, 0, 0},
    {"features.10.weight", 64, 3, 3, 64},
    {"features.11.weight", 64, 0, 0, 0},
    {"features.11.bias", 64, 0, 0, 0},
    {"features.11.running_mean", 64, 0, 0, 0},
    {"features.11.running_var", 64, 0, 0, 0},
    {"head.0.weight", 128, 3, 3, 64}, /* after the flatten of 3x3 pixels */
    {"head.0.bias", 128, 0, 0, 0},
    {"head.2.weight", 10, 1, 1, 128},
    {"head.2.bias", 10, 0, 0, 0},
};

static void item_path(size_t i, char path[128])
{
    snprintf(path, 128, "state/%s", items[i].name);
    for (char *at = path; *at; at++)
        if (*at == '.') *at = '/';
}

static void add_values(size_t i, FILE *file)
{
    static float values[1 << 17];
    char path[128];
    const int h = items[i].h, w = items[i].w, c = items[i].c;
    item_path(i, path);
    const size_t bytes = read_item(FLOAT_END, path, values, sizeof values);
    if (c == 0) {
        cr_assert(fwrite(values, 1, bytes, file) == bytes);
        return;
    }
    for (int o = 0; o < items[i].outs; o++)
        for (int k = 0; k < c * h * w; k++) {
            const int channel = k / (h * w), row = k / w % h, column = k % w;
            cr_assert(fwrite(values + ((o * h + row) * w + column) * c + channel, 4, 1, file) == 1);
        }
}

/* Under names that begin with `prefix`. */
static void write_weights(const char *file_name, const char *prefix)
{
    static char header[1 << 13];
    size_t used = 0;
    long at = 0;
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        const int h = items[i].h, w = items[i].w, c = items[i].c;
        const long numel = (long)items[i].outs * (c ? h * w * c : 1);
        char shape[64];
        if (c == 0)
            snprintf(shape, sizeof shape, "%d", items[i].outs);
        else if (strncmp(items[i].name, "head", 4) == 0)
            snprintf(shape, sizeof shape, "%d,%d", items[i].outs, h * w * c);
        else
            snprintf(shape, sizeof shape, "%d,%d,%d,%d", items[i].outs, c, h, w);
        used += (size_t)snprintf(header + used, sizeof header - used,
                                 "%c\"%s%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":"
                                 "[%ld,%ld]}",
                                 i ? ',' : '{', prefix, items[i].name, shape, at, at + 4 * numel);
        at += 4 * numel;
    }
    used += (size_t)snprintf(header + used, sizeof header - used, "}");
    const uint64_t length = used;
    FILE *file = small_create(".", file_name);
    fwrite(&length, sizeof length, 1, file);
    fwrite(header, 1, used, file);
    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        add_values(i, file);
    fclose(file);
}

static void enter_with_weights(void)
{
    enter_with_run();
    write_weights("net.safetensors", "");
    write_weights("wrapped.safetensors", "module.");
}

TestSuite(weights_file, .init = enter_with_weights, .fini = leave_folder);

Test(weights_file, starts_qat_as_a_checkpoint_of_these_weights_does, .timeout = 120)
{
    OCTET("train", "r.yaml", "output=a", "init=run", "float.epochs=0", "checkpoint.every=1");
    oct_check_exit(job, 0);
    OCTET("train", "r.yaml", "output=b", "init=net.safetensors", "float.epochs=0",
          "checkpoint.every=1");
    oct_check_exit(job, 0);
    oct_check_said(job, "weights of net.safetensors: 24 of the model's 24 parameters and buffers");
    const char *first = "a/checkpoints/step-00000004.h5",
               *second = "b/checkpoints/step-00000004.h5";
    check_same_item(first, "state/features/0/conv/weight", second, "state/features/0/conv/weight");
    check_same_item(first, "state/features/10/bn/running_var", second,
                    "state/features/10/bn/running_var");
    check_same_item(first, "state/head/0/linear/weight", second, "state/head/0/linear/weight");
    check_same_item(first, "state/head/2/linear/bias", second, "state/head/2/linear/bias");
    OCTET("verify", "b/model.int8.h5");
    oct_check_exit(job, 0);
}

Test(weights_file, is_what_octet_exports, .timeout = 120)
{
    OCTET("export", FLOAT_END, "--format", "safetensors", "-o", "exported.safetensors");
    oct_check_exit(job, 0);
    OCTET("train", "r.yaml", "output=a", "init=net.safetensors", "float.epochs=0", "-q");
    oct_check_exit(job, 0);
    OCTET("train", "r.yaml", "output=b", "init=exported.safetensors", "float.epochs=0", "-q");
    oct_check_exit(job, 0);
    check_same_item("a/checkpoints/step-00000004.h5", "state/head/0/linear/weight",
                    "b/checkpoints/step-00000004.h5", "state/head/0/linear/weight");
    check_same_item("a/checkpoints/step-00000004.h5", "state/features/7/conv/weight",
                    "b/checkpoints/step-00000004.h5", "state/features/7/conv/weight");
}

/* The teacher is the float model of the weights that the run starts from. */
Test(weights_file, teaches_qat_where_there_is_no_float_phase, .timeout = 120)
{
    OCTET("train", "r.yaml", "output=a", "init=run", "float.epochs=0", "loss.kind=distillation",
          "-q");
    oct_check_exit(job, 0);
    OCTET("train", "r.yaml", "output=b", "init=net.safetensors", "float.epochs=0",
          "loss.kind=distillation", "--ranks", "2");
    oct_check_exit(job, 0);
    oct_check_said(job, "teacher: the float weights that the run starts from");
    check_same_item("a/checkpoints/step-00000004.h5", "state/head/0/linear/weight",
                    "b/checkpoints/step-00000004.h5", "state/head/0/linear/weight");
    check_same_item("a/checkpoints/step-00000004.h5", "state/features/3/conv/weight",
                    "b/checkpoints/step-00000004.h5", "state/features/3/conv/weight");
}

Test(weights_file, gives_the_same_run_on_any_number_of_ranks, .timeout = 120)
{
    OCTET("train", "r.yaml", "output=a", "init=net.safetensors", "-q");
    oct_check_exit(job, 0);
    OCTET("train", "r.yaml", "output=c", "init=net.safetensors", "--ranks", "3", "-q");
    oct_check_exit(job, 0);
    check_same_file("a/model.int8.h5", "c/model.int8.h5");
    check_same_file("a/checkpoints/step-00000007.h5", "c/checkpoints/step-00000007.h5");
    if (!oct_test_is_long()) return;
    OCTET("train", "r.yaml", "output=b", "init=net.safetensors", "--ranks", "2", "-q");
    oct_check_exit(job, 0);
    check_same_file("a/model.int8.h5", "b/model.int8.h5");
}

Test(weights_file, is_part_of_what_a_run_is, .timeout = 120)
{
    OCTET("train", "r.yaml", "output=a", "init=net.safetensors", "-q");
    oct_check_exit(job, 0);
    cr_assert(system("mv net.safetensors moved.safetensors") == 0);
    OCTET("train", "r.yaml", "output=a", "init=moved.safetensors");
    oct_check_exit(job, 0);
    oct_check_said(job, "a is finished");
    OCTET("train", "r.yaml", "output=a", "init=wrapped.safetensors", "init_map=[module.*=*]");
    oct_check_exit(job, 2);
    oct_check_said(job, "init_sha256: ");
}

Test(weights_file, is_renamed_and_gives_another_class_count_all_but_the_last_layer, .timeout = 120)
{
    OCTET("check", "r.yaml", "init=wrapped.safetensors", "init_map=[module.*=*]");
    oct_check_exit(job, 0);
    oct_check_said(job, "init        wrapped.safetensors: 24 arrays of floats");
    OCTET("train", "r.yaml", "output=a", "init=wrapped.safetensors", "init_map=[module.*=*]",
          "data.classes=12", "qat.epochs=0", "float.epochs=0");
    oct_check_exit(job, 0);
    oct_check_said(job, "weights of wrapped.safetensors: 22 of the model's 24");
    oct_check_said(
        job,
        "init: the last layer keeps its initial values: head.2.weight is (10, 128) in the file "
        "and (12, 128) here, head.2.bias is (10,) in the file and (12,) here");
    OCTET("train", "r.yaml", "output=c", "init=wrapped.safetensors",
          "init_map=[module.head.*=head.*]", "qat.epochs=0", "float.epochs=0");
    oct_check_exit(job, 0);
    oct_check_said(job, "init: most of the model is not in the file; compare the names, init_map "
                        "renames them");
    oct_check_said(job, "init: 20 arrays of the file are not used: module.features.0.weight, ");
    OCTET("train", "r.yaml", "output=b", "init=net.safetensors", "init_skip=[features.*]",
          "qat.epochs=0", "float.epochs=0");
    oct_check_exit(job, 0);
    oct_check_said(job, "weights of net.safetensors: 4 of the model's 24");
    oct_check_said(job, "init: 20 keep their initial values: features.0.weight, features.1.weight");
}
