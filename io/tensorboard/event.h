/* These are the fields of TensorFlow's messages that Octet writes, by their numbers (event.proto,
 * summary.proto, histogram.proto; plugin_data.proto of the plug-in hparams). */
#pragma once

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
