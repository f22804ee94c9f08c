# SPDX-License-Identifier: Apache-2.0
#
# Asks Ray for the plugin runtime-ray: reserves places, starts Workhorses in actors
# of Ray and reports how they end. When it ends, whatever it has started in Ray ends,
# too.
import asyncio
import json
import os
import shlex
import sys
import threading
import time

LOOK_S = 60  # until a node has looked at its files
HEAD_S = 1  # until the head has said which nodes are alive
HEAR_S = 2  # until a launcher that does not hear is killed, as is any other of its node
ANSWER_S = 9  # until one that hears has stopped its process, or is killed
AGENT_S = 60  # until a cluster that has just started takes jobs
LEAVE_S = 5  # until the bridge ends though Ray does not let it go


# ---- the run -----------------------------------------------------------------


class Place:
    def __init__(self, rank, title, bundle, node):
        self.rank, self.title, self.bundle, self.node = rank, title, bundle, node
        self.actor = None
        self.turn = 0


class Run:
    def __init__(self, ray, ask):
        self.ray, self.ask = ray, ask
        self.tasks = set()
        self.deaf = set()  # nodes, whose network may be down
        self.group, bundles = reserve(ray, ask)
        self.bundles = bundles
        found = rank_places(ray, self.group, bundles)
        self.places = [Place(i, "%s %d" % (ask["places"][i]["name"], i), *found[i])
                       for i in range(len(found))]

    def announce(self):
        # Not by nodes that are dead, one of which may have had an address with another name.
        names = name_hosts([place.node for place in self.places] + nodes_of(self.ray))
        send(**{"is": "hosts", "hosts": [names[place.node["NodeManagerAddress"]]
                                         for place in self.places]})

    def make_actor(self, place):
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
        bundle = dict(self.bundles[place.bundle])
        options = {"num_cpus": bundle.pop("CPU"), "num_gpus": bundle.pop("GPU", 0),
                   "memory": bundle.pop("memory", None), "resources": bundle or None,
                   "max_concurrency": 4, "max_restarts": 0,
                   "scheduling_strategy": PlacementGroupSchedulingStrategy(
                       placement_group=self.group, placement_group_bundle_index=place.bundle)}
        for attempt in range(1, 1000):
            name = place.title if attempt == 1 else "%s (%d)" % (place.title, attempt)
            try:
                return self.ray.remote(Launcher).options(name=name, **options).remote()
            except ValueError:  # another run of the namespace has an actor of this name
                continue
        raise Refusal("io", "Ray has 1000 actors named %s" % place.title)

    def start(self, ask):
        place = self.places[ask["index"]]
        place.turn = ask["turn"]
        try:
            if not place.actor:
                place.actor = self.make_actor(place)
                task = asyncio.ensure_future(self.follow(place, place.actor))
                self.tasks.add(task)  # the loop itself holds tasks weakly
                task.add_done_callback(self.tasks.discard)
            place.actor.begin.remote(place.turn, ask["argv"], self.ask["folder"], ask["token"])
        except Exception as error:
            self.report(place, place.turn, ended="could not be started by Ray: %s" % one_line(error))

    async def follow(self, place, actor):
        """Reports the events of an actor until it is gone."""
        from ray.exceptions import ActorUnavailableError
        since = 0
        while place.actor is actor:
            try:
                events = await actor.next.remote(since)
            except ActorUnavailableError:
                if not raylet_died(self.ray, place.node):
                    await asyncio.sleep(0.5)
                    continue
                why = self.explain(place, [], "")
            except Exception as error:
                why = self.explain(place, await self.living(), " ".join(str(error).split()))
            else:
                since += len(events)
                for event in events:
                    self.report(place, **event)
                continue
            if place.actor is actor:
                place.actor = None
                self.report(place, place.turn, ended=why, clean=False)
            return

    async def living(self):
        """The nodes that are alive; none if the head does not say it at once."""
        ask = asyncio.get_running_loop().run_in_executor(None, nodes_of, self.ray)
        try:
            return await asyncio.wait_for(ask, HEAD_S)
        except Exception:
            return []

    def report(self, place, turn, says=None, ended=None, clean=False):
        about = {"index": place.rank, "turn": turn}
        if ended is None:
            send(**{"is": "says", "text": says}, **about)
        else:
            send(**{"is": "ended", "text": ended, "clean": clean}, **about)

    def explain(self, place, nodes, text):
        address = place.node["NodeManagerAddress"]
        alive = not nodes or any(node["NodeID"] == place.node["NodeID"] for node in nodes)
        if not alive or raylet_died(self.ray, place.node) or "node has died" in text or "its node was" in text:
            return "is gone: its node %s died" % address
        if "running low on memory" in text:
            return "is gone: Ray ended its launcher, because node %s ran out of memory" % address
        return "is gone: its launcher, an actor of Ray on node %s, died" % address

    async def stop(self, ask):
        place = self.places[ask["index"]]
        actor = place.actor
        if actor and not await self.stop_actor(place, actor):
            place.actor = None
            self.ray.kill(actor)
        send(**{"is": "stopped", "index": place.rank, "turn": ask["turn"]})

    async def stop_actor(self, place, actor):
        """False if nobody answers."""
        node = place.node["NodeID"]
        if node in self.deaf:
            return False
        stopped = asyncio.wrap_future(actor.stop.remote(place.turn).future())
        heard = asyncio.wrap_future(actor.hear.remote().future())
        for future in (stopped, heard):  # or they complain that nobody asks
            future.add_done_callback(lambda future: future.cancelled() or future.exception())
        done, _ = await asyncio.wait([heard], timeout=HEAR_S)
        if not done:
            self.deaf.add(node)
            return False
        done, _ = await asyncio.wait([stopped], timeout=ANSWER_S - HEAR_S)
        return bool(done) and not stopped.exception()

    def leave(self):
        from ray.util.placement_group import remove_placement_group
        for place in self.places:
            if place.actor:
                self.ray.kill(place.actor)
        remove_placement_group(self.group)


# ---- xray check --------------------------------------------------------------


def check(ask):
    from concurrent.futures import ThreadPoolExecutor
    ray = connect(ask)
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    bundles = bundles_of(ask)
    nodes = sorted(nodes_of(ray), key=address_order)
    problems = []
    why = "" if ask["autoscale"] else impossible(bundles, ask["placement"], nodes)
    if why:
        problems.append(why)
    plugins = {os.path.join(ask["plugins"], name): "" for name in sorted(os.listdir(ask["plugins"]))
               if name.endswith(".so")} if ask["plugins"] else {}
    for path in plugins:
        plugins[path] = hash_file(path)
    nodes = [node for node in nodes if any(room_of(node["Resources"], b) for b in bundles)]
    task = ray.remote(look)

    def ask_node(node):
        strategy = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
        ref = task.options(num_cpus=0, max_retries=0, scheduling_strategy=strategy).remote(
            ask["program"], ask["build"], plugins, ask["paths"])
        try:
            return ray.get(ref, timeout=LOOK_S)
        except Exception as error:
            return ["does not answer (%s)" % one_line(error)]

    with ThreadPoolExecutor(64) as pool:
        for node, lacks in zip(nodes, pool.map(ask_node, nodes)):
            problems.extend("node %s %s" % (node["NodeManagerAddress"], lack) for lack in lacks)
    if problems:
        raise Refusal("config", "; ".join(problems))
    send(**{"is": "done", "exit": 0})


# ---- xray submit -------------------------------------------------------------


def dashboard_of(ask):
    """The client of Ray's jobs, which are an interface of the cluster's dashboard."""
    try:
        from ray.job_submission import JobSubmissionClient
    except ImportError as error:
        import_ray()
        raise Refusal("unsupported", ": %s has a Ray without jobs (%s); `pip install "
                      "\"ray[default]\"` adds them" % (sys.executable, one_line(error)), "python")
    address = ask["address"]
    if address.startswith("ray://"):
        address_of(ask)
    elif not address.startswith("http") and address != "auto":
        probe(address)
    if address != "auto":  # Ray would prefer those of the environment
        for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
            os.environ.pop(name, None)
    try:
        return JobSubmissionClient(address)
    except Exception as error:
        raise Refusal("io", " = %s: the cluster's dashboard, which takes jobs, does not answer (%s); "
                      "it needs `pip install \"ray[default]\"` on the head, and is at "
                      "http://HEAD:8265 unless it was moved" % (ask["address"], one_line(error)),
                      "address")


def submit_job(ask, client, command, env):
    until = time.monotonic() + AGENT_S
    while True:
        try:
            return client.submit_job(entrypoint=command, runtime_env=env,
                                     metadata={"name": ask["title"]})
        except Exception as error:
            # The head may answer before the process that starts its jobs does.
            if "No available agent" not in str(error) or time.monotonic() > until:
                raise Refusal("io", " = %s: the cluster refused the job: %s"
                              % (ask["address"], one_line(error)), "address")
        time.sleep(1)


def submit(ask, inbox):
    import_ray()
    env = dict(runtime_env_of(ask) or {})
    # A run that is asked to stop ends its step and writes a checkpoint before it ends.
    env.setdefault("env_vars", {}).setdefault("RAY_JOB_STOP_WAIT_TIME_S", "600")
    client = dashboard_of(ask)
    command = "cd %s && exec %s" % (shlex.quote(ask["folder"]), shlex.join(ask["argv"]))
    job = submit_job(ask, client, command, env)

    def stop():
        send(**{"is": "log", "level": 2, "text":
                "job %s was asked to stop; it ends after its step" % job})
        client.stop_job(job)

    inbox.append(stop)
    send(**{"is": "log", "level": 3, "text": "job %s of Ray runs: %s" % (job, command)})

    async def follow():
        async for text in client.tail_job_logs(job):
            send(**{"is": "out", "text": text})

    try:
        asyncio.run(follow())
        info = client.get_job_info(job)
        while not info.status.is_terminal():
            time.sleep(0.2)
            info = client.get_job_info(job)
    except Exception as error:
        raise Refusal("io", "job %s: the cluster's dashboard is gone (%s); the job may still run"
                      % (job, one_line(error)))
    status = info.status.value
    if status == "FAILED" and info.driver_exit_code is None:
        raise Refusal("io", "job %s failed: %s" % (job, one_line(info.message or "")))
    code = info.driver_exit_code if info.driver_exit_code is not None else 0
    if status == "STOPPED":
        code = 130
    send(**{"is": "done", "exit": code if 0 <= code < 256 else 1})


# ---- the channel -------------------------------------------------------------


class Bridge:
    """Reads requests on a thread of its own, so that the end of the run is noticed in
    whatever Ray waits for."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.run = None
        self.inbox = []  # what asks a submitted job to stop
        self.lines = channel.makefile("r", encoding="utf-8")

    def serve(self):
        ask = json.loads(self.lines.readline())
        threading.Thread(target=self.read, daemon=True).start()
        if ask["do"] == "check":
            check(ask)
        elif ask["do"] == "submit":
            submit(ask, self.inbox)
        else:
            self.run = Run(connect(ask), ask)
            self.run.announce()  # requests come from now on
            self.loop.run_forever()

    def read(self):
        try:
            for line in self.lines:
                self.obey(json.loads(line))
        except OSError:  # the plugin's process is gone
            pass
        finally:
            self.leave()

    def obey(self, ask):
        if ask["do"] == "start":
            self.loop.call_soon_threadsafe(self.run.start, ask)
        elif ask["do"] == "stop":
            asyncio.run_coroutine_threadsafe(self.run.stop(ask), self.loop)
        else:
            for call in self.inbox:
                call()

    def leave(self):
        threading.Timer(LEAVE_S, os._exit, [0]).start()
        try:
            if self.run:
                self.run.leave()
            if "ray" in sys.modules:
                sys.modules["ray"].shutdown()
        finally:
            os._exit(0)


def main():
    status = 1
    try:
        Bridge().serve()
        status = 0
    except BrokenPipeError:
        pass
    except Refusal as refusal:
        send(**{"is": "failed", "status": refusal.status, "key": refusal.key, "text": refusal.text})
    except Exception as error:
        send(**{"is": "failed", "status": "io", "key": "", "text":
                "Ray failed: %s: %s" % (type(error).__name__, one_line(error))})
    sys.stderr.flush()
    os._exit(status)


main()
