/* HDF5 writes an image into one block of memory: a file driver of our own (H5FD_class_t). The driver core that HDF5
 * has clears all of a file's memory and gives it away only as a copy. Here pages that nothing is written to stay
 * untouched, and the block is the image. So a file can be laid out with all its data sets before there are values,
 * which then go where they lie. This is for hdf5.c. */
#pragma once

#include "core/base/status.h"

#include <hdf5.h>
#include <stdint.h>

/* The image that is being written; it lies still until the file is closed, but not its bytes. */
typedef struct oct_h5_memory {
    uint8_t *bytes; /* zeros where nothing was written */
    size_t capacity;
    haddr_t end, written; /* of what was allocated in the file, and written */
    bool taken;           /* the image is finished and gone; what still comes is dropped */
} oct_h5_memory;

/* Makes a property list of file access write into memory; false when HDF5 refuses. */
bool oct_h5_memory_set(hid_t access, oct_h5_memory *memory);
