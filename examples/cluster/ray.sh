#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# ray.sh FOLDER [--set ...]: asks a Ray cluster whether it can run the quickstart's task,
# and has it run that as a job. FOLDER, which every node must see, holds model, data and
# checkpoints. xray and quickstart-task are looked up in PATH.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
[ -d "$folder/model" ] || quickstart-task "$folder" 1
run=("$here/ray.ini" --set "model.path=$folder/model" --set model.init=random --set "data.train_files=$folder/train.jsonl"
    --set "data.val_files=$folder/val.jsonl" --set "trainer.default_local_dir=$folder/checkpoints" "${@:2}")
xray check "${run[@]}"
exec xray submit "${run[@]}"
