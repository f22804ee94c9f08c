#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs.sh BUILD-FOLDER
#
# Installs a finished build and builds the plugins exactly as printed in the
# installed docs/plugins.md, with make alone and with CMake, in C and in C++: a
# block ```LANGUAGE FILE is that file. Each must list, load and score.
set -eu
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "docs: FAIL: $*"; exit 1; }
quiet() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; fail "$*"; }; }

quiet cmake --install "$build" --prefix "$work/prefix"
doc=$work/prefix/share/doc/xray
for file in LICENSE README.md docs/rewards.md examples/quickstart/grpo.ini examples/plugins/reinforce.c; do
    [ -s "$doc/$file" ] || fail "$file was not installed"
done

mkdir "$work/c" "$work/cpp"
awk -v to="$work" '/^```[a-z]+ [a-z]+\/[A-Za-z.]+$/ { file = to "/" $2; next }
    /^```$/ { file = "" } file { print > file }' "$doc/docs/plugins.md"
for file in c/brevity.c c/entry.c c/Makefile c/CMakeLists.txt cpp/brevity.cpp cpp/CMakeLists.txt; do
    [ -s "$work/$file" ] || fail "the page has no $file"
done
# For C++, the page tells what to change.
cp "$work/c/entry.c" "$work/cpp/entry.cpp"
sed 's/brevity\.c/brevity.cpp/g; s/entry\.c/entry.cpp/g; s/(CC)/(CXX)/; s/c11/c++20/; s/CFLAGS/CXXFLAGS/' \
    "$work/c/Makefile" >"$work/cpp/Makefile"

# scores FOLDER: scores 40 and 80 bytes; the plugin is listed once, without a fault.
xray=$work/prefix/bin/xray
scores() {
    "$xray" plugin list --plugin-path "$1" >"$work/log"
    [ "$(grep -c '^reward-brevity  *1\.0\.0  *xray.reward/0:brevity$' "$work/log")" = 1 ] ||
        fail "$1 is not listed: $(cat "$work/log")"
    printf '{"response":"%040d"}\n{"response":"%080d"}\n' 1 1 |
        "$xray" grade --reward brevity --plugin-path "$1" >"$work/log" 2>&1 || fail "$1: $(cat "$work/log")"
    [ "$(tr '\n' ' ' <"$work/log")" = '{"score":1} {"score":0.5} ' ] || fail "$1 scores: $(cat "$work/log")"
}
for language in c cpp; do
    here=$work/$language
    # Only make, with flags that a user may set.
    quiet make -C "$here" PREFIX="$work/prefix" check CFLAGS="-O1 -Wall -Wextra -Werror" CXXFLAGS="-O1 -Wall -Wextra -Werror"
    (cd "$here" && scores .)
    quiet cmake -S "$here" -B "$here/build" -DCMAKE_PREFIX_PATH="$work/prefix"
    quiet cmake --build "$here/build"
    quiet ctest --test-dir "$here/build" --output-on-failure
    scores "$here/build"
done

# A plugin that replaces an installed one.
plugins=$(dirname "$(find "$work/prefix" -name algo-grpo.so)")
cp "$work/c/reward-brevity.so" "$plugins/"
"$xray" plugin list --plugin-path "$work/cpp" >"$work/log"
grep -q "^hidden  *.*/lib.*/reward-brevity.so$" "$work/log" || fail "not hidden: $(cat "$work/log")"
"$xray" plugin inspect brevity --plugin-path "$work/cpp" | grep -q 'in C++' || fail "the installed one was taken"

# Without the entry function it is not a plugin, and the list reports that.
sed -i 's/ entry\.c//g' "$work/c/Makefile"
quiet make -C "$work/c" -B PREFIX="$work/prefix"
"$xray" plugin list --plugin-path "$work/c" >"$work/log"
grep -q 'exports no xray_plugin_query of its own; XRAY_PLUGIN_ENTRY defines it' "$work/log" || fail "$(cat "$work/log")"

# Sources of a language that the project does not enable are refused at once.
sed -i 's/LANGUAGES CXX/LANGUAGES C/' "$work/cpp/CMakeLists.txt"
if cmake -S "$work/cpp" -B "$work/none" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/log" 2>&1; then
    fail "C++ without CXX was configured"
fi
grep -q 'xray_add_plugin(reward-brevity): brevity.cpp: project() enables no C++' "$work/log" || fail "$(cat "$work/log")"

# pkg-config gives the paths of the installed prefix.
if command -v pkg-config >/dev/null; then
    PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name xray-sdk.pc)")
    export PKG_CONFIG_PATH
    include=$(pkg-config --cflags xray-sdk)
    include=${include#-I}
    [ -e "${include% }/xray/plugin.h" ] || fail "pkg-config: headers in $include"
    [ "$(realpath "$(pkg-config --variable=plugindir xray-sdk)")" = "$plugins" ] || fail "pkg-config: plugindir"
fi
echo "docs: ok"
