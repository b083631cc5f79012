/* The tree of every sum: ranks fold and merge to the bits of the definition, written out naively. */
#include "core/base/collective.h"
#include "core/base/leaves.h"
#include "core/base/rng.h"
#include "core/base/status.h"

#include <criterion/criterion.h>
#include <string.h>

enum { MAX_COUNT = 40, MAX_RANKS = 9, COLUMNS = 5 };

/* Node (level j, index k) covers leaves [k 2^j, (k+1) 2^j) cut at count; one child: that child. */
static float define_f32(float values[][COLUMNS], int64_t count, int j, int64_t k, int column)
{
    if (j == 0) return values[k][column];
    int64_t right = 2 * k + 1;
    float left = define_f32(values, count, j - 1, 2 * k, column);
    if (right << (j - 1) >= count) return left;
    return left + define_f32(values, count, j - 1, right, column);
}

static double define_f64(double values[][COLUMNS], int64_t count, int j, int64_t k, int column)
{
    if (j == 0) return values[k][column];
    int64_t right = 2 * k + 1;
    double left = define_f64(values, count, j - 1, 2 * k, column);
    if (right << (j - 1) >= count) return left;
    return left + define_f64(values, count, j - 1, right, column);
}

static float values32[MAX_COUNT][COLUMNS];
static double values64[MAX_COUNT][COLUMNS];

static void fill_values(uint32_t sub)
{
    oct_fill_normal(&values32[0][0], MAX_COUNT * COLUMNS, 7, OCT_STREAM_TEST, sub, 0, 1e3f);
    for (int i = 0; i < MAX_COUNT; i++) {
        for (int c = 0; c < COLUMNS; c++)
            values64[i][c] = 1.0 / 3 * (double)values32[i][c];
    }
}

Test(leaves, ranks_share_all_leaves_and_samples_in_order)
{
    for (int64_t samples = 0; samples <= 100; samples++) {
        for (int64_t leaf = 1; leaf <= 9; leaf++) {
            for (int size = 1; size <= MAX_RANKS; size++) {
                int64_t next_leaf = 0, next_sample = 0;
                for (int rank = 0; rank < size; rank++) {
                    oct_leaves l = oct_leaves_split(samples, leaf, rank, size);
                    cr_assert_eq(l.count, (samples + leaf - 1) / leaf);
                    cr_assert_eq(l.first, next_leaf);
                    cr_assert_eq(l.first, rank * l.count / size);
                    int64_t local = 0;
                    if (l.local) cr_assert_eq(oct_leaves_first_sample(&l), next_sample);
                    for (int64_t i = 0; i < l.local; i++) {
                        cr_assert_eq(oct_leaf_begin(&l, i), local);
                        int64_t n = oct_leaf_size(&l, i);
                        bool last = l.first + i == l.count - 1;
                        cr_assert(n == leaf || (last && n > 0 && n < leaf));
                        local += n;
                    }
                    cr_assert_eq(oct_leaves_local_samples(&l), local);
                    next_leaf += l.local;
                    next_sample += local;
                }
                cr_assert_eq(next_leaf, (samples + leaf - 1) / leaf);
                cr_assert_eq(next_sample, samples);
            }
        }
    }
}

/* By definition: aligned, inside the range, disjoint, covering, and none may be grown. */
Test(leaves, parts_are_the_maximal_aligned_subtrees)
{
    for (int64_t count = 1; count <= MAX_COUNT; count++) {
        for (int64_t first = 0; first <= count; first++) {
            for (int64_t local = 0; first + local <= count; local++) {
                oct_leaves l = {count, 1, count, first, local};
                oct_subtree parts[OCT_MAX_PARTS];
                int n = oct_leaves_parts(&l, parts);
                int64_t next = first, end = first + local;
                for (int p = 0; p < n; p++) {
                    int64_t lo = parts[p].first, span = parts[p].span;
                    cr_assert_eq(lo, next);
                    cr_assert_eq(span & (span - 1), 0);
                    cr_assert_eq(lo % span, 0);
                    next = lo + span < count ? lo + span : count;
                    cr_assert_leq(next, end);
                    int64_t parent = lo & ~(2 * span - 1);
                    int64_t parent_end = parent + 2 * span < count ? parent + 2 * span : count;
                    bool grows = parent >= first && parent_end <= end;
                    bool adds = parent < lo || parent_end > next;
                    cr_assert(!(grows && adds));
                }
                cr_assert_eq(next, end);
                cr_assert((n == 0) == (local == 0));
            }
        }
    }
}

Test(leaves, folded_and_merged_is_the_tree_bit_for_bit)
{
    for (int64_t count = 1; count <= MAX_COUNT; count++) {
        fill_values((uint32_t)count);
        float expected32[COLUMNS];
        double expected64[COLUMNS];
        for (int c = 0; c < COLUMNS; c++) {
            expected32[c] = define_f32(values32, count, 6, 0, c);
            expected64[c] = define_f64(values64, count, 6, 0, c);
        }
        for (int size = 1; size <= MAX_RANKS; size++) {
            float rows32[MAX_COUNT][COLUMNS];
            double rows64[MAX_COUNT][COLUMNS];
            void *vectors32[MAX_COUNT], *vectors64[MAX_COUNT];
            oct_subtree parts[MAX_COUNT], again[MAX_COUNT];
            const oct_leaves all = oct_leaves_split(count, 1, 0, 1);
            int num_parts = 0;
            memcpy(rows32, values32, sizeof rows32);
            memcpy(rows64, values64, sizeof rows64);
            for (int rank = 0; rank < size; rank++) {
                oct_leaves l = oct_leaves_split(count, 1, rank, size);
                oct_subtree some[OCT_MAX_PARTS];
                int n = oct_leaves_parts(&l, some);
                memcpy(parts + num_parts, some, (size_t)n * sizeof *some);
                cr_assert_eq(oct_tree_fold_f32(&l, rows32[l.first], COLUMNS), n);
                cr_assert_eq(oct_tree_fold_f64(&l, rows64[l.first], COLUMNS), n);
                for (int p = 0; p < n; p++) {
                    vectors32[num_parts + p] = rows32[l.first + p];
                    vectors64[num_parts + p] = rows64[l.first + p];
                }
                num_parts += n;
            }
            memcpy(again, parts, sizeof parts);
            cr_assert_eq(oct_tree_merge(&all, parts, vectors32, num_parts, COLUMNS, sizeof(float)),
                         1);
            cr_assert_eq(oct_tree_merge(&all, again, vectors64, num_parts, COLUMNS, sizeof(double)),
                         1);
            cr_assert_arr_eq(vectors32[0], expected32, sizeof expected32, "%d leaves, %d ranks",
                             (int)count, size);
            cr_assert_arr_eq(vectors64[0], expected64, sizeof expected64);
        }
    }
}

/* Merging neighbouring runs gives the same as folding one run of all their leaves. */
Test(leaves, merged_runs_are_one_run)
{
    fill_values(3);
    for (int64_t count = 1; count <= 23; count++)
        for (int64_t first = 0; first <= count; first++)
            for (int64_t middle = first; middle <= count; middle++)
                for (int64_t end = middle; end <= count; end++) {
                    const oct_leaves runs[] = {{count, 1, count, first, middle - first},
                                               {count, 1, count, middle, end - middle},
                                               {count, 1, count, first, end - first}};
                    float rows[MAX_COUNT][COLUMNS], whole[MAX_COUNT][COLUMNS];
                    oct_subtree parts[2 * OCT_MAX_PARTS], want[OCT_MAX_PARTS];
                    void *vectors[MAX_COUNT];
                    int n = 0;
                    memcpy(rows, values32, sizeof rows);
                    memcpy(whole, values32, sizeof whole);
                    for (int r = 0; r < 2; r++) {
                        float(*row)[COLUMNS] = rows + runs[r].first;
                        const int more = oct_leaves_parts(&runs[r], parts + n);
                        cr_assert_eq(oct_tree_fold_f32(&runs[r], row[0], COLUMNS), more);
                        for (int p = 0; p < more; p++)
                            vectors[n++] = row[p];
                    }
                    n = oct_tree_merge(&runs[2], parts, vectors, n, COLUMNS, sizeof(float));
                    cr_assert_eq(n, oct_leaves_parts(&runs[2], want));
                    oct_tree_fold_f32(&runs[2], whole[first], COLUMNS);
                    for (int p = 0; p < n; p++) {
                        cr_assert_eq(parts[p].first, want[p].first);
                        cr_assert_eq(parts[p].span, want[p].span);
                        cr_assert_arr_eq(vectors[p], whole[first + p], sizeof whole[0]);
                    }
                }
}

Test(leaves, merges_leaf_by_leaf_are_the_tree_bit_for_bit)
{
    for (int64_t count = 1; count <= 70; count++) {
        const oct_leaves l = oct_leaves_split(count, 1, 0, 1);
        float rows[70], stack[70];
        int height = 0;
        for (int64_t i = 0; i < count; i++) {
            rows[i] = stack[height++] = 1.0F / (float)(3 * i + 1);
            const int merges = oct_tree_merges(i, count);
            cr_assert(merges >= i % 2 && merges < height);
            for (int j = 0; j < merges; j++, height--)
                stack[height - 2] += stack[height - 1];
        }
        cr_assert_eq(height, 1);
        cr_assert_eq(oct_tree_fold_f32(&l, rows, 1), 1);
        cr_assert_arr_eq(stack, rows, sizeof stack[0], "%d leaves", (int)count);
    }
}

/* Wider than the block of columns that a fold keeps in the cache. */
Test(leaves, a_wide_row_is_folded_as_its_columns_alone)
{
    enum { WIDE = 5000, ROWS = 11 };
    static double wide[ROWS][WIDE], columns[WIDE][ROWS];
    static float wide32[ROWS][WIDE], columns32[WIDE][ROWS];
    oct_leaves l = {20, 1, 20, 3, ROWS};
    for (int c = 0; c < WIDE; c++) {
        oct_fill_normal(columns32[c], ROWS, 7, OCT_STREAM_TEST, (uint32_t)c, 0, 1e3f);
        for (int r = 0; r < ROWS; r++) {
            wide32[r][c] = columns32[c][r];
            wide[r][c] = columns[c][r] = 1.0 / 3 * (double)columns32[c][r];
        }
    }
    int n = oct_tree_fold_f32(&l, wide32[0], WIDE);
    cr_assert(n > 1 && oct_tree_fold_f64(&l, wide[0], WIDE) == n);
    for (int c = 0; c < WIDE; c++) {
        cr_assert_eq(oct_tree_fold_f32(&l, columns32[c], 1), n);
        cr_assert_eq(oct_tree_fold_f64(&l, columns[c], 1), n);
        for (int p = 0; p < n; p++)
            cr_assert(wide32[p][c] == columns32[c][p] && wide[p][c] == columns[c][p],
                      "part %d, column %d", p, c);
    }
}

Test(leaves, each_part_is_its_node_of_the_tree)
{
    fill_values(99);
    for (int64_t first = 0; first < 20; first++) {
        oct_leaves l = {37, 1, 37, first, 17};
        oct_subtree parts[OCT_MAX_PARTS];
        float rows[17][COLUMNS];
        memcpy(rows, values32[first], sizeof rows);
        int n = oct_leaves_parts(&l, parts);
        cr_assert_eq(oct_tree_fold_f32(&l, rows[0], COLUMNS), n);
        for (int p = 0; p < n; p++) {
            int j = 0;
            while (1 << j < parts[p].span)
                j++;
            for (int c = 0; c < COLUMNS; c++)
                cr_assert_eq(rows[p][c],
                             define_f32(values32, 37, j, parts[p].first / parts[p].span, c));
        }
    }
}

/* Wide vectors go through in blocks of columns; every column must be its own narrow sum. */
Test(leaves, wide_vectors_are_narrow_ones_side_by_side)
{
    enum { WIDE = 5000, LEAVES = 11 };
    static float wide[LEAVES][WIDE], copy[LEAVES][WIDE];
    oct_fill_normal(&wide[0][0], LEAVES * WIDE, 8, OCT_STREAM_TEST, 0, 0, 1);
    memcpy(copy, wide, sizeof wide);
    oct_leaves l = {23, 1, 23, 5, LEAVES};
    int n = oct_tree_fold_f32(&l, wide[0], WIDE);
    for (int c = 0; c < WIDE; c++) {
        float narrow[LEAVES];
        for (int i = 0; i < LEAVES; i++)
            narrow[i] = copy[i][c];
        cr_assert_eq(oct_tree_fold_f32(&l, narrow, 1), n);
        for (int p = 0; p < n; p++)
            cr_assert_eq(wide[p][c], narrow[p]);
    }
}

Test(leaves, no_leaves_fold_to_no_parts)
{
    oct_leaves l = oct_leaves_split(8, 8, 0, 2);
    cr_assert_eq(l.local, 0);
    cr_assert_eq(oct_leaves_local_samples(&l), 0);
    cr_assert_eq(oct_tree_fold_f32(&l, NULL, 3), 0);
    cr_assert_eq(oct_tree_fold_f64(&l, NULL, 3), 0);
    cr_assert_eq(oct_tree_merge(&l, NULL, NULL, 0, 3, sizeof(float)), 0);
}

Test(collective, one_process_sums_to_its_only_part)
{
    const oct_collective *one = &oct_collective_one;
    float out32[COLUMNS];
    double out64[COLUMNS];
    for (int64_t count = 1; count <= MAX_COUNT; count++) {
        fill_values((uint32_t)count);
        float rows32[MAX_COUNT][COLUMNS];
        double rows64[MAX_COUNT][COLUMNS];
        memcpy(rows32, values32, sizeof rows32);
        memcpy(rows64, values64, sizeof rows64);
        oct_leaves l = oct_leaves_split(count, 1, 0, 1);
        cr_assert_eq(oct_tree_fold_f32(&l, rows32[0], COLUMNS), 1);
        cr_assert_eq(oct_tree_fold_f64(&l, rows64[0], COLUMNS), 1);
        cr_assert_eq(one->tree_sum(one, &l, rows32[0], COLUMNS, sizeof(float), out32), OCT_OK);
        cr_assert_eq(one->tree_sum(one, &l, rows64[0], COLUMNS, sizeof(double), out64), OCT_OK);
        for (int c = 0; c < COLUMNS; c++) {
            cr_assert_eq(out32[c], define_f32(values32, count, 6, 0, c));
            cr_assert_eq(out64[c], define_f64(values64, count, 6, 0, c));
        }
    }
}

Test(collective, one_process_is_all_there_is)
{
    const oct_collective *one = &oct_collective_one;
    cr_assert_eq(one->rank, 0);
    cr_assert_eq(one->size, 1);
    float out[2] = {1, 2};
    oct_leaves none = {0, 8, 0, 0, 0};
    cr_assert_eq(one->tree_sum(one, &none, NULL, 2, sizeof(float), out), OCT_OK);
    cr_assert_eq(out[0], 0);
    cr_assert_eq(out[1], 0);
    int64_t values[] = {-5, 7};
    cr_assert_eq(one->max_i64(one, values, 2), OCT_OK);
    cr_assert(values[0] == -5 && values[1] == 7);
    char data[4] = "abc", gathered[4] = "";
    cr_assert_eq(one->broadcast(one, data, 4, 0), OCT_OK);
    cr_assert_eq(one->gather(one, data, 4, gathered), OCT_OK);
    cr_assert_str_eq(gathered, "abc");
    cr_assert_eq(one->agree(one, OCT_OK), OCT_OK);
    cr_assert_eq(one->agree(one, OCT_DATA), OCT_DATA);
    oct_leaves half = oct_leaves_split(32, 8, 0, 2);
    cr_assert_eq(one->tree_sum(one, &half, out, 2, sizeof(float), out), OCT_DEFECT);
    cr_assert(strstr(oct_error_message(0), "sum 4 leaves but owns 2"));
}
