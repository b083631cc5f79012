/* Saving a checkpoint.
 *
 * An image of the file, then the file, the manifest, and only then are older files deleted; whatever step fails,
 * the manifest on the disk names files that are there. HDF5 lays the image out before there are values; where
 * training goes on meanwhile these are copied to where they lie, once. One pass over all of it then hashes and
 * writes: the checksum is the digest of the image; with the checksum added, the same sum becomes that of the file.
 */
#include "io/checkpoint/checkpoint_impl.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/file/file.h"
#include "io/hdf5/hdf5.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is saved, and the file that is made of it. */
typedef struct saving {
    char *folder;
    oct_checkpoint_info info; /* texts owned */
    oct_keep keep;
    oct_saved_arrays list;
    uint8_t *early_copies; /* of values that may change before the next update */
    uint8_t *image;        /* of the file; zeros where arrays lie that are not copied */
    size_t size;           /* of the image */
} saving;

/* Writes what is saved beside the tensors; items that only some runs have are left out where they are not set. */
static oct_status write_info(oct_h5 *h5, const oct_checkpoint_info *info)
{
    static const oct_early_stopping nothing = {0};
    const oct_early_stopping *stopping = &info->stopping;
    int64_t bits;
    OCT_TRY(oct_h5_write_i64(h5, "info/format", OCT_CHECKPOINT_FORMAT));
    OCT_TRY(oct_h5_write_i64(h5, "info/step", info->step));
    OCT_TRY(oct_h5_write_text(h5, "info/phase", info->phase));
    OCT_TRY(oct_h5_write_i64(h5, "info/updates", info->updates));
    if (memcmp(stopping, &nothing, sizeof nothing) != 0) {
        memcpy(&bits, &stopping->best_value, sizeof bits);
#define X(name) OCT_TRY(oct_h5_write_i64(h5, "info/" #name, stopping->name));
        OCT_EARLY_STOPPING_NUMBERS(X)
#undef X
        OCT_TRY(oct_h5_write_i64(h5, "info/best_value_bits", bits));
    }
    if (info->skips.all != 0) {
        OCT_TRY(oct_h5_write_i64(h5, "info/skipped", info->skips.all));
        OCT_TRY(oct_h5_write_i64(h5, "info/skipped_row", info->skips.row));
    }
    OCT_TRY(oct_h5_write_text(h5, "info/recipe", info->recipe ? info->recipe : ""));
    return info->class_names ? oct_h5_write_text(h5, "info/class_names", info->class_names)
                             : OCT_OK;
}

/* Whether an array is copied when the save begins: a forward changes buffers, and copies of small arrays cost nothing. */
static bool is_copied_early(const oct_saved_array *a)
{
    enum { SMALL = 1 << 16 };
    return a->buffer || a->bytes <= SMALL;
}

/* Copies the values that may change before the next update; the list then points to the copies. */
static oct_status copy_early(saving *s)
{
    size_t bytes = 0;
    for (size_t i = 0; i < s->list.count; i++)
        if (is_copied_early(&s->list.items[i])) bytes += s->list.items[i].bytes;
    OCT_TRY(oct_alloc(&s->early_copies, bytes, 1));
    uint8_t *to = s->early_copies;
    for (size_t i = 0; i < s->list.count; i++) {
        oct_saved_array *a = &s->list.items[i];
        if (!is_copied_early(a) || a->bytes == 0) continue;
        memcpy(to, a->data, a->bytes);
        a->data = to;
        to += a->bytes;
    }
    return OCT_OK;
}

static void free_saving(saving *s)
{
    OCT_FREE_ALL(&s->folder, &s->info.recipe, &s->info.class_names, &s->early_copies, &s->image);
    oct_saved_arrays_free(&s->list);
}

/* Notes what is to be saved, and copies what may change before the next update. */
static oct_status begin_saving(saving *s, const char *folder, const oct_checkpoint_info *info,
                               oct_module *root, const oct_optim *optim, oct_keep keep)
{
    oct_status status = OCT_OK;
    OCT_ASSERT(info->step >= 0 && keep.newest >= 1);
    *s = (saving){.info = *info, .keep = keep};
    s->info.recipe = s->info.class_names = NULL;
    const bool averaged = optim && optim->average.begun;
    OCT_TRY_OUT(oct_strdup(&s->folder, folder));
    if (info->recipe) OCT_TRY_OUT(oct_strdup(&s->info.recipe, info->recipe));
    if (info->class_names) OCT_TRY_OUT(oct_strdup(&s->info.class_names, info->class_names));
    OCT_TRY_OUT(oct_saved_arrays_list(&s->list, root, optim, averaged,
                                      averaged && !optim->average.in_model));
    status = copy_early(s);
out:
    if (status != OCT_OK) free_saving(s);
    return status;
}

static int compare_offsets(const void *a, const void *b)
{
    const size_t x = ((const oct_saved_array *)a)->offset, y = ((const oct_saved_array *)b)->offset;
    return (x > y) - (x < y);
}

/* Copies the values of an array to where they lie in the image. */
static void copy_into_image(saving *s, oct_saved_array *a)
{
    OCT_ASSERT(a->bytes <= s->size && a->offset <= s->size - a->bytes);
    if (a->bytes > 0) memcpy(s->image + a->offset, a->data, a->bytes);
    a->data = s->image + a->offset;
}

/* Makes the image of the file, with its small arrays; the others stay where they are. */
static oct_status lay_out_image(saving *s)
{
    oct_saved_arrays *list = &s->list;
    OCT_OWNED(oct_h5_close) oct_h5 *h5 = NULL;
    /* As a rule the image has no more than this: what it does not use costs nothing, more costs a copy. */
    enum { INFO_BYTES = 1 << 16, ARRAY_HEADER_BYTES = 1 << 12 };
    const size_t texts = (s->info.recipe ? strlen(s->info.recipe) : 0) +
                         (s->info.class_names ? strlen(s->info.class_names) : 0);
    OCT_TRY(
        oct_h5_create(&h5, list->bytes + texts + INFO_BYTES + list->count * ARRAY_HEADER_BYTES));
    OCT_TRY(write_info(h5, &s->info));
    for (size_t i = 0; i < list->count; i++) {
        oct_saved_array *a = &list->items[i];
        OCT_TRY(oct_h5_reserve(h5, a->path, a->dtype, a->shape, &a->offset));
    }
    OCT_TRY(oct_h5_finish(&h5, false, &s->image, &s->size));
    for (size_t i = 0; i < list->count; i++)
        if (is_copied_early(&list->items[i])) copy_into_image(s, &list->items[i]);
    if (list->count > 0) qsort(list->items, list->count, sizeof *list->items, compare_offsets);
    return OCT_OK;
}

/* Hashes and writes bytes, chunk by chunk. */
static oct_status write_bytes(const uint8_t *bytes, size_t size, oct_new_file *file,
                              oct_sha256_state *sum)
{
    enum { CHUNK = 1 << 20 };
    for (size_t at = 0; at < size; at += CHUNK) {
        const size_t n = size - at < CHUNK ? size - at : CHUNK;
        oct_sha256_add(sum, bytes + at, n);
        OCT_TRY(oct_new_file_add(file, bytes + at, n));
    }
    return OCT_OK;
}

/* Writes the image, with the arrays that are not in it from where they are, then its checksum; digest: of the whole
 * file. */
static oct_status write_file(const saving *s, const char *path, uint8_t digest[32])
{
    oct_status status = OCT_OK;
    oct_new_file *file = NULL;
    oct_sha256_state *sum = NULL;
    uint8_t checksum[OCT_CHECKSUM_BYTES];
    size_t at = 0;
    OCT_TRY_OUT(oct_sha256_begin(&sum));
    OCT_TRY_OUT(oct_new_file_begin(&file, path, s->size + OCT_CHECKSUM_BYTES));
    for (size_t i = 0; i < s->list.count; i++) {
        const oct_saved_array *a = &s->list.items[i];
        if (a->bytes == 0 || a->data == s->image + a->offset) continue;
        OCT_ASSERT(at <= a->offset && a->offset + a->bytes <= s->size);
        OCT_TRY_OUT(write_bytes(s->image + at, a->offset - at, file, sum));
        OCT_TRY_OUT(write_bytes(a->data, a->bytes, file, sum));
        at = a->offset + a->bytes;
    }
    OCT_TRY_OUT(write_bytes(s->image + at, s->size - at, file, sum));
    oct_sha256_peek(sum, checksum);
    oct_sha256_add(sum, checksum, sizeof checksum);
    OCT_TRY_OUT(oct_new_file_add(file, checksum, sizeof checksum));
    status = oct_new_file_commit(&file);
out:
    oct_new_file_discard(&file);
    oct_sha256_end(&sum, digest);
    return status;
}

/* Deletes a file whose manifest could not be written, and returns that failure. A manifest that failed in its last step
 * names the file: it is renamed, and only its folder could not be synced. */
static oct_status delete_unlisted(const saving *s, const char *path)
{
    char why[1024];
    OCT_OWNED(oct_manifest_free) oct_manifest on_disk = {0};
    const oct_status status = oct_fail_code();
    snprintf(why, sizeof why, "%s", oct_error_message(0));
    if (oct_manifest_read(&on_disk, s->folder, false) == OCT_OK &&
        !oct_manifest_find(&on_disk, s->info.step))
        unlink(path);
    return oct_fail(status, "%s", why);
}

/* Writes the file, then the manifest. file may be NULL. */
static oct_status write_saving(saving *s, oct_checkpoint_file *file)
{
    oct_status status = OCT_OK;
    OCT_OWNED(oct_free) char *path = NULL;
    OCT_OWNED(oct_manifest_free) oct_manifest old = {0};
    oct_manifest_entry entry = {.step = s->info.step, .bytes = s->size + OCT_CHECKSUM_BYTES};
    OCT_TRY(oct_make_folders(s->folder));
    oct_file_clean(s->folder);
    OCT_TRY(oct_checkpoint_path(&path, s->folder, s->info.step));
    OCT_TRY(oct_manifest_read(&old, s->folder, true));
    OCT_TRY(write_file(s, path, entry.digest));
    status = oct_manifest_commit(&old, &entry, s->keep, s->folder);
    if (status != OCT_OK) status = delete_unlisted(s, path);
    if (status == OCT_OK && file) {
        file->path = path;
        memcpy(file->digest, entry.digest, sizeof file->digest);
        path = NULL;
    }
    return status;
}

oct_status oct_checkpoint_save(const char *folder, const oct_checkpoint_info *info,
                               oct_module *root, const oct_optim *optim, oct_keep keep,
                               oct_checkpoint_file *file)
{
    saving s;
    if (file) *file = (oct_checkpoint_file){0};
    OCT_TRY(begin_saving(&s, folder, info, root, optim, keep));
    oct_status status = lay_out_image(&s);
    if (status == OCT_OK) status = write_saving(&s, file);
    free_saving(&s);
    return status;
}

/* One thread waits for saves and carries them out. */

/* States of a save, in their order; the thread leaves COPYING and WRITING, everybody else IDLE and DONE. */
typedef enum state { IDLE, COPYING, WRITING, DONE } state;

struct oct_checkpoint_writer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* state or stop */
    state state;
    bool stop;
    saving saving; /* the thread's while it copies and writes */
    double begun, blocked;
    /* The outcome. */
    oct_checkpoint_file file;
    double seconds;
    oct_status status;
    char why[1024];
};

static void set_state(oct_checkpoint_writer *w, state next)
{
    pthread_mutex_lock(&w->lock);
    w->state = next;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* The thread: waits for a save, carries it out and leaves its outcome, until it is to stop. */
static void *carry_out_saves(void *user)
{
    oct_checkpoint_writer *w = user;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->state != COPYING && !w->stop)
            pthread_cond_wait(&w->changed, &w->lock);
        if (w->state != COPYING) break;
        pthread_mutex_unlock(&w->lock);
        w->file = (oct_checkpoint_file){0};
        w->status = lay_out_image(&w->saving);
        if (w->status == OCT_OK) {
            /* Copies the others into the image; after it model and optimizer are not looked at any more. */
            for (size_t i = 0; i < w->saving.list.count; i++) {
                oct_saved_array *a = &w->saving.list.items[i];
                if (!is_copied_early(a)) copy_into_image(&w->saving, a);
            }
            set_state(w, WRITING);
            w->status = write_saving(&w->saving, &w->file);
        }
        if (w->status != OCT_OK) snprintf(w->why, sizeof w->why, "%s", oct_error_message(0));
        oct_fail_clear();
        free_saving(&w->saving);
        w->seconds = oct_seconds() - w->begun;
        pthread_mutex_lock(&w->lock);
        w->state = DONE;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

oct_status oct_checkpoint_writer_create(oct_checkpoint_writer **writer)
{
    sigset_t all, before;
    OCT_TRY(oct_alloc(writer, 1, sizeof **writer));
    oct_checkpoint_writer *w = *writer;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    /* Signals are for the thread that runs the program. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&w->thread, NULL, carry_out_saves, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) return OCT_OK;
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    oct_free(writer);
    return oct_fail(OCT_RESOURCE, "the thread that writes checkpoints cannot be started: %s",
                    strerror(error));
}

/* Waits until the save under way is no longer in the states up to `last`. */
static void wait_until_past(oct_checkpoint_writer *w, state last)
{
    const double begin = oct_seconds();
    pthread_mutex_lock(&w->lock);
    while (w->state != IDLE && w->state <= last)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    w->blocked += oct_seconds() - begin;
}

void oct_checkpoint_writer_destroy(oct_checkpoint_writer **writer)
{
    oct_checkpoint_writer *w = *writer;
    if (!w) return;
    wait_until_past(w, WRITING);
    if (w->state == DONE && w->status != OCT_OK) oct_log(OCT_LOG_WARN, "%s", w->why);
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    oct_free(&w->file.path);
    oct_free(writer);
}

oct_status oct_checkpoint_writer_begin(oct_checkpoint_writer *writer, const char *folder,
                                       const oct_checkpoint_info *info, oct_module *root,
                                       const oct_optim *optim, oct_keep keep)
{
    OCT_ASSERT(writer->state == IDLE);
    writer->begun = oct_seconds();
    OCT_TRY(begin_saving(&writer->saving, folder, info, root, optim, keep));
    set_state(writer, COPYING);
    writer->blocked = oct_seconds() - writer->begun;
    return OCT_OK;
}

void oct_checkpoint_writer_wait_copied(oct_checkpoint_writer *writer)
{
    if (writer) wait_until_past(writer, COPYING);
}

bool oct_checkpoint_writer_is_done(oct_checkpoint_writer *writer)
{
    if (!writer) return false;
    pthread_mutex_lock(&writer->lock);
    const bool done = writer->state == DONE;
    pthread_mutex_unlock(&writer->lock);
    return done;
}

oct_status oct_checkpoint_writer_take(oct_checkpoint_writer *writer,
                                      oct_checkpoint_written *written)
{
    const double blocked = writer->blocked;
    wait_until_past(writer, WRITING);
    OCT_ASSERT(writer->state == DONE);
    *written = (oct_checkpoint_written){writer->file, writer->seconds, blocked};
    writer->file = (oct_checkpoint_file){0};
    set_state(writer, IDLE);
    if (writer->status == OCT_OK) return OCT_OK;
    return oct_fail(writer->status, "%s", writer->why);
}
