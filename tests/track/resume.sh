#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Killed in the middle of any operation on its event files, or torn, and resumed, a run
# has the events of an uninterrupted one, each step once; a new run sets the old events
# aside, and damaged ones end the tracking, not the run.
. "$(dirname "$0")/../faults/lib.sh"
dump=$XRAY_BUILD/tests/event-dump
unset XRAY_PLUGIN_PATH SICK
sed -i '/^algo = sick/d' "$work/run.ini"
steps 5
often=(--set trainer.save_freq=2 --set trainer.test_freq=2 --set trainer.logger=jsonl,tensorboard --set trainer.log_val_generations=1)

# Everything but times, which are in perf/ and timing_s/, and the marks of a resume.
events() { "$dump" all "$1/tensorboard" | grep -vE '^restart |^[0-9]+ scalars (perf|timing_s)/|^setting trainer\.(default_local_dir|resume_mode) '; }
same_events() {
    events "$1" >"$work/events" || fail "$1: its events cannot be read"
    diff "$work/whole.events" "$work/events" >"$work/diff" || fail "events of $1: $(head -c 600 "$work/diff")"
    diff <("$dump" lines "$1/tensorboard") "$1/metrics.jsonl" >"$work/diff" || fail "figures of $1: $(head -c 600 "$work/diff")"
}
train "$work/whole" "${often[@]}" >/dev/null 2>&1
events "$work/whole" >"$work/whole.events"
[ "$(grep -c '^5 scalars critic/score/mean ' "$work/whole.events")" = 1 ] || fail "no events of step 5"
same_events "$work/whole"

export FAULT_PATHS=tfevents
FAULT_LOG=$work/count shimmed A=1 -- "$work/counted" "${often[@]}" >/dev/null 2>&1
operations=$(cat "$work/count")
[ "$operations" -ge 8 ] || fail "only $operations operations on event files"
for at in 2 $((operations - 1)); do
    dir=$work/kill-$at
    code=0
    { shimmed FAULT_KILL=1 "FAULT_AT=$at" -- "$dir" "${often[@]}" >/dev/null 2>&1 || code=$?; } 2>/dev/null
    [ "$code" = 137 ] || fail "killed at operation $at: ends with $code"
    # The next process is killed, too, early or late.
    { shimmed FAULT_KILL=1 "FAULT_AT=$((at % 3 + 1))" -- "$dir" "${often[@]}" >/dev/null 2>&1 || true; } 2>/dev/null
    train "$dir" "${often[@]}" >/dev/null 2>"$work/err" || fail "$dir: $(cat "$work/err")"
    ! grep -v '^resumed from' "$work/err" || fail "$dir"
    same_events "$dir"
done

# Back to step 2: later steps are cut off, and their files, whoever wrote them.
back=(--set trainer.resume_mode=resume_path --set "trainer.resume_from_path=$work/whole/global_step_2")
train "$work/whole" "${often[@]}" "${back[@]}" >/dev/null 2>&1
same_events "$work/whole"
# A record that is torn after the last step is cut off, too.
last=$(find "$work/whole/tensorboard" -name 'events.*' | sort | tail -n 1)
head -c 31 "$last" >>"$last"
"$dump" all "$work/whole/tensorboard" >/dev/null 2>&1 && fail "nothing is torn"
train "$work/whole" "${often[@]}" >/dev/null 2>"$work/err" || fail "$(cat "$work/err")"
same_events "$work/whole"

# A damaged file stays as it is; the run goes on, and says so at the beginning and the end.
rm -rf "$work/hurt"
train "$work/hurt" "${often[@]}" >/dev/null 2>&1
file=$(find "$work/hurt/tensorboard" -name 'events.*')
printf '!' | dd of="$file" bs=1 seek=40 conv=notrunc 2>/dev/null
sum=$(md5sum <"$file")
back=(--set trainer.resume_mode=resume_path --set "trainer.resume_from_path=$work/hurt/global_step_4")
train "$work/hurt" "${often[@]}" "${back[@]}" >/dev/null 2>"$work/err" || fail "a damaged event file ended the run: $(cat "$work/err")"
grep -q "warning: tracker.tensorboard: create: $file: the record at byte [0-9]* does not have its checksum; the run goes on without it" "$work/err" ||
    fail "$(cat "$work/err")"
grep -q 'warning: tracker.tensorboard lacks 1 of 1 steps' "$work/err" || fail "$(cat "$work/err")"
[ "$sum" = "$(md5sum <"$file")" ] || fail "the damaged file was changed"
code=0
"$XRAY_BIN" check "$work/run.ini" --set "trainer.default_local_dir=$work/hurt" "${often[@]}" "${back[@]}" >/dev/null 2>"$work/err" || code=$?
[ "$code" = 2 ] && grep -q 'does not have its checksum' "$work/err" || fail "check says: $(cat "$work/err")"

# A new run in the same folder.
train "$work/whole" "${often[@]}" --set trainer.resume_mode=disable >/dev/null 2>&1
same_events "$work/whole"
[ -n "$(find "$work/whole/tensorboard.1" -name 'events.*')" ] || fail "old events were not set aside"
[ ! -e "$work/whole/tensorboard.2" ] || fail "events were set aside twice"
echo "resume: ok"
