#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs whose Workhorses an engine starts, by a launcher whose engine is this host: they
# have the bits of the local runtime; what the engine refuses and whom it loses is said,
# and a run goes on after a loss.
. "$(dirname "$0")/lib.sh"
make_task
export XRAY_PLUGIN_PATH=$XRAY_BUILD/tests/fakes
sed -i "s/^\[run\]$/&\nthreads = 1/; s/^\[trainer\]$/&\ntest_freq = 2\nsave_freq = 2/" "$work/run.ini"
four=(--set run.ranks=4 --set run.comm=tcp --set trainer.total_training_steps=3)
fake=(--set run.runtime=fake --set runtime.interface=lo --set "runtime.fake.notes=$work/notes")

run() { # NAME [--set ...]
    local name=$1
    shift
    train "$work/$name" "$@" >"$work/out" 2>"$work/err" || fail "$name: $(cat "$work/err")"
}

refused() { # SENTENCE [--set ...]: the run ends with it
    if train "$work/refused" "${four[@]}" "${fake[@]}" "${@:2}" >"$work/out" 2>"$work/err"; then fail "$1: the run was not refused"; fi
    grep -qF -- "$1" "$work/err" || fail "expected: $1; got: $(cat "$work/err")"
}

run local "${four[@]}" --set run.runtime=local
run fake "${four[@]}" "${fake[@]}"
same_checkpoint "$work/local/global_step_3" "$work/fake/global_step_3"
diff <(steady "$work/local/metrics.jsonl") <(steady "$work/fake/metrics.jsonl") || fail "metrics differ"
grep -q "^create $work/run.ini build $("$XRAY_BIN" --build)$" "$work/notes" || fail "the set-up was another: $(cat "$work/notes")"
grep -q "^place 3 actor+rollout devices 0 threads 1$" "$work/notes" || fail "places: $(cat "$work/notes")"
grep -q "^path $work/task/model$" "$work/notes" || fail "paths: $(cat "$work/notes")"
echo "rl.launcher: ok"
