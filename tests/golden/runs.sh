#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Golden suite of training runs: xray train, sft and eval with everything they write.
# A line of runs.cases is a name, then words:
#
#     COMMAND           train, sft or eval, on the task below; `then` separates two commands
#     SECTION.KEY=TEXT  a setting (--set)
#     same=G            metrics, samples, weights and moments equal those of all of group G
#     bits=G            samples, weights and moments do
#     model=NAME        the model whose config.json is in runs.models
#     rows=NAME         rows of $work/rows/NAME.jsonl for training and validation
. "$(dirname "$0")/lib.sh"

# A run.ini names every key of the product, so each new one would change all lines.
golden_kinds=(-='*/run.ini' weights@='*/model*.safetensors*' moments@='*/optim*.safetensors*' state@='*global_step_*' metrics='*metrics.jsonl*' samples='*rollout/*' samples='*validation/*')
golden_values=(actor/loss train/loss critic/score/mean val-core/default/reward/mean@1)
golden_every=24

# The quickstart's task with a smaller model; see make_task.
make_task
cd "$work"
sed -i -E 's/("hidden_size"): *[0-9]+/\1: 32/; s/("head_dim"): *[0-9]+/\1: 8/; s/("intermediate_size"): *[0-9]+/\1: 48/' task/model/config.json
head -n 60 task/train.jsonl >task/short.jsonl
head -n 6 task/val.jsonl >task/val16.jsonl
sed -i -e 's/^train_batch_size = .*/train_batch_size = 4/; s/^total_training_steps = .*/total_training_steps = 2/' \
    -e 's/^max_num_seqs = .*/max_num_seqs = 8/; s/^ppo_mini_batch_size = .*/ppo_mini_batch_size = 2/' \
    -e '/^ppo_epochs/d; /^recompute_old_logp/d' \
    -e '/^\[trainer\]/a default_local_dir = out' run.ini
cat >>run.ini <<INI
[sft]
train_batch_size = 4
total_steps = 2
[sft.optim]
lr = 1e-3
INI

# Runs the words of a line: each setting becomes a --set.
run_words() {
    local command=() word model=$work/task/model
    for word in "$@" then; do
        case $word in
        then)
            "$XRAY_BIN" "${command[@]}" || return
            command=()
            ;;
        same=* | bits=*) ;;
        model=*) command+=(--set "model.path=$work/models/${word#*=}") ;;
        rows=*) command+=(--set "data.train_files=$work/rows/${word#*=}.jsonl" --set "data.val_files=$work/rows/${word#*=}.jsonl") ;;
        *.*=*) command+=(--set "$word") ;;
        *)
            command+=("$word")
            [ ${#command[@]} != 1 ] || command+=("$work/run.ini" --set "trainer.default_local_dir=$PWD/out"
                --set "trainer.rollout_data_dir=$PWD/out/rollout" --set "trainer.validation_data_dir=$PWD/out/validation")
            ;;
        esac
    done
}

run_case() {
    local words
    golden_words "$1"
    run_words "${words[@]}"
}

while read -r name words; do
    case " $words" in
    *' same='*) golden_same "$name" "$(sed -E 's/.* same=([^ ]*).*/\1/' <<<" $words")" metrics,samples,weights,moments ;;
    *' bits='*) golden_same "$name" "$(sed -E 's/.* bits=([^ ]*).*/\1/' <<<" $words")" samples,weights,moments ;;
    esac
done < <(grep -E ' (same|bits)=' "$golden_folder/runs.cases")
golden_main
