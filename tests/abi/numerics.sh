#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The numerics contracts have one id each: those of include/xray/plugin.h are
# those of docs/numerics.md, no other page or comment has another, and code names
# them by the header's constants.
#
#     numerics.sh ROOT
set -euo pipefail
cd "$1"
fail() {
    echo "FAIL: $*" >&2
    exit 1
}
id='xray\.(fp32|cuda[.-][a-z])[a-z0-9.-]*/[0-9]+'
ids() { grep -hoE "$id" "$@" | sort -u; }
header=include/xray/plugin.h
page=docs/numerics.md
[ "$(ids $header | wc -l)" -ge 3 ] || fail "$header has no ids"
diff <(ids $header) <(ids $page) >&2 || fail "ids of $header (<) and $page (>) differ"
mapfile -t files < <(find core model plugins include docs -name '*.[ch]' -o -name '*.cu' -o -name '*.md')
extra=$(comm -13 <(ids $header) <(ids "${files[@]}"))
[ -z "$extra" ] || fail "no contract has the id $extra: $(grep -lF "$extra" "${files[@]}")"
mapfile -t code < <(find core model plugins -name '*.[ch]' -o -name '*.cu')
grep -nE "\"$id\"" "${code[@]}" >&2 && fail "an id is written out where XRAY_NUMERICS_* belongs"
echo "abi.numerics: ok"
