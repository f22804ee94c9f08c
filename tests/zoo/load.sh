#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that plugins which fail when they are loaded, queried or created end
# the program with one sentence that names the plugin and the call.
. "$(dirname "$0")/../rl/lib.sh"
make_task
zoo=$XRAY_BUILD/tests/zoo
# The program's own handler must report it, not a sanitizer's.
quiet=handle_segv=0:handle_abort=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:$quiet:detect_leaks=0:use_sigaltstack=0 TSAN_OPTIONS=${TSAN_OPTIONS:-}:$quiet

# expect CODE SENTENCE COMMAND...: the exit code, and the one line on stderr.
expect() {
    local want=$1 sentence=$2 code=0 line lines
    shift 2
    # A subshell, so that its own report of a crash is not captured.
    { ("$@") >"$work/out" 2>"$work/err" || code=$?; } 2>/dev/null
    [ "$code" = "$want" ] || fail "exit $code, expected $want: $* : $(cat "$work/err")"
    # The location that selects the plugin may come first.
    line=$(cat "$work/err")
    [ "$line" = "$sentence" ] || [[ "$line" = "xray: "*": ${sentence#xray: }" ]] ||
        fail "$* says: $line, expected: $sentence"
    lines=$(wc -l <"$work/err")
    [ "$lines" = 1 ] || fail "$lines lines: $(cat "$work/err")"
}

inspect() { "$XRAY_BIN" plugin inspect "$@"; }

# ---- loading and querying: tried in a child first ----------------------------
one() { # KIND: a folder with that exhibit only, as --plugin-path takes it
    mkdir -p "$work/$1"
    cp "$zoo/$1.so" "$work/$1/"
    echo "$work/$1"
}
for kind in load_crashes query_crashes; do
    file=$(one $kind)/$kind.so
    expect 1 "xray: $file: crashes (SIGSEGV) in ${kind%_*}" inspect "$file"
done
file=$(one query_exits)/query_exits.so
expect 1 "xray: $file: ends the process (exit code 0) in query" inspect "$file"
file=$(one query_dies)/query_dies.so
expect 1 "xray: $file: ends the process (exit code 3) in query" inspect "$file"
# What the plugin itself or its check says arrives as it was said.
file=$(one refuses)/refuses.so
expect 1 "xray: $file: refuses xray ABI 0.3" inspect "$file"
file=$(one missing)/missing.so
expect 1 "xray: $file: 'zoo' lacks loss, which xray.algo/0 requires" inspect "$file"
file=$work/query_dies/query_dies.so
for name in SIGBUS SIGFPE SIGILL SIGABRT SIGKILL "a signal"; do
    number=$(kill -l "${name/a signal/SIGTERM}")
    ZOO_SIGNAL=$number expect 1 "xray: $file: crashes ($name) in query" inspect "$file"
done
# Only the trial itself holds the pipe of its report: a program that a plugin starts and
# leaves running does not keep the trial waiting.
ZOO_COMMAND='test -p /dev/fd/3 && exit 4; exit 5' expect 1 "xray: $file: ends the process (exit code 5) in query" inspect "$file"

run() { # KIND [--set ...]
    local dir
    dir=$(one "$1")
    shift
    exec "$XRAY_BIN" train "${ini:-$work/run.ini}" --plugin-path "$dir" --set run.algo=zoo \
        --set "trainer.default_local_dir=$work/out-$RANDOM" "$@"
}
file=$(one query_hangs)/query_hangs.so
from="--set: [run] algo:"
start=$(date +%s)
expect 2 "xray: $from $file: did not return from query in its trial" run query_hangs --set run.plugin_timeout=1
expect 2 "xray: $from $work/query_crashes/query_crashes.so: crashes (SIGSEGV) in query" run query_crashes
[ $(($(date +%s) - start)) -lt 60 ] || fail "the limit of 1 s was not kept"

# Those in the program's own folders are trusted, and not tried: a crash is its own.
own=$work/own/lib64/xray/plugins
mkdir -p "$work/own/bin" "$own"
cp "$XRAY_BIN" "$work/own/bin/"
for kind in load_crashes query_crashes; do
    cp "$zoo/$kind.so" "$own/"
    expect 139 "xray: $own/$kind.so: crashed in ${kind%_*} (SIGSEGV)" "$work/own/bin/${XRAY_BIN##*/}" plugin inspect "$own/$kind.so"
done

# A listing runs none of their code.
for kind in load_crashes query_crashes query_hangs query_exits; do
    "$XRAY_BIN" plugin list --plugin-path "$work/$kind" >"$work/list" 2>&1 || fail "$kind: $(cat "$work/list")"
    grep -q '^zoo  *1.2.3' "$work/list" || fail "$(cat "$work/list")"
done
# A fault in the note or the symbols is refused without loading the plugin.
"$XRAY_BIN" plugin list --plugin-path "$(one extra_symbols)" >"$work/list"
grep -q "exports zoo_helper besides xray_plugin_query" "$work/list" || fail "$(cat "$work/list")"

# ---- creating ---------------------------------------------------------------
expect 139 "xray: algo.zoo: crashed in create (SIGSEGV)" run create_crashes
expect 134 "xray: algo.zoo: crashed in create (SIGABRT)" run create_aborts
expect 1 "xray: algo.zoo: called exit in create; a plugin must not end the process" run create_exits
expect 1 "xray: algo.zoo: did not come back from create within 1 s ([run] plugin_timeout)" \
    run create_hangs --set run.plugin_timeout=1
expect 2 "xray: algo.zoo: create failed with status -201 (options cannot work)" run create_silent
expect 1 "xray: algo.zoo: create failed with status 7 (a status this xray does not know)" run create_odd
expect 1 "xray: algo.zoo: create gave neither an instance nor an error" run create_empty
expect 2 "xray: algo.zoo: zoo_create: only for looks" run good
# An option that the plugin names gets its location: where it is set, or would be.
ini=$work/over.ini
printf 'include = below.ini\n[algo.zoo]\n' >"$ini"
printf 'include = run.ini\n[algo.zoo]\n\ncount = 4\n' >"$work/below.ini"
expect 2 "xray: $work/below.ini:4: [algo.zoo] count: only for looks" run names_key
echo 'count = 5' >>"$ini"
expect 2 "xray: $ini:3: [algo.zoo] count: only for looks" run names_key
expect 2 "xray: --set: [algo.zoo] count: only for looks" run names_key --set algo.zoo.count=6
XRAY_ALGO_ZOO__COUNT=7 expect 2 "xray: XRAY_ALGO_ZOO__COUNT: [algo.zoo] count: only for looks" run names_key
# A sentence that only looks like a location is not interpreted.
expect 2 "xray: algo.zoo: count: [data] filters: only for looks" run writes_key
ini=$work/run.ini
expect 2 "xray: $ini: [algo.zoo] count: only for looks" run names_key
# Properties that the plugin declares must be true.
expect 1 "xray: algo.zoo: needs has the bits 0x100000, which this xray does not know" run needs_odd
expect 1 "xray: algo.zoo: needs XRAY_NEED_MINI_FORWARD, and has no select that would read it" run needs_forward
expect 1 "xray: algo.zoo: metric_names gave no list" run names_null
presets() { "$XRAY_BIN" algo list --plugin-path "$(one "$1")"; }
expect 1 "xray: $(one presets_wide)/presets_wide.so: the table of presets of 'zoo' is wrong: it must have 1 to 1024 columns and at most 1024 rows" presets presets_wide
expect 1 "xray: $(one presets_null)/presets_null.so: the table of presets of 'zoo' is wrong: a cell is NULL" presets presets_null
for bound in h w e H W z s t c n; do
    export ZOO_BOUND=$bound
    case $bound in
    [hwe]) presets presets_most >"$work/list" || fail "$bound: the table is refused"; continue ;;
    [HWz]) why="it must have 1 to 1024 columns and at most 1024 rows" ;;
    s) why="its header is too short" ;;
    [tc]) why="it has no titles or no cells" ;;
    n) why="a title is NULL" ;;
    esac
    expect 1 "xray: $(one presets_most)/presets_most.so: the table of presets of 'zoo' is wrong: $why" presets presets_most
done
unset ZOO_BOUND
# A duration may have a unit.
start=$(date +%s)
expect 1 "xray: algo.zoo: did not come back from create within 0.5 s ([run] plugin_timeout)" \
    run create_hangs --set run.plugin_timeout=500ms
# Sanitizers use their own stacks, where an overflow looks different.
if ! sanitized; then
    (ulimit -s 1024 && expect 139 "xray: algo.zoo: crashed in create (SIGSEGV)" run create_overflows) || exit 1
fi
echo "zoo.load: ok"
