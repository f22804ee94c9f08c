#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Trains the quickstart's task, 3-digit addition, with every preset of the
# critic-free family from one shared checkpoint of supervised fine-tuning, and
# prints greedy accuracy on held-out problems before, every 100 steps and after:
#
#   family.sh OUT [PRESET...]
#
# Runs that OUT already has are not repeated. The script is run by hand; a preset
# takes a minute or two.
#
#   XRAY_PRESET  build folder (default release)      SEED   (default 1)
#   STEPS        steps per preset (default 400)
#   MINI         prompts per update (default 16: four updates per step, so that
#                ratios leave 1 and the losses differ; 64 is the quickstart's)
#   LR           learning rate (default the quickstart's, 3e-4)
#   THREADS      threads of a run (default: the machine's)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=${XRAY_BIN_DIR:-$root/build/${XRAY_PRESET:-release}}
seed=${SEED:-1}
steps=${STEPS:-400}
mini=${MINI:-16}
out=$(realpath -m "$1")
shift
[ $# -gt 0 ] || set -- $("$bin/xray" algo list --json | sed -n '/"algo":"ppo"/q;s/.*{"preset":"\([^"]*\)".*/\1/p')

mkdir -p "$out"
data=(--set "run.seed=$seed" --set "data.train_files=$out/train.jsonl"
    --set "data.val_files=$out/val.jsonl")
if [ ! -e "$out/sft/latest_checkpointed_iteration.txt" ]; then
    "$bin/quickstart-task" "$out" "$seed"
    "$bin/xray" sft "$root/examples/quickstart/sft.ini" "${data[@]}" \
        --set "model.path=$out/model" --set "trainer.default_local_dir=$out/sft" >"$out/sft.txt"
fi

# Prints the keys that a preset needs besides its name because they have no default.
extra() {
    case $1 in
    dro) echo --set algo.grpo.dro_beta=0.1 ;;
    dapo) echo --set algo.grpo.overlong_buffer_len=2 --set algo.grpo.max_resp_len=6 ;;
    esac
}

printf '%-30s %6s %6s %6s %6s %6s %7s\n' preset before 100 200 300 last seconds
for preset in "$@"; do
    log=$out/$preset.txt
    if ! grep -q '^finished' "$log" 2>/dev/null; then
        start=$EPOCHREALTIME
        # shellcheck disable=SC2046
        "$bin/xray" train "$root/examples/quickstart/grpo.ini" "${data[@]}" \
            --set "model.path=$out/sft" --set "trainer.default_local_dir=$out/$preset" \
            --set "algo.grpo.preset=$preset" --set "trainer.total_training_steps=$steps" \
            --set actor.share_prompts=false \
            --set "actor.ppo_mini_batch_size=$mini" ${THREADS:+--set run.threads=$THREADS} \
            ${LR:+--set actor.optim.lr=$LR} --set trainer.test_freq=100 $(extra "$preset") >"$log" 2>&1 ||
            { echo "$preset failed: $(tail -n 1 "$log")"; continue; }
        awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "finished in %.0f\n", b - a }' >>"$log"
        rm -rf "$out/$preset"/global_step_*
    fi
    awk -v name="$preset" -v metrics="$out/$preset/metrics.jsonl" '
        function at_step(n) { return n in at ? sprintf("%.3f", at[n]) : "-" }
        /^finished/ { seconds = $3 }
        /^validation/ { before = $2; after = $4 }
        END {
            while ((getline line < metrics) > 0)
                if (match(line, /"val-core\/[^"]*mean@1":[0-9.e-]+/)) {
                    value = substr(line, RSTART, RLENGTH)
                    sub(/.*:/, "", value)
                    if (match(line, /"step":[0-9]+/))
                        at[substr(line, RSTART + 7, RLENGTH - 7)] = value
                }
            printf "%-30s %6.3f %6s %6s %6s %6.3f %7s\n", name, before,
                at_step(100), at_step(200), at_step(300), after, seconds
        }' "$log"
done
