/* Linux tells this by /proc/meminfo, control groups (version 2 and 1), resource limits and file
 * systems. */
#include "launch/base/machine.h"

#include "core/base/int_math.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

enum { LONGEST_PATH = 4096 };

/* Reads the number behind `name` at the start of a line (NULL: in the first line), or -1. */
static int64_t number_in(const char *path, const char *name)
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

static int64_t lesser(int64_t a, int64_t b)
{
    return a < 0 ? b : b < 0 ? a : oct_min_i64(a, b);
}

/* Says what a control group leaves: pages of files that it holds can be taken from it. */
static int64_t left_in_group(const char *limit, const char *usage, const char *stat,
                             const char *cache)
{
    const int64_t most = number_in(limit, NULL), used = number_in(usage, NULL);
    const int64_t files = number_in(stat, cache);
    if (most < 0 || used < 0) return -1;
    return oct_max_i64(0, most - used + oct_max_i64(0, files));
}

static int64_t left_of_limit(int resource, const char *used)
{
    struct rlimit limit;
    const int64_t kilobytes = number_in("/proc/self/status", used);
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur > INT64_MAX || kilobytes < 0)
        return -1;
    return oct_max_i64(0, (int64_t)limit.rlim_cur - kilobytes * 1024);
}

int64_t oct_machine_memory(void)
{
    int64_t left = number_in("/proc/meminfo", "MemAvailable:");
    if (left >= 0) left *= 1024;
    left = lesser(left, left_in_group("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
                                      "/sys/fs/cgroup/memory.stat", "file "));
    left = lesser(left, left_in_group("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                      "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                                      "/sys/fs/cgroup/memory/memory.stat", "cache "));
    left = lesser(left, left_of_limit(RLIMIT_AS, "VmSize:"));
    return lesser(left, left_of_limit(RLIMIT_DATA, "VmData:"));
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
    return (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
}
