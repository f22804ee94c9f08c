#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The page of xray compare in a headless Chromium: it is parsed completely, nothing is
# cut at its right edge on wide and narrow screens, light and dark schemes differ, and
# it makes no network requests. Without Chromium the test is reported as skipped;
# xmllint checks the XML if it is installed.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL: $*" >&2
    exit 1
}

# Two variants of three runs: 40 steps, a score that rises, samples.
for seed in 1 2 3; do
    for variant in base quick; do
        dir=$work/$variant/seed-$seed
        mkdir -p "$dir/rollout"
        awk -v seed=$seed -v quick=$([ $variant = quick ] && echo 1 || echo 0) 'BEGIN {
            for (s = 0; s <= 40; s++) {
                y = 0.1 + (quick ? 0.02 : 0.012) * s + 0.03 * sin(s * seed + quick)
                printf "{\"step\":%d", s
                if (s % 5 == 0)
                    printf ",\"val-core/sums/reward/mean@1\":%.4f", y
                if (s)
                    printf ",\"critic/score/mean\":%.4f,\"actor/entropy\":%.4f,\"response_length/mean\":%d,\"perf/total_num_tokens\":%d,\"timing_s/step\":%.3f,\"timing_s/gen\":0.2,\"timing_s/update_actor\":0.3,\"perf/throughput\":4000",
                        y - 0.05, 2 - y, 20 + s, 2000 + 10 * s, quick ? 0.6 : 0.5
                print "}"
            } }' >"$dir/metrics.jsonl"
        printf '[run]\nseed = %d\n\n[actor.optim]\nlr = %s\n' $seed \
            "$([ $variant = quick ] && echo 2e-5 || echo 1e-5)" >"$dir/run.ini"
        for p in "2 + 2 = ?" "A prompt <b>with & marks</b>" "$(printf 'long%.0s' {1..60})"; do
            printf '{"step":40,"prompt":"%s","response":"%s %s","ground_truth":"4","score":0.5}\n' \
                "$p" "$variant says" "$(printf 'word %.0s' {1..30})"
        done >"$dir/rollout/40.jsonl"
    done
done
"$XRAY_BIN" compare "$work/base" "$work/quick" --out "$work/report.html" >"$work/text"
grep -q 'quick is better than base' "$work/text" || fail "no winner: $(cat "$work/text")"

if command -v xmllint >/dev/null; then
    xmllint --noout "$work/report.html" || fail "xmllint refuses the page"
fi
browser=
for name in chromium chromium-browser google-chrome; do
    browser=$(command -v $name) && break
done
if [ -z "$browser" ]; then
    echo "skipped: no Chromium is installed (package chromium)"
    exit 77
fi

# look FILE-OR-URL OPTIONS...
look() {
    HOME=$work timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --hide-scrollbars --user-data-dir="$work/profile" "${@:2}" "$1" 2>>"$work/log"
}
page=file://$work/report.html
look "$page" --dump-dom >"$work/dom" || fail "the browser: $(tail -n 3 "$work/log")"
grep -q '</html>' "$work/dom" || fail "the browser gave no page"
for part in 'quick is better than base' '<svg' '<section id="time">' 'Samples side by side' 'A prompt &lt;b&gt;with &amp;'; do
    grep -qF "$part" "$work/dom" || fail "'$part' is not on the page as the browser has it"
done
# A browser repairs broken markup, so the number of elements is compared.
for tag in svg polyline polygon table tr td th h2 pre figure; do
    written=$(grep -o "<$tag[ >]" "$work/report.html" | wc -l)
    found=$(grep -o "<$tag[ >]" "$work/dom" | wc -l)
    [ "$written" = "$found" ] || fail "<$tag>: $written written, $found in the browser"
done

# The page in a frame, measured by a script of this test.
for width in 1200 390; do
    cat >"$work/frame.html" <<HTML
<!DOCTYPE html><meta charset="utf-8"><body><pre id="out">none</pre><iframe id="f" style="width:${width}px;height:900px;border:0"></iframe>
<script>f.onload=()=>{const d=f.contentDocument;out.textContent="wide "+d.documentElement.scrollWidth+" asked "+f.contentWindow.performance.getEntriesByType("resource").length};f.srcdoc=$(
        sed -e 's/\\/\\\\/g' -e 's/`/\\`/g' -e 's/\$/\\$/g' -e '1s/^/`/' -e '$s/$/`/' "$work/report.html"
    )</script>
HTML
    look "file://$work/frame.html" --virtual-time-budget=5000 --dump-dom >"$work/frame.dom"
    grep -q "wide $width asked 0<" "$work/frame.dom" ||
        fail "at $width pixels: $(grep -o 'wide [0-9]* asked [0-9]*' "$work/frame.dom" || echo 'not measured')"
done

look "$page" --window-size=1200,3200 --screenshot="$work/light.png"
look "$page" --window-size=1200,3200 --blink-settings=preferredColorScheme=0 --screenshot="$work/dark.png"
for shot in light dark; do
    [ "$(wc -c <"$work/$shot.png")" -gt 50000 ] || fail "$shot.png is all but empty"
done
! cmp -s "$work/light.png" "$work/dark.png" || fail "dark is as light"
[ -z "${XRAY_SHOTS:-}" ] || cp "$work"/*.png "$work/report.html" "$XRAY_SHOTS"
echo "page: ok, $(wc -c <"$work/report.html") bytes"
