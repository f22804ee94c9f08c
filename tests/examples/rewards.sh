#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that the functions of examples/rewards score as docs/rewards.md says.
. "$(dirname "$0")/../rl/lib.sh"
examples=$XRAY_SOURCE/examples/rewards
${CC:-cc} -shared -fPIC -o "$work/libhas_truth.so" "$examples/has_truth.c"

# grade RESPONSE KEYS...: the score of the response
grade() {
    local response=$1 sets=() key
    shift
    for key in "$@"; do sets+=(--set "reward.ffi.$key"); done
    echo "{\"response\":\"$response\",\"ground_truth\":\"1218\"}" | "$XRAY_BIN" grade --reward ffi "${sets[@]}"
}
expect() {
    [ "$1" = "$2" ] || fail "got $1, expected $2"
}
c=(library="$work/libhas_truth.so" symbol=has_truth)
expect "$(grade 'it is 1218' "${c[@]}")" '{"score":1,"failed":0}'
expect "$(grade 'it is 1219' "${c[@]}")" '{"score":0,"failed":0}'
python=(language=python path="$examples/gsm8k.py")
expect "$(grade 'so #### 1,218' "${python[@]}")" '{"score":1,"failed":0,"answered":1}'
expect "$(grade 'so #### 1,219' "${python[@]}")" '{"score":0,"failed":0,"answered":1}'
expect "$(grade 'so 1218' "${python[@]}")" '{"score":0,"failed":0,"answered":0}'
echo "rewards: ok"
