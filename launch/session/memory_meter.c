/* Linux reports a process's resident bytes and their peak in /proc/self/status. (The peak of getrusage
 * begins with that of the program which started this one.) */
#include "launch/session/memory_meter.h"

#include "core/base/mem.h"
#include "core/base/int_math.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A line such as "VmHWM:     1234 kB", in bytes; 0 when it cannot be read. */
static int64_t status_bytes(const char *name)
{
    char line[256];
    int64_t kilobytes = 0;
    size_t length = strlen(name);
    FILE *file = fopen("/proc/self/status", "r");
    if (!file) return 0;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, length) == 0) sscanf(line + length, "%" SCNd64, &kilobytes);
    fclose(file);
    return kilobytes * 1024;
}

oct_memory_meter oct_memory_meter_begin(void)
{
    oct_mem_peak_reset();
    return (oct_memory_meter){
        .live = (int64_t)oct_mem_live(),
        .resident = status_bytes("VmRSS:"),
    };
}

int64_t oct_memory_resident(void)
{
    return status_bytes("VmRSS:");
}

int64_t oct_memory_virtual(void)
{
    return status_bytes("VmSize:");
}

int64_t oct_memory_resident_peak(void)
{
    return status_bytes("VmHWM:");
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
        .resident = status_bytes("VmHWM:") - memory_meter->resident,
    };
    peak.larger = oct_max_i64(peak.allocated, peak.resident);
    return peak;
}
