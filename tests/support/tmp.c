/* Temporary folders; everything that goes wrong here fails the test. */
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void oct_tmp_create(oct_tmp *tmp)
{
    const char *base = getenv("TMPDIR");
    *tmp = (oct_tmp){.next = 0};
    int length = snprintf(tmp->path, sizeof(tmp->path), "%s/octet-test-XXXXXX",
                          base && *base ? base : "/tmp");
    cr_assert(length > 0 && (size_t)length < sizeof(tmp->path), "TMPDIR is too long");
    cr_assert(mkdtemp(tmp->path) != NULL, "%s: %s", tmp->path, strerror(errno));
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

void oct_tmp_remove(oct_tmp *tmp)
{
    if (tmp->path[0]) nftw(tmp->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    tmp->path[0] = '\0';
}

const char *oct_tmp_path(oct_tmp *tmp, const char *name)
{
    char *path = tmp->names[tmp->next++ % 8];
    size_t folder = strlen(tmp->path), length = strlen(name);
    cr_assert(folder + 1 + length < sizeof(tmp->names[0]), "%s: name too long", name);
    memcpy(path, tmp->path, folder);
    path[folder] = '/';
    memcpy(path + folder + 1, name, length + 1);
    return path;
}

const char *oct_tmp_write(oct_tmp *tmp, const char *name, const void *data, size_t bytes)
{
    const char *path = oct_tmp_path(tmp, name);
    char folder[512];
    snprintf(folder, sizeof(folder), "%s", path);
    for (char *at = folder + strlen(tmp->path) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        cr_assert(mkdir(folder, 0700) == 0 || errno == EEXIST, "%s: %s", folder, strerror(errno));
        *at = '/';
    }
    FILE *file = fopen(path, "wb");
    cr_assert(file != NULL, "%s: %s", path, strerror(errno));
    cr_assert(fwrite(data, 1, bytes, file) == bytes, "%s: %s", path, strerror(errno));
    cr_assert(fclose(file) == 0, "%s: %s", path, strerror(errno));
    return path;
}

const char *oct_tmp_write_text(oct_tmp *tmp, const char *name, const char *text)
{
    return oct_tmp_write(tmp, name, text, strlen(text));
}
