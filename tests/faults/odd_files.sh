#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# If a file is a pipe without a writer, every command reports that at once, for each
# file that it reads. Files that tools read line by line may be pipes.
. "$(dirname "$0")/../rl/lib.sh"
make_task
sed -i 's/^val_before_train = .*/val_before_train = false/' "$work/run.ini"
train "$work/first" --set trainer.total_training_steps=1 >/dev/null 2>&1
model=$work/kept/global_step_1/actor
cp -r "$work/first" "$work/kept"
cp -r "$work/task" "$work/task.kept"

pipe_at() { rm "$1" && mkfifo "$1"; }
refused() { # FILE COMMAND...
    local file=$1 code=0
    shift
    timeout 30 "$XRAY_BIN" "$@" </dev/null >"$work/out" 2>&1 || code=$?
    [ "$code" = 1 ] || [ "$code" = 2 ] || fail "$*: exit $code with a pipe as $file: $(cat "$work/out")"
    grep -qF "$file: this is a pipe, but a regular file is expected" "$work/out" || fail "$* says of the pipe $file: $(cat "$work/out")"
}
run=("$work/run.ini" --set "trainer.default_local_dir=$work/new")

for file in config.json model.safetensors tokenizer.json; do
    rm -rf "$work/one"
    cp -r "$model" "$work/one"
    pipe_at "$work/one/$file"
    for command in check eval train; do
        refused "$work/one/$file" "$command" "${run[@]}" --set "model.path=$work/one" --set model.init=load
    done
    echo '{"text":"1"}' >"$work/lines"
    [ $file = tokenizer.json ] || refused "$work/one/$file" score --model "$work/one" "$work/lines"
done
pipe_at "$work/task/short.jsonl"
refused "$work/task/short.jsonl" check "${run[@]}"
refused "$work/task/short.jsonl" train "${run[@]}"
rm -r "$work/task"
mv "$work/task.kept" "$work/task"
mkfifo "$work/pipe.ini"
refused "$work/pipe.ini" check "$work/pipe.ini"

# Every file of the checkpoint from which a run would resume.
for file in $(cd "$work/kept" && echo latest* global_step_1/*.* global_step_1/actor/*); do
    rm -r "$work/first"
    cp -r "$work/kept" "$work/first"
    pipe_at "$work/first/$file"
    refused "$work/first/$file" train "$work/run.ini" --set "trainer.default_local_dir=$work/first" \
        --set trainer.total_training_steps=2
done

# Lines can be read from pipes as from files.
"$XRAY_BIN" score --model "$model" "$work/lines" >"$work/want"
timeout 30 "$XRAY_BIN" score --model "$model" <(cat "$work/lines") >"$work/got" || fail "a pipe's lines are refused"
cmp "$work/want" "$work/got" || fail "a pipe's lines score otherwise"
echo "faults.odd_files: ok"
