#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that the judge of examples/rewards scores, that a run with it has the
# same bits in whatever order the answers come, and that the key is in none of
# its outputs.
. "$(dirname "$0")/../rl/lib.sh"
examples=$XRAY_SOURCE/examples/rewards
export JUDGE_KEY=sesame-4711-open
python3 "$examples/judge.py" 0 >"$work/port" &
server=$!
trap 'kill "$server"; wait "$server" || true; rm -rf "$work"' EXIT
for _ in $(seq 600); do
    [ -s "$work/port" ] && break
    kill -0 "$server" || fail "the judge does not start"
    sleep 0.05
done
url=http://127.0.0.1:$(cut -d' ' -f2 "$work/port")/v1/chat/completions

judge() { # RESPONSE [--set ...]
    local response=$1
    shift
    echo "{\"prompt\":\"1+2=\",\"response\":\"$response\",\"ground_truth\":\"3\"}" |
        "$XRAY_BIN" grade --reward judge "${keys[@]}" "$@" 2>&1
}
keys=()
for key in plugin=http protocol=chat "url=$url" key_env=JUDGE_KEY model=judge "template_file=$examples/judge.txt" \
    'pattern=Score: ([01])'; do
    keys+=(--set "reward.judge.$key")
done
[ "$(judge 3)" = '{"score":1,"failed":0}' ] || fail "a right answer: $(judge 3)"
[ "$(judge 4)" = '{"score":0,"failed":0}' ] || fail "a wrong answer: $(judge 4)"
JUDGE_KEY=sesame-0815-open judge 3 >"$work/said" && fail "a wrong key is no error"
grep -qE 'says 401: .*the key is wrong' "$work/said" || fail "$(cat "$work/said")"
# What cannot work is found before a run.
if (unset JUDGE_KEY && judge 3) >"$work/said"; then fail "a missing key is no error"; fi
grep -qF 'key_env = JUDGE_KEY: the environment has no such variable' "$work/said" || fail "$(cat "$work/said")"

make_task
sed -i -e '/^reward = close/d' -e "1i include = $work/judge.ini" "$work/run.ini"
sed -e "s|^url = .*|url = $url|" -e "s|^template_file = .*|template_file = $examples/judge.txt|" "$examples/judge.ini" >"$work/judge.ini"
sed -i '/^\[reward.close\]/,$d' "$work/run.ini"
"$XRAY_BIN" check "$work/run.ini" >"$work/said" 2>&1 || fail "$(cat "$work/said")"
if (unset JUDGE_KEY && "$XRAY_BIN" check "$work/run.ini" >"$work/said" 2>&1); then fail "check does not miss the key"; fi
grep -qF 'key_env = JUDGE_KEY: the environment has no such variable' "$work/said" || fail "$(cat "$work/said")"
train "$work/one" --set trainer.total_training_steps=2 --set reward.judge.concurrency=1 >"$work/log" 2>&1 || fail "$(cat "$work/log")"
train "$work/many" --set trainer.total_training_steps=2 --set reward.judge.concurrency=16 >>"$work/log" 2>&1 || fail "$(cat "$work/log")"
cmp <(steady "$work/one/metrics.jsonl") <(steady "$work/many/metrics.jsonl") || fail "the metrics depend on the order of answers"
grep -q '"reward.judge/failed":0' "$work/one/metrics.jsonl" || fail "there is no share of failed samples"
grep -q '"timing_s/reward_beside":' "$work/one/metrics.jsonl" || fail "nothing was scored beside the rollout"
JUDGE_KEY=sesame-0815-open train "$work/bad" >>"$work/log" 2>&1 && fail "a run goes on without scores"
grep -qE 'sample [0-9]+: the server says 401' "$work/log" || fail "$(cat "$work/log")"
"$XRAY_BIN" config print "$work/run.ini" >"$work/printed"
! grep -rlE 'sesame-(4711|0815)' "$work" || fail "the key is in these files"

# A server's certificate is checked, and so is the name in it.
if command -v openssl >/dev/null; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$work/key.pem" -out "$work/cert.pem" \
        -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null
    cat >"$work/tls.py" <<'PY'
import http.server, json, ssl, sys
class Verifier(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["samples"]
        answer = json.dumps([{"id": row["id"], "score": len(row["response"])} for row in rows]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *words):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Verifier)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
PY
    python3 "$work/tls.py" "$work/cert.pem" "$work/key.pem" >"$work/tls_port" 2>/dev/null &
    tls=$!
    trap 'kill "$server" "$tls"; wait "$server" "$tls" || true; rm -rf "$work"' EXIT
    for _ in $(seq 600); do
        [ -s "$work/tls_port" ] && break
        kill -0 "$tls" || fail "the server with a certificate does not start"
        sleep 0.05
    done
    verify() { # HOST [--set ...]
        local host=$1
        shift
        echo '{"response":"abc"}' | "$XRAY_BIN" grade --reward v --set reward.v.plugin=http \
            --set "reward.v.url=https://$host:$(cat "$work/tls_port")/" "$@" 2>&1
    }
    trusted=(--set "reward.v.ca_file=$work/cert.pem")
    [ "$(verify localhost "${trusted[@]}")" = '{"score":3,"failed":0}' ] || fail "a trusted server: $(verify localhost "${trusted[@]}")"
    verify localhost >"$work/said" && fail "a server is trusted without a certificate of the system"
    grep -q 'the server gave no answer: .*certificate' "$work/said" || fail "$(cat "$work/said")"
    verify 127.0.0.1 "${trusted[@]}" >"$work/said" && fail "a certificate of another name is trusted"
    grep -q 'the server gave no answer: .*127.0.0.1' "$work/said" || fail "$(cat "$work/said")"
fi
echo "judge: ok"
