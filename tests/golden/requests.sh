# SPDX-License-Identifier: Apache-2.0
#
# Shared by golden.serve and golden.cuda, whose cases ask small models for samples and
# log-probabilities. TOPIC.cases is made of
#
#     model NAME TOKENIZER {CONFIG}   a folder with this config.json, and a tokenizer of the
#                                     material, or none (-)
#     saved NAME FOLDER               a folder of the material, or of tests/nn/goldens
#     lines NAME                      begins a file of the lines up to the next empty one;
#                                     @N:S in them stands for N ids that follow from S, @wN:S
#                                     for N words
#     case NAME GROUP COMMAND MODEL LINES ARGUMENT...
#
# GROUP is that of cases whose results are to be equal, or - . An ARGUMENT of the form
# SECTION.KEY=VALUE is one of --set. Arguments are those of a line of a shell.
golden_kinds=('trace=*trace.json*' 'samples=*samples/*')
golden_exact='logprobs|prompt_logprobs|entropies|ids'

write_requests() { # FILE
    python3 - "$1" "$work" "$XRAY_SOURCE" "$(realpath "$XRAY_TEST_DATA")" <<'EOF'
import os, re, shutil, sys

cases, work, source, data = sys.argv[1:]
TOKENIZERS = {"stories": "models/stories260K/hf", "qwen2": "tokenizers/qwen2"}

def ids(match):
    count, seed = int(match[1]), int(match[2])
    return ",".join(str((seed * 7919 + i * (2 * seed + 1) * 31 + i * i * 17) % 253 + 3) for i in range(count))

def words_of(match):
    some = "one day Tom saw a big red ball and said to Lily that the dog ran in".split()
    return " ".join(some[(i * i + int(match[2]) * i) % len(some)] for i in range(int(match[1])))

def put(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)

list_of_cases, lines = [], None
for line in open(cases):
    words = line.split(None, 3)
    if lines is not None:
        if words:
            lines.append(re.sub(r"@(\d+):(\d+)", ids, re.sub(r"@w(\d+):(\d+)", words_of, line)))
            continue
        put(f"{work}/lines/{name}.jsonl", "".join(lines))
        lines = None
    if not words or line.startswith("#"):
        continue
    name = words[1]
    if words[0] == "model":
        put(f"{work}/models/{name}/config.json", words[3])
        if words[2] != "-":
            for file in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(f"{data}/{TOKENIZERS[words[2]]}/{file}", f"{work}/models/{name}")
    elif words[0] == "saved":
        folder = f"{data}/models/{words[2]}"
        os.makedirs(f"{work}/models", exist_ok=True)
        os.symlink(folder if os.path.isdir(folder) else f"{source}/tests/nn/goldens/{words[2]}", f"{work}/models/{name}")
    elif words[0] == "lines":
        lines = []
    elif words[0] == "case":
        list_of_cases.append(line.split(None, 1)[1])
    else:
        sys.exit(f"{cases}: not understood: {line}")
put(f"{work}/list", "".join(list_of_cases))
EOF
}

# Runs a command on a file of lines, with a short INI where it needs one, and leaves of a
# trace what is the same in every run. One that hangs ends with exit code 124.
ask() { # COMMAND MODEL LINES [ARGUMENT...]
    local run=(timeout 60 "$XRAY_BIN") command=$1 model=$work/models/$2 lines=$work/lines/$3.jsonl word args=() code=0 trace
    shift 3
    for word in "$@"; do
        [[ $word =~ ^[a-z]+\.[a-z0-9_.]+= ]] && args+=(--set)
        args+=("$word")
    done
    [ -e "$model/model.safetensors" ] || [ -e "$model/model.safetensors.index.json" ] || args=(--set model.init=random "${args[@]}")
    case $command in
    chat) "${run[@]}" chat --model "$model" "${args[@]}" <"$lines" || code=$? ;;
    train | sft | eval)
        "${run[@]}" "$command" "$work/run.ini" --set "model.path=$model" --set "data.train_files=$lines" \
            --set "data.val_files=$lines" --set trainer.default_local_dir=run --set trainer.validation_data_dir=samples \
            --set trainer.rollout_data_dir=samples "${args[@]}" || code=$?
        ;;
    *) "${run[@]}" "$command" --model "$model" "${args[@]}" "$lines" || code=$? ;;
    esac
    for trace in trace.json*; do
        [ ! -e "$trace" ] || sed -i -E 's/,"(ts|dur)":[0-9.]+//g' "$trace"
    done
    return $code
}

run_requests() { # KINDS-OF-A-GROUP
    local line words
    write_requests "$golden_folder/$golden_topic.cases"
    while IFS= read -r line; do
        eval "words=($line)"
        golden_case "${words[0]}" ask "${words[@]:2}"
        [ "${words[1]}" = - ] || golden_same "${words[0]}" "${words[1]}" "$1"
    done <"$work/list"
    golden_end
}
