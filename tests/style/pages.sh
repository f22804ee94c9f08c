#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pages.sh SOURCE-FOLDER BUILD-FOLDER | --selftest
#
# Everything that the pages refer to exists: the targets of their links, the files and
# functions that they name in backquotes, and the scripts, presets and tests of
# the commands for those who change the sources. Every finding is one line,
# page:line: sentence.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# Of FILES, "file:line:NAME" for each piece that the pattern finds.
pieces() { # PATTERN FILE...
  grep -noHE "$@" || true
}

# The name of a heading in a link.
anchors() { # PAGE
  sed -n 's/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

check_links() {
  local place target file anchor
  while IFS= read -r place; do
    target=${place##*:](} target=${target%)}
    place=${place%%:](*}
    case $target in http*) continue ;; esac
    file=${target%%#*} anchor=${target#"$file"}
    file=$(dirname "${place%%:*}")/$file
    [ -n "${target%%#*}" ] || file=${place%%:*}
    if [ ! -e "$file" ]; then
      echo "$place: $target is not there"
    elif [ -n "$anchor" ] && ! anchors "$file" | grep -qxF -- "${anchor#\#}"; then
      echo "$place: $file has no heading for $anchor"
    fi
  done < <(pieces '\]\([^)]+\)' "$@")
}

# Words in capitals stand for a name that is chosen, as NAME.
check_paths() {
  local place path
  while IFS= read -r place; do
    path=${place##*:\`} path=${path%\`}
    [[ $path =~ [A-Z]{3} ]] && [ ! -e "$path" ] && continue
    compgen -G "$path" > /dev/null || echo "${place%%:\`*}: $path is not there"
  done < <(pieces '`(core|model|plugins|include|tests|cmake|bench|docs|examples)/[^ `]*`' "$@")
}

check_names() {
  local place name known
  known=$(git grep -ohwE '(xr|xm|xray|cli|z3|dsinf|XR|XM|XRAY)_[A-Za-z0-9_]+' -- '*.[ch]' '*.cu' '*.cmake' 'CMakeLists.txt' 2> /dev/null ||
    grep -rohwE '(xr|xm|xray|cli|z3|dsinf|XR|XM|XRAY)_[A-Za-z0-9_]+' --include='*.[ch]' --include='*.cu' --include='*.cmake' --include=CMakeLists.txt .)
  known=$(sort -u <<< "$known")
  while IFS= read -r place; do
    name=${place##*:\`} name=${name%\`}
    grep -qxF -- "$name" <<< "$known" || echo "${place%%:\`*}: $name is not in the sources"
  done < <(pieces '`(xr|xm|xray|cli|z3|dsinf|XR|XM|XRAY)_[A-Za-z0-9_]+`' "$@")
}

# Commands stand indented by four blanks. A tool that is not on this machine is
# no fault of the page.
check_commands() { # PAGE BUILD
  local line number text word preset
  while IFS= read -r line; do
    number=${line%%:*} text=${line#*:    }
    word=${text%% *}
    [[ $word != */* || -x $word ]] || echo "$1:$number: $word is not there"
    if [[ $text =~ ^tests/mutate/run.py\ (.+) ]]; then
      grep -qxF "slip ${BASH_REMATCH[1]}" tests/mutate/slips.txt || echo "$1:$number: there is no slip ${BASH_REMATCH[1]}"
    fi
    if [[ $text =~ --preset\ ([a-z-]+) ]]; then
      preset=${BASH_REMATCH[1]}
      grep -q "\"name\": \"$preset\"" CMakePresets.json || echo "$1:$number: there is no preset $preset"
    fi
    if [[ $text =~ -R\ \'([^\']+) ]] &&
      ctest --test-dir "$2" -N -R "${BASH_REMATCH[1]}" | grep -q '^Total Tests: 0$'; then
      echo "$1:$number: no test is ${BASH_REMATCH[1]}"
    fi
  done < <(grep -nE '^    [a-z.]' "$1")
}

check() { # FOLDER BUILD
  cd "$1"
  local found
  found=$(
    check_links README.md CONTRIBUTING.md tests/README.md docs/*.md
    check_paths README.md CONTRIBUTING.md tests/README.md docs/architecture.md docs/decisions.md
    check_names CONTRIBUTING.md docs/*.md
    check_commands CONTRIBUTING.md "$2"
  )
  [ -z "$found" ] || { echo "$found"; return 1; }
  echo "pages: ok"
}

if [ "$1" != --selftest ]; then
  check "$1" "$2"
  exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/docs" "$work/tests" "$work/core" "$work/build"
cd "$work"
echo 'int xr_here(void);' > core/a.c
cp "$here/../../CMakePresets.json" .
touch README.md CONTRIBUTING.md tests/README.md docs/decisions.md
sample() { # FINDING TEXT...
  local out finding=$1
  shift
  printf '%s\n' '# A heading (here)' "$@" | tee docs/architecture.md > CONTRIBUTING.md
  out=$(GIT_DIR=/nonexistent check "$work" "$work/build" 2>&1) || true
  case $out in *"$finding"*) return ;; esac
  echo "selftest: $*: expected '$finding', got: $out"
  exit 1
}
sample "pages: ok" '[a](https://example.org) [b](#a-heading-here) `core/a.c` `core/*.c` `core/NAME.c`' '`xr_here`' \
  '    cmake --preset dev'
sample "CONTRIBUTING.md:2: none.md is not there" '[a](none.md)'
sample "docs/architecture.md has no heading for #none" '[a](#none)'
sample "docs/architecture.md:3: core/b.c is not there" '' '`core/b.c`'
sample "docs/architecture.md:2: xr_gone is not in the sources" '`xr_gone`'
sample "CONTRIBUTING.md:2: ./none is not there" '    ./none'
sample "CONTRIBUTING.md:2: there is no preset none" '    cmake --preset none'
sample "CONTRIBUTING.md:2: no test is ^none$" "    ctest --preset dev -R '^none$'"
echo "selftest: every bad sample was noticed"
