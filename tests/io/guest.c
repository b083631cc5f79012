/* A net as a guest of a process that is not Octet's: whether it stays whole where memory runs out, after a fork, and in
 * many threads.
 *
 *     guest alloc COUNT MODEL   the k-th allocation of the whole process fails, k = 1 to COUNT: once, and from there on
 *     guest fork COUNT MODEL    COUNT children of a process that has run the net run it, and one of their own
 *     guest threads COUNT MODEL 8 threads run clones COUNT times, and one net together
 *
 * Each prints a line of counts, and exits with 1 where one is wrong. */
#include <octet/net.h>

#include "core/base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAMPLES = 8, THREADS = 8, SECONDS = 60 };

static const char *model;
static float *inputs;
static uint8_t *pixels, *expected;
static int32_t *classes;
static const float *each_input[8];
static size_t output_bytes;

/* Allocations. Sanitizers have functions of their own for them. */

static atomic_long left; /* until one fails; 0: none does */
static bool onward;

static bool fails(void)
{
    const long before = atomic_load(&left);
    if (before > 1) atomic_fetch_sub(&left, 1);
    if (before == 1 && !onward) atomic_store(&left, 0);
    return before == 1;
}

#if defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *block, size_t size)
{
    return fails() ? NULL : __libc_realloc(block, size);
}
#endif

/* What a program does with a net, up to the first failure: the output goes to `output`. */
static oct_status use_net(oct_net **net, const oct_net_options *options, uint8_t *output)
{
    oct_net *clone = NULL;
    OCT_TRY(oct_net_open(net, model, options));
    OCT_TRY(oct_net_run(*net, SAMPLES, each_input, output));
    OCT_TRY(oct_net_clone(&clone, *net));
    oct_status status = oct_net_run(clone, SAMPLES, each_input, output);
    if (status == OCT_OK && oct_net_pixels(*net) > 0)
        status = oct_net_classify(clone, 1, pixels, NULL, classes, NULL);
    oct_net_close(&clone);
    return status;
}

static bool is_expected(const uint8_t *output)
{
    return memcmp(output, expected, SAMPLES * output_bytes) == 0;
}

/* Whether a net of this process computes what is expected, and leaves nothing. */
static bool computes(const oct_net_options *options)
{
    oct_net *net = NULL;
    uint8_t *output = calloc(SAMPLES, output_bytes);
    const bool right = output && use_net(&net, options, output) == OCT_OK && is_expected(output);
    oct_net_close(&net);
    free(output);
    return right;
}

/* Makes inputs, and by a net of one thread what comes of them. */
static bool prepare(void)
{
    const oct_net_options options = {.max_batch = SAMPLES, .threads = 1};
    oct_net *net = NULL;
    size_t numel = 0;
    if (oct_net_open(&net, model, &options) != OCT_OK) {
        fprintf(stderr, "%s\n", oct_error_message(0));
        return false;
    }
    for (int i = 0; i < oct_net_num_inputs(net); i++)
        numel += (size_t)oct_net_input(net, i)->numel * SAMPLES;
    output_bytes = oct_net_output(net)->bytes;
    inputs = calloc(numel, sizeof *inputs);
    pixels = calloc(1, oct_net_pixels(net) + 1);
    expected = calloc(SAMPLES, output_bytes);
    classes = calloc((size_t)oct_net_num_rows(net), sizeof *classes);
    if (!inputs || !pixels || !expected || !classes) return false;
    for (size_t i = 0; i < numel; i++)
        inputs[i] = (float)(i * 7919 % 101) / 50 - 1;
    numel = 0;
    for (int i = 0; i < oct_net_num_inputs(net); i++) {
        each_input[i] = inputs + numel;
        numel += (size_t)oct_net_input(net, i)->numel * SAMPLES;
    }
    const bool ran = oct_net_run(net, SAMPLES, each_input, expected) == OCT_OK;
    oct_net_close(&net);
    return ran;
}

/* Runs `part` in a child process and gives its exit status, 99 where a signal or the clock has ended it. */
static int in_child(int (*part)(long), long k)
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS);
        _exit(part(k));
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

enum { DONE, REFUSED, WRONG, UNSAID, LEFT_OVER, BROKEN, OUTCOMES };

/* The k-th allocation fails: the net works or says that memory is out, nothing is left of it, and the next one works. */
static int fail_allocation(long k)
{
    const oct_net_options options = {.max_batch = SAMPLES, .threads = 1};
    oct_net *net = NULL;
    uint8_t *output = calloc(SAMPLES, output_bytes);
    const size_t live = oct_mem_live();
    atomic_store(&left, k);
    const oct_status status = use_net(&net, &options, output);
    const bool failed = atomic_load(&left) == (onward ? 1 : 0);
    atomic_store(&left, 0);
    oct_net_close(&net);
    if (status != OCT_OK && status != OCT_RESOURCE) {
        fprintf(stderr, "%ld: status %d: %s\n", k, (int)status, oct_error_message(0));
        return UNSAID;
    }
    if (status == OCT_OK && !is_expected(output)) return WRONG;
    if (status == OCT_RESOURCE && (!failed || !*oct_error_message(0))) return UNSAID;
    if (oct_mem_live() != live) return LEFT_OVER;
    if (!computes(&options)) return BROKEN;
    return status == OCT_OK ? DONE : REFUSED;
}

static bool try_allocations(long count)
{
    bool good = true;
    for (int i = 0; i < 2; i++) {
        long outcomes[OUTCOMES + 1] = {0};
        onward = i == 1;
        for (long k = 1; k <= count; k++) {
            const int outcome = in_child(fail_allocation, k);
            outcomes[outcome < OUTCOMES ? outcome : OUTCOMES]++;
        }
        printf("%s 1 to %ld fails: %ld done, %ld refused, %ld wrong, %ld not said, %ld left over, "
               "%ld broken after, %ld crashed\n",
               onward ? "every allocation from the k-th on," : "the k-th allocation,", count,
               outcomes[DONE], outcomes[REFUSED], outcomes[WRONG], outcomes[UNSAID],
               outcomes[LEFT_OVER], outcomes[BROKEN], outcomes[OUTCOMES]);
        good &= outcomes[DONE] + outcomes[REFUSED] == count;
    }
    return good;
}

static oct_net *of_parent;

static int run_after_fork(long k)
{
    const oct_net_options options = {.max_batch = SAMPLES, .threads = 4};
    uint8_t *output = calloc(SAMPLES, output_bytes);
    (void)k;
    if (oct_net_run(of_parent, SAMPLES, each_input, output) != OCT_OK || !is_expected(output))
        return 1;
    return computes(&options) ? 0 : 2;
}

static bool try_forks(long count)
{
    const oct_net_options options = {.max_batch = SAMPLES, .threads = 4};
    uint8_t *output = calloc(SAMPLES, output_bytes);
    long right = 0;
    if (oct_net_open(&of_parent, model, &options) != OCT_OK) return false;
    for (long k = 1; k <= count; k++) {
        const bool parent =
            oct_net_run(of_parent, SAMPLES, each_input, output) == OCT_OK && is_expected(output);
        right += parent && in_child(run_after_fork, k) == 0;
    }
    oct_net_close(&of_parent);
    free(output);
    printf("%ld of %ld children right, and their parent before each\n", right, count);
    return right == count;
}

typedef struct work {
    oct_net *shared;
    long count, right, busy, wrong;
} work;

/* A thread's clone, then the net that all threads have: busy or right, never another result. */
static void *run_in_thread(void *argument)
{
    work *w = argument;
    oct_net *own = NULL;
    uint8_t *output = calloc(SAMPLES, output_bytes);
    if (oct_net_clone(&own, w->shared) != OCT_OK) return NULL;
    for (long k = 0; k < 2 * w->count; k++) {
        oct_net *net = k % 2 ? w->shared : own;
        memset(output, 0, SAMPLES * output_bytes);
        const oct_status status = oct_net_run(net, SAMPLES, each_input, output);
        if (status == OCT_OK && is_expected(output))
            w->right++;
        else if (status == OCT_USAGE && net == w->shared)
            w->busy++;
        else
            w->wrong++;
    }
    oct_net_close(&own);
    free(output);
    return NULL;
}

static bool try_threads(long count)
{
    const oct_net_options options = {.max_batch = SAMPLES, .threads = 1};
    pthread_t thread[THREADS];
    work all = {0}, each[THREADS];
    if (oct_net_open(&all.shared, model, &options) != OCT_OK) return false;
    for (int t = 0; t < THREADS; t++) {
        each[t] = (work){.shared = all.shared, .count = count};
        if (pthread_create(&thread[t], NULL, run_in_thread, &each[t]) != 0) return false;
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(thread[t], NULL);
        all.right += each[t].right;
        all.busy += each[t].busy;
        all.wrong += each[t].wrong;
    }
    oct_net_close(&all.shared);
    printf("%d threads: %ld runs right, %ld refused since another thread was at work, %ld wrong\n",
           THREADS, all.right, all.busy, all.wrong);
    return all.wrong == 0 && all.right + all.busy == 2L * THREADS * count;
}

int main(int argc, char **argv)
{
    const char *part = argc > 3 ? argv[1] : "";
    const long count = argc > 3 ? strtol(argv[2], NULL, 10) : 0;
    model = argc > 3 ? argv[3] : NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count < 1 || !prepare()) return 2;
    if (strcmp(part, "alloc") == 0) return try_allocations(count) ? 0 : 1;
    if (strcmp(part, "fork") == 0) return try_forks(count) ? 0 : 1;
    if (strcmp(part, "threads") == 0) return try_threads(count) ? 0 : 1;
    return 2;
}
