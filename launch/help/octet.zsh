
_octet() {
    local place= command= line name
    local -a names names_shown keys keys_shown
    (( CURRENT > 2 )) && command=$words[2]
    if compset -P '*='; then
        place=$IPREFIX
    elif compset -P 'zoo:'; then
        place=zoo:
    elif [[ $words[CURRENT-1] == -* && $PREFIX != -* ]]; then
        place=$words[CURRENT-1]
    fi
    for line in ${(f)"$(_octet_words $words[1] "$command" "$place")"}; do
        name=${line%%$'\t'*}
        case $name in
        -*) [[ $PREFIX == -* ]] || continue ;;
        *=) (( CURRENT == 3 )) && continue # a command's first word is no key
            keys+=($name) keys_shown+=("${(r:28:)name} ${line#*$'\t'}")
            continue ;;
        esac
        names+=($name) names_shown+=("${(r:28:)name} ${line#*$'\t'}")
    done
    (( $#keys + $#names )) || { _files; return }
    compadd -S '' -l -d keys_shown -a keys
    compadd -l -d names_shown -a names
}
_octet "$@"
