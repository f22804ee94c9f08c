#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# train_model.sh BUILD: makes weights.i8 again, which takes a minute or two. The
# small model is trained on rows of three stories and rounded to one byte per value.
# The bytes are the same until the stories, the tokenizer or the settings change;
# then the figures in docs/cli.md and docs/ab.md change with them.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
build=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir model
cp "$here/../text/goldens/stories/tokenizer.json" "$here/tokenizer_config.json" model/
sed 's/"initializer_range": 0.02/"initializer_range": 0.1/' "$here/config.json" >model/config.json
"$build/tests/test-material" stories >stories.txt
python3 - <<'PY'
import json
stories = open("stories.txt").read().split("\n")[:-1]
with open("rows.jsonl", "w") as out:
    for i in range(len(stories)):
        three = [stories[(i * 7919 + j * 104729 + j * j * 31) % len(stories)] for j in range(3)]
        out.write(json.dumps({"prompt": "", "answer": "\n".join(three)}) + "\n")
PY
cat >run.ini <<'INI'
[run]
seed = 1
[model]
path = model
init = random
[data]
train_files = rows.jsonl
max_prompt_length = 16
max_response_length = 240
[trainer]
default_local_dir = out
[sft]
train_batch_size = 24
total_steps = 1800
max_token_len = 4096
[sft.optim]
lr = 4e-3
lr_scheduler_type = cosine
lr_warmup_steps = 50
INI
"$build/xray" sft run.ini
python3 - "$here/weights.i8" <<'PY'
import array, json, struct, sys
data = open("out/global_step_1800/actor/model.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
single = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
with open(sys.argv[1], "wb") as out:
    for name in sorted(k for k in header if k != "__metadata__"):
        first, end = header[name]["data_offsets"]
        values = array.array("f", data[8 + size + first:8 + size + end])
        scale = single(max(abs(v) for v in values) / 127)
        out.write(struct.pack("<f", scale))
        out.write(array.array("b", (max(-127, min(127, round(single(v / scale)))) for v in values)).tobytes())
PY
