#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# style.sh SOURCE-FOLDER | --selftest
#
# Rules of the tree that no compiler knows: sizes, names, which folder may
# include which (the table of docs/architecture.md), calls that are banned, words
# that have no place. Every finding is one line, file:line: sentence.
set -u
here=$(cd "$(dirname "$0")" && pwd)

. "$(dirname "$0")/sources.sh"

check() { # FOLDER
  cd "$1" || exit 1
  local files table=docs/architecture.md whole=1
  [ -e "$table" ] || { table=$here/../../$table whole=0; }
  files=$(sources)
  [ -n "$files" ] || { echo "style: no sources in $1"; return 1; }
  # shellcheck disable=SC2086
  LC_ALL=C awk -v table="$table" -v whole="$whole" -f "$here/style.awk" $files && echo "style: $(echo "$files" | wc -l) files"
}

if [ "$1" != --selftest ]; then
  check "$1"
  exit
fi

# Each sample is a tree of one file; the finding it must give is named.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
spdx='/* SPDX-License-Identifier: Apache-2.0
 *
 * Holds what the sample needs.
 */'
sample() { # FILE FINDING CONTENT
  rm -rf "$work/tree"
  mkdir -p "$work/tree/$(dirname "$1")"
  printf '%s\n' "$3" > "$work/tree/$1"
  local out
  out=$(GIT_DIR=/nonexistent check "$work/tree" 2>&1)
  if [ -z "$2" ]; then
    case $out in "style: 1 files") return ;; esac
  else
    case $out in *"$2"*) return ;; esac
  fi
  echo "selftest: $1: expected '$2', got: $out"
  exit 1
}
body() { # LINES: a function of that many lines
  printf 'void xr_f(void)\n{\n'
  for ((i = 0; i < $1 - 3; i++)); do echo '    xr_g();'; done
  printf '}\n'
}

sample core/base/a.c "" "$spdx
#include \"core/base/a.h\"
static int helper(void)
{
    return 1;
}
int xr_a(void)
{
    return helper(); /* sprintf( in a comment, \"strcpy(\" */
}"
sample core/base/a.c "no SPDX line" "int xr_a;"
sample core/base/a.c "600 at most" "$spdx
$(for ((i = 0; i < 597; i++)); do echo "int xr_$i;"; done)"
sample core/base/a.c "80 at most" "$spdx
$(body 81)"
sample core/base/a.c "" "$spdx
$(body 80)"
sample plugins/device-cpu/a.c "" "$spdx
$(body 150 | sed 's/xr_f/cpu_f/')"
sample plugins/device-cpu/a.c "200 at most" "$spdx
$(body 201 | sed 's/xr_f/cpu_f/')"
sample core/base/a.c "lacks the prefix xr_" "$spdx
int helper(void)
{
    return 1;
}"
sample model/nn/a.c "lacks the prefix xm_" "$spdx
int xr_thing(void)
{
    return 1;
}"
sample plugins/algo-x/a.c "may not start with xray_" "$spdx
int xray_thing(void)
{
    return 1;
}"
for pair in "core/base/a.c:core/config/config.h" "core/config/a.c:core/plugin/plugin.h" \
  "core/config/a.c:core/deepspeed/deepspeed.h" "core/deepspeed/a.c:core/run/run.h" \
  "core/plugin/a.c:core/run/run.h" "core/run/a.c:core/roles/roles.h" \
  "core/run/a.c:core/actor/actor.h" "core/roles/a.c:core/rl/job.h" \
  "core/ab/a.c:core/rl/job.h" "core/rl/a.c:core/cli/cli.h" \
  "core/rl/a.c:model/nn/decoder.h" "core/cli/a.c:model/train/x.h" \
  "core/config/a.c:model/hf/config.h" "model/hf/a.c:model/nn/decoder.h" \
  "model/text/a.c:model/hf/config.h" "model/nn/a.c:model/serve/x.h" \
  "model/nn/a.c:core/config/config.h" "model/rl/a.c:model/nn/decoder.h" \
  "core/rl/a.c:model/rl/ppo.h" "plugins/algo-x/a.c:core/plugin/plugin.h" \
  "plugins/algo-x/a.c:plugins/algo-y/y.h" "core/rl/a.c:plugins/algo-y/y.h" \
  "plugins/mpi/a.c:plugins/algo-y/y.h" "plugins/mpi/a.c:model/hf/config.h" \
  "core/rl/a.c:core/ab/compare.h" "core/ab/a.c:core/cli/cli.h"; do
  sample "${pair%%:*}" "may not include" "$spdx
#include \"${pair#*:}\""
done
# rooms FINDING FILES ROW...: a tree with a table of its own.
rooms() {
  local finding=$1 file out
  rm -rf "$work/tree"
  mkdir -p "$work/tree/docs"
  for file in $2; do
    mkdir -p "$work/tree/$(dirname "$file")"
    echo "$spdx" > "$work/tree/$file"
  done
  shift 2
  printf '%s\n' '| room | may include |' '|---|---|' "$@" > "$work/tree/docs/architecture.md"
  out=$(GIT_DIR=/nonexistent check "$work/tree" 2>&1)
  case $out in *"$finding"*) return ;; esac
  echo "selftest: table of $*: expected '$finding', got: $out"
  exit 1
}
both="core/base/a.c core/run/a.c"
rooms "style: 2 files" "$both" '| `core/base` | |' '| `core/run` | `core/base` |'
rooms "core/run/a.c:1: core/run has no row" "$both" '| `core/base` | |'
rooms "core/run/a.c:1: core/run has no row" "$both core/rl/a.c" '| `core/base` | |' '| `core/rl` | `core/run` |'
rooms "architecture.md:4: core/run is in the table of rooms, and no file is there" "core/base/a.c" \
  '| `core/base` | |' '| `core/run` | `core/base` |'
rooms "architecture.md:3: core/run has no row" "core/base/a.c" '| `core/base` | `core/run` |'
rooms "architecture.md:4: core/run has two rows" "$both" '| `core/run` | |' '| `core/run` | |' '| `core/base` | |'
rooms "architecture.md:3: from core/base the rows lead back to it" "$both" \
  '| `core/base` | `core/run` |' '| `core/run` | `core/base` |'
rooms "architecture.md:5: from core/rl the rows lead back to it" "$both core/rl/a.c" \
  '| `core/base` | `core/run` |' '| `core/run` | `core/rl` |' '| `core/rl` | `core/base` |'
rooms "the page has no table of rooms" "$both" '' '| `core/base` | |'
sample include/xray/a.h "may not include" "$spdx
#include \"core/base/str.h\""
for call in sprintf vsprintf strcpy strcat gets atoi atof strtok rand abort \
  exit fork; do
  sample core/rl/a.c "$call is banned" "$spdx
void xr_a(void)
{
    $call(1);
}"
done
sample core/cli/a.c "" "$spdx
void cli_a(void)
{
    exit(1);
}"
sample core/base/a.c "has no sentence that says what the file is for" \
  "/* SPDX-License-Identifier: Apache-2.0 */
int xr_a;"
sample core/base/a.c "has no sentence that says what the file is for" \
  "/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing strings.
 */"
short="$spdx
static int add(int a)
{
    return a;
}"
sample core/base/a.c "add is a short name for a static function" "$short"
sample tests/base/a.c "add is a short name for a static function" "$short"
sample core/base/a.c "" "${short/add/sum_up}"
sample plugins/device-cpu/k_a.h "" "$short"
sample core/base/a.c "drop is a short name" "$spdx
XRAY_PRINTF(1, 2)
static inline XRAY_NODISCARD int *drop(
    const char *a)
{
    return 0;
}"
# callback TAGS: a public struct with that comment above a callback.
callback() {
  printf '%s\n' "$spdx" 'typedef struct xray_a {' '    void *ctx; /* [any] */' '' \
    "    /* Does it. $1 */" '    int (*a)(void *ctx,' '             int more);' '    int (*b)(void *ctx);' '} xray_a;'
}
sample include/xray/a.h "" "$(callback '[control] [may-block]')"
sample include/xray/a.h "a.h:9: the callback has no threading tag" "$(callback '[may-block]')"
sample include/xray/a.h "a.h:11: the callback has no threading tag" "$(callback '')"
sample include/xray/a.h "a.h:6: the callback has no threading tag" "$spdx
typedef struct xray_a {
    int (*a)(void *ctx); /* does it */
} xray_a;"
sample include/xray/a.h "" "$spdx
typedef struct xray_a {
    int (*a)(void *ctx); /* does it [any] */
} xray_a;"
sample core/base/a.c "has no place" "$spdx
/* $(printf 'TO''DO') later */"
sample core/base/a.c "nested 5 deep" "$spdx
void xr_a(void)
{
    if (a) {
        if (b) {
            if (c) {
                if (d) {
                    if (e) {
                        f();
                    }
                }
            }
        }
    }
}"
echo "selftest: every bad sample was noticed"
