/* Event files are what TensorBoard reads: messages `Event` of TensorFlow in protocol buffers, each in a frame with its
 * length and two checksums (TFRecord).
 */
#pragma once

#include "core/base/status.h"

#include <event.pb-c.h>

typedef struct oct_event_file {
    int fd;         /* -1: not open */
    int64_t length; /* of its whole events, bytes */
    char *path;
    bool lost; /* something could not be written: said once */
} oct_event_file;

/* Creates events.out.tfevents.TIME.HOST.PID in the folder, whose name comes after those of the event files
 * that are there, and says in it that steps from `step` on begin anew: readers drop what earlier files have
 * of them. */
oct_status oct_event_file_create(oct_event_file *file, const char *folder, int64_t step);
/* Adds a summary of this step. A disk or memory that is full costs the event and a warning. */
void oct_event_file_add(oct_event_file *file, int64_t step, OctEvent__Summary *summary);
/* Says once that something could not be written. */
void oct_event_file_warn(oct_event_file *file, const char *reason);
void oct_event_file_close(oct_event_file *file);
/* Is this the bare name of an event file? */
bool oct_event_file_named(const char *name);
