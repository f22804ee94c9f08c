#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# docs/config.md is the output of xray config docs. Without CUDA, the plugin of its
# device is the one that is built against an emulated runtime.
set -euo pipefail

page=$XRAY_SOURCE/docs/config.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$XRAY_BIN" config docs >"$work/config.md"
more=()
if ! grep -q '^## \[device.cuda\]' "$work/config.md"; then
    more=(--plugin-path "$XRAY_BUILD/tests/cuda")
    "$XRAY_BIN" config docs "${more[@]}" >"$work/config.md"
fi
diff -u "$page" "$work/config.md" || {
    echo "docs/config.md is not current: xray config docs ${more[*]} >docs/config.md"
    exit 1
}
