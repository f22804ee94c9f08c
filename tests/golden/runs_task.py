#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes what the cases of golden.runs name: models in WORK/models, rows in WORK/rows.

    runs_task.py WORK MODELS-FILE FOLDER-OF-A-TEXT-MODEL
"""
import gzip
import json
import os
import shutil
import sys

WORK, MODELS, TEXT = sys.argv[1:]
IDS = '"bos_token_id":0,"eos_token_id":1,"initializer_range":0.08'
SIZES = ('"num_hidden_layers":2,"max_position_embeddings":64,"hidden_size":24,"intermediate_size":40,'
         '"num_attention_heads":4,"num_key_value_heads":2,"head_dim":6,"vocab_size":15')
WIDE = ('"num_hidden_layers":1,"max_position_embeddings":64,"hidden_size":20,"intermediate_size":18,'
        '"num_attention_heads":2,"num_key_value_heads":1,"head_dim":16,"vocab_size":15')
CHAT = ("{{ bos_token }}{% if tools %}[{{ tools | tojson }}]{% endif %}{% for m in messages %}{{ m.role[0] }}: "
        "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}"
        "{% else %}{{ m.content }}{% endif %}\n{% endfor %}"
        "{% if add_generation_prompt %}a:{% if loud %}!{% endif %}{% endif %}")


def model(name, config, tokenizer):
    folder = f"{WORK}/models/{name}"
    shutil.copytree(tokenizer, folder, ignore=shutil.ignore_patterns("*.safetensors", "generation_config.json"))
    os.chmod(folder, 0o755)
    os.remove(f"{folder}/config.json")
    with open(f"{folder}/config.json", "w") as file:
        file.write(config)
    return folder


def rows(name, lines):
    with open(f"{WORK}/rows/{name}", "w") as file:
        file.writelines((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)


def user(text):
    return [{"role": "user", "content": text}]


os.makedirs(f"{WORK}/rows")
with open(MODELS) as file:
    for line in file:
        name, _, config = line.strip().partition(" ")
        if name != "#":
            config = config.replace("SIZES", SIZES).replace("WIDE", WIDE)
            model(name, "{" + config + "," + IDS + "}", f"{WORK}/task/model")
shutil.copytree(TEXT, f"{WORK}/models/stories")
with open(f"{TEXT}/config.json") as file:
    text = json.load(file)
text.update(hidden_size=24, intermediate_size=40, head_dim=6, num_hidden_layers=2, initializer_range=0.3)
model("words", json.dumps(text), TEXT)
with open(model("chat", json.dumps(text), TEXT) + "/chat_template.jinja", "w") as file:
    file.write(CHAT)

with open(f"{WORK}/task/short.jsonl") as file:
    digits = [json.loads(line) for line in file][:24]
rows("digits.jsonl", digits)
rows("more.jsonl", digits[12:])
rows("few.jsonl", digits[:5])
rows("three.jsonl", digits[7:10])
rows("sources.jsonl", [dict(row, data_source=("odd", "even", "even")[i % 3]) for i, row in enumerate(digits)])
rows("levels.jsonl", [dict(row, level=i % 5, extra_info={"split": "test" if i % 4 else "train", "tag": f"t{i % 3}x"})
                      for i, row in enumerate(digits)])
rows("long.jsonl", [dict(row, question=row["question"][:4] * (1 + i % 3) + row["question"][4:])
                    for i, row in enumerate(digits)])
rows("numbers.jsonl", [dict(row, answer=int(row["answer"])) for row in digits])
rows("verl.jsonl", [{"prompt": user(row["question"]), "data_source": "sum", "ability": "math", "extra_info": {"index": i},
                     "reward_model": {"style": "rule", "ground_truth": row["answer"]}} for i, row in enumerate(digits)])
rows("solution.jsonl", [{"prompt": row["question"], "solution": row["answer"]} for row in digits])
rows("completion.jsonl", [{"prompt": row["question"], "completion": row["answer"]} for row in digits])
rows("array.json", [json.dumps(digits)])
rows("data.json", [json.dumps({"data": digits})])
rows("table.csv", ["question,answer,level",
                   *(f'"{row["question"]}",{row["answer"]},{i % 3}' for i, row in enumerate(digits))])
rows("table.tsv", ["question\tanswer", *(f'{row["question"]}\t{row["answer"]}' for row in digits)])
with gzip.GzipFile(f"{WORK}/rows/packed.jsonl.gz", "wb", mtime=0) as file:
    file.write("".join(json.dumps(row) + "\n" for row in digits).encode())
rows("broken.jsonl", [digits[0], '{"question": "1+1="', digits[1]])
rows("keyless.jsonl", [digits[0], {"question": "1+1="}])

answers = ("the", "was", "a")
talk = ["Once upon a time", "Tell me of a cat.", "Who was Lily?", "The dog ran", "One day", "A big red ball"]
rows("talk.jsonl", [{"prompt": user(text), "answer": answers[i % 3], "data_source": "talk"} for i, text in enumerate(talk)])
rows("texts.jsonl", [{"prompt": text, "answer": answers[i % 3]} for i, text in enumerate(talk)])
tool = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
said = [{"role": "assistant", "content": text} for text in ("She was happy.", "They went home.", "He saw a tree.")]
rows("messages.jsonl", [
    {"messages": [*[{"role": "system", "content": "Be kind."}][: i % 2], *user(text), said[0], *user("And then?"), said[1]],
     "answer": "the", **({"tools": tool} if i % 3 == 0 else {})} for i, text in enumerate(talk)])
rows("completions.jsonl", [{"prompt": user(text), "completion": [said[2]]} for text in talk])
rows("gsm8k.jsonl", [{"prompt": text, "answer": f"#### {i}"} for i, text in enumerate(talk)])
rows("math.jsonl", [{"prompt": text, "answer": ("\\frac{1}{2}", "x^2", "7")[i % 3]} for i, text in enumerate(talk)])
rows("choice.jsonl", [{"prompt": text, "answer": "ABCD"[i % 4]} for i, text in enumerate(talk)])
rows("qa.jsonl", [{"prompt": text, "answer": {"target": ["the was in", "a cat there"]}} for text in talk])
checks = (("punctuation:no_comma", {}), ("length_constraints:number_words", {"relation": "at least", "num_words": 3}),
          ("change_case:english_lowercase", {}))
rows("ifeval.jsonl", [
    {"prompt": text, "answer": "", "instruction_id_list": [checks[i % 3][0], "startend:quotation"], "kwargs": [checks[i % 3][1], {}]}
    for i, text in enumerate(talk)])
with open(f"{WORK}/rows/ds.json", "w") as file:
    json.dump({"train_batch_size": 8, "gradient_clipping": 0.5,
               "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.8, 0.9], "eps": 1e-6, "weight_decay": 0.1}},
               "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-3,
                                                            "warmup_num_steps": 2, "warmup_type": "linear"}},
               "zero_optimization": {"stage": 1}}, file)
with open(f"{WORK}/rows/ds-fp16.json", "w") as file:
    json.dump({"fp16": {"enabled": True}}, file)
with open(f"{WORK}/rows/loud.jinja", "w") as file:
    file.write("{% for m in messages %}{{ m.content | upper }} {{ strftime_now('%Y-%m-%d') }}{% endfor %}")
with open(f"{WORK}/rows/score.py", "w") as file:
    file.write('''def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": len(set(solution_str)) / 5, "length": len(solution_str), "truth": float(ground_truth)}


def trl(prompts, completions, question, **columns):
    return [len(text) / 10 + (text[:1] == line[:1]) for text, line in zip(completions, question)]


def sometimes(data_source, solution_str, ground_truth, extra_info=None):
    return 1 / (len(solution_str) - 4)
''')
