#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the table of broken inputs, cases.txt. A case is made of lines
#
#   case NAME        begins one, in a fresh folder with base/ and the model m
#   file PATH        a file whose lines follow, each behind "| "
#   sh COMMAND       anything else that breaks something (edit FILE SED-SCRIPT;
#                    $DATA is the test data)
#   run ARGUMENTS    the program's (on a line of a shell)
#   code N           the exit code expected
#   err TEXT         a line expected on standard error, without "xray: "
#
# Standard error must hold the expected lines and no other; folders in it are
# replaced: of the case by nothing, of the test data by DATA,
# of the build by BUILD, amounts of memory and checksums by #; device-cuda, which
# not every build has, is left out of lists.
# run.sh [PATTERN] runs the cases whose names hold PATTERN.
set -euo pipefail

here=$XRAY_SOURCE/tests/broken
DATA=$(realpath "$XRAY_TEST_DATA")
export DATA
only=${1:-}
work=$(realpath "$(mktemp -d)")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
mkdir "$work/base"
cp "$here"/base/* "$work/base/"
cp -r "$DATA/models/stories260K/hf" "$work/base/m"
chmod -R u+w "$work/base"
mkdir "$work/bin"
ln -s "$XRAY_BIN" "$work/bin/xray"
PATH=$work/bin:$PATH
unset XRAY_PLUGIN_PATH

# Files of a case are links to base/: what is changed becomes a file of its own.
edit() {
    local text
    text=$(sed "$2" "$1")
    rm "$1"
    printf '%s\n' "$text" >"$1"
}

cases=0
failures=0
name=
file=
run=
code=
want=

finish() {
    [ -n "$name" ] || return 0
    local got exit=0
    cases=$((cases + 1))
    cd "$work/case"
    got=$(eval "xray $run" 2>&1 >"$work/stdout" </dev/null) || exit=$?
    cd "$work"
    got=${got//"$work/case/"/}
    got=${got//"$DATA"/DATA}
    got=${got//"$XRAY_BUILD"/BUILD}
    got=$(sed -E 's/^xray: //; s/available: cpu, cuda;/available: cpu;/; s/[0-9.]+ ([KMGT]iB)/# \1/g; s/(is|says) [0-9a-f]{16}\b/\1 #/g' <<<"$got")
    if [ "$got" != "${want%$'\n'}" ] || [ "$exit" != "$code" ] || grep -q '^ok$' "$work/stdout"; then
        printf 'FAIL: %s (xray %s)\n--- expected (exit %s)\n%s\n--- got (exit %s)\n%s\n\n' \
            "$name" "$run" "$code" "${want%$'\n'}" "$exit" "$got"
        failures=$((failures + 1))
    fi
    name=
}

begin() {
    finish
    file=
    want=
    run=
    code=2
    if [[ $1 != *"$only"* ]]; then return 0; fi
    name=$1
    rm -rf "$work/case"
    cp -rs "$work/base" "$work/case"
    rm "$work/case/base.ini"
    cp "$work/base/base.ini" "$work/case/base.ini"
}

while IFS= read -r line || [ -n "$line" ]; do
    case $line in
    'case '*) begin "${line#case }" ;;
    *) [ -n "$name" ] || continue ;;
    esac
    case $line in
    'case '* | '#'* | '') ;;
    'file '*)
        file=$work/case/${line#file }
        rm -f "$file"
        : >"$file"
        ;;
    '| '* | '|') printf '%s\n' "${line:2}" >>"$file" ;;
    'sh '*)
        cd "$work/case"
        eval "${line#sh }"
        cd "$work"
        ;;
    'run '*) run=${line#run } ;;
    'code '*) code=${line#code } ;;
    'err '*) want+=${line#err }$'\n' ;;
    *)
        echo "cases.txt: not understood: $line"
        exit 1
        ;;
    esac
done <"$here/cases.txt"
finish

echo "$cases cases, $failures failures"
[ "$failures" -eq 0 ] && { [ -n "$only" ] || [ "$cases" -ge 80 ]; }
