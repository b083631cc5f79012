/* A proof that an image of HDF5 is of the narrow subset that Octet writes, made before the library sees
 * a byte of it: the library trusts what a file says about itself, and files come from anywhere.
 *
 * Proven of every image that passes: superblock, object headers, messages, groups, heaps and B-trees have
 * the form that oct_h5_write makes, with their checksums; all that lies in the file is inside it and
 * nothing over anything else; each object is reached once, over names of at most OCT_H5_NAME_BYTES printable
 * letters, no two alike in a group and at most OCT_H5_DEPTH one below another; each data set is
 * contiguous and whole, of a type and shape that tensors have. So all data sets together are no larger
 * than the image. Time and memory of the walk grow with the image alone. */
#pragma once

#include "core/tensor/tensor.h"
#include "io/hdf5_part.h"

typedef struct oct_h5_object {
    const char *name; /* in the image, without an end; NULL of the root */
    size_t name_bytes;
    size_t parent; /* its number; of the root its own */
    bool group;    /* what follows is of data sets */
    oct_dtype dtype;
    oct_shape shape;
    uint64_t at; /* of its values in the image, little-endian */
} oct_h5_object;

/* The objects of an image, each behind its parent; the root is number 0. */
typedef struct oct_h5_map {
    oct_h5_object *objects;
    size_t count, capacity;
} oct_h5_map;

/* Proves an image: OCT_DATA with a sentence without the file's name, or OCT_RESOURCE; then the map is empty.
 * The image is
 * borrowed for as long as the map is used. */
oct_status oct_h5_walk(oct_h5_map *map, const void *image, size_t size) OCT_NODISCARD;
/* The same of a file, of which all but the values is read into source->image, of `size` bytes. */
oct_status oct_h5_walk_file(oct_h5_map *map, const oct_h5_source *source,
                            size_t size) OCT_NODISCARD;
void oct_h5_map_free(oct_h5_map *map);
