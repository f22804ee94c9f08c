#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves xray data head, stats and check: rows as a run sees them, their lengths
# by the program's own tokenizer, and every row with which a run would not start.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL: $*" >&2
    exit 1
}
cd "$work"
model=$XRAY_TEST_DATA/models/stories260K/hf

shows() { # CODE WANT ARGS...: both streams
    local code=0 want=$1 text=$2
    shift 2
    "$XRAY_BIN" data "$@" --model "$model" >got 2>&1 || code=$?
    diff <(printf '%s\n' "$text") got || fail "data $*"
    [ "$code" = "$want" ] || fail "data $*: exit code $code"
}
tokens() { # TEXT [off]
    printf '{"text":"%s"}\n' "$1" | "$XRAY_BIN" tokenize --model "$model" --special "${2:-on}" | grep -oE '[0-9]+' | wc -l
}

# ---- head
cat >rows.jsonl <<'ROWS'
{"prompt":"Once upon\n a time","answer":"a\u001b[2Jb","data_source":"tales"}
{"prompt":"two","answer":2}
{"prompt":"three","answer":"","level":3}
{"prompt":"four","answer":4}
ROWS
once=$(tokens 'Once upon\n a time')
shows 0 "train_files: row 0: $once tokens
  | Once upon
  |  a time
  ground truth: a�[2Jb
  data_source: tales
train_files: row 1: $(tokens two) tokens
  | two
  ground truth: 2" head rows.jsonl --n 2
shows 0 "train_files: row 2: $(tokens 'Say three!') tokens
  | Say three!" head rows.jsonl --set 'data.filters=level > 2' --set 'data.template=Say {prompt}!'
# A row that is longer than a run takes is shown too.
shows 0 "train_files: row 0: $(tokens 'Once upon\n a time') tokens
  | Once upon
  |  a time
  ground truth: a�[2Jb
  data_source: tales" head rows.jsonl --n 1 --set data.max_prompt_length=1
printf '{"prompt":"x","completion":"y z"}\n' >trl.jsonl
x=$(tokens x) y=$(($(tokens 'y z' off) + 1))
shows 0 "xray: trl.jsonl:1: no 'answer', so responses are taken from 'completion'
train_files: row 0: $((x + y)) tokens, $y of them learned
  | x
  learned: y z</s>" head trl.jsonl --job sft

# A text that the tokenizer cannot decode ends the rows with its reason.
mkdir endless
cp "$model/config.json" endless
word=$(printf 'a%.0s' {1..200})
printf '{"decoder":{"type":"Replace","content":"","pattern":{"Regex":"(a+|aa)+(a|aa)+[bc]"}},"model":{"type":"WordLevel","unk_token":"x","vocab":{"x":0,"</s>":1,"%s":2}}}' "$word" >endless/tokenizer.json
printf '{"eos_token":"</s>"}' >endless/tokenizer_config.json
printf '{"prompt":"x","answer":"x"}\n{"prompt":"x","answer":"%s"}\n{"prompt":"x","answer":"x"}\n' "$word" >endless.jsonl
model=endless shows 1 "train_files: row 0: 3 tokens, 2 of them learned
  | x
  learned: x</s>
train_files: row 1: 3 tokens, 2 of them learned
  | x
xray: tokenizer: a pattern takes too long or too much memory at byte 0 of 200" head endless.jsonl --job sft

cat >chat.jinja <<'TEMPLATE'
{%- for m in messages %}[{{ m.role }}]{% generation %}{% if m.role == 'assistant' %}{{ m.content }}{% endif %}{% endgeneration %}{% if m.role != 'assistant' %}{{ m.content }}{% endif %}{% endfor -%}
TEMPLATE
user='{"role":"user","content":"hi"}' answer='{"role":"assistant","content":"ho"}'
printf '{"messages":[%s,%s,%s,%s]}\n' "$user" "$answer" "$user" "$answer" >talk.jsonl
"$XRAY_BIN" data head talk.jsonl --job sft --model "$model" --set data.chat_template=chat.jinja >got
[ "$(grep -c '^  learned: ho$' got)" = 2 ] || fail "the answers of a conversation: $(cat got)"
[ "$(grep -c '^  | \[user\]hi\[assistant\]ho\[user\]hi\[assistant\]ho$' got)" = 1 ] || fail "a conversation: $(cat got)"

# ---- an INI, with a part for validation
cat >run.ini <<INI
[model]
path = $model
[data]
train_files = trl.jsonl
val_files = rows.jsonl
INI
ini() { # COMMAND ARGS...: the names of the parts that are shown
    "$XRAY_BIN" data "$1" run.ini "${@:2}" 2>/dev/null | grep -oE '^(train|val)_(files|split): [^:]*' | tr '\n' ';'
}
[ "$(ini head --n 1 --job sft)" = "train_files: row 0;val_files: row 0;" ] || fail "sft: $(ini head --n 1 --job sft)"
[ "$("$XRAY_BIN" data head run.ini --job sft 2>/dev/null | grep -c 'of them learned')" = 1 ] || fail "sft reads validation rows as its own"
[ "$(ini head --n 1 --job eval)" = "val_files: row 0;" ] || fail "eval: $(ini head --n 1 --job eval)"
[ "$(ini stats)" = "train_files: 1 rows;val_files: 4 rows;" ] || fail "parts: $(ini stats)"
split=$(ini stats --set data.val_files= --set data.val_split=0.5 --set data.train_files=rows.jsonl)
[[ $split =~ ^train_files:\ ([1-3])\ rows\;val_split:\ ([1-3])\ rows\;$ ]] || fail "split: $split"
[ $((BASH_REMATCH[1] + BASH_REMATCH[2])) = 4 ] || fail "split: $split"

# An INI is read as such only alone; beside other files it is one of them.
for files in "run.ini rows.jsonl" "rows.jsonl run.ini" "run.ini run.ini"; do
    # shellcheck disable=SC2086
    shows 2 "xray: run.ini: row 1: each entry of the array must be an object" head $files --model "$model"
done

# ---- stats: lengths that tokenize gives, counted by other programs
words="one day a little dragon who liked to sing went for a very long walk in the dark wood"
for i in $(seq 57); do
    text=$(cut -d' ' -f1-$((i % 19 + 1)) <<<"$words")
    printf '{"prompt":"%s","answer":"1","data_source":"%s"}\n' "$text" "$((i % 3))" >>many.jsonl
    echo "{\"text\":\"$text\"}" >>texts
done
"$XRAY_BIN" tokenize --model "$model" --special on <texts | while read -r line; do grep -oE '[0-9]+' <<<"$line" | wc -l; done | sort -n >lengths
nth() { sed -n "$1p" lengths; }
"$XRAY_BIN" data stats many.jsonl --model "$model" --set data.max_prompt_length=12 >got
says() { grep -qxF -- "$1" got || fail "stats lack: $1; they are: $(cat got)"; }
says "train_files: 57 rows"
for i in 0 1 2; do says "data_source $i: 19 rows"; done
# Of 57 rows half are 29, 90 % are 52 and 99 % are 57.
says "tokens of a prompt: mean $(awk '{s += $1} END {printf "%.1f", s / NR}' lengths), median $(nth 29), 90 % at most $(nth 52), 99 % at most $(nth 57), longest $(nth 57)"
says "longer than 12 tokens: $(awk '$1 > 12' lengths | wc -l) rows"
says "prompts that an earlier row has: 38"
says "without a ground truth: 0 rows"
while read -r from to count; do
    [ "$count" = "$(awk -v a="$from" -v b="$to" '$1 >= a && $1 <= b' lengths | wc -l)" ] || fail "lengths from $from to $to: $count"
    echo "$count"
done < <(sed -nE 's/^ +([0-9]+) to +([0-9]+) +([0-9]+).*/\1 \2 \3/p' got) | awk '{s += $1} END {exit s != 57}' || fail "histogram: $(cat got)"
"$XRAY_BIN" data stats rows.jsonl --model "$model" --set data.answer_key= >got
says "without a ground truth: 4 rows"
# A row of supervised fine-tuning has prompt and answer; of some only the answer is learned.
printf '{"prompt":"x","completion":"y z"}\n{"prompt":"x","completion":"y z w"}\n{"prompt":"a","completion":"b"}\n' >pairs.jsonl
"$XRAY_BIN" data stats pairs.jsonl --model "$model" --job sft --set data.max_prompt_length=3 --set data.max_response_length=5 >got 2>/dev/null
learned=() rows=()
for pair in x:'y z' x:'y z w' a:b; do
    learned+=($(($(tokens "${pair#*:}" off) + 1)))
    rows+=($(($(tokens "${pair%%:*}") + learned[-1])))
done
sum() { awk '{s = 0; for (i = 1; i <= NF; i++) s += $i; printf "%.1f", s / NF}' <<<"$*"; }
high() { tr ' ' '\n' <<<"$*" | sort -n | tail -n 1; }
over() { tr ' ' '\n' <<<"${*:2}" | awk -v most="$1" '$1 > most' | wc -l; }
grep -q "^tokens of a row: mean $(sum "${rows[@]}"), .* longest $(high "${rows[@]}")$" got || fail "rows of pairs: $(cat got)"
grep -q "^tokens of a row that are learned: mean $(sum "${learned[@]}"), .* longest $(high "${learned[@]}")$" got || fail "learned: $(cat got)"
says "longer than 8 tokens: $(over 8 "${rows[@]}") rows"
says "longer than 5 tokens: $(over 5 "${learned[@]}") rows"
says "prompts that an earlier row has: 1"
if grep -q 'ground truth' got; then fail "rows of pairs lack nothing: $(cat got)"; fi
"$XRAY_BIN" data stats rows.jsonl --model "$model" --set 'data.filters=level > 2' >got
says "train_files: 1 rows"
says "3 rows left out by [data] filters"

# ---- check
for i in $(seq 23); do printf '{"q":%d}\n' "$i"; done >bad.jsonl
printf '{"prompt":"a","answer":1}\n{"prompt":"%s","answer":1}\n{oops\n' "$words" >>bad.jsonl
code=0
"$XRAY_BIN" data check bad.jsonl --model "$model" --set data.max_prompt_length=8 --set data.filter_overlong_prompts=true >out 2>err || code=$?
[ $code = 1 ] || fail "check of bad rows: exit code $code"
[ "$(cat out)" = "train_files: 1 rows, 1 left out and 0 cut for their length
train_files: 24 rows with which no run would start" ] || fail "check: $(cat out)"
for i in $(seq 20); do echo "xray: bad.jsonl:$i: no key 'prompt'"; done >want
echo "xray: 4 more rows are malformed" >>want
diff want err || fail "sentences of check"
shows 2 "xray: many.jsonl: all 57 rows are longer than 1 tokens" check many.jsonl --set data.max_prompt_length=1 --set data.filter_overlong_prompts=true
head -n 2 bad.jsonl >worse.jsonl
shows 2 "xray: worse.jsonl:1: no key 'prompt'
xray: worse.jsonl:2: no key 'prompt'
xray: worse.jsonl: none of its rows can be used" check worse.jsonl
shows 0 "train_files: 4 rows, 0 left out and 0 cut for their length" check rows.jsonl
shows 0 "train_files: 4 rows, 0 left out and 1 cut for their length" check rows.jsonl --set data.max_prompt_length=$((once - 1)) --set data.truncation=left
shows 0 "train_files: 1 rows, 0 left out and 0 cut for their length
train_files: 3 rows left out by [data] filters" check rows.jsonl --set 'data.filters=level > 2'
shows 1 "xray: none.jsonl: cannot open: No such file or directory" check none.jsonl

# A folder without weights reads rows; the sentence of a model that lacks them is for those that compute.
mkdir words
cp "$model"/config.json "$model"/tokenizer*.json words/
for command in head stats check; do
    "$XRAY_BIN" data $command rows.jsonl --model words >got 2>&1 || fail "data $command without weights: $(cat got)"
    "$XRAY_BIN" data $command rows.jsonl --model "$model" 2>&1 | cmp - got || fail "data $command reads otherwise without weights"
done
echo "data rows: ok"
