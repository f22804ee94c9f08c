#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tidy.sh SOURCE-FOLDER BUILD-FOLDER [deep] | --selftest
#
# clang-tidy over the C files of core, model and plugins, by .clang-tidy. Other
# versions find other things, so only 14 counts; without it the check is
# skipped, aloud (77). The static analyzer takes nine tenths of the time and runs
# when "deep" is said (style.tidy.nightly). A file that was clean is not looked at again until what
# the compiler sees of it, its own text, the rules or the depth change. The
# stamps are in BUILD-FOLDER/tidy.
set -u
tool=
for name in clang-tidy-14 clang-tidy; do
  if command -v "$name" > /dev/null &&
    "$name" --version | grep -q 'version 14\.'; then
    tool=$name
    break
  fi
done
if [ -z "$tool" ]; then
  echo "tidy: skipped: clang-tidy 14 is not installed"
  exit 77
fi

checks=(--checks=-clang-analyzer-*)

# One file: its hash, and the tool if no stamp has it. Nothing printed is clean.
one() { # FILE COMMAND
  local key
  key=$({ eval "$2" 2> /dev/null; cat "$1" "$root/.clang-tidy"; echo "${checks[*]}"; } | sha256sum)
  key=$stamps/${key%% *}
  [ -e "$key" ] && return
  "$tool" --quiet -p "$build" --extra-arg=-Wno-unknown-warning-option "${checks[@]}" "$1" \
    2> /dev/null | grep -E '(warning|error): ' | sed "s|^$root/||" > "$key.new.$$"
  echo looked >> "$stamps/count"
  if [ -s "$key.new.$$" ]; then
    sort -u "$key.new.$$"
    rm -f "$key.new.$$"
  else
    mv "$key.new.$$" "$key"
  fi
}
if [ "$1" = --one ]; then
  root=$2 build=$3 stamps=$3/tidy
  [ "$4" = deep ] && checks=()
  one "$5" "$6"
  exit
fi

# "file<TAB>command that preprocesses it" out of compile_commands.json, which
# CMake writes with one member a line.
commands() { # ROOT BUILD
  awk -v root="$1/" '
    /^ *"directory": / { dir = $0; sub(/^[^:]*: "/, "", dir); sub(/",?$/, "", dir) }
    /^ *"command": / { cmd = $0; sub(/^[^:]*: "/, "", cmd); sub(/",?$/, "", cmd)
      gsub(/\\"/, "\"", cmd); gsub(/\\\\/, "\\", cmd) }
    /^ *"file": / { file = $0; sub(/^[^:]*: "/, "", file); sub(/",?$/, "", file)
      rest = substr(file, length(root) + 1)
      if (index(file, root) != 1 || rest !~ /^(core|model|plugins)\/.*\.c$/ || seen[file]++)
        next
      sub(/ -o [^ ]+ -c .*/, "", cmd); gsub(/ -M[DFTQ]+( [^ ]+\.(o|d))?/, "", cmd)
      sub(/^[^ ]*ccache /, "", cmd)
      print file "\t" "cd \"" dir "\" && " cmd " -E \"" file "\"" }
  ' "$2/compile_commands.json"
}

check() { # ROOT BUILD [deep]
  local root=$1 build=$2 depth=${3:-shallow} found
  mkdir -p "$build/tidy"
  : > "$build/tidy/count"
  # Stamps nobody asked for in a while go.
  find "$build/tidy" -type f -mtime +14 -delete
  found=$(commands "$root" "$build" | awk -F'\t' '{ printf "%s%c%s%c", $1, 0, $2, 0 }' |
    xargs -0 -n 2 -P "$(nproc)" "$self" --one "$root" "$build" "$depth" | sort -u)
  [ -n "$found" ] && printf '%s\n' "$found"
  echo "tidy: $(commands "$root" "$build" | wc -l) files, $(wc -l < "$build/tidy/count") looked at, the others unchanged since they were clean"
  [ -z "$found" ]
}
self=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")

if [ "$1" = --selftest ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/tree/core" "$work/build"
  cp "$(dirname "$self")/../../.clang-tidy" "$work/tree/"
  sample() { # BODY
    printf '%s\n' "$1" > "$work/tree/core/a.c"
    printf '[\n{\n  "directory": "%s",\n  "command": "/usr/bin/cc -o a.o -c %s",\n  "file": "%s"\n}\n]\n' \
      "$work/build" "$work/tree/core/a.c" "$work/tree/core/a.c" \
      > "$work/build/compile_commands.json"
    check "$work/tree" "$work/build" "${2:-shallow}"
  }
  good='int f(int a); int f(int a) { return a + 1; }'
  bad='int f(float a); int f(float a) { int n = 0; for (float i = 0; i < a; i++) n++; return n; }'
  out=$(sample "$good") || { echo "selftest: refuses a good file: $out"; exit 1; }
  out=$(sample "$good")
  case $out in *" 0 looked at"*) ;; *) echo "selftest: no stamp: $out"; exit 1 ;; esac
  if out=$(sample "$bad"); then
    echo "selftest: not noticed: a loop that counts in floats: $out"
    exit 1
  fi
  case $out in *flp30*) ;; *) echo "selftest: another fault: $out"; exit 1 ;; esac
  leak='#include <stdlib.h>
int f(int a); int f(int a) { int *p = malloc(4); if (!p) return 1; if (a) return 2; free(p); return 0; }'
  out=$(sample "$leak" deep) && { echo "selftest: not noticed: a leak on one path: $out"; exit 1; }
  case $out in *unix.Malloc*) ;; *) echo "selftest: another fault than the leak: $out"; exit 1 ;; esac
  echo "selftest: noticed"
  exit 0
fi
check "$@"
