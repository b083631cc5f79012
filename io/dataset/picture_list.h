/* Data sets of pictures in files of their own: the index that formats make, and what they have in
 * common. A picture's file is opened and decoded when its sample is read. */
#pragma once

#include "io/dataset/dataset.h"

typedef struct oct_picture_list {
    char *folder; /* names are relative to it */
    char *names;  /* each with its NUL; with maps, a picture's and then its map's */
    size_t names_bytes, names_capacity;
    struct oct_picture {
        size_t name;   /* where its names begin */
        int64_t bytes; /* of its file */
    } * picture;
    int64_t count;
    size_t capacity;
    int64_t channels; /* 1, 3 or 4: what pictures are decoded to */
    bool maps;
} oct_picture_list;

/* Makes the empty store of a data set, whose samples are then OCT_U8 of differing sizes. */
oct_status oct_pictures_begin(oct_dataset *data, const oct_dataset_source *source,
                              const char *folder);
/* Adds a picture; map: NULL where the list has none. */
oct_status oct_pictures_add(oct_picture_list *list, const char *name, const char *map,
                            int64_t bytes);

/* Reads a picture and, for OCT_GOAL_MAP, its class map. This and those below are members of oct_dataset_format. */
oct_status oct_pictures_read(const oct_dataset *data, int64_t index, oct_image *image,
                             oct_image *map);
const char *oct_pictures_sample_name(const oct_dataset *data, int64_t index);
void oct_pictures_close(oct_dataset *data);
void oct_pictures_digest(const oct_dataset *data, oct_sha256_state *state);
/* Packs the index as bytes for the other ranks: packed_head, pictures, folder, names. */
oct_status oct_pictures_pack(const oct_dataset *data, void **bytes, size_t *size);
/* Makes the index of the bytes that oct_pictures_pack wrote on rank 0. */
oct_status oct_pictures_unpack(oct_dataset *data, const void *bytes, size_t size);

/* What all formats of pictures have in common. */
#define OCT_PICTURES_MEMBERS                                                                       \
    .reads_files = true, .read = oct_pictures_read, .sample_name = oct_pictures_sample_name,       \
    .close = oct_pictures_close, .digest = oct_pictures_digest, .pack = oct_pictures_pack,         \
    .unpack = oct_pictures_unpack

/* Compares two names by their bytes, for qsort and bsearch. */
int oct_compare_names(const void *a, const void *b);
/* Is it a picture by its extension (jpg, jpeg, png in letters of any case)? */
bool oct_is_picture_name(const char *name);
/* Checks that an entry of a folder is a plain file that lies inside of `root`, a path without links, and gives its size.
 * OCT_DATA with the path otherwise. */
oct_status oct_picture_check(const char *root, const char *path, int64_t *bytes);
/* Refuses a path that leads out of root by links. */
oct_status oct_check_inside(const char *root, const char *path);
