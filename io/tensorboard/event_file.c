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

/* Protocol buffers on the wire: a key (field number and kind), then a number of 7 bits a byte, 4 or 8 bytes,
 * or a length and its bytes. */
enum { KIND_VARINT = 0, KIND_64 = 1, KIND_BYTES = 2, KIND_32 = 5, KIND_BITS = 3, VARINT_MAX = 10 };

/* Appends bytes to a message; without memory for them the message is marked as failed. */
static void append(oct_proto *m, const void *bytes, size_t count)
{
    if (!m->failed && oct_grow(&m->data, &m->capacity, m->length + count, 1) != OCT_OK) {
        oct_fail_clear();
        m->failed = true;
    }
    if (m->failed || count == 0) return;
    memcpy(m->data + m->length, bytes, count);
    m->length += count;
}

/* Appends a number with 7 bits in each byte, low ones first; the top bit of a byte says that more follow. */
static void append_varint(oct_proto *m, uint64_t value)
{
    uint8_t bytes[VARINT_MAX];
    size_t count = 0;
    do {
        bytes[count] = (uint8_t)(value & 0x7F);
        value >>= 7;
        if (value) bytes[count] |= 0x80;
        count++;
    } while (value);
    append(m, bytes, count);
}

static void append_key(oct_proto *m, int field, int kind)
{
    append_varint(m, (uint64_t)field << KIND_BITS | (uint64_t)kind);
}

/* Appends a number of `bytes` bytes, little-endian. */
static void append_little(oct_proto *m, uint64_t bits, int bytes)
{
    uint8_t little[8];
    for (int i = 0; i < bytes; i++)
        little[i] = (uint8_t)(bits >> 8 * i);
    append(m, little, (size_t)bytes);
}

static void append_double(oct_proto *m, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    append_little(m, bits, 8);
}

void oct_proto_integer(oct_proto *message, int field, int64_t value)
{
    append_key(message, field, KIND_VARINT);
    append_varint(message, (uint64_t)value);
}

void oct_proto_float(oct_proto *message, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    append_key(message, field, KIND_32);
    append_little(message, bits, 4);
}

void oct_proto_double(oct_proto *message, int field, double value)
{
    append_key(message, field, KIND_64);
    append_double(message, value);
}

void oct_proto_doubles(oct_proto *message, int field, const double *values, size_t count)
{
    append_key(message, field, KIND_BYTES);
    append_varint(message, (uint64_t)count * 8);
    for (size_t i = 0; i < count; i++)
        append_double(message, values[i]);
}

void oct_proto_bytes(oct_proto *message, int field, const void *bytes, size_t count)
{
    append_key(message, field, KIND_BYTES);
    append_varint(message, count);
    append(message, bytes, count);
}

void oct_proto_text(oct_proto *message, int field, const char *text)
{
    oct_proto_bytes(message, field, text, strlen(text));
}

void oct_proto_message(oct_proto *message, int field, oct_proto *inner)
{
    oct_proto_bytes(message, field, inner->data, inner->length);
    message->failed |= inner->failed;
    oct_proto_free(inner);
}

void oct_proto_free(oct_proto *message)
{
    oct_free(&message->data);
    *message = (oct_proto){0};
}

static const char prefix[] = "events.out.tfevents.";
enum { SESSION_START = 1, LENGTH = 8, CHECKSUM = 4, HOST_MAX = 64 };

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

/* Says once that something could not be written. */
static void warn_of_loss(oct_event_file *file, const char *reason)
{
    if (!file->lost)
        oct_log(OCT_LOG_WARN, "%s: %s; events are lost, but the run continues", file->path, reason);
    file->lost = true;
}

/* Appends an event as a TFRecord: length, checksum of the length, message, checksum of the message. Frees the event. */
static void write_event(oct_event_file *file, oct_proto *event)
{
    oct_proto frame = {.failed = event->failed};
    append_little(&frame, event->length, LENGTH);
    if (!frame.failed) append_little(&frame, masked_crc(frame.data, LENGTH), CHECKSUM);
    append(&frame, event->data, event->length);
    append_little(&frame, masked_crc(event->data, event->length), CHECKSUM);
    if (file->fd >= 0 && frame.failed)
        warn_of_loss(file, "out of memory");
    else if (file->fd >= 0 && !oct_file_append(&file->fd, &file->length, frame.data, frame.length))
        warn_of_loss(file, strerror(errno));
    oct_proto_free(&frame);
    oct_proto_free(event);
}

/* A message with the time and a step. */
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
