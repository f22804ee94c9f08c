#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A tracker that fails is reported once and at the end, and the run goes on with the same
# bits; a wrong name or option is found before it starts.
. "$(dirname "$0")/../rl/lib.sh"
make_task
sed -i 's/^total_training_steps = .*/total_training_steps = 5/; s/^val_before_train = .*/val_before_train = false/' "$work/run.ini"
fake=(--plugin-path "$XRAY_BUILD/tests/track" --set trainer.logger=jsonl,fake)
train "$work/plain" >/dev/null 2>&1

# with FAULT [ARGS]: runs with the fake tracker, which changes no bit.
with() {
    local fault=$1
    shift
    train "$work/$fault" "${fake[@]}" --set "tracker.fake.fault=$fault" "$@" >/dev/null 2>"$work/err" ||
        fail "$fault ended the run: $(cat "$work/err")"
    same_checkpoint "$work/plain/global_step_5" "$work/$fault/global_step_5"
    diff <(steady "$work/plain/metrics.jsonl") <(steady "$work/$fault/metrics.jsonl") || fail "$fault changed metrics"
}
said() { # LINE...: exactly these, as regular expressions
    local line n=0
    for line in "$@"; do
        n=$((n + 1))
        sed -n "${n}p" "$work/err" | grep -Eqx "xray: warning: tracker.fake$line" || fail "line $n is not $line: $(cat "$work/err")"
    done
    [ "$(wc -l <"$work/err")" = "$n" ] || fail "more than $n lines: $(cat "$work/err")"
}
off='the run goes on without it'
with create && said ": create: the server is away; $off" ' lacks 5 of 5 steps'
with empty && said ": create gave no instance; $off" ' lacks 5 of 5 steps'
with submit && said ": submit: the server went away; $off" ' lacks 4 of 5 steps'
with memory && said ': submit: out of memory; the step is not in it' ' lacks 2 of 5 steps'
with busy && said ': submit: its queue is full; the step is not in it' ' lacks 4 of 5 steps'
with flush --set trainer.save_freq=2 && said ": flush: disk full; $off" ' lacks 3 of 5 steps'
with slow --set run.plugin_timeout=50s &&
    said ": submit took [0-9.]+ s, and at most 0.5 s are allowed, a hundredth of \[run\] plugin_timeout; $off" ' lacks 3 of 5 steps'
sft=$("$XRAY_BIN" sft "$work/run.ini" "${fake[@]}" --set tracker.fake.fault=submit --set sft.total_steps=3 --set sft.train_batch_size=4 \
    --set "trainer.default_local_dir=$work/sft" 2>&1) || fail "sft: $sft"
grep -q 'tracker.fake lacks 2 of 3 steps' <<<"$sft" || fail "sft: $sft"

# A fault that cannot be left behind is at least named: a crash, and a call that never returns.
code=0
{ train "$work/crash" "${fake[@]}" --set tracker.fake.fault=crash >/dev/null 2>"$work/err" || code=$?; } 2>/dev/null
[ "$code" != 0 ] && grep -q 'tracker.fake' "$work/err" || fail "a crash is not named: $(cat "$work/err")"
code=0
train "$work/hang" "${fake[@]}" --set tracker.fake.fault=hang --set run.plugin_timeout=2s >/dev/null 2>"$work/err" || code=$?
[ "$code" != 0 ] && grep -q 'tracker.fake.*submit' "$work/err" || fail "a hang is not named: $(cat "$work/err")"

# A run has an id that stays the same when it is resumed, be it from step 0.
told() { # FOLDER ARGS...: what the tracker was told
    train "$@" "${fake[@]}" --set tracker.fake.fault=tell --set trainer.save_freq=1 --set trainer.val_before_train=true \
        >/dev/null 2>"$work/err" || fail "$1: $(cat "$work/err")"
    sed -n 's/^xray: warning: tracker.fake: create: \(.*\); the run goes on.*/\1/p' "$work/err"
}
first=$(told "$work/told" --set trainer.total_training_steps=1)
grep -Eqx 'job train run "[0-9a-f]{16}" step 0 resumed 0' <<<"$first" || fail "a new run is told as '$first'"
id=$(cut -d'"' -f2 <<<"$first")
again=$(told "$work/told" --set trainer.total_training_steps=2)
[ "$again" = "job train run \"$id\" step 1 resumed 1" ] || fail "after '$first' it is '$again'"
again=$(told "$work/told" --set trainer.total_training_steps=2 --set "trainer.resume_from_path=$work/told/global_step_0")
[ "$again" = "job train run \"$id\" step 0 resumed 1" ] || fail "from step 0 it is '$again'"
other=$(told "$work/other" --set trainer.total_training_steps=1 | cut -d'"' -f2)
[ "$other" != "$id" ] || fail "two runs have the id $id"

# xray check finds names, options and folders.
refused() { # MESSAGE ARGS...
    local want=$1 code=0
    shift
    "$XRAY_BIN" check "$work/run.ini" --set "trainer.default_local_dir=$work/absent" "$@" >/dev/null 2>"$work/err" || code=$?
    [ "$code" = 2 ] && grep -qF -- "$want" "$work/err" || fail "$*: exit $code, no '$want': $(cat "$work/err")"
}
refused "[trainer] logger: 'wandb' is neither console nor jsonl, and no plugin provides xray.tracker/0:wandb; available: tensorboard; docs/trackers.md feeds it" \
    --set trainer.logger=console,wandb
refused 'did you mean tensorboard?' --set trainer.logger=tensorbord
refused 'did you mean jsonl?' --set trainer.logger=jsnol
refused 'did you mean jsonl?' --set trainer.logger=file
refused '[tracker.tensorboard] dri: no such option' --set trainer.logger=tensorboard --set tracker.tensorboard.dri=x
echo x >"$work/file"
refused "--set: [tracker.tensorboard] dir" --set trainer.logger=tensorboard --set "tracker.tensorboard.dir=$work/file/tb"
refused 'tracker.fake: probe: the server is away' "${fake[@]}" --set tracker.fake.fault=create
# A probe does not know the id yet.
tell=("${fake[@]}" --set tracker.fake.fault=tell)
refused 'tracker.fake: probe: job train run "" step 0 resumed 0' "${tell[@]}"
refused 'tracker.fake: probe: job sft run "" step 0 resumed 0' "${tell[@]}" --job sft
refused 'tracker.fake: probe: job train run "" step 5 resumed 1' "${tell[@]}" \
    --set "trainer.default_local_dir=$work/plain" --set trainer.total_training_steps=6
eight=fake,fake_2,fake_3,fake_4,fake_5,fake_6,fake_7,fake_8
refused '[trainer] logger: at most 8 trackers are allowed' "${fake[@]}" --set "trainer.logger=$eight,fake_9"
# A name that is given again counts once, the first and the last of them too.
"$XRAY_BIN" check "$work/run.ini" --set "trainer.default_local_dir=$work/absent" "${fake[@]}" --set "trainer.logger=$eight,console,fake_8,fake,fake_4" \
    >/dev/null || fail "check refuses eight trackers"
"$XRAY_BIN" check "$work/run.ini" --set "trainer.default_local_dir=$work/absent" --set trainer.logger=tensorboard >/dev/null || fail "check refuses tensorboard"
[ ! -e "$work/absent" ] || fail "check made a folder"
echo "failures: ok"
