# SPDX-License-Identifier: Apache-2.0
#
# The scenarios of calls.sh: what makes their files, and their commands.
make_task
sed -i -E 's/^total_training_steps = .*/total_training_steps = 2/' "$work/run.ini"
printf '\n[sft]\ntotal_steps = 2\n' >>"$work/run.ini"
xray=$XRAY_BIN
ini=$work/run.ini
mine=(--set trainer.default_local_dir=out)
model=$work/saved/global_step_1/actor
files=$XRAY_SOURCE/tests/data/files

make_material() {
    local lr
    for lr in 1e-3 1e-4; do
        "$xray" train "$ini" --set "trainer.default_local_dir=$work/saved-$lr" --set trainer.total_training_steps=1 \
            --set actor.optim.lr=$lr >/dev/null 2>&1 || fail "no run that a later one resumes"
    done
    mv "$work/saved-1e-3" "$work/saved"
    printf 'q,a\none,1\n"t,wo",2\n' >"$work/rows.csv"
    printf '[ {"q": "three",\n  "a": [3, {}]} ]' >"$work/rows.json"
    printf '{"q":"four"}\n{"q":"five"}\n' | gzip >"$work/rows.jsonl.gz"
    "$xray" data convert "$work/rows.csv" "$work/rows.jsonl.zst" >/dev/null
    mkdir "$work/torch"
    cp "$model"/*.json "$work/torch"
    rm -f "$work"/torch/*.safetensors.index.json
    mkdir "$work/one"
    "$XRAY_BUILD/tests/make-torch" "$model" "$work/torch" 2
    "$XRAY_BUILD/tests/make-torch" "$model" "$work/one" 1
    printf '{"text":"1+2="}\n{"ids":[1,2,3]}\n' >"$work/texts"
    printf '{"text":"1+2="}\n' >"$work/rows.text"
    printf '{"prompt":"1+2=","n":2,"max_tokens":3}\n{"prompt":"2+2="}\n' >"$work/prompts"
    printf '{"prompt":"1+2=","response":"3","ground_truth":"3"}\n' >"$work/graded"
    cat >"$work/fn.py" <<'PY'
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {'score': len(solution_str) / 3, 'third': len(solution_str) / 7}
PY
}

# A run that stopped after its first step.
resumed() {
    mkdir out
    cp -r "$work/saved/." out
    rm -f out/.lock
}

pair_of_runs() {
    cp -r "$work/saved" one
    cp -r "$work/saved-1e-4" two
}

run_scenarios() {
    local two=(--set run.ranks=2 --set run.threads=1)
    scenario train - "$xray" train "$ini" "${mine[@]}"
    scenario resume resumed "$xray" train "$ini" "${mine[@]}" --set trainer.max_actor_ckpt_to_keep=1
    scenario options - "$xray" train "$ini" "${mine[@]}" --set run.algo=ppo --set rollout.free_cache_engine=true \
        --set actor.param_offload=true --set run.infer=paged --set trainer.logger=console,jsonl,tensorboard \
        --set trainer.rollout_data_dir=rollout --set trainer.validation_data_dir=kept --set trainer.log_val_generations=1
    scenario ranks - "$xray" train "$ini" "${mine[@]}" "${two[@]}"
    scenario resume-ranks resumed "$xray" train "$ini" "${mine[@]}" "${two[@]}" --set placement.actor=0 --set placement.rollout=1
    scenario hosts - "$xray" train "$ini" "${mine[@]}" "${two[@]}" --set run.runtime=hosts \
        --set placement.hosts=localhost:2 --set run.comm=tcp --set runtime.interface=lo
    scenario stages - "$xray" train "$ini" "${mine[@]}" "${two[@]}" --set run.train=megatron \
        --set train.megatron.pipeline_model_parallel_size=2
    scenario function - "$xray" train "$ini" "${mine[@]}" --set run.reward=close,fn --set reward.fn.plugin=ffi \
        --set reward.fn.language=python --set "reward.fn.path=$work/fn.py" --set reward.fn.workers=2
    scenario sft - "$xray" sft "$ini" "${mine[@]}" --set data.prompt_key=question --set data.response_key=answer
    scenario eval - "$xray" eval "$ini" --set "model.path=$work/saved" --set model.init=load
}

tool_scenarios() {
    scenario check - "$xray" check "$ini"
    scenario plan - "$xray" plan "$ini" --json
    scenario print - "$xray" config print "$ini"
    scenario plugins - "$xray" plugin list
    scenario inspect - "$xray" plugin inspect "$XRAY_BUILD/plugins/reward-rule.so"
    INPUT=$work/rows.text scenario tokenize - "$xray" tokenize --model "$model"
    INPUT=$work/texts scenario score - "$xray" score --model "$model"
    INPUT=$work/prompts scenario generate - "$xray" generate --model "$model" --stream --max-tokens 4
    INPUT=$work/graded scenario grade - "$xray" grade --reward fn --set reward.fn.plugin=ffi \
        --set reward.fn.language=python --set "reward.fn.path=$work/fn.py"
    scenario convert-torch - "$xray" convert "$work/torch" new
    scenario convert-file - "$xray" convert "$work/one/pytorch_model.bin" new.safetensors
    scenario csv - "$xray" data convert "$work/rows.csv" "$work/rows.json" new.jsonl
    scenario gz - "$xray" data convert "$work/rows.jsonl.gz" new.jsonl.zst
    scenario zst - "$xray" data convert "$work/rows.jsonl.zst" new.jsonl.gz
    scenario stats - "$xray" data stats "$ini"
    scenario rows - "$xray" data check "$work/task/short.jsonl" --model "$model" --set data.prompt_key=question
    scenario compare pair_of_runs "$xray" compare one two --out report.html
    # Its tables have times.
    scenario ab - bash -c 'set -o pipefail; "$@" | grep against' - "$xray" ab "$ini" "$ini" --seeds 2 --out ab
    CODE=1 scenario submit - "$xray" submit "$ini" --set run.runtime=local
}

all_scenarios() {
    make_material
    run_scenarios
    tool_scenarios
}
