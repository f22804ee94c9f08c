#!/usr/bin/env bash
# The one-liner of docs/data.md turns a Parquet file of verl's form into rows
# that the reader takes. Needs pandas and pyarrow; skipped without.
set -euo pipefail
python3 -c 'import pandas, pyarrow' 2>/dev/null || {
    echo "skipped: python3 has no pandas with pyarrow"
    exit 77
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
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
[ "$(wc -l <train.jsonl)" = 5 ]
python3 - <<'PY'
import json
row = json.loads(open("train.jsonl").readlines()[3])
assert row["prompt"] == [{"role": "user", "content": "Caf\u00e9 3: 1 + 3?"}], row
assert row["reward_model"]["ground_truth"] == "4", row
PY
model=${XRAY_TEST_DATA:-}/models/stories260K/hf
[ -d "$model" ] || { echo "skipped: no test data to read the rows with"; exit 77; }
"$XRAY_BIN" check "$XRAY_SOURCE/examples/gsm8k/stories260k.ini" --set model.path="$model" --set data.train_files=train.jsonl \
    --set data.prompt_key=prompt --set data.template={prompt} | grep -F 'train_files: 5 rows'
