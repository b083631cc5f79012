/* Linux reports this in /proc/meminfo, /proc/self/status, control groups (version 2 and 1), resource limits and file
 * systems. (The peak of getrusage begins with that of the program which started this one.) */
#include "launch/base/machine.h"

#include "core/base/int_math.h"
#include "core/base/mem.h"
#include "core/base/status.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

enum { LONGEST_PATH = 4096 };

/* Reads the number after `name` at the start of a line (NULL: in the first line), or -1. */
static int64_t read_number(const char *path, const char *name)
{
    char line[256];
    int64_t value, found = -1;
    const size_t length = name ? strlen(name) : 0;
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    while (found < 0 && fgets(line, sizeof line, file))
        if ((!name || strncmp(line, name, length) == 0) &&
            sscanf(line + length, "%" SCNd64, &value) == 1 && value >= 0)
            found = value;
    fclose(file);
    return found;
}

/* The lesser of two limits, where a negative one is none. */
static int64_t lesser_limit(int64_t a, int64_t b)
{
    return a < 0 ? b : b < 0 ? a : oct_min_i64(a, b);
}

/* Reads a number of the control group in `folder` as read_number does. */
static int64_t read_of_group(const char *folder, const char *file, const char *name)
{
    char path[3 * LONGEST_PATH];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return read_number(path, name);
}

/* Calls `look` with the folder of each control group of this process that limits `what` ("cpu", "memory"), from its own
 * one up to the root; what a container does not show is passed over. */
static void look_at_groups(const char *what, void (*look)(const char *folder, void *result),
                           void *result)
{
    char line[LONGEST_PATH], folder[2 * LONGEST_PATH];
    FILE *groups = fopen("/proc/self/cgroup", "r");
    while (groups && fgets(line, sizeof line, groups)) { /* "4:cpu,cpuacct:/path", "0::/path" */
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (names[1] && !strstr(names, what)) continue; /* of version 1, and not of `what` */
        for (char *end = path + strlen(path); end; end = strrchr(path, '/')) {
            *end = '\0';
            snprintf(folder, sizeof folder, "/sys/fs/cgroup/%s%s", names[1] ? what : "", path);
            look(folder, result);
        }
    }
    if (groups) fclose(groups);
}

/* Lowers *bytes (int64_t, -1: no limit) to what a control group may still take: its limit - usage + its pages of files,
 * which can be dropped, unlike those of shared memory that count among them. */
static void look_at_memory(const char *folder, void *bytes)
{
    const bool version2 = read_of_group(folder, "memory.current", NULL) >= 0;
    const int64_t most =
        read_of_group(folder, version2 ? "memory.max" : "memory.limit_in_bytes", NULL);
    const int64_t used =
        read_of_group(folder, version2 ? "memory.current" : "memory.usage_in_bytes", NULL);
    const int64_t files = read_of_group(folder, "memory.stat", version2 ? "file " : "cache ");
    const int64_t shared = read_of_group(folder, "memory.stat", "shmem ");
    if (most < 0 || used < 0) return;
    const int64_t dropped = oct_max_i64(0, files - oct_max_i64(0, shared));
    *(int64_t *)bytes = lesser_limit(*(int64_t *)bytes, oct_max_i64(0, most - used + dropped));
}

/* Returns the bytes that this process may still take of a resource; -1: there is no limit, or it is unknown. used: the key
 * of its use in /proc/self/status, such as "VmSize:". */
static int64_t bytes_left_of_limit(int resource, const char *used)
{
    struct rlimit limit;
    const int64_t kilobytes = read_number("/proc/self/status", used);
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur > INT64_MAX || kilobytes < 0)
        return -1;
    return oct_max_i64(0, (int64_t)limit.rlim_cur - kilobytes * 1024);
}

int64_t oct_machine_memory(void)
{
    int64_t left = read_number("/proc/meminfo", "MemAvailable:");
    if (left >= 0) left *= 1024;
    look_at_groups("memory", look_at_memory, &left);
    left = lesser_limit(left, bytes_left_of_limit(RLIMIT_AS, "VmSize:"));
    return lesser_limit(left, bytes_left_of_limit(RLIMIT_DATA, "VmData:"));
}

int64_t oct_machine_disk(const char *folder)
{
    char path[LONGEST_PATH];
    struct statvfs fs;
    if ((size_t)snprintf(path, sizeof path, "%s", folder) >= sizeof path) return -1;
    while (statvfs(path, &fs) != 0) {
        char *slash = strrchr(path, '/');
        if (strcmp(path, ".") == 0 || strcmp(path, "/") == 0) return -1;
        if (!slash)
            snprintf(path, sizeof path, ".");
        else
            slash[slash == path] = '\0';
    }
    return fs.f_blocks == 0 ? -1 : (int64_t)fs.f_bavail * (int64_t)fs.f_frsize; /* 0 in /proc */
}

/* The cores that this process was started on. The OpenMP runtime may have bound it to one place of those that it
 * found. */
static cpu_set_t cores_at_start(void)
{
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof(cores), &cores) != 0) CPU_ZERO(&cores);
    for (int place = 0; place < omp_get_num_places(); place++) {
        int id[CPU_SETSIZE];
        const int count = omp_get_place_num_procs(place);
        if (count <= CPU_SETSIZE) omp_get_place_proc_ids(place, id);
        for (int i = 0; i < count && count <= CPU_SETSIZE; i++)
            CPU_SET((size_t)id[i], &cores);
    }
    return cores;
}

/* Lowers *cores (double) to the CPU quota of a control group. */
static void look_at_quota(const char *folder, void *cores)
{
    char path[3 * LONGEST_PATH];
    double quota = -1, period = -1;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    FILE *both = fopen(path, "r");
    if (both) {
        if (fscanf(both, "%lf %lf", &quota, &period) != 2) quota = -1;
        fclose(both);
    } else {
        quota = (double)read_of_group(folder, "cpu.cfs_quota_us", NULL);
        period = (double)read_of_group(folder, "cpu.cfs_period_us", NULL);
    }
    if (quota > 0 && period > 0) *(double *)cores = fmin(*(double *)cores, quota / period);
}

int64_t oct_machine_cores(void)
{
    const cpu_set_t set = cores_at_start();
    double cores = fmax(CPU_COUNT(&set), 1);
    look_at_groups("cpu", look_at_quota, &cores);
    return (int64_t)ceil(cores);
}

void oct_machine_unbind(void)
{
    static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"};
    const cpu_set_t set = cores_at_start();
    for (size_t i = 0; i < OCT_COUNT(names); i++) {
        if (getenv(names[i])) sched_setaffinity(0, sizeof(set), &set);
        unsetenv(names[i]);
    }
}

/* A figure of this process, such as "VmHWM:     1234 kB", in bytes; 0 when it cannot be read. */
static int64_t read_own_bytes(const char *name)
{
    return oct_max_i64(read_number("/proc/self/status", name), 0) * 1024;
}

int64_t oct_memory_resident(void)
{
    return read_own_bytes("VmRSS:");
}

int64_t oct_memory_virtual(void)
{
    return read_own_bytes("VmSize:");
}

int64_t oct_memory_resident_peak(void)
{
    return read_own_bytes("VmHWM:");
}

oct_memory_meter oct_memory_meter_begin(void)
{
    oct_mem_peak_reset();
    return (oct_memory_meter){.live = (int64_t)oct_mem_live(), .resident = oct_memory_resident()};
}

void oct_memory_reset_peak(void)
{
    oct_mem_peak_reset();
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file) return;
    fputc('5', file); /* to the kernel this says: the peak is what is resident now */
    fclose(file);
}

oct_memory_growth oct_memory_meter_read(const oct_memory_meter *memory_meter)
{
    oct_memory_growth peak = {
        .allocated = (int64_t)oct_mem_peak() - memory_meter->live,
        .resident = oct_memory_resident_peak() - memory_meter->resident,
    };
    peak.larger = oct_max_i64(peak.allocated, peak.resident);
    return peak;
}
