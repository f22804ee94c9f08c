#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Takes the place of the interpreter that runs the bridge, whose text it ignores: it
# answers on descriptor 3 as the word in `address` says.
import json
import os
import signal
import socket
import sys
import time

channel = socket.socket(fileno=3)
lines = channel.makefile("r")
ask = json.loads(lines.readline())
word = ask["address"]


def send(**message):
    channel.sendall((json.dumps(message) + "\n").encode())


def say(index, turn, text):
    send(**{"is": "says", "index": index, "turn": turn, "text": text})


def end(index, turn, text, clean=False):
    send(**{"is": "ended", "index": index, "turn": turn, "text": text, "clean": clean})


def answer_run():
    if word == "few":
        send(**{"is": "hosts", "hosts": ["a"]})
        return
    channel.sendall(b"no JSON\n[1]\n{\"is\":7}\n\n")
    send(**{"is": "hosts", "hosts": ["h%d" % (i // 2) for i in range(len(ask["places"]))]})
    for line in lines:
        request = json.loads(line)
        index, turn = request["index"], request["turn"]
        if request["do"] == "stop":
            say(index, turn, "too late")
            say(1 - index, 1, "beside ")
            send(**{"is": "stopped", "index": index, "turn": turn})
            say(1 - index, 1, "it")
            continue
        text = request["argv"][2]
        if text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if text == "lost":
            print("GCS may have been killed. It's either this or that. See a page.", file=sys.stderr)
            sys.exit(1)
        if text == "crash":
            raise RuntimeError("the cluster is gone")
        say(9, turn, "a place that is none")
        say(index, turn - 1, "of the turn before")
        say(index, turn, request["token"])
        if text != "run":
            end(index, turn, text, text.endswith(" 0"))


def answer_submit():
    send(**{"is": "log", "level": 3, "text": "job\n1"})
    send(**{"is": "out", "text": "argv " + " ".join(ask["argv"]) + "\n"})
    if word == "cancel":
        assert json.loads(lines.readline()) == {"do": "cancel"}
        send(**{"is": "out", "text": "canceled\n"})
    send(**{"is": "done", "exit": 130 if word == "cancel" else 7})


if word == "crash":
    print("Traceback: many\nlines\nValueError: no such thing\n", file=sys.stderr)
    sys.exit(1)
elif word == "wait":
    for number in range(3):
        send(**{"is": "log", "level": 2, "text": "waiting %d" % number})
    time.sleep(600)
elif word == "refuse":
    send(**{"is": "failed", "status": "config", "key": "", "text": "Ray cannot place the run"})
elif word == "again" and not ask["again"]:
    send(**{"is": "failed", "status": "config", "key": "", "text": "the run is new"})
elif word == "show":
    del ask["plugins"]  # the folder of the test program
    send(**{"is": "failed", "status": "io", "key": "", "text": json.dumps(ask, sort_keys=True)})
elif word == "key":
    send(**{"is": "failed", "status": "io", "key": "address", "text": " = key: nobody is there"})
elif ask["do"] == "check":
    assert ask["build"] == "build 1" and ask["paths"] == ["/"] and ask["plugins"]
    send(**{"is": "done", "exit": 0})
elif ask["do"] == "submit":
    answer_submit()
else:
    answer_run()
