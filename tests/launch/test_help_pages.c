/* Man pages and completion are made of what `octet help` says: nothing in them is wrong, and nothing is missing. */
#include "launch/cmd/command.h"
#include "tests/support/program.h"

#include <string.h>

TestSuite(help_pages, .init = enter_folder, .fini = leave_folder, .timeout = 120);

#define PAGES OCT_BINARY_DIR "/help/man"

Test(help_pages, each_command_has_a_man_page_with_its_options)
{
    shell("ls " PAGES " | wc -l");
    cr_assert_eq(strtoul(job.out, NULL, 10), oct_command_count() + 1, "%s", job.out);
    for (size_t i = 0; i < oct_command_count(); i++) {
        const oct_command *command = oct_command_at(i);
        char line[400];
        snprintf(line, sizeof line, "sed 's/\\\\-/-/g' " PAGES "/octet-%s.1 " PAGES "/octet.1",
                 command->name);
        shell(line);
        snprintf(line, sizeof line, "octet-%s - %.20s", command->name, command->summary);
        oct_check_said(job, line);
        snprintf(line, sizeof line, ".BR octet-%s (1)", command->name);
        oct_check_said(job, line);
        for (const oct_option *o = command->options; o && o->name; o++)
            oct_check_said(job, o->name);
    }
}

Test(help_pages, man_pages_are_good_roff)
{
    shell("command -v mandoc >/dev/null && mandoc -T lint " PAGES "/*.1; "
          "command -v groff >/dev/null && for f in " PAGES "/*.1; do "
          "groff -ww -man -Tutf8 $f 2>&1 >/dev/null; done; true");
    cr_assert_str_eq(job.out, "", "%s", job.out);
}

/* What bash offers for the words of a line, whose last one is under way; words as bash splits them. */
static void complete(const char *words)
{
    char line[800];
    snprintf(line, sizeof line,
             ". " OCT_BINARY_DIR "/help/octet; COMP_WORDS=(octet %s); "
             "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _octet " OCT_PROGRAM
             "; echo \" ${COMPREPLY[*]} \"",
             words);
    shell(line);
}

Test(help_pages, bash_completes_commands_options_keys_values_and_names)
{
    static const char *const lines[][2] = {
        {"tr", " train "},
        {"train --ra", " --ranks "},
        {"train r.yaml --progress ''", " bar lines none "},
        {"convert run --target tfl", " tflite tflm "},
        {"train r.yaml float.num", " float.numerics= "},
        {"train r.yaml float.numerics = b", " bf16 "},
        {"train r.yaml float.numerics=b", " float.numerics=bf16 "},
        {"train r.yaml model.name = resnet2", " resnet20 "},
        {"train ''", "  "}, /* files */
        {"recipes fas", " fashion-mnist "},
        {"zoo ma", " make "},
        {"zoo make ti", " tiny "},
        {"zoo make tiny da", " data.path= "},
        {"verify zoo : ti", " tiny "},
        {"help qat.lr", " qat.lr "},
        {"nothing ''", "  "},
    };
    for (size_t i = 0; i < OCT_COUNT(lines); i++) {
        complete(lines[i][0]);
        job.out[strcspn(job.out, "\n")] = '\0';
        cr_expect_str_eq(job.out, lines[i][1], "%s: '%s'", lines[i][0], job.out);
    }
    complete("''");
    for (size_t i = 0; i < oct_command_count(); i++) {
        char word[64];
        snprintf(word, sizeof word, " %s ", oct_command_at(i)->name);
        cr_expect(strstr(job.out, word), "%s in %s", word, job.out);
    }
}

/* In an interactive zsh, by the key Tab. */
Test(help_pages, zsh_completes_too)
{
    shell("command -v zsh");
    if (job.out[0] == '\0') cr_skip("no zsh here");
    must("cat >drive <<'END'\n"
         "zmodload zsh/zpty\n"
         "zpty -b shell 'zsh -f -i'\n"
         "until_said() { local x; text=; repeat 300; do zpty -rt shell x && text+=$x; "
         "[[ $text == *$1* ]] && return; sleep 0.05; done; print missing: $1 in $text }\n"
         "zpty -w shell \"PATH=" OCT_BINARY_DIR ":\\$PATH; fpath=(" OCT_BINARY_DIR
         "/help \\$fpath)\"\n"
         "zpty -w shell 'autoload -U compinit; compinit -D -u; echo rea''dy'\n"
         "until_said ready\n"
         "complete() { zpty -w -n shell $1$'\\t'; until_said $2; zpty -w -n shell $'\\x15' }\n"
         "complete 'octet rec' 'recipes'\n"
         "complete 'octet train r.yaml --res' '--restart'\n"
         "complete 'octet train r.yaml float.num' 'erics='\n"
         "complete 'octet train r.yaml float.numerics=b' '=bf16'\n"
         "complete 'octet zoo make ti' 'tiny'\n"
         "complete 'octet verify zoo:ti' 'zoo:tiny'\n"
         "zpty -d shell\n"
         "END\n");
    shell("zsh -f drive");
    cr_assert_str_eq(job.out, "", "%s", job.out);
}
