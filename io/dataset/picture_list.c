/* Pictures in files of their own: the index of their names, how they are read, and the index as bytes for other ranks. */
#include "io/dataset/picture_list.h"

#include "core/base/mem.h"
#include "io/image/decode.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

oct_status oct_pictures_begin(oct_dataset *data, const oct_dataset_source *source,
                              const char *folder)
{
    oct_picture_list *list;
    OCT_CHECK(source->channels != 2, OCT_USAGE,
              "data.channels: 2; pictures have 1 (grey), 3 (colour) or 4 (colour and alpha)");
    OCT_TRY(oct_alloc(&data->store, 1, sizeof *list));
    list = data->store;
    list->channels = source->channels;
    list->maps = source->goal == OCT_GOAL_MAP;
    data->dtype = OCT_U8;
    data->c = source->channels;
    return oct_strdup(&list->folder, folder);
}

static oct_status add_name(oct_picture_list *list, const char *name)
{
    const size_t length = strlen(name) + 1;
    OCT_TRY(oct_grow(&list->names, &list->names_capacity, list->names_bytes + length, 1));
    memcpy(list->names + list->names_bytes, name, length);
    list->names_bytes += length;
    return OCT_OK;
}

oct_status oct_pictures_add(oct_picture_list *list, const char *name, const char *map,
                            int64_t bytes)
{
    const size_t count = (size_t)list->count + 1;
    OCT_TRY(oct_grow(&list->picture, &list->capacity, count, sizeof *list->picture));
    list->picture[list->count] = (struct oct_picture){list->names_bytes, bytes};
    OCT_TRY(add_name(list, name));
    if (list->maps) OCT_TRY(add_name(list, map));
    list->count++;
    return OCT_OK;
}

static const char *picture_name(const oct_picture_list *list, int64_t index)
{
    return list->names + list->picture[index].name;
}

static oct_status read_map(const oct_dataset *data, const char *path, oct_image *map)
{
    OCT_TRY(oct_image_read(map, path, OCT_CLASS_MAP));
    const int64_t pixels = map->h * map->w;
    int32_t *numbers = map->data;
    for (int64_t i = 0; i < pixels; i++) {
        if (oct_is_no_class(data, numbers[i])) numbers[i] = -1;
        OCT_CHECK(numbers[i] < data->classes, OCT_DATA,
                  "%s: pixel (%" PRId64 ", %" PRId64 ") has class %d, but there are %" PRId64
                  "; raise data.classes or mend the map (255 is no class)",
                  path, i / map->w, i % map->w, (int)numbers[i], data->classes);
    }
    return OCT_OK;
}

const char *oct_pictures_sample_name(const oct_dataset *data, int64_t index)
{
    return picture_name(data->store, index);
}

oct_status oct_pictures_read(const oct_dataset *data, int64_t index, oct_image *image,
                             oct_image *map)
{
    const oct_picture_list *list = data->store;
    const char *name = picture_name(list, index), *map_name = name + strlen(name) + 1;
    oct_path path;
    OCT_TRY(oct_path_make(&path, "%s/%s", list->folder, name));
    OCT_TRY(oct_image_read(image, path.text, list->channels));
    if (!list->maps) return OCT_OK;
    OCT_TRY(oct_path_make(&path, "%s/%s", list->folder, map_name));
    OCT_TRY(read_map(data, path.text, map));
    OCT_CHECK(map->h == image->h && map->w == image->w, OCT_DATA,
              "%s: is %" PRId64 "x%" PRId64 ", but its picture is %" PRId64 "x%" PRId64, path.text,
              map->h, map->w, image->h, image->w);
    return OCT_OK;
}

void oct_pictures_close(oct_dataset *data)
{
    oct_picture_list *list = data->store;
    if (!list) return;
    OCT_FREE_ALL(&list->folder, &list->names, &list->picture, &data->store);
}

/* Digests names and sizes of the files, but not where their folder lies. */
void oct_pictures_digest(const oct_dataset *data, oct_sha256_state *state)
{
    const oct_picture_list *list = data->store;
    for (int64_t i = 0; i < data->count; i++) {
        const size_t end = i + 1 < list->count ? list->picture[i + 1].name : list->names_bytes;
        oct_sha256_add(state, picture_name(list, i), end - list->picture[i].name);
        oct_sha256_add(state, &list->picture[i].bytes, sizeof list->picture[i].bytes);
    }
}

/* The index as bytes: these numbers, the pictures, the folder, the names. */
typedef struct packed_head {
    int64_t count, channels, maps;
    size_t folder_bytes, names_bytes;
} packed_head;

oct_status oct_pictures_pack(const oct_dataset *data, void **bytes, size_t *size)
{
    const oct_picture_list *list = data->store;
    const packed_head head = {list->count, list->channels, list->maps, strlen(list->folder) + 1,
                              list->names_bytes};
    const size_t pictures = (size_t)list->count * sizeof *list->picture;
    *size = sizeof head + pictures + head.folder_bytes + head.names_bytes;
    OCT_TRY(oct_alloc(bytes, *size, 1));
    char *at = *bytes;
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    if (pictures > 0) memcpy(at, list->picture, pictures);
    memcpy(at + pictures, list->folder, head.folder_bytes);
    if (head.names_bytes > 0)
        memcpy(at + pictures + head.folder_bytes, list->names, head.names_bytes);
    return OCT_OK;
}

oct_status oct_pictures_unpack(oct_dataset *data, const void *bytes, size_t size)
{
    packed_head head;
    OCT_ASSERT(size >= sizeof head);
    memcpy(&head, bytes, sizeof head);
    OCT_TRY(oct_alloc(&data->store, 1, sizeof(oct_picture_list)));
    oct_picture_list *list = data->store;
    list->channels = head.channels;
    list->maps = head.maps;
    const char *at = (const char *)bytes + sizeof head;
    const size_t pictures = (size_t)head.count * sizeof *list->picture;
    OCT_TRY(oct_strdup(&list->folder, at + pictures));
    OCT_TRY(oct_alloc(&list->picture, (size_t)head.count, sizeof *list->picture));
    OCT_TRY(oct_alloc(&list->names, head.names_bytes, 1));
    memcpy(list->picture, at, pictures);
    memcpy(list->names, at + pictures + head.folder_bytes, head.names_bytes);
    list->names_bytes = head.names_bytes;
    list->count = head.count;
    return OCT_OK;
}

int oct_compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool oct_is_picture_name(const char *name)
{
    static const char *const extensions[] = {".jpg", ".jpeg", ".png"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < OCT_COUNT(extensions); i++)
        if (strcasecmp(dot, extensions[i]) == 0) return true;
    return false;
}

oct_status oct_check_inside(const char *root, const char *path)
{
    char real[PATH_MAX];
    const size_t length = strlen(root);
    OCT_CHECK(realpath(path, real), OCT_DATA, "%s: %s", path, strerror(errno));
    OCT_CHECK(strncmp(real, root, length) == 0 &&
                  (root[length - 1] == '/' || real[length] == '/' || real[length] == '\0'),
              OCT_DATA,
              "%s: is a link that leads out of the data set's folder; put the files themselves "
              "there",
              path);
    return OCT_OK;
}

oct_status oct_picture_check(const char *root, const char *path, int64_t *bytes)
{
    struct stat info;
    OCT_CHECK(lstat(path, &info) == 0, OCT_DATA, "%s: %s", path, strerror(errno));
    if (S_ISLNK(info.st_mode)) {
        OCT_TRY(oct_check_inside(root, path));
        OCT_CHECK(stat(path, &info) == 0, OCT_DATA, "%s: %s", path, strerror(errno));
    }
    *bytes = info.st_size;
    return oct_file_check_regular(path, &info);
}
