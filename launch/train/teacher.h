/* The teacher of distillation: a model whose outputs a training step compares its own with. It is another run's
 * model, which may be of another architecture, or the run's own as its float phase left it. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "io/recipe/recipe.h"
#include "launch/evaluate/forward.h"

typedef struct oct_teacher {
    oct_module *model; /* NULL: there is none */
    oct_context *cx;   /* does not communicate */
    oct_forward forward;
    oct_shape sample;
    int64_t outputs; /* of a sample */
    float *y;        /* of the samples asked for last */
    size_t capacity;
} oct_teacher;

/* Not collective: makes the model of a checkpoint the teacher of a run with this recipe. */
oct_status oct_teacher_create(oct_teacher *teacher, const oct_checkpoint *checkpoint,
                              const oct_recipe *recipe, const oct_dataset *data) OCT_NODISCARD;
/* Not collective: makes this model the teacher; takes it over, also on failure. */
oct_status oct_teacher_take(oct_teacher *teacher, oct_module **model,
                            const oct_dataset *data) OCT_NODISCARD;
void oct_teacher_destroy(oct_teacher *teacher);
/* Not collective: what the teacher says of n samples, in evaluation mode and a few at a time. *y lives until
 * the next call. */
oct_status oct_teacher_ask(oct_teacher *teacher, float *images, int64_t n,
                           const float **y) OCT_NODISCARD;
