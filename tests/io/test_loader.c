/* Batches: the same bits on any number of ranks, every sample once an epoch, and the augmentation
 * against a slow reference that works pixel by pixel. */
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "io/batch/loader.h"
#include "tests/support/check_tensor.h"

#include <omp.h>
#include <unistd.h>

enum { COUNT = 53, H = 7, W = 5, C = 3, IMAGE = H * W * C, BATCH = 20, LEAF = 3 };

/* Every image is different noise; the label is the sample's number. */
static oct_dataset make_data(int64_t count)
{
    const oct_image sample = {.dtype = OCT_U8, .h = H, .w = W, .c = C};
    oct_dataset data;
    cr_assert(oct_memory_make(&data, count, &sample, 200) == OCT_OK);
    for (int64_t i = 0; i < count * IMAGE; i++) {
        uint32_t words[4];
        oct_philox(9, OCT_STREAM_TEST, (uint64_t)i, 0, words);
        ((uint8_t *)data.store)[i] = (uint8_t)words[0];
    }
    for (int64_t i = 0; i < count; i++)
        data.labels[i] = (int32_t)i;
    return data;
}

static void make_loader(oct_loader *loader, const oct_dataset *data)
{
    cr_assert(oct_loader_init(loader, data) == OCT_OK);
    loader->seed = 77;
    loader->batch = BATCH;
    loader->leaf = LEAF;
    loader->crop_padding = 2;
    loader->flip = true;
    loader->normaliser.count = C;
    for (int c = 0; c < C; c++) {
        loader->normaliser.mean[c] = 0.3f + 0.1f * (float)c;
        loader->normaliser.std[c] = 0.2f + 0.05f * (float)c;
    }
}

/* The whole batch of a step, fetched share by share. */
static void fetch_all(oct_loader *loader, int64_t epoch, int64_t step, int ranks, float *images,
                      int32_t *labels)
{
    int64_t samples = oct_loader_samples(loader, step);
    for (int rank = 0; rank < ranks; rank++) {
        oct_leaves leaves = oct_leaves_split(samples, LEAF, rank, ranks);
        int64_t first = oct_leaves_first_sample(&leaves);
        oct_goals goals;
        cr_assert(oct_loader_fetch(loader, epoch, step, &leaves, images + first * IMAGE, &goals) ==
                  OCT_OK);
        memcpy(labels + first, goals.labels,
               (size_t)oct_leaves_local_samples(&leaves) * sizeof *labels);
    }
}

Test(loader, any_number_of_ranks_gives_the_same_batch)
{
    oct_dataset data = make_data(COUNT);
    for (int64_t step = 0; step < 3; step++) {
        static float want[BATCH * IMAGE], got[BATCH * IMAGE];
        int32_t want_labels[BATCH], got_labels[BATCH];
        oct_loader loader;
        make_loader(&loader, &data);
        int64_t samples = oct_loader_samples(&loader, step);
        fetch_all(&loader, 2, step, 1, want, want_labels);
        oct_loader_deinit(&loader);
        for (int ranks = 2; ranks <= 9; ranks++) {
            memset(got, 0xff, sizeof got);
            make_loader(&loader, &data);
            fetch_all(&loader, 2, step, ranks, got, got_labels);
            oct_loader_deinit(&loader);
            oct_check_bytes(got, want, samples * IMAGE * (int64_t)sizeof(float), "images");
            oct_check_bytes(got_labels, want_labels, samples * (int64_t)sizeof(int32_t), "labels");
        }
    }
    oct_dataset_close(&data);
}

Test(loader, nothing_is_remembered_between_fetches)
{
    static float want[BATCH * IMAGE], got[BATCH * IMAGE];
    int32_t want_labels[BATCH], got_labels[BATCH];
    oct_dataset data = make_data(COUNT);
    oct_loader loader;
    make_loader(&loader, &data);
    fetch_all(&loader, 4, 1, 1, want, want_labels);
    fetch_all(&loader, 0, 0, 1, got, got_labels);
    fetch_all(&loader, 4, 1, 1, got, got_labels);
    oct_check_bits_f32(got, want, BATCH * IMAGE, "images");
    oct_check_bytes(got_labels, want_labels, sizeof want_labels, "labels");
    oct_loader_deinit(&loader);
    oct_dataset_close(&data);
}

static void count_epoch(oct_loader *loader, int64_t epoch, int *seen, int32_t *order)
{
    static float images[BATCH * IMAGE];
    int32_t labels[BATCH];
    int64_t at = 0;
    memset(seen, 0, COUNT * sizeof *seen);
    for (int64_t step = 0; step < oct_loader_steps(loader); step++) {
        fetch_all(loader, epoch, step, 1, images, labels);
        for (int64_t i = 0; i < oct_loader_samples(loader, step); i++) {
            seen[labels[i]]++;
            order[at++] = labels[i];
        }
    }
}

Test(loader, every_sample_comes_once_an_epoch_and_epochs_differ)
{
    oct_dataset data = make_data(COUNT);
    oct_loader loader;
    int seen[COUNT];
    int32_t order[3][COUNT] = {0};
    make_loader(&loader, &data);
    cr_assert(oct_loader_steps(&loader) == 3 && oct_loader_samples(&loader, 2) == 13);
    for (int epoch = 0; epoch < 2; epoch++) {
        count_epoch(&loader, epoch, seen, order[epoch]);
        for (int i = 0; i < COUNT; i++)
            cr_assert(seen[i] == 1, "sample %d came %d times", i, seen[i]);
    }
    cr_assert(memcmp(order[0], order[1], sizeof order[0]) != 0);
    loader.seed = 78;
    loader.order_epoch[0] = -1;
    count_epoch(&loader, 0, seen, order[2]);
    cr_assert(memcmp(order[0], order[2], sizeof order[0]) != 0);
    oct_loader_deinit(&loader);
    oct_dataset_close(&data);
}

Test(loader, drop_last_leaves_out_the_short_batch)
{
    oct_dataset data = make_data(COUNT);
    oct_loader loader;
    int seen[COUNT], once = 0;
    int32_t order[COUNT];
    make_loader(&loader, &data);
    loader.drop_last = true;
    cr_assert(oct_loader_steps(&loader) == 2);
    count_epoch(&loader, 0, seen, order);
    for (int i = 0; i < COUNT; i++)
        once += seen[i];
    cr_assert(once == 40);
    loader.batch = 60;
    cr_assert(oct_loader_steps(&loader) == 0);
    loader.drop_last = false;
    cr_assert(oct_loader_steps(&loader) == 1 && oct_loader_samples(&loader, 0) == COUNT);
    oct_loader_deinit(&loader);
    oct_dataset_close(&data);
}

Test(loader, without_shuffling_the_order_is_that_of_the_data)
{
    oct_dataset data = make_data(COUNT);
    oct_loader loader;
    int seen[COUNT];
    int32_t order[COUNT];
    make_loader(&loader, &data);
    loader.shuffle = false;
    count_epoch(&loader, 5, seen, order);
    for (int i = 0; i < COUNT; i++)
        cr_assert(order[i] == i);
    oct_loader_deinit(&loader);
    oct_dataset_close(&data);
}

/* Pixel (y, x) of the augmented image: from a padded, normalised copy, cropped, then mirrored. */
static void slow_image(const oct_loader *loader, int64_t sample, const uint32_t words[4],
                       float *out)
{
    enum { MAX_PAD = 9 };
    static float padded[H + 2 * MAX_PAD][W + 2 * MAX_PAD][C];
    int p = loader->crop_padding;
    int top = (int)oct_below(words[1], (uint32_t)(2 * p + 1));
    int left = (int)oct_below(words[2], (uint32_t)(2 * p + 1));
    bool flip = loader->flip && words[0] >> 31;
    memset(padded, 0, sizeof padded);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            oct_normalise((const uint8_t *)loader->data->store + sample * IMAGE + (y * W + x) * C,
                          1, C, loader->normaliser.mean, loader->normaliser.std,
                          padded[y + p][x + p]);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            memcpy(out + (y * W + x) * C, padded[top + y][left + (flip ? W - 1 - x : x)],
                   C * sizeof(float));
}

static void check_against_slow(int padding, bool flip)
{
    static float got[BATCH * IMAGE], want[IMAGE];
    int32_t labels[BATCH];
    oct_dataset data = make_data(COUNT);
    oct_loader loader;
    make_loader(&loader, &data);
    loader.crop_padding = padding;
    loader.flip = flip;
    const int64_t epoch = 3, step = 2, samples = oct_loader_samples(&loader, step);
    fetch_all(&loader, epoch, step, 1, got, labels);
    for (int64_t i = 0; i < samples; i++) {
        uint32_t words[4];
        oct_philox(loader.seed, OCT_STREAM_AUGMENT, (uint64_t)(epoch * COUNT + step * BATCH + i), 0,
                   words);
        slow_image(&loader, labels[i], words, want);
        oct_check_bits_f32(got + i * IMAGE, want, IMAGE, "augmented image");
    }
    oct_loader_deinit(&loader);
    oct_dataset_close(&data);
}

Test(loader, crop_and_flip_are_those_of_a_slow_reference)
{
    check_against_slow(0, false);
    check_against_slow(0, true);
    check_against_slow(1, false);
    check_against_slow(2, true);
    check_against_slow(9, true); /* more than the image: some crops are all padding */
}

Test(loader, normalisation_is_the_formula_in_float)
{
    uint8_t bytes[256 * 3];
    float out[256 * 3], mean[3] = {0.4914f, 0.4822f, 0.4465f}, std[3] = {0.247f, 0.2435f, 0.2616f};
    for (int i = 0; i < 256 * 3; i++)
        bytes[i] = (uint8_t)(i / 3);
    oct_normalise(bytes, 256, 3, mean, std, out);
    for (int i = 0; i < 256 * 3; i++) {
        volatile float unit = (float)bytes[i] * (1.0f / 255.0f);
        volatile float centred = unit - mean[i % 3];
        float want = centred * (1.0f / std[i % 3]);
        oct_check_bits_f32(&out[i], &want, 1, "normalised");
    }
    oct_normalise(NULL, 0, 3, mean, std, NULL);
}

Test(loader, a_rank_without_leaves_fetches_nothing)
{
    oct_dataset data = make_data(2);
    oct_loader loader;
    make_loader(&loader, &data);
    oct_leaves leaves = oct_leaves_split(2, LEAF, 0, 3);
    cr_assert(leaves.local == 0);
    oct_goals goals;
    cr_assert(oct_loader_fetch(&loader, 0, 0, &leaves, NULL, &goals) == OCT_OK);
    oct_loader_deinit(&loader);
    oct_dataset_close(&data);
}

Test(loader, leaves_of_another_batch_and_steps_beyond_the_epoch_are_defects)
{
    oct_dataset data = make_data(COUNT);
    oct_loader loader;
    make_loader(&loader, &data);
    oct_leaves full = oct_leaves_split(BATCH, LEAF, 0, 1);
    oct_leaves other_leaf = oct_leaves_split(BATCH, LEAF + 1, 0, 1);
    oct_goals goals;
    cr_assert(oct_loader_fetch(&loader, 0, 2, &full, NULL, &goals) == OCT_DEFECT);
    cr_assert(oct_loader_fetch(&loader, 0, 0, &other_leaf, NULL, &goals) == OCT_DEFECT);
    cr_assert(oct_loader_fetch(&loader, 0, 3, &full, NULL, &goals) == OCT_DEFECT);
    cr_assert(oct_loader_fetch(&loader, 0, -1, &full, NULL, &goals) == OCT_DEFECT);
    oct_loader_deinit(&loader);
    oct_dataset_close(&data);
}

/* A format of samples of any type and number of channels, with maps. */
enum { WIDE = 7, MAPPED = 20 };

static oct_status read_wide(const oct_dataset *data, int64_t index, oct_image *image,
                            oct_image *map)
{
    cr_assert((map != NULL) == (data->goal == OCT_GOAL_MAP));
    OCT_CHECK(index != 13, OCT_DATA, "sample 13: is damaged");
    OCT_CHECK(index != 17, OCT_DATA, "sample 17: is damaged too");
    OCT_TRY(oct_image_resize(image, data->dtype, H, W, WIDE));
    for (int64_t i = 0; i < oct_image_numel(image); i++) {
        if (data->dtype == OCT_F32)
            ((float *)image->data)[i] = (float)(index * 1000 + i) * 0.37f;
        else
            ((uint8_t *)image->data)[i] = (uint8_t)(index * 57 + i * 3);
    }
    if (!map) return OCT_OK;
    OCT_TRY(oct_image_resize(map, OCT_S32, H, W, 1));
    for (int32_t i = 0; i < H * W; i++)
        ((int32_t *)map->data)[i] = (int32_t)index * 40 + i;
    return OCT_OK;
}

static const oct_dataset_format wide_format = {.name = "wide", .read = read_wide};

/* The same, in a time of its own for each sample, from what seems to be files. */
static oct_status read_slowly(const oct_dataset *data, int64_t index, oct_image *image,
                              oct_image *map)
{
    usleep((useconds_t)(index * 37 % 11) * 100);
    return read_wide(data, index, image, map);
}

static const oct_dataset_format slow_format = {
    .name = "slow", .read = read_slowly, .reads_files = true};

static oct_dataset wide_data(oct_dtype dtype, oct_goal_kind goal)
{
    oct_dataset data = {.format = &wide_format, .count = MAPPED, .dtype = dtype, .goal = goal};
    data.read_h = H;
    data.read_w = W;
    data.read_c = WIDE;
    oct_dataset_resize(&data, H, W, WIDE);
    if (goal == OCT_GOAL_MAP) data.classes = MAPPED * 40;
    return data;
}

Test(loader, one_mean_holds_for_any_number_of_channels_of_bytes_signed_bytes_and_floats)
{
    static const oct_dtype dtypes[] = {OCT_U8, OCT_S8, OCT_F32};
    static float got[H * W * WIDE];
    for (size_t d = 0; d < 3; d++) {
        const oct_dataset data = wide_data(dtypes[d], OCT_GOAL_INPUT);
        oct_loader loader;
        oct_goals goals;
        cr_assert(oct_loader_init(&loader, &data) == OCT_OK);
        loader.normaliser = (oct_normaliser){.count = 1, .mean = {0.3f}, .std = {0.7f}};
        cr_assert(oct_loader_read(&loader, 5, 1, got, &goals) == OCT_OK);
        cr_assert(goals.values == got && goals.labels == NULL);
        for (int i = 0; i < H * W * WIDE; i++) {
            const uint8_t byte = (uint8_t)(5 * 57 + i * 3);
            volatile float x = (float)(5 * 1000 + i) * 0.37f;
            if (dtypes[d] == OCT_U8) x = (float)byte * (1.0f / 255.0f);
            if (dtypes[d] == OCT_S8) x = (float)(int8_t)byte * (1.0f / 128.0f);
            volatile float centred = x - 0.3f;
            const float want = centred * (1.0f / 0.7f);
            oct_check_bits_f32(&got[i], &want, 1, "normalised");
        }
        oct_loader_deinit(&loader);
    }
}

Test(loader, a_map_moves_with_its_image_and_is_ignored_outside)
{
    enum { BESIDE = -1 };
    static float images[12 * H * W * WIDE];
    const oct_dataset data = wide_data(OCT_F32, OCT_GOAL_MAP);
    const oct_leaves leaves = oct_leaves_split(12, 3, 0, 1);
    oct_loader loader;
    oct_goals goals;
    cr_assert(oct_loader_init(&loader, &data) == OCT_OK);
    loader.batch = 12;
    loader.leaf = 3;
    loader.shuffle = false;
    loader.flip = true;
    loader.crop_padding = 2;
    loader.normaliser.mean[0] = -1; /* so that no value of an image is 0 */
    cr_assert(oct_loader_fetch(&loader, 0, 0, &leaves, images, &goals) == OCT_OK);
    int beside = 0;
    for (int64_t i = 0; i < 12; i++)
        for (int64_t p = 0; p < H * W; p++) {
            const float x = images[(i * H * W + p) * WIDE];
            const int32_t class = goals.labels[i * H * W + p];
            if (class == BESIDE) {
                cr_assert(x == 0.0f);
                beside++;
                continue;
            }
            const int64_t from = class - i * 40;
            const float want = (float)(i * 1000 + from * WIDE) * 0.37f + 1.0f;
            cr_assert_float_eq(x, want, 1e-2f);
        }
    cr_assert(beside > 0 && beside < 12 * H * W / 2);
    oct_loader_deinit(&loader);
}

Test(loader, the_first_sample_that_cannot_be_read_is_named_whoever_reads_it)
{
    static float images[MAPPED * H * W * WIDE];
    const oct_dataset data = wide_data(OCT_U8, OCT_GOAL_INPUT);
    for (int threads = 1; threads <= 4; threads++) {
        oct_loader loader;
        oct_goals goals;
        omp_set_num_threads(threads);
        cr_assert(oct_loader_init(&loader, &data) == OCT_OK);
        cr_assert(oct_loader_read(&loader, 0, MAPPED, images, &goals) == OCT_DATA);
        cr_assert_str_eq(
            oct_error_message(0),
            "sample 13: is damaged; data.damaged=skip takes another sample in its place");
        oct_loader_deinit(&loader);
    }
}

Test(loader, a_class_of_a_map_beyond_the_classes_is_refused)
{
    static float image[H * W * WIDE];
    oct_dataset data = wide_data(OCT_U8, OCT_GOAL_MAP);
    oct_loader loader;
    oct_goals goals;
    data.classes = 100;
    cr_assert(oct_loader_init(&loader, &data) == OCT_OK);
    cr_assert(oct_loader_read(&loader, 2, 1, image, &goals) == OCT_DATA);
    cr_assert_str_eq(oct_error_message(0),
                     "the map of sample 2 holds class 100, but there are 100 classes; raise "
                     "data.classes, or use a negative number for pixels without one; "
                     "data.damaged=skip takes another sample in its place");
    oct_loader_deinit(&loader);
}

/* The digest of what is fetched over two epochs and a jump back, with this number of threads and batches ahead. */
static void fetch_epochs(oct_goal_kind goal, int threads, int ahead, int rank, uint8_t digest[32])
{
    static float images[9 * H * W * WIDE];
    static const int64_t steps[][2] = {{0, 0}, {0, 1}, {0, 2}, {1, 0},
                                       {1, 1}, {1, 2}, {0, 1}, {7, 0}};
    oct_dataset data = wide_data(OCT_U8, goal);
    oct_sha256_state *state = NULL;
    oct_loader loader;
    data.format = &slow_format;
    cr_assert(oct_loader_init(&loader, &data) == OCT_OK);
    loader.batch = 9;
    loader.leaf = 2;
    loader.flip = true;
    loader.crop_padding = 1;
    loader.prefetch = ahead;
    loader.prefetch_threads = threads;
    loader.rank = rank;
    loader.ranks = 2;
    loader.damaged_mode = OCT_DAMAGED_SKIP;
    cr_assert(oct_sha256_begin(&state) == OCT_OK);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const int64_t samples = oct_loader_samples(&loader, steps[i][1]);
        const oct_leaves leaves = oct_leaves_split(samples, 2, rank, 2);
        const size_t n = (size_t)oct_leaves_local_samples(&leaves);
        oct_goals goals;
        cr_assert(oct_loader_fetch(&loader, steps[i][0], steps[i][1], &leaves, images, &goals) ==
                  OCT_OK);
        oct_sha256_add(state, images, n * H * W * WIDE * sizeof *images);
        if (goal == OCT_GOAL_MAP) oct_sha256_add(state, goals.labels, n * H * W * sizeof(int32_t));
    }
    oct_sha256_end(&state, digest);
    cr_assert(loader.damaged > 0);
    cr_assert_not_null(strstr(loader.damaged_text, "is damaged"));
    oct_loader_deinit(&loader);
}

Test(loader, no_bit_depends_on_threads_that_read_ahead_or_on_their_queue, .timeout = 60)
{
    for (int rank = 0; rank < 2; rank++)
        for (int goal = OCT_GOAL_MAP; goal <= OCT_GOAL_INPUT; goal++) {
            uint8_t want[32], got[32];
            fetch_epochs((oct_goal_kind)goal, 0, 2, rank, want);
            for (int threads = 1; threads <= 4; threads++)
                for (int ahead = 0; ahead <= 5; ahead++) {
                    fetch_epochs((oct_goal_kind)goal, threads, ahead, rank, got);
                    cr_assert(memcmp(want, got, 32) == 0, "%d threads, %d batches ahead", threads,
                              ahead);
                }
        }
    cr_assert(oct_mem_live() == 0);
}

Test(loader, a_damaged_sample_is_replaced_by_the_same_one_whoever_reads_it)
{
    static float images[MAPPED * H * W * WIDE];
    oct_dataset data = wide_data(OCT_U8, OCT_GOAL_INPUT);
    oct_goals goals;
    data.format = &slow_format;
    for (int threads = 0; threads <= 3; threads++) {
        oct_loader loader;
        cr_assert(oct_loader_init(&loader, &data) == OCT_OK);
        loader.damaged_mode = OCT_DAMAGED_SKIP;
        loader.prefetch_threads = threads;
        cr_assert(oct_loader_read(&loader, 0, MAPPED, images, &goals) == OCT_OK);
        const size_t bytes = H * W * WIDE * sizeof(float);
        cr_assert(memcmp(images + 13 * H * W * WIDE, images + 14 * H * W * WIDE, bytes) == 0);
        cr_assert(memcmp(images + 17 * H * W * WIDE, images + 18 * H * W * WIDE, bytes) == 0);
        cr_assert(loader.damaged == 2);
        cr_assert_str_eq(loader.damaged_text, "sample 17: is damaged too");
        oct_loader_deinit(&loader);
    }
}

static _Atomic int reads;

static oct_status read_counted(const oct_dataset *data, int64_t index, oct_image *image,
                               oct_image *map)
{
    reads++;
    return read_wide(data, index % 10, image, map);
}

Test(loader, a_cache_keeps_what_fits_and_changes_no_bit)
{
    enum { BYTES = H * W * WIDE, MAP_BYTES = H * W * 4 };
    static const oct_dataset_format counted = {
        .name = "counted", .read = read_counted, .reads_files = true};
    static float want[MAPPED * H * W * WIDE], got[MAPPED * H * W * WIDE];
    for (int threads = 0; threads <= 2; threads++)
        for (int kept = 0; kept <= MAPPED; kept += 10) {
            oct_dataset data = wide_data(OCT_U8, OCT_GOAL_MAP);
            oct_loader loader;
            oct_goals goals;
            data.format = &counted;
            cr_assert(oct_loader_init(&loader, &data) == OCT_OK);
            loader.prefetch_threads = threads;
            loader.cache_bytes = kept * (BYTES + MAP_BYTES);
            cr_assert(oct_loader_read(&loader, 0, MAPPED, want, &goals) == OCT_OK);
            const int32_t first = goals.labels[7 * H * W + 3];
            reads = 0;
            cr_assert(oct_loader_read(&loader, 0, MAPPED, got, &goals) == OCT_OK);
            oct_loader_deinit(&loader);
            cr_assert(reads == MAPPED - kept, "%d reads, %d kept", (int)reads, kept);
            cr_assert(memcmp(want, got, sizeof got) == 0 && first == 7 * 40 + 3);
        }
    cr_assert(oct_mem_live() == 0);
}

Test(loader, threads_that_read_ahead_report_their_failure_and_stop, .timeout = 60)
{
    static float images[9 * H * W * WIDE];
    oct_dataset data = wide_data(OCT_U8, OCT_GOAL_INPUT);
    data.format = &slow_format;
    for (int threads = 1; threads <= 4; threads++) {
        oct_loader loader;
        oct_goals goals;
        cr_assert(oct_loader_init(&loader, &data) == OCT_OK);
        loader.prefetch_threads = threads;
        loader.prefetch = 3;
        cr_assert(oct_loader_read(&loader, 0, 9, images, &goals) == OCT_OK);
        cr_assert(oct_loader_read(&loader, 9, 9, images, &goals) == OCT_DATA);
        cr_assert_str_eq(
            oct_error_message(0),
            "sample 13: is damaged; data.damaged=skip takes another sample in its place");
        for (int i = 0; i < H * W * WIDE; i++)
            cr_assert(images[4 * H * W * WIDE + i] == 0.0f && images[3 * H * W * WIDE] != 0.0f);
        cr_assert(oct_loader_read(&loader, 18, 2, images, &goals) == OCT_OK);
        oct_loader_deinit(&loader); /* with reads on their way */
    }
    cr_assert(oct_mem_live() == 0);
}

static void add_transform(oct_loader *loader, const char *text)
{
    char flaw[OCT_AUGMENT_FLAW];
    oct_augment_add(&loader->augment, text, true, flaw);
    cr_assert(!flaw[0], "%s", flaw);
}

/* Random transforms of every kind, and mixing of the leaf. */
static void make_augmenting_loader(oct_loader *loader, const oct_dataset *data)
{
    make_loader(loader, data);
    loader->augment.mean = (oct_reals){1, {0.5}};
    add_transform(loader, "random_resized_crop 7x5 scale=0.3..1");
    add_transform(loader, "color_jitter 0.4 0.4 0.4 0.1");
    add_transform(loader, "rand_augment");
    add_transform(loader, "noise 0.05");
    loader->mixing = (oct_mixing){.mixup = 0.4, .cutmix = 1};
}

static void fetch_mixed(oct_loader *loader, int64_t step, int ranks, float *images, float *values)
{
    const int64_t classes = loader->data->classes, samples = oct_loader_samples(loader, step);
    for (int rank = 0; rank < ranks; rank++) {
        oct_leaves leaves = oct_leaves_split(samples, LEAF, rank, ranks);
        const int64_t first = oct_leaves_first_sample(&leaves);
        oct_goals goals;
        cr_assert(oct_loader_fetch(loader, 3, step, &leaves, images + first * IMAGE, &goals) ==
                  OCT_OK);
        cr_assert(!goals.labels && goals.values);
        memcpy(values + first * classes, goals.values,
               (size_t)(oct_leaves_local_samples(&leaves) * classes) * sizeof *values);
    }
}

Test(loader, transforms_and_mixing_give_the_same_bits_on_any_ranks_and_threads)
{
    enum { CLASSES = 200 };
    static float want[BATCH * IMAGE], got[BATCH * IMAGE];
    static float want_values[BATCH * CLASSES], got_values[BATCH * CLASSES];
    oct_dataset data = make_data(COUNT);
    const int threads = omp_get_max_threads();
    for (int64_t step = 0; step < 3; step++) {
        oct_loader loader;
        make_augmenting_loader(&loader, &data);
        const int64_t samples = oct_loader_samples(&loader, step);
        fetch_mixed(&loader, step, 1, want, want_values);
        oct_loader_deinit(&loader);
        for (int ranks = 1; ranks <= 7; ranks++) {
            omp_set_num_threads(ranks % 4 + 1);
            memset(got, 0xff, sizeof got);
            make_augmenting_loader(&loader, &data);
            fetch_mixed(&loader, step, ranks, got, got_values);
            oct_loader_deinit(&loader);
            oct_check_bits_f32(got, want, samples * IMAGE, "images");
            oct_check_bits_f32(got_values, want_values, samples * CLASSES, "values");
        }
    }
    omp_set_num_threads(threads);
    oct_dataset_close(&data);
}

/* Each label is shared by two samples of one leaf at most, and the shares of a sample add up to 1. */
Test(loader, mixed_labels_stay_within_the_leaf)
{
    enum { CLASSES = 200 };
    static float images[BATCH * IMAGE], values[BATCH * CLASSES];
    int32_t labels[BATCH];
    oct_dataset data = make_data(COUNT);
    oct_loader loader;
    int mixed = 0;
    make_loader(&loader, &data);
    fetch_all(&loader, 3, 1, 1, images, labels);
    oct_loader_deinit(&loader);
    make_augmenting_loader(&loader, &data);
    fetch_mixed(&loader, 1, 2, images, values);
    for (int i = 0; i < BATCH; i++) {
        double sum = 0;
        for (int k = 0; k < CLASSES; k++) {
            const double share = (double)values[i * CLASSES + k];
            int at = 0;
            sum += share;
            if (share <= 0) continue;
            while (labels[at] != k)
                cr_assert(++at < BATCH, "class %d is not in the batch", k);
            cr_assert(at / LEAF == i / LEAF, "sample %d got of sample %d", i, at);
            mixed += at != i;
        }
        cr_assert(fabs(sum - 1) < 1e-6);
    }
    cr_assert(mixed > BATCH / 2, "%d", mixed);
    oct_loader_deinit(&loader);
    oct_dataset_close(&data);
}
