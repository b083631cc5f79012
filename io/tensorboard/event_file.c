/* Event files are written one whole frame at a time, so a run that is killed leaves whole events after. */
#include "io/tensorboard/event_file.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/file/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char prefix[] = "events.out.tfevents.";
enum { LENGTH = 8, CHECKSUM = 4, HOST_MAX = 64 };

/* Puts the CRC-32C (RFC 3720, B.4) of some bytes after them, masked as TFRecord wants it. */
static void put_checksum(uint8_t *bytes, size_t count)
{
    uint32_t crc = 0xFFFFFFFFU;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78U : 0);
    }
    crc = ~crc;
    crc = (crc >> 15 | crc << 17) + 0xA282EAD8U;
    memcpy(bytes + count, &crc, CHECKSUM);
}

void oct_event_file_warn(oct_event_file *file, const char *reason)
{
    if (!file->lost)
        oct_log(OCT_LOG_WARN, "%s: %s; events are lost, but the run continues", file->path, reason);
    file->lost = true;
}

/* Appends an event, with the time, as a TFRecord: length, checksum of the length, message, checksum of the message. */
static void write_event(oct_event_file *file, OctEvent__Event *event)
{
    struct timespec now;
    OCT_OWNED(oct_free) uint8_t *frame = NULL;
    if (file->fd < 0) return;
    clock_gettime(CLOCK_REALTIME, &now);
    event->wall_time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    const uint64_t length = oct_event__event__get_packed_size(event);
    if (oct_alloc(&frame, LENGTH + CHECKSUM + length + CHECKSUM, 1) != OCT_OK) {
        oct_fail_clear();
        oct_event_file_warn(file, "out of memory");
        return;
    }
    uint8_t *message = frame + LENGTH + CHECKSUM;
    memcpy(frame, &length,
           LENGTH); /* little-endian, as on every machine that there is a port for */
    put_checksum(frame, LENGTH);
    oct_event__event__pack(event, message);
    put_checksum(message, length);
    if (!oct_file_append(&file->fd, &file->length, frame, LENGTH + CHECKSUM + length + CHECKSUM))
        oct_event_file_warn(file, strerror(errno));
}

void oct_event_file_add(oct_event_file *file, int64_t step, OctEvent__Summary *summary)
{
    OctEvent__Event event = OCT_EVENT__EVENT__INIT;
    event.step = step;
    event.summary = summary;
    write_event(file, &event);
}

bool oct_event_file_named(const char *name)
{
    return strncmp(name, prefix, sizeof(prefix) - 1) == 0;
}

/* Finds the time for the name of a file: now, or after those of the files that are there. Readers sort by the names. */
static oct_status find_next_time(const char *path, int64_t *next)
{
    *next = (int64_t)time(NULL);
    DIR *folder = opendir(path);
    OCT_CHECK(folder, OCT_RESOURCE, "%s: %s", path, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int64_t used = 0;
        const char *digit = entry->d_name + sizeof(prefix) - 1;
        if (!oct_event_file_named(entry->d_name)) continue;
        for (int i = 0; i < 10 && *digit >= '0' && *digit <= '9'; i++)
            used = 10 * used + (*digit++ - '0');
        if (used >= *next) *next = used + 1;
    }
    closedir(folder);
    return OCT_OK;
}

oct_status oct_event_file_create(oct_event_file *file, const char *folder, int64_t step)
{
    int64_t seconds;
    char host[HOST_MAX] = "host";
    *file = (oct_event_file){.fd = -1};
    OCT_TRY(find_next_time(folder, &seconds));
    gethostname(host, sizeof(host) - 1);
    OCT_TRY(oct_format(&file->path, "%s/%s%010lld.%s.%lld", folder, prefix, (long long)seconds,
                       host, (long long)getpid()));
    file->fd =
        open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    OCT_CHECK(file->fd >= 0, OCT_RESOURCE, "%s: %s", file->path, strerror(errno));
    OctEvent__Event version = OCT_EVENT__EVENT__INIT, start = OCT_EVENT__EVENT__INIT;
    OctEvent__SessionLog log = OCT_EVENT__SESSION_LOG__INIT;
    char version_text[] = "brain.Event:2";
    version.file_version = version_text;
    write_event(file, &version);
    log.status = OCT_EVENT__SESSION_LOG__SESSION_STATUS__START;
    start.step = step;
    start.session_log = &log;
    write_event(file, &start);
    return OCT_OK;
}

void oct_event_file_close(oct_event_file *file)
{
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
    oct_free(&file->path);
}
