/* Checkpoints that a thread writes: the bytes are those of a save that was waited for, whatever happens to the model
 * once it may change again, and a failure is reported to the caller that asks. */
#include "core/base/mem.h"
#include "core/nn/modules.h"
#include "io/checkpoint/checkpoint.h"
#include "io/file/file.h"
#include "tests/support/check_status.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(checkpoint_writer, .timeout = 60);

/* A weight of 1 MB, which is copied late, and a batch norm, whose statistics are copied early. */
enum { SIDE = 512, NUMBERS = SIDE * SIDE + 2 * SIDE };
static float slots[2][NUMBERS];

static oct_module *make_model(oct_optim *optim)
{
    oct_module *root = NULL, *item = NULL;
    MUST(oct_sequential_create(&root));
    MUST(oct_linear_create(&item, SIDE, SIDE, false));
    MUST(oct_sequential_append(root, &item));
    MUST(oct_batch_norm_create(&item, SIDE));
    MUST(oct_sequential_append(root, &item));
    MUST(oct_init_parameters(root, 3));
    for (int i = 0; i < NUMBERS; i++)
        slots[0][i] = slots[1][i] = (float)i / 7;
    *optim = (oct_optim){.type = &oct_optim_adamw,
                         .num_slots = 2,
                         .slot = {slots[0], slots[1]},
                         .numel = NUMBERS,
                         .updates = 4};
    return root;
}

static oct_status overwrite_item(void *user, const oct_state_item *item)
{
    const bool buffers = *(const bool *)user;
    const size_t bytes = (size_t)oct_numel(item->tensor) * oct_dtype_bytes(item->tensor->dtype);
    if (buffers == !item->param) memset(item->tensor->data, 0x41, bytes);
    return OCT_OK;
}

static void overwrite(oct_module *root, bool buffers)
{
    MUST(oct_module_state(root, overwrite_item, &buffers));
    if (!buffers) memset(slots, 0x41, sizeof slots);
}

static const oct_checkpoint_info info = {.step = 5, .phase = "float", .updates = 4};

static oct_status begin_save(oct_checkpoint_writer *w, const char *folder, oct_module *root,
                             const oct_optim *optim)
{
    return oct_checkpoint_writer_begin(w, folder, &info, root, optim, (oct_keep){.newest = 3});
}

static void check_same(const char *a, const char *b)
{
    void *x, *y;
    size_t bytes, length;
    MUST(oct_file_read(a, 1 << 30, &x, &bytes));
    MUST(oct_file_read(b, 1 << 30, &y, &length));
    cr_assert(bytes == length && memcmp(x, y, bytes) == 0, "%s and %s differ", a, b);
    oct_free(&x);
    oct_free(&y);
}

Test(checkpoint_writer, writes_what_was_there_at_the_beginning)
{
    oct_tmp tmp;
    oct_checkpoint_writer *w;
    oct_checkpoint_written written;
    oct_optim optim;
    oct_checkpoint_file waited_for;
    char other[600];
    oct_tmp_create(&tmp);
    MUST(oct_checkpoint_writer_create(&w));
    snprintf(other, sizeof other, "%s", oct_tmp_path(&tmp, "b"));
    for (int time = 0; time < 5; time++) {
        oct_module *root = make_model(&optim);
        MUST(oct_checkpoint_save(oct_tmp_path(&tmp, "a"), &info, root, &optim,
                                 (oct_keep){.newest = 3}, &waited_for));
        MUST(begin_save(w, other, root, &optim));
        overwrite(root, true);
        oct_checkpoint_writer_wait_copied(w);
        overwrite(root, false);
        oct_module_destroy(&root);
        MUST(oct_checkpoint_writer_take(w, &written));
        cr_assert_not(oct_checkpoint_writer_is_done(w));
        cr_assert(written.seconds >= 0 && written.blocked >= 0);
        check_same(waited_for.path, written.file.path);
        cr_assert_eq(memcmp(waited_for.digest, written.file.digest, sizeof waited_for.digest), 0);
        oct_free(&waited_for.path);
        oct_free(&written.file.path);
    }
    oct_checkpoint_writer_destroy(&w);
    oct_tmp_remove(&tmp);
    check_nothing_held();
}

Test(checkpoint_writer, a_failure_waits_to_be_asked_for)
{
    oct_tmp tmp;
    oct_checkpoint_writer *w;
    oct_checkpoint_written written;
    oct_optim optim;
    oct_tmp_create(&tmp);
    oct_module *root = make_model(&optim);
    oct_tmp_write(&tmp, "file", "x", 1);
    MUST(oct_checkpoint_writer_create(&w));
    MUST(begin_save(w, oct_tmp_path(&tmp, "file"), root, &optim));
    while (!oct_checkpoint_writer_is_done(w))
        oct_checkpoint_writer_wait_copied(w);
    cr_assert_eq(oct_checkpoint_writer_take(w, &written), OCT_RESOURCE);
    check_said("is a file where a folder is needed; choose another place");
    cr_assert_null(written.file.path);
    /* The next one goes on, and may end with the writer. */
    MUST(begin_save(w, oct_tmp_path(&tmp, "good"), root, &optim));
    oct_checkpoint_writer_destroy(&w);
    oct_checkpoint checkpoint;
    MUST(oct_checkpoint_newest(&checkpoint, oct_tmp_path(&tmp, "good"), NULL));
    cr_assert_eq(checkpoint.info.step, 5);
    oct_checkpoint_close(&checkpoint);
    oct_module_destroy(&root);
    oct_tmp_remove(&tmp);
    check_nothing_held();
}

/* Values that stay on the disk until they are loaded in place. */

static size_t resident(const char *field)
{
    char line[200];
    size_t kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    cr_assert_not_null(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0)
            cr_assert_eq(sscanf(line + strlen(field), " %zu", &kilobytes), 1);
    fclose(file);
    return kilobytes << 10;
}

static void forget_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    cr_assert(file && fputs("5", file) >= 0 && fclose(file) == 0);
}

Test(checkpoint_writer, loading_takes_the_memory_of_the_model_and_a_chunk)
{
    enum { WIDTH = 2048, ROOM = 4 << 20 };
    oct_tmp tmp;
    oct_checkpoint checkpoint;
    oct_module *root[2] = {NULL, NULL};
    oct_tmp_create(&tmp);
    for (int i = 0; i < 2; i++) {
        MUST(oct_linear_create(&root[i], WIDTH, 2 * WIDTH, true)); /* 32 MB */
        MUST(oct_init_parameters(root[i], (uint64_t)i + 1));
    }
    MUST(oct_checkpoint_save(tmp.path, &info, root[0], NULL, (oct_keep){.newest = 3}, NULL));
    forget_peak();
    const size_t before = resident("VmRSS:");
    MUST(oct_checkpoint_newest_on_disk(&checkpoint, tmp.path));
    cr_assert(checkpoint.file && !checkpoint.bytes && checkpoint.info.step == info.step);
    MUST(oct_checkpoint_load_shared(&checkpoint, root[1], NULL, &oct_collective_one));
#ifndef __SANITIZE_ADDRESS__
    cr_assert_lt(resident("VmHWM:"), before + ROOM);
#else
    (void)before;
#endif
    const size_t bytes = sizeof(float) * 2 * WIDTH * WIDTH;
    cr_assert_eq(memcmp(root[0]->params[0]->value.data, root[1]->params[0]->value.data, bytes), 0);
    oct_checkpoint_close(&checkpoint);
    for (int i = 0; i < 2; i++)
        oct_module_destroy(&root[i]);
    oct_tmp_remove(&tmp);
    check_nothing_held();
}

/* A damaged file is found out on the disk as it is in memory, and the one before is taken. */
Test(checkpoint_writer, damage_is_seen_on_the_disk_as_in_memory)
{
    oct_tmp tmp;
    oct_checkpoint there, here;
    oct_optim optim;
    void *bytes;
    size_t size;
    oct_checkpoint_file file[2];
    oct_tmp_create(&tmp);
    oct_module *root = make_model(&optim);
    for (int i = 0; i < 2; i++) {
        oct_checkpoint_info at = info;
        at.step += i;
        MUST(oct_checkpoint_save(oct_tmp_path(&tmp, "c"), &at, root, &optim,
                                 (oct_keep){.newest = 3}, &file[i]));
    }
    MUST(oct_file_read(file[1].path, 1 << 30, &bytes, &size));
    for (size_t n = 0; n < 12; n++) {
        const size_t at = n < 4 ? 11 * n : size / 12 * n;
        const bool cut = n % 3 == 2;
        ((uint8_t *)bytes)[at] ^= 4;
        MUST(oct_file_write(file[1].path, bytes, cut ? at : size));
        ((uint8_t *)bytes)[at] ^= 4;
        MUST(oct_checkpoint_newest(&here, oct_tmp_path(&tmp, "c"), NULL));
        MUST(oct_checkpoint_newest_on_disk(&there, oct_tmp_path(&tmp, "c")));
        cr_assert(here.info.step == 5 && there.info.step == 5, "byte %zu", at);
        oct_checkpoint_close(&here);
        oct_checkpoint_close(&there);
    }
    MUST(oct_file_write(file[1].path, bytes, size));
    MUST(oct_checkpoint_newest_on_disk(&there, oct_tmp_path(&tmp, "c")));
    cr_assert_eq(there.info.step, 6);
    oct_checkpoint_close(&there);
    oct_free(&bytes);
    oct_free(&file[0].path);
    oct_free(&file[1].path);
    oct_module_destroy(&root);
    oct_tmp_remove(&tmp);
    check_nothing_held();
}
