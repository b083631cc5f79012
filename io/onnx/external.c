#include "io/onnx/external.h"

#include "core/base/mem.h"
#include "core/base/text.h"
#include "io/file/array.h"
#include "io/file/file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static oct_status outside(const oct_external *x, const oct_external_piece *p)
{
    return oct_fail(
        OCT_DATA,
        "%s: the data of '%s' are in '%s', which is no file below the network's folder; "
        "put the file itself there, or save the network as one file",
        x->path, oct_show(p->name, strlen(p->name)).text,
        oct_show(p->location, strlen(p->location)).text);
}

/* The name alone: relative, and never upwards. */
static bool is_safe_relative_path(const char *location)
{
    if (location[0] == '\0' || location[0] == '/') return false;
    for (const char *at = location; at;) {
        const size_t length = strcspn(at, "/");
        if (length == 2 && memcmp(at, "..", 2) == 0) return false;
        at = at[length] == '/' ? at + length + 1 : NULL;
    }
    return true;
}

/* Sets `real` to the file's true path when that lies below the folder's. */
static oct_status resolve(const oct_external *x, const oct_external_piece *p, char real[PATH_MAX])
{
    char root[PATH_MAX], path[PATH_MAX];
    if (!is_safe_relative_path(p->location) || !realpath(x->folder, root)) return outside(x, p);
    const int length = snprintf(path, sizeof path, "%s/%s", root, p->location);
    if (length < 0 || (size_t)length >= sizeof path) return outside(x, p);
    OCT_CHECK(realpath(path, real), OCT_DATA, "%s: the data of '%s' are missing: %s: %s", x->path,
              oct_show(p->name, strlen(p->name)).text,
              oct_show(p->location, strlen(p->location)).text, strerror(errno));
    const size_t below = strlen(root);
    if (strncmp(real, root, below) != 0 || (root[below - 1] != '/' && real[below] != '/'))
        return outside(x, p);
    return OCT_OK;
}

oct_status oct_external_add(oct_external *x, oct_external_piece piece)
{
    char real[PATH_MAX];
    struct stat info;
    OCT_TRY(resolve(x, &piece, real));
    OCT_CHECK(stat(real, &info) == 0, OCT_DATA, "%s: %s", real, strerror(errno));
    OCT_TRY(oct_file_check_regular(real, &info));
    OCT_CHECK(piece.offset >= 0 && piece.length >= 0 && piece.offset <= info.st_size &&
                  piece.length <= info.st_size - piece.offset,
              OCT_DATA,
              "%s: the data of '%s' are %" PRId64 " bytes at %" PRId64 " of %s, which has %" PRId64
              "; it is damaged or cut short",
              x->path, oct_show(piece.name, strlen(piece.name)).text, piece.length, piece.offset,
              oct_show(piece.location, strlen(piece.location)).text, (int64_t)info.st_size);
    piece.device = info.st_dev;
    piece.inode = info.st_ino;
    OCT_TRY(oct_grow(&x->pieces, &x->capacity, x->count + 1, sizeof *x->pieces));
    x->pieces[x->count++] = piece;
    return OCT_OK;
}

static bool same_file(const oct_external_piece *a, const oct_external_piece *b)
{
    return a->device == b->device && a->inode == b->inode;
}

static int by_place(const void *left, const void *right)
{
    const oct_external_piece *a = left, *b = right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    if (a->inode != b->inode) return a->inode < b->inode ? -1 : 1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

oct_status oct_external_check(oct_external *x)
{
    const oct_external_piece *last = NULL;
    if (x->count > 1) qsort(x->pieces, x->count, sizeof *x->pieces, by_place);
    for (size_t i = 0; i < x->count; i++) {
        const oct_external_piece *p = &x->pieces[i];
        if (p->length == 0) continue;
        OCT_CHECK(!last || !same_file(last, p) || last->offset + last->length <= p->offset,
                  OCT_DATA, "%s: the data of '%s' and '%s' overlap in %s; it is damaged", x->path,
                  oct_show(last->name, strlen(last->name)).text,
                  oct_show(p->name, strlen(p->name)).text,
                  oct_show(p->location, strlen(p->location)).text);
        last = p;
    }
    return OCT_OK;
}

oct_status oct_external_read(const oct_external *x, const oct_external_piece *piece, void *bytes)
{
    char real[PATH_MAX];
    oct_span span = OCT_SPAN_NONE;
    OCT_TRY(resolve(x, piece, real));
    OCT_TRY(oct_span_open(&span, real));
    const oct_status status =
        oct_span_read(&span, piece->offset, bytes, (size_t)piece->length, real);
    oct_span_close(&span);
    return status;
}

void oct_external_free(oct_external *x)
{
    oct_free(&x->pieces);
    x->count = x->capacity = 0;
}
