# SPDX-License-Identifier: Apache-2.0
#
# Helpers of the fault tests: the small task of tests/rl with an algorithm whose
# state a resume must restore, and the program with failing file operations.
. "$(dirname "$0")/../rl/lib.sh"
make_task
export XRAY_PLUGIN_PATH=$XRAY_BUILD/tests/sick SICK=algo-state
sed -i 's/^\[run\]$/[run]\nalgo = sick/' "$work/run.ini"
# Sanitizers insist on being the first library; these tests are about files.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0:detect_leaks=0

steps() { sed -i "s/^total_training_steps = .*/total_training_steps = $1/" "$work/run.ini"; }

# shimmed VAR=VALUE... -- FOLDER [--set ...]
shimmed() {
    local vars=()
    while [ "$1" != -- ]; do
        vars+=("$1")
        shift
    done
    local dir=$2
    shift 2
    env "${vars[@]}" LD_PRELOAD="$XRAY_BUILD/tests/faults/fault-shim.so" \
        "$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$dir" "$@"
}

# Weights, optimizer, state of sampler and algorithm, and the metrics' lines.
same_run() { # WHOLE OTHER STEP
    same_checkpoint "$1/global_step_$3" "$2/global_step_$3"
    diff <(steady "$1/metrics.jsonl") <(steady "$2/metrics.jsonl") >/dev/null || fail "metrics of $2 differ"
}

# No half-written file is left.
no_leftovers() {
    local left
    left=$(find "$1" -name '*.tmp*' -o -name '.re*')
    [ -z "$left" ] || fail "left over: $left"
}

# The next random number of the seed's stream: 0 <= draw < $1.
draw_state=${FAULT_SEED:-20261121}
draw() {
    draw_state=$(((draw_state * 1103515245 + 12345) & 0x7fffffff))
    drawn=$(((draw_state >> 8) % $1))
}
