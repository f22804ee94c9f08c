#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that an id of the Hugging Face hub stands for its snapshot in the local
# cache wherever a model is named, that each command says which snapshot it
# takes, that a run keeps to that snapshot, and that a missing or unfinished one
# is an error with the command that fetches it.
. "$(dirname "$0")/lib.sh"
make_task
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HOME XDG_CACHE_HOME
export HOME=$work/home
hub=$HOME/.cache/huggingface/hub/models--acme--tiny
one=1111111111111111111111111111111111111111
two=2222222222222222222222222222222222222222
mkdir -p "$hub/refs" "$hub/snapshots"
train "$work/first" --set trainer.total_training_steps=1 >/dev/null 2>&1
cp -r "$work/first/global_step_1/actor" "$hub/snapshots/$one"
cp -r "$work/first/global_step_1/actor" "$hub/snapshots/$two"
mkdir -p "${hub%tiny}score/refs" "${hub%tiny}score/snapshots/$one"
"$XRAY_BUILD/tests/make-score" "${hub%tiny}score/snapshots/$one" 15
printf %s $one >"${hub%tiny}score/refs/main"
rm "$hub"/snapshots/*/optim.safetensors
printf %s $one >"$hub/refs/main"
printf %s $two >"$hub/refs/v2"
cd "$work"
sed -e 's,^path = .*/task/model$,path = acme/tiny,' -e '/^init = random$/d' "$work/run.ini" >"$work/hub.ini"
is="[model] path: acme/tiny is $hub/snapshots/$one"

says() { # CODE SENTENCE COMMAND...
    local want=$1 says=$2 code=0
    shift 2
    "$XRAY_BIN" "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
    [ "$code" = "$want" ] || fail "$*: exit $code, not $want: $(cat "$work/err")"
    grep -qF -- "$says" "$work/err" "$work/out" || fail "expected \"$says\" of $*, got: $(cat "$work/out" "$work/err")"
}
short=(--set trainer.total_training_steps=1 --set "trainer.default_local_dir=$work/run")
other=(--set "trainer.default_local_dir=$work/none") # with no checkpoint
says 0 "$is" check "$work/hub.ini" "${short[@]}"
says 0 "$is" plan "$work/hub.ini" "${short[@]}"
says 0 "$is" train "$work/hub.ini" "${short[@]}"
says 0 "$is" eval "$work/hub.ini" "${short[@]}"
says 0 "$is" score --model acme/tiny
says 0 "$is" generate --model acme/tiny
says 0 "--model: acme/tiny is $hub/snapshots/$one" tokenize --model acme/tiny
says 0 "$hub/snapshots/$two" tokenize --model acme/tiny@v2
says 0 "$hub/snapshots/$two" score --model acme/tiny@$two
# Standard output holds answers only, and those of the snapshot.
echo '{"ids":[1,2,3]}' | "$XRAY_BIN" score --model acme/tiny >got 2>/dev/null
echo '{"ids":[1,2,3]}' | "$XRAY_BIN" score --model "$hub/snapshots/$one" >want
cmp want got || fail "an id gives other scores than its snapshot"

# The other keys that name a model, in files and on ranks of their own.
says 0 "[model] tokenizer_path: acme/tiny@v2 is $hub/snapshots/$two" \
    check "$work/hub.ini" "${other[@]}" --set model.tokenizer_path=acme/tiny@v2
says 0 "[critic.model] path: acme/tiny is $hub/snapshots/$one" \
    check "$work/hub.ini" "${other[@]}" --set run.algo=ppo --set critic.model.path=acme/tiny
says 0 "[reward.rm] path: acme/score is ${hub%tiny}score/snapshots/$one" \
    check "$work/hub.ini" "${other[@]}" --set run.reward=rm --set reward.rm.plugin=model --set reward.rm.path=acme/score
says 0 "path = ${hub%tiny}score/snapshots/$one" \
    config print "$work/hub.ini" --set run.reward=rm --set reward.rm.plugin=model --set reward.rm.path=acme/score
two_ranks=(--set trainer.total_training_steps=1 --set run.ranks=2)
says 0 "$is" train "$work/hub.ini" "${two_ranks[@]}" --set "trainer.default_local_dir=$work/ranks"
"$XRAY_BIN" train "$work/hub.ini" "${two_ranks[@]}" --set "trainer.default_local_dir=$work/same" \
    --set "model.path=$hub/snapshots/$one" >/dev/null 2>&1
same_checkpoint "$work/ranks/global_step_1" "$work/same/global_step_1"

# A run keeps the snapshot that it began with: a branch that moves is a change.
grep -qxF "path = $hub/snapshots/$one" "$work/run/global_step_1/run.ini" || fail "the checkpoint does not name the snapshot"
printf %s $two >"$hub/refs/main"
says 2 "[model] path" train "$work/hub.ini" "${short[@]}" --set trainer.total_training_steps=2
says 0 "[model] path: acme/tiny@$one is" train "$work/hub.ini" "${short[@]}" --set trainer.total_training_steps=2 \
    --set model.path=acme/tiny@$one
printf %s $one >"$hub/refs/main"

# A folder of that name comes first.
mkdir -p acme
cp -r "$hub/snapshots/$two" acme/tiny
"$XRAY_BIN" check "$work/hub.ini" "${other[@]}" >out 2>&1 || fail "a folder: $(cat out)"
! grep -qF "acme/tiny is" out || fail "a folder does not come before the cache: $(cat out)"
rm -r acme

# Missing models and unfinished downloads.
sed 's,acme/tiny,acme/none,' hub.ini >none.ini
none="the Hugging Face cache $HOME/.cache/huggingface/hub has no acme/none; hf download acme/none fetches it"
for command in check plan train sft eval; do
    says 2 "none.ini:5: [model] path: acme/none is not a folder, and $none" $command none.ini
done
says 2 "--model: acme/none is not a folder, and $none" tokenize --model acme/none
says 2 "[model] path: acme/none is not a folder, and $none" score --model acme/none
says 2 "[model] tokenizer_path: acme/none is not a folder, and $none" check hub.ini "${other[@]}" --set model.tokenizer_path=acme/none
says 2 "[critic.model] path: acme/none is not a folder, and $none" \
    check hub.ini "${other[@]}" --set run.algo=ppo --set critic.model.path=acme/none
says 2 "[reward.rm] path: acme/none is not a folder, and $none" \
    check hub.ini "${other[@]}" --set run.reward=rm --set reward.rm.plugin=model --set reward.rm.path=acme/none
rest="hf download acme/tiny --revision $one"
mv "$hub/snapshots/$one/model.safetensors" "$work/kept"
says 2 "its download did not finish, which $rest completes" check hub.ini "${other[@]}"
touch "$hub/snapshots/$one/model-00002-of-00002.safetensors"
says 2 "belongs to it; its download did not finish, which $rest completes" check hub.ini "${other[@]}"
echo '{"weight_map":{"a":"model-00001-of-00002.safetensors"}}' >"$hub/snapshots/$one/model.safetensors.index.json"
says 2 "lacks model-00001-of-00002.safetensors: its download did not finish; $rest completes it" check hub.ini "${other[@]}"
# An index is not read where all weights are in one file.
mv "$work/kept" "$hub/snapshots/$one/model.safetensors"
says 0 "$is" check hub.ini "${other[@]}"
echo "rl.hub: ok"
