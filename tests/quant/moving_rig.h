/* Shared by the tests of moved, padded and concatenated values: networks that learn and are deployed, and steps that a
 * program's check refuses. */
#pragma once

#include "tests/quant/graph_nets.h"
#include "tests/quant/deploy.h"
#include "tests/support/check_status.h"

/* Takes root over: some steps of training make the loss smaller, and the program has evaluation's bits. */
static inline void check_learns(oct_module *root, const oct_example *example,
                                oct_prepare_method method, const char *target)
{
    rig r;
    oct_prepare_options options = rig_options(method);
    options.target = oct_target_find(target);
    options.fold_batch_norm = oct_requantizer_shifts(options.target->requantizer);
    rig_begin(&r, root, example);
    rig_prepare(&r, &options);
    rig_calibrate(&r);
    oct_quantizers_set_state(&r.quantizers, OCT_QUANT_QAT);
    const double first = rig_step(&r);
    double last = first;
    for (int step = 0; step < 12; step++)
        last = rig_step(&r);
    cr_assert(last < first, "%s on %s does not learn: %g, then %g", root->type->name, target, first,
              last);
    rig_convert(&r);
    rig_end(&r);
}

static inline oct_step *step_of_kind(oct_program *p, oct_step_kind kind)
{
    oct_step *step = p->steps;
    while (step->kind != kind)
        step++;
    return step;
}

static inline void check_step_refused(const oct_program *p, const oct_step *step,
                                      const char *sentence)
{
    cr_assert_eq(oct_program_check(p), OCT_DATA, "not refused: %s", sentence);
    check_said(sentence);
    check_said(step->name);
    oct_fail_clear();
}

/* The program is refused when its step is changed like this. */
#define REFUSED_WITH(p, step, change, sentence)                                                    \
    do {                                                                                           \
        const oct_step good_ = *(step);                                                            \
        change;                                                                                    \
        check_step_refused(p, step, sentence);                                                     \
        *(step) = good_;                                                                           \
    } while (0)
