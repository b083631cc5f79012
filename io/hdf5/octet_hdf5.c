/* octet-hdf5: libhdf5 reads files of others here, where it can do no harm. A crafted file can crash the library and
 * take it over; so before it sees a byte, this process has given away all but memory, a socket to the Octet that
 * started it, and some time. The file's bytes come over that socket, too (hdf5_wire.h). */
#include "io/hdf5/hdf5_wire.h"

#include <errno.h>
#include <hdf5.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

enum { CHANNEL = 0, PAGE = 1 << 16, PAGES = 64, CPU_SECONDS = 60, BLOCK_MAX = 1 << 30 };

static int64_t file_size;

static bool receive_bytes(void *to, size_t bytes)
{
    for (char *at = to; bytes > 0;) {
        const ssize_t got = read(CHANNEL, at, bytes);
        if (got <= 0) return false;
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

static bool send_bytes(const void *from, size_t bytes)
{
    for (const char *at = from; bytes > 0;) {
        const ssize_t put = write(CHANNEL, at, bytes);
        if (put <= 0) return false;
        at += put;
        bytes -= (size_t)put;
    }
    return true;
}

static bool send_refusal(oct_h5_refusal why, const char *name)
{
    oct_h5_message m = {.kind = OCT_H5_FAILED, .at = why};
    snprintf(m.name, sizeof m.name, "%s", name);
    send_bytes(&m, sizeof m);
    return false;
}

/* Confinement. */

/* Sets a resource limit of this process; the hard one is never raised. */
static void set_limit(__rlimit_resource_t resource, rlim_t soft, rlim_t hard)
{
    struct rlimit before = {0};
    getrlimit(resource, &before);
    if (before.rlim_max < hard) hard = before.rlim_max;
    setrlimit(resource, &(struct rlimit){soft < hard ? soft : hard, hard});
}

/* What a file says of itself takes little memory; a block of numbers is there packed, unpacked and in order. */
static void limit_memory(int64_t block)
{
    set_limit(RLIMIT_AS, ((rlim_t)1 << 29) + 4 * (rlim_t)block,
              ((rlim_t)1 << 29) + 4 * (rlim_t)BLOCK_MAX);
}

/* Ends this process at any system call but those that it needs. Returns 0, or what seccomp has refused. */
static int filter_calls(scmp_filter_ctx context)
{
    static const int allowed[] = {
        SCMP_SYS(brk),        SCMP_SYS(munmap),        SCMP_SYS(mremap),
        SCMP_SYS(madvise),    SCMP_SYS(futex),         SCMP_SYS(exit),
        SCMP_SYS(exit_group), SCMP_SYS(rt_sigreturn),  SCMP_SYS(restart_syscall),
        SCMP_SYS(getrandom),  SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday),
        SCMP_SYS(time),       SCMP_SYS(setitimer)};
    /* Libraries look for files now and then; they find nothing. */
    static const int refused[] = {SCMP_SYS(open),      SCMP_SYS(openat), SCMP_SYS(access),
                                  SCMP_SYS(faccessat), SCMP_SYS(stat),   SCMP_SYS(newfstatat),
                                  SCMP_SYS(fstat),     SCMP_SYS(statx),  SCMP_SYS(readlink),
                                  SCMP_SYS(getcwd),    SCMP_SYS(ioctl),  SCMP_SYS(fcntl),
                                  SCMP_SYS(getpid),    SCMP_SYS(lseek),  SCMP_SYS(sysinfo)};
    const struct scmp_arg_cmp channel = SCMP_A0(SCMP_CMP_EQ, CHANNEL, 0),
                              self = SCMP_A0(SCMP_CMP_EQ, 0, 0);
    const struct scmp_arg_cmp no_code = SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
    int bad = 0;
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        bad |= seccomp_rule_add(context, SCMP_ACT_ALLOW, allowed[i], 0);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        bad |= seccomp_rule_add(context, SCMP_ACT_ERRNO(EACCES), refused[i], 0);
    bad |= seccomp_rule_add(context, SCMP_ACT_ALLOW, SCMP_SYS(read), 1, channel);
    bad |= seccomp_rule_add(context, SCMP_ACT_ALLOW, SCMP_SYS(write), 1, channel);
    bad |= seccomp_rule_add(context, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1, self);
    bad |= seccomp_rule_add(context, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, no_code);
    bad |= seccomp_rule_add(context, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 2, no_code,
                            SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS));
    return bad != 0 ? bad : seccomp_load(context);
}

/* Limits memory, files and core dumps, and with `filtered` system calls. False: the system cannot. */
static bool confine_process(bool filtered)
{
    limit_memory(0);
    set_limit(RLIMIT_NOFILE, 1, 1);
    set_limit(RLIMIT_FSIZE, 0, 0);
    set_limit(RLIMIT_CORE, 0, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
    scmp_filter_ctx context = filtered ? seccomp_init(SCMP_ACT_KILL_PROCESS) : NULL;
    const bool done = !filtered || (context && filter_calls(context) == 0);
    if (context) seccomp_release(context);
    return done;
}

/* The file: a driver of HDF5's over the socket, which keeps pages of the file that it has received. Page n is kept at
 * n % PAGES. */

static struct {
    bool received;
    uint64_t number; /* in the file */
    uint8_t bytes[PAGE];
} pages[PAGES];

static bool request_bytes(uint64_t at, size_t bytes, void *to)
{
    const oct_h5_message m = {.kind = OCT_H5_ASK, .at = (int64_t)at, .bytes = (int64_t)bytes};
    return send_bytes(&m, sizeof m) && receive_bytes(to, bytes);
}

/* Gives page `number` of the file, received or kept from before; NULL: the socket is closed. */
static const uint8_t *read_page(uint64_t number)
{
    const uint64_t rest = (uint64_t)file_size - number * PAGE, kept = number % PAGES;
    if (!pages[kept].received || pages[kept].number != number)
        pages[kept].received =
            request_bytes(number * PAGE, rest < PAGE ? rest : PAGE, pages[kept].bytes);
    pages[kept].number = number;
    return pages[kept].received ? pages[kept].bytes : NULL;
}

/* Small stretches are copied from pages that are kept; large ones are requested as they are. */
static herr_t driver_read(H5FD_t *file, H5FD_mem_t type, hid_t options, haddr_t at, size_t size,
                          void *to)
{
    (void)file, (void)type, (void)options;
    if (at > (haddr_t)file_size || size > (haddr_t)file_size - at) return -1;
    if (size >= PAGE) return request_bytes(at, size, to) ? 0 : -1;
    for (uint8_t *next = to; size > 0;) {
        const uint8_t *bytes = read_page(at / PAGE);
        const size_t from = at % PAGE, now = size < PAGE - from ? size : PAGE - from;
        if (!bytes) return -1;
        memcpy(next, bytes + from, now);
        next += now;
        at += now;
        size -= now;
    }
    return 0;
}

static herr_t driver_write(H5FD_t *file, H5FD_mem_t type, hid_t options, haddr_t at, size_t size,
                           const void *from)
{
    (void)file, (void)type, (void)options, (void)at, (void)size, (void)from;
    return -1;
}

/* Opens the one file that there is; a second one, which an external link would name, is refused. */
static H5FD_t *driver_open(const char *name, unsigned flags, hid_t access, haddr_t most)
{
    static H5FD_t only;
    static bool opened;
    (void)name, (void)flags, (void)access, (void)most;
    if (opened) return NULL;
    opened = true;
    return &only;
}

static herr_t driver_close(H5FD_t *file)
{
    (void)file;
    return 0;
}

static haddr_t end_of_addresses;

static haddr_t driver_get_eoa(const H5FD_t *file, H5FD_mem_t type)
{
    (void)file, (void)type;
    return end_of_addresses;
}

static herr_t driver_set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t end)
{
    (void)file, (void)type;
    end_of_addresses = end;
    return 0;
}

static haddr_t driver_get_eof(const H5FD_t *file, H5FD_mem_t type)
{
    (void)file, (void)type;
    return (haddr_t)file_size;
}

static const H5FD_class_t driver = {
#ifdef H5FD_CLASS_VERSION
    .version = H5FD_CLASS_VERSION,
    .value = 510,
#endif
    .name = "octet-socket",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .open = driver_open,
    .close = driver_close,
    .get_eoa = driver_get_eoa,
    .set_eoa = driver_set_eoa,
    .get_eof = driver_get_eof,
    .read = driver_read,
    .write = driver_write,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* Opens the file over the socket, without plug-ins and external links. */
static hid_t open_hdf5_file(void)
{
    if (H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0 || H5PLset_loading_state(0) < 0 ||
        H5Lunregister(H5L_TYPE_EXTERNAL) < 0)
        return -1;
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (H5Pset_driver(access, H5FDregister(&driver), NULL) < 0) return -1;
    return H5Fopen("file", H5F_ACC_RDONLY, access);
}

/* What an array is. */

/* The dimensions of elements that are arrays come after those of the data set. */
static bool add_dims(oct_h5_message *m, int ndim, const hsize_t *dims)
{
    for (int i = 0; i < ndim; i++) {
        if (m->ndim == OCT_H5_DIMS || dims[i] > INT64_MAX / 8) return false;
        m->dim[m->ndim++] = (int64_t)dims[i];
    }
    return true;
}

/* Whether an enumeration is FALSE and TRUE in a byte, as h5py writes truth values. */
static bool is_boolean(hid_t type)
{
    bool same = H5Tget_nmembers(type) == 2 && H5Tget_size(type) == 1;
    for (unsigned i = 0; same && i < 2; i++) {
        char *name = H5Tget_member_name(type, i);
        same = name && strcmp(name, i ? "TRUE" : "FALSE") == 0;
        H5free_memory(name);
    }
    return same;
}

static size_t rounded_up_width(size_t size)
{
    return size <= 1 ? 1 : size <= 2 ? 2 : size <= 4 ? 4 : 8;
}

/* The type in memory of elements that m describes: kind u, i or f, and 1, 2, 4 or 8 bytes. */
static hid_t native_type(const oct_h5_message *m)
{
    const hid_t types[3][4] = {
        {H5T_NATIVE_UINT8, H5T_NATIVE_UINT16, H5T_NATIVE_UINT32, H5T_NATIVE_UINT64},
        {H5T_NATIVE_INT8, H5T_NATIVE_INT16, H5T_NATIVE_INT32, H5T_NATIVE_INT64},
        {-1, -1, H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE}};
    const int width = m->bytes == 1 ? 0 : m->bytes == 2 ? 1 : m->bytes == 4 ? 2 : 3;
    return types[m->type == 'u' ? 0 : m->type == 'i' ? 1 : 2][width];
}

/* Describes the type of elements in m, and returns the type that they are read as, -1 where they are no numbers;
 * *plain: they lie so in the file, but for the order of bytes. */
static hid_t describe_type(oct_h5_message *m, hid_t type, bool *plain)
{
    hsize_t dims[H5S_MAX_RANK];
    const H5T_class_t class = H5Tget_class(type);
    const size_t size = H5Tget_size(type);
    if (class == H5T_ARRAY) {
        const int ndim = H5Tget_array_dims2(type, dims);
        if (ndim < 1 || !add_dims(m, ndim, dims)) return -1;
        const hid_t element = describe_type(m, H5Tget_super(type), plain);
        return element < 0 ? -1 : H5Tarray_create2(element, (unsigned)ndim, dims);
    }
    if (class == H5T_ENUM) {
        const hid_t number = describe_type(m, H5Tget_super(type), plain);
        if (number >= 0 && is_boolean(type)) m->type = 'u';
        return number;
    }
    if (size < 1 || size > 8) return -1;
    m->big = size > 1 && H5Tget_order(type) == H5T_ORDER_BE;
    if (class == H5T_FLOAT) {
        m->type = 'f';
        m->bytes = size <= 4 ? 4 : 8;
        *plain = H5Tequal(type, H5T_IEEE_F32LE) > 0 || H5Tequal(type, H5T_IEEE_F32BE) > 0 ||
                 H5Tequal(type, H5T_IEEE_F64LE) > 0 || H5Tequal(type, H5T_IEEE_F64BE) > 0;
        return native_type(m);
    }
    if (class != H5T_INTEGER && class != H5T_BITFIELD) return -1;
    m->type = class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2 ? 'i' : 'u';
    m->bytes = (int64_t)rounded_up_width(size);
    *plain = rounded_up_width(size) == size && H5Tget_offset(type) == 0 &&
             H5Tget_precision(type) == 8 * size && H5Tget_order(type) <= H5T_ORDER_BE;
    return class == H5T_INTEGER ? native_type(m) : H5Tget_native_type(type, H5T_DIR_ASCEND);
}

/* Checks that all numbers of a data set lie in this file and that there are the filters which unpack them, and finds
 * the rows of its chunks; *why is the refusal. */
static bool check_storage(oct_h5_message *m, hid_t options, oct_h5_refusal *why)
{
    char name[8];
    hsize_t chunk[H5S_MAX_RANK];
    size_t mappings = 0;
    const H5D_layout_t layout = H5Pget_layout(options);
    *why = OCT_H5_IS_ELSEWHERE;
    if (H5Pget_external_count(options) != 0) return false;
    if (layout == H5D_VIRTUAL && H5Pget_virtual_count(options, &mappings) < 0) return false;
    for (size_t i = 0; i < mappings; i++) /* a virtual data set may show others of this file, "." */
        if (H5Pget_virtual_filename(options, i, name, sizeof name) != 1 || name[0] != '.')
            return false;
    if (layout == H5D_CHUNKED && H5Pget_chunk(options, H5S_MAX_RANK, chunk) > 0)
        m->rows = chunk[0] < INT64_MAX ? (int64_t)chunk[0] : INT64_MAX;
    *why = OCT_H5_IS_FILTER;
    for (int i = 0; i < H5Pget_nfilters(options); i++) {
        size_t none = 0;
        const H5Z_filter_t id =
            H5Pget_filter2(options, (unsigned)i, NULL, &none, NULL, 0, NULL, NULL);
        if (id < 0 || H5Zfilter_avail(id) <= 0) return false;
    }
    return true;
}

/* Describes a data set; *memory: the type that it is read as. m->at: where its bytes are in the file, if they can be
 * read there as they are; -1: only the library can. A refusal ends the program, so nothing is closed. */
static bool describe_dataset(hid_t dataset, oct_h5_message *m, hid_t *memory, oct_h5_refusal *why)
{
    hsize_t dims[H5S_MAX_RANK];
    bool plain = false;
    const hid_t space = H5Dget_space(dataset), type = H5Dget_type(dataset);
    const hid_t options = H5Dget_create_plist(dataset);
    *m = (oct_h5_message){.kind = OCT_H5_OBJECT, .at = -1};
    *why = OCT_H5_IS_DIMENSIONS;
    const int ndim = H5Sget_simple_extent_dims(space, dims, NULL);
    if (ndim < 0 || H5Sget_simple_extent_type(space) == H5S_NULL || !add_dims(m, ndim, dims))
        return false;
    *why = OCT_H5_IS_TYPE;
    *memory = describe_type(m, type, &plain);
    if (*memory < 0 || !check_storage(m, options, why)) return false;
    if (plain && H5Pget_layout(options) == H5D_CONTIGUOUS && H5Dget_storage_size(dataset) > 0)
        m->at = (int64_t)H5Dget_offset(dataset);
    if (m->at < 0) m->big = 0; /* the library swaps the bytes that it reads */
    H5Pclose(options);
    H5Tclose(type);
    H5Sclose(space);
    return true;
}

/* LIST: all objects by their paths. */

typedef struct listing {
    char path[OCT_H5_PATH];
    int depth;
} listing;

static herr_t visit_object(hid_t group, const char *name, const H5L_info_t *info, void *user);

/* Sends what an object is and, of a group, all that is in it. */
static bool send_object(hid_t object, listing *l)
{
    oct_h5_message m = {.kind = OCT_H5_OBJECT, .type = 'g'};
    oct_h5_refusal why = OCT_H5_IS_UNREADABLE;
    hid_t memory;
    const H5I_type_t type = H5Iget_type(object);
    if (type != H5I_GROUP && (type != H5I_DATASET || !describe_dataset(object, &m, &memory, &why)))
        return send_refusal(why, l->path);
    snprintf(m.name, sizeof m.name, "%s", l->path);
    return send_bytes(&m, sizeof m) &&
           (type == H5I_DATASET ||
            H5Literate(object, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_object, l) >= 0);
}

/* Appends a name to the path, sends the object there, and cuts the path back. */
static herr_t visit_object(hid_t group, const char *name, const H5L_info_t *info, void *user)
{
    listing *l = user;
    const size_t length = strlen(l->path), left = sizeof l->path - length;
    bool done = false;
    if (info->type != H5L_TYPE_HARD) return send_refusal(OCT_H5_IS_LINK, name) ? 0 : -1;
    if (strlen(name) + 2 > left || l->depth == OCT_H5_DEPTH)
        return send_refusal(OCT_H5_IS_DEEP, name) ? 0 : -1;
    l->depth++;
    snprintf(l->path + length, left, "%s%s", length > 0 ? "/" : "", name);
    const hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    done = object >= 0 ? send_object(object, l) : send_refusal(OCT_H5_IS_UNREADABLE, l->path);
    if (object >= 0) H5Oclose(object);
    l->path[length] = '\0';
    l->depth--;
    return done ? 0 : -1;
}

static bool list_objects(hid_t file)
{
    static listing l;
    const oct_h5_message done = {.kind = OCT_H5_DONE};
    const hid_t root = H5Gopen2(file, "/", H5P_DEFAULT);
    if (root < 0 || H5Literate(root, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_object, &l) < 0)
        return send_refusal(OCT_H5_IS_UNREADABLE, l.path);
    return send_bytes(&done, sizeof done);
}

/* ARRAY and READ: one array. */

static struct {
    hid_t dataset, memory; /* memory: the type that numbers are read as */
    oct_h5_message description;
} array;

/* Opens the array that later requests read, and sends what it is. */
static bool open_array(hid_t file, const char *name)
{
    oct_h5_refusal why;
    const hid_t object = H5Oopen(file, name, H5P_DEFAULT);
    if (object < 0) return send_refusal(OCT_H5_IS_MISSING, "");
    if (H5Iget_type(object) != H5I_DATASET) return send_refusal(OCT_H5_IS_NO_ARRAY, "");
    array.dataset = object;
    if (!describe_dataset(object, &array.description, &array.memory, &why))
        return send_refusal(why, "");
    if (array.description.ndim == 0) return send_refusal(OCT_H5_IS_DIMENSIONS, "");
    return send_bytes(&array.description, sizeof array.description);
}

/* Sends `count` samples of the array, from `first` on. */
static bool send_samples(int64_t first, int64_t count)
{
    hsize_t begin[H5S_MAX_RANK] = {0}, dims[H5S_MAX_RANK];
    const oct_h5_message *d = &array.description;
    int64_t bytes = d->bytes;
    for (int i = 0; i < d->ndim; i++)
        if (__builtin_mul_overflow(bytes, i == 0 ? count : d->dim[i], &bytes) || bytes < 1)
            return false;
    if (bytes > BLOCK_MAX || first < 0 || first > d->dim[0] - count) return false;
    limit_memory(bytes);
    const hid_t space = H5Dget_space(array.dataset);
    const int ndim = H5Sget_simple_extent_dims(space, dims, NULL);
    begin[0] = (hsize_t)first;
    dims[0] = (hsize_t)count;
    void *block =
        mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const hid_t block_space = H5Screate_simple(ndim, dims, NULL);
    if (block == MAP_FAILED ||
        H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, NULL, dims, NULL) < 0 ||
        H5Dread(array.dataset, array.memory, block_space, space, H5P_DEFAULT, block) < 0)
        return send_refusal(OCT_H5_IS_UNREADABLE, "");
    const oct_h5_message m = {.kind = OCT_H5_DATA, .bytes = bytes};
    const bool sent = send_bytes(&m, sizeof m) && send_bytes(block, (size_t)bytes);
    munmap(block, (size_t)bytes);
    H5Sclose(block_space);
    H5Sclose(space);
    return sent;
}

/* Carries out a request (hdf5_wire.h); false: the conversation ends. */
static bool answer_request(const oct_h5_message *m)
{
    static hid_t file = -1;
    if (m->kind == OCT_H5_READ) return file >= 0 && send_samples(m->at, m->bytes);
    file_size = m->bytes;
    file = open_hdf5_file();
    if (file < 0) return send_refusal(OCT_H5_IS_NO_FILE, "");
    return m->kind == OCT_H5_ARRAY ? open_array(file, m->name) : list_objects(file);
}

/* It ends with the one who asks, and by a signal where a question takes too long. */
int main(int argc, char **argv)
{
    const struct itimerval time = {.it_value.tv_sec = CPU_SECONDS};
    const bool filtered = argc < 2 || strcmp(argv[1], "unconfined") != 0;
    const oct_h5_message hello = {.kind = OCT_H5_HELLO, .at = OCT_H5_PROTOCOL};
    oct_h5_message m;
    if (close_range(CHANNEL + 1, ~0U, 0) != 0)
        for (int fd = CHANNEL + 1; fd < sysconf(_SC_OPEN_MAX); fd++)
            close(fd);
    if (!confine_process(filtered)) return send_refusal(OCT_H5_IS_UNCONFINED, "");
    if (!send_bytes(&hello, sizeof hello)) return 0;
    while (receive_bytes(&m, sizeof m) && setitimer(ITIMER_PROF, &time, NULL) == 0 &&
           answer_request(&m)) {
    }
    return 0;
}
