#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# pack.sh BUILD FILE: packs what first_contact.sh runs from a build folder into a
# tar.xz, without symbols and with the libraries that a bare machine lacks. A build
# with -DCMAKE_CUDA_ARCHITECTURES=90a-real is the smallest. On the other machine:
#
#     mkdir packed && tar -xJf FILE -C packed && bench/gpu/first_contact.sh packed RESULTS
set -euo pipefail
build=$(realpath "${1:?which build folder}")
file=$(realpath -m "${2:?which file}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

mkdir -p "$(dirname "$file")" "$folder/plugins" "$folder/tests" "$folder/lib"
cp "$build"/xray "$build"/quickstart-task "$build"/bench-* "$folder/"
cp "$build"/plugins/*.so "$folder/plugins/"
cp "$build"/tests/test-gpu-* "$folder/tests/"
find "$folder" -type f -exec strip {} +
# The system's C and C++ libraries and the driver are the other machine's own.
find "$folder" -type f -exec ldd {} + 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -v -E '/(ld-linux|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|cuda|nvidia)[-.])' |
    while read -r library; do cp -L "$library" "$folder/lib/"; done
tar -C "$folder" -cf - . | xz -T1 --lzma2=preset=1,dict=128MiB >"$file"
echo "pack: $(stat -c %s "$file") bytes in $file"
