/* Small data sets and a recipe, for tests that run the program. Random pixels, all ten classes. */
#pragma once

#include "tests/support/program.h"

#include <criterion/criterion.h>
#include <criterion/hooks.h>
#include <stdint.h>
#include <stdio.h>

static inline void small_put(FILE *file, uint32_t word)
{
    uint8_t bytes[4] = {(uint8_t)(word >> 24), (uint8_t)(word >> 16), (uint8_t)(word >> 8),
                        (uint8_t)word};
    fwrite(bytes, 1, 4, file);
}

static inline FILE *small_create(const char *folder, const char *name)
{
    char path[600];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    cr_assert(file != NULL, "%s", path);
    return file;
}

/* 1 channel, side x side. */
static inline void small_idx(const char *folder, const char *split, uint32_t count, uint32_t side)
{
    char name[64];
    uint32_t state = 1;
    snprintf(name, sizeof(name), "%s-images-idx3-ubyte", split);
    FILE *file = small_create(folder, name);
    small_put(file, 0x803), small_put(file, count), small_put(file, side), small_put(file, side);
    for (uint32_t i = 0; i < count * side * side; i++)
        fputc((int)((state = state * 1664525u + 1013904223u) >> 24), file);
    fclose(file);
    snprintf(name, sizeof(name), "%s-labels-idx1-ubyte", split);
    file = small_create(folder, name);
    small_put(file, 0x801), small_put(file, count);
    for (uint32_t i = 0; i < count; i++)
        fputc((int)(i % 10), file);
    fclose(file);
}

static inline void small_cifar(const char *folder)
{
    static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
    for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++) {
        FILE *file = small_create(folder, names[n]);
        for (int i = 0; i < 8 * 3073; i++)
            fputc(i % 3073 == 0 ? i / 3073 : i * 7 % 256, file);
        fclose(file);
    }
}

/* 3 float, 1 calibration and 3 QAT steps on the IDX set in data/, into new/. */
static const char *const small_recipe = "schema: 1\n"
                                        "output: new\n"
                                        "model:\n"
                                        "  name: cnn-small\n"
                                        "data:\n"
                                        "  path: data\n"
                                        "batch:\n"
                                        "  size: 32\n"
                                        "  leaf: 4\n"
                                        "float:\n"
                                        "  epochs: 1\n"
                                        "  lr: 0.01\n"
                                        "calibrate:\n"
                                        "  batches: 1\n"
                                        "qat:\n"
                                        "  epochs: 1\n"
                                        "checkpoint:\n"
                                        "  every: 2\n";

/* data/ with images of side x side, and r.yaml, in the working folder. */
static inline void small_make(uint32_t side, const char *recipe)
{
    must("mkdir data");
    small_idx("data", "train", 96, side);
    small_idx("data", "t10k", 40, side);
    FILE *file = small_create(".", "r.yaml");
    fputs(recipe, file);
    fclose(file);
}

/* Also cifar/, and run/: a finished run. */
static inline void small_start(void)
{
    small_make(12, small_recipe);
    must("mkdir cifar");
    small_cifar("cifar");
    must(OCT_PROGRAM " train r.yaml output=run > log 2>&1 || { cat log; exit 1; }; rm log");
}

static inline void enter_with_data(void)
{
    enter_folder();
    small_make(12, small_recipe);
}

#ifdef SMALL_RUN_ONCE /* the test program's tests start from copies of one finished run */
ReportHook(PRE_ALL)(struct criterion_test_set *set)
{
    (void)set;
    enter_folder();
    small_start();
    cr_assert(chdir("/") == 0 && setenv("SMALL_FOLDER", tmp.path, 1) == 0);
}

ReportHook(POST_ALL)(struct criterion_global_stats *stats)
{
    (void)stats;
    oct_tmp_remove(&tmp);
}
#endif

static inline void enter_with_run(void)
{
    enter_folder();
#ifdef SMALL_RUN_ONCE
    must("cp -r \"$SMALL_FOLDER\"/. .");
#else
    small_start();
#endif
}
