# SPDX-License-Identifier: Apache-2.0
#
# Shared by the golden suites: runs cases, each in a folder of its own, and compares
# digests of all that they leave with tests/golden/TOPIC.golden. A topic is a script
# that includes this file and defines run_case LINE, which is called for each line of
# TOPIC.cases by golden_main; or it calls golden_case for each case and golden_end last.
#
#     TOPIC.sh                  compare all cases
#     TOPIC.sh CASE...          compare these
#     TOPIC.sh show CASE...     print all that is digested, as it is digested
#     TOPIC.sh write [CASE...]  replace the golden, or the lines of these cases
#
# Before the first case a topic may set:
#
#     golden_kinds    digests of files, as NAME=GLOB: the first whose pattern matches a file's
#                     path has it; "data" has those that none matches. NAME@=GLOB takes only
#                     files of the newest folder global_step_N, and "-" is not digested
#     golden_values   names of metrics of which the last values are shown in the golden
#     golden_exact    pattern of JSON keys whose numbers are not rounded
#     golden_every    a sanitized build runs one of so many cases
#
# and define case_values NAME, which prints words for the end of a case's line.
. "$(dirname "${BASH_SOURCE[0]}")/../rl/lib.sh"
export LC_ALL=C TZ=UTC
unset XRAY_PLUGIN_PATH
command -v python3 >/dev/null || { echo "skipped: needs python3"; exit 77; }

golden_topic=$(basename "$0" .sh)
golden_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
golden_kinds=()
golden_values=()
golden_exact=
golden_every=8
golden_mode=compare
case ${1:-} in write | show)
    golden_mode=$1
    shift
    ;;
esac
golden_wanted=" $* "
golden_count=0
golden_running=0
golden_waiting=()
declare -A golden_defined
mkdir -p "$work/cases"
: >"$work/results"
: >"$work/same"

golden_py() { # SUBCOMMAND [ARGUMENT...]
    GOLDEN_KINDS="${golden_kinds[*]}" GOLDEN_VALUES="${golden_values[*]}" GOLDEN_EXACT=$golden_exact \
        GOLDEN_WORK=$work python3 "$golden_folder/golden.py" "$@"
}

# Digests the cases that ended, and removes what they wrote.
golden_flush() {
    [ ${#golden_waiting[@]} -gt 0 ] || return 0
    wait
    golden_running=0
    local name
    if declare -F case_values >/dev/null; then
        for name in "${golden_waiting[@]}"; do case_values "$name" >"$work/cases/$name.values"; done
    fi
    if [ "$golden_mode" = show ]; then
        golden_py show "${golden_waiting[@]}"
    else
        golden_py digest "${golden_waiting[@]}" >>"$work/results"
    fi
    rm -rf "${golden_waiting[@]/#/$work/cases/}"
    golden_waiting=()
}

# True if this call runs the case: those named on the command line, or all of them,
# of which a sanitized build leaves most out.
golden_chosen() { # NAME
    if [ "$golden_wanted" != "  " ]; then
        [[ $golden_wanted = *" $1 "* ]]
        return
    fi
    ! sanitized || [ $((golden_count % golden_every)) = 0 ]
}

# Runs the command, which may be a function, in an empty folder, beside one other case.
golden_case() { # NAME COMMAND...
    local name=$1
    shift
    golden_count=$((golden_count + 1))
    echo "$name" >>"$work/names"
    golden_chosen "$name" || return 0
    mkdir "$work/cases/$name"
    echo "$*" >"$work/cases/$name.command"
    (
        cd "$work/cases/$name"
        code=0
        "$@" </dev/null >"../$name.out" 2>"../$name.err" || code=$?
        echo $code >"../$name.code"
    ) &
    golden_running=$((golden_running + 1))
    golden_waiting+=("$name")
    if [ "$golden_running" = 2 ]; then
        wait -n || true
        golden_running=1
    fi
    [ ${#golden_waiting[@]} -lt 24 ] || golden_flush
}

# The digests KIND,KIND of all cases of a group are to be equal.
golden_same() { # NAME GROUP KIND,KIND...
    echo "$1 $2 $3" >>"$work/same"
}

# Reads TOPIC.cases: a line is a case, whose first word is its name. "@WORD text" is no
# case: for golden_words, @WORD in later lines stands for the text.
golden_main() {
    local line name
    while IFS= read -r line; do
        case $line in '' | '#'*) continue ;; '@'*)
            name=${line%% *}
            golden_defined[$name]=${line#"$name"}
            continue
            ;;
        esac
        golden_case "${line%% *}" run_case "$line"
    done <"$golden_folder/$golden_topic.cases"
    golden_end
}

# Sets the array `words` to those of a line, without its first, as a shell reads them.
golden_words() { # LINE
    local text=${1#* } word
    for word in $(grep -oE '(^| )@[A-Za-z0-9_.-]+' <<<" $text" || true); do
        [ -z "${golden_defined[$word]+set}" ] || text=${text//$word/${golden_defined[$word]}}
    done
    eval "words=($text)"
}

golden_end() {
    golden_flush
    [ "$golden_mode" != show ] || return 0
    golden_py compare "$golden_folder/$golden_topic.golden" "$golden_mode" "$golden_wanted" || exit 1
    local count
    count=$(wc -l <"$work/results")
    [ "$golden_mode" = write ] && echo "golden.$golden_topic: $count cases written" ||
        echo "golden.$golden_topic: $count cases are as they were"
}
