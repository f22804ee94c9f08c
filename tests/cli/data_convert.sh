#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that xray data convert writes the rows of files of every form as JSON
# lines, plain and compressed, all or nothing, and over nothing.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL: $*" >&2
    exit 1
}
cd "$work"
mkdir in
printf 'q,a\none,1\n"t,wo",\n' >in/a.csv
printf '[ {"q": "three",\n  "a": [3, {}]} ]' >in/b.json
printf '\xef\xbb\xbf{"q":"four"}\r\n\n {"q":"five"} ' | gzip >in/c.jsonl.gz
printf '{"q":"six"}\n' | gzip >six.ndjson.gz
cat >want <<'ROWS'
{"q":"one","a":"1"}
{"q":"t,wo","a":null}
{"q": "three",   "a": [3, {}]}
{"q":"four"}
{"q":"five"}
{"q":"six"}
ROWS
for out in all.jsonl all.ndjson all.jsonl.gz all.JSONL.ZST; do
    got=$("$XRAY_BIN" data convert in 's?x.*.gz' "$out")
    [ "$got" = "$out: 6 rows of 4 files" ] || fail "$got"
done
cmp want all.jsonl
cmp want all.ndjson
gzip -dc all.jsonl.gz | cmp want -
head -c 4 all.JSONL.ZST | cmp - <(printf '\x28\xb5\x2f\xfd') || fail "no zstd file"
"$XRAY_BIN" data convert all.JSONL.ZST again.jsonl >/dev/null
cmp want again.jsonl
# Rows that are longer than the pieces of a compressor, and do not shrink.
{
    printf '{"q":"'
    head -c 600000 /dev/urandom | od -An -v -tx1 | tr -d ' \n'
    printf '"}\n'
} >long.jsonl
"$XRAY_BIN" data convert long.jsonl long.jsonl.gz >/dev/null
gzip -dc long.jsonl.gz | cmp long.jsonl -
"$XRAY_BIN" data convert long.jsonl long.jsonl.zst >/dev/null
"$XRAY_BIN" data convert long.jsonl.zst long.ndjson >/dev/null
cmp long.jsonl long.ndjson

refuses() { # SENTENCE COMMAND...
    local says=$1 code=0
    shift
    "$@" >out 2>&1 </dev/null || code=$?
    [ $code = 2 ] || fail "$*: exit $code, not 2: $(cat out)"
    [ "$(cat out)" = "xray: $says" ] || fail "expected \"$says\" of $*, got: $(cat out)"
}
printf '{"q":1}\n{"q":\n' >bad.jsonl
printf '\n' >none.jsonl
refuses "all.jsonl: already exists; a conversion overwrites nothing" "$XRAY_BIN" data convert in/a.csv all.jsonl
cmp want all.jsonl
for out in new.csv new.parquet new new.gz; do
    refuses "$out: the rows become JSON lines; expected a name in .jsonl or .ndjson, with .gz or .zst after it or not" \
        "$XRAY_BIN" data convert in/a.csv $out
done
refuses "none.jsonl: there are no rows" "$XRAY_BIN" data convert none.jsonl new.jsonl
refuses "no file matches *.tsv" "$XRAY_BIN" data convert '*.tsv' new.jsonl
code=0
"$XRAY_BIN" data convert in bad.jsonl new.jsonl.gz 2>out || code=$?
[ $code = 2 ] || fail "a bad row: exit $code"
grep -q '^xray: bad.jsonl:2: ' out || fail "a bad row: $(cat out)"
# Neither a file nor an unfinished one is left.
left=$(find . -name '*new*')
[ -z "$left" ] || fail "left: $left"

# A signal ends a conversion of many files, and leaves nothing either.
seq 150000 | sed 's/.*/{"q":&}/' >much.jsonl
many=()
for _ in $(seq 400); do many+=(much.jsonl); done
stopped() { # SIGNAL CODE
    local pid code=0
    (ulimit -f 819200 && exec env --default-signal=INT "$XRAY_BIN" data convert "${many[@]}" new.jsonl) >out 2>&1 &
    pid=$!
    until [ -n "$(find . -name '*new*' -size +0)" ]; do
        kill -0 $pid 2>/dev/null || fail "the conversion ended early: $(cat out)"
        sleep 0.01
    done
    kill -"$1" $pid
    wait $pid || code=$?
    [ $code = "$2" ] || fail "stopped by SIG$1: exit $code: $(cat out)"
    [ "$(cat out)" = "xray: the conversion was stopped; new.jsonl was not made" ] || fail "stopped by SIG$1: $(cat out)"
    left=$(find . -name '*new*')
    [ -z "$left" ] || fail "a conversion that was stopped left: $left"
}
stopped INT 130
stopped TERM 143
echo "data convert: ok"
