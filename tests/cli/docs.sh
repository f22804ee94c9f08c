#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# docs.sh [PAGE]: runs every command of docs/PAGE.md (cli) and compares what it
# prints with what the page shows. A block ```console holds commands after "$ "
# (a backslash continues a line) and their output; a line "..." matches any rest. A
# block ```ini or ```json followed by the name of a file is that file.
set -euo pipefail

name=${1:-cli}
page=$XRAY_SOURCE/docs/$name.md
model=$XRAY_TEST_DATA/models/stories260K/hf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$model" "$work/stories"
chmod -R u+w "$work"
ln -s "$XRAY_BIN" "$work/xray"
cd "$work"
PATH=$work:$PATH

failures=0
runs=0
command=
want=

# The last command with the output that follows it in the page.
run_last() {
    [ -n "$command" ] || return 0
    runs=$((runs + 1))
    local got code=0 cut
    got=$(bash -c "$command" 2>&1) || code=$?
    if [[ $want == *"..."$'\n' ]]; then
        cut=${want%"..."$'\n'}
        got=${got:0:${#cut}}
        want=$cut
    fi
    want=${want%$'\n'}
    if [ "${got%$'\n'}" != "$want" ] || { [ "$code" -ne 0 ] && [ "$want" = "" ]; }; then
        printf 'FAIL (exit %d): %s\n--- page\n%s\n--- program\n%s\n' "$code" "$command" "$want" "$got"
        failures=$((failures + 1))
    fi
    command=
    want=
}

mode=text
more=0
while IFS= read -r line || [ -n "$line" ]; do
    case $mode in
    text)
        case $line in
        '```console') mode=console ;;
        '```ini '* | '```json '*)
            mode=file
            file=${line##* }
            : >"$file"
            ;;
        '```'?*) mode=other ;;
        esac
        ;;
    console)
        if [ "$line" = '```' ]; then
            run_last
            mode=text
        elif [ "$more" = 1 ]; then
            command+=$'\n'$line
            [[ $line == *\\ ]] || more=0
        elif [[ $line == '$ '* ]]; then
            run_last
            command=${line#'$ '}
            if [[ $line == *\\ ]]; then more=1; fi
        else
            want+=$line$'\n'
        fi
        ;;
    file)
        if [ "$line" = '```' ]; then mode=text; else printf '%s\n' "$line" >>"$file"; fi
        ;;
    other) if [ "$line" = '```' ]; then mode=text; fi ;;
    esac
done <"$page"

echo "$runs commands, $failures failures"
if [ "$name" != cli ]; then
    [ "$failures" -eq 0 ] && [ "$runs" -gt 0 ]
    exit
fi

# Every command of the program must be on the page.
for name in train sft eval check plan ab compare generate score tokenize grade 'algo list' 'plugin list' 'plugin inspect' 'config print' \
    'config schema'; do
    grep -q "^### .*xray $name" "$page" || { echo "FAIL: no section on xray $name"; failures=$((failures + 1)); }
    grep -q "^[$] .*xray $name" "$page" || { echo "FAIL: no example of xray $name"; failures=$((failures + 1)); }
done
[ "$failures" -eq 0 ] && [ "$runs" -gt 12 ]
