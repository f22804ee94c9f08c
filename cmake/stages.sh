# SPDX-License-Identifier: Apache-2.0
#
# Sourced by ./check: runs its stages, every one of them even after one that
# failed, and ends with one line that counts what ctest reported.

stages_worst=0  # the highest exit status of a stage
stages_failed="" # names of the stages that failed
stages_notes=""  # what was not run, and why
stages_reports=$(mktemp -d)
trap 'rm -rf "$stages_reports"' EXIT

stage_note() { # SENTENCE
    stages_notes="$stages_notes; $*"
}

# Runs a stage and says how long it took.
stage() { # NAME COMMAND...
    local name=$1 start=$SECONDS code=0
    shift
    "$@" || code=$?
    echo "check: $name took $((SECONDS - start)) s"
    [ "$code" = 0 ] && return
    stages_failed="$stages_failed $name"
    [ "$code" -le "$stages_worst" ] || stages_worst=$code
}

# Runs the tests of a preset that is built: one more than there are processors, since
# many wait for a clock or a process.
run_tests() { # PRESET
    ctest --preset "$1" -j "$(($(nproc) + 1))" --output-junit "$stages_reports/$1.xml" \
        --test-output-size-passed 1000000
}

# Builds a preset and runs its tests; of a release build those that `optimised` has.
suite() { # PRESET [CMAKE-ARGUMENT...]
    xray_build "$@" || return 2
    run_tests "${1/#release/optimised}"
}

# A build leaves out the tests that need what is not here, and these are named.
stage_note_absent() { # BUILD-FOLDER
    local gpu data
    gpu=$(ctest --test-dir "$1" -N -L '^gpu$' | awk '/^Total Tests:/ { print $3 }')
    data=$(ctest --test-dir "$1" -N -L '^data$' | awk '/^Total Tests:/ { print $3 }')
    if [ "${gpu:-0}" = 0 ]; then
        stage_note "not run: what needs a GPU (there is no CUDA toolkit here)"
    else
        stage_note "not run: $gpu that need a GPU (ctest --preset gpu)"
    fi
    [ "${data:-0}" != 0 ] || stage_note "not run: what adds real test data (there is none in XRAY_TEST_DATA)"
}

# The last line of ./check; returns the worst status of a stage.
stages_end() {
    local reports
    reports=("$stages_reports"/*.xml)
    [ -e "${reports[0]}" ] || reports=(/dev/null)
    awk -v failed="${stages_failed# }" -v notes="$stages_notes" '
        function number(name) {
            return match($0, name "=\"[0-9]+\"") ? substr($0, RSTART + length(name) + 2, RLENGTH - length(name) - 3) + 0 : 0
        }
        # The attributes of <testsuite> stand on lines of their own.
        /<testsuite/ { head = 1 }
        head { tests += number("tests"); failures += number("failures"); skipped += number("skipped") }
        head && />/ { head = 0 }
        match($0, /skipped: .*/) {
            why = substr($0, RSTART + 9, RLENGTH - 9)
            sub(/<.*/, "", why)
            gsub(/&lt;/, "<", why); gsub(/&gt;/, ">", why); gsub(/&quot;/, "\"", why); gsub(/&amp;/, "\\&", why)
            if (!(why in seen))
                reasons = reasons (reasons == "" ? "" : ", ") why
            seen[why] = 1
        }
        END {
            printf "check: %d passed, %d failed, %d skipped", tests - failures - skipped, failures, skipped
            if (reasons != "")
                printf " (%s)", reasons
            if (failed != "")
                printf "; stages that failed: %s", failed
            print notes
        }' "${reports[@]}"
    return "$stages_worst"
}
