#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# globals.sh NM ARCHIVE...  |  --selftest NM CC
#
# The model library and core/base are pure: no object of theirs may have
# writable data. Data that only the loader writes (.data.rel.ro) is not meant.
set -u

# Symbols in writable sections: nm's sysv format names the section. Sections of
# the sanitizers are not ours.
writable() {
  "$1" --format=sysv "$2" 2> /dev/null | awk -F'|' '
    NF >= 7 {
      name = $1; section = $7; type = $4
      gsub(/ /, "", name); gsub(/ /, "", section); gsub(/ /, "", type)
      if (name ~ /^(__asan|__odr_asan|__sanitizer|\.L|_?_?ubsan|\.?Lubsan)/)
        next
      if (type == "SECTION" || name == "")
        next
      if (section ~ /^\.data\.rel\.ro/)
        next
      if (section ~ /^\.(data|bss|tdata|tbss)/ || section ~ /^\*COM\*/)
        print name " in " section
    }'
}

if [ "$1" = --selftest ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  try() { # CODE EXPECTED-COUNT
    printf '%s\n' "$1" > "$work/x.c"
    "$3" -std=c11 -fPIC -c "$work/x.c" -o "$work/x.o" || exit 1
    local count
    count=$(writable "$2" "$work/x.o" | wc -l)
    [ "$count" = "$4" ] || { echo "selftest: $count in: $1"; exit 1; }
  }
  try 'int counter; int get(void) { return counter; }' "$2" "$3" 1
  try 'int get(void) { static int n; return n++; }' "$2" "$3" 1
  try 'int get(void) { static _Thread_local int n = 3; return n++; }' "$2" "$3" 1
  try 'static int table[2] = {1, 2}; int *get(void) { return table; }' "$2" "$3" 1
  try 'static const int t[2] = {1, 2}; const int *get(void) { return t; }' "$2" "$3" 0
  try 'static const char *const t[2] = {"a", "b"}; const char *get(int i) { return t[i]; }' "$2" "$3" 0
  echo "selftest: writable data is noticed, constants are not"
  exit 0
fi

nm=$1
shift
bad=0
for archive in "$@"; do
  [ -e "$archive" ] || { echo "$archive: not built"; bad=1; continue; }
  found=$(writable "$nm" "$archive")
  [ -z "$found" ] && continue
  echo "$(basename "$archive"): writable data: $found"
  bad=1
done
echo "globals: $# archives"
exit $bad
