/* What the tests of kernels use of Criterion, for programs that a cross compiler builds without it
 * (tests/quant/arm_kernels.sh). A program has one test file; each test runs in a process of its own. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct alone_test {
    const char *suite, *name;
    void (*run)(void);
    struct alone_test *next;
} alone_test;

static alone_test *alone_tests;

#define Test(suite_, name_, ...)                                                                   \
    static void suite_##_##name_(void);                                                            \
    __attribute__((constructor)) static void suite_##_##name_##_add(void)                          \
    {                                                                                              \
        static alone_test test = {#suite_, #name_, suite_##_##name_, NULL};                        \
        test.next = alone_tests;                                                                   \
        alone_tests = &test;                                                                       \
    }                                                                                              \
    static void suite_##_##name_(void)

/* The condition as text, and a format with arguments or nothing. */
#define cr_assert(condition, ...)                                                                  \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: %s:", __FILE__, __LINE__, #condition);                                  \
            printf(" " __VA_ARGS__);                                                               \
            printf("\n");                                                                          \
            fflush(stdout);                                                                        \
            _exit(EXIT_FAILURE);                                                                   \
        }                                                                                          \
    } while (0)
#define cr_assert_not(condition, ...) cr_assert(!(condition), __VA_ARGS__)
#define cr_assert_eq(a, b, ...) cr_assert((a) == (b), __VA_ARGS__)
#define cr_assert_neq(a, b, ...) cr_assert((a) != (b), __VA_ARGS__)
#define cr_assert_leq(a, b, ...) cr_assert((a) <= (b), __VA_ARGS__)
#define cr_assert_geq(a, b, ...) cr_assert((a) >= (b), __VA_ARGS__)
#define cr_assert_gt(a, b, ...) cr_assert((a) > (b), __VA_ARGS__)
#define cr_assert_lt(a, b, ...) cr_assert((a) < (b), __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) cr_assert(strcmp(a, b) == 0, __VA_ARGS__)
#define cr_assert_arr_eq(a, b, size, ...) cr_assert(memcmp(a, b, size) == 0, __VA_ARGS__)

/* Runs all tests, or those of the suite that is named first. */
int main(int argc, char **argv)
{
    int run = 0, failed = 0;
    for (const alone_test *test = alone_tests; test; test = test->next) {
        if (argc > 1 && strcmp(argv[1], test->suite) != 0) continue;
        fflush(stdout);
        const pid_t child = fork();
        int status = 1;
        if (child == 0) {
            test->run();
            _exit(EXIT_SUCCESS);
        }
        if (child > 0) waitpid(child, &status, 0);
        if (status != 0) printf("FAILED: %s, %s\n", test->suite, test->name);
        run++;
        failed += status != 0;
    }
    printf("%d tests, %d failed\n", run, failed);
    return run == 0 || failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
