# SPDX-License-Identifier: Apache-2.0
#
# The channel to the plugin, whose requests and answers are lines of JSON on
# descriptor 3, the connection to a cluster, and what its nodes have room for.
import ipaddress
import json
import os
import signal
import socket
import sys
import threading
import time

CHANNEL = 3
CONNECT_S = 5  # until an address that does not answer is given up
INIT_S = 60  # until a cluster that answers, but lets nobody in, is given up
STRATEGIES = {"pack": "PACK", "spread": "SPREAD", "strict_pack": "STRICT_PACK"}

channel = socket.socket(fileno=CHANNEL)
channel.set_inheritable(False)
sending = threading.Lock()


class Refusal(Exception):
    """Becomes the error of the call: a status, a sentence, and the option it is about."""

    def __init__(self, status, text, key=""):
        super().__init__(text)
        self.status, self.text, self.key = status, text, key


def send(**message):
    with sending:
        channel.sendall((json.dumps(message) + "\n").encode())


def one_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


# ---- the cluster -------------------------------------------------------------


def import_ray():
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
    try:
        import ray
    except ImportError as error:
        raise Refusal("unsupported", ": %s cannot import ray (%s); `pip install \"ray[default]\"` "
                      "there, or name the Python of the cluster" % (sys.executable, one_line(error)),
                      "python")
    return ray


def address_of(ask):
    """Returns the address for ray.init. That of a dashboard serves `xray submit`; its job is
    in the cluster then."""
    address = ask["address"]
    if address.startswith("ray://"):
        raise Refusal("config", " = %s: Ray Client has no placement groups; start the run on a node "
                      "of the cluster, or with `xray submit`" % address, "address")
    return "auto" if address.startswith(("http://", "https://")) else address


def probe(address):
    """Ray itself ends its caller after a minute where nobody answers."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except ValueError:
        raise Refusal("config", " = %s: expected auto, or HOST:PORT of the cluster's head" % address,
                      "address")
    except OSError as error:
        raise Refusal("io", " = %s: no Ray cluster answers there (%s)"
                      % (address, error.strerror or one_line(error)), "address")


def runtime_env_of(ask):
    text = ask["runtime_env"].strip()
    if not text:
        return None
    try:
        if not text.startswith("{"):
            with open(text) as file:
                text = file.read()
        env = json.loads(text)
    except (OSError, ValueError) as error:
        raise Refusal("config", ": expected an object of JSON, or the path of a file with one: %s"
                      % one_line(error), "runtime_env")
    if not isinstance(env, dict):
        raise Refusal("config", ": expected an object of JSON", "runtime_env")
    return env


def give_up():
    send(**{"is": "failed", "status": "io", "key": "address", "text":
            ": the Ray cluster answers, but did not let the run in within %d s" % INIT_S})
    os._exit(1)


def connect(ask):
    import logging
    env = runtime_env_of(ask)
    address = address_of(ask)
    if address != "auto":
        probe(address)
    ray = import_ray()
    timer = threading.Timer(INIT_S, give_up)
    timer.daemon = True
    timer.start()
    try:
        ray.init(address=address, namespace=ask["namespace"] or None, runtime_env=env,
                 logging_level=logging.ERROR, configure_logging=False, log_to_driver=False)
    except ConnectionError as error:
        text = "no Ray cluster runs on this host; `ray start --head` begins one" \
            if address == "auto" else "no Ray cluster answers there (%s)" % one_line(error)
        raise Refusal("io", " = %s: %s" % (ask["address"], text), "address")
    except Exception as error:
        if "ersion mismatch" in str(error):
            raise Refusal("unsupported", ": %s differs from the cluster: %s"
                          % (sys.executable, " ".join(str(error).split())), "python")
        raise Refusal("io", " = %s: the Ray cluster does not let the run in: %s"
                      % (ask["address"], one_line(error)), "address")
    finally:
        timer.cancel()
    # The plugin ends the bridge by the channel. A job of Ray that is asked to stop has
    # the signal sent to every process below it, and its run goes on for a step.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return ray


def nodes_of(ray):
    return [node for node in ray.nodes() if node["Alive"]]


def raylet_died(ray, node):
    """Whether a node is this host's and nothing of it runs, which no head need tell."""
    if node["NodeID"] != ray.get_runtime_context().get_node_id():
        return False
    try:
        with socket.socket(socket.AF_UNIX) as raylet:
            raylet.connect(node["RayletSocketName"])
        return False
    except OSError:
        return True


def address_order(node):
    try:
        address = ipaddress.ip_address(node["NodeManagerAddress"])
        return (address.version, int(address), "")
    except ValueError:
        return (9, 0, node["NodeManagerAddress"])


def name_hosts(nodes):
    """The names of hosts by address: that of the system, or the address where several
    hosts have the same one."""
    addresses = {}
    for node in nodes:
        addresses.setdefault(node["NodeManagerHostname"], set()).add(node["NodeManagerAddress"])
    names = {}
    for node in nodes:
        name, address = node["NodeManagerHostname"], node["NodeManagerAddress"]
        alone = len(addresses[name]) == 1 and len(name) < 64
        names[address] = name if alone else address.replace(":", "-")
    return names


# ---- places ------------------------------------------------------------------


def bundles_of(ask):
    """Returns the needs of each rank. All count the memory of the largest, so that any rank fits
    where another one does and ranks can be numbered by hosts."""
    extra = extra_of(ask)
    memory = max(place["memory"] for place in ask["places"])
    bundles = []
    for place in ask["places"]:
        bundle = {"CPU": place["threads"] or 1}
        if place["devices"]:
            bundle["GPU"] = place["devices"]
        if memory:
            bundle["memory"] = memory
        bundle.update(extra)
        bundles.append(bundle)
    return bundles


def extra_of(ask):
    extra = {}
    for item in ask["resources"]:
        name, _, amount = (part.strip() for part in item.rpartition(":"))
        try:
            extra[name] = float(amount)
        except ValueError:
            name = ""
        if not name or name in ("CPU", "GPU", "memory") or not 0 < extra[name] < 1e9:
            raise Refusal("config", ": %s: expected NAME:AMOUNT of a resource that is none of CPU, "
                          "GPU and memory" % item, "resources")
    return extra


def amount(name, value):
    if name != "memory":
        return "%g %s" % (value, name)
    if value < 2**30:
        return "%.0f MiB of memory" % (value / 2**20)
    return "%.1f GiB of memory" % (value / 2**30)


def amounts(bundle):
    return " + ".join(amount(name, bundle[name]) for name in bundle)


def places_text(bundles):
    """Such as "3 places with 1 CPU + 1 GPU and 1 place with 4 CPU"."""
    counts = {}
    for bundle in bundles:
        counts[amounts(bundle)] = counts.get(amounts(bundle), 0) + 1
    return " and ".join("%d place%s with %s" % (n, "" if n == 1 else "s", text)
                        for text, n in counts.items())


def kinds_of(bundles):
    return list({tuple(sorted(bundle.items())): bundle for bundle in bundles}.values())


def total_of(bundles):
    total = {}
    for bundle in bundles:
        for name, value in bundle.items():
            total[name] = total.get(name, 0) + value
    return total


def room_of(resources, bundle):
    return min(int((resources.get(name, 0) + 1e-6) // value) for name, value in bundle.items())


def impossible(bundles, strategy, nodes):
    """Says why nodes with nothing else on them have no room for the bundles, where that
    is certain; "" otherwise."""
    totals = [node["Resources"] for node in nodes]
    has = "the cluster has %d node%s with %s" % (
        len(nodes), "" if len(nodes) == 1 else "s",
        ", ".join(amount(name, sum(total.get(name, 0) for total in totals))
                  for name in total_of(bundles)))
    for bundle in bundles:
        if not any(room_of(total, bundle) for total in totals):
            return "no node has %s; %s" % (amounts(bundle), has)
    whole = total_of(bundles)
    if strategy == "strict_pack":
        if not any(room_of(total, whole) for total in totals):
            return "no node has %s, which strict_pack needs; %s" % (amounts(whole), has)
    for bundle in kinds_of(bundles):
        same = sum(1 for b in bundles if b == bundle)
        room = sum(room_of(total, bundle) for total in totals)
        if same > room:
            return "%s are needed, and there is room for %d; %s" % (
                places_text([bundle] * same), room, has)
    for name, value in whole.items():
        if value > sum(total.get(name, 0) for total in totals) + 1e-6:
            return "%s are needed; %s" % (amount(name, value), has)
    return ""


def missing(ray, bundles, ask):
    strategy = ask["placement"]
    why = "" if ask["autoscale"] else impossible(bundles, strategy, nodes_of(ray))
    if why:
        return "waiting for Ray: " + why
    free, total = ray.available_resources(), ray.cluster_resources()
    return "waiting for Ray: %s (%s); free are %s" % (places_text(bundles), strategy, ", ".join(
        "%s of %s" % (amount(name, free.get(name, 0)), amount(name, total.get(name, 0)))
        for name in total_of(bundles)))


def reserve(ray, ask):
    from ray.util.placement_group import placement_group
    bundles = bundles_of(ask)
    # A run that had its places knows that the cluster can give them, once what was
    # lost is back.
    sure = not ask["again"] and not ask["autoscale"]
    why = impossible(bundles, ask["placement"], nodes_of(ray)) if sure else ""
    if why:
        raise Refusal("config", "Ray cannot place the run: " + why)
    group = placement_group(bundles, strategy=STRATEGIES[ask["placement"]], name=ask["title"])
    due = time.monotonic() + 5
    while not group.wait(0.5):
        if time.monotonic() > due:
            send(**{"is": "log", "level": 2, "text": missing(ray, bundles, ask)})
            due = time.monotonic() + 30
    return group, bundles


def rank_places(ray, group, bundles):
    """For each rank the number of its bundle, and its node. Ranks that need the same are
    in the order of their hosts' addresses, so that a resumed run finds them again."""
    from ray.util.placement_group import placement_group_table
    where = placement_group_table(group)["bundles_to_node_id"]
    nodes = {node["NodeID"]: node for node in ray.nodes()}
    places = [None] * len(bundles)
    for shape in kinds_of(bundles):
        ranks = [i for i, bundle in enumerate(bundles) if bundle == shape]
        found = sorted(ranks, key=lambda i: (address_order(nodes[where[i]]), where[i], i))
        for rank, bundle in zip(ranks, found):
            places[rank] = (bundle, nodes[where[bundle]])
    return places
