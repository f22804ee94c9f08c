# SPDX-License-Identifier: Apache-2.0
#
# The reward of verl for GSM8K, as a function of one's own: 1 if the last number
# after "####" is the ground truth, else 0.
import re


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    answers = re.findall(r"#### (-?[0-9.,]+)", solution_str[-300:])
    if not answers:
        return {"score": 0.0, "answered": 0}
    right = answers[-1].replace(",", "").replace("$", "") == ground_truth
    return {"score": float(right), "answered": 1}
