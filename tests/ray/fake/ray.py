# SPDX-License-Identifier: Apache-2.0
#
# Takes the place of the package ray: a cluster of two nodes, which have room for all
# that is asked for in turn, whose tasks run in this process, and which runs a job by
# telling what it was given.
import sys
import types

SIZES = {"CPU": 4, "GPU": 1, "memory": 8 * 2**30}


class Task:
    def __init__(self, function):
        self.function = function

    def options(self, **unused):
        return self

    def remote(self, *args):
        return self.function(*args)


class Group:
    def __init__(self, bundles):
        self.bundles = bundles

    def wait(self, seconds):
        return True


class Status:
    value = "FAILED"

    def is_terminal(self):
        return True


class JobSubmissionClient:
    def __init__(self, address):
        self.address = address

    def submit_job(self, entrypoint, runtime_env, metadata):
        self.said = "%s %s %s" % (entrypoint, sorted(runtime_env["env_vars"].items()), metadata["name"])
        return "j1"

    async def tail_job_logs(self, job):
        yield self.said + "\n"

    def get_job_info(self, job):
        return types.SimpleNamespace(status=Status(), driver_exit_code=5, message="")


def module(name, **members):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)


module("ray.util.scheduling_strategies", NodeAffinitySchedulingStrategy=lambda **options: options)
module("ray.util.placement_group", placement_group=lambda bundles, **options: Group(bundles),
       placement_group_table=lambda group: {"bundles_to_node_id": {
           i: "n%d" % (2 - i % 2) for i in range(len(group.bundles))}},
       remove_placement_group=lambda group: None)
module("ray.job_submission", JobSubmissionClient=JobSubmissionClient)
remote = Task


def init(namespace, **unused):
    if namespace == "nowhere":
        raise ConnectionError("nobody answers")
    if namespace == "shut":
        raise RuntimeError("this host is no node.\nMore of it")


def shutdown():
    pass


def get(value, timeout):
    return value


def nodes():
    return [{"Alive": True, "NodeID": "n%d" % (3 - i), "NodeManagerAddress": "10.0.0.%d" % i,
             "NodeManagerHostname": "h%d" % i, "Resources": SIZES} for i in (2, 1)]
