# What may stand at a place of an octet command line, as `octet help` has it: a word a line, a tab, and what it means.
#   _octet_words OCTET                       commands
#   _octet_words OCTET COMMAND               options, keys and names
#   _octet_words OCTET COMMAND --OPTION      values of an option, where they are words
#   _octet_words OCTET COMMAND KEY= | zoo:   values of a key, networks of the zoo
# What is below completes with these in one shell; both are made one file when Octet is built.
_octet_words() {
    case ${3-} in
    zoo:) "$1" zoo | awk 'NR > 1 && !NF { exit } NR > 1 { print $1 "\tint8 model" }' ;;
    model.name=) "$1" help models | awk '!NF { exit } { name = $1; sub(/^[^ ]+ +/, ""); print name "\t" $0 }' ;;
    *=) "$1" help "${3%=}" | awk 'NR == 2 {
            values = substr($0, 29, 34)
            sub(/ +$/, "", values)
            if (gsub(/, /, "\t\n", values) && values !~ / /) print values "\t"
        }' ;;
    *:) ;;
    --target) "$1" targets | awk -F: '/^[a-z0-9-]+:/ { print $1 "\t" substr($2, 2) }' ;;
    -*) "$1" help "$2" | awk -v option="$3" '/^  -/ && index($0 " ", option) {
            for (i = 2; i <= 3; i++) if (gsub(/\|/, "\t\n", $i)) print $i "\t"
        }' ;;
    *)
        "$1" help ${2:+"$2"} | awk -v command="$2" '
            /^Usage: / || /^Commands$/ { on = 1 }
            !NF { on = 0 }
            on && command == "" && /^  / { name = $1; sub(/^ +[^ ]+ +/, ""); print name "\t" $0 }
            on && command != "" { # words of the usage in small letters stand for themselves
                sub(/^(Usage:)? *octet [a-z]+/, "")
                count = split($0, word, /[][ |]+/)
                for (i = 1; i <= count; i++) {
                    if (word[i] ~ /^[a-z]+$/ && word[i] != "options") print word[i] "\t"
                    keys = keys || word[i] == "key=value" || word[i] == "KEY"
                }
            }
            /^  -/ { print plain($1) "\t" substr($0, 32) }
            END { exit keys ? 3 : 0 }
            function plain(name) { sub(/,$/, "", name); return name }'
        [ $? = 3 ] && [ "$2" != zoo ] && "$1" help recipe | awk -v end="$([ "$2" = help ] || echo =)" '
            !NF { exit } NR > 1 { print $1 end "\t" substr($0, 79) }'
        [ "$2" = zoo ] && printf '%s\t\n' data.path= output= threads=
        case $2 in
        recipes | zoo) "$1" "$2" | awk '!NF { exit } $1 != "NAME" { name = $1; sub(/^[^ ]+ +/, ""); print name "\t" $0 }' ;;
        targets) _octet_words "$1" "$2" --target ;;
        help) _octet_words "$1" "" ;;
        esac ;;
    esac 2>/dev/null
}
