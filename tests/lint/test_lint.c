/* The lints can fail: each is run on a tiny tree with one fault, and on one without. */
#include "core/base/status.h"
#include "tests/support/process.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static oct_process lint(const char *name, const oct_tmp *tree)
{
    char root[300], script[512];
    snprintf(root, sizeof(root), "-DROOT=%s", tree->path);
    snprintf(script, sizeof(script), OCT_SOURCE_DIR "/tests/lint/%s.cmake", name);
    return oct_process_run(30, "cmake", root, "-P", script, NULL);
}

typedef struct fault {
    const char *file, *text, *said;
} fault;

static void check_faults(const char *name, const fault *faults, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        oct_tmp tree;
        oct_tmp_create(&tree);
        oct_tmp_write_text(&tree, "core/base/good.c",
                           "struct oct_good {\n    int a;\n};\nint oct_make(void)\n{\n}\n");
        oct_tmp_write_text(&tree, "tests/lint/test_y.c", "\nTest(y, good)\n{\n}\n");
        oct_tmp_write_text(&tree, faults[i].file, faults[i].text);
        oct_process job = lint(name, &tree);
        cr_assert(job.exit_code != 0, "accepted: %s: %s\n%s", faults[i].file, faults[i].text,
                  job.err);
        oct_check_said(job, faults[i].file);
        oct_check_said(job, faults[i].said);
        oct_process_free(&job);
        oct_tmp_remove(&tree);
    }
}

static void check_good(const char *name, const fault *good, size_t count)
{
    oct_tmp tree;
    oct_tmp_create(&tree);
    for (size_t i = 0; i < count; i++)
        oct_tmp_write_text(&tree, good[i].file, good[i].text);
    oct_process job = lint(name, &tree);
    oct_check_exit(job, 0);
    oct_process_free(&job);
    oct_tmp_remove(&tree);
}

Test(floor_plan, names_includes_that_point_upward, .timeout = 60)
{
    static const fault faults[] = {
        {"core/op/x.c", "#include \"quant/rounding/qparams.h\"\n", "quant/rounding/qparams.h"},
        {"core/base/x.c", "#include \"core/tensor/tensor.h\"\n", "core/tensor/tensor.h"},
        {"quant/prepare/x.c", "#include \"dist/comm.h\"\n", "dist/comm.h"},
        {"quant/program/x.c", "#include \"core/autograd/tape.h\"\n", "core/autograd/tape.h"},
        {"quant/kernel/x.h", "  #  include \"quant/observer/observer.h\"\n", "observer.h"},
        {"dist/x.c", "#include \"io/recipe/recipe.h\"\n", "io/recipe/recipe.h"},
        {"io/dataset/x.c", "#include \"dist/comm.h\"\n", "dist/comm.h"},
        {"launch/x.c", "#include \"tests/support/tmp.h\"\n", "tests/support/tmp.h"},
        {"launch/train/x.c", "#include \"launch/cmd/command.h\"\n", "launch/cmd/command.h"},
        {"core/nn/x.c", "#include \"x.h\"\n", "x.h"},
        {"core/nn/x.c", "#include \"core/op/op_impl.h\"\n", "op_impl.h"},
        {"launch/session/x.c", "#include \"launch/train/trainer.h\"\n", "launch/train/trainer.h"},
        {"io/x.c", "#include <math.h>\n", "in no folder of this list"},
    };
    check_faults("floor_plan", faults, OCT_COUNT(faults));
}

Test(floor_plan, accepts_what_points_down, .timeout = 60)
{
    static const fault good[] = {
        {"core/op/x.c", "#include \"core/op/op_impl.h\"\n#include <math.h>\n", ""},
        {"quant/program/x.c", "#include \"quant/kernel/kernel.h\"\n", ""},
        {"launch/x.c", "#include \"dist/comm.h\"\n#include \"io/recipe/recipe.h\"\n", ""},
    };
    check_good("floor_plan", good, OCT_COUNT(good));
}

Test(banned_calls, names_what_has_another_door, .timeout = 60)
{
    static const fault faults[] = {
        {"core/op/x.c", "void f(void) { g(malloc(3)); }\n", "core/base/mem.h"},
        {"io/x.c", "void f(void *p)\n{\n    free (p);\n}\n", "core/base/mem.h"},
        {"core/nn/x.c", "void f(void) { exit(1); }\n", "return a status"},
        {"launch/session/plan.c", "void f(void) { abort(); }\n", "return a status"},
        {"quant/x.c", "void f(int a) { assert(a); }\n", "OCT_ASSERT"},
        {"tests/io/test_x.c", "int f(void) { return rand() + 1; }\n", "core/base/rng.h"},
        {"io/x.c", "void f(char *a) { strcpy(a, \"b\"); }\n", "no bound"},
        {"io/x.c", "int f(char *a) { return atoi(a); }\n", "oct_parse_i64"},
        {"dist/x.c", "void f(void) { printf(\"a\"); }\n", "core/base/log.h"},
        {"quant/x.c", "double f(char *a) { return strtod(a, 0); }\n", "core/base/c_locale.h"},
        {"io/x.c", "void f(char *a) { snprintf(a, 9, \"%d %.3g\", 1, 2.0); }\n", "oct_snprintf"},
        {"launch/x.c", "#include <mpi.h>\n", "MPI lives in dist"},
        {"quant/x.c", "int f(void) { return MPI_Init(0, 0); }\n", "MPI lives in dist"},
        {"io/checkpoint/checkpoint.c", "int f(void) { return H5Fclose(3); }\n", "HDF5 lives in"},
        {"core/op/x.c", "void f(void) { cblas_sgemm(); }\n", "BLAS lives in"},
        {"io/x.c", "/* \" */ void f(void) { exit(1); } /* \" */\n", "return a status"},
        {"io/export/x.c", "int f(int r) { return r == OCT_REQUANT_SHIFT; }\n", "on a rounding"},
        {"quant/kernel/x.c", "int f(int r) { if (OCT_REQUANT_Q15 != r) return 1; }\n",
         "on a rounding"},
        {"io/x.c", "void f(int r) { switch (r) { case OCT_REQUANT_FLOAT: g(); } }\n",
         "on a rounding"},
        {"io/x.c", "int a[] = {[OCT_REQUANT_FLOAT] = 1};\n", "on a rounding"},
        {"quant/module/x.c", "int f(t *r) { return r == &oct_rounding_float; }\n", "on a rounding"},
        {"quant/x.c", "int f(t *r) { return r->target == &oct_target_bpu; }\n", "on a target"},
        {"launch/x.c", "int f(t *r) { return strcmp(r->target, \"bpu\") == 0; }\n", "on a target"},
        {"CMakeLists.txt", "add_compile_options(-ffast-math)\n", "changes bits"},
    };
    check_faults("banned_calls", faults, OCT_COUNT(faults));
}

Test(banned_calls, minds_neither_comments_nor_strings_nor_longer_names, .timeout = 60)
{
    static const fault good[] = {
        {"core/op/x.c",
         "/* never malloc(here) */\n// or exit(1)\nvoid f(void)\n{\n"
         "    oct_alloc(\"exit(1) // printf(\");\n    oct_free(x);\n    pool->free(x);\n"
         "    static_assert(1);\n    snprintf(a, 3, \"'\");\n    c = '\"'; d = \"malloc(3)\";\n}\n",
         ""},
        {"core/base/mem.c", "void f(void *p) { free(p); }\n", ""},
        {"core/kernel/blas.c", "#include <cblas.h>\nvoid f(void) { cblas_sgemm(); }\n", ""},
        {"dist/comm.c", "#include <mpi.h>\nvoid f(void) { MPI_Finalize(); }\n", ""},
        {"io/hdf5/hdf5_write.c", "#include <hdf5.h>\nint f(void) { return H5Fclose(3); }\n", ""},
        {"launch/main.c", "int main(void) { printf(\"a\"); exit(0); }\n", ""},
        {"quant/rounding/x.c", "int f(int r) { return r == OCT_REQUANT_SHIFT; }\n", ""},
        {"quant/target/x.c", "t x = {.requantizer = OCT_REQUANT_Q15, .name = \"x\"};\n", ""},
        {"io/x.c", "t *f(int r) { return r ? &oct_rounding_float : oct_rounding_of(r); }\n", ""},
        {"io/y.c", "int f(t *a) { return fits(1.0f, OCT_REQUANT_FLOAT) && a->target == b; }\n", ""},
    };
    check_good("banned_calls", good, OCT_COUNT(good));
}

Test(unique_names, names_what_two_files_define, .timeout = 60)
{
    static const fault faults[] = {
        {"core/base/x.h", "typedef struct oct_good {\n    int a;\n} oct_good;\n", "oct_good"},
        {"core/base/x.h", "typedef union {\n    int a;\n} oct_good;\n", "oct_good"},
        {"core/base/x.h", "typedef int *(*oct_good)(int a);\n", "oct_good"},
        {"core/base/x.h", "enum oct_good\n{ OCT_A };\n", "core/base/good.c"},
        {"core/base/x.c", "static int *oct_make(oct_good *a,\n    int b[2])\n{\n}\n", "oct_make"},
    };
    check_faults("unique_names", faults, OCT_COUNT(faults));
}

Test(unique_names, minds_no_declarations, .timeout = 60)
{
    static const fault good[] = {
        {"core/base/x.h", "struct oct_x {\n    int a;\n};\nint oct_f(void);\n", ""},
        {"core/base/y.h", "typedef struct oct_x oct_x;\n/* struct oct_x { */\n", ""},
        {"core/base/x.c", "int oct_f(void)\n{\n    return sizeof(struct oct_x);\n}\n", ""},
        {"core/base/y.c", "static int f(void)\n{\n    if (oct_f())\n    {\n    }\n}\n", ""},
    };
    check_good("unique_names", good, OCT_COUNT(good));
}

Test(requirements_table, names_rows_without_a_test_that_exists, .timeout = 60)
{
#define ROW(...)                                                                                   \
    "tests/requirements/README.md",                                                                \
        "# table\n\n| n | sentence | test |\n|---|---|---|\n" __VA_ARGS__
    static const fault faults[] = {
        {ROW("| 000.1 | a | |\n"), "000.1: names no test"},
        {ROW("| 000.2 | a | `requirements/test_x.c:runs` |\n"), "requirements/test_x.c:runs"},
        {ROW("| 000.3 | a | `lint/test_y.c:good` `lint/test_y.c:goo` |\n"),
         "no test lint/test_y.c:goo"},
        {ROW("| 000.4 | a | `lint/test_y.c:good` |\n| 000.4 | b | `lint/test_y.c:good` |\n"),
         "000.4: stands there twice"},
        {ROW("no rows\n"), "has no rows"},
    };
#undef ROW
    check_faults("requirements_table", faults, OCT_COUNT(faults));
}

Test(requirements_table, accepts_tests_that_exist, .timeout = 60)
{
    static const fault good[] = {
        {"tests/lint/test_y.c", "\nTest(y, good, .timeout = 3)\n\nTest(y,\n     longer)\n", ""},
        {"tests/requirements/README.md",
         "| n | [s]; |\n| 000.1 | a; b [c] | `lint/test_y.c:good` |\n"
         "| 000.2 | b | `lint/test_y.c:longer` |\n",
         ""},
    };
    check_good("requirements_table", good, OCT_COUNT(good));
}

Test(format, names_files_that_are_not_formatted, .timeout = 60)
{
    oct_tmp tree;
    oct_tmp_create(&tree);
    oct_tmp_write_text(&tree, ".clang-format", "BasedOnStyle: LLVM\n");
    oct_tmp_write_text(&tree, "core/good.c", "int good(void);\n");
    oct_process job = lint("format", &tree);
    oct_check_exit(job, 0);
    if (!oct_process_said(&job, "SKIPPED")) {
        oct_process_free(&job);
        oct_tmp_write_text(&tree, "core/bad.c", "int   bad( void );\n");
        job = lint("format", &tree);
        cr_assert(job.exit_code != 0, "accepted");
        oct_check_said(job, "core/bad.c");
        cr_assert(!oct_process_said(&job, "core/good.c"), "%s", job.err);
    }
    oct_process_free(&job);
    oct_tmp_remove(&tree);
}

/* A tree of one source, as CMake would have configured it. */
static oct_process tidy(oct_tmp *tree, const char *source)
{
    char command[1000];
    oct_tmp_create(tree);
    oct_tmp_write_text(tree, "core/x.c", source);
    snprintf(command, sizeof(command),
             "cd %s && mkdir -p tests/lint build/ci && cp " OCT_SOURCE_DIR "/.clang-tidy . && "
             "cp " OCT_SOURCE_DIR "/tests/lint/{tidy,analyzer.h} tests/lint && "
             "echo \"[{ \\\"directory\\\": \\\"$PWD\\\", \\\"command\\\": \\\"cc -I" OCT_SOURCE_DIR
             " -I" OCT_SOURCE_DIR "/core/include -I" OCT_BINARY_DIR "/include -c core/x.c\\\",\n"
             "\\\"file\\\": \\\"$PWD/core/x.c\\\" }]\" >build/ci/compile_commands.json && "
             "tests/lint/tidy --quick",
             tree->path);
    return oct_process_run(50, "bash", "-c", command, NULL);
}

Test(tidy, finds_what_a_check_and_the_analyzer_find, .timeout = 120)
{
    static const fault faults[] = {
        {"int f(const char *a, const char *b)\n{\n    return a == b;\n}\n", "",
         "1 files, 0 findings"},
        {"int f(void)\n{\n    int a;\n    return oct_fail_add(OCT_DATA, \"x\") ? 1 : a;\n}\n", "",
         "1 files, 0 findings"}, /* by the hints of analyzer.h */
        {"double f(int a)\n{\n    return a / 2;\n}\n", "", "bugprone-integer-division"},
        {"int f(int a)\n{\n    int *p = 0;\n    if (a) p = &a;\n    return *p;\n}\n", "",
         "clang-analyzer-core.NullDereference"},
    };
    for (size_t i = 0; i < OCT_COUNT(faults); i++) {
        oct_tmp tree;
        oct_process job = tidy(&tree, faults[i].file);
        if (!oct_process_said(&job, "SKIPPED")) {
            oct_check_exit(job, i < 2 ? 0 : 1);
            oct_check_said(job, faults[i].said);
        }
        oct_process_free(&job);
        oct_tmp_remove(&tree);
    }
}

Test(words, names_what_to_write_in_their_place, .timeout = 60)
{
    static const fault faults[] = {
        {"core/op/x.c", "/* Is told the shape. */\n", "\"told\": write reported"},
        {"io/x.c", "int num_joins;\n", "\"joins\": write merges"},
        {"launch/README.md", "Ranks, of which each has a share.\n", "\"of which\": write whose"},
        {"tests/x.py", "# It stands behind the name.\n", "\"behind\": write after"},
    };
    check_faults("words", faults, OCT_COUNT(faults));
}

Test(words, leaves_names_of_libraries_and_files, .timeout = 60)
{
    static const fault good[] = {
        {"core/x.c", "void f(void) { pthread_join(thread, 0); } /* rejoined */\n", ""},
    };
    check_good("words", good, OCT_COUNT(good));
}

/* What tests/lint/structure says of a tree of two files. */
static oct_process structure(const char *a, const char *b)
{
    oct_tmp tree;
    oct_tmp_create(&tree);
    if (a) oct_tmp_write_text(&tree, "core/base/a.c", a);
    if (b) oct_tmp_write_text(&tree, "core/base/b.c", b);
    oct_process job = oct_process_run(30, OCT_SOURCE_DIR "/tests/lint/structure", tree.path, NULL);
    oct_tmp_remove(&tree);
    return job;
}

Test(structure, names_long_files_long_functions_and_rings, .timeout = 60)
{
    char long_file[700] = "", long_function[700] = "void oct_f(void)\n{\n";
    memset(long_file, '\n', 501);
    memset(long_function + strlen(long_function), '\n', 81);
    strcat(long_function, "}\n");
    const struct {
        const char *a, *b, *said;
    } faults[] = {
        {long_file, "", "files of more than 500 lines: 1, at most 0\n    core/base/a.c"},
        {long_function, "",
         "functions of more than 80 lines: 1, at most 0\n    core/base/a.c: oct_f"},
        {"void oct_a(void)\n{\n    oct_b();\n}\n", "void oct_b(void)\n{\n    oct_a();\n}\n",
         "rings of files that call each other: 1, at most 0\n    core/base/a.c - core/base/b.c"},
        {NULL, NULL, "no sources under"},
    };
    for (size_t i = 0; i < OCT_COUNT(faults); i++) {
        oct_process job = structure(faults[i].a, faults[i].b);
        oct_check_exit(job, 1);
        oct_check_said(job, faults[i].said);
        oct_process_free(&job);
    }
}

Test(structure, counts_helpers_and_functions_of_one_file, .timeout = 60)
{
    oct_process job = structure("static void once(void)\n{\n}\n\nstatic void twice(void)\n{\n}\n\n"
                                "void oct_a(void)\n{\n    once();\n    twice();\n    twice();\n}\n",
                                "void oct_b(void)\n{\n    oct_a(); /* oct_a() */\n}\n");
    oct_check_exit(job, 0);
    oct_check_said(job, "static functions that are called once: 1,");
    oct_check_said(job, "functions exported for one other file: 1,");
    oct_process_free(&job);
}

Test(lint, an_empty_tree_is_no_success, .timeout = 60)
{
    static const char *const names[] = {"floor_plan", "banned_calls", "unique_names", "words",
                                        "requirements_table"};
    for (size_t i = 0; i < OCT_COUNT(names); i++) {
        oct_tmp tree;
        oct_tmp_create(&tree);
        oct_process job = lint(names[i], &tree);
        cr_assert(job.exit_code != 0, "%s accepts nothing", names[i]);
        oct_check_said(job, "no sources under");
        oct_process_free(&job);
        oct_tmp_remove(&tree);
    }
}
