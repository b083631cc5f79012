/* Recipes: what is read, what is written, and the sentence for every mistake. */
#include "core/base/mem.h"
#include "io/recipe/recipe_impl.h"
#include "io/recipe/sensitivity_file.h"
#include "tests/support/tmp.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static oct_status read_text(oct_recipe *recipe, const char *text)
{
    return oct_recipe_read(recipe, "r.yaml", text, NULL, 0);
}

static void show_problems(void)
{
    for (size_t i = 0; i < oct_error_count(); i++)
        fprintf(stderr, "problem %zu: %s\n", i, oct_error_message(i));
}

/* The first line of a problem, without the file's excerpt. */
static void check_first_line(size_t problem, const char *want, const char *about)
{
    const char *text = oct_error_message(problem);
    size_t length = strcspn(text, "\n");
    cr_assert(length == strlen(want) && memcmp(text, want, length) == 0,
              "%s\n--- got\n%.*s\n--- wanted\n%s", about, (int)length, text, want);
}

/* One mistake, one problem, nothing half-filled, nothing leaked. */
static void check_refused(const char *text, const char *override, const char *want)
{
    oct_recipe recipe;
    size_t live = oct_mem_live();
    oct_status status = oct_recipe_read(&recipe, "r.yaml", text, &override, override ? 1 : 0);
    const char *about = override ? override : text;
    cr_assert(status == OCT_USAGE, "accepted: %s", about);
    check_first_line(0, want, about);
    if (oct_error_count() != 1) show_problems();
    cr_assert(oct_error_count() == 1, "%zu problems: %s", oct_error_count(), about);
    cr_assert(recipe.name == NULL && recipe.seed == 0);
    cr_assert(oct_mem_live() == live, "%s: %zu bytes leaked", about, oct_mem_live() - live);
}

#define HEAD "model.name: m\n"

static const struct {
    const char *text, *problem;
} mistakes[] = {
    /* transforms */
    {HEAD "data.train:\n  - flip\n  - rotat 10\n",
     "r.yaml:2:1: data.train: item 2: there is no transform 'rotat'; did you mean 'rotate'? "
     "allowed: resize, center_crop, random_crop, random_resized_crop, flip, vertical_flip, rotate, "
     "color_jitter, rand_augment, erase, cutout, noise, gain, shift"},
    {HEAD "data:\n  test: [resize 256, center_crop]\n",
     "r.yaml:3:3: data.test: item 2: center_crop has no size; write one, such as center_crop 224, "
     "or data.size"},
    {HEAD "data.test: [flip]\n",
     "r.yaml:2:1: data.test: item 1: flip is random, and evaluation must see the same every time; "
     "leave it to data.train"},
    {HEAD "data.size: 0\n",
     "r.yaml:2:1: data.size is '0'; write a size such as 224 or, height first, 224x160, of 1 to "
     "65500"},
    {HEAD "data.mixup: 0.2\nbatch.leaf: 1\n",
     "r.yaml:2:1: data.mixup mixes the samples of a leaf, but batch.leaf is 1; write at least 2"},
    /* names */
    {HEAD "sed: 1\n", "r.yaml:2:1: unknown key 'sed'; did you mean 'seed'?"},
    {HEAD "wholly_unknown: 1\n",
     "r.yaml:2:1: unknown key 'wholly_unknown'; octet help recipe lists all keys"},
    {HEAD "lr: 1\n", "r.yaml:2:1: unknown key 'lr'; did you mean 'float.lr' or 'qat.lr'?"},
    {HEAD "optimiser:\n  momentum: 0\n",
     "r.yaml:2:1: unknown key 'optimiser'; did you mean 'optimizer'?"},
    {HEAD "float:\n  lr_shedule: cosine\n  epochs: 3\n",
     "r.yaml:3:3: unknown key 'float.lr_shedule'; did you mean 'float.schedule'?"},
    {HEAD "data:\n  formt: idx\n",
     "r.yaml:3:3: unknown key 'data.formt'; did you mean 'data.format'?"},
    {HEAD "optimizer: {lr: 1}\n",
     "r.yaml:2:13: unknown key 'optimizer.lr'; did you mean 'float.lr' or 'qat.lr'?"},
    {HEAD "'': 1\n", "r.yaml:2:1: unknown key ''; octet help recipe lists all keys"},
    {HEAD "? [a]\n: 1\n", "r.yaml:2:3: a key is a word, not a list or a mapping; write key: value"},
    {HEAD "\"se\\0ed\": 1\n", "r.yaml:2:1: unknown key 'se?ed'; did you mean 'seed'?"},
    {HEAD "seed: 1\nseed: 2\n",
     "r.yaml:3:1: key 'seed' is already given in line 2; keep one of them"},
    {HEAD "data: {flip: true}\ndata: {drop_last: true}\n",
     "r.yaml:3:1: section 'data' is already given in line 2; merge the two"},
    {HEAD "data: {flip: true}\ndata.flip: false\n",
     "r.yaml:3:1: key 'data.flip' is already given in line 2; keep one of them"},
    {"seed: 1\n",
     "r.yaml: key 'model.name' is missing (a model of `octet help models`); add it to "
     "the recipe, or write model.name=VALUE on the command line; model.onnx: FILE takes "
     "a network of yours"},
    {"",
     "r.yaml: key 'model.name' is missing (a model of `octet help models`); add it to the "
     "recipe, or write model.name=VALUE on the command line; model.onnx: FILE takes a network of "
     "yours"},
    {HEAD "model.onnx: a.onnx\n", "r.yaml:2:1: model.name is m, but model.onnx is given too; "
                                  "keep one of them"},
    {HEAD "model.output: y\n", "r.yaml:2:1: model.output names an output of an ONNX file, but "
                               "model.onnx is not given; leave it out"},
    {"model.onnx: a.onnx\nmodel.onnx_sha256: abc\n",
     "r.yaml:2:1: model.onnx_sha256 is not a SHA-256 of 64 hexadecimal digits; leave it out, octet "
     "fills it in"},
    /* shapes */
    {HEAD "data: idx\n", "r.yaml:2:1: 'data' is a section; write its keys below it, indented"},
    {HEAD "data:\n", "r.yaml:2:1: 'data' is a section; write its keys below it, indented"},
    {HEAD "data: [1]\n", "r.yaml:2:1: 'data' is a section; write its keys below it, indented"},
    {HEAD "seed: {a: 1}\n",
     "r.yaml:2:7: seed: a mapping where a single value is expected; write a whole "
     "number from 0 to 1000000000000000"},
    {HEAD "name: [a]\n", "r.yaml:2:7: name: a list where a single value is expected; write a text"},
    {HEAD "data: {mean: 0.5}\n", "r.yaml:2:14: data.mean: 0.5 is not a list; write [0.5]"},
    {HEAD "data: {mean: x}\n",
     "r.yaml:2:14: data.mean: 'x' is not a list; write a list of numbers such as [0.5]"},
    {HEAD "data: {mean: {a: 1}}\n", "r.yaml:2:14: data.mean: a mapping where a single value is "
                                    "expected; write a list of numbers such as [0.5]"},
    {HEAD "data: {mean: [[0.5]]}\n",
     "r.yaml:2:15: data.mean: item 1 is not a number; write numbers only"},
    {"- seed: 1\n", "r.yaml:1:1: a recipe is a mapping; write lines such as seed: 1"},
    {"seed\n", "r.yaml:1:1: a recipe is a mapping; write lines such as seed: 1"},
    /* whole numbers */
    {HEAD "seed: 10x\n",
     "r.yaml:2:7: seed: '10x' is not a whole number; allowed: 0 to 1000000000000000"},
    {HEAD "seed: 0.5\n",
     "r.yaml:2:7: seed: '0.5' is not a whole number; allowed: 0 to 1000000000000000"},
    {HEAD "seed: 1_000\n", "r.yaml:2:7: seed: '1_000' is not a whole number; write 1000"},
    {HEAD "seed: 1e3\n", "r.yaml:2:7: seed: '1e3' is not a whole number; write 1000"},
    {HEAD "seed: 0x10\n",
     "r.yaml:2:7: seed: '0x10' is not a whole number; allowed: 0 to 1000000000000000"},
    {HEAD "seed: \"10\"\n",
     "r.yaml:2:7: seed: \"10\" is text, not a whole number; write it without quotes"},
    {HEAD "seed: ' '\n",
     "r.yaml:2:7: seed: ' ' is not a whole number; allowed: 0 to 1000000000000000"},
    {HEAD "seed: |\n  10\n",
     "r.yaml:2:7: seed: '10?' is not a whole number; allowed: 0 to 1000000000000000"},
    {HEAD "seed:\n", "r.yaml:2:6: seed: empty value; write a whole number from 0 to "
                     "1000000000000000, or null for the default (1)"},
    {HEAD "seed: ''\n", "r.yaml:2:7: seed: empty value; write a whole number from 0 to "
                        "1000000000000000, or null for the default (1)"},
    {HEAD "seed: -1\n", "r.yaml:2:7: seed: -1 is out of range; allowed: 0 to 1000000000000000"},
    {HEAD "seed: 99999999999999999999\n", "r.yaml:2:7: seed: 99999999999999999999 is out of range; "
                                          "allowed: 0 to 1000000000000000"},
    {HEAD "schema: 2\n", "r.yaml:2:9: schema: 2 is out of range; only 1 is allowed"},
    {HEAD "batch: {leaf: 0}\n", "r.yaml:2:15: batch.leaf: 0 is out of range; allowed: 1 to 4096"},
    /* numbers */
    {HEAD "float: {lr: nan}\n",
     "r.yaml:2:13: float.lr: 'nan' is not a finite number; allowed: 0 to 100"},
    {HEAD "float: {lr: .inf}\n",
     "r.yaml:2:13: float.lr: '.inf' is not a finite number; allowed: 0 to 100"},
    {HEAD "float: {lr: 1e999}\n",
     "r.yaml:2:13: float.lr: '1e999' is not a finite number; allowed: 0 to 100"},
    {HEAD "float: {lr: 0.1f}\n",
     "r.yaml:2:13: float.lr: '0.1f' is not a finite number; allowed: 0 to 100"},
    {HEAD "float: {lr: 100.5}\n",
     "r.yaml:2:13: float.lr: 100.5 is out of range; allowed: 0 to 100"},
    {HEAD "float: {lr: -0.1}\n", "r.yaml:2:13: float.lr: -0.1 is out of range; allowed: 0 to 100"},
    {HEAD "data: {mean: [0.5, x], std: [1, 1]}\n",
     "r.yaml:2:20: data.mean: item 2: 'x' is not a finite number; allowed: -1000000 to 1000000"},
    {HEAD "data: {std: [0]}\n",
     "r.yaml:2:14: data.std: item 1: 0 is out of range; allowed: 1e-09 to 1000000"},
    {HEAD "data:\n  std:\n  - '1'\n",
     "r.yaml:4:5: data.std: item 1: \"1\" is text, not a finite number; write it without quotes"},
    /* words and texts */
    {HEAD "data: {flip: yes}\n", "r.yaml:2:14: data.flip: 'yes' is not true or false; write true"},
    {HEAD "data: {flip: Off}\n", "r.yaml:2:14: data.flip: 'Off' is not true or false; write false"},
    {HEAD "data: {flip: maybe}\n",
     "r.yaml:2:14: data.flip: 'maybe' is not true or false; write true or false"},
    {HEAD "data: {flip: 'true'}\n",
     "r.yaml:2:14: data.flip: \"true\" is text, not true or false; write it without quotes"},
    {HEAD "float: {schedule: cosin}\n", "r.yaml:2:19: float.schedule: 'cosin' is not known; did "
                                        "you mean 'cosine'? allowed: constant, step, cosine, "
                                        "cosine_restarts, polynomial, one_cycle"},
    {HEAD "float: {schedule: x}\n",
     "r.yaml:2:19: float.schedule: 'x' is not known; allowed: constant, step, cosine, "
     "cosine_restarts, polynomial, one_cycle"},
    {HEAD "quant: {scales: recent}\n",
     "r.yaml:2:17: quant.scales: 'recent' is not known; allowed: delayed, current"},
    {HEAD "data: {format: idxx}\n",
     "r.yaml:2:16: data.format: 'idxx' is not known; did you mean "
     "'idx'? allowed: idx, cifar10, cifar100, folder, csv, npy, npz, hdf5"},
    {HEAD "quant: {observer: ''}\n",
     "r.yaml:2:19: quant.observer: an empty text; write at least one character"},
    {HEAD "numerics: float\n",
     "r.yaml:2:11: numerics: 'float' is not known; allowed: bf16, f32, int8"},
    {HEAD "float.numerics: int8\n",
     "r.yaml:2:17: float.numerics: 'int8' is not known; allowed: f32, bf16"},
    {HEAD "output: ''\n", "r.yaml:2:9: output: an empty text; write at least one character"},
    {HEAD "name: \"a\\0b\"\n", "r.yaml:2:7: name: a NUL character in the value; leave it out"},
    {HEAD "name: \"a\\eb\"\n",
     "r.yaml:2:7: name: a control character (U+001B) in a text; leave it out"},
    {"model: {name: }\n",
     "r.yaml:1:15: model.name: empty value; write a text, or null for the default (\"\")"},
    /* lists of texts */
    {HEAD "plugins: a.so\n", "r.yaml:2:10: plugins: 'a.so' is not a list; write [a.so]"},
    {HEAD "plugins: {a: 1}\n",
     "r.yaml:2:10: plugins: a mapping where a single value is expected; write a list "
     "of texts such as [one, two]"},
    {HEAD "plugins: [a, [b]]\n", "r.yaml:2:14: plugins: item 2 is not a text; write texts only"},
    {HEAD "plugins: [a, a]\n",
     "r.yaml:2:14: plugins: item 2: 'a' is in the list twice; keep one of them"},
    {HEAD "plugins: [a, '']\n",
     "r.yaml:2:14: plugins: item 2: an empty text; write at least one character"},
    {HEAD "plugins: [a, ~]\n", "r.yaml:2:14: plugins: item 2: '~' is not a text; leave it out"},
    {HEAD "plugins:\n- a\n-\n",
     "r.yaml:4:2: plugins: item 2: an empty value; leave out the comma or write a text"},
    {HEAD "plugins: [\"\\e\"]\n",
     "r.yaml:2:11: plugins: item 1: a control character (U+001B) in a text; leave it out"},
    {HEAD "plugins: [\"a\\0b\"]\n",
     "r.yaml:2:11: plugins: item 1: a NUL character in the text; leave it out"},
    /* YAML */
    {HEAD "seed: *a\n",
     "r.yaml:2:7: an alias (*...); recipes have none: write the value out, or put a "
     "text that begins with * in quotes"},
    {HEAD "seed: &a 1\n", "r.yaml:2:7: an anchor (&...); recipes have none: leave it out"},
    {HEAD "seed: !!int 1\n", "r.yaml:2:7: a tag (!...); recipes have none: leave it out"},
    {"--- !x\n" HEAD, "r.yaml:1:5: a tag (!...); recipes have none: leave it out"},
    {"%YAML 1.1\n---\n" HEAD, "r.yaml:1:1: a directive (%...); recipes have none: leave it out"},
    {HEAD "---\nseed: 1\n",
     "r.yaml:2:1: a second document begins; a recipe is one document: leave out this '---'"},
    {HEAD "\tseed: 1\n", "r.yaml:2:1: not valid YAML: found a tab character that violates "
                         "indentation (while scanning a "
                         "plain scalar); indent with spaces, not with tabs"},
    {HEAD "data:\n\tflip: true\n",
     "r.yaml:3:1: not valid YAML: found character that cannot start any token (while scanning for "
     "the next token); indent with spaces, not with tabs"},
    {HEAD "name: a: b\n", "r.yaml:2:8: not valid YAML: mapping values are not allowed in this "
                          "context; see the indentation; a text with ': ' in it needs quotes"},
    {HEAD "name: @a\n", "r.yaml:2:7: not valid YAML: found character that cannot start any token "
                        "(while scanning for the next token); put the text in quotes"},
    {HEAD "data: {mean: [0.5\n",
     "r.yaml:3:1: not valid YAML: did not find expected ',' or ']' (while parsing a flow "
     "sequence); see indentation, colons, brackets and quotes from here upwards"},
    {HEAD "name: \"\xff\"\n", "r.yaml:2:8: byte 0xff is not UTF-8; save the recipe as UTF-8 text"},
    {HEAD "name: \"\xc0\xaf\"\n",
     "r.yaml:2:8: byte 0xc0 is not UTF-8; save the recipe as UTF-8 text"},
    {HEAD "# \xc3\xa4 \x07\n", "r.yaml:2:5: character U+0007 is not allowed; leave it out"},
    {HEAD "name: a\xc2\x85seed: 3\n", "r.yaml:2:8: character U+0085 is not allowed; leave it out"},
    {HEAD "name: a\xe2\x80\xa8seed: 3\n",
     "r.yaml:2:8: character U+2028 is not allowed; leave it out"},
    {HEAD "name: a\xe2\x80\xa9seed: 3\n",
     "r.yaml:2:8: character U+2029 is not allowed; leave it out"},
    /* keys together */
    {HEAD "batch: {size: 4}\n",
     "r.yaml:2:9: batch.leaf (8) is larger than batch.size (4); write at most that"},
    {HEAD "batch:\n  leaf: 256\n  size: 128\n",
     "r.yaml:3:3: batch.leaf (256) is larger than batch.size (128); write at most that"},
    {HEAD "float: {epochs: 0}\nqat: {epochs: 0}\n",
     "r.yaml:2:9: float.epochs and qat.epochs are both 0, so nothing would be trained; write at "
     "least 1 for one of them"},
    {HEAD "float: {warmup: 5}\n", "r.yaml:2:9: float.warmup (5) is longer than the phase, "
                                  "float.epochs (4); write at most that"},
    {HEAD "qat: {schedule: step}\n",
     "r.yaml:2:7: qat.schedule is step, but qat.milestones is empty; write the epochs at which the "
     "rate falls, such as [2, 3]"},
    {HEAD "float: {schedule: step, milestones: [3, 2]}\n",
     "r.yaml:2:25: float.milestones: 2 comes after 3; write them in ascending order"},
    {HEAD "data: {mean: [0.1, 0.2]}\n", "r.yaml:2:8: data.mean has 2 values, but data.std 1; write "
                                        "one for each channel in both"},
    {HEAD "data: {mean: [], std: []}\n", "r.yaml:2:8: data.mean and data.std have no values; write "
                                         "one for each channel, or one for all"},
    {HEAD "qat: {freeze_batch_norm: 0.8}\n",
     "r.yaml:2:7: qat.freeze_batch_norm (0.8) is later than qat.freeze_scales (0.75), but "
     "statistics that move would move frozen scales; write at most 0.75"},
    {HEAD "qat: {freeze_scales: 0.25}\n",
     "r.yaml:2:7: qat.freeze_batch_norm (0.5) is later than qat.freeze_scales (0.25), but "
     "statistics that move would move frozen scales; write at most 0.25"},
    {HEAD "qat: {fold_batch_norm: true}\nquant: {batch_norm: folded}\n",
     "r.yaml:2:7: qat.fold_batch_norm is true, but quant.batch_norm is folded, so there is nothing "
     "left to fold; write qat.fold_batch_norm: false"},
    {HEAD "batch_norm: {group: 064}\n",
     "r.yaml:2:14: batch_norm.group is '064'; write batch, leaf, or a number of samples"},
    {HEAD "batch_norm: {group: 99999999999999999999}\n",
     "r.yaml:2:14: batch_norm.group is '99999999999999999999'; write batch, leaf, or a number of "
     "samples"},
    {HEAD "batch_norm: {group: 20}\n",
     "r.yaml:2:14: batch_norm.group is 20, but a group has batch.leaf (8) samples times a power of "
     "two; write one of 8, 16, 32, ..., or batch"},
    {HEAD "batch_norm: {group: 24}\n",
     "r.yaml:2:14: batch_norm.group is 24, but a group has batch.leaf (8) samples times a power of "
     "two; write one of 8, 16, 32, ..., or batch"},
    {HEAD "batch_norm: {group: 256}\n",
     "r.yaml:2:14: batch_norm.group (256 samples) does not divide batch.size (128); write a "
     "batch.size of whole groups, a smaller group, or batch"},
    {HEAD "batch: {size: 100}\nbatch_norm: {group: leaf}\n",
     "r.yaml:3:14: batch_norm.group (8 samples) does not divide batch.size (100); write a "
     "batch.size of whole groups, a smaller group, or batch"},
    {HEAD "quant: {bits: 12}\n", "r.yaml:2:9: quant.bits is 12; write 8 or 16"},
    {HEAD "quant: {sensitivity_topk: 3}\n",
     "r.yaml:2:9: there is no sensitivity table to take rows from; write quant.sensitivity: FILE "
     "(`octet sensitivity CHECKPOINT --output FILE` makes one)"},
};

Test(recipe, each_mistake_has_its_sentence)
{
    cr_assert(OCT_COUNT(mistakes) >= 45);
    for (size_t i = 0; i < OCT_COUNT(mistakes); i++)
        check_refused(mistakes[i].text, NULL, mistakes[i].problem);
}

static const struct {
    const char *override, *problem;
} line_mistakes[] = {
    {"float.epochs=", "command line: 'float.epochs=': empty value; write a whole number from 0 to "
                      "10000, or null for the default (4)"},
    {"float.epochs", "command line: 'float.epochs': no '='; write float.epochs=4"},
    {"data.path", "command line: 'data.path': no '='; write data.path=VALUE"},
    {"data.path=", "command line: 'data.path=': empty value; write a text, or null for the default "
                   "(\"\")"},
    {"epochs=20", "command line: 'epochs=20': unknown key 'epochs'; did you mean 'float.epochs' or "
                  "'qat.epochs'?"},
    {"sed=1", "command line: 'sed=1': unknown key 'sed'; did you mean 'seed'?"},
    {"data.men=[1]",
     "command line: 'data.men=[1]': unknown key 'data.men'; did you mean 'data.mean'?"},
    {"data=idx", "command line: 'data=idx': 'data' is a section; write one of its keys, such as "
                 "data.format=VALUE"},
    {"xyzzy", "command line: 'xyzzy': this is not key=value; `octet help recipe` lists the keys"},
    {"=3", "command line: '=3': unknown key ''; octet help recipe lists all keys"},
    {"seed=10x", "command line: 'seed=10x': '10x' is not a whole number; allowed: 0 to "
                 "1000000000000000"},
    {"seed= 1", "command line: 'seed= 1': ' 1' is not a whole number; allowed: 0 to "
                "1000000000000000"},
    {"data.flip=yes", "command line: 'data.flip=yes': 'yes' is not true or false; write true"},
    {"data.mean=0.5", "command line: 'data.mean=0.5': 0.5 is not a list; write [0.5]"},
    {"data.mean=[0.5", "command line: 'data.mean=[0.5': '[0.5' is not a list; write a list of "
                       "numbers such as [0.5]"},
    {"data.mean=[0.5,,1]", "command line: 'data.mean=[0.5,,1]': item 2: an empty value; leave out "
                           "the comma or write a number"},
    {"data.mean=[1],[2]",
     "command line: 'data.mean=[1],[2]': '[1],[2]' has text after its first ]; "
     "write one list"},
    {"plugins=a.so", "command line: 'plugins=a.so': 'a.so' is not a list; write [a.so]"},
    {"plugins=[a,,b]", "command line: 'plugins=[a,,b]': item 2: an empty value; leave out the "
                       "comma or write a text"},
    {"plugins=[a],b]",
     "command line: 'plugins=[a],b]': '[a],b]' has text after its first ]; write one list"},
    {"plugins=[a", "command line: 'plugins=[a': '[a' is not a list; write a list of texts such as "
                   "[one, two]"},
    {"data.mean=[9e9]", "command line: 'data.mean=[9e9]': item 1: 9e9 is out of range; allowed: "
                        "-1000000 to 1000000"},
    {"batch.size=4", "command line: 'batch.size=4': batch.leaf (8) is larger than batch.size (4); "
                     "write at most that"},
    {"name=\xff", "command line: 'name=?': byte 0xff is not UTF-8; write the text in UTF-8"},
    {"name=\033[2J", "command line: 'name=?[2J': a control character (U+001B) in a text; leave it "
                     "out"},
    {"model.name=null", "r.yaml: key 'model.name' is missing (a model of `octet help models`); add "
                        "it to the recipe, or write model.name=VALUE on the command line; "
                        "model.onnx: FILE takes a network of yours"},
};

Test(recipe, each_mistake_on_the_command_line_has_its_sentence)
{
    for (size_t i = 0; i < OCT_COUNT(line_mistakes); i++)
        check_refused(HEAD, line_mistakes[i].override, line_mistakes[i].problem);
}

Test(recipe, a_key_given_twice_on_the_command_line_is_refused)
{
    const char *overrides[] = {"seed=1", "threads=2", "seed=2"};
    oct_recipe recipe;
    cr_assert(oct_recipe_read(&recipe, "r.yaml", HEAD, overrides, 3) == OCT_USAGE);
    check_first_line(
        0, "command line: 'seed=2': seed was given before, as 'seed=1'; keep one of them", "twice");
    cr_assert(oct_error_count() == 1);
}

Test(recipe, ten_mistakes_are_ten_problems_in_one_run)
{
    oct_recipe recipe;
    const char *overrides[] = {"qat.epochs=-1", "log=3"};
    oct_status status = oct_recipe_read(&recipe, "r.yaml",
                                        "sed: 3\n"
                                        "model: {name: m}\n"
                                        "data:\n"
                                        "  formt: idx\n"
                                        "  flip: yes\n"
                                        "  mean: 0.5\n"
                                        "batch: {size: 1e3, leaf: \"8\"}\n"
                                        "float:\n"
                                        "  lr: 10x\n"
                                        "  schedule: cosin\n",
                                        overrides, 2);
    static const char *const begins[] = {
        "r.yaml:1:1: unknown key 'sed'",         "r.yaml:4:3: unknown key 'data.formt'",
        "r.yaml:5:9: data.flip: 'yes'",          "r.yaml:6:9: data.mean: 0.5",
        "r.yaml:7:15: batch.size: '1e3'",        "r.yaml:7:26: batch.leaf: \"8\"",
        "r.yaml:9:7: float.lr: '10x'",           "r.yaml:10:13: float.schedule: 'cosin'",
        "command line: 'qat.epochs=-1': -1 is ", "command line: 'log=3': 'log' is a section",
    };
    cr_assert(status == OCT_USAGE);
    if (oct_error_count() != 10) show_problems();
    cr_assert(oct_error_count() == 10);
    for (size_t i = 0; i < 10; i++)
        cr_assert(strncmp(oct_error_message(i), begins[i], strlen(begins[i])) == 0, "%zu: %s", i,
                  oct_error_message(i));
}

Test(recipe, a_problem_shows_the_line_with_a_caret_and_what_is_allowed)
{
    oct_recipe recipe;
    cr_assert(read_text(&recipe, HEAD "calibrate:\n  # \xc3\xa4\n  \"\xc3\xa4nd\": 1 \xc3\xb6\n") ==
              OCT_USAGE);
    cr_assert_str_eq(oct_error_message(0), "r.yaml:4:3: unknown key 'calibrate.\xc3\xa4nd'\n"
                                           "4 |   \"\xc3\xa4nd\": 1 \xc3\xb6\n"
                                           "  |   ^~~~~\n"
                                           "allowed in 'calibrate': batches");
}

Test(recipe, of_a_long_line_the_part_around_the_mistake_is_shown)
{
    oct_recipe recipe;
    char text[700];
    snprintf(text, sizeof text, HEAD "%*sseed: 10x%*s# end\n", 0, "", 500, "");
    cr_assert(read_text(&recipe, text) == OCT_USAGE);
    cr_assert(strlen(oct_error_message(0)) < 300);
    snprintf(text, sizeof text, HEAD "data: {path: %0300d, flip: maybe}\n", 7);
    cr_assert(read_text(&recipe, text) == OCT_USAGE);
    cr_assert(oct_error_count() == 1);
    const char *marks = strrchr(oct_error_message(0), '\n') + 1,
               *line = strstr(oct_error_message(0), "2 |");
    cr_assert(strncmp(line + (strchr(marks, '^') - marks), "maybe}", 6) == 0, "%s",
              oct_error_message(0));
    cr_assert(strncmp(strchr(marks, '^'), "^~~~~", 6) == 0, "%s", oct_error_message(0));
}

Test(recipe, after_broken_yaml_nothing_is_said_to_be_missing)
{
    oct_recipe recipe;
    const char *override = "sed=1";
    cr_assert(oct_recipe_read(&recipe, "r.yaml", "sed: 1\nname: [a\n", &override, 1) == OCT_USAGE);
    cr_assert(oct_error_count() == 4);
    check_first_line(3, "command line: 'sed=1': unknown key 'sed'; did you mean 'seed'?", "line");
}

Test(recipe, nested_and_endless_mistakes_end_early)
{
    enum { BYTES = 900000 };
    oct_recipe recipe;
    char *text;
    cr_assert(oct_alloc(&text, BYTES + 1, 1) == OCT_OK);
    memcpy(text, "x: ", 3);
    memset(text + 3, '[', BYTES - 3);
    double begin = oct_seconds();
    cr_assert(read_text(&recipe, text) == OCT_USAGE);
    check_first_line(1, "r.yaml:1:19: lists or mappings nested deeper than 16; is it a recipe?",
                     "");
    for (int i = 0; i < BYTES; i += 10)
        memcpy(text + i, "sedsed: 1\n", 10);
    cr_assert(read_text(&recipe, text) == OCT_USAGE);
    cr_assert(oct_error_count() == 51);
    check_first_line(
        50, "r.yaml:51:1: the rest was not read: too many problems; correct those first", "");
    cr_assert(oct_seconds() - begin < 2);
    oct_free(&text);
}

Test(recipe, files_are_read_and_refused_by_their_bytes)
{
    oct_tmp tmp;
    oct_recipe recipe;
    char want[600];
    oct_tmp_create(&tmp);
    const char *path = oct_tmp_write_text(&tmp, "good.yaml", "\xef\xbb\xbf" HEAD "seed: 7\r\n");
    cr_assert(oct_recipe_read(&recipe, path, NULL, NULL, 0) == OCT_OK);
    cr_assert(recipe.seed == 7);
    oct_recipe_free(&recipe);

    path = oct_tmp_write(&tmp, "nul.yaml", "seed: 1\0\n", 9);
    cr_assert(oct_recipe_read(&recipe, path, NULL, NULL, 0) == OCT_USAGE);
    snprintf(want, sizeof want, "%s:1:8: character U+0000 is not allowed; leave it out", path);
    check_first_line(0, want, "NUL");

    char *big;
    cr_assert(oct_alloc(&big, (1 << 20) + 1, 1) == OCT_OK);
    memset(big, '#', (1 << 20) + 1);
    path = oct_tmp_write(&tmp, "big.yaml", big, (1 << 20) + 1);
    oct_free(&big);
    cr_assert(oct_recipe_read(&recipe, path, NULL, NULL, 0) == OCT_DATA);
    cr_assert(strstr(oct_error_message(0), "1.05 MB") != NULL);

    path = oct_tmp_path(&tmp, "none.yaml");
    cr_assert(oct_recipe_read(&recipe, path, NULL, NULL, 0) == OCT_DATA);
    cr_assert(strstr(oct_error_message(0), path) != NULL);
    oct_tmp_remove(&tmp);
}

Test(recipe, texts_have_a_longest_length)
{
    oct_recipe recipe;
    char override[OCT_RECIPE_TEXT_MAX + 10] = "name=";
    const char *overrides[] = {override};
    memset(override + 5, 'x', OCT_RECIPE_TEXT_MAX);
    cr_assert(oct_recipe_read(&recipe, "r.yaml", HEAD, overrides, 1) == OCT_OK);
    cr_assert(strlen(recipe.name) == OCT_RECIPE_TEXT_MAX);
    oct_recipe_free(&recipe);
    override[5 + OCT_RECIPE_TEXT_MAX] = 'x';
    cr_assert(oct_recipe_read(&recipe, "r.yaml", HEAD, overrides, 1) == OCT_USAGE);
    cr_assert(strstr(oct_error_message(0), "': a text of 1025 bytes; at most 1024 are allowed"));
}

static void check_word(const oct_key *key, size_t value)
{
    oct_recipe recipe;
    oct_text text = {0};
    char word[100];
    snprintf(word, sizeof word, "%s=%s", key->name, oct_registry_name(key->table, value));
    const char *overrides[] = {word, "float.milestones=[1]", "qat.milestones=[1]"};
    cr_assert(oct_recipe_read(&recipe, "r.yaml", HEAD, overrides, 3) == OCT_OK, "%s",
              oct_error_message(0));
    cr_assert_eq(*(unsigned *)oct_key_field(key, &recipe), value, "%s", word);
    cr_assert(oct_key_print(key, &recipe, &text) == OCT_OK);
    cr_assert_str_eq(text.data, oct_registry_name(key->table, value));
    oct_text_free(&text);
    oct_recipe_free(&recipe);
}

Test(recipe, words_are_the_values_of_their_tables)
{
    int words = 0;
    for (const oct_key *key = oct_keys; key < oct_keys + OCT_KEYS; key++)
        for (size_t i = 0; key->kind == OCT_KEY_WORD && i < oct_registry_count(key->table); i++) {
            check_word(key, i);
            words++;
        }
    cr_assert(words >= 22);
    oct_recipe recipe;
    cr_assert(read_text(&recipe, HEAD "numerics: f32\noptimizer: {kind: adamw}\n"
                                      "quant: {method: eager, target: pow2, scales: current, "
                                      "batch_norm: folded}\n") == OCT_OK);
    cr_assert(recipe.numerics == OCT_NUMERICS_F32 && recipe.optimizer_kind == OCT_ADAMW);
    cr_assert(recipe.quant_method == OCT_METHOD_EAGER && recipe.quant_target == OCT_TARGET_POW2);
    cr_assert(recipe.quant_scales == OCT_SCALES_CURRENT);
    cr_assert(recipe.quant_batch_norm == OCT_BATCH_NORM_FOLDED);
    const oct_optim_config config = oct_recipe_optim(&recipe);
    cr_assert(config.kind == OCT_ADAMW && config.beta2 == 0.999f && config.nesterov);
    oct_recipe_free(&recipe);
}

Test(recipe, values_arrive_in_their_fields)
{
    oct_recipe recipe;
    const char *overrides[] = {"data.std=[ 0.1, 2e-1 ,.3]", "qat.lr=null", "name=a b: c", "seed=5"};
    cr_assert(oct_recipe_read(&recipe, "r.yaml",
                              "# comment\n"
                              "seed: 4\n"
                              "model:\n"
                              "  name: 'm'\n"
                              "data:\n"
                              "  mean:\n"
                              "  - 0.5\n"
                              "  - -1\n"
                              "  - 1e-2\n"
                              "  flip: true\n"
                              "  path: \"\"\n"
                              "float.schedule: step\n"
                              "float: {milestones: [1, 2.5], lr: ~}\n"
                              "qat: {lr: 3}\n",
                              overrides, OCT_COUNT(overrides)) == OCT_OK);
    cr_assert(recipe.schema == 1 && recipe.seed == 5 && recipe.threads == 1);
    cr_assert_str_eq(recipe.model_name, "m");
    cr_assert_str_eq(recipe.name, "a b: c");
    cr_assert_str_eq(recipe.data_path, "");
    cr_assert_eq(recipe.float_schedule, OCT_SCHEDULE_STEP);
    cr_assert_eq(recipe.data_format, OCT_DATASET_IDX);
    cr_assert(recipe.data_mean.count == 3 && recipe.data_mean.value[1] == -1 &&
              recipe.data_mean.value[2] == 0.01);
    cr_assert(recipe.data_std.count == 3 && recipe.data_std.value[1] == 0.2 &&
              recipe.data_std.value[2] == 0.3);
    cr_assert(recipe.float_milestones.count == 2 && recipe.float_milestones.value[1] == 2.5);
    cr_assert(recipe.data_flip && recipe.float_lr == 0.1 && recipe.qat_lr == 0.01);
    oct_recipe_free(&recipe);
    cr_assert(oct_mem_live() == 0);
}

static void check_texts(const oct_texts *list, const char *const *want, int count)
{
    cr_assert_eq(list->count, count);
    for (int i = 0; i < count; i++)
        cr_assert_str_eq(list->value[i], want[i]);
}

Test(recipe, lists_of_texts_arrive_and_are_written_as_they_were)
{
    static const char *const floats[] = {"layer1.*", "0", "a, b]", "true", "q\"q"};
    static const char *const wide[] = {"head", "a,b", "x"};
    oct_recipe first, second;
    oct_text one = {0}, two = {0};
    const char *override = "quant.int16_layers=[ head ,\"a,b\", x]";
    cr_assert(oct_recipe_read(&first, "r.yaml",
                              HEAD "quant:\n  float_layers: [layer1.*, 0, 'a, b]', true, 'q\"q']\n"
                                   "  int16_layers: [other]\n",
                              &override, 1) == OCT_OK,
              "%s", oct_error_message(0));
    check_texts(&first.quant_float_layers, floats, 5);
    check_texts(&first.quant_int16_layers, wide, 3);
    cr_assert_eq(first.plugins.count, 0);
    cr_assert(oct_recipe_write(&first, true, &one) == OCT_OK);
    cr_assert(read_text(&second, one.data) == OCT_OK, "%s", oct_error_message(0));
    check_texts(&second.quant_float_layers, floats, 5);
    check_texts(&second.quant_int16_layers, wide, 3);
    cr_assert(oct_recipe_write(&second, true, &two) == OCT_OK);
    cr_assert_str_eq(one.data, two.data);
    oct_recipe_free(&first);
    oct_recipe_free(&second);
    oct_text_free(&one);
    oct_text_free(&two);
    cr_assert(oct_mem_live() == 0);
}

/* A list that is one longer than `most`, whose items begin with `item`. */
static void check_longest(const char *key, const char *item, int most)
{
    oct_recipe recipe;
    oct_text text = {0};
    char want[128];
    cr_assert(oct_text_add(&text, HEAD "%s: [%s0", key, item) == OCT_OK);
    for (int i = 1; i <= most; i++)
        cr_assert(oct_text_add(&text, ", %s%d", item, i) == OCT_OK);
    cr_assert(oct_text_add(&text, "]\n") == OCT_OK);
    cr_assert(read_text(&recipe, text.data) == OCT_USAGE);
    snprintf(want, sizeof want, "%s: more than %d values; a list holds at most %d", key, most,
             most);
    cr_assert(strstr(oct_error_message(0), want), "%s", oct_error_message(0));
    oct_text_free(&text);
    cr_assert(oct_mem_live() == 0);
}

Test(recipe, lists_have_a_longest_length)
{
    check_longest("plugins", "a", 256);
    check_longest("float.milestones", "0.", 1024);
}

#define TABLE "# octet sensitivity 1\n"

static oct_status read_with_table(oct_recipe *recipe, const char *table, const char *more)
{
    oct_tmp tmp;
    char override[600];
    oct_tmp_create(&tmp);
    snprintf(override, sizeof override, "quant.sensitivity=%s",
             oct_tmp_write_text(&tmp, "table", table));
    const char *overrides[] = {override, more, "quant.int16_layers=[b]"};
    oct_status status = oct_recipe_read(recipe, "r.yaml", HEAD, overrides, 3);
    oct_tmp_remove(&tmp);
    return status;
}

Test(recipe, the_first_rows_of_a_sensitivity_table_become_16_bit_layers)
{
    static const char table[] = TABLE "# words\na activation -1.5 0.9 0.1\nb weight 2 0.9 0\n"
                                      "  b\tactivation 3 1e-1 -0.5\r\n\nc activation inf 1 0";
    static const struct {
        const char *key;
        int count;
    } cases[] = {{"quant.sensitivity_topk=1", 2},
                 {"quant.sensitivity_topk=2", 2},
                 {"quant.sensitivity_topk=4", 3},
                 {"quant.sensitivity_ratio=0.25", 2},
                 {"quant.sensitivity_ratio=0.76", 3}};
    static const char *const want[] = {"b", "a", "c"};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_recipe recipe;
        oct_text identity = {0};
        cr_assert(read_with_table(&recipe, table, cases[i].key) == OCT_OK, "%s",
                  oct_error_message(0));
        check_texts(&recipe.quant_int16_layers, want, cases[i].count);
        cr_assert(oct_recipe_write(&recipe, true, &identity) == OCT_OK);
        cr_assert(strstr(identity.data, "sensitivity") == NULL, "a checkpoint needs no table");
        oct_text_free(&identity);
        oct_recipe_free(&recipe);
    }
    cr_assert(oct_mem_live() == 0);
}

Test(recipe, a_sensitivity_table_is_printed_in_columns)
{
    oct_text text = {0};
    oct_sensitivity_row rows[] = {
        {.path = "a.b", .tensor = "activation", .sqnr = -1.25, .cosine = 0.5, .loss_change = 1},
        {.path = "conv1", .tensor = "weight", .sqnr = 20, .cosine = 1, .loss_change = -1e-9},
        {.path = "c", .tensor = "weight", .sqnr = INFINITY, .cosine = 1},
    };
    cr_assert(oct_sensitivity_print(&(oct_sensitivity){rows, 3}, "one\ntwo", &text) == OCT_OK);
    cr_assert_str_eq(text.data, TABLE "# one\n# two\n"
                                      "# path  tensor        sqnr_db       cosine  loss_change\n"
                                      "a.b     activation    -1.2500   0.50000000     1.000000\n"
                                      "conv1   weight        20.0000   1.00000000     0.000000\n"
                                      "c       weight            inf   1.00000000     0.000000\n");
    oct_text_free(&text);
}

static const struct {
    const char *table, *key, *problem;
} table_mistakes[] = {
    {TABLE, "quant.sensitivity_topk=1",
     "quant.sensitivity: the sensitivity table is empty; make one with `octet sensitivity "
     "CHECKPOINT`"},
    {TABLE "a activation 1 1 0\n", "seed=1",
     "quant.sensitivity: neither topk nor ratio says how many rows of the sensitivity table to "
     "use; give one"},
    {TABLE "a activation 1 1 0\n", "quant.sensitivity_topk=2",
     "quant.sensitivity: topk is 2, but the sensitivity table has 1 rows; give 1 to 1"},
    {"a activation 1 1 0\n", "quant.sensitivity_topk=1",
     "this is not a sensitivity table: its first line is not '# octet sensitivity 1'; make one "
     "with "
     "`octet sensitivity CHECKPOINT --output FILE`"},
    {TABLE "a activation 1 1\n", "quant.sensitivity_topk=1",
     ":2: a row has five words (path, activation or weight, sqnr_db, cosine, loss_change), this "
     "one "
     "has fewer"},
    {TABLE "a activation 1 1 0 0\n", "quant.sensitivity_topk=1",
     ":2: a row has five words (path, activation or weight, sqnr_db, cosine, loss_change), this "
     "one "
     "has more"},
    {TABLE "\na bias 1 1 0\n", "quant.sensitivity_topk=1",
     ":3: the second word is 'bias'; write activation or weight"},
    {TABLE "a weight nan 1 0\n", "quant.sensitivity_topk=1",
     ":2: sqnr_db is 'nan'; write a number or inf"},
    {TABLE "a weight 1 inf 0\n", "quant.sensitivity_topk=1", ":2: cosine is 'inf'; write a number"},
    {TABLE "a weight 1 1 0x1\n", "quant.sensitivity_topk=1",
     ":2: loss_change is '0x1'; write a number"},
    {TABLE "a weight 1 1 0\na activation 1 1 0\na weight 2 1 0\n", "quant.sensitivity_topk=1",
     ":4: the weight of a is already in the table; keep one of the rows"},
    {TABLE "a weight 2 1 0\nb weight 1 1 0\n", "quant.sensitivity_topk=1",
     ":3: sqnr_db 1 comes after 2; the most sensitive row, with the lowest, comes first"},
};

Test(recipe, each_mistake_in_a_sensitivity_table_has_its_sentence)
{
    for (size_t i = 0; i < OCT_COUNT(table_mistakes); i++) {
        oct_recipe recipe;
        cr_assert(read_with_table(&recipe, table_mistakes[i].table, table_mistakes[i].key) !=
                  OCT_OK);
        const char *text = oct_error_message(0), *want = table_mistakes[i].problem;
        cr_assert(oct_error_count() == 1 && strlen(text) >= strlen(want) &&
                      strcmp(text + strlen(text) - strlen(want), want) == 0,
                  "\n--- got\n%s\n--- wanted\n%s", text, want);
        cr_assert(oct_mem_live() == 0);
    }
}

Test(recipe, topk_and_ratio_of_a_table_exclude_each_other)
{
    oct_recipe recipe;
    const char *overrides[] = {"quant.sensitivity=none", "quant.sensitivity_topk=1",
                               "quant.sensitivity_ratio=0.5"};
    cr_assert(oct_recipe_read(&recipe, "r.yaml", HEAD, overrides, 2) == OCT_DATA, "no such file");
    cr_assert(strstr(oct_error_message(0), "none: "));
    oct_tmp tmp;
    char file[600];
    oct_tmp_create(&tmp);
    snprintf(file, sizeof file, "quant.sensitivity=%s",
             oct_tmp_write_text(&tmp, "table", TABLE "a activation 1 1 0\n"));
    overrides[0] = file;
    cr_assert(oct_recipe_read(&recipe, "r.yaml", HEAD, overrides, 3) == OCT_USAGE);
    check_first_line(0,
                     "quant.sensitivity: topk 1 and ratio 0.5 both say how many rows of the "
                     "sensitivity table count; give only one",
                     "both");
    oct_tmp_remove(&tmp);
}

Test(recipe, what_is_written_reads_back_the_same)
{
    static const char *const names[] = {
        "run",
        "null",
        "true",
        "No",
        "y",
        "12",
        "1.5",
        " a",
        "a ",
        "a: b",
        "a #b",
        "- a",
        "\"q\" \\ '",
        "@x",
        "/a/b.c",
        "\xc3\xa4\xe2\x82\xac",
        "\xe2\x80\xa8z",
        "\xef\xbb\xbfz",
        "#",
        "[a]",
        "~",
    };
    for (size_t i = 0; i < OCT_COUNT(names); i++) {
        char output[64], lr[64];
        oct_recipe first, second;
        oct_text one = {0}, two = {0}, difference = {0};
        snprintf(output, sizeof output, "output=%s", names[i]);
        snprintf(lr, sizeof lr, "float.lr=%.17g", 0.1 * (double)(i + 1) / 3);
        const char *overrides[] = {output, lr, "data.mean=[0.1,0.30000000000000004]",
                                   "data.std=[1,1e-3]", "seed=1000000000000000"};
        bool taken = strcmp(names[i], "null") == 0 || strcmp(names[i], "~") == 0;
        cr_assert(oct_recipe_read(&first, "r.yaml", HEAD, overrides, 5) == OCT_OK, "%s",
                  oct_error_message(0));
        cr_assert_str_eq(first.output, taken ? "runs/run" : names[i]);
        cr_assert(oct_recipe_write(&first, false, &one) == OCT_OK);
        cr_assert(read_text(&second, one.data) == OCT_OK, "%s", oct_error_message(0));
        cr_assert_str_eq(first.output, second.output);
        cr_assert(first.float_lr == second.float_lr && first.seed == second.seed);
        cr_assert(memcmp(&first.data_mean, &second.data_mean, sizeof first.data_mean) == 0);
        cr_assert(oct_recipe_write(&second, false, &two) == OCT_OK);
        cr_assert_str_eq(one.data, two.data);
        cr_assert(oct_recipe_compare(&first, &second, &difference) == OCT_OK);
        cr_assert(difference.length == 0, "%s", difference.data);
        oct_recipe_free(&first);
        oct_recipe_free(&second);
        oct_text_free(&one);
        oct_text_free(&two);
    }
    cr_assert(oct_mem_live() == 0);
}

Test(recipe, numbers_are_written_with_the_fewest_digits)
{
    oct_recipe recipe;
    oct_text text = {0};
    cr_assert(read_text(&recipe, HEAD "float: {lr: 0.10}\nlog: {every: 10}\n") == OCT_OK);
    cr_assert(oct_recipe_write(&recipe, false, &text) == OCT_OK);
    cr_assert(strstr(text.data, "\n  lr: 0.1  ") && strstr(text.data, "\n  every: 10  "));
    oct_recipe_free(&recipe);
    oct_text_free(&text);
}

Test(recipe, identity_leaves_out_what_changes_no_bit)
{
    oct_recipe here, there;
    oct_text a = {0}, b = {0}, difference = {0};
    const char *overrides[] = {"output=x", "threads=4",          "data.path=/x",
                               "name=n",   "checkpoint.every=7", "log.every=3"};
    cr_assert(oct_recipe_read(&here, "r.yaml", HEAD, NULL, 0) == OCT_OK);
    cr_assert(oct_recipe_read(&there, "r.yaml", HEAD, overrides, OCT_COUNT(overrides)) == OCT_OK);
    cr_assert(oct_recipe_write(&here, true, &a) == OCT_OK);
    cr_assert(oct_recipe_write(&there, true, &b) == OCT_OK);
    cr_assert_str_eq(a.data, b.data);
    cr_assert(strchr(a.data, '#') == NULL && strstr(a.data, "\noutput:") == NULL);
    cr_assert(oct_recipe_compare(&there, &here, &difference) == OCT_OK);
    cr_assert(difference.length == 0);
    oct_recipe_free(&there);
    cr_assert(read_text(&there, a.data) == OCT_OK, "%s", oct_error_message(0));
    oct_recipe_free(&there);

    cr_assert(read_text(&there, HEAD "float: {lr: 0.2}\ndata: {format: cifar10}\n") == OCT_OK);
    cr_assert(oct_recipe_compare(&there, &here, &difference) == OCT_OK);
    cr_assert_str_eq(difference.data, "data.format: cifar10 there, idx here\n"
                                      "float.lr: 0.2 there, 0.1 here\n");
    oct_recipe_free(&there);
    oct_recipe_free(&here);
    oct_text_free(&a);
    oct_text_free(&b);
    oct_text_free(&difference);
}

Test(recipe, help_names_every_key)
{
    oct_text text = {0};
    cr_assert(oct_recipe_help(NULL, &text) == OCT_OK);
#define OCT_KEY(key, field, kind, def, min, max, table, same, help)                                \
    cr_assert(strstr(text.data, "\n" key " ") && strstr(text.data, help), "%s", key);
#include "io/recipe/recipe_list.def"
#undef OCT_KEY
    oct_text_free(&text);
}

Test(recipe, memory_that_runs_out_is_said_and_leaves_nothing)
{
    int failures = 0;
    for (int64_t n = 1; n < 200; n++) {
        oct_recipe recipe;
        oct_mem_fail_after(n);
        oct_status status =
            read_text(&recipe, HEAD "name: x\nfloat: {schedule: step, milestones: [1]}\n");
        oct_mem_fail_after(0);
        if (status == OCT_OK) {
            oct_recipe_free(&recipe);
            break;
        }
        failures++;
        cr_assert(status == OCT_RESOURCE, "allocation %lld: %s", (long long)n,
                  oct_error_message(0));
        cr_assert(oct_mem_live() == 0, "allocation %lld", (long long)n);
    }
    cr_assert(failures > 5 && failures < 199);
}

Test(recipe, the_shipped_recipes_are_good)
{
    static const char *const files[] = {
        "fashion-mnist", "cifar10-resnet20",     "cifar10-mobilenetv2",
        "image-folder",  "imagenet-mobilenetv2", "imagenet-resnet50",
        "segmentation",  "multilabel",           "autoencoder"};
    for (size_t i = 0; i < OCT_COUNT(files); i++) {
        char path[600];
        oct_recipe recipe;
        snprintf(path, sizeof path, OCT_SOURCE_DIR "/launch/recipes/%s.yaml", files[i]);
        cr_assert(oct_recipe_read(&recipe, path, NULL, NULL, 0) == OCT_OK, "%s",
                  oct_error_message(0));
        cr_assert_str_eq(recipe.name, files[i]);
        oct_recipe_free(&recipe);
    }
}

/* Each item of a list of transforms may be written with or without names; a missing size is data.size. */
Test(recipe, transforms_become_a_list_that_runs)
{
    oct_recipe recipe;
    oct_augment train, test;
    cr_assert(read_text(&recipe, HEAD "data:\n"
                                      "  size: 96x64\n"
                                      "  train: [random_resized_crop scale=0.25..1, flip 0.3]\n"
                                      "  test:\n"
                                      "    - resize 112\n"
                                      "    - center_crop\n"
                                      "  mean: [0.1, 0.2]\n  std: [1, 1]\n") == OCT_OK);
    oct_recipe_augment(&recipe, OCT_TRAIN, &train);
    oct_recipe_augment(&recipe, OCT_TEST, &test);
    cr_assert(train.count == 2 && train.item[0].transform == &oct_transform_random_resized_crop);
    cr_assert(train.item[0].value[0].from == 96 && train.item[0].value[0].to == 64);
    cr_assert(train.item[0].value[1].from == 0.25 && train.item[1].value[0].from == 0.3);
    cr_assert(train.h == 96 && train.w == 64 && train.mean.count == 2);
    cr_assert(test.count == 2 && test.item[0].value[0].from == 112);
    cr_assert(test.item[0].value[0].to == 0 && test.item[1].value[0].to == 64);
    oct_recipe_free(&recipe);
}

/* What an old recipe does not have stays out of its identity. */
Test(recipe, unused_keys_of_samples_are_not_in_the_identity)
{
    oct_recipe recipe;
    oct_text text = {0};
    cr_assert(read_text(&recipe, HEAD) == OCT_OK);
    cr_assert(oct_recipe_write(&recipe, true, &text) == OCT_OK);
    static const char *const keys[] = {"train:", "test:", "mixup:", "cutmix:"};
    for (size_t i = 0; i < OCT_COUNT(keys); i++)
        cr_assert(!strstr(text.data, keys[i]), "%s", text.data);
    oct_text_free(&text);
    oct_recipe_free(&recipe);
}
