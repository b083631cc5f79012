/* A message waits in a list of its own for each pair of ranks until the receive that is its turn. */
#include "tests/support/thread_ranks.h"

#include "core/base/mem.h"
#include "dist/comm_impl.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct message {
    struct message *next;
    int tag;
    size_t bytes;
    char data[];
} message;

typedef struct pair {
    message *first, **end;
} pair;

typedef struct world {
    pthread_mutex_t lock;
    int size, on_a_host;
    bool lanes_apart;
    /* Of the transport and its clones; to, from. */
    pair pairs[1 + OCT_SUMS_BESIDES][OCT_THREAD_RANKS_MAX][OCT_THREAD_RANKS_MAX];
    void (*body)(const oct_comm *comm, void *user);
    void *user;
} world;

enum { IN_FLIGHT_MAX = 4096 };

typedef struct thread_transport {
    oct_transport base;
    char host[32];
    world *all;
    int index, clones; /* 0: the first transport; and how many clones that has */
    oct_traffic traffic;
    bool connected[OCT_THREAD_RANKS_MAX];
    struct {
        int peer; /* -1: ended */
        bool receives;
        size_t bytes;
        void *data;
    } flying[IN_FLIGHT_MAX];
} thread_transport;

static void send_message(thread_transport *t, const oct_transfer *transfer, const void *data,
                         int tag)
{
    message *m = malloc(sizeof *m + transfer->bytes);
    cr_assert_not_null(m);
    *m = (message){.tag = tag, .bytes = transfer->bytes};
    memcpy(m->data, data, transfer->bytes);
    pair *p = &t->all->pairs[t->index][transfer->peer][t->base.rank];
    pthread_mutex_lock(&t->all->lock);
    *(p->first ? p->end : &p->first) = m;
    p->end = &m->next;
    pthread_mutex_unlock(&t->all->lock);
    t->traffic.messages++;
    t->traffic.bytes += (int64_t)transfer->bytes;
}

static oct_status begin(oct_transport *self, size_t number, const oct_transfer *transfer,
                        void *data, int tag)
{
    thread_transport *t = (thread_transport *)self;
    cr_assert(number < IN_FLIGHT_MAX && transfer->peer != self->rank && transfer->bytes > 0);
    if (!t->connected[transfer->peer]) t->traffic.connections++;
    t->connected[transfer->peer] = true;
    t->flying[number].peer = transfer->peer;
    t->flying[number].receives = transfer->receives;
    t->flying[number].bytes = transfer->bytes;
    t->flying[number].data = data;
    if (!transfer->receives) send_message(t, transfer, data, tag);
    return OCT_OK;
}

/* Takes the next message of a pair; NULL when none has come. */
static message *take_message(thread_transport *t, int peer)
{
    pair *p = &t->all->pairs[t->index][t->base.rank][peer];
    pthread_mutex_lock(&t->all->lock);
    message *m = p->first;
    if (m) p->first = m->next;
    pthread_mutex_unlock(&t->all->lock);
    return m;
}

static oct_status test(oct_transport *self, size_t count, oct_arrival *arrivals, size_t *ended)
{
    thread_transport *t = (thread_transport *)self;
    bool waits[OCT_THREAD_RANKS_MAX] = {false}; /* an earlier receive waits for this peer */
    *ended = 0;
    for (size_t i = 0; i < count; i++) {
        const int peer = t->flying[i].peer;
        if (peer < 0 || (t->flying[i].receives && waits[peer])) continue;
        oct_arrival arrival = {.transfer = i, .bytes = t->flying[i].bytes};
        if (t->flying[i].receives) {
            message *m = take_message(t, peer);
            waits[peer] = !m;
            if (!m) continue;
            arrival.tag = m->tag;
            arrival.bytes = m->bytes;
            memcpy(t->flying[i].data, m->data,
                   m->bytes < t->flying[i].bytes ? m->bytes : t->flying[i].bytes);
            free(m);
        }
        t->flying[i].peer = -1;
        arrivals[(*ended)++] = arrival;
    }
    return OCT_OK;
}

static void close_transport(oct_transport *self, bool orderly)
{
    (void)orderly;
    free(self);
}

static oct_status open_clone(oct_transport *self, oct_transport **clone)
{
    thread_transport *t = malloc(sizeof *t);
    cr_assert_not_null(t);
    thread_transport *first = (thread_transport *)self;
    *t = *first;
    t->index = ++first->clones;
    cr_assert(t->index <= OCT_SUMS_BESIDES);
    if (t->all->lanes_apart) snprintf(t->host, sizeof t->host, "lane%d", t->base.rank);
    t->base.host = t->host;
    *clone = &t->base;
    return OCT_OK;
}

typedef struct seat {
    world *all;
    int rank;
    pthread_t thread;
} seat;

static void *run_rank(void *user)
{
    const seat *mine = user;
    thread_transport *t = calloc(1, sizeof *t);
    oct_comm *comm = NULL;
    cr_assert_not_null(t);
    snprintf(t->host, sizeof t->host, "host%d", mine->rank / mine->all->on_a_host);
    t->base = (oct_transport){.rank = mine->rank,
                              .size = mine->all->size,
                              .name = "threads",
                              .host = t->host,
                              .begin = begin,
                              .test = test,
                              .duplicate = open_clone,
                              .close = close_transport};
    t->all = mine->all;
    cr_assert_eq(oct_comm_over(&comm, &t->base, 20), OCT_OK, "%s", oct_error_message(0));
    mine->all->body(comm, mine->all->user);
    oct_comm_close(&comm);
    return NULL;
}

static void run_ranks(int ranks, int on_a_host, bool lanes_apart,
                      void (*body)(const oct_comm *comm, void *user), void *user)
{
    static world all;
    seat seats[OCT_THREAD_RANKS_MAX];
    cr_assert(ranks <= OCT_THREAD_RANKS_MAX);
    all = (world){.lock = PTHREAD_MUTEX_INITIALIZER,
                  .size = ranks,
                  .on_a_host = on_a_host,
                  .lanes_apart = lanes_apart,
                  .body = body,
                  .user = user};
    for (int r = 0; r < ranks; r++) {
        seats[r] = (seat){.all = &all, .rank = r};
        cr_assert_eq(pthread_create(&seats[r].thread, NULL, run_rank, &seats[r]), 0);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(seats[r].thread, NULL);
}

void oct_run_thread_ranks(int ranks, int on_a_host, void (*body)(const oct_comm *comm, void *user),
                          void *user)
{
    run_ranks(ranks, on_a_host, false, body, user);
}

void oct_run_thread_ranks_lanes_apart(int ranks, int on_a_host,
                                      void (*body)(const oct_comm *comm, void *user), void *user)
{
    run_ranks(ranks, on_a_host, true, body, user);
}

oct_traffic oct_traffic_of(const oct_comm *comm)
{
    return comm->state ? ((const thread_transport *)comm->state->transport)->traffic
                       : (oct_traffic){0};
}
