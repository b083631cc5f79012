#include "launch/cmd/compare_side.h"

#include "launch/session/build.h"
#include "launch/deploy/certificate.h"

oct_status oct_compare_side_open(oct_compare_side *s, const char *path, const char *data_path)
{
    *s = (oct_compare_side){.path = path};
    OCT_TRY(oct_file_take(path, OCT_FILE_MODEL | OCT_FILE_CHECKPOINT | OCT_FILE_RUN_FOLDER,
                          "compare takes checkpoints, run folders and int8 models", &s->kind));
    if (s->kind != OCT_FILE_MODEL) {
        OCT_TRY(oct_job_checkpoint(&s->checkpoint, path, s->kind));
        return oct_job_checkpoint_recipe(&s->recipe, &s->checkpoint, data_path);
    }
    OCT_TRY(oct_model_load(&s->model, path));
    OCT_TRY(oct_model_check_runnable(&s->model, path));
    OCT_TRY(oct_job_model_recipe(&s->recipe, path, &s->model, data_path));
    s->recipe.data_classes = s->model.classes;
    return OCT_OK;
}

static oct_status build_program(oct_compare_side *s, const oct_dataset *data)
{
    const oct_program *program = &s->model.program;
    const oct_value *in = &program->values[program->inputs[0]];
    OCT_CHECK(in->h == data->h && in->w == data->w && in->c == data->c, OCT_DATA,
              "takes images of %lld x %lld x %lld, but those of the data are %lld x %lld x %lld",
              (long long)in->h, (long long)in->w, (long long)in->c, (long long)data->h,
              (long long)data->w, (long long)data->c);
    s->rounds = true;
    return oct_layer_source_of_program(&s->source, program);
}

static oct_status build_model(oct_compare_side *s, const oct_dataset *data, bool unquantized)
{
    oct_phase phase;
    bool prepared;
    OCT_TRY(oct_checkpoint_phase(&s->checkpoint, &phase));
    OCT_TRY(oct_build_from_checkpoint(&s->root, &s->checkpoint, &s->recipe, data, &prepared));
    if (!prepared) {
        oct_module_train(s->root, true);
        OCT_TRY(oct_prepare_model(&s->root, &s->recipe, data, NULL));
    }
    s->rounds = phase != OCT_PHASE_FLOAT && phase != OCT_PHASE_CALIBRATE && !unquantized;
    if (!s->rounds) {
        oct_quantizers quantizers = {0};
        OCT_TRY(oct_quantizers_collect(&quantizers, s->root));
        oct_quantizers_set_state(&quantizers, OCT_QUANT_OFF);
        oct_quantizers_free(&quantizers);
    }
    return oct_layer_source_of_model(&s->source, s->root,
                                     OCT_EXAMPLE(OCT_SHAPE(1, data->h, data->w, data->c)));
}

oct_status oct_compare_side_build(oct_compare_side *s, const oct_dataset *data, bool unquantized)
{
    const oct_status status =
        s->kind == OCT_FILE_MODEL ? build_program(s, data) : build_model(s, data, unquantized);
    return status == OCT_OK ? OCT_OK : oct_fail_prefix("%s", s->path);
}

void oct_compare_side_close(oct_compare_side *s)
{
    oct_layer_source_free(&s->source);
    oct_module_destroy(&s->root);
    oct_model_free(&s->model);
    oct_checkpoint_close(&s->checkpoint);
    oct_recipe_free(&s->recipe);
}

const char *oct_compare_side_file(const oct_compare_side *s)
{
    return s->kind == OCT_FILE_MODEL ? s->path : s->checkpoint.path;
}

const char *oct_compare_side_phase(const oct_compare_side *s)
{
    return s->kind == OCT_FILE_MODEL ? "int8 model" : s->checkpoint.info.phase;
}

const char *oct_compare_side_arithmetic(const oct_compare_side *s)
{
    if (!s->rounds) return "float";
    return s->root ? oct_graph_of(s->root)->target->name : s->model.program.target;
}
