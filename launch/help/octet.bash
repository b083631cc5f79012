
_octet() {
    local at=$COMP_CWORD current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} place= command= words
    # Bash splits key=value and zoo:NAME where COMP_WORDBREAKS has = and :, and completes what is after them.
    case $current in
    [=:]) place=$before$current current= ;;
    *[=:]*) place=${current%"${current#*[=:]}"} ;;
    *) case $before in
        [=:]) place=${COMP_WORDS[at - 2]}$before ;;
        -*) [[ $current == -* ]] || place=$before ;;
        esac ;;
    esac
    [ "$at" -gt 1 ] && command=${COMP_WORDS[1]}
    words=$(_octet_words "$1" "$command" "$place" | cut -f 1)
    [[ $current == -* ]] || words=$(grep -v '^-' <<<"$words")
    [[ $at == 2 ]] && words=$(grep -v '=$' <<<"$words") # a command's first word is no key
    [[ $current == *[=:]* ]] || place=
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "${current#"$place"}")
    COMPREPLY=("${COMPREPLY[@]/#/$place}")
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
}
complete -o default -F _octet octet
