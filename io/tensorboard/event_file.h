/* Event files are what TensorBoard reads: messages `Event` of TensorFlow in protocol buffers, each in a frame with its
 * length and two checksums (TFRecord).
 */
#pragma once

#include "core/base/status.h"

#include <stdint.h>

/* A message of protocol buffers is written field by field, a message inside another on its own first.
 *
 * An encoder of one's own, because three kinds of fields are all that event files need: protobuf-c would
 * bring two packages, a compiler at build time and generated code for the same bytes.
 * A failure (no memory) is kept in the message; what is added after it has no effect. */
typedef struct oct_proto {
    uint8_t *data; /* owned */
    size_t length, capacity;
    bool failed;
} oct_proto;

void oct_proto_integer(oct_proto *message, int field, int64_t value); /* also bool and enum */
void oct_proto_float(oct_proto *message, int field, float value);
void oct_proto_double(oct_proto *message, int field, double value);
/* Adds a packed field: the length of all values in bytes, then one after another. */
void oct_proto_doubles(oct_proto *message, int field, const double *values, size_t count);
void oct_proto_bytes(oct_proto *message, int field, const void *bytes, size_t count);
void oct_proto_text(oct_proto *message, int field, const char *text);
/* Adds a message and frees it. */
void oct_proto_message(oct_proto *message, int field, oct_proto *inner);
void oct_proto_free(oct_proto *message);

/* The fields of TensorFlow's messages that Octet writes, by their numbers (event.proto,
 * summary.proto, histogram.proto; plugin_data.proto of the plug-in hparams). */
enum {
    OCT_EVENT_WALL_TIME = 1, /* Event */
    OCT_EVENT_STEP = 2,
    OCT_EVENT_FILE_VERSION = 3,
    OCT_EVENT_SUMMARY = 5,
    OCT_EVENT_SESSION_LOG = 7,
    OCT_SESSION_LOG_STATUS = 1, /* SessionLog: 1 is START */
    OCT_SUMMARY_VALUE = 1,      /* Summary */
    OCT_VALUE_TAG = 1,          /* Summary.Value */
    OCT_VALUE_SIMPLE = 2,
    OCT_VALUE_IMAGE = 4,
    OCT_VALUE_HISTOGRAM = 5,
    OCT_VALUE_METADATA = 9,
    OCT_IMAGE_HEIGHT = 1, /* Summary.Image */
    OCT_IMAGE_WIDTH = 2,
    OCT_IMAGE_COLORSPACE = 3, /* 1: grey, 3: RGB, as many as channels */
    OCT_IMAGE_PNG = 4,
    OCT_HISTOGRAM_MIN = 1, /* HistogramProto */
    OCT_HISTOGRAM_MAX = 2,
    OCT_HISTOGRAM_NUM = 3,
    OCT_HISTOGRAM_SUM = 4,
    OCT_HISTOGRAM_SUM_SQUARES = 5,
    OCT_HISTOGRAM_LIMITS = 6,
    OCT_HISTOGRAM_COUNTS = 7,
    OCT_METADATA_PLUGIN = 1, /* SummaryMetadata */
    OCT_PLUGIN_NAME = 1,     /* SummaryMetadata.PluginData */
    OCT_PLUGIN_CONTENT = 2,
    OCT_HPARAMS_START = 3, /* HParamsPluginData */
    OCT_HPARAMS_END = 4,
    OCT_START_HPARAMS = 1, /* SessionStartInfo: a map of names to values */
    OCT_START_TIME = 5,
    OCT_MAP_KEY = 1,
    OCT_MAP_VALUE = 2,
    OCT_HPARAM_NUMBER = 2, /* google.protobuf.Value */
    OCT_HPARAM_TEXT = 3,
    OCT_HPARAM_BOOL = 4,
    OCT_END_STATUS = 1, /* SessionEndInfo: 1 is success */
    OCT_END_TIME = 2,
};

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
/* Adds a summary of this step and frees it. A disk that is full costs the event and a warning. */
void oct_event_file_add(oct_event_file *file, int64_t step, oct_proto *summary);
void oct_event_file_close(oct_event_file *file);
/* Is this the bare name of an event file? */
bool oct_event_file_named(const char *name);
