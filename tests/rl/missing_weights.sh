#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that weights are never initialized at random unless the INI asks for
# it: without weights every command refuses the folder of every model that a run
# loads, and names the command that converts weights in another format.
. "$(dirname "$0")/lib.sh"
make_task
model=$work/task/model
asked() { "$XRAY_BIN" "$@" >"$work/out" 2>&1; }
says() { # SENTENCE COMMAND...
    local says=$1 code=0
    shift
    asked "$@" </dev/null || code=$?
    [ "$code" = 2 ] || fail "$*: exit $code, not 2: $(cat "$work/out")"
    grep -qF -- "$says" "$work/out" || fail "expected \"$says\" of $*, got: $(cat "$work/out")"
}
none="holds no weights, expected model.safetensors or model.safetensors.index.json;"
draws="[model] init = random initializes them"

# Every command names the file and line of the key.
sed '/^init = random$/d' "$work/run.ini" >"$work/load.ini"
for command in check plan train sft eval; do
    says "$work/load.ini:5: [model] path: $model $none $draws" $command "$work/load.ini" \
        --set "trainer.default_local_dir=$work/none"
done
[ ! -e "$work/none" ] || fail "a run without weights began"
for command in generate score; do
    says "[model] path: $model $none $draws" $command --model "$model"
done
says "[model] path: $model $none $draws" ab "$work/load.ini" "$work/load.ini" --seeds 2 --out "$work/ab"
asked score --model "$model" --set model.init=random </dev/null || fail "drawn weights: $(cat "$work/out")"

# Weights in another format.
converts() { # FILE... -- NAMED LINE
    rm -rf "$work/other"
    cp -r "$model" "$work/other"
    while [ "$1" != -- ]; do
        touch "$work/other/$1"
        shift
    done
    says "$work/other $none it holds $2$3; $draws" check "$work/load.ini" --set "model.path=$work/other"
}
python="python3 -c \"import transformers as t; d='$work/other'; "
class='getattr(t, t.AutoConfig.from_pretrained(d).architectures[0])'
line=", which this line converts: "
converts pytorch_model.bin training_args.bin optimizer.pt -- "pytorch_model.bin" "${line}xray convert '$work/other' '$work/other-safetensors'"
converts pytorch_model-00002-of-00002.bin pytorch_model-00001-of-00002.bin pytorch_model.bin.index.json -- \
    "pytorch_model-00001-of-00002.bin and 1 more of that kind" "${line}xray convert '$work/other' '$work/other-safetensors'"
converts m.gguf -- m.gguf "$line${python}t.AutoModelForCausalLM.from_pretrained(d, gguf_file='m.gguf').save_pretrained(d)\""
converts consolidated.00.pth -- consolidated.00.pth ", Llama's own form, which this line converts: python3 -m transformers.models.llama.convert_llama_weights_to_hf --input_dir '$work/other' --output_dir '$work/other-hf'"
converts flax_model.msgpack tf_model.h5 -- flax_model.msgpack ", which this line converts with transformers 4: $python$class.from_pretrained(d, from_flax=True).save_pretrained(d)\""
converts tf_model.h5 -- tf_model.h5 ", which this line converts with transformers 4: $python$class.from_pretrained(d, from_tf=True).save_pretrained(d)\""
converts rng_state.pth model.pt -- model.pt "${line}xray convert '$work/other/model.pt' '$work/other-safetensors'"
converts model-00001-of-00002.safetensors -- model-00001-of-00002.safetensors " without the model.safetensors.index.json that belongs to it"
converts consolidated.safetensors -- consolidated.safetensors " under a name that this xray does not read"
# Of several formats only the first counts, in whatever order the folder lists them.
many=(m{1..9}.gguf m{1..9}.h5)
converts "${many[@]}" pytorch_model.bin -- pytorch_model.bin "${line}xray convert '$work/other' '$work/other-safetensors'"
converts pytorch_model.bin "${many[@]}" -- pytorch_model.bin "${line}xray convert '$work/other' '$work/other-safetensors'"

# The folders of critic and reward model, with a policy that has weights.
train "$work/first" --set trainer.total_training_steps=1 >/dev/null 2>&1
loads=("$work/run.ini" --set "model.path=$work/first" --set model.init=load)
critic=(--set run.algo=ppo --set "critic.model.path=$model")
reward=(--set run.reward=rm --set reward.rm.plugin=model --set "reward.rm.path=$model")
for command in check plan train; do
    says "[critic.model] path: $model $none $draws" $command "${loads[@]}" "${critic[@]}" \
        --set "trainer.default_local_dir=$work/none"
    says "[reward.rm] path: $model $none $draws" $command "${loads[@]}" "${reward[@]}" \
        --set "trainer.default_local_dir=$work/none"
done

# A new value head is reported and is no error; a trained one is read.
ppo=("${loads[@]}" --set run.algo=ppo)
new="the value head of the critic is new and begins with zeros: $work/first/global_step_1/actor has none"
asked check "${ppo[@]}" || fail "$(cat "$work/out")"
grep -qxF "$new" "$work/out" || fail "check does not say that the value head is new: $(cat "$work/out")"
asked train "${ppo[@]}" --set trainer.logger=console --set "trainer.default_local_dir=$work/ppo" \
    --set trainer.total_training_steps=1 || fail "$(cat "$work/out")"
grep -qF "$new" "$work/out" || fail "train does not say that the value head is new: $(cat "$work/out")"
asked check "${ppo[@]}" --set "critic.model.path=$work/ppo" || fail "$(cat "$work/out")"
! grep -qF "value head" "$work/out" || fail "the critic's value head is not read: $(cat "$work/out")"
echo "rl.missing_weights: ok"
