#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that the reader accepts rows as pandas writes them from a Parquet file in
# verl's form. If pandas and pyarrow are installed, the command of docs/data.md
# must produce exactly these bytes from such a file.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for i in 0 1 2 3 4; do
    printf '{"data_source":"openai\\/gsm8k","prompt":[{"role":"user","content":"Caf\\u00e9 %d: 1 + %d?"}],"ability":"math",' $i $i
    printf '"reward_model":{"style":"rule","ground_truth":"%d"},"extra_info":{"split":"train","index":%d}}\n' $((i + 1)) $i
done >rows.jsonl
if python3 -c 'import pandas, pyarrow' 2>/dev/null; then
    python3 - <<'PY'
import pandas
rows = [{"data_source": "openai/gsm8k",
         "prompt": [{"role": "user", "content": f"Caf\u00e9 {i}: 1 + {i}?"}],
         "ability": "math",
         "reward_model": {"style": "rule", "ground_truth": str(1 + i)},
         "extra_info": {"split": "train", "index": i}} for i in range(5)]
pandas.DataFrame(rows).to_parquet("train.parquet")
PY
    line=$(grep -F 'read_parquet' "$XRAY_SOURCE/docs/data.md" | sed 's/^ *//')
    eval "$line"
    cmp rows.jsonl train.jsonl
else
    echo "python3 has no pandas with pyarrow: the rows are those it was seen to write"
fi
model=$XRAY_TEST_DATA/models/stories260K/hf
"$XRAY_BIN" check "$XRAY_SOURCE/examples/gsm8k/stories260k.ini" --set model.path="$model" --set data.train_files=rows.jsonl \
    --set data.prompt_key=prompt --set data.template={prompt} | grep -F 'train_files: 5 rows'
