#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The folder of a run: one run at a time writes it, a lost name of the newest
# checkpoint is found again, what another run left there stays.
. "$(dirname "$0")/lib.sh"

# until_lines FOLDER COUNT: waits until the run in the background is so far.
until_lines() {
    for _ in $(seq 3000); do
        [ "$(cat "$1/metrics.jsonl" 2>/dev/null | wc -l)" -lt "$2" ] || return 0
        kill -0 "$run" 2>/dev/null || break
        sleep 0.01
    done
    fail "the run in $1 did not get to line $2: $(cat "$work/run.err")"
}
# said WANTED-CODE SENTENCE COMMAND...
said() {
    local wanted=$1 sentence=$2 code=0
    shift 2
    "$@" >"$work/out.txt" 2>"$work/err" || code=$?
    [ "$code" = "$wanted" ] || fail "$*: exit $code: $(cat "$work/err")"
    grep -Fq -- "$sentence" "$work/err" || fail "$*: $(cat "$work/err"), expected: $sentence"
}

# ---- one run at a time ------------------------------------------------------
last=3
steps $last
train "$work/whole" --set trainer.save_freq=1 >/dev/null 2>&1

dir=$work/shared
"$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$dir" --set trainer.total_training_steps=100000 \
    --set "trainer.validation_data_dir=$work/kept" --set run.ranks=2 >/dev/null 2>"$work/run.err" &
run=$!
until_lines "$dir" 2
held="is in use by another xray (pid $run on $(uname -n)), which holds its file .lock; wait for it, or give this one another"
said 1 "xray: $dir $held [trainer] default_local_dir" train "$dir"
said 1 "xray: $dir $held [trainer] default_local_dir" "$XRAY_BIN" sft "$work/run.ini" \
    --set "trainer.default_local_dir=$dir" --set sft.train_batch_size=2 --set sft.total_steps=1
said 1 "xray: $work/kept $held [trainer] validation_data_dir" "$XRAY_BIN" eval "$work/run.ini" \
    --set "trainer.validation_data_dir=$work/kept"
said 1 "xray: $work/kept $held [trainer] validation_data_dir" train "$work/other" \
    --set "trainer.validation_data_dir=$work/kept"
kill -0 "$run" || fail "the first run ended: $(cat "$work/run.err")"
# No Workhorse holds it: it can be had as soon as the run is dead.
horses=$(pgrep -P "$run")
[ -n "$horses" ] || fail "there is no Workhorse"
kill -STOP $horses
kill -KILL "$run"
{ wait "$run" || true; } 2>/dev/null
train "$dir" --set trainer.resume_mode=disable --set trainer.save_freq=1 >/dev/null 2>"$work/err" || fail "after a kill: $(cat "$work/err")"
kill -KILL $horses 2>/dev/null || true
same_run "$work/whole" "$dir" $last
echo "faults.folder: ok"
