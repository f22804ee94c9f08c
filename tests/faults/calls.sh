#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# calls.sh [all | SCENARIO...]
#
# Every call of the C library that can fail, fails once: each site (function and stack
# of callers) at its first, its second and its last call. The program either does what
# it does undisturbed, or ends with exit code 1 and one sentence that gives the reason;
# nothing is left over, and the next try gives what an undisturbed one gives.
# Without arguments eight calls of each scenario fail, spread over all.
#   CALLS_MOST=n   at most so many cases of a scenario
#   CALLS_SEED=n   others of them
#   CALLS_ONLY=re  only cases whose line matches: the key that a failure prints
. "$(dirname "$0")/../rl/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
shim=$XRAY_BUILD/tests/faults/calls-shim.so
calls_table=$XRAY_BUILD/tests/faults/calls-table
export LC_ALL=C
unset FAULT_AT CALLS_FAIL

. "$here/calls_scenarios.sh"
command -v addr2line >/dev/null || { echo "skipped: no addr2line"; exit 77; }
sed -E 's/ *#.*//; /^ *$/d' "$here/calls_ignored.txt" >"$work/ignored"

# Prints the text without times and folders.
steady_text() { # FOLDER
    sed -E "s,$1,DIR,g; s/in [0-9.]+ s, [0-9.]+ tokens\/s/in TIME/; s/pid [0-9]+/pid N/g
        s/0x[0-9a-f]+/ADDRESS/g; /^(timing_s|perf)\//d"
}

# outcome FOLDER: names and content of all files.
outcome() {
    local file
    (
        cd "$1"
        find . -mindepth 1 | sort | while read -r file; do
            case $file in
            */metrics.jsonl | */run.ini) echo "$file $(steady "$file" | steady_text "$1" | cksum)" ;;
            */manifest.json) echo "$file $(sed -E 's/"(size|xxh64|self)": "[^"]*"//g' "$file" | cksum)" ;;
            */.lock | *.html | */output.txt | */history.json | */events.out* | *.log | */time*) echo "${file/events.out*/events}" ;;
            *) if [ -f "$file" ]; then echo "$file $(cksum <"$file")"; else echo "$file"; fi ;;
            esac
        done
    )
}

# try LANE [VAR=VALUE...]: the scenario's command in the lane's folder.
try() {
    local lane=$1 code=0
    shift
    rm -f "$lane/table"
    "$calls_table" "$lane/table" sites >/dev/null
    (
        cd "$lane/dir"
        exec env TMPDIR="$lane/tmp" CALLS_TABLE="$lane/table" LD_PRELOAD="$shim" "$@" \
            timeout -k 1 "${CALLS_SECONDS:-60}" "${command[@]}"
    ) <"$input" >"$lane/out.raw" 2>"$lane/err.raw" || code=$?
    "$calls_table" "$lane/table" ends | sort >"$lane/ends"
    steady_text "$lane" <"$lane/out.raw" >"$lane/out"
    steady_text "$lane" <"$lane/err.raw" >"$lane/err"
    echo "$code" >"$lane/code"
    outcome "$lane/dir" >"$lane/files"
    ls -A "$lane/tmp" >>"$lane/files"
}

fill() { # LANE
    rm -rf "$1/dir" "$1/tmp"
    mkdir -p "$1/dir" "$1/tmp"
    [ "$prepare" = - ] || (cd "$1/dir" && $prepare)
}

same_outcome() { cmp -s "$1/code" "$2/code" && cmp -s "$1/out" "$2/out" && cmp -s "$1/files" "$2/files"; }

# judge LANE REASON FUNCTION: prints what is wrong with a try after its call has failed.
judge() {
    local lane=$1 reason=$2 function=$3 code said more
    code=$(cat "$lane/code")
    said=$(diff "$calm/err" "$lane/err" | sed -n 's/^> //p' || true)
    more=$(comm -13 "$calm/ends" "$lane/ends" | grep -v '^fired$' || true)
    [ -z "$more" ] || echo "left at the end: $more"
    case $reason in
    Interrupted* | short | "Resource temporarily unavailable "*)
        same_outcome "$calm" "$lane" && [ -z "$said" ] || echo "this is to stay invisible: exit $code"
        return 0
        ;;
    esac
    if [ "$code" != "$(cat "$calm/code")" ]; then
        case $code in
        1 | 2) ;;
        *) echo "exit code $code" ;;
        esac
        # A Workhorse, and a warning, may say why, too.
        [ "$(grep '^xray: ' <<<"$said" | grep -cvE '^xray: (workhorse|warning): ')" = 1 ] || grep -q '"error":' "$lane/out" || echo "not one sentence"
        more=$(comm -13 <(sed 's/ .*//' "$calm/before" "$calm/files" | sort -u) <(sed 's/ .*//' "$lane/files" | sort))
        # A folder whose removal failed is removed by the next try.
        more=$(grep -v '^\./out/\.removed-' <<<"$more" || true)
        [ -z "$more" ] || echo "left over: $more"
    elif [[ $said = *"the run goes on without it"* ]]; then
        cmp -s "$calm/out" "$lane/out" && cmp -s <(grep -v /tensorboard "$calm/files") <(grep -v /tensorboard "$lane/files") ||
            echo "the result is another: $(diff "$calm/files" "$lane/files" | head -n 4)"
    else
        # A list of files says why one of them cannot be read.
        same_outcome "$calm" "$lane" || grep -qiE "$(reason_of "$reason")" "$lane/out" ||
            echo "the result is another: $(diff "$calm/files" "$lane/files" | head -n 4)"
        [ "$(grep -c '^xray: ' <<<"$said")" -le 2 ] || echo "more than two sentences"
    fi
    # Bytes that are not on the disk are never passed over, though they look the same.
    case $function in fsync | posix_fallocate) [ -n "$said" ] || echo "nothing is said" ;; esac
    [ -z "$said" ] || grep -qiE "$(reason_of "$reason")" <<<"$said" || grep -q '"error":.*'"$reason" "$lane/out" || echo "no sentence says '$reason'"
}

# A path that nobody can look at is opened, since it may be there. After its one failure the
# call succeeds, and then it is no folder, or not there.
reason_of() {
    case $1 in
    "Permission denied") echo "$1|Not a directory|No such file or directory|exists|holds" ;;
    missing) echo "exports no" ;;
    "Cannot allocate memory") echo "out of memory|$1|not enough memory" ;;
    *) echo "$1" ;;
    esac
}

# A run that starts again keeps what the first try wrote beside its own; one that has
# done its last step does not name it again.
without_first_try() { grep -vE '(metrics\.jsonl|tensorboard)\.[0-9]|latest_checkpointed'; }

# one_case LANE LINE
one_case() {
    local lane=$1 key count kind reason who function frames at wrong more
    IFS=$'\t' read -r at key count kind reason who function frames <<<"$2"
    fill "$lane"
    try "$lane" CALLS_FAIL="$key $at $kind"
    # Threads may have made fewer calls this time.
    grep -q '^fired$' "$lane/ends" || { echo "$2" >>"$lane/missed"; return 0; }
    wrong=$(judge "$lane" "$reason" "$function")
    if [ -z "$wrong" ] && { [ "$(cat "$lane/code")" != "$(cat "$calm/code")" ] || ! cmp -s "$calm/err" "$lane/err"; }; then
        cp "$lane/err" "$lane/said"
        [ "$(cat "$lane/code")" = "$(cat "$calm/code")" ] || {
            try "$lane"
            more=$(diff <(without_first_try <"$calm/files") <(without_first_try <"$lane/files") | head -n 4)
            # Files that were complete before the failure are not written twice.
            [ -z "$more" ] && { cmp -s "$calm/code" "$lane/code" || grep -q 'already exists; a conversion' "$lane/err"; } ||
                wrong="the next try: exit $(cat "$lane/code"): $(head -n 1 "$lane/err") $more"
        }
        cp "$lane/said" "$lane/err"
    fi
    # shellcheck disable=SC2086
    [ -z "$wrong" ] || { show_frames $frames >"$lane/stack" && ! is_known "$lane" "$function"; } || return 0
    [ -z "$wrong" ] || {
        echo "---- $name: call $at of $count of $function in $who: $reason"
        echo "$wrong"
        echo "    CALLS_ONLY=$key  $frames"
        cat "$lane/stack"
        sed 's/^/    | /' "$lane/err" | head -n 6
    } >>"$lane/wrong"
}

# is_known LANE FUNCTION: calls_ignored.txt says that this is right.
is_known() {
    local function caller says
    while read -r function caller says; do
        [ "$function" = "$2" ] && grep -q "^ *$caller " "$1/stack" || continue
        [ -n "$says" ] || return 0
        # shellcheck disable=SC2086
        grep -qE "$says" "$1/err" && return 0
    done <"$work/ignored"
    return 1
}

show_frames() {
    local frame module
    for frame in "$@"; do
        module=${frame%+*}
        if [ "$module" = xray ]; then module=$XRAY_BIN; else module=$XRAY_BUILD/plugins/$module; fi
        addr2line -f -s -e "$module" "${frame##*+}" | tr '\n' ' ' | sed 's/^/      /; s/$/\n/'
    done
}

run_lane() { # LANE FILE
    local line
    set +e
    : >"$1/wrong"
    : >"$1/missed"
    while IFS= read -r line; do one_case "$1" "$line"; done <"$2"
    echo done >"$1/done"
}

# Sites that an earlier scenario had are not tried again.
: >"$work/tried"
total=0
bad=0
# scenario NAME PREPARE COMMAND...: PREPARE fills the folder in which COMMAND runs.
scenario() {
    name=$1
    prepare=$2
    shift 2
    command=("$@")
    input=${INPUT:-/dev/null}
    [ -z "$wanted" ] || [[ " $wanted " = *" $name "* ]] || return 0
    calm=$work/calm
    fill "$calm"
    outcome "$calm/dir" >"$calm/before"
    try "$calm"
    [ "$(cat "$calm/code")" = "${CODE:-0}" ] || fail "$name: exit $(cat "$calm/code"): $(cat "$calm/err")"
    "$calls_table" "$calm/table" sites >"$work/sites"
    # A second time, since what differs from time to time is no finding.
    fill "$work/lane1"
    try "$work/lane1"
    same_outcome "$calm" "$work/lane1" ||
        fail "$name: two undisturbed runs differ: $(diff "$calm/files" "$work/lane1/files") $(diff "$calm/out" "$work/lane1/out")"
    awk -F '\t' -v tried="$work/tried" -v seed="${CALLS_SEED:-1}" '
        BEGIN { while ((getline line < tried) > 0) seen[line] = 1 }
        seen[$1] { next }
        { print $1 >> (tried ".new") }
        { last = $2; print 1 "\t" $0 }
        last > 1 { print 2 "\t" $0 }
        last > 2 { print last "\t" $0 }' "$work/sites" | grep -E "${CALLS_ONLY:-.}" |
        awk -v most="${CALLS_MOST:-0}" -v seed="${CALLS_SEED:-1}" '
        { line[NR] = $0 }
        END {
            step = most && NR > most ? NR / most : 1
            for (i = seed % step; i < NR; i += step) print line[int(i) + 1]
        }' >"$work/cases" || true
    cat "$work/tried.new" >>"$work/tried" 2>/dev/null || true
    rm -f "$work/tried.new"
    local lanes="1 2 3" lane
    for lane in $lanes; do
        mkdir -p "$work/lane$lane"
        rm -f "$work/lane$lane/done"
        awk -v n="$lane" 'NR % 3 == n % 3' "$work/cases" >"$work/lane$lane/cases"
        run_lane "$work/lane$lane" "$work/lane$lane/cases" &
    done
    wait
    [ "$(cat "$work"/lane*/done | wc -l)" = 3 ] || fail "$name: not all cases were tried"
    local cases wrong missed
    cases=$(wc -l <"$work/cases")
    cat "$work"/lane*/wrong >"$work/wrong"
    wrong=$(grep -c '^---- ' "$work/wrong" || true)
    missed=$(cat "$work"/lane*/missed | wc -l)
    cat "$work/wrong"
    echo "$name: $cases cases, $missed of them did not come, $wrong are wrong"
    total=$((total + cases))
    bad=$((bad + wrong))
}
wanted=$*
[ -n "$wanted" ] || CALLS_MOST=${CALLS_MOST:-8}
[ "$wanted" != all ] || wanted=
all_scenarios
[ "$bad" = 0 ] || fail "$bad of $total cases"
echo "faults.calls: $total cases: ok"
