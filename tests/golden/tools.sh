#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Golden suite of the commands that make no run: data, tokenize, grade, convert,
# compare, submit, plugin and algo, over the rows in tools/.
#
# A case is a name and a command of the shell, which may use the functions below; the
# rows are in ../../d, models and tokenizers in ../../m, and files of data in ../../r.
. "$(dirname "$0")/lib.sh"

# ---- files that all cases share -----------------------------------------------
make_models() {
    local stories=$XRAY_TEST_DATA/models/stories260K tokenizers=$XRAY_TEST_DATA/tokenizers name
    mkdir "$work/m"
    for name in hf hf_as_qwen2 hf_bf16 hf_f16 hf_sharded hf_untied; do cp -r "$stories/$name" "$work/m/$name"; done
    cp -r "$tokenizers/llama2_spm" "$tokenizers/qwen2" "$work/m/"
    chmod -R u+w "$work/m"
    for name in "$golden_folder"/tools/*.jinja; do
        name=$(basename "$name" .jinja)
        cp -r "$work/m/qwen2" "$work/m/$name"
        cp "$golden_folder/tools/$name.jinja" "$work/m/$name/chat_template.jinja"
    done
    mkdir "$work/m/torch" "$work/m/shards" "$work/m/matrices"
    "$XRAY_BUILD/tests/make-torch" "$work/m/hf" "$work/m/torch" 1
    "$XRAY_BUILD/tests/make-torch" "$work/m/hf_bf16" "$work/m/shards" 3
    "$XRAY_BUILD/tests/make-torch" "$work/m/matrices" || true
    cp "$work"/m/hf/*.json "$work/m/torch/"
    cp "$work"/m/hf/config.json "$work/m/shards/"
}

make_rows() {
    ln -s "$golden_folder/tools" "$work/d"
    mkdir "$work/r" "$work/r/folder"
    (
        cd "$work/r"
        { printf '\xef\xbb\xbf[\n' && sed '$!s/$/,/' ../d/full.jsonl && echo ']'; } >array.json
        { printf '{"version": 1, "data": ' && tail -c +4 array.json && echo '}'; } >object.json
        gzip -nc ../d/full.jsonl >full.jsonl.gz
        gzip -nc ../d/rows.csv >rows.csv.gz
        sed 's/$/\r/' ../d/pairs.jsonl >dos.jsonl
        head -c 3000 ../d/full.jsonl >cut.jsonl
        head -c 400 full.jsonl.gz >cut.jsonl.gz
        printf 'version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n' >pointer.jsonl
        printf '\xff\xfe{\0"\0' >utf16.jsonl
        : >empty.jsonl
        printf 'prompt,answer\na,1,2\n"b,1\n' >bad.csv
        cp ../d/pairs.jsonl folder/b.jsonl
        cp ../d/rows.tsv folder/a.tsv
        echo '{}' >folder/dataset_info.json
    )
}

# ---- words of the cases -------------------------------------------------------------
xray() { "$XRAY_BIN" "$@"; }

# Scores the rows of a file; every other word is a key of the reward.
grade() { # ROWS GRADER [KEY=VALUE...]
    local rows=$1 word sets=(--set "reward.r.grader=$2")
    shift 2
    for word in "$@"; do sets+=(--set "reward.r.$word"); done
    xray grade --reward r "${sets[@]}" "../../d/$rows.jsonl"
}

tokens() { # MODEL ROWS [OPTION...]
    xray tokenize --model "../../m/$1" "${@:3}" "../../d/$2.jsonl"
}

# Prints the tokens of texts, and the texts of those tokens.
there_and_back() { # MODEL ROWS [OPTION OF ENCODING] [OPTION OF DECODING]
    tokens "$1" "$2" ${3:+"$3"} >ids || true
    cat ids
    grep -v '"error"' ids | sed 's/,"text".*/}/; s/,"assistant_mask".*/}/' >clean || true
    xray tokenize --model "../../m/$1" --decode ${4:+"$4"} clean
    local code=$?
    rm -f ids clean
    return $code
}

# Renders one conversation with the template on standard input.
render() {
    mkdir t
    cp ../../m/qwen2/*.json t/
    cat >t/chat_template.jinja
    xray tokenize --model t ../../d/context.jsonl
    local code=$?
    rm -r t
    return "$code"
}

# A template that prints the expressions of these lines.
expressions() { # FROM TO
    sed -n "$1,$2s/.*/{{ [&] }}/p" ../../d/expressions.txt | render
}

template() { # LINE
    printf '%b' "$(sed -n "$1p" ../../d/templates.txt | sed 's/\\/\\\\/g; s/\\\\n/\\n/g')" | render
}

# Converts, and shows the rows beside what the program says.
rows_of() { # FILE... OUT
    xray data convert "$@" && case ${!#} in
    *.gz) gzip -dc "${!#}" ;;
    *.zst) xray data convert "${!#}" from.jsonl && cat from.jsonl ;;
    *) cat "${!#}" ;;
    esac
    local code=$?
    rm -f "${!#}" from.jsonl
    return $code
}

versionless() { "$@" | sed -E 's/\b[0-9]+\.[0-9]+\.[0-9]+\b/VERSION/g' | grep -v cuda; }

# The folder of a run that never ran. Scores go from 0.1 to SCORE in STEPS steps, with a
# scatter that depends on the seed.
made() { # FOLDER SEED LR STEPS SCORE [nan=STEP] [gone=STEP] [val=NAME] [samples] [set=KEY=VALUE]
    local dir=$1 word samples="" nan=-1 gone=-1 val=val-core/x/reward/mean@1 more="" section
    mkdir -p "$dir"
    for word in "${@:6}"; do
        case $word in
        nan=*) nan=${word#*=} ;;
        gone=*) gone=${word#*=} ;;
        val=*) val=${word#*=} ;;
        samples) samples=1 ;;
        set=*)
            word=${word#set=}
            section=${word%%=*}
            more+="[${section%.*}]"$'\n'"${section##*.} = ${word#*=}"$'\n'
            ;;
        esac
    done
    awk -v seed="$2" -v lr="$3" -v steps="$4" -v score="$5" -v nan="$nan" -v gone="$gone" -v val="$val" 'BEGIN {
        printf "{\"step\":0,\"%s\":0.1,\"timing_s/testing\":0.5}\n", val
        for (s = 1; s <= steps; s++) {
            if (s == gone) continue
            now = 0.1 + (score - 0.1) * s / steps + ((seed * 7 + s * 3 + int(score * 20) * seed) % 11 - 5) / 500
            printf "{\"step\":%d,\"timing_s/gen\":%.4g,\"timing_s/update_actor\":0.5,\"actor/lr\":%s", s, 0.25 + (s % 3) / 100, lr
            printf ",\"critic/score/mean\":%s,\"actor/entropy\":%.6g", s == nan ? "null" : sprintf("%.6g", now), 2 - now
            printf ",\"perf/total_num_tokens\":%d,\"perf/throughput\":%.4g,\"timing_s/step\":%.4g", 100 + s, 80 + seed % 5, 1.25 + s / 100
            if (s == steps || s % 4 == 0) printf ",\"%s\":%s,\"val-aux/x/other\":%.6g", val, s == nan ? "null" : sprintf("%.6g", now + 0.01), s
            print "}"
        }
    }' >"$dir/metrics.jsonl"
    printf '[run]\nseed = %s\n\n[data]\ntrain_files = /rows\n\n[actor.optim]\nlr = %s\n\n[trainer]\ndefault_local_dir = /somewhere\n%s' \
        "$2" "$3" "$more" >"$dir/run.ini"
    [ -n "$samples" ] || return 0
    mkdir "$dir/rollout"
    local step
    for ((step = 1; step <= $4; step++)); do
        for word in 0 1 2 3 4 5 6 7; do
            printf '{"step":%d,"prompt":"<p> %d & \\"q\\"","response":"%s %d","ground_truth":"%d","score":%d}\n' \
                $step $word "$([ $step = 1 ] || echo "$3 ")says" $((($2 + word) % 3)) $word $((($2 + step + word) % 2))
        done >"$dir/rollout/$step.jsonl"
    done
}

# Of several seeds, each with the same words.
seeds() { # FOLDER SEED,SEED... LR STEPS SCORE [WORD...]
    local seed
    for seed in ${2//,/ }; do made "$1/seed-$seed" "$seed" "${@:3}"; done
}

# Compares and leaves the page alone.
compared() {
    xray compare "$@"
    local code=$? file
    for file in *; do
        [ -f "$file" ] || rm -r "$file"
    done
    return $code
}

run_case() { eval "${1#* }"; }

# The sum of scores, or the number of lines.
case_values() {
    local out=$work/cases/$1.out
    if grep -q '^{"score"' "$out"; then
        sed -nE 's/^\{"score":([-0-9.e+]+).*/\1/p' "$out" | awk '{sum += $1} END {printf "%d scores, sum %.6g\n", NR, sum}'
    elif [ -s "$out" ]; then
        echo "$(wc -l <"$out") lines"
    else
        head -n 1 "$work/cases/$1.err" | sed -E "s,$work/,,g; s,$XRAY_BUILD/,,g; s,^xray: ,," | cut -c 1-60
    fi
}

make_models
make_rows
golden_every=12
golden_main
