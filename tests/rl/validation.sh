#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that mean@n and best@n of each source are those of the samples that
# were written, across batches, and that the greedy pass has one sample per row.
. "$(dirname "$0")/lib.sh"
make_task
awk 'NR % 3 { sub(/^\{/, "{\"data_source\":\"most\","); print; next }
    { sub(/^\{/, "{\"data_source\":\"third\","); print }' "$work/task/val16.jsonl" >"$work/task/sources.jsonl"

validate() { # NAME ARGS
    local name=$1
    shift
    "$XRAY_BIN" eval "$work/run.ini" --set "data.val_files=$work/task/sources.jsonl" --set data.val_batch_size=5 \
        --set "trainer.validation_data_dir=$work/$name" "$@" >"$work/$name.txt" 2>"$work/$name.err" ||
        fail "eval failed: $(cat "$work/$name.err")"
}

# expect FOLDER N GREEDY KIND: computes the metrics from the written samples of
# a pass, of which N consecutive lines are one row, and expects every line that
# eval printed to be one of them.
expect() {
    sed -E 's/.*"score":([-0-9.e+]+).*"data_source":"([a-z]+)".*"sample":([0-9]+),"temperature":([0-9.]+).*/\2 \1 \3 \4/' \
        "$work/$1/0.jsonl" | awk -v n="$2" -v greedy="$3" -v kind="$4" '
        ($4 == 0) != greedy { next }
        $3 != seen % n { print "sample " $3 " is out of order"; exit 1 }
        { if (seen++ % n == 0) { rows[$1]++; best = $2 }
          sum[$1] += $2 / n
          if ($2 > best) best = $2
          if (seen % n == 0) bests[$1] += best }
        END { for (s in rows) {
                  printf "val-core/%s/reward/%smean@%d %.6g\n", s, kind, n, sum[s] / rows[s]
                  if (n > 1) printf "val-aux/%s/reward/best@%d %.6g\n", s, n, bests[s] / rows[s] } }'
}

printed() { awk '/^val-(core|aux)\// { printf "%s %.6g\n", $1, $2 }' "$work/$1.txt" | sort; }

# A third of the samples is right, so the best of four is above the mean.
validate four --set rollout.val.n=4
diff <({ expect four 1 1 ""; expect four 4 0 ""; } | sort) <(printed four) || fail "validation counts otherwise"
awk '/mean@4/ { mean += $2 } /best@4/ { best += $2 } END { exit !(mean > 0.1 && best > mean + 0.1) }' "$work/four.txt" ||
    fail "the samples do not tell best@4 from mean@4: $(cat "$work/four.txt")"
[ "$(printed four | wc -l)" = 6 ] || fail "mean@1, mean@4, best@4 of two sources were expected: $(cat "$work/four.txt")"

# One sample per row has a name of its own beside the greedy one's, and no best.
validate one --set rollout.val.n=1
diff <({ expect one 1 1 ""; expect one 1 0 sampled/; } | sort) <(printed one) || fail "validation of one sample counts otherwise"

# Settings that leave only the likeliest token make sampling greedy.
for key in top_k=1 top_p=1e-6; do
    validate cut --set rollout.val.n=2 --set rollout.val.temperature=1 --set "rollout.val.$key"
    awk '{ greedy = /"temperature":0}/; gsub(/,"sample":.*/, "") }
        greedy { want[++rows] = $0; next }
        $0 != want[int(drawn++ * 0.5) + 1] { print "a drawn sample is another one: " $0; exit 1 }
        END { exit !(rows == 16 && drawn == 32) }' "$work/cut/0.jsonl" || fail "rollout.val.$key cuts off nothing"
    rm -r "$work/cut"
done

# Greedy samples only.
validate greedy
diff <(expect greedy 1 1 "" | sort) <(printed greedy) || fail "greedy validation counts otherwise"
[ "$(wc -l <"$work/greedy/0.jsonl")" = 16 ] || fail "sixteen greedy samples were expected"
echo "validation: ok"
