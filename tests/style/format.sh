#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# format.sh SOURCE-FOLDER | --selftest
#
# clang-format over the C files. Another version formats otherwise, so
# only version 14 counts; without it the check is skipped, aloud (77).
set -u
. "$(dirname "$0")/sources.sh"
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
  mv "$work/bad.c" "$work/bad"
  "$0" "$work" > /dev/null || { echo "selftest: refuses a good file"; exit 1; }
  mv "$work/bad" "$work/bad.c"
  if "$0" "$work" > /dev/null; then
    echo "selftest: not noticed: a badly formatted file"
    exit 1
  fi
  echo "selftest: noticed"
  exit 0
fi

cd "$1" || exit 1
mapfile -t files < <(sources | grep '\.[ch]$')
# One call for many files; a call for each took most of the time.
found=$(printf '%s\0' "${files[@]}" |
  xargs -0 -n 64 "$tool" --dry-run -Werror 2>&1 |
  sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: error: .*/\1/p' | sort -u)
for file in $found; do
  echo "$file: not formatted; run $tool -i $file"
done
echo "format: ${#files[@]} files"
[ -z "$found" ]
