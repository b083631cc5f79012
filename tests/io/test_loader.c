/* Batches: the same bits on any number of ranks, every sample once an epoch, and the augmentation
 * against a slow reference that works pixel by pixel. */
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "io/loader.h"
#include "tests/support/check_tensor.h"

enum { COUNT = 53, H = 7, W = 5, C = 3, IMAGE = H * W * C, BATCH = 20, LEAF = 3 };

/* Every image is different noise; the label is the sample's number. */
static oct_dataset make_data(int64_t count)
{
    oct_dataset data = {.count = count, .h = H, .w = W, .c = C, .classes = 200};
    cr_assert(oct_alloc(&data.images, (size_t)count, IMAGE) == OCT_OK);
    cr_assert(oct_alloc(&data.labels, (size_t)count, sizeof *data.labels) == OCT_OK);
    for (int64_t i = 0; i < count * IMAGE; i++) {
        uint32_t words[4];
        oct_philox(9, OCT_STREAM_TEST, (uint64_t)i, 0, words);
        data.images[i] = (uint8_t)words[0];
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
    for (int c = 0; c < C; c++) {
        loader->mean[c] = 0.3f + 0.1f * (float)c;
        loader->std[c] = 0.2f + 0.05f * (float)c;
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
        cr_assert(oct_loader_fetch(loader, epoch, step, &leaves, images + first * IMAGE,
                                   labels + first) == OCT_OK);
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
    oct_dataset_free(&data);
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
    oct_dataset_free(&data);
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
    loader.order_epoch = -1;
    count_epoch(&loader, 0, seen, order[2]);
    cr_assert(memcmp(order[0], order[2], sizeof order[0]) != 0);
    oct_loader_deinit(&loader);
    oct_dataset_free(&data);
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
    oct_dataset_free(&data);
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
    oct_dataset_free(&data);
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
            oct_normalise(loader->data->images + sample * IMAGE + (y * W + x) * C, 1, C,
                          loader->mean, loader->std, padded[y + p][x + p]);
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
    oct_dataset_free(&data);
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
    cr_assert(oct_loader_fetch(&loader, 0, 0, &leaves, NULL, NULL) == OCT_OK);
    oct_loader_deinit(&loader);
    oct_dataset_free(&data);
}

Test(loader, leaves_of_another_batch_and_steps_beyond_the_epoch_are_defects)
{
    oct_dataset data = make_data(COUNT);
    oct_loader loader;
    make_loader(&loader, &data);
    oct_leaves full = oct_leaves_split(BATCH, LEAF, 0, 1);
    oct_leaves other_leaf = oct_leaves_split(BATCH, LEAF + 1, 0, 1);
    cr_assert(oct_loader_fetch(&loader, 0, 2, &full, NULL, NULL) == OCT_DEFECT);
    cr_assert(oct_loader_fetch(&loader, 0, 0, &other_leaf, NULL, NULL) == OCT_DEFECT);
    cr_assert(oct_loader_fetch(&loader, 0, 3, &full, NULL, NULL) == OCT_DEFECT);
    cr_assert(oct_loader_fetch(&loader, 0, -1, &full, NULL, NULL) == OCT_DEFECT);
    oct_loader_deinit(&loader);
    oct_dataset_free(&data);
}

Test(loader, too_many_channels_are_refused)
{
    oct_dataset data = {.count = 1, .h = 1, .w = 1, .c = 5};
    oct_loader loader;
    cr_assert(oct_loader_init(&loader, &data) == OCT_DATA);
    cr_assert_str_eq(oct_fail_text(0), "images of 5 channels; 1 to 4 can be loaded");
    oct_loader_deinit(&loader);
}
