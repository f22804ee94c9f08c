#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# format.sh SOURCE-FOLDER | --selftest
#
# clang-format over the tracked C files. Another version formats otherwise, so
# only version 14 counts; without it the check is skipped, aloud (77).
set -u
tool=
for name in clang-format-14 clang-format; do
  if command -v "$name" > /dev/null &&
    "$name" --version | grep -q 'version 14\.'; then
    tool=$name
    break
  fi
done
if [ -z "$tool" ]; then
  echo "format: skipped: clang-format 14 is not installed"
  exit 77
fi

if [ "$1" = --selftest ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  echo 'BasedOnStyle: LLVM' > "$work/.clang-format"
  printf 'int f(void);\n' > "$work/good.c"
  printf 'int  f ( void );\n' > "$work/bad.c"
  git -C "$work" init -q && git -C "$work" add good.c
  "$0" "$work" > /dev/null || { echo "selftest: refuses a good file"; exit 1; }
  git -C "$work" add bad.c
  if "$0" "$work" > /dev/null; then
    echo "selftest: not noticed: a badly formatted file"
    exit 1
  fi
  echo "selftest: noticed"
  exit 0
fi

cd "$1" || exit 1
if ! git rev-parse --is-inside-work-tree > /dev/null 2>&1; then
  echo "format: skipped: $1 is no git work tree"
  exit 77
fi
mapfile -t files < <(git ls-files -- '*.c' '*.h' |
  while read -r file; do [ -e "$file" ] && echo "$file"; done)
# One call for many files; a call for each took most of the time.
found=$(printf '%s\0' "${files[@]}" |
  xargs -0 -n 64 "$tool" --dry-run -Werror 2>&1 |
  sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: error: .*/\1/p' | sort -u)
for file in $found; do
  echo "$file: not formatted; run $tool -i $file"
done
echo "format: ${#files[@]} files"
[ -z "$found" ]
