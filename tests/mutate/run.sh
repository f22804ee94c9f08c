#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures the strength of the suites: makes one deliberate slip at a time in a
# copy of the sources and runs the suites that must notice it, without any test
# data from outside. A slip of slips.txt is made of lines
#
#   slip NAME        begins one
#   file PATH        where it is made
#   by REGEX         the suites that must fail then, as ctest -R takes it
#   - OLD            text that the file holds once; further lines follow
#                    one another
#   + NEW            what takes its place
#
# run.sh [NAME...] makes these slips, or all; the last line says how many were
# caught, and the exit code is 1 if one was not. A slip that does not compile is
# not caught; one that makes a suite hang is. Every suite has to pass on sources
# without a slip first. The copy and its build stay in build/mutate, so that a
# second run builds little.
# run.sh --list says whether every slip still fits the sources and names suites
# of the build XRAY_BUILD; nothing is built.
set -euo pipefail

root=$(realpath "$(dirname "$0")/../..")
table=$root/tests/mutate/slips.txt
work=${XRAY_MUTATE:-$root/build/mutate}
tree=$work/tree
build=$tree/build/mutate
jobs=$(nproc)
unset CI XRAY_PLUGIN_PATH # without data a suite skips, in CI too

names=()
declare -A file by old new

fail() {
    echo "mutate: $1" >&2
    exit 1
}

read_table() {
    local line name=
    while IFS= read -r line; do
        case $line in
        "" | "#"*) ;;
        "slip "*)
            name=${line#slip }
            [ -z "${file[$name]+set}" ] || fail "$name: there are two slips of that name"
            names+=("$name")
            file[$name]='' by[$name]='' old[$name]='' new[$name]=''
            ;;
        "file "*) file[$name]=${line#file } ;;
        "by "*) by[$name]=${line#by } ;;
        "- "*) old[$name]+=${old[$name]:+$'\n'}${line#- } ;;
        "+ "*) new[$name]+=${new[$name]:+$'\n'}${line#+ } ;;
        *) fail "$table: a line of no known form: $line" ;;
        esac
    done <"$table"
    [ "${#names[@]}" -gt 0 ] || fail "$table holds no slip"
}

# The text of a file with the slip made in it, in $made; says what is wrong.
made=
make_slip() { # NAME ROOT
    local path=$2/${file[$1]} text without
    [ -n "${by[$1]}" ] || { echo "$1: names no suites"; return 1; }
    [ -f "$path" ] || { echo "$1: there is no file ${file[$1]}"; return 1; }
    [ "${old[$1]}" != "${new[$1]}" ] || { echo "$1: changes nothing"; return 1; }
    [ -n "${old[$1]}" ] || { echo "$1: says no text to change"; return 1; }
    IFS= read -r -d '' text <"$path" || true
    without=${text/"${old[$1]}"/}
    [ "$without" != "$text" ] || { echo "$1: ${file[$1]} does not hold its text"; return 1; }
    [[ $without != *"${old[$1]}"* ]] || { echo "$1: ${file[$1]} holds its text more than once"; return 1; }
    made=${text/"${old[$1]}"/"${new[$1]}"}
}

list_slips() {
    local name suites bad=0
    suites=$(ctest --test-dir "${XRAY_BUILD:?}" -N | sed -n 's/^ *Test *#[0-9]*: //p')
    for name in "${names[@]}"; do
        make_slip "$name" "$root" || bad=1
        grep -qE -- "${by[$name]}" <<<"$suites" ||
            { echo "$name: no suite of this build is named ${by[$name]}"; bad=1; }
    done
    [ "$bad" = 0 ] || exit 1
    echo "mutate: ${#names[@]} slips fit the sources"
}

# Makes the copy equal to the sources. Equal files keep their time stamps, so that
# they are not built again.
copy_sources() {
    local path
    mkdir -p "$tree"
    (cd "$root" && find . -name .git -prune -o -path ./build -prune -o -type f -print) >"$work/sources"
    (cd "$tree" && find . -path ./build -prune -o -type f -print) |
        sort | comm -23 - <(sort "$work/sources") |
        while IFS= read -r path; do rm "$tree/$path"; done
    while IFS= read -r path; do
        cmp -s "$root/$path" "$tree/$path" && continue
        mkdir -p "$tree/${path%/*}"
        cp --preserve=mode "$root/$path" "$tree/$path"
    done <"$work/sources"
}

# Programs of the suites, and what they or a script start or load: all that is
# linked but other suites, fuzzers and benchmarks. The suite a.b is test-a-b, and
# fuzz.a is fuzz-a.
targets_of() { # REGEX
    local suites others='^(tests/(test|fuzz)|bench|.*/bench)-'
    [[ $1 == *cuda* ]] || others="$others|^tests/cuda/"
    suites=$(ctest --test-dir "$build" -N -R "$1" -LE 'gpu|nightly' |
        sed -n 's/^ *Test *#[0-9]*: //p' | sed 's/[.]/-/g; s|^|tests/test-|; s|test-fuzz-|fuzz-|')
    ninja -C "$build" -t targets all |
        sed -n 's/^\([^:]*\): C[A-Z]*_\(EXECUTABLE\|[A-Z]*_LIBRARY\)_LINKER.*/\1/p' |
        awk -v suites="$suites" -v others="$others|[.]a$" '
            BEGIN { for (i = split(suites, name, "\n"); i > 0; i--) wanted[name[i]] = 1 }
            $0 in wanted || $0 !~ others'
}

build_suites() { # REGEX
    local targets
    targets=$(targets_of "$1")
    # shellcheck disable=SC2086
    ninja -C "$build" -j "$jobs" $targets >"$work/log" 2>&1
}

run_suites() { # REGEX SECONDS
    timeout -k 10 "$2" ctest --test-dir "$build" -R "$1" -LE 'gpu|nightly' -j "$jobs" --no-tests=error \
        --output-on-failure >"$work/log" 2>&1
}

# Suites among those named that the log says this of; one that could not start
# because its material was not made has noticed nothing itself.
passed_suites() { # REGEX
    sed -n 's/^.*Test *#[0-9]*: \([^ ]*\) .* Passed .*/\1/p' "$work/log" | grep -E -- "$1" || true
}
failed_suites() { # REGEX
    awk '/^The following tests FAILED/ { on = 1 }
        on && $2 == "-" && !/\((Not Run|Skipped|Disabled)\)/ { print $3 }' "$work/log" |
        grep -E -- "$1" | paste -sd ' ' - || true
}

# Seconds a suite may take with a slip in it; none: it cannot catch any.
declare -A limit
check_clean() { # REGEX
    local start
    build_suites "$1" || { tail -30 "$work/log" >&2; fail "the sources do not build as they are"; }
    start=$SECONDS
    limit[$1]=
    if ! run_suites "$1" 1800; then
        tail -40 "$work/log" >&2
        echo "mutate: $1 fails without a slip" >&2
    elif [ -z "$(passed_suites "$1")" ]; then
        echo "mutate: $1 skips all without test data, so it catches nothing" >&2
    else
        limit[$1]=$((60 + 10 * (SECONDS - start)))
    fi
}

caught=0
try_slip() { # NAME
    local outcome status=0 start=$SECONDS suites=${by[$1]}
    if [ -z "${limit[$suites]}" ]; then
        printf '%-28s %-40s         %s\n' "$1" "${file[$1]}" "NOT TRIED, $suites does not pass"
        return
    fi
    make_slip "$1" "$tree" || fail "$1: does not fit"
    cp "$tree/${file[$1]}" "$work/kept"
    printf '%s' "$made" >"$tree/${file[$1]}"
    if ! build_suites "$suites"; then
        outcome="DOES NOT COMPILE"
    else
        run_suites "$suites" "${limit[$suites]}" || status=$?
        outcome=$(failed_suites "$suites")
        case $status in
        0) outcome= ;;
        124 | 137) outcome="$suites takes more than ${limit[$suites]} s" ;;
        esac
        [ -z "$outcome" ] || caught=$((caught + 1))
        outcome=${outcome:+caught by $outcome}
    fi
    cat "$work/kept" >"$tree/${file[$1]}"
    printf '%-28s %-40s %4d s  %s\n' "$1" "${file[$1]}" $((SECONDS - start)) "${outcome:-SURVIVES $suites}"
}

read_table
if [ "${1:-}" = --list ]; then
    list_slips
    exit
fi
[ $# -eq 0 ] || names=("$@")
for name in "${names[@]}"; do
    [ -n "${file[$name]+set}" ] || fail "there is no slip $name"
done
mkdir -p "$work"
copy_sources
cmake -S "$tree" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_FLAGS_RELEASE="-O1 -DNDEBUG" -DXRAY_CUDA=OFF -DXRAY_WERROR=OFF \
    -DXRAY_TEST_DATA="$work/none" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
for name in "${names[@]}"; do
    [ -n "${limit[${by[$name]}]+set}" ] || check_clean "${by[$name]}"
done
for name in "${names[@]}"; do
    try_slip "$name"
done
echo "mutate: $caught of ${#names[@]} slips caught"
[ "$caught" = "${#names[@]}" ]
