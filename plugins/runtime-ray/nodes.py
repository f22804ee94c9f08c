# SPDX-License-Identifier: Apache-2.0
#
# The bridge has this run on the nodes of a cluster: the launcher of a Workhorse, and
# a look at the files that a run needs. The plugin holds cluster.py, nodes.py and
# bridge.py as one text.
import ctypes
import hashlib
import os
import signal
import subprocess
import threading

STOP_S = 7  # until a process that was killed has ended


class Launcher:
    """Holds one process at a time: it dies with this actor, which brings back what it
    says and how it ends."""

    def __init__(self):
        self.changed = threading.Condition()
        self.events = []
        self.taken = 0
        self.stopped = 0  # turns up to this one do not begin any more
        self.child = None
        self.raylet = os.getppid()
        self.prctl = ctypes.CDLL(None).prctl

    def put(self, **event):
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def begin(self, turn, argv, folder, token):
        threading.Thread(target=self.run, args=(turn, argv, folder, token), daemon=True).start()

    # The kernel kills the child with the thread that started it, so that also a child
    # that is stopped is gone with the actor.
    def run(self, turn, argv, folder, token):
        try:
            with self.changed:
                if turn <= self.stopped:
                    return
                self.child = child = subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, start_new_session=True,
                    cwd=folder if os.path.isdir(folder) else None,
                    preexec_fn=lambda: self.prctl(1, signal.SIGKILL))
        except OSError as error:
            self.put(turn=turn, ended="could not be started: %s: %s"
                     % (argv[0], error.strerror), clean=False)
            return
        reader = threading.Thread(target=self.read, args=(turn, child), daemon=True)
        reader.start()
        try:
            child.stdin.write(token.encode() + b"\n")
            child.stdin.flush()
        except OSError:
            pass
        code = child.wait()
        kill_group(child)
        reader.join(1)
        with self.changed:
            self.child = None
            self.changed.notify_all()
        # Where the raylet has died Ray ends its workers, and what is below them. That
        # the actor is gone tells more than that its process was killed.
        if code >= 0 or os.getppid() == self.raylet:
            self.put(turn=turn, ended=describe(code), clean=code == 0)

    def read(self, turn, child):
        while True:
            piece = os.read(child.stdout.fileno(), 1 << 16)
            if not piece:
                break
            self.put(turn=turn, says=piece.decode(errors="replace"))

    def next(self, since):
        """Returns the events from number `since` on, once there is one. Earlier ones
        have arrived."""
        with self.changed:
            del self.events[:max(0, since - self.taken)]
            self.taken = max(self.taken, since)
            self.changed.wait_for(lambda: self.events)
            return list(self.events)

    def hear(self):
        """Tells the bridge that its node is reached."""

    def stop(self, turn):
        with self.changed:
            self.stopped = max(self.stopped, turn)
            child = self.child
            if child:
                kill_group(child)
            self.changed.wait_for(lambda: self.child is not child or not child, STOP_S)


def kill_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass


def describe(code):
    if code >= 0:
        return "exited with status %d" % code
    return "was killed by signal %d (%s)" % (-code, signal.strsignal(-code))


def look(program, build, plugins, paths):
    """Runs on a node: returns what it lacks to take part in the run."""
    lacks = []
    if not os.access(program, os.X_OK):
        lacks.append("has no program %s" % program)
    else:
        done = subprocess.run([program, "--build"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        there = done.stdout.decode(errors="replace").strip().splitlines()
        if done.returncode or not there:
            lacks.append("cannot run %s (%s%s)" % (
                program, describe(done.returncode), ": " + there[-1] if there else ""))
        elif there[-1] != build:
            lacks.append("has another build of %s: %s, while this one is %s"
                         % (program, there[-1], build))
    for path, digest in plugins.items():
        if hash_file(path) != digest:
            lacks.append("has %s %s" % ("another" if os.path.exists(path) else "no", path))
    lacks.extend("does not see %s" % path for path in paths if not os.path.exists(path))
    return lacks


def hash_file(path):
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""
