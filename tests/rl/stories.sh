#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves runs with a pretrained model. `stories.sh learn`: xray train raises the
# mean reward of a rule. Without `learn`: two runs give the same bits, and GSM8K
# rows pass through template, tokenizer, rollout, grader and update.
. "$(dirname "$0")/lib.sh"
data=$XRAY_TEST_DATA
examples=$XRAY_SOURCE/examples

stories() {
    "$XRAY_BIN" train "$examples/stories260k/grpo.ini" --set "model.path=$data/models/stories260K/hf" \
        --set "trainer.default_local_dir=$work/$1" --set "trainer.logger=jsonl" --set "trainer.total_training_steps=$2" "${@:3}"
}
if [ "${1:-}" = learn ]; then
    stories a 25 >"$work/a.txt"
    awk -F'"critic/score/mean":' '/critic\/score\/mean/ { split($2, v, /[,}]/); score[++n] = v[1] }
        END { first = 0; last = 0
              for (i = 1; i <= 5; i++) { first += score[i] / 5; last += score[n - 5 + i] / 5 }
              printf "mean reward of the first 5 steps %.3f, of the last 5 %.3f\n", first, last
              exit !(n >= 20 && last >= first + 0.2) }' "$work/a/metrics.jsonl" ||
        fail "the reward did not rise: $(cat "$work/a.txt")"
    echo "stories: learns"
    exit 0
fi

small="--set data.train_batch_size=4 --set actor.ppo_mini_batch_size=2 --set rollout.n=4"
# shellcheck disable=SC2086
stories b 2 $small >/dev/null
# shellcheck disable=SC2086
stories c 2 $small >/dev/null
same_checkpoint "$work/b/global_step_2" "$work/c/global_step_2"

"$XRAY_BIN" train "$examples/gsm8k/stories260k.ini" --set "model.path=$data/models/stories260K/hf" \
    --set "data.train_files=$data/gsm8k/train.jsonl" --set "trainer.default_local_dir=$work/gsm" \
    --set trainer.logger=jsonl >"$work/gsm.txt"
documented "$work/gsm/metrics.jsonl"
grep -q '"actor/grad_norm"' "$work/gsm/metrics.jsonl" || fail "no update on GSM8K"
echo "stories: ok"
