/* Event files are written one whole frame at a time, so a run that is killed leaves whole events after. */
#include "io/tensorboard/event_file.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/tensorboard/event.h"
#include "io/file/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char prefix[] = "events.out.tfevents.";
enum { SESSION_START = 1, HEAD = 12, TAIL = 4, HOST_MAX = 64 };

/* CRC-32C (RFC 3720, B.4), masked as TFRecord wants it. */
static uint32_t masked_crc(const uint8_t *bytes, size_t count)
{
    uint32_t crc = 0xFFFFFFFFU;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78U : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

static void put_little(uint8_t *bytes, uint64_t value, int count)
{
    for (int i = 0; i < count; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
}

static void lose(oct_event_file *file, const char *reason)
{
    if (!file->lost)
        oct_log(OCT_LOG_WARN, "%s: %s; events are lost, but the run continues", file->path, reason);
    file->lost = true;
}

/* Frees the event. */
static void write_event(oct_event_file *file, oct_proto *event)
{
    uint8_t *frame = NULL;
    size_t size = HEAD + event->length + TAIL;
    if (file->fd < 0) {
        oct_proto_free(event);
        return;
    }
    if (event->failed || oct_alloc(&frame, size, 1) != OCT_OK) {
        oct_fail_clear();
        lose(file, "out of memory");
    } else {
        put_little(frame, event->length, 8);
        put_little(frame + 8, masked_crc(frame, 8), 4);
        memcpy(frame + HEAD, event->data, event->length);
        put_little(frame + HEAD + event->length, masked_crc(event->data, event->length), 4);
        if (!oct_file_append(&file->fd, &file->length, frame, size)) lose(file, strerror(errno));
    }
    oct_free(&frame);
    oct_proto_free(event);
}

static oct_proto begin_event(int64_t step)
{
    struct timespec now;
    oct_proto event = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    oct_proto_double(&event, OCT_EVENT_WALL_TIME, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    oct_proto_integer(&event, OCT_EVENT_STEP, step);
    return event;
}

void oct_event_file_add(oct_event_file *file, int64_t step, oct_proto *summary)
{
    oct_proto event = begin_event(step);
    oct_proto_message(&event, OCT_EVENT_SUMMARY, summary);
    write_event(file, &event);
}

bool oct_event_file_named(const char *name)
{
    return strncmp(name, prefix, sizeof(prefix) - 1) == 0;
}

/* The time in the name of a file: of now, or after those that are there. Readers sort by the names. */
static oct_status next_time(const char *path, int64_t *next)
{
    *next = (int64_t)time(NULL);
    DIR *folder = opendir(path);
    OCT_CHECK(folder, OCT_RESOURCE, "%s: %s", path, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int64_t there = 0;
        const char *digit = entry->d_name + sizeof(prefix) - 1;
        if (!oct_event_file_named(entry->d_name)) continue;
        for (int i = 0; i < 10 && *digit >= '0' && *digit <= '9'; i++)
            there = 10 * there + (*digit++ - '0');
        if (there >= *next) *next = there + 1;
    }
    closedir(folder);
    return OCT_OK;
}

oct_status oct_event_file_create(oct_event_file *file, const char *folder, int64_t step)
{
    int64_t seconds;
    char host[HOST_MAX] = "host";
    *file = (oct_event_file){.fd = -1};
    OCT_TRY(next_time(folder, &seconds));
    gethostname(host, sizeof(host) - 1);
    OCT_TRY(oct_format(&file->path, "%s/%s%010lld.%s.%lld", folder, prefix, (long long)seconds,
                       host, (long long)getpid()));
    file->fd =
        open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    OCT_CHECK(file->fd >= 0, OCT_RESOURCE, "%s: %s", file->path, strerror(errno));

    oct_proto event = begin_event(0), log = {0};
    oct_proto_text(&event, OCT_EVENT_FILE_VERSION, "brain.Event:2");
    write_event(file, &event);
    event = begin_event(step);
    oct_proto_integer(&log, OCT_SESSION_LOG_STATUS, SESSION_START);
    oct_proto_message(&event, OCT_EVENT_SESSION_LOG, &log);
    write_event(file, &event);
    return OCT_OK;
}

void oct_event_file_close(oct_event_file *file)
{
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
    oct_free(&file->path);
}
