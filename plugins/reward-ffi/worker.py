# SPDX-License-Identifier: Apache-2.0
#
# Calls the user's function for the plugin reward-ffi. Requests and answers are
# lines of JSON on descriptor 3, so what the function prints cannot get among
# them. Arguments: the file, the function's name and the form of its call.
import importlib.util
import inspect
import json
import math
import os
import sys
import traceback


def place_of(error, path):
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__)
             if f.filename == path]
    return " (%s, line %d)" % (os.path.basename(path), lines[-1]) if lines else ""


def reason_of(error, path):
    traceback.print_exception(type(error), error, error.__traceback__)
    text = ": %s" % error if str(error) else ""
    return type(error).__name__ + text + place_of(error, path)


def load_function(path, name):
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location("xray_reward", path)
    if spec is None:
        raise ImportError("%s is not a Python file: its name must end in .py" % path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["xray_reward"] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise AttributeError("%s has no function %s" % (path, name))
    return function


def truth_of(sample):
    model = sample["fields"].get("reward_model")
    if isinstance(model, dict) and "ground_truth" in model:
        return model["ground_truth"]
    return sample["ground_truth"]


def call_verl(function, samples):
    return [function(data_source=s["data_source"], solution_str=s["response"],
                     ground_truth=truth_of(s),
                     extra_info=s["fields"].get("extra_info", {}))
            for s in samples]


def call_batch(function, samples):
    return function(data_sources=[s["data_source"] for s in samples],
                    solution_strs=[s["response"] for s in samples],
                    ground_truths=[truth_of(s) for s in samples],
                    extra_infos=[s["fields"].get("extra_info", {}) for s in samples])


def call_trl(function, samples):
    rows = [s["fields"] for s in samples]
    columns = {key: [row.get(key) for row in rows]
               for row in rows for key in row if key not in ("prompt", "completion")}
    talks = [isinstance(row.get("prompt"), list) for row in rows]
    columns["prompts"] = [row["prompt"] if talk else s["prompt"]
                          for s, row, talk in zip(samples, rows, talks)]
    columns["completions"] = [
        [{"role": "assistant", "content": s["response"]}] if talk else s["response"]
        for s, talk in zip(samples, talks)]
    columns["completion_ids"] = [s["ids"] for s in samples]
    parameters = inspect.signature(function).parameters
    if all(p.kind != p.VAR_KEYWORD for p in parameters.values()):
        columns = {key: columns[key] for key in columns if key in parameters}
    return function(**columns)


CALLS = {"verl": call_verl, "trl": call_trl, "batch": call_batch}


def answer_of(value):
    answer = {}
    if isinstance(value, dict):
        for key, more in value.items():
            if isinstance(more, (bool, int, float)) and math.isfinite(more):
                answer[str(key)] = float(more)
        if "score" not in value:
            return {"error": "the function returned a dict without \"score\""}
        value = value["score"]
    try:
        answer["score"] = float(value)
    except (TypeError, ValueError, OverflowError):
        return {"error": "the function returned %.80r, expected a number" % (value,)}
    if not math.isfinite(answer["score"]):
        return {"error": "the function returned %s, expected a finite number" % value}
    return answer


def answers_of(function, call, samples):
    values = list(call(function, samples))
    if len(values) != len(samples):
        return {"error": "the function returned %d scores for %d samples"
                         % (len(values), len(samples))}
    return [answer_of(value) for value in values]


def main():
    path, name, form = sys.argv[1:4]
    path = os.path.abspath(path)
    os.set_inheritable(3, False)
    requests = os.fdopen(3, "r", encoding="utf-8", newline="\n")
    answers = os.fdopen(os.dup(3), "w", encoding="utf-8")

    def answer(value):
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    try:
        function = load_function(path, name)
    except BaseException as error:
        return answer({"error": reason_of(error, path)})
    answer({"ready": 1, "ids": int(form == "trl")})
    for line in requests:
        try:
            value = answers_of(function, CALLS[form], json.loads(line))
        except BaseException as error:
            value = {"error": reason_of(error, path)}
        answer(value)


main()
