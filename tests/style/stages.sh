#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# ./check runs every stage even after one that failed, ends with one line that
# counts passed, failed and skipped tests, and exits with the worst status.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAIL: $*" >&2
    exit 1
}

# A project of CMake whose four tests pass, fail, and are skipped twice.
mkdir "$work/tree"
cat >"$work/tree/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(stages LANGUAGES NONE)
enable_testing()
add_test(NAME good COMMAND sh -c "echo fine")
add_test(NAME bad COMMAND sh -c "exit 1")
add_test(NAME lacks COMMAND sh -c "echo 'skipped: there is no <tool>'; exit 77")
add_test(NAME lacks_too COMMAND sh -c "echo 'skipped: there is no <tool>'; exit 77")
add_test(NAME gpu.one COMMAND sh -c "exit 1")
set_tests_properties(lacks lacks_too PROPERTIES SKIP_RETURN_CODE 77)
set_tests_properties(gpu.one PROPERTIES LABELS "gpu")
CMAKE
cat >"$work/tree/CMakePresets.json" <<'PRESETS'
{ "version": 6,
  "configurePresets": [ { "name": "whole", "generator": "Ninja", "binaryDir": "${sourceDir}/build/whole" },
    { "name": "good", "inherits": "whole" } ],
  "testPresets": [
    { "name": "whole", "configurePreset": "whole", "filter": { "exclude": { "label": "gpu" } } },
    { "name": "good", "configurePreset": "whole", "filter": { "include": { "name": "good" } } } ] }
PRESETS

run_check() { # STAGE...: each is "NAME COMMAND"
    (
        cd "$work/tree"
        set +e
        . "$XRAY_SOURCE/cmake/stages.sh"
        xray_build() { [ "$1" != broken ] && cmake --preset "$1" >/dev/null; }
        for line in "$@"; do
            # shellcheck disable=SC2086
            stage $line
        done
        stage_note_absent build/whole
        stages_end
    ) >"$work/log" 2>&1
}

code=0
run_check "first suite whole" "second suite broken" "third suite good" || code=$?
last=$(tail -n 1 "$work/log")
want="check: 2 passed, 1 failed, 2 skipped (there is no <tool>); stages that failed: first second; not run: 1 that need a GPU (ctest --preset gpu); not run: what adds real test data (there is none in XRAY_TEST_DATA)"
[ "$last" = "$want" ] || { cat "$work/log"; fail "the last line is '$last', expected '$want'"; }
[ "$code" = 8 ] || fail "the exit status is $code; expected 8, ctest's, which is the worst"
grep -q '^check: third took ' "$work/log" || fail "the stage after the failed ones did not run"

code=0
run_check "only suite good" || code=$?
[ "$code" = 0 ] || { cat "$work/log"; fail "a check that passes exits with $code"; }
tail -n 1 "$work/log" | grep -q '^check: 1 passed, 0 failed, 0 skipped; not run' || fail "the last line is '$(tail -n 1 "$work/log")'"
echo "stages: ok"
