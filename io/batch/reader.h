/* A reader reads samples of a data set and transforms them, in the caller's thread or ahead of their use
 * by threads of its own. What comes out is a pure function of the place: it depends neither on threads nor
 * on what was asked for ahead. */
#pragma once

#include "io/augment/augment.h"
#include "io/dataset/dataset.h"

/* A cache keeps samples as they were decoded, before transforms, until its room is used up. Several threads
 * read and fill it at once. */
typedef struct oct_cache oct_cache;

/* Makes an empty cache of samples 0 to count - 1, with room for this many bytes of pixels. */
oct_status oct_cache_create(oct_cache **cache, int64_t count, int64_t bytes);
void oct_cache_destroy(oct_cache **cache);

/* Which sample, and with which random numbers. */
typedef struct oct_place {
    int64_t sample;
    oct_draw draw;
} oct_place;

enum { OCT_READ_TEXT = 1024 };

/* What a sample that cannot be read does, and the words of data.damaged. */
#define OCT_DAMAGED_LIST(X)                                                                        \
    X(OCT_DAMAGED_REFUSE, "refuse") /* the reader fails with its name */                           \
    X(OCT_DAMAGED_SKIP, "skip") /* the next sample of the data set that can be read stands for it */
typedef enum oct_damaged_mode { OCT_DAMAGED_LIST(OCT_WORD_ID) } oct_damaged_mode;
extern const oct_registry oct_damaged_mode_table;

/* A sample that was read. */
typedef struct oct_sample {
    oct_place place;
    int64_t number;  /* of the sample that stands at the place: another one where that is damaged */
    int64_t damaged; /* how many were passed over for it */
    oct_image image, map;
    oct_status status; /* OCT_OK, or what happened */
    char text[OCT_READ_TEXT];
} oct_sample;

typedef struct oct_reader_options {
    const oct_dataset *data;    /* borrowed */
    const oct_augment *augment; /* borrowed */
    oct_damaged_mode damaged_mode;
    oct_cache *cache; /* NULL: none; borrowed */
} oct_reader_options;

/* Reads and transforms the sample at a place into reused images. Its status says whether it could be read. */
void oct_read_sample(const oct_reader_options *options, const oct_place *place, oct_sample *sample);
void oct_sample_free(oct_sample *sample);

typedef struct oct_reader oct_reader;

/* Starts the threads; room: how many samples may lie ready. */
oct_status oct_reader_create(oct_reader **reader, const oct_reader_options *options, int threads,
                             int64_t room);
/* Stops the threads, whatever they do, and waits for their end. */
void oct_reader_destroy(oct_reader **reader);
int64_t oct_reader_asked(const oct_reader *reader); /* samples, from the first not released on */
int64_t oct_reader_room(const oct_reader *reader);  /* samples that may still be asked for */
/* Is this the i-th of the samples asked for? Where that is another one, all that was asked for is dropped. */
bool oct_reader_expect(oct_reader *reader, int64_t i, const oct_place *place);
/* Asks for one more; there must be room. */
void oct_reader_ask(oct_reader *reader, const oct_place *place);
/* Waits for the i-th sample of those asked for, from 0. Borrowed until it is released. */
const oct_sample *oct_reader_wait(oct_reader *reader, int64_t i);
/* Makes room in place of the first n. */
void oct_reader_release(oct_reader *reader, int64_t n);
