#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# headers.sh [--selftest] CC CXX INCLUDE-FOLDER
#
# Compiles every public header alone, twice included, as C11 and as C++17, with
# -Wpadded. With --selftest it must refuse a header that is wrong.
set -u
selftest=0
if [ "$1" = --selftest ]; then
  selftest=1
  shift
fi
cc=$1 cxx=$2 include=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags="-fsyntax-only -Wpadded -Wall -Wextra -pedantic -Werror"

# one LANGUAGE-COMPILER STANDARD SUFFIX HEADER-NAME FOLDER
one() {
  printf '#include <xray/%s>\n#include <xray/%s>\nint main(void) { return 0; }\n' \
    "$4" "$4" > "$work/one.$3"
  # shellcheck disable=SC2086
  $1 "-std=$2" $flags -I"$5" "$work/one.$3" 2> "$work/log" && return 0
  echo "$4 as $2:"
  head -n 20 "$work/log"
  return 1
}

all() {
  local bad=0 header
  for header in "$1"/xray/*.h; do
    header=$(basename "$header")
    one "$cc" c11 c "$header" "$1" || bad=1
    if [ -n "$cxx" ] && [ "${cxx%-NOTFOUND}" = "$cxx" ]; then
      one "$cxx" c++17 cc "$header" "$1" || bad=1
    fi
  done
  return $bad
}

if [ $selftest = 0 ]; then
  all "$include"
  exit
fi
# Each of these must be found.
reject() {
  rm -rf "$work/include"
  mkdir -p "$work/include/xray"
  cp "$include"/xray/*.h "$work/include/xray/"
  printf '%s\n' "$2" > "$work/include/xray/zz.h"
  if all "$work/include" > /dev/null; then
    echo "selftest: not noticed: $1"
    exit 1
  fi
}
reject "padding" 'typedef struct zz { char c; int i; } zz; '
reject "a missing include" 'typedef struct zz { uint32_t a; } zz;'
reject "no include guard" 'enum { ZZ };'
reject "C only" '#ifndef ZZ
#define ZZ
static inline int *zz(void *p) { return p; }
#endif'
echo "selftest: every wrong header was noticed"
