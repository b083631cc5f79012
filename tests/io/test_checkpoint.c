/* Checkpoints: what a save leaves over, which file is the newest good one, and every way in which a
 * file or a manifest can be damaged, foreign, too new or not fit the model. */
#include "io/checkpoint/checkpoint.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/nn/modules.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5.h"
#include "quant/module/fake_quant.h"
#include "tests/support/check_status.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static oct_tmp tmp;
static char folder[512], log_path[512];

static void start(void)
{
    oct_tmp_create(&tmp);
    snprintf(folder, sizeof folder, "%s", oct_tmp_path(&tmp, "run/checkpoints"));
    snprintf(log_path, sizeof log_path, "%s", oct_tmp_path(&tmp, "log"));
    oct_log_setup(OCT_LOG_ERROR, true);
    cr_assert_eq(oct_log_file(log_path), OCT_OK);
}

static void end(void)
{
    cr_assert_eq(oct_log_file(NULL), OCT_OK);
    oct_tmp_remove(&tmp);
}

TestSuite(checkpoint, .init = start, .fini = end, .timeout = 60);

static void check_logged(const char *text)
{
    void *bytes;
    size_t size;
    MUST(oct_file_read(log_path, 1 << 20, &bytes, &size));
    cr_assert(strstr(bytes, text), "the log does not say '%s':\n%s", text, (char *)bytes);
    oct_free(&bytes);
}

static void check_nothing_logged(void)
{
    void *bytes;
    size_t size;
    MUST(oct_file_read(log_path, 1 << 20, &bytes, &size));
    cr_assert_eq(size, 0, "the log says:\n%s", (char *)bytes);
    oct_free(&bytes);
}

/* A model of the test's own: layers of parameters and buffers of several types. */

static const oct_module_type layer_type = {.name = "layer", .atomic = true};
static const oct_module_type net_type = {.name = "net"};

typedef struct layer {
    oct_module base;
    oct_param *weight;
    int64_t *count;
    uint8_t *flags;
    float *nothing;
} layer;

enum { LAYERS = 12, SLOTS = 2 };

typedef struct net {
    oct_module base;
    oct_module *layers[LAYERS];
    oct_param *bias;
} net;

typedef struct kit {
    oct_module *root;
    oct_optim optim;
    float slots[SLOTS][100];
} kit;

static void fill_bytes(void *data, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)data)[i] = (uint8_t)((i * 2654435761U + seed * 40503U) >> 7);
}

static oct_status fill_item(void *user, const oct_state_item *item)
{
    unsigned *seed = user;
    fill_bytes(item->tensor->data,
               (size_t)oct_numel(item->tensor) * oct_dtype_bytes(item->tensor->dtype), (*seed)++);
    return OCT_OK;
}

static void set_values(kit *k, unsigned seed)
{
    fill_bytes(k->slots, sizeof k->slots, seed);
    k->optim.updates = seed;
    MUST(oct_module_state(k->root, fill_item, &seed));
}

static void make_kit(kit *k, int layers, unsigned seed)
{
    net *root;
    *k = (kit){0};
    MUST(oct_module_alloc(&k->root, &net_type, sizeof *root));
    root = (net *)k->root;
    for (int i = 0; i < layers; i++) {
        char name[16];
        layer *l;
        snprintf(name, sizeof name, "l%d", i);
        MUST(oct_module_alloc(&root->layers[i], &layer_type, sizeof *l));
        l = (layer *)root->layers[i];
        MUST(oct_module_add_child(k->root, name, &root->layers[i]));
        MUST(oct_module_add_param(&l->base, "weight", OCT_SHAPE(3, i + 1), true, &l->weight));
        MUST(oct_module_add_buffer(&l->base, "count", OCT_S64, OCT_SHAPE(2), &l->count));
        MUST(oct_module_add_buffer(&l->base, "flags", OCT_U8, OCT_SHAPE(5), &l->flags));
        MUST(oct_module_add_buffer(&l->base, "nothing", OCT_F32, OCT_SHAPE(0), &l->nothing));
    }
    MUST(oct_module_add_param(k->root, "bias", OCT_SHAPE(7), false, &root->bias));
    k->optim = (oct_optim){.type = &oct_optim_adamw,
                           .num_slots = SLOTS,
                           .slot = {k->slots[0], k->slots[1]},
                           .numel = 100};
    set_values(k, seed);
}

static oct_status add_bytes(void *user, const oct_state_item *item)
{
    oct_sha256_add(user, item->path, strlen(item->path));
    oct_sha256_add(user, item->tensor->data,
                   (size_t)oct_numel(item->tensor) * oct_dtype_bytes(item->tensor->dtype));
    return OCT_OK;
}

static void state_digest(const kit *k, uint8_t digest[32])
{
    oct_sha256_state *state;
    MUST(oct_sha256_begin(&state));
    MUST(oct_module_state(k->root, add_bytes, state));
    oct_sha256_add(state, k->slots, sizeof k->slots);
    oct_sha256_add(state, &k->optim.updates, sizeof k->optim.updates);
    oct_sha256_end(&state, digest);
}

static bool same_state(const kit *a, const kit *b)
{
    uint8_t x[32], y[32];
    state_digest(a, x);
    state_digest(b, y);
    return memcmp(x, y, 32) == 0;
}

static oct_checkpoint_info info_of(int64_t step, const kit *k)
{
    static char recipe[] = "model: test\nlr: 0.1\n";
    return (oct_checkpoint_info){
        .step = step, .phase = "qat", .updates = k->optim.updates, .recipe = recipe};
}

static oct_status save(const kit *k, int64_t step, int64_t keep)
{
    oct_checkpoint_info info = info_of(step, k);
    return oct_checkpoint_save(folder, &info, k->root, &k->optim, (oct_keep){.newest = keep}, NULL);
}

static const char *in_folder(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "run/checkpoints/%s", name);
    return oct_tmp_path(&tmp, path);
}

static void read_all(const char *path, void **bytes, size_t *size)
{
    MUST(oct_file_read(path, 1 << 24, bytes, size));
}

/* Names in the folder, in alphabetical order, separated by blanks. */
static void check_folder(const char *wanted)
{
    char text[1000] = "";
    struct dirent **names;
    int count = scandir(folder, &names, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        if (names[i]->d_name[0] != '.') strcat(strcat(text, *text ? " " : ""), names[i]->d_name);
        free(names[i]);
    }
    free(names);
    cr_assert_str_eq(text, wanted);
}

/* The newest good one, with its step; -1 for none. */
static int64_t newest(void)
{
    oct_checkpoint ckpt;
    MUST(oct_checkpoint_newest(&ckpt, folder, NULL));
    int64_t step = ckpt.bytes ? ckpt.info.step : -1;
    oct_checkpoint_close(&ckpt);
    return step;
}

static void damage(const char *name, size_t at)
{
    void *bytes;
    size_t size;
    const char *path = in_folder(name);
    read_all(path, &bytes, &size);
    ((uint8_t *)bytes)[at] ^= 0x10;
    MUST(oct_file_write(path, bytes, size));
    oct_free(&bytes);
}

Test(checkpoint, brings_back_every_bit_of_model_and_optimizer)
{
    kit saved, loaded;
    oct_checkpoint_file file;
    oct_checkpoint ckpt;
    make_kit(&saved, LAYERS, 3);
    make_kit(&loaded, LAYERS, 77);
    oct_checkpoint_info info = info_of(200, &saved);
    MUST(oct_checkpoint_save(folder, &info, saved.root, &saved.optim, (oct_keep){.newest = 3},
                             &file));
    cr_assert_str_eq(file.path, in_folder("step-00000200.h5"));
    oct_free(&file.path);
    check_folder("manifest.json step-00000200.h5");

    cr_assert_not(same_state(&saved, &loaded));
    MUST(oct_checkpoint_newest(&ckpt, folder, NULL));
    cr_assert_str_eq(ckpt.path, in_folder("step-00000200.h5"));
    cr_assert_eq(ckpt.info.step, 200);
    cr_assert_eq(ckpt.info.updates, 3);
    cr_assert_str_eq(ckpt.info.phase, "qat");
    cr_assert_str_eq(ckpt.info.recipe, "model: test\nlr: 0.1\n");
    MUST(oct_checkpoint_load(&ckpt, loaded.root, &loaded.optim));
    cr_assert(same_state(&saved, &loaded));
    oct_checkpoint_close(&ckpt);
    check_nothing_logged();

    MUST(oct_checkpoint_open(&ckpt, in_folder("step-00000200.h5")));
    set_values(&loaded, 5);
    MUST(oct_checkpoint_load(&ckpt, loaded.root, NULL)); /* the model alone */
    cr_assert_not(same_state(&saved, &loaded));
    memcpy(loaded.slots, saved.slots, sizeof saved.slots);
    loaded.optim.updates = 3;
    cr_assert(same_state(&saved, &loaded));
    oct_checkpoint_close(&ckpt);
    oct_module_destroy(&saved.root);
    oct_module_destroy(&loaded.root);
    check_nothing_held();
}

Test(checkpoint, equal_state_gives_equal_files)
{
    kit a, b;
    void *first, *second;
    size_t size, length;
    make_kit(&a, LAYERS, 3);
    MUST(save(&a, 9, 3));
    read_all(in_folder("step-00000009.h5"), &first, &size);
    oct_module_destroy(&a.root);
    sleep(1);
    make_kit(&b, LAYERS, 3);
    MUST(save(&b, 9, 3));
    read_all(in_folder("step-00000009.h5"), &second, &length);
    cr_assert(length == size && memcmp(first, second, size) == 0);
    oct_free(&first);
    oct_free(&second);
    oct_module_destroy(&b.root);
    check_nothing_held();
}

Test(checkpoint, can_be_opened_from_bytes_that_another_rank_sent)
{
    kit k;
    void *bytes;
    size_t size;
    oct_checkpoint ckpt;
    make_kit(&k, 2, 3);
    MUST(save(&k, 9, 3));
    read_all(in_folder("step-00000009.h5"), &bytes, &size);
    MUST(oct_checkpoint_from_bytes(&ckpt, "sent", bytes, size));
    cr_assert_eq(ckpt.info.step, 9);
    cr_assert_eq(ckpt.size, size);
    set_values(&k, 8);
    MUST(oct_checkpoint_load(&ckpt, k.root, &k.optim));
    cr_assert_eq(k.optim.updates, 3);
    oct_checkpoint_close(&ckpt);
    read_all(in_folder("step-00000009.h5"), &bytes, &size);
    ((uint8_t *)bytes)[size / 2] ^= 1;
    cr_assert_eq(oct_checkpoint_from_bytes(&ckpt, "sent", bytes, size), OCT_DATA);
    check_said("sent: is damaged: its SHA-256 differs");
    cr_assert_null(ckpt.bytes);
    oct_module_destroy(&k.root);
    check_nothing_held();
}

Test(checkpoint, a_folder_without_any_gives_none)
{
    cr_assert_eq(newest(), -1);
    MUST(oct_make_folders(folder));
    cr_assert_eq(newest(), -1);
    oct_tmp_write_text(&tmp, "run/checkpoints/step-12.h5", "not a name of ours");
    cr_assert_eq(newest(), -1);
    check_nothing_logged();
    check_nothing_held();
}

Test(checkpoint, keeps_the_newest_and_deletes_the_others)
{
    kit k;
    make_kit(&k, 2, 3);
    for (int64_t step = 1; step <= 5; step++) {
        MUST(save(&k, step * 100, 3));
        cr_assert_eq(newest(), step * 100);
    }
    check_folder("manifest.json step-00000300.h5 step-00000400.h5 step-00000500.h5");
    MUST(save(&k, 600, 1));
    check_folder("manifest.json step-00000600.h5");
    MUST(save(&k, 1234567890123, 2));
    check_folder("manifest.json step-00000600.h5 step-1234567890123.h5");
    cr_assert_eq(newest(), 1234567890123);
    oct_module_destroy(&k.root);
    check_nothing_held();
}

Test(checkpoint, what_evaluations_decided_is_kept_and_so_is_the_best_one)
{
    kit k;
    oct_checkpoint ckpt;
    const oct_keep keep = {.newest = 1, .always = 100, .best = 300};
    make_kit(&k, 2, 3);
    for (int64_t step = 100; step <= 500; step += 100) {
        oct_checkpoint_info info = info_of(step, &k);
        info.stopping =
            (oct_early_stopping){.float_end = 7, .best_step = 300, .since = 2, .best_value = 0.1};
        MUST(oct_checkpoint_save(folder, &info, k.root, &k.optim, keep, NULL));
    }
    check_folder("manifest.json step-00000100.h5 step-00000300.h5 step-00000500.h5");
    MUST(oct_checkpoint_newest(&ckpt, folder, NULL));
    const oct_early_stopping *stopping = &ckpt.info.stopping;
    cr_assert(stopping->float_end == 7 && stopping->qat_end == 0 && stopping->best_step == 300);
    cr_assert(stopping->since == 2 && stopping->best_value == 0.1);
    MUST(oct_checkpoint_load(&ckpt, k.root, &k.optim));
    oct_checkpoint_close(&ckpt);
    MUST(save(&k, 600, 1));
    MUST(oct_checkpoint_newest(&ckpt, folder, NULL));
    cr_assert(ckpt.info.stopping.best_step == 0 && ckpt.info.stopping.best_value == 0);
    oct_checkpoint_close(&ckpt);
    oct_module_destroy(&k.root);
    check_nothing_held();
}

Test(checkpoint, an_earlier_step_supersedes_later_ones)
{
    kit k;
    make_kit(&k, 2, 3);
    MUST(save(&k, 200, 3));
    MUST(save(&k, 400, 3));
    damage("step-00000400.h5", 1000);
    cr_assert_eq(newest(), 200);
    MUST(save(&k, 300, 2));
    check_folder("manifest.json step-00000200.h5 step-00000300.h5");
    MUST(save(&k, 300, 2));
    cr_assert_eq(newest(), 300);
    oct_module_destroy(&k.root);
    check_nothing_held();
}

Test(checkpoint, a_damaged_file_is_named_and_the_one_before_is_used)
{
    kit k;
    make_kit(&k, 2, 3);
    for (int64_t step = 200; step <= 800; step += 200)
        MUST(save(&k, step, 4));
    damage("step-00000800.h5", 5000);
    cr_assert_eq(newest(), 600);
    check_logged("checkpoint step-00000800.h5 is damaged (its SHA-256 differs): "
                 "using step-00000600.h5");
    cr_assert_eq(truncate(in_folder("step-00000600.h5"), 100), 0);
    cr_assert_eq(unlink(in_folder("step-00000400.h5")), 0);
    cr_assert_eq(newest(), 200);
    check_logged("step-00000800.h5 is damaged (its SHA-256 differs), step-00000600.h5 is damaged "
                 "(it has 100 bytes instead of ");
    check_logged("step-00000400.h5 is damaged (there is no such file): using step-00000200.h5");
    damage("step-00000200.h5", 0);
    oct_checkpoint ckpt;
    cr_assert_eq(oct_checkpoint_newest(&ckpt, folder, NULL), OCT_DATA);
    cr_assert_null(ckpt.bytes);
    check_said(folder);
    check_said("no checkpoint is good: step-00000800.h5 is damaged (its SHA-256 differs), ");
    cr_assert_eq(oct_checkpoint_open(&ckpt, in_folder("step-00000800.h5")), OCT_DATA);
    check_said("step-00000800.h5: is damaged: its SHA-256 differs");
    cr_assert_eq(oct_checkpoint_open(&ckpt, in_folder("step-00000400.h5")), OCT_DATA);
    check_said("there is no such file");
    oct_module_destroy(&k.root);
    check_nothing_held();
}

/* With a manifest, and without one, when only the file's own checksum can show that it is whole. */
static void check_damage(bool manifest)
{
    kit k;
    void *bytes;
    size_t size;
    oct_checkpoint ckpt;
    make_kit(&k, 1, 3);
    MUST(save(&k, 100, 2));
    MUST(save(&k, 200, 2));
    const char *path = in_folder("step-00000200.h5");
    char kept[600];
    snprintf(kept, sizeof kept, "%s", path);
    if (!manifest) cr_assert_eq(unlink(in_folder("manifest.json")), 0);
    read_all(kept, &bytes, &size);
    /* Written in place: a thousand synced renames would take too long. */
    FILE *file = fopen(kept, "r+b");
    for (size_t i = 0; i < size; i++) {
        uint8_t flipped = (uint8_t)(((uint8_t *)bytes)[i] ^ (1 << i % 8));
        fseek(file, (long)i, SEEK_SET);
        fwrite(&flipped, 1, 1, file);
        fflush(file);
        cr_assert_eq(oct_checkpoint_open(&ckpt, kept), OCT_DATA, "flip at %zu", i);
        if (i % 128 == 0) cr_assert_eq(newest(), 100, "flip at %zu", i);
        fseek(file, (long)i, SEEK_SET);
        fwrite((uint8_t *)bytes + i, 1, 1, file);
        fflush(file);
    }
    cr_assert_eq(newest(), 200);
    for (size_t length = size; length-- > 0;) {
        cr_assert_eq(truncate(kept, (off_t)length), 0);
        cr_assert_eq(oct_checkpoint_open(&ckpt, kept), OCT_DATA, "%zu bytes", length);
        if (length % 128 == 0) cr_assert_eq(newest(), 100, "%zu bytes", length);
    }
    fclose(file);
    oct_free(&bytes);
    oct_module_destroy(&k.root);
}

Test(checkpoint, no_flipped_byte_and_no_truncation_is_accepted)
{
    check_damage(true);
    check_nothing_held();
}

Test(checkpoint, no_flipped_byte_and_no_truncation_is_accepted_without_a_manifest)
{
    check_damage(false);
    check_nothing_held();
}

Test(checkpoint, another_good_file_under_the_name_is_refused)
{
    kit k;
    void *bytes;
    size_t size;
    make_kit(&k, 2, 3);
    MUST(save(&k, 100, 3));
    MUST(save(&k, 200, 3));
    read_all(in_folder("step-00000100.h5"), &bytes, &size);
    MUST(oct_file_write(in_folder("step-00000200.h5"), bytes, size));
    cr_assert_eq(newest(), 100);
    check_logged("step-00000200.h5 is damaged (its SHA-256 differs)");
    cr_assert_eq(unlink(in_folder("manifest.json")), 0);
    cr_assert_eq(newest(), 100);
    check_logged("step-00000200.h5 is damaged (holds step 100, not the step of its name)");
    oct_free(&bytes);
    oct_module_destroy(&k.root);
    check_nothing_held();
}

Test(checkpoint, a_lost_manifest_is_replaced_by_files_that_prove_themselves)
{
    kit k;
    void *before, *after;
    size_t size, length;
    make_kit(&k, 2, 3);
    for (int64_t step = 200; step <= 800; step += 200)
        MUST(save(&k, step, 4));
    read_all(in_folder("manifest.json"), &before, &size);
    cr_assert_eq(unlink(in_folder("manifest.json")), 0);
    cr_assert_eq(newest(), 800);
    check_logged("manifest.json is not usable (it is missing): going by the checkpoint files");
    damage("step-00000600.h5", 10);
    MUST(save(&k, 1000, 3));
    /* The damaged one takes no place and is not deleted; it may yet be looked into. */
    check_folder("manifest.json step-00000400.h5 step-00000600.h5 step-00000800.h5 "
                 "step-00001000.h5");
    cr_assert_eq(newest(), 1000);

    cr_assert_eq(unlink(in_folder("step-00000600.h5")), 0);
    read_all(in_folder("manifest.json"), &after, &length);
    cr_assert(strstr(after, "step-00000800.h5") && !strstr(after, "step-00000600.h5"));
    /* The digests are those of the first manifest. */
    char *line = strstr(before, "step-00000800.h5");
    *strchr(line, '}') = '\0';
    cr_assert(strstr(after, line));
    oct_free(&before);
    oct_free(&after);
    oct_module_destroy(&k.root);
    check_nothing_held();
}

Test(checkpoint, step_files_without_any_good_one_are_an_error_not_a_fresh_start)
{
    oct_checkpoint ckpt;
    oct_tmp_write_text(&tmp, "run/checkpoints/step-00000100.h5", "damaged");
    cr_assert_eq(oct_checkpoint_newest(&ckpt, folder, NULL), OCT_DATA);
    check_said("no checkpoint is good: step-00000100.h5 is damaged (its SHA-256 differs)");
    oct_tmp_write_text(&tmp, "run/checkpoints/manifest.json", "{}");
    cr_assert_eq(oct_checkpoint_newest(&ckpt, folder, NULL), OCT_DATA);
    check_nothing_held();
}

#define HEX "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define ENTRY(file, step, bytes, hex)                                                              \
    "{\"file\": \"" file "\", \"step\": " step ", \"bytes\": " bytes ", \"sha256\": \"" hex "\"}"
#define LIST(entries) "{\"schema\": 1, \"checkpoints\": [" entries "]}"

Test(checkpoint, a_manifest_that_is_not_ours_to_the_letter_is_not_used)
{
    static const char *const bad[] = {
        "",
        "null",
        "[]",
        "{",
        "{}",
        "\0",
        LIST(""),
        LIST("") "x",
        "{\"schema\": 1}",
        "{\"schema\": \"1\"}",
        "{\"schema\": 0, \"checkpoints\": []}",
        "{\"schema\": 1, \"checkpoints\": {}}",
        "{\"schema\": 1, \"schema\": 1, \"checkpoints\": []}",
        "{\"schema\": 1, \"checkpoints\": [], \"more\": 1}",
        LIST("1"),
        LIST("{}"),
        LIST("null"),
        LIST(ENTRY("step-00000100.h5", "101", "5", HEX)),
        LIST(ENTRY("step-100.h5", "100", "5", HEX)),
        LIST(ENTRY("step-000000100.h5", "100", "5", HEX)),
        LIST(ENTRY("../step-00000100.h5", "100", "5", HEX)),
        LIST(ENTRY("/etc/passwd", "100", "5", HEX)),
        LIST(ENTRY("step-00000100.h5/x", "100", "5", HEX)),
        LIST(ENTRY("step-00000100.h5", "100", "0", HEX)),
        LIST(ENTRY("step-00000100.h5", "100", "-5", HEX)),
        LIST(ENTRY("step-00000100.h5", "100", "99999999999999", HEX)),
        LIST(ENTRY("step-00000100.h5", "100", "99999999999999999999", HEX)),
        LIST(ENTRY("step-00000100.h5", "100", "5.0", HEX)),
        LIST(ENTRY("step-00000100.h5", "\"100\"", "5", HEX)),
        LIST(ENTRY("step-00000100.h5", "100", "5", "00")),
        LIST(ENTRY("step-00000100.h5", "100", "5", "G" HEX)),
        LIST(ENTRY("step-00000100.h5", "100", "5", HEX) "," ENTRY("step-00000100.h5", "100", "5",
                                                                  HEX)),
        LIST(ENTRY("step-00000100.h5", "100", "5", HEX) "," ENTRY("step-00000200.h5", "200", "5",
                                                                  HEX)),
        LIST("{\"file\": \"step-00000100.h5\", \"step\": 100, \"bytes\": 5, \"sha256\": \"" HEX
             "\", \"more\": 1}"),
        LIST("{\"file\": \"step-00000100.h5\", \"step\": 100, \"bytes\": 5}"),
    };
    kit k;
    make_kit(&k, 1, 3);
    MUST(save(&k, 7, 3));
    for (size_t i = 0; i < OCT_COUNT(bad); i++) {
        oct_tmp_write_text(&tmp, "run/checkpoints/manifest.json", bad[i]);
        oct_tmp_write_text(&tmp, "log", "");
        cr_assert_eq(newest(), 7, "%s", bad[i]);
        check_logged("manifest.json is not usable");
    }
    /* The form itself is right: the entry is believed, and its file is what is wrong. */
    oct_tmp_write_text(&tmp, "run/checkpoints/manifest.json",
                       LIST(ENTRY("step-00000007.h5", "7", "5", HEX)));
    oct_checkpoint ckpt;
    cr_assert_eq(oct_checkpoint_newest(&ckpt, folder, NULL), OCT_DATA);
    check_said("bytes instead of 5");
    oct_module_destroy(&k.root);
    check_nothing_held();
}

Test(checkpoint, a_flipped_byte_in_the_manifest_never_loads_anything_else)
{
    kit k, other;
    void *bytes;
    size_t size;
    make_kit(&k, 1, 3);
    make_kit(&other, 1, 99);
    MUST(save(&k, 100, 3));
    MUST(save(&k, 200, 3));
    char path[600];
    snprintf(path, sizeof path, "%s", in_folder("manifest.json"));
    read_all(path, &bytes, &size);
    for (size_t i = 0; i < size; i += 2) { /* what is accepted starts a program each time */
        for (int bit = (int)(i / 2 % 4); bit < 8; bit += 8) {
            oct_checkpoint ckpt;
            ((uint8_t *)bytes)[i] ^= (uint8_t)(1 << bit);
            FILE *file = fopen(path, "wb");
            fwrite(bytes, 1, size, file);
            fclose(file);
            oct_status status = oct_checkpoint_newest(&ckpt, folder, NULL);
            if (status == OCT_OK) {
                cr_assert_not_null(ckpt.bytes);
                cr_assert(ckpt.info.step == 100 || ckpt.info.step == 200);
                MUST(oct_checkpoint_load(&ckpt, other.root, &other.optim));
                cr_assert(same_state(&k, &other));
            } else {
                cr_assert_eq(status, OCT_DATA);
            }
            oct_checkpoint_close(&ckpt);
            ((uint8_t *)bytes)[i] ^= (uint8_t)(1 << bit);
        }
    }
    oct_free(&bytes);
    oct_module_destroy(&k.root);
    oct_module_destroy(&other.root);
    check_nothing_held();
}

/* A loop of links simulates a disk that fails for a moment. A file that cannot be read then would be missing from a new
 * manifest. */
Test(checkpoint, a_save_fails_where_what_is_there_cannot_be_read)
{
    kit k;
    oct_checkpoint ckpt;
    char path[600];
    make_kit(&k, 1, 3);
    MUST(save(&k, 7, 3));
    snprintf(path, sizeof path, "%s", in_folder("manifest.json"));
    cr_assert_eq(rename(path, in_folder("kept")), 0);
    cr_assert_eq(symlink("manifest.json", path), 0);
    cr_assert_eq(save(&k, 8, 3), OCT_RESOURCE);
    check_said("manifest.json: cannot be read: ");
    check_folder("kept manifest.json step-00000007.h5");
    MUST(oct_checkpoint_newest(&ckpt, folder, NULL)); /* it reads the files */
    cr_assert_eq(ckpt.info.step, 7);
    oct_checkpoint_close(&ckpt);

    /* The manifest is damaged, and one of the two files that replace it cannot be read. */
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(symlink("step-00000006.h5", in_folder("step-00000006.h5")), 0);
    cr_assert_eq(save(&k, 8, 3), OCT_RESOURCE);
    check_said("step-00000006.h5: cannot be read: ");
    check_folder("kept step-00000006.h5 step-00000007.h5");
    cr_assert_eq(unlink(in_folder("step-00000006.h5")), 0);
    MUST(save(&k, 8, 3));
    check_folder("kept manifest.json step-00000007.h5 step-00000008.h5");
    oct_module_destroy(&k.root);
    check_nothing_held();
}

/* One step is asked for, so no other is given. */
Test(checkpoint, of_one_step_is_that_or_none)
{
    kit k;
    oct_checkpoint ckpt;
    oct_manifest list;
    const oct_manifest_entry *entry;
    void *bytes;
    size_t size;
    uint8_t digest[32], expected[32];
    make_kit(&k, 1, 3);
    MUST(save(&k, 7, 3));
    MUST(save(&k, 8, 3));
    read_all(in_folder("step-00000008.h5"), &bytes, &size);
    oct_sha256(bytes, size, expected);
    oct_free(&bytes);
    for (int manifest = 1; manifest >= 0; manifest--) {
        if (!manifest) cr_assert_eq(unlink(in_folder("manifest.json")), 0);
        MUST(oct_checkpoint_open_step(&ckpt, folder, 8));
        oct_sha256(ckpt.bytes, ckpt.size, digest);
        cr_assert_eq(memcmp(digest, expected, sizeof digest), 0);
        cr_assert_str_eq(ckpt.path, in_folder("step-00000008.h5"));
        oct_checkpoint_close(&ckpt);
        MUST(oct_manifest_read(&list, folder, false));
        entry = oct_manifest_find(&list, 8);
        cr_assert(entry && !entry->damaged);
        cr_assert_eq(memcmp(entry->digest, expected, sizeof expected), 0);
        cr_assert_null(oct_manifest_find(&list, 6));
        oct_manifest_free(&list);
        MUST(oct_checkpoint_open_step(&ckpt, folder, 7));
        cr_assert_eq(ckpt.info.step, 7);
        oct_checkpoint_close(&ckpt);
        cr_assert_eq(oct_checkpoint_open_step(&ckpt, folder, 6), OCT_DATA);
        check_said("step-00000006.h5: there is no such file");
    }
    damage("step-00000008.h5", 100);
    cr_assert_eq(oct_checkpoint_open_step(&ckpt, folder, 8), OCT_DATA);
    check_said("step-00000008.h5: is damaged");
    MUST(oct_manifest_read(&list, folder, false));
    entry = oct_manifest_find(&list, 8);
    cr_assert(entry && entry->damaged);
    oct_manifest_free(&list);
    oct_module_destroy(&k.root);
    check_nothing_held();
}

Test(checkpoint, refuses_a_newer_schema_of_the_manifest_and_leaves_it)
{
    static const char newer[] = "{\"schema\": 2, \"something\": []}";
    kit k;
    oct_checkpoint ckpt;
    make_kit(&k, 1, 3);
    MUST(save(&k, 7, 3));
    oct_tmp_write_text(&tmp, "run/checkpoints/manifest.json", newer);
    cr_assert_eq(oct_checkpoint_newest(&ckpt, folder, NULL), OCT_DATA);
    check_said("has schema 2 and this Octet knows schema 1; use a newer Octet");
    cr_assert_eq(save(&k, 8, 3), OCT_DATA);
    check_folder("manifest.json step-00000007.h5");
    oct_module_destroy(&k.root);
    check_nothing_held();
}

/* A checkpoint file with a checksum, of any format and with any further items. */
static void craft(const char *name, int64_t format, int64_t step, oct_status (*more)(oct_h5 *h5))
{
    oct_h5 *h5;
    void *bytes;
    size_t size;
    MUST(oct_h5_create(&h5, 0));
    MUST(oct_h5_write_i64(h5, "info/format", format));
    MUST(oct_h5_write_i64(h5, "info/step", step));
    MUST(oct_h5_write_text(h5, "info/phase", "float"));
    MUST(oct_h5_write_i64(h5, "info/updates", 3));
    MUST(oct_h5_write_text(h5, "info/recipe", ""));
    if (more) MUST(more(h5));
    MUST(oct_h5_finish(&h5, true, &bytes, &size));
    MUST(oct_make_folders(folder));
    MUST(oct_file_write(in_folder(name), bytes, size));
    oct_free(&bytes);
}

Test(checkpoint, refuses_a_newer_format_and_does_not_fall_back_after_it)
{
    kit k;
    oct_checkpoint ckpt;
    make_kit(&k, 1, 3);
    MUST(save(&k, 7, 3));
    craft("step-00000008.h5", 2, 8, NULL);
    cr_assert_eq(unlink(in_folder("manifest.json")), 0);
    cr_assert_eq(oct_checkpoint_newest(&ckpt, folder, NULL), OCT_DATA);
    check_said("step-00000008.h5: has checkpoint format 2 and this Octet knows format 1");
    cr_assert_eq(oct_checkpoint_open(&ckpt, in_folder("step-00000008.h5")), OCT_DATA);
    check_said("use a newer Octet");
    oct_module_destroy(&k.root);
    check_nothing_held();
}

Test(checkpoint, a_file_elsewhere_is_judged_by_its_own_checksum)
{
    kit k;
    void *bytes;
    size_t size;
    oct_checkpoint ckpt;
    make_kit(&k, 1, 3);
    MUST(save(&k, 7, 3));
    read_all(in_folder("step-00000007.h5"), &bytes, &size);
    const char *copy = oct_tmp_write(&tmp, "best.h5", bytes, size);
    MUST(oct_checkpoint_open(&ckpt, copy));
    cr_assert_eq(ckpt.info.step, 7);
    oct_checkpoint_close(&ckpt);
    cr_assert_eq(chdir(folder), 0);
    MUST(oct_checkpoint_open(&ckpt, "step-00000007.h5"));
    oct_checkpoint_close(&ckpt);
    check_nothing_logged();
    oct_free(&bytes);
    oct_module_destroy(&k.root);
    check_nothing_held();
}

static oct_status program_group(oct_h5 *h5)
{
    return oct_h5_write_i64(h5, "program/input", 0);
}

Test(checkpoint, distinguishes_an_int8_model_from_a_checkpoint)
{
    oct_checkpoint ckpt;
    craft("model.h5", 1, 8, program_group);
    cr_assert_eq(oct_checkpoint_open(&ckpt, in_folder("model.h5")), OCT_DATA);
    check_said("model.h5: is an int8 model, not a checkpoint");
    check_nothing_held();
}

static oct_status stray_items(oct_h5 *h5)
{
    OCT_TRY(oct_h5_write_i64(h5, "stray/x", 0));
    return oct_h5_write_i64(h5, "info/stray", 0);
}

/* Loading into a model that the checkpoint is not of. */

static void check_load_refused(const char *file, kit *into, const char *why)
{
    uint8_t before[32], after[32];
    oct_checkpoint ckpt;
    MUST(oct_checkpoint_open(&ckpt, in_folder(file)));
    state_digest(into, before);
    cr_assert_eq(oct_checkpoint_load(&ckpt, into->root, &into->optim), OCT_DATA);
    check_said(file);
    check_said(why);
    state_digest(into, after);
    cr_assert_eq(memcmp(before, after, 32), 0, "something has changed");
    oct_checkpoint_close(&ckpt);
}

Test(checkpoint, refuses_another_model_and_changes_nothing)
{
    kit small, large;
    make_kit(&small, 2, 3);
    make_kit(&large, 3, 4);
    MUST(save(&small, 1, 3));
    check_load_refused("step-00000001.h5", &large,
                       "is a checkpoint of another model: it lacks 4 of the 15 items of this one, "
                       "the first is state/l2/count");
    MUST(save(&large, 2, 3));
    check_load_refused("step-00000002.h5", &small,
                       "is a checkpoint of another model: 4 of its items are not in this one, such "
                       "as state/l2/count, state/l2/flags, state/l2/nothing");
    oct_module_destroy(&small.root);
    oct_module_destroy(&large.root);
    check_nothing_held();
}

Test(checkpoint, refuses_what_does_not_belong_into_it)
{
    oct_checkpoint ckpt;
    oct_module *nothing;
    MUST(oct_relu_create(&nothing));
    craft("stray.h5", 1, 8, stray_items);
    MUST(oct_checkpoint_open(&ckpt, in_folder("stray.h5")));
    cr_assert_eq(oct_checkpoint_load(&ckpt, nothing, NULL), OCT_DATA);
    check_said("2 of its items are not in this one, such as info/stray, stray/x");
    oct_checkpoint_close(&ckpt);
    oct_module_destroy(&nothing);
    check_nothing_held();
}

Test(checkpoint, refuses_another_shape_and_another_type)
{
    kit k;
    make_kit(&k, 2, 3);
    layer *l = (layer *)((net *)k.root)->layers[1];
    MUST(save(&k, 1, 3));
    l->weight->value.shape = OCT_SHAPE(2, 3);
    check_load_refused("step-00000001.h5", &k, "state/l1/weight is f32 (3, 2), not f32 (2, 3)");
    l->weight->value.shape = OCT_SHAPE(3, 2);
    l->base.buffers[1].tensor.dtype = OCT_S8;
    check_load_refused("step-00000001.h5", &k, "state/l1/flags is u8 (5), not s8 (5)");
    l->base.buffers[1].tensor.dtype = OCT_U8;
    oct_module_destroy(&k.root);
    check_nothing_held();
}

static int32_t choose_zero_point(float min, float max, float scale, oct_qparams q)
{
    return min < max && scale > 0 ? q.qmin : q.qmax;
}

static void check_value_refused(int64_t step, kit *k, const char *why)
{
    char name[OCT_CHECKPOINT_NAME];
    MUST(save(k, step, 20));
    check_load_refused(oct_checkpoint_name(step, name), k, why);
}

Test(checkpoint, refuses_scales_and_zero_points_that_no_training_makes)
{
    oct_fake_quant_kind kind = oct_fake_quant_affine;
    oct_qconfig qconfig = oct_qconfig_default();
    oct_fake_quant *fq;
    kind.zero_point = choose_zero_point;
    qconfig.fake_quant = &kind;
    MUST(oct_fake_quant_create(&fq, &qconfig, oct_target_at(OCT_TARGET_X86), true));
    kit k = {.root = &fq->base, .optim = {.type = &oct_optim_sgd}};
    static const float scales[] = {0, -1, NAN, INFINITY};
    static const char *const said[] = {"state/scale holds 0, outside of 1.4013e-45 to 3.40282e+38",
                                       "state/scale holds -1, ", "state/scale holds nan, ",
                                       "state/scale holds inf, "};
    for (size_t i = 0; i < OCT_COUNT(scales); i++) {
        fq->scale[0] = scales[i];
        check_value_refused((int64_t)i + 1, &k, said[i]);
    }
    fq->scale[0] = 0.5f;
    fq->zero_point[0] = 256;
    check_value_refused(5, &k, "state/zero_point holds 256, outside of 0 to 255");
    fq->zero_point[0] = -1;
    check_value_refused(6, &k, "state/zero_point holds -1, ");
    fq->zero_point[0] = 255;
    MUST(save(&k, 7, 20));
    oct_checkpoint ckpt;
    MUST(oct_checkpoint_open(&ckpt, in_folder("step-00000007.h5")));
    fq->scale[0] = 1;
    MUST(oct_checkpoint_load(&ckpt, k.root, NULL));
    cr_assert(fq->scale[0] == 0.5f && fq->zero_point[0] == 255);
    oct_checkpoint_close(&ckpt);
    oct_module_destroy(&k.root);
    check_nothing_held();
}

Test(checkpoint, refuses_another_optimizer)
{
    kit k;
    make_kit(&k, 2, 3);
    k.optim.num_slots = 1;
    MUST(save(&k, 1, 3));
    k.optim.num_slots = 2;
    check_load_refused("step-00000001.h5", &k,
                       "lacks 1 of the 11 items of this one, the first is "
                       "optimizer/slot1");
    MUST(save(&k, 2, 3));
    k.optim.num_slots = 1;
    check_load_refused("step-00000002.h5", &k, "such as optimizer/slot1");
    k.optim.num_slots = 2;
    k.optim.numel = 99;
    check_load_refused("step-00000002.h5", &k, "optimizer/slot1 is f32 (100), not f32 (99)");
    /* Where a layer differs, that is why the optimizer does. */
    layer *l = (layer *)((net *)k.root)->layers[1];
    l->weight->value.shape = OCT_SHAPE(2, 3);
    check_load_refused("step-00000002.h5", &k, "state/l1/weight is f32 (3, 2), not f32 (2, 3)");
    oct_module_destroy(&k.root);
    check_nothing_held();
}

static oct_status without_count(oct_h5 *h5)
{
    float x[7] = {0};
    return oct_h5_write(h5, "state/bias", OCT_F32, OCT_SHAPE(7), x);
}

Test(checkpoint, names_the_item_that_is_missing)
{
    kit k;
    make_kit(&k, 1, 3);
    craft("step-00000003.h5", 1, 3, without_count);
    check_load_refused("step-00000003.h5", &k,
                       "lacks 6 of the 7 items of this one, the first is "
                       "optimizer/slot0");
    oct_module_destroy(&k.root);
    check_nothing_held();
}

Test(checkpoint, a_model_without_state_is_saved_and_loaded)
{
    oct_module *empty;
    oct_checkpoint ckpt;
    MUST(oct_module_alloc(&empty, &net_type, sizeof(net)));
    oct_checkpoint_info info = {.step = 0};
    MUST(oct_checkpoint_save(folder, &info, empty, NULL, (oct_keep){.newest = 3}, NULL));
    MUST(oct_checkpoint_newest(&ckpt, folder, NULL));
    cr_assert_str_eq(ckpt.info.recipe, "");
    MUST(oct_checkpoint_load(&ckpt, empty, NULL));
    oct_checkpoint_close(&ckpt);
    oct_module_destroy(&empty);
    check_nothing_held();
}

/* What is in the folder, by content. */
static void folder_digest(uint8_t digest[32])
{
    oct_sha256_state *state;
    struct dirent **names;
    MUST(oct_sha256_begin(&state));
    int count = scandir(folder, &names, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        if (names[i]->d_name[0] != '.') {
            void *bytes;
            size_t size;
            read_all(in_folder(names[i]->d_name), &bytes, &size);
            oct_sha256_add(state, names[i]->d_name, strlen(names[i]->d_name));
            oct_sha256_add(state, bytes, size);
            oct_free(&bytes);
        }
        free(names[i]);
    }
    free(names);
    oct_sha256_end(&state, digest);
}

Test(checkpoint, a_full_disk_changes_nothing)
{
    kit k;
    uint8_t before[32], after[32];
    struct rlimit limit;
    make_kit(&k, LAYERS, 3);
    MUST(save(&k, 100, 1));
    MUST(save(&k, 200, 1));
    folder_digest(before);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 2000;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(save(&k, 300, 1), OCT_RESOURCE);
    check_said("step-00000300.h5: cannot be written: ");
    /* Room for no byte of a manifest, but for the file: it is taken back. */
    folder_digest(after);
    cr_assert_eq(memcmp(before, after, 32), 0);
    limit.rlim_cur = limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    MUST(save(&k, 300, 1));
    check_folder("manifest.json step-00000300.h5");
    oct_module_destroy(&k.root);
    check_nothing_held();
}

Test(checkpoint, a_manifest_that_cannot_be_written_takes_the_file_back)
{
    uint8_t before[32], after[32];
    struct rlimit limit;
    /* Enough small checkpoints to make the manifest the largest file. */
    for (int64_t step = 1; step <= 40; step++) {
        oct_checkpoint_info info = {.step = step};
        oct_module *empty;
        MUST(oct_module_alloc(&empty, &net_type, sizeof(net)));
        MUST(oct_checkpoint_save(folder, &info, empty, NULL, (oct_keep){.newest = 100}, NULL));
        oct_module_destroy(&empty);
    }
    void *bytes;
    size_t manifest, file;
    read_all(in_folder("manifest.json"), &bytes, &manifest);
    oct_free(&bytes);
    read_all(in_folder("step-00000001.h5"), &bytes, &file);
    oct_free(&bytes);
    cr_assert(file < manifest, "%zu, %zu", file, manifest);
    folder_digest(before);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = (file + manifest) / 2;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    oct_checkpoint_info info = {.step = 50};
    oct_module *empty;
    MUST(oct_module_alloc(&empty, &net_type, sizeof(net)));
    cr_assert_eq(oct_checkpoint_save(folder, &info, empty, NULL, (oct_keep){.newest = 100}, NULL),
                 OCT_RESOURCE);
    check_said("manifest.json: cannot be written");
    folder_digest(after);
    cr_assert_eq(memcmp(before, after, 32), 0);
    oct_module_destroy(&empty);
    check_nothing_held();
}

Test(checkpoint, the_next_save_cleans_up_after_a_killed_one)
{
    kit k;
    make_kit(&k, 1, 3);
    oct_tmp_write_text(&tmp, "run/checkpoints/step-00000100.h5.4711-0.tmp", "half");
    oct_tmp_write_text(&tmp, "run/checkpoints/notes.tmp", "mine");
    MUST(save(&k, 200, 3));
    check_folder("manifest.json notes.tmp step-00000200.h5");
    oct_module_destroy(&k.root);
    check_nothing_held();
}

Test(checkpoint, a_lack_of_memory_anywhere_leaves_all_as_it_was)
{
    kit k, other;
    uint8_t before[32], after[32];
    make_kit(&k, 1, 3);
    make_kit(&other, 1, 4);
    MUST(save(&k, 1, 3));
    folder_digest(before);
    size_t live = oct_mem_live();
    for (int64_t n = 1;; n++) {
        oct_mem_fail_after(n);
        oct_status status = save(&k, 2, 3);
        oct_mem_fail_after(0);
        cr_assert_eq(oct_mem_live(), live);
        if (status == OCT_OK) break;
        cr_assert_eq(status, OCT_RESOURCE, "%s", oct_error_message(0));
        folder_digest(after);
        cr_assert_eq(memcmp(before, after, 32), 0);
    }
    state_digest(&other, before);
    for (int64_t n = 1;; n++) {
        oct_checkpoint ckpt;
        oct_mem_fail_after(n);
        oct_status status = oct_checkpoint_newest(&ckpt, folder, NULL);
        if (status == OCT_OK) status = oct_checkpoint_load(&ckpt, other.root, &other.optim);
        oct_mem_fail_after(0);
        oct_checkpoint_close(&ckpt);
        cr_assert_eq(oct_mem_live(), live);
        if (status == OCT_OK) break;
        cr_assert_eq(status, OCT_RESOURCE, "%s", oct_error_message(0));
        state_digest(&other, after);
        cr_assert_eq(memcmp(before, after, 32), 0);
    }
    cr_assert(same_state(&k, &other));
    oct_module_destroy(&k.root);
    oct_module_destroy(&other.root);
    check_nothing_held();
}

static oct_status endless(oct_h5 *h5)
{
    char path[80];
    for (int i = 0; i < 300; i++) {
        snprintf(path, sizeof path, "state/x%d/y/z", i);
        OCT_TRY(oct_h5_write_i64(h5, path, i));
    }
    return OCT_OK;
}

Test(checkpoint, counts_all_items_that_are_too_many)
{
    oct_checkpoint ckpt;
    oct_module *empty;
    craft("step-00000003.h5", 1, 3, endless);
    MUST(oct_module_alloc(&empty, &net_type, sizeof(net)));
    MUST(oct_checkpoint_open(&ckpt, in_folder("step-00000003.h5")));
    cr_assert_eq(oct_checkpoint_load(&ckpt, empty, NULL), OCT_DATA);
    check_said("300 of its items are not in this one, such as state/x0/y/z, state/x1/y/z, "
               "state/x10/y/z");
    oct_checkpoint_close(&ckpt);
    oct_module_destroy(&empty);
    check_nothing_held();
}
