/* Mixup and cutmix: every sample against a slow reference that never works in place. */
#include "core/base/mem.h"
#include "io/augment/augment.h"
#include "tests/support/check_tensor.h"

enum { H = 6, W = 5, C = 2, IMAGE = H * W * C, CLASSES = 16, SAMPLES_MAX = 12 };

/* Value and label of a sample identify it. */
typedef struct leaf_memory {
    float images[SAMPLES_MAX * IMAGE], values[SAMPLES_MAX * CLASSES], spare[IMAGE + CLASSES];
} leaf_memory;

static void mix(leaf_memory *m, int64_t samples, const oct_mixing *mixing, uint64_t first)
{
    memset(m, 0, sizeof *m);
    for (int64_t i = 0; i < samples; i++) {
        for (int k = 0; k < IMAGE; k++)
            m->images[i * IMAGE + k] = (float)(i + 1);
        m->values[i * CLASSES + i] = 1;
    }
    const oct_mix_leaf leaf = {{9, first}, samples,   H,         W,       C,
                               CLASSES,    m->images, m->values, m->spare};
    oct_mix(mixing, &leaf);
}

/* Which other sample the label says, -1 for none, and how much of itself the sample kept. */
static int other_of(const leaf_memory *m, int64_t sample, float *share)
{
    const float *values = m->values + sample * CLASSES;
    int other = -1;
    double sum = 0;
    for (int k = 0; k < CLASSES; k++) {
        sum += (double)values[k];
        if (k != sample && values[k] > 0) {
            cr_assert(other == -1, "two others");
            other = k;
        }
    }
    cr_assert(fabs(sum - 1) < 1e-6);
    *share = values[sample];
    return other;
}

Test(mix, mixup_blends_image_and_label_by_the_same_share_and_in_one_circle)
{
    static leaf_memory m;
    const oct_mixing mixing = {.mixup = 1};
    bool seen[SAMPLES_MAX] = {false};
    for (int64_t n = 2; n <= SAMPLES_MAX; n++)
        for (uint64_t first = 0; first < 40; first++) {
            int64_t further = 0;
            mix(&m, n, &mixing, first * 100);
            for (int64_t i = 0; i < n; i++) {
                float share;
                const int other = other_of(&m, i, &share);
                if (other < 0) continue; /* the share rounds to 1 */
                const int64_t step = (other - i + n) % n;
                cr_assert(further == 0 || step == further, "all go as far");
                further = step;
                for (int k = 0; k < IMAGE; k++) {
                    const double want =
                        (double)share * (double)(i + 1) + (1 - (double)share) * (double)(other + 1);
                    cr_assert(fabs((double)m.images[i * IMAGE + k] - want) < 1e-4);
                }
            }
            cr_assert(further > 0);
            if (n == SAMPLES_MAX) seen[further] = true;
        }
    for (int k = 1; k < SAMPLES_MAX; k++)
        cr_assert(seen[k], "no leaf went %d further", k);
}

Test(mix, cutmix_pastes_one_box_whose_pixels_are_the_share)
{
    static leaf_memory m;
    const oct_mixing mixing = {.cutmix = 1};
    int pasted_at_all = 0;
    for (uint64_t first = 0; first < 60; first++) {
        mix(&m, 8, &mixing, first * 8);
        for (int64_t i = 0; i < 8; i++) {
            float share;
            const int other = other_of(&m, i, &share);
            int top = H, left = W, bottom = 0, right = 0, pasted = 0;
            for (int y = 0; y < H; y++)
                for (int x = 0; x < W; x++) {
                    const float *pixel = m.images + i * IMAGE + (y * W + x) * C;
                    cr_assert(memcmp(&pixel[0], &pixel[1], sizeof *pixel) == 0);
                    if (lrintf(pixel[0]) == i + 1) continue;
                    cr_assert(lrintf(pixel[0]) == other + 1);
                    pasted++;
                    top = y < top ? y : top;
                    left = x < left ? x : left;
                    bottom = y + 1 > bottom ? y + 1 : bottom;
                    right = x + 1 > right ? x + 1 : right;
                }
            cr_assert(pasted == 0 || pasted == (bottom - top) * (right - left), "no box");
            cr_assert(fabs((double)share - (1 - (double)pasted / (H * W))) < 1e-6);
            pasted_at_all += pasted > 0;
        }
    }
    cr_assert(pasted_at_all > 240, "%d", pasted_at_all);
}

Test(mix, with_both_each_sample_gets_one_of_them)
{
    static leaf_memory m;
    const oct_mixing mixing = {.mixup = 1, .cutmix = 1};
    int blended = 0, pasted = 0;
    for (uint64_t first = 0; first < 60; first++) {
        mix(&m, 8, &mixing, first * 8);
        for (int64_t i = 0; i < 8; i++) {
            bool whole = true, own = false, others = false;
            for (int k = 0; k < IMAGE; k++) {
                const float v = m.images[i * IMAGE + k];
                whole &= fabsf(v - rintf(v)) < 1e-6f;
                own |= lrintf(v) == i + 1;
                others |= lrintf(v) != i + 1;
            }
            blended += !whole;
            pasted += whole && own && others;
        }
    }
    cr_assert(blended > 180 && pasted > 140, "%d blended, %d pasted", blended, pasted);
}

Test(mix, a_sample_alone_stays_as_it_is)
{
    static leaf_memory m;
    mix(&m, 1, &(oct_mixing){1, 1}, 0);
    cr_assert(m.values[0] >= 1 && m.images[0] >= 1 && m.images[IMAGE - 1] >= 1);
    mix(&m, 5, &(oct_mixing){0, 0}, 0);
    for (int i = 0; i < 5; i++)
        cr_assert(m.values[i * CLASSES + i] >= 1);
}
