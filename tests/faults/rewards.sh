#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Rewards in processes of their own: their number and their times change no bit of a
# run, a failure ends it with a sentence, and none of them outlives a killed program,
# in one process and in two Workhorses.
. "$(dirname "$0")/../rl/lib.sh"
make_task
sed -i 's/^total_training_steps = .*/total_training_steps = 2/' "$work/run.ini"
cat >"$work/fn.py" <<'PY'
import os, time
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if os.path.exists('hang'):
        with open('pids/%d' % os.getpid(), 'w') as f:
            f.write('held')
        time.sleep(3600)
    if os.path.exists('raise') and solution_str:
        raise ValueError('no judge')
    time.sleep(0.001 * (os.getpid() % 3))
    return {'score': len(solution_str) / 3, 'third': len(solution_str) / 7}
PY
cd "$work"
mkdir pids
mine=(--set run.reward=close,fn --set reward.fn.plugin=ffi --set reward.fn.language=python
    --set "reward.fn.path=$work/fn.py" --set run.log=warn)

# A function that is not there is found before a run.
for command in check train; do
    code=0
    "$XRAY_BIN" $command "$work/run.ini" --set "trainer.default_local_dir=$work/none" "${mine[@]}" \
        --set reward.fn.name=none >/dev/null 2>"$work/err" || code=$?
    [ "$code" = 2 ] || fail "$command: a missing function ends with $code: $(cat "$work/err")"
    grep -qF 'fn.py has no function none' "$work/err" || fail "$command: $(cat "$work/err")"
    [ ! -e "$work/none" ] || fail "$command: a run without its function began"
done

for ranks in 1 2; do
    for workers in 1 3; do
        train "$work/r$ranks-w$workers" "${mine[@]}" --set run.ranks=$ranks \
            --set reward.fn.workers=$workers >/dev/null 2>"$work/err" || fail "$ranks ranks: $(cat "$work/err")"
    done
    same_checkpoint "$work/r$ranks-w1/global_step_2" "$work/r$ranks-w3/global_step_2"
    diff <(steady "$work/r$ranks-w1/metrics.jsonl") <(steady "$work/r$ranks-w3/metrics.jsonl") >/dev/null ||
        fail "$ranks ranks: workers change the metrics"
    grep -q '"timing_s/reward_beside":' "$work/r$ranks-w1/metrics.jsonl" ||
        fail "$ranks ranks: nothing was scored beside the rollout"
    grep -q '"reward.fn/third":' "$work/r$ranks-w1/metrics.jsonl" || fail "a value is missing"
done
documented "$work/r1-w1/metrics.jsonl"

# workers_of PROGRAM: its processes that run the function, by what they call themselves.
workers_of() {
    pgrep -P "$1" -f fn.py || true
}

# ended PID...: none of these is left, nor waits for a parent that is gone.
ended() {
    local p state
    for p in "$@"; do
        for _ in $(seq 100); do
            state=$(sed -E 's/.*\) (.).*/\1/' "/proc/$p/stat" 2>/dev/null || true)
            [ -z "$state" ] || [ "$state" = Z ] || {
                sleep 0.05
                continue
            }
            break
        done
        [ -z "$state" ] || [ "$state" = Z ] || fail "process $p is left"
    done
}

touch raise
for ranks in 1 2; do
    code=0
    train "$work/bad$ranks" "${mine[@]}" --set trainer.val_before_train=false --set run.ranks=$ranks \
        >/dev/null 2>"$work/err" || code=$?
    [ "$code" = 1 ] || fail "$ranks ranks: a failing reward ends with $code: $(cat "$work/err")"
    grep -Eq 'reward.fn: poll: sample [0-9]+: ValueError: no judge \(fn.py, line 8\)' "$work/err" ||
        fail "$ranks ranks: $(cat "$work/err")"
done
rm raise

touch hang
for ranks in 1 2; do
    rm -f pids/*
    "$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$work/killed$ranks" "${mine[@]}" \
        --set run.ranks=$ranks >/dev/null 2>"$work/err" &
    run=$!
    for _ in $(seq 400); do
        [ "$(find pids -type f | wc -l)" = 2 ] && break
        kill -0 $run 2>/dev/null || fail "$ranks ranks: the run ended: $(cat "$work/err")"
        sleep 0.05
    done
    children=$(pgrep -P $run)
    [ "$(workers_of $run | wc -l)" = 2 ] || fail "$ranks ranks: not two workers"
    [ $ranks = 1 ] || [ "$(echo "$children" | wc -l)" = 4 ] || fail "not two Workhorses"
    kill -KILL $run
    wait $run 2>/dev/null || true
    # shellcheck disable=SC2086
    ended $children
done
echo "faults.rewards: ok"
