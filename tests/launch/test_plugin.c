/* Custom parts: a layer, an observer and a fake-quant of a user's own and a model that uses them, built
 * from the installed headers, train, resume and convert like built-in ones. */
#include "tests/launch/installed.h"
#include "tests/support/mpirun.h"

#include <criterion/criterion.h>

static const char *const recipe = "schema: 1\n"
                                  "plugins: [plugin/example.so]\n"
                                  "output: new\n"
                                  "model: {name: gated-net}\n"
                                  "data: {path: data}\n"
                                  "batch: {size: 32, leaf: 4}\n"
                                  "float: {epochs: 1, lr: 0.01}\n"
                                  "calibrate: {batches: 1}\n"
                                  "qat: {epochs: 3}\n"
                                  "quant: {observer: shrunk, fake_quant: leaky}\n"
                                  "checkpoint: {every: 2}\n";

static void start(void)
{
    enter_folder();
    installed_plugin();
    small_make(12, recipe);
}

TestSuite(plugin, .init = start, .fini = leave_folder, .timeout = 300);

#define PROGRAM "octet/bin/octet"
#undef OCTET
#define OCTET(...) RUN(PROGRAM, __VA_ARGS__)

Test(plugin, a_model_of_custom_parts_has_the_same_bytes_on_any_number_of_ranks)
{
    OCTET("train", "r.yaml", "output=one");
    oct_check_exit(job, 0);
    shell("for ranks in 3 ${OCT_LONG:+2}; do " PROGRAM
          " train r.yaml output=on$ranks --ranks $ranks || exit $?; (cd one && "
          "for f in checkpoints/*.h5 model.int8.h5 model_check_result.txt; do "
          "cmp $f ../on$ranks/$f || exit 1; done) || exit 1; done");
    oct_check_exit(job, 0);
    shell("grep -A5 plugins one/run.json; sha256sum plugin/example.so");
    oct_check_said(job, "\"name\": \"example\"");
    char digest[65];
    snprintf(digest, sizeof(digest), "%.64s", strstr(job.out, "  plugin/example.so") - 64);
    cr_assert_eq(oct_process_said_times(&job, digest), 2, "%s", job.out);
}

Test(plugin, a_trained_model_is_evaluated_converted_verified_and_run)
{
    OCTET("train", "r.yaml", "--ranks", "2");
    oct_check_exit(job, 0);
    oct_check_said(job, "0 of 400");
    cr_assert(setenv("OCT_PLUGIN_PATH", "plugin", 1) == 0);
    OCTET("eval", "new", "--allow-plugins");
    oct_check_exit(job, 0);
    OCTET("convert", "new", "-o", "again.int8.h5", "--allow-plugins", "--ranks", "2");
    oct_check_exit(job, 0);
    shell("cmp again.int8.h5 new/model.int8.h5");
    oct_check_exit(job, 0);
    OCTET("eval", "again.int8.h5", "--data", "data", "--allow-plugins");
    oct_check_exit(job, 0);
    OCTET("verify", "again.int8.h5", "--data", "data", "--allow-plugins");
    oct_check_exit(job, 0);
    oct_check_said(job, "40 test images");
    OCTET("run", "again.int8.h5", "--input", "data/t10k-images-idx3-ubyte", "--count", "3",
          "--allow-plugins");
    oct_check_exit(job, 0);
    OCTET("bench", "infer", "again.int8.h5", "--steps", "1", "--allow-plugins");
    oct_check_exit(job, 0);
    OCTET("inspect", "again.int8.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "gate");
}

Test(plugin, a_model_that_returns_class_numbers_goes_through_every_command)
{
    cr_assert(setenv("OCT_PLUGIN_PATH", "plugin", 1) == 0);
    OCTET("train", "r.yaml", "model.name=numbered-net", "--ranks", "2");
    oct_check_exit(job, 0);
    OCTET("eval", "new", "--allow-plugins");
    oct_check_exit(job, 0);
    char *accuracy = strstr(job.out, "correct"), *line = accuracy ? strdup(accuracy) : NULL;
    cr_assert(line, "%s", job.out);
    line[strcspn(line, "\n")] = '\0';
    OCTET("eval", "new/model.int8.h5", "--allow-plugins");
    oct_check_exit(job, 0);
    cr_assert(strstr(job.out, line), "%s: %s", line, job.out); /* as many right */
    free(line);
    OCTET("verify", "new/model.int8.h5", "--allow-plugins");
    oct_check_exit(job, 0);
    oct_check_said(job, "40 test images");
    OCTET("run", "new/model.int8.h5", "--input", "data/t10k-images-idx3-ubyte", "--count", "2",
          "--allow-plugins");
    oct_check_exit(job, 0);
    oct_check_said(job, "image 1: class ");
    cr_assert(!strstr(job.out, "%"), "%s", job.out);
    OCTET("run", "new/model.int8.h5", "--input", "data/t10k-images-idx3-ubyte", "--json",
          "--allow-plugins");
    oct_check_exit(job, 0);
    oct_check_said(job, "\"class\": ");
    OCTET("sensitivity", "new", "--allow-plugins");
    oct_check_exit(job, 0);
    oct_check_said(job, "head");
    OCTET("inspect", "new/model.int8.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "argmax");
    oct_check_said(job, "s32");
}

Test(plugin, a_model_of_two_inputs_is_for_programs_of_ones_own)
{
    static const char *const commands[] = {"check", "train"};
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        OCTET(commands[i], "r.yaml", "model.name=paired-net");
        oct_check_exit(job, 2);
        oct_check_said(job, "model.name: paired-net takes 2 inputs, and the data set idx has one, "
                            "an image; train it by a program of your own (octet/train.h)");
    }
}

/* A library that an untrusted checkpoint or model could name; it leaves a mark when it is run. */
static const char *const marking = "cat >mark.c <<'END'\n#include <stdio.h>\n"
                                   "__attribute__((constructor)) static void run(void)"
                                   "{ fclose(fopen(\"ran\", \"w\")); }\nEND\n"
                                   "make -C plugin clean >log && echo '#include \"../mark.c\"' "
                                   ">>plugin/leaky.c && make -C plugin >log";

/* By the first commands. */
static void check_not_run(const char *words, size_t commands, const char *sentence)
{
    static const char *const calls[] = {
        "eval new/model.int8.h5 --data data",
        "eval new --data data",
        "verify new/model.int8.h5 --data data",
        "run new/model.int8.h5 --input data/t10k-images-idx3-ubyte",
        "convert new -o other.int8.h5",
        "verify $(ls new/checkpoints/step-*.h5 | tail -n 1)",
        "sensitivity new -o table",
        "inspect --tree new",
        "bench infer new/model.int8.h5",
        "eval new --data data --ranks 2",
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls) && i < commands; i++) {
        char script[600];
        snprintf(script, sizeof(script), "%s " PROGRAM " %s", words, calls[i]);
        shell(script);
        cr_assert(access("ran", F_OK) != 0, "%s ran the library", calls[i]);
        oct_check_exit(job, 3);
        cr_assert_eq(oct_process_said_times(&job, sentence), 1, "%s\n%s", calls[i], job.err);
        cr_assert_eq(oct_process_said_times(&job, "octet: error: "), 1, "%s", job.err);
    }
}

Test(plugin, the_code_that_a_file_names_runs_only_when_its_user_says_so)
{
    OCTET("train", "r.yaml");
    oct_check_exit(job, 0);
    shell("sha256sum plugin/example.so >made");
    shell(marking);
    oct_check_exit(job, 0);
    const size_t few = oct_test_is_long() ? 100 : 2;
    check_not_run("", few,
                  "plugin/example.so: there is no such file in the folders of OCT_PLUGIN_PATH");
    check_not_run("OCT_PLUGIN_PATH=plugin", 100,
                  "plugin/example.so is code that this file asks to run");
    check_not_run("OCT_TRUSTED_PLUGINS=made OCT_PLUGIN_PATH=plugin", few,
                  "plugin/example.so is code that this file asks to run");

    shell("sha256sum plugin/example.so >>made; OCT_TRUSTED_PLUGINS=made "
          "OCT_PLUGIN_PATH=plugin " PROGRAM " eval new/model.int8.h5 --data data");
    oct_check_exit(job, 3);
    oct_check_said(job, "plugin/example.so is not the library that this file was made with");
    cr_assert(access("ran", F_OK) != 0);
    shell("OCT_PLUGIN_PATH=plugin " PROGRAM " eval new/model.int8.h5 --data data --allow-plugins");
    oct_check_exit(job, 0);
    oct_check_said(job, "is not the library that the file was made with");
    cr_assert(access("ran", F_OK) == 0);
}

Test(plugin, a_library_of_the_users_list_needs_no_option)
{
    OCTET("train", "r.yaml");
    oct_check_exit(job, 0);
    shell("export OCT_PLUGIN_PATH=plugin XDG_CONFIG_HOME=$PWD/config; mkdir -p config/octet; "
          "{ echo '# mine'; sha256sum plugin/example.so; } >config/octet/trusted-plugins; " PROGRAM
          " eval new --data data && " PROGRAM " verify new/model.int8.h5 --data data");
    oct_check_exit(job, 0);
    oct_check_said(job, "40 test images");
}

/* The first of two ranks is killed at a step that no two runs of this test share. */
Test(plugin, a_killed_run_goes_on_to_the_same_bytes)
{
    OCTET("train", "r.yaml", "output=whole", "qat.epochs=12");
    oct_check_exit(job, 0);
    shell(PROGRAM
          " train r.yaml qat.epochs=12 checkpoint.every=1 --ranks 2 & "
          "until [ -e new/checkpoints/manifest.json ]; do kill -0 $! || exit 99; sleep 0.01; done; "
          "read -r m </proc/$!/task/$!/children; "
          "read -r rank more </proc/$m/task/$m/children; kill -KILL $rank; wait $!");
    oct_check_exit(job, 6);
    OCTET("train", "r.yaml", "qat.epochs=12", "--ranks", "2");
    oct_check_exit(job, 0);
    cr_assert(!oct_process_said(&job, "is another one"), "%s", job.err);
    shell("cmp new/model.int8.h5 whole/model.int8.h5");
    oct_check_exit(job, 0);
}

/* Trains until a checkpoint is there that is newer than this call, then asks to stop; $1: more words. */
#define TRAIN_A_LITTLE                                                                             \
    "little() { touch begin; " PROGRAM " train r.yaml qat.epochs=10000 checkpoint.every=1 $1 & "   \
    "until [ -n \"$(find new/checkpoints -name 'step-*.h5' -newer begin 2>/dev/null)\" ]; do "     \
    "kill -0 $! || return 99; sleep 0.05; done; kill -TERM $!; wait $!; }; "

Test(plugin, another_library_at_resume_is_said)
{
    shell(TRAIN_A_LITTLE "little -q; make -C plugin clean >log && "
                         "make -C plugin CFLAGS=-O1 >log && little");
    oct_check_exit(job, 75);
    oct_check_said(job, "plug-in example differs from the one of the last session");
}

Test(plugin, report_graph_and_tree_show_the_custom_parts)
{
    OCTET("check", "r.yaml", "--report", "report.txt");
    oct_check_exit(job, 0);
    shell("cat report.txt");
    oct_check_said(job, "gate: stays float: channel_gate has no quantized form");
    oct_check_said(job, "own range (shrunk)");
    OCTET("inspect", "--graph", "r.yaml");
    oct_check_exit(job, 0);
    oct_check_said(job, "gate");
    OCTET("inspect", "--tree", "r.yaml");
    oct_check_exit(job, 0);
    oct_check_said(job, "(gate): channel_gate(16 channels)");
    oct_check_said(job, "observer=shrunk");
    oct_check_said(job, "kind=leaky");
}

/* What may be wrong with a plug-in: one sentence, said once, and nothing is started. ranks: NULL without mpirun. */
static void check_refused_on(const char *ranks, const char *plugin, const char *sentence)
{
    char override[600];
    snprintf(override, sizeof(override), "plugins=[%s]", plugin);
    OCTET("train", "r.yaml", override, ranks ? "--ranks" : NULL, ranks);
    oct_check_exit(job, 2);
    cr_assert_eq(oct_process_said_times(&job, sentence), 1, "%s\n%s", sentence, job.err);
    cr_assert_eq(oct_process_said_times(&job, "octet: error: "), 1, "%s", job.err);
    cr_assert(access("new", F_OK) != 0);
}

static void check_refused(const char *plugin, const char *sentence)
{
    check_refused_on(NULL, plugin, sentence);
}

/* plugin/NAME.so from one line of C. */
static void build(const char *name, const char *code)
{
    char script[2000];
    snprintf(script, sizeof(script),
             "cat >%s.c <<'END'\n#include <octet/plugin.h>\n%s\nEND\n"
             "cc -shared -fPIC -o %s.so %s.c $(pkg-config --cflags octet)",
             name, code, name, name);
    shell(script);
    oct_check_exit(job, 0);
}

Test(plugin, each_fault_of_a_library_is_one_sentence)
{
    check_refused_on("2", "nowhere.so",
                     "plugins: nowhere.so: there is no such file; a relative path begins "
                     "at the current folder, and OCT_PLUGIN_PATH names folders to "
                     "search");
    check_refused("r.yaml", "plugins: r.yaml: cannot be loaded: ");
    shell("for n in 10 100 3000; do head -c $n plugin/example.so >cut$n.so; done");
    check_refused("cut10.so", "plugins: cut10.so: cannot be loaded: ");
    check_refused("cut100.so", "plugins: cut100.so: is cut short; build or copy it again");
    check_refused("cut3000.so", "plugins: cut3000.so: is cut short; build or copy it again");
    build("empty", "int nothing;");
    check_refused("empty.so", "plugins: empty.so: is a library, but no plug-in: it exports no "
                              "oct_plugin_entry");
    build("unresolved", "void missing_part(void); const oct_plugin *oct_plugin_entry(void) "
                        "{ missing_part(); return 0; }");
    check_refused_on("2", "unresolved.so", "undefined symbol: missing_part");
    build("old", "static const oct_plugin p = {.abi = (uint64_t)1 << 48, .name = \"old\"};"
                 "const oct_plugin *oct_plugin_entry(void) { return &p; }");
    check_refused("old.so", "plugins: old.so: was built for version 1 of the plug-in interface");
    build("bare", "const oct_plugin *oct_plugin_entry(void) { return 0; }");
    check_refused("bare.so", "plugins: bare.so: its oct_plugin_entry returned nothing");
}

Test(plugin, a_file_that_names_no_plug_in_is_a_wrong_file)
{
    OCTET("train", "r.yaml");
    oct_check_exit(job, 0);
    build("empty", "int nothing;");
    shell("cp empty.so plugin/example.so; OCT_PLUGIN_PATH=plugin " PROGRAM
          " eval new/model.int8.h5 --data data --allow-plugins");
    oct_check_exit(job, 3);
    oct_check_said(job, "plugin/example.so: is a library, but no plug-in: it exports no");
    cr_assert_eq(oct_process_said_times(&job, "octet: error: "), 1, "%s", job.err);
}

#define PLUGIN(name, list)                                                                         \
    "static const oct_plugin p = {.abi = OCT_PLUGIN_ABI, .name = " name "," list "};"              \
    "const oct_plugin *oct_plugin_entry(void) { return &p; }"

Test(plugin, names_that_are_taken_or_none_are_refused)
{
    build("nameless", PLUGIN("\"My Parts\"", ""));
    check_refused("nameless.so", "plugins: nameless.so: the plug-in's own name is missing or no "
                                 "name");
    build("twice", PLUGIN("\"example\"", ""));
    check_refused_on("2", "plugin/example.so,twice.so",
                     "plugins: twice.so: there is a plug-in example already, from ");
    build("model",
          "static oct_status b(oct_module **m, int64_t h, int64_t w, int64_t c, int64_t n)"
          "{ (void)m, (void)h, (void)w, (void)c, (void)n; return OCT_OK; }"
          "static const oct_model_spec s = {\"cnn-small\", \"mine\", 1, b, 0, 0, 0};" PLUGIN(
              "\"model\"", ".models = (const oct_model_spec *[]){&s, 0}"));
    check_refused("model.so", "plugins: model.so: there is a model 'cnn-small' already");
    build("observer", "static const oct_observer o = {.name = \"median\"};" PLUGIN(
                          "\"observer\"", ".observers = (const oct_observer *[]){&o, 0}"));
    check_refused("observer.so", "plugins: observer.so: observer median needs update or count");
}

/* In C++, which has no designated initializers before C++20; with a layer whose backward is its own and that stays float
 * in the int8 model. */
Test(plugin, of_cxx_trains_to_the_same_bytes_and_is_deployed)
{
    shell("for std in c++11 c++17; do g++ -std=$std -O2 -Wall -Wextra -Wpedantic -Wconversion "
          "-Werror -shared -fPIC -ffp-contract=off -o plugin/soft.so "
          "octet/share/octet/examples/plugin_cxx/soft.cc "
          "$(pkg-config --cflags octet) || exit 1; done");
    oct_check_exit(job, 0);
    shell("export OCT_PLUGIN_PATH=plugin; train() { " PROGRAM
          " train r.yaml 'plugins=[plugin/soft.so]' model.name=soft-net quant.observer=steady "
          "quant.fake_quant=affine \"$@\" || exit $?; }; train output=one; "
          "train output=two --ranks 2; cmp one/model.int8.h5 two/model.int8.h5 && " PROGRAM
          " verify one/model.int8.h5 --data data --allow-plugins && " PROGRAM
          " inspect one/model.int8.h5");
    oct_check_exit(job, 0);
    oct_check_said(job, "40 test images");
    oct_check_said(job, "soft_sign");
}

/* Plug-ins see what the public headers declare, and nothing else of Octet. */
Test(plugin, link_public_names_alone_and_share_no_struct_without_its_size)
{
    shell("cd octet/include/octet && for name in $(nm -D -u ../../../plugin/*.so | "
          "grep -oE 'oct_[a-z0-9_]+' | grep -v ^oct_headers_ | sort -u); do "
          "cat *.h | tr '\\n' ' ' | "
          "grep -q \"OCT_API [^;]*[ *]$name(\" || echo $name is not public; done; "
          "sed -n '/define OCT_PLUGIN_SIZES/,/clang-format on/p' plugin.h >sizes; "
          "for name in $(sed -n 's/^typedef struct \\(oct_[a-z0-9_]*\\) {$/\\1/p' nn.h task.h "
          "qparams.h quantizer.h plugin.h); do grep -qw $name sizes || echo the size of $name is "
          "missing; "
          "done; wc -l <sizes");
    oct_check_exit(job, 0);
    cr_assert_str_eq(job.out, "9\n");
}

Test(plugin, a_folder_to_search_stands_for_the_path)
{
    shell("mkdir elsewhere && mv plugin/example.so elsewhere && "
          "OCT_PLUGIN_PATH=/nowhere:elsewhere " PROGRAM " train r.yaml");
    oct_check_exit(job, 0);
}

Test(plugin, ranks_with_different_libraries_are_refused)
{
    shell("mkdir a b && cp plugin/example.so a && make -C plugin clean && "
          "make -C plugin CFLAGS=-O1 >log && cp plugin/example.so b && rm plugin/example.so && "
          "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; "
          "mpirun --oversubscribe -n 2 sh -c '[ $OMPI_COMM_WORLD_RANK = 0 ] && path=a || path=b; "
          "OCT_PLUGIN_PATH=$path exec " PROGRAM " train r.yaml'");
    oct_check_exit(job, 3);
    oct_check_said(job, "rank 1 (");
    oct_check_said(job, ") reads other plug-ins than rank 0 (");
}

/* Each host may name the library of its own copy of a run as it likes; only the code must be the same. */
Test(plugin, ranks_may_have_one_library_at_different_paths)
{
    shell("mkdir a b && cp plugin/example.so b/mine.so && " PROGRAM
          " train r.yaml output=a/new && " PROGRAM
          " train r.yaml output=b/new 'plugins=[b/mine.so]'");
    oct_check_exit(job, 0);
    shell("export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; "
          "mpirun --oversubscribe -n 2 sh -c '[ $OMPI_COMM_WORLD_RANK = 0 ] && cd a || cd b; "
          "OCT_PLUGIN_PATH=../plugin:. exec ../" PROGRAM
          " eval new --data ../data --allow-plugins'");
    oct_check_exit(job, 0);
}
