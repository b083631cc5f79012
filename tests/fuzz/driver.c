/* Drives a target without libFuzzer: seeds, changed by Philox draws, one after another.
 *
 *   fuzz_NAME [--seconds S] [--runs N] [--seed K]   changed seeds; ends with a count
 *   fuzz_NAME [--seed K] --input I FOLDER           writes input I of seed K to FOLDER
 *   fuzz_NAME --seeds FOLDER                        writes the corpus, for libFuzzer
 *   fuzz_NAME FILE...                               these inputs
 *
 * Inputs run in a child, which makes the seeds itself, since threads do not outlive a fork. Its parent
 * watches: when the child dies, or one input takes longer than HANG_S, it names the input, keeps it as a
 * file and exits with 1.
 */
#include "tests/fuzz/fuzz.h"

#include "core/base/rng.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#pragma weak LLVMFuzzerCustomMutator

enum { SEEDS_MAX = 256, GROWTH = 4096, CHANGES_MAX = 12, HANG_S = 10 };

static struct seed {
    uint8_t *data;
    size_t size;
} seeds[SEEDS_MAX];
static size_t num_seeds, largest;

void fuzz_seed(const void *data, size_t size)
{
    FUZZ_REQUIRE(num_seeds < SEEDS_MAX, "more than %d seeds", SEEDS_MAX);
    struct seed *seed = &seeds[num_seeds++];
    *seed = (struct seed){.data = malloc(size + 1), .size = size};
    FUZZ_REQUIRE(seed->data != NULL, "no memory for a seed");
    memcpy(seed->data, data, size);
    if (size > largest) largest = size;
}

/* Input `index` of a seed of draws; returns its size. The first ones are the corpus as it is. */
static size_t make_input(uint64_t seed, uint64_t index, uint8_t *data)
{
    uint32_t word[4];
    oct_philox(seed, OCT_STREAM_TEST, index, 1, word);
    const struct seed *from = &seeds[index < num_seeds ? index : word[0] % num_seeds];
    size_t size = from->size, max = largest + GROWTH;
    memcpy(data, from->data, size);
    if (index < num_seeds) return size;
    unsigned changes = 1;
    while (changes < CHANGES_MAX && (word[1] >> changes & 1))
        changes++;
    for (unsigned i = 0; i < changes; i++) {
        uint64_t part = (seed << 40) + index * CHANGES_MAX + i;
        size = LLVMFuzzerCustomMutator
                   ? LLVMFuzzerCustomMutator(data, size, max, (unsigned)(part * 2654435761U >> 7))
                   : fuzz_mutate(data, size, max, part);
    }
    return size;
}

typedef struct progress {
    volatile uint64_t index; /* of the input that runs */
    volatile double began;
} progress;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

_Noreturn static void work(progress *p, uint64_t seed, uint64_t runs, double until)
{
    fuzz_seeds();
    uint8_t *data = malloc(largest + GROWTH);
    FUZZ_REQUIRE(data != NULL, "no memory for an input");
    for (uint64_t i = 0; i < runs && now() < until; i++) {
        p->began = now();
        p->index = i;
        size_t size = make_input(seed, i, data);
        LLVMFuzzerTestOneInput(data, size);
    }
    p->index++;
    free(data);
    exit(0);
}

/* Writes an input to a file and prints its name. */
static void keep(const char *where, const char *prefix, uint64_t number, const uint8_t *data,
                 size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s-%s-%llu", where, prefix, fuzz_name,
             (unsigned long long)number);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size)
        fprintf(stderr, "%s: cannot be written: %s\n", path, strerror(errno));
    if (file) fclose(file);
    printf("%s\n", path);
}

static void keep_input(uint64_t seed, uint64_t index, const char *where)
{
    fuzz_seeds();
    uint8_t *data = malloc(largest + GROWTH);
    FUZZ_REQUIRE(data != NULL, "no memory for an input");
    size_t size = make_input(seed, index, data);
    keep(where, "input", index, data, size);
    free(data);
}

/* Waits for the child; 0 when it ended by itself, and well. */
static int watch(pid_t child, const progress *p)
{
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        if (now() - p->began <= HANG_S) continue;
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        printf("%s: input %llu hangs\n", fuzz_name, (unsigned long long)p->index);
        return 1;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
    printf("%s: input %llu ended the process (%s %d)\n", fuzz_name, (unsigned long long)p->index,
           WIFSIGNALED(status) ? "signal" : "exit",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return 1;
}

static int drive(uint64_t seed, uint64_t runs, double seconds)
{
    progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FUZZ_REQUIRE(p != MAP_FAILED, "no shared memory");
    double began = now();
    p->began = began;
    fflush(stdout);
    pid_t child = fork();
    FUZZ_REQUIRE(child >= 0, "no child: %s", strerror(errno));
    if (child == 0) work(p, seed, runs, began + seconds);
    if (watch(child, p) != 0) {
        keep_input(seed, p->index, ".");
        return 1;
    }
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    printf("%s: %llu inputs in %.0f s, seed %llu, no finding, %ld MB\n", fuzz_name,
           (unsigned long long)p->index, now() - began, (unsigned long long)seed,
           used.ru_maxrss / 1024);
    return 0;
}

static void run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    FUZZ_REQUIRE(file != NULL, "%s: %s", path, strerror(errno));
    struct stat info;
    FUZZ_REQUIRE(fstat(fileno(file), &info) == 0, "%s: %s", path, strerror(errno));
    uint8_t *data = malloc((size_t)info.st_size + 1);
    FUZZ_REQUIRE(data != NULL, "no memory for %s", path);
    size_t size = fread(data, 1, (size_t)info.st_size, file);
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
}

int main(int argc, char **argv)
{
    double seconds = 30;
    uint64_t runs = UINT64_MAX, seed = 1, input = UINT64_MAX;
    int next = 1;
    for (; next + 1 < argc && strncmp(argv[next], "--", 2) == 0; next += 2) {
        const char *name = argv[next], *value = argv[next + 1];
        if (strcmp(name, "--seconds") == 0) seconds = strtod(value, NULL);
        if (strcmp(name, "--runs") == 0) runs = strtoull(value, NULL, 10), seconds = 1e9;
        if (strcmp(name, "--seed") == 0) seed = strtoull(value, NULL, 10);
        if (strcmp(name, "--input") == 0) input = strtoull(value, NULL, 10);
        if (strcmp(name, "--seeds") != 0) continue;
        fuzz_seeds();
        for (size_t i = 0; i < num_seeds; i++)
            keep(value, "seed", i, seeds[i].data, seeds[i].size);
        return 0;
    }
    if (next < argc && input == UINT64_MAX) {
        for (; next < argc; next++)
            run_file(argv[next]);
        return 0;
    }
    if (input == UINT64_MAX) return drive(seed, runs, seconds);
    keep_input(seed, input, next < argc ? argv[next] : ".");
    return 0;
}
