#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The folder of a run: one run at a time writes to it, a lost name of the newest
# checkpoint is found again, and the files of another run stay.
. "$(dirname "$0")/lib.sh"

# until_lines FOLDER COUNT: waits until the run in the background has written COUNT
# lines of metrics.
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
    [ -z "$sentence" ] || grep -Fq -- "$sentence" "$work/err" || fail "$*: $(cat "$work/err"), expected: $sentence"
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
# An evaluation has no checkpoints and draws no rollouts, so it needs neither folder.
said 0 '' "$XRAY_BIN" eval "$work/run.ini" --set "trainer.default_local_dir=$dir" --set "trainer.rollout_data_dir=$work/kept"
kill -0 "$run" || fail "the first run ended: $(cat "$work/run.err")"
# No Workhorse holds the lock: it is free as soon as the run is dead.
horses=$(pgrep -P "$run")
[ -n "$horses" ] || fail "there is no Workhorse"
kill -STOP $horses
kill -KILL "$run"
{ wait "$run" || true; } 2>/dev/null
train "$dir" --set trainer.resume_mode=disable --set trainer.save_freq=1 >/dev/null 2>"$work/err" || fail "after a kill: $(cat "$work/err")"
kill -KILL $horses 2>/dev/null || true
same_run "$work/whole" "$dir" $last

# ---- the name of the newest is lost -----------------------------------------
often=(--set trainer.save_freq=1)
steps 4
sed -i "s/^val_before_train = .*/&\nval_after_train = false/" "$work/run.ini"
train "$work/four" "${often[@]}" >/dev/null 2>&1
steps 3
train "$work/three" "${often[@]}" >/dev/null 2>&1
steps 4
lost=$work/lost
nameless() { # a run of three steps without the file
    rm -rf "$lost"
    cp -r "$work/three" "$lost"
    rm "$lost/latest_checkpointed_iteration.txt"
}
missing="$lost/latest_checkpointed_iteration.txt is missing"
nameless
said 0 "xray: warning: $missing; the run resumes from the newest complete checkpoint there, $lost/global_step_3" \
    "$XRAY_BIN" check "$work/run.ini" --set "trainer.default_local_dir=$lost"
said 0 "xray: warning: $missing; the run resumes from the newest complete checkpoint there, $lost/global_step_3" train "$lost" "${often[@]}"
same_run "$work/four" "$lost" 4
nameless
echo >>"$lost/global_step_3/state.json"
said 0 "checkpoint there, $lost/global_step_2" train "$lost" "${often[@]}"
same_run "$work/four" "$lost" 4
nameless
for step in 0 1 2 3; do
    echo >>"$lost/global_step_$step/state.json"
done
cp -r "$lost" "$work/before"
said 1 "xray: $missing and no checkpoint there is complete ($lost/global_step_3/state.json has " train "$lost"
diff -r -x .lock "$work/before" "$lost" || fail "a refused run changed the folder"

# ---- another run's checkpoints stay -----------------------------------------
foreign=$work/foreign
cp -r "$work/three" "$foreign"
said 0 '' train "$foreign" --set trainer.resume_mode=disable --set run.seed=12 --set trainer.save_freq=2 \
    --set trainer.max_actor_ckpt_to_keep=1
for step in 0.1 1 2.1 3; do
    same_checkpoint "$work/three/global_step_${step%.1}" "$foreign/global_step_$step"
done
[ "$(echo $(ls "$foreign" | grep global_step))" = "global_step_0.1 global_step_1 global_step_2.1 global_step_3 global_step_4" ] ||
    fail "kept: $(ls "$foreign")"
no_leftovers "$foreign"

# ---- the metrics are those of the checkpoint --------------------------------
lines=$work/lines
changed() { # SED-SCRIPT: of the metrics of the run of three steps, lines 0 to 3
    rm -rf "$lines"
    cp -r "$work/three" "$lines"
    sed -i "$1" "$lines/metrics.jsonl"
    before=$work/before-$((++copies))
    cp -r "$lines" "$before"
}
copies=0
differs() { # SENTENCE
    said 1 "xray: resume from $lines/global_step_3: $lines/metrics.jsonl$1; put the file back as it was, or begin a new one and set this one aside with --accept-changes" \
        train "$lines"
    diff -r -x .lock "$before" "$lines" || fail "a refused run changed the folder"
}
changed '3,$d'
differs " has 2 complete lines, but the checkpoint was written with 4"
changed '2s/"step":1,/"step":44,/'
differs ":3: step 2 follows step 44; the file was changed after the checkpoint was written"
changed '2s/"critic\/score\/mean":[^,]*/"critic\/score\/mean":1/'
differs ": the first 4 lines differ from those that the checkpoint was written with"
rm "$lines/metrics.jsonl" "$before/metrics.jsonl"
differs " is missing, but the checkpoint was written with 4 lines in it"
changed '3,$d'
said 0 "xray: warning: $lines/metrics.jsonl has 2 complete lines, but the checkpoint was written with 4; a new file is started" \
    train "$lines" --accept-changes
[ "$(wc -l <"$lines/metrics.jsonl")" = 1 ] && diff "$before/metrics.jsonl" "$lines/metrics.jsonl.1" || fail "the metrics were not set aside"
# Lines after the checkpoint belong to steps that are repeated.
changed '$p'
said 0 "" train "$lines"
same_run "$work/four" "$lines" 4
# A run without metrics cannot be checked.
train "$work/untold" --set trainer.logger=console --set trainer.total_training_steps=2 >/dev/null 2>&1
head -n 3 "$work/three/metrics.jsonl" >"$work/untold/metrics.jsonl"
said 0 "xray: warning: $work/untold/global_step_2 does not say what $work/untold/metrics.jsonl held" train "$work/untold"
same_run "$work/four" "$work/untold" 4
echo "faults.folder: ok"
