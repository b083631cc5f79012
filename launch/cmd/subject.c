#include "launch/cmd/subject.h"

#include "core/base/log.h"
#include "launch/cmd/begun_recipe.h"
#include "launch/deploy/certificate.h"

#include <string.h>

oct_status oct_subject_open(oct_subject *s, const char *path, int kinds, const char *takes)
{
    s->path = path;
    OCT_TRY(oct_file_take(path, kinds, takes, &s->kind));
    if (s->kind != OCT_FILE_MODEL) return oct_job_open_checkpoint(&s->checkpoint, path, s->kind);
    OCT_TRY(oct_model_load(&s->model, path, s->large));
    return oct_model_check_runnable(&s->model, path);
}

bool oct_subject_is_programs(const oct_subject *s)
{
    return s->kind == OCT_FILE_MODEL && !oct_model_has_recipe(&s->model);
}

/* Makes the recipe of a model that has none, for the data at a path, which may be NULL. */
static oct_status read_program_recipe(oct_subject *s, const char *data_path)
{
    oct_data_found found = {0};
    OCT_OWNED(oct_text_free) oct_text data = {0};
    s->no_data = !data_path;
    if (data_path) OCT_TRY(oct_data_look(data_path, false, &found));
    if (data_path) OCT_TRY(oct_data_found_write(&found, &data));
    const oct_value *in = &s->model.program.values[s->model.program.inputs[0]];
    const bool pictures = strcmp(found.format, "folder") == 0 || strcmp(found.format, "csv") == 0;
    if (pictures) { /* their sizes show when they are read */
        OCT_TRY(oct_text_add(&data, "  size: %lldx%lld\n", (long long)in->h, (long long)in->w));
        oct_log(OCT_LOG_INFO, "%s: pictures of another size become %lldx%lld; data.size changes it",
                data_path, (long long)in->h, (long long)in->w);
    }
    return oct_job_program_recipe(&s->recipe, s->path, &s->model, data.data, s->keys, s->num_keys);
}

oct_status oct_subject_read_recipe(oct_subject *s, const char *data_path)
{
    if (oct_subject_is_programs(s)) return read_program_recipe(s, data_path);
    OCT_CHECK_ARGS(s->num_keys == 0, "'%s': the recipe in %s says what its data are; leave it out",
                   s->keys[0], s->path);
    if (s->kind != OCT_FILE_MODEL)
        return oct_job_checkpoint_recipe(&s->recipe, &s->checkpoint, data_path);
    OCT_TRY(oct_job_model_recipe(&s->recipe, s->path, &s->model, data_path));
    s->recipe.data_classes = s->model.classes;
    return OCT_OK;
}

oct_status oct_subject_open_data(const oct_subject *s, oct_dataset *data)
{
    OCT_CHECK(!s->no_data, OCT_DATA, "a program made %s, so only --data PATH names its test data",
              s->path);
    return oct_load_data(&s->recipe, OCT_TEST, NULL, data);
}

oct_status oct_subject_load_data(oct_subject *s, oct_session *session, oct_split split)
{
    s->recipe.threads = oct_job_share_of_cores();
    oct_job_threads(session, s->recipe.threads);
    return oct_job_data(session, &s->recipe, split, &s->data);
}

oct_status oct_subject_build(oct_subject *s, oct_session *session)
{
    bool prepared;
    return oct_session_agree(session, oct_build_from_checkpoint(&s->root, &s->checkpoint,
                                                                &s->recipe, &s->data, &prepared));
}

oct_status oct_subject_check_images(const oct_subject *s, const oct_dataset *d)
{
    const oct_program *program = &s->model.program;
    const oct_value *in = &program->values[program->inputs[0]];
    OCT_CHECK(
        in->h == d->h && in->w == d->w && in->c == d->c, OCT_DATA,
        "%s: takes images of %lld x %lld x %lld, but those of the data are %lld x %lld x %lld",
        s->path, (long long)in->h, (long long)in->w, (long long)in->c, (long long)d->h,
        (long long)d->w, (long long)d->c);
    return OCT_OK;
}

void oct_subject_close(oct_subject *s)
{
    oct_module_destroy(&s->root);
    oct_model_free(&s->model);
    oct_checkpoint_close(&s->checkpoint);
    oct_recipe_free(&s->recipe);
    oct_dataset_close(&s->data);
}

const char *oct_subject_file(const oct_subject *s)
{
    return s->kind == OCT_FILE_MODEL ? s->path : s->checkpoint.path;
}

oct_status oct_switch_quantizers_off(oct_module *root)
{
    OCT_OWNED(oct_quantizers_free) oct_quantizers quantizers = {0};
    OCT_TRY(oct_quantizers_collect(&quantizers, root));
    oct_quantizers_set_state(&quantizers, OCT_QUANT_OFF);
    return OCT_OK;
}
