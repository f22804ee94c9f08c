# SPDX-License-Identifier: Apache-2.0
#
# A server with OpenAI's chat completions whose judge needs no model: the text
# of judge.txt names the right answer and the answer to grade. It listens on
# 127.0.0.1 at the port that is its argument, 0 for a free one, which it prints.
# If JUDGE_KEY is set, only requests with this key are answered.
import http.server
import json
import os
import re
import sys


def judge(text):
    right = re.search(r"^Right answer: (.*)$", text, re.M).group(1)
    given = re.search(r"^Answer to grade: ([^\n]*)$", text, re.M).group(1)
    verdict = right.strip() == given.strip()
    return f"It is {'right' if verdict else 'wrong'}. Score: {int(verdict)}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        key = os.environ.get("JUDGE_KEY")
        if key and self.headers["Authorization"] != f"Bearer {key}":
            self.reply(401, {"error": "the key is wrong"})
            return
        text = json.loads(body)["messages"][0]["content"]
        message = {"role": "assistant", "content": judge(text)}
        self.reply(200, {"choices": [{"index": 0, "message": message}]})

    def reply(self, status, answer):
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("port", server.server_port, flush=True)
server.serve_forever()
