/* Host, environment and processes, as the system knows them. */
#include "dist/process.h"

#include "core/base/text.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void oct_host_name(char host[OCT_HOST_BYTES])
{
    host[OCT_HOST_BYTES - 1] = '\0';
    if (gethostname(host, OCT_HOST_BYTES - 1) != 0) snprintf(host, OCT_HOST_BYTES, "unknown host");
}

bool oct_env_count(const char *name, int *count)
{
    const char *text = getenv(name);
    int64_t number;
    if (!text || !oct_parse_i64(text, &number) || number < 0 || number >= 1 << 20) return false;
    *count = (int)number;
    return true;
}

ssize_t oct_process_read(int pid, const char *file, char *text, size_t size)
{
    char path[64];
    size_t used = 0;
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    for (ssize_t got; used < size - 1 && (got = read(fd, text + used, size - 1 - used)) > 0;)
        used += (size_t)got;
    close(fd);
    text[used] = '\0';
    return (ssize_t)used;
}

char oct_process_state(int pid)
{
    char text[512];
    const ssize_t length = oct_process_read(pid, "stat", text, sizeof(text));
    if (length < 0) return kill(pid, 0) == 0 ? 'R' : 0; /* no /proc here */
    if (length == 0) return 0;
    const char *after = strrchr(text, ')'); /* of the name, which may hold anything */
    return after && after[1] == ' ' ? after[2] : 'R';
}
