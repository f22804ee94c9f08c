# SPDX-License-Identifier: Apache-2.0
"""read_events.py FOLDER METRICS: compares what TensorBoard reads from a folder of event
files with a metrics.jsonl; needs the package tensorboard."""
import json
import math
import struct
import sys

import numpy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import tensor_util

folder, metrics = sys.argv[1:]
reader = EventAccumulator(folder, size_guidance={"tensors": 0})
reader.Reload()
values = {}  # plugin -> tag -> step -> tensor
for tag in reader.Tags()["tensors"]:
    plugin = reader.SummaryMetadata(tag).plugin_data
    steps = values.setdefault(plugin.plugin_name, {}).setdefault(tag, {})
    for event in reader.Tensors(tag):
        assert event.step not in steps, f"{tag}: step {event.step} twice"
        steps[event.step] = event.tensor_proto
assert set(values) == {"scalars", "histograms", "text", "hparams"}, set(values)

figures = 0
for line in open(metrics, encoding="utf-8"):
    wanted = json.loads(line)
    step = wanted.pop("step")
    for name, want in wanted.items():
        tensor = values["scalars"][name].pop(step)
        exact = tensor.double_val[0]
        shown = tensor_util.make_ndarray(tensor)
        if want is None:
            assert not math.isfinite(exact), (step, name, exact)
        else:
            assert struct.pack("<d", exact) == struct.pack("<d", want), (step, name, exact, want)
        assert shown.shape == () and shown.dtype == numpy.float32
        assert numpy.isnan(exact) or shown == numpy.float32(exact), (step, name, shown)
        figures += 1
assert figures > 100
assert not any(values["scalars"].values()), "figures that metrics.jsonl does not have"

for name in ("response_length", "critic/score", "actor/ratio"):
    table = tensor_util.make_ndarray(values["histograms"][name][3])
    assert table.shape[1] == 3 and (table[:, 0] < table[:, 1]).all() and table[:, 2].sum() >= 32, name
text = tensor_util.make_ndarray(values["text"]["samples/train/0"][3]).item().decode()
assert text.startswith("score ") and "\n\nanswer:\n\n    " in text, text
content = reader.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
settings = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
assert settings["actor.optim.lr"].number_value == 1e-3
assert settings["reward.close.match_only"].bool_value is True
assert settings["reward.close.plugin"].string_value == "rule"
print(f"{figures} figures are the same")
