#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that xray convert makes a model of PyTorch's weights that every command
# takes, with the bits of the safetensors they were made of; that it writes all
# or nothing, and over nothing.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL: $*" >&2
    exit 1
}
model=$XRAY_TEST_DATA/models/stories260K/hf
make=$XRAY_BUILD/tests/make-torch
cd "$work"
mkdir single shards
for kind in single shards; do
    for file in "$model"/*; do
        case $file in *.safetensors) ;; *) cp "$file" $kind/ ;; esac
    done
done
"$make" "$model" single 1
"$make" "$model" shards 3
chmod -R u+w .
touch single/{adapter.safetensors,m.ckpt,m.gguf,m.h5,m.h5.index.json,m.onnx,m.ot,m.pth,training_args.bin}
touch single/optimizer.pt single/flax_model.msgpack single/.gitattributes
mkdir single/runs

refuses() { # SENTENCE COMMAND...
    local says=$1 code=0
    shift
    "$@" >out 2>&1 </dev/null || code=$?
    [ $code = 2 ] || fail "$*: exit $code, not 2: $(cat out)"
    grep -qF -- "$says" out || fail "expected \"$says\" of $*, got: $(cat out)"
}
# The error of every command gives the line, which works as it is.
refuses "holds no weights" "$XRAY_BIN" score --model single
line=$(sed -n 's/.*which this line converts: \(.*\); \[model\] init.*/\1/p' out)
[ "$line" = "xray convert 'single' 'single-safetensors'" ] || fail "the line is: $line"
ln -s "$XRAY_BIN" xray
PATH=$work:$PATH bash -c "$line" >said || fail "the line fails"
files=$(cd single && ls config.json tokenizer*.json generation_config.json 2>/dev/null | tr '\n' ' ')
for file in $files; do
    cmp "single/$file" "single-safetensors/$file" || fail "$file was not copied"
done
left="adapter.safetensors, flax_model.msgpack, m.ckpt, m.gguf, m.h5, m.h5.index.json, m.onnx, m.ot, m.pth, optimizer.pt, runs"
grep -qxF "left out: $left, training_args.bin" said || fail "it does not say what is missing: $(cat said)"
grep -qF "copied: config.json" said || fail "it does not say what it copied: $(cat said)"
[ ! -e single-safetensors/optimizer.pt ] && [ ! -e single-safetensors/.gitattributes ] || fail "too much was copied"
"$XRAY_BIN" convert shards/ from-shards/ >said || fail "shards"
ls -A single-safetensors from-shards | grep -F .tmp && fail "temporaries are left"

# The same numbers as from the weights they were made of, to the bit.
rows() { printf '%s\n' '{"text":"Once upon a time"}' '{"ids":[1,7,300]}' | "$XRAY_BIN" score --model "$1"; }
rows "$model" >want
for out in single-safetensors from-shards; do
    rows $out >got
    cmp want got || fail "$out scores differently"
done

# One file without a model's folder becomes weights only.
mkdir alone
cp single/pytorch_model.bin alone/weights.pt
"$XRAY_BIN" convert alone/weights.pt weights >said
[ "$(ls weights)" = model.safetensors ] || fail "a file alone became: $(ls weights)"
cmp weights/model.safetensors single-safetensors/model.safetensors || fail "a file alone has other bytes"
# Beside config.json it is the model's.
cp single/config.json alone/
"$XRAY_BIN" convert alone/weights.pt model >said
[ "$(ls model | tr '\n' ' ')" = "config.json model.safetensors " ] || fail "a model's file became: $(ls model)"

# However elements are kept, they are written row by row: a matrix of more than a
# piece, and tensors of views; the member of the weights is named.
mkdir matrices
holes=0
"$make" matrices || holes=$?
for kind in rows columns; do
    [ "$("$XRAY_BIN" convert matrices/$kind.pt by-$kind)" = "by-$kind: 1 tensors, 4400000 bytes" ] || fail "a matrix by $kind"
    tail -c 4400000 by-$kind/model.safetensors >$kind.raw
done
cmp rows.raw columns.raw || fail "a transposed matrix has other elements"
for kind in torch2 torch4 nested; do
    "$XRAY_BIN" convert "$XRAY_SOURCE/tests/hf/goldens/$kind.bin" $kind >said || fail "$kind.bin"
    cmp torch2/model.safetensors $kind/model.safetensors || fail "$kind.bin has other elements than torch2.bin"
done
grep -qx 'nested: [0-9]* tensors, [0-9]* bytes, those of "state_dict"' said || fail "the member is not named: $(cat said)"

# Nothing is overwritten, and a conversion that fails leaves nothing.
refuses "weights: already exists; a conversion overwrites nothing" "$XRAY_BIN" convert single weights
refuses "already holds model.safetensors" "$XRAY_BIN" convert weights again
mkdir again.tmp
refuses "again.tmp: exists: an earlier conversion was killed" "$XRAY_BIN" convert single again/
rmdir again.tmp
head -c 100000 single/pytorch_model.bin >cut.bin
refuses "cut.bin: the zip archive is cut off" "$XRAY_BIN" convert cut.bin again
"$XRAY_BIN" convert nowhere again >out 2>&1 && fail "a missing folder was converted"
grep -qF "nowhere: cannot open" out || fail "a missing folder: $(cat out)"
chmod a-r single/config.json
if [ ! -r single/config.json ]; then
    "$XRAY_BIN" convert single again >out 2>&1 && fail "an unreadable file was left out silently"
fi
chmod u+r single/config.json
full=0
(ulimit -f 200 && exec "$XRAY_BIN" convert single again) >out 2>&1 || full=$?
[ $full = 1 ] || fail "a full disk: exit $full: $(cat out)"
[ ! -e again ] && [ ! -e again.tmp ] || fail "a failed conversion left something"

# A signal ends a conversion, here one that would write 64 GiB, and names the end.
stopped() { # SIGNAL CODE
    local pid code=0
    # A file of 8 GiB is the most, should it not end.
    (ulimit -f 8388608 && exec env --default-signal=INT "$XRAY_BIN" convert matrices/hole.pt whole) >out 2>&1 &
    pid=$!
    until [ -e whole.tmp ]; do
        kill -0 $pid 2>/dev/null || fail "the conversion ended early: $(cat out)"
        sleep 0.01
    done
    kill -"$1" $pid
    wait $pid || code=$?
    [ $code = "$2" ] || fail "stopped by SIG$1: exit $code: $(cat out)"
    [ "$(cat out)" = "xray: the conversion was stopped; whole was not made" ] || fail "stopped by SIG$1: $(cat out)"
    [ ! -e whole ] && [ ! -e whole.tmp ] || fail "a conversion that was stopped left something"
}
if [ $holes = 0 ]; then
    stopped INT 130
    stopped TERM 143
fi
echo "cli.convert: ok"
