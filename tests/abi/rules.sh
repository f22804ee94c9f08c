#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# rules.sh CC CXX INCLUDE-FOLDER
#
# What the headers say of themselves: which structs have no head, that an option
# whose field has another type does not compile, and that the query functions
# have one name whichever compiler made them.
set -u
cc=$1 cxx=$2 include=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "rules: FAIL: $*"; exit 1; }

# Structs without a head, as declared and as rule 1 of abi.h and docs/plugins.md list them.
awk '/^typedef struct xray_[a-z_]+ \{/ { name = $3; first = 1; next }
    name != "" && first && /^ +[a-z].*;/ { if ($0 !~ /xray_header header;/) print name; name = "" }' \
    "$include"/xray/*.h | sort >"$work/are"
sed -n '/ \*   1\. first member/,/ \*   2\./p' "$include/xray/abi.h" | grep -o 'xray_[a-z_]*' |
    sort -u >"$work/said"
# The first words of the rule name the head as what all others have.
[ "$(cat "$work/are")" = "$(cat "$work/said")" ] || fail "structs without a head: $(diff "$work/are" "$work/said")"
sed -n '/^- Every struct starts with/,/^- Whoever/p' "$include/../docs/plugins.md" | sed 's/;.*//; /Fill a/q' |
    grep -o 'xray_[a-z_]*' | sort -u >"$work/page"
[ "$(cat "$work/are")" = "$(cat "$work/page")" ] || fail "docs/plugins.md: $(diff "$work/are" "$work/page")"

compilers=("$cc -std=c11 -xc")
[ -n "$cxx" ] && [ "${cxx%-NOTFOUND}" = "$cxx" ] && compilers+=("$cxx -std=c++11 -xc++" "$cxx -std=c++20 -xc++")

# option COMPILER MACRO FIELD-TYPE: the field `f` of that type.
option() {
    printf '#include <xray/option.h>\ntypedef struct c { %s f; } c;\nextern const xray_option o[];\nconst xray_option o[] = { %s };\n' \
        "$3" "$2" | $1 -fsyntax-only -Wall -Wextra -Werror -I"$include" - 2>"$work/log"
}
for compiler in "${compilers[@]}"; do
    while IFS='|' read -r macro right wrong; do
        option "$compiler" "$macro" "$right" || fail "$compiler: $macro of $right: $(cat "$work/log")"
        option "$compiler" "$macro" "$wrong" && fail "$compiler: $macro of $wrong compiles"
    done <<'TABLE'
XRAY_INT(c, f, "1", 0, 9, NULL, 0u, "1", "d")|int64_t|int32_t
XRAY_REAL(c, f, "1", 0, 9, NULL, 0u, "1", "d")|double|float
XRAY_CHOICE(c, f, "a", NULL, 0u, "1", "d")|int64_t|uint64_t
XRAY_BOOL(c, f, "1", 0u, "1", "d")|uint32_t|int32_t
XRAY_TRISTATE(c, f, "1", 0u, "1", "d")|int64_t|uint32_t
XRAY_BYTES(c, f, "1", 1, 0, 0u, "1", "d")|uint64_t|int64_t
XRAY_DURATION(c, f, "1s", 1, 0, "s", 0u, "1", "d")|int64_t|double
XRAY_STRING(c, f, "", 0u, "1", "d")|const char *|char
XRAY_LIST(c, f, "", 0u, "1", "d")|xray_list|const char *
XRAY_PATH(c, f, "", 0u, "1", "d")|const char *|uint64_t
TABLE
    # The names that the loader and a generated entry file look for.
    printf '#include <xray/plugin.h>\nstatic const xray_plugin p = { XRAY_HEADER(xray_plugin), XRAY_ABI, 0, 0, 0, 0, 0, 0 };\n%s\n%s\n' \
        'XRAY_PLUGIN_DEFINE(some_thing, p, "some", "1", "xray.algo/0:some")' 'XRAY_PLUGIN_ENTRY(some_thing)' |
        $compiler -c -fPIC -Wall -Wextra -pedantic -Werror -I"$include" -o "$work/p.o" - 2>"$work/log" ||
        fail "$compiler: $(cat "$work/log")"
    [ "$(nm -g --defined-only "$work/p.o" | awk '{ print $3 }' | sort | tr '\n' ' ')" = \
        "xray_plugin_query xray_plugin_query_some_thing " ] || fail "$compiler: $(nm "$work/p.o")"
done
echo "rules: ok"
