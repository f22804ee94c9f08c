#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# TensorBoard's own reader finds the figures of metrics.jsonl, to the last bit, in the
# events of a run that was resumed, and histograms, texts and settings.
. "$(dirname "$0")/../rl/lib.sh"
python=${XRAY_TENSORBOARD_PYTHON:-python3}
"$python" -c 'import tensorboard' 2>/dev/null || { echo "skipped: $python has no package tensorboard"; exit 77; }
make_task
tracked=(--set trainer.logger=jsonl,tensorboard --set trainer.log_val_generations=2 --set trainer.save_freq=2)
train "$work/out" "${tracked[@]}" --set trainer.total_training_steps=3 >/dev/null 2>&1
train "$work/out" "${tracked[@]}" --set trainer.resume_mode=resume_path --set "trainer.resume_from_path=$work/out/global_step_2" \
    >/dev/null 2>"$work/err" || fail "$(cat "$work/err")"
[ "$(find "$work/out/tensorboard" -name 'events.*' | wc -l)" = 2 ] || fail "the run was not resumed"
"$python" "$XRAY_SOURCE/tests/track/read_events.py" "$work/out/tensorboard" "$work/out/metrics.jsonl" 2>"$work/err" ||
    fail "$(cat "$work/err")"
echo "tensorboard: ok"
