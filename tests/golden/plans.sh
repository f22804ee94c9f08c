#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Golden suite of what is computed before a run: xray check, plan, config print and
# schema over INIs that plans.cases draws from all sections and keys.
#
# A case is a name and shell words:
#   check plan print schema   the command; print and schema are those of xray config
#   cuda                      needs device-cuda, here the one that runs on the host
#   -OPTION, --OPTION=VALUE   passed to the command
#   S.K=VALUE                 a line of run.ini, in section S
#   +S.K=VALUE                --set S.K=VALUE
#   %NAME=VALUE               an environment variable
#   file:NAME:TEXT            another file; a line break is "\n"
#   top:TEXT, line:TEXT       a line before the first section, or where it stands
#   @NAME                     the words that a line "@NAME words" defines
. "$(dirname "$0")/lib.sh"

# ---- models and rows, which all cases share -----------------------------------
make_fixtures() {
    local name text
    mkdir "$work/m" "$work/d"
    while read -r name text; do
        case $name in '' | '#'*) continue ;; esac
        mkdir "$work/m/$name"
        printf '%s\n' "$text" >"$work/m/$name/config.json"
        cp "$XRAY_TEST_DATA/models/stories260K/hf/tokenizer.json" \
            "$XRAY_TEST_DATA/models/stories260K/hf/tokenizer_config.json" "$work/m/$name/"
    done <"$golden_folder/plans.models"
    local i
    for ((i = 0; i < 300; i++)); do
        echo "{\"prompt\":\"Once upon a time $i\",\"answer\":\"$((i % 7))\",\"question\":\"q$i\",\"data_source\":\"s$((i % 3))\"}"
    done >"$work/d/rows.jsonl"
    head -n 20 "$work/d/rows.jsonl" >"$work/d/few.jsonl"
    if [ -e "$XRAY_BUILD/tests/cuda/device-cuda.so" ]; then
        mkdir "$work/with-cuda"
        ln -s "$XRAY_BUILD"/plugins/*.so "$work/with-cuda/"
        ln -sf "$XRAY_BUILD/tests/cuda/device-cuda.so" "$work/with-cuda/"
    fi
}

# ---- a case ---------------------------------------------------------------------
# Lines of the INI by section; the last word that sets a key counts.
add_line() { # SECTION KEY LINE
    if [ -z "${keys[$1]:-}" ]; then sections+=("$1"); fi
    if [ -z "${text[$1.$2]:-}" ]; then keys[$1]+=" $2"; fi
    text[$1.$2]=$3
}

run_case() {
    local -A keys text
    local -i lines=0
    local sections=()
    local words word ini="" top="" section="" key
    local options=() variables=() parts=() command="" cuda="" code=0 files=()
    golden_words "$1"
    for word in "${words[@]}"; do
        case $word in
        check | plan) command=$word ;;
        print | schema) command="config $word" ;;
        cuda) cuda=1 ;;
        -*) options+=("$word") ;;
        +*) options+=(--set "${word#+}") ;;
        %*) variables+=("${word#%}") ;;
        file:*)
            word=${word#file:}
            files+=("${word%%:*}")
            mkdir -p "$(dirname "${word%%:*}")"
            printf '%b\n' "${word#*:}" >"${word%%:*}"
            ;;
        top:*) top+=${word#top:}$'\n' ;;
        line:*)
            lines+=1
            add_line "$section" "line$lines" "${word#line:}"
            ;;
        *)
            key=${word%%=*}
            section=${key%.*}
            add_line "$section" "${key##*.}" "${key##*.} = ${word#*=}"
            ;;
        esac
    done
    for section in "${sections[@]}"; do
        ini+="[$section]"$'\n'
        for key in ${keys[$section]}; do ini+=${text[$section.$key]}$'\n'; done
    done
    printf '%s%s' "$top" "$ini" >run.ini
    [ -z "$cuda" ] || options+=(--plugin-path "$work/with-cuda")
    [ "$command" = "config schema" ] || parts=(run.ini)
    # shellcheck disable=SC2086
    env "${variables[@]}" "$XRAY_BIN" $command "${parts[@]}" "${options[@]}" || code=$?
    rm -f run.ini "${files[@]}" # only what the program left counts
    find . -type d -empty -delete
    return $code
}

# A plan's bytes and the last words of a check; else golden.py's.
case_values() {
    local out=$work/cases/$1.out
    if [ -s "$work/cases/$1.err" ]; then
        head -n 1 "$work/cases/$1.err" | sed -E "s,$work/,,g; s,^xray: ,," | cut -c 1-60
    elif ! sed -nE 's/^ "bytes":.*"all":([0-9]+).*/\1 bytes/p; s/^all  .*  ([^ ]+ [^ ]*B)$/\1/p' "$out" | grep .; then
        echo "$(wc -l <"$out") lines"
    fi
}

make_fixtures
golden_every=10
# Not every build has device-cuda, whose cases are then left out.
[ -e "$work/with-cuda" ] || without=' cuda '
while IFS= read -r line; do
    case $line in '' | '#'*) continue ;; '@'*) golden_defined[${line%% *}]=${line#* } && continue ;; esac
    if [[ -n ${without:-} && $line == *$without* ]]; then
        echo "${line%% *}" >>"$work/names"
    else
        golden_case "${line%% *}" run_case "$line"
    fi
done <"$golden_folder/plans.cases"
golden_end
