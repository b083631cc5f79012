/* One thread waits for saves and carries them out. */
#include "io/checkpoint/checkpoint_writer.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "io/checkpoint/checkpoint_impl.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The thread goes on from COPYING, everybody else from DONE. */
typedef enum state { IDLE, COPYING, WRITING, DONE } state;

struct oct_checkpoint_writer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* state or stop */
    state state;
    bool stop;
    oct_saving saving; /* the thread's while it copies and writes */
    double begun, blocked;
    /* The outcome. */
    oct_checkpoint_file file;
    double seconds;
    oct_status status;
    char why[1024];
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void set_state(oct_checkpoint_writer *w, state next)
{
    pthread_mutex_lock(&w->lock);
    w->state = next;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void save_pending(oct_checkpoint_writer *w)
{
    w->file = (oct_checkpoint_file){0};
    w->status = oct_saving_lay_out(&w->saving);
    if (w->status == OCT_OK) {
        oct_saving_copy(&w->saving);
        set_state(w, WRITING);
        w->status = oct_saving_write(&w->saving, &w->file);
    }
    if (w->status != OCT_OK) snprintf(w->why, sizeof w->why, "%s", oct_fail_text(0));
    oct_fail_clear();
    oct_saving_free(&w->saving);
    w->seconds = now() - w->begun;
}

static void *work(void *user)
{
    oct_checkpoint_writer *w = user;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->state != COPYING && !w->stop)
            pthread_cond_wait(&w->changed, &w->lock);
        if (w->state != COPYING) break;
        pthread_mutex_unlock(&w->lock);
        save_pending(w);
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
    const int error = pthread_create(&w->thread, NULL, work, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) return OCT_OK;
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    oct_free(writer);
    return oct_fail(OCT_RESOURCE, "the thread that writes checkpoints cannot be started: %s",
                    strerror(error));
}

/* Waits until the save under way is no longer in the states up to `last`. */
static void wait_beyond(oct_checkpoint_writer *w, state last)
{
    const double begin = now();
    pthread_mutex_lock(&w->lock);
    while (w->state != IDLE && w->state <= last)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    w->blocked += now() - begin;
}

void oct_checkpoint_writer_destroy(oct_checkpoint_writer **writer)
{
    oct_checkpoint_writer *w = *writer;
    if (!w) return;
    wait_beyond(w, WRITING);
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
    writer->begun = now();
    OCT_TRY(oct_saving_begin(&writer->saving, folder, info, root, optim, keep));
    set_state(writer, COPYING);
    writer->blocked = now() - writer->begun;
    return OCT_OK;
}

void oct_checkpoint_writer_wait_copied(oct_checkpoint_writer *writer)
{
    if (writer) wait_beyond(writer, COPYING);
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
    wait_beyond(writer, WRITING);
    OCT_ASSERT(writer->state == DONE);
    *written = (oct_checkpoint_written){writer->file, writer->seconds, blocked};
    writer->file = (oct_checkpoint_file){0};
    set_state(writer, IDLE);
    if (writer->status == OCT_OK) return OCT_OK;
    return oct_fail(writer->status, "%s", writer->why);
}
