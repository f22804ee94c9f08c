#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kill.sh TIMES
#
# After SIGKILL at random moments of training and at random file operations of a
# checkpoint, the resumed run ends with the bits of an uninterrupted one: weights,
# optimizer, data order, algorithm state, lines of metrics.
. "$(dirname "$0")/lib.sh"
times=$1
if sanitized; then times=$(((times + 1) / 2)); fi
last=8
steps $last
often=(--set trainer.save_freq=1 --set trainer.max_actor_ckpt_to_keep=2)

start=$(date +%s%N)
train "$work/whole" "${often[@]}" >/dev/null 2>&1
took=$((($(date +%s%N) - start) / 1000000)) # ms
[ "$(find "$work/whole" -maxdepth 1 -name 'global_step_*' | wc -l)" = 2 ] || fail "not the last two are kept"

# finish FOLDER: resumes until the end, then compares.
finish() {
    train "$1" "${often[@]}" >/dev/null 2>"$work/err" || fail "$1 cannot be resumed: $(cat "$work/err")"
    same_run "$work/whole" "$1" $last
    no_leftovers "$1"
}

# At any moment, several times per run. Delays come from the seed.
killed=0
for round in $(seq "$times"); do
    dir=$work/time-$round
    for _ in 1 2 3; do
        "$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$dir" "${often[@]}" >/dev/null 2>&1 &
        pid=$!
        draw "$took"
        sleep "$(printf '0.%03d' $((drawn % 1000)))"
        kill -KILL "$pid" 2>/dev/null || true
        code=0
        { wait "$pid" || code=$?; } 2>/dev/null
        [ "$code" = 137 ] || [ "$code" = 0 ] || fail "round $round ends with $code"
        [ "$code" = 137 ] && killed=$((killed + 1))
    done
    finish "$dir"
    rm -rf "$dir"
done
[ "$killed" -gt 0 ] || fail "no run was hit"

# In the middle of a file operation of writing checkpoints. The folder actor/
# is the export of the model; its files are among them.
export FAULT_PATHS=global_step_:latest_checkpointed
FAULT_LOG=$work/count shimmed A=1 -- "$work/counted" "${often[@]}" >/dev/null 2>&1
operations=$(cat "$work/count")
[ "$operations" -gt $((last * 20)) ] || fail "only $operations operations were counted"
for round in $(seq "$times"); do
    dir=$work/op-$round
    for _ in 1 2; do
        draw "$operations"
        code=0
        { shimmed FAULT_KILL=1 FAULT_AT=$((drawn + 1)) -- "$dir" "${often[@]}" >/dev/null 2>&1 || code=$?; } 2>/dev/null
        [ "$code" = 137 ] || [ "$code" = 0 ] || fail "killed at operation $((drawn + 1)): ends with $code"
    done
    finish "$dir"
    rm -rf "$dir"
done
echo "faults.kill: $killed of $((3 * times)) runs killed at a moment, $((2 * times)) at an operation: ok"
