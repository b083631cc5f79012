/* libzip finds members and inflates them. A stored one is read from the file itself, a sample at a time: it lies where
 * libzip stands after its first byte, and the checksum, which is compared over what will be read, proves that.
 *
 * A deflated member cannot hold more than 1032 times its own size, and one that is not small may not hold
 * more than 64 times that, which bounds what a lying directory can make us allocate. libzip's memory for a directory
 * is about six times the directory's size.
 */
#include "io/dataset/zip_file.h"

#include "core/base/mem.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zip.h>
#include <zlib.h>

enum { SHOWN = 8, DEFLATE_RATIO = 1032, TRUSTED_RATIO = 64, SMALL_BYTES = 64 << 20 };

struct oct_zip {
    const char *path;
    FILE *file; /* the archive's */
    int64_t size;
    zip_t *archive;
};

static oct_status damaged(const char *path, const char *why)
{
    return oct_fail(OCT_DATA, "%s: is no .npz file, or it is damaged or cut short (%s)", path, why);
}

static oct_status refused(const oct_zip *z, zip_error_t *error)
{
    const oct_status status = damaged(z->path, zip_error_strerror(error));
    zip_error_fini(error);
    return status;
}

const char *oct_zip_name(const oct_zip *zip, int64_t i)
{
    return zip_get_name(zip->archive, (zip_uint64_t)i, 0);
}

static oct_status check_names(const oct_zip *z)
{
    const int64_t count = zip_get_num_entries(z->archive, 0);
    for (int64_t i = 0; i < count; i++) {
        const char *name = oct_zip_name(z, i);
        if (!name) return damaged(z->path, "a member has no name that can be read");
        OCT_CHECK(zip_name_locate(z->archive, name, 0) == i, OCT_DATA,
                  "%s: holds %s twice, and programs differ in which of them they take; write the "
                  "file again "
                  "with each array once",
                  z->path, oct_show(name, strlen(name)).text);
    }
    return OCT_OK;
}

static oct_status open_archive(oct_zip *z)
{
    oct_span span;
    zip_error_t error;
    zip_error_init(&error);
    OCT_TRY(oct_span_open(&span, z->path));
    z->size = span.size;
    z->file = fdopen(span.fd, "rb");
    if (!z->file) {
        oct_span_close(&span);
        return oct_fail(OCT_RESOURCE, "%s: out of memory for reading it", z->path);
    }
    zip_source_t *source = zip_source_filep_create(z->file, 0, 0, &error); /* owns the file */
    if (!source) {
        fclose(z->file);
        return refused(z, &error);
    }
    z->archive = zip_open_from_source(source, ZIP_RDONLY, &error);
    if (!z->archive) {
        zip_source_free(source);
        return refused(z, &error);
    }
    return check_names(z);
}

oct_status oct_zip_open(oct_zip **zip, const char *path)
{
    OCT_TRY(oct_alloc(zip, 1, sizeof **zip));
    (*zip)->path = path;
    const oct_status status = open_archive(*zip);
    if (status != OCT_OK) oct_zip_close(zip);
    return status;
}

void oct_zip_close(oct_zip **zip)
{
    if (*zip && (*zip)->archive) zip_discard((*zip)->archive);
    oct_free(zip);
}

static oct_status missing(const oct_zip *z, const char *member)
{
    oct_text names = {0};
    const char *name;
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < SHOWN && status == OCT_OK && (name = oct_zip_name(z, i)); i++)
        status =
            oct_text_add(&names, "%s%s", i ? ", " : ", but ", oct_show(name, strlen(name)).text);
    if (status == OCT_OK)
        status = oct_fail(OCT_DATA,
                          "%s: holds no %s%s; data.images and data.labels say what the arrays are "
                          "called (octet run: --images)",
                          z->path, oct_show(member, strlen(member)).text,
                          names.length ? names.data : "");
    oct_text_free(&names);
    return status;
}

static oct_status check_entry(const oct_zip *z, const char *member, const zip_stat_t *e)
{
    const oct_shown name = oct_show(member, strlen(member));
    const zip_uint64_t all = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD |
                             ZIP_STAT_CRC | ZIP_STAT_ENCRYPTION_METHOD;
    if ((e->valid & all) != all) return damaged(z->path, name.text);
    OCT_CHECK(e->encryption_method == ZIP_EM_NONE, OCT_DATA, "%s: %s is encrypted", z->path,
              name.text);
    OCT_CHECK(e->comp_method == ZIP_CM_STORE || e->comp_method == ZIP_CM_DEFLATE, OCT_DATA,
              "%s: %s is packed in a way (%d) that is not read; write it with numpy.savez", z->path,
              name.text, e->comp_method);
    const bool stored = e->comp_method == ZIP_CM_STORE;
    if (e->comp_size > (zip_uint64_t)z->size || (stored && e->comp_size != e->size))
        return damaged(z->path, name.text);
    OCT_CHECK(e->size / DEFLATE_RATIO <= e->comp_size &&
                  (stored || e->size <= SMALL_BYTES || e->size / TRUSTED_RATIO <= e->comp_size),
              OCT_DATA,
              "%s: %s says that its %" PRIu64 " bytes hold %" PRIu64
              "; write it with numpy.savez if that is so",
              z->path, name.text, (uint64_t)e->comp_size, (uint64_t)e->size);
    return OCT_OK;
}

/* Finds the bytes of a stored member in the file. */
static oct_status find_stored(const oct_zip *z, zip_file_t *in, oct_span *span)
{
    uint8_t first;
    const zip_int64_t got = zip_fread(in, &first, 1);
    if (got < 0) return damaged(z->path, zip_file_strerror(in));
    span->begin = (int64_t)ftello(z->file) - got;
    span->fd = fcntl(fileno(z->file), F_DUPFD_CLOEXEC, 0);
    OCT_CHECK(span->fd >= 0, OCT_RESOURCE, "%s: too many open files", z->path);
    return OCT_OK;
}

static oct_status inflate_member(const oct_zip *z, zip_file_t *in, oct_span *span)
{
    OCT_TRY(oct_mem_check_available(SMALL_BYTES / 64)); /* libzip's buffers and zlib's window */
    OCT_TRY(oct_alloc(&span->memory, (size_t)span->size, 1));
    const zip_int64_t got = zip_fread(in, span->memory, (zip_uint64_t)span->size);
    return got == span->size ? OCT_OK : damaged(z->path, zip_file_strerror(in));
}

static oct_status check_sum(const oct_zip *z, const char *member, const oct_span *span,
                            uint32_t wanted)
{
    uint8_t piece[1 << 14];
    uLong sum = crc32(0, NULL, 0);
    for (int64_t at = 0; at < span->size;) {
        const int64_t left = span->size - at,
                      n = left < (int64_t)sizeof piece ? left : (int64_t)sizeof piece;
        OCT_TRY(oct_span_read(span, at, piece, (size_t)n, z->path));
        sum = crc32(sum, piece, (uInt)n);
        at += n;
    }
    OCT_CHECK(sum == wanted, OCT_DATA,
              "%s: %s is damaged: its checksum (CRC-32) is not the one of the archive; copy the "
              "file again",
              z->path, oct_show(member, strlen(member)).text);
    return OCT_OK;
}

oct_status oct_zip_member(oct_zip *zip, const char *member, oct_span *span)
{
    zip_stat_t e;
    *span = OCT_SPAN_NONE;
    const zip_int64_t at = zip_name_locate(zip->archive, member, 0);
    if (at < 0) return missing(zip, member);
    if (zip_stat_index(zip->archive, (zip_uint64_t)at, 0, &e) != 0)
        return damaged(zip->path, zip_strerror(zip->archive));
    OCT_TRY(check_entry(zip, member, &e));
    zip_file_t *in = zip_fopen_index(zip->archive, (zip_uint64_t)at, 0);
    if (!in) return damaged(zip->path, zip_strerror(zip->archive));
    span->size = (int64_t)e.size;
    oct_status status =
        e.comp_method == ZIP_CM_STORE ? find_stored(zip, in, span) : inflate_member(zip, in, span);
    zip_fclose(in);
    if (status == OCT_OK) status = check_sum(zip, member, span, e.crc);
    if (status != OCT_OK) oct_span_close(span);
    return status;
}
