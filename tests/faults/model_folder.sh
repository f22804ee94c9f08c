#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The damaged model of a checkpoint is refused: whatever loads it, under any name,
# compares it with the manifest, and xray check compares the sizes.
. "$(dirname "$0")/../rl/lib.sh"
make_task
train "$work/kept" --set run.algo=ppo --set trainer.total_training_steps=1 >/dev/null 2>&1
bad=$work/bad
step=$bad/global_step_1
actor=$step/actor
echo '{"text":"1+2"}' >"$work/text"
echo '{"prompt":"1+2"}' >"$work/prompt"
ln -s "$actor" "$work/link"

fresh() { rm -rf "$bad"; cp -r "$work/kept" "$bad"; }
flip() { # FILE: one bit in its middle
    local at byte
    at=$(($(stat -c %s "$1") / 2))
    byte=$(od -An -tu1 -j "$at" -N 1 "$1")
    # shellcheck disable=SC2059
    printf "\\x$(printf %02x $((byte ^ 16)))" | dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}
asked() { "$XRAY_BIN" "$@" >"$work/out" 2>&1; }
refused() { # CODE SENTENCE COMMAND...
    local want=$1 says=$2 code=0
    shift 2
    asked "$@" || code=$?
    [ "$code" = "$want" ] || fail "$*: exit $code: $(cat "$work/out")"
    grep -qF -- "$says" "$work/out" || fail "expected \"$says\" of $*, got: $(cat "$work/out")"
}
run=("$work/run.ini" --set model.init=load --set "trainer.default_local_dir=$work/none" --set trainer.total_training_steps=1
    --set sft.total_steps=1)
loads() { # CODE FOLDER SENTENCE: all that load the policy
    for command in train sft eval; do
        refused "$1" "$3" $command "${run[@]}" --set "model.path=$2"
        rm -rf "$work/none"
    done
    refused "$1" "$3" score --model "$2" "$work/text"
    refused "$1" "$3" generate --model "$2" "$work/prompt"
}

# Changed bits are noticed when the weights are loaded, whatever the folder's name.
fresh
loads 0 "$bad" ''
fresh
flip "$actor/model.safetensors"
loads 1 "$bad" "$actor/model.safetensors is damaged: its checksum is "
fresh
sed -i 's/10000/20000/' "$actor/config.json"
loads 1 "$bad" "$actor/config.json is damaged: its checksum is "
fresh
flip "$actor/model.safetensors"
loads 1 "$actor" "$actor/model.safetensors is damaged: its checksum is "
loads 1 "$actor//" "$actor/model.safetensors is damaged: its checksum is "
loads 1 "$work/link" "/model.safetensors is damaged: its checksum is "
refused 1 "$actor/model.safetensors is damaged" train "${run[@]}" --set "model.path=$bad" --set run.ranks=2
(cd "$actor" && refused 1 "model.safetensors is damaged" score --model . "$work/text") || exit 1
refused 0 '' check "${run[@]}" --set "model.path=$bad"
# A copy elsewhere has no manifest; the files of the optimizer are not read.
cp -r "$actor" "$work/copy"
loads 0 "$work/copy" ''
mkdir "$work/models"
echo '{"other": "tool"}' >"$work/models/manifest.json"
cp -r "$work/copy" "$work/models/actor"
loads 0 "$work/models/actor" ''
fresh
flip "$actor/optim.safetensors"
loads 0 "$bad" ''

# Sizes and names are checked by xray check, too, which does not read the weights.
every() { # SENTENCE
    for command in check plan; do
        refused 2 "[model] path: $1" $command "${run[@]}" --set "model.path=$bad"
    done
    loads 2 "$bad" "[model] path: $1"
}
for file in model.safetensors optim.safetensors config.json tokenizer.json; do
    fresh
    bytes=$(stat -c %s "$actor/$file")
    truncate -s $((bytes - 1)) "$actor/$file"
    every "$actor/$file has $((bytes - 1)) bytes, its manifest says $bytes"
done
fresh
rm "$actor/config.json"
every "$actor/config.json is missing"
fresh
touch "$actor/chat_template.jinja"
every "$actor/chat_template.jinja does not belong to the checkpoint: its manifest does not list it"
fresh
rm "$step/manifest.json"
every "$step/manifest.json is missing"
fresh
flip "$step/manifest.json"
every "$step/manifest.json is cut off or damaged"

# A critic, and a reward model.
fresh
flip "$step/critic/model.safetensors"
says="$step/critic/model.safetensors is damaged: its checksum is "
good=("${run[@]}" --set "model.path=$work/kept")
refused 1 "$says" train "${good[@]}" --set run.algo=ppo --set "critic.model.path=$bad"
refused 1 "$says" train "${good[@]}" --set run.reward=rm --set reward.rm.plugin=model --set "reward.rm.path=$step/critic"
rm "$step/critic/config.json"
refused 2 "[critic.model] path: $step/critic/config.json is missing" check "${good[@]}" --set run.algo=ppo --set "critic.model.path=$bad"
echo "faults.model_folder: ok"
