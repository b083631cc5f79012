/* The ranks of a host share memory.
 *
 * Each rank offers a file of memory without a name, and the offers travel with the names of the hosts. The
 * first rank of a node gives its file a size and the others open it by way of /proc, so there is nothing in
 * a file system that could be left over: the memory is freed with the last process that has it. Ranks are a
 * node where consecutive ones are on one host, as many on each host. Where that is not so, or memory cannot
 * be had on one of the hosts, each rank is a node of its own and all is sent by messages.
 */
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/text.h"
#include "dist/comm_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* One cache line for each rank, then the slots of all ranks. */
typedef struct shared {
    uint64_t mark;
    char pad[56];
    oct_rank_line lines[];
} shared;

static size_t shared_bytes(const oct_rank_node *node)
{
    return sizeof(shared) + (size_t)node->ranks *
                                (sizeof(oct_rank_line) + (size_t)OCT_NODE_SLOTS * node->slot_bytes);
}

/* Every rank learns every host, so that a missing rank can be named with it, and offers memory to the others of
 * its own. */
static oct_status share_hosts(oct_comm *comm)
{
    oct_host mine = {.pid = (int32_t)getpid(), .memory = memfd_create("octet-node", MFD_CLOEXEC)};
    snprintf(mine.name, sizeof(mine.name), "%s", comm->host);
    if (getrandom(&mine.mark, sizeof(mine.mark), 0) != sizeof(mine.mark)) mine.mark = 0;
    OCT_TRY(oct_alloc(&comm->hosts, (size_t)comm->base.size, sizeof(*comm->hosts)));
    OCT_TRY(oct_comm_gather(&comm->base, &mine, sizeof(mine), comm->hosts));
    OCT_TRY(oct_exchange_begin(comm, OCT_EXCHANGE_HOSTS));
    return oct_exchange_broadcast(comm, comm->hosts, (size_t)comm->base.size * sizeof(mine), 0);
}

static int ranks_of_a_node(const oct_comm *comm)
{
    const int size = comm->base.size;
    int ranks = 1;
    while (ranks < size && strcmp(comm->hosts[ranks].name, comm->hosts[0].name) == 0)
        ranks++;
    for (int r = 0; r < size; r++)
        if (strcmp(comm->hosts[r].name, comm->hosts[r - r % ranks].name) != 0) return 1;
    return size % ranks == 0 ? ranks : 1;
}

void *oct_memory_map(int file, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void *oct_memory_of_process(int32_t pid, int32_t file, size_t bytes)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, (int)file);
    const int opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0) return NULL;
    const bool good =
        fstat(opened, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == (off_t)bytes;
    void *memory = good ? oct_memory_map(opened, bytes) : NULL;
    close(opened);
    return memory;
}

static bool lay_out(oct_rank_node *node, void *memory)
{
    shared *all = memory;
    if (!memory) return false;
    node->memory = memory;
    node->bytes = shared_bytes(node);
    node->lines = all->lines;
    node->slots = (char *)(all->lines + node->ranks);
    return true;
}

/* The first rank of a node makes the memory, all pages of it, so that none is found missing later. */
static bool make_memory(oct_rank_node *node, const oct_host *mine)
{
    const off_t bytes = (off_t)shared_bytes(node);
    if (mine->memory < 0 || ftruncate(mine->memory, bytes) != 0 ||
        fallocate(mine->memory, 0, 0, bytes) != 0 ||
        !lay_out(node, oct_memory_map(mine->memory, shared_bytes(node))))
        return false;
    ((shared *)node->memory)->mark = mine->mark;
    return true;
}

/* Says on all ranks whether all have it. */
static oct_status all_have_it(const oct_comm *comm, bool good, bool *all)
{
    int64_t bad = good ? 0 : 1;
    OCT_TRY(oct_exchange_max(comm, &bad, 1));
    *all = bad == 0;
    return OCT_OK;
}

static oct_status share_memory(const oct_comm *comm, oct_rank_node *node)
{
    const oct_host *mine = &comm->hosts[comm->base.rank], *first = &comm->hosts[node->first];
    const size_t bytes = shared_bytes(node);
    /* A limit on the length of files (ulimit -f) holds for files of memory, too, and rows are long. */
    struct rlimit limit;
    const bool long_files = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
    bool good = mine != first || make_memory(node, mine);
    OCT_TRY(all_have_it(comm, good, &good));
    if (good && mine != first)
        /* A container may count processes of its own, so what is found there is compared. */
        good = lay_out(node, oct_memory_of_process(first->pid, first->memory, bytes)) &&
               ((shared *)node->memory)->mark == first->mark;
    OCT_TRY(all_have_it(comm, good, &good));
    OCT_TRY(all_have_it(comm, long_files, &node->shows_rows));
    if (good) return OCT_OK;
    oct_rank_node_leave(node);
    oct_log(OCT_LOG_WARN,
            "the ranks of a host cannot share %s of memory, so they sum by messages, which is "
            "slower; they must see each other's /proc",
            oct_text_size((int64_t)bytes).text);
    return OCT_OK;
}

oct_status oct_rank_node_enter(oct_comm *comm, size_t slot_bytes)
{
    OCT_TRY(share_hosts(comm));
    oct_rank_node *node = &comm->state->node;
    const int fd = comm->hosts[comm->base.rank].memory, rank = comm->base.rank;
    const int ranks = slot_bytes > 0 ? ranks_of_a_node(comm) : 1;
    *node = (oct_rank_node){.ranks = ranks, .first = rank - rank % ranks, .slot_bytes = slot_bytes};
    const oct_status status = ranks > 1 ? share_memory(comm, node) : OCT_OK;
    if (fd >= 0) close(fd);
    if (!node->memory) *node = (oct_rank_node){.ranks = 1, .first = rank};
    return status;
}

void oct_rank_node_leave(oct_rank_node *node)
{
    if (node->memory) munmap(node->memory, node->bytes);
    *node = (oct_rank_node){0};
}
