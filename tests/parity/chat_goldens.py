#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the goldens of chat templates for ctest: templates and conversations made
here, as transformers renders and tokenizes them.

    chat_goldens.py tests/text/goldens       write chat.json and chat.jsonl there

Needs transformers and the tokenizers of that folder. chat.json has the templates
and the conversations; a row of chat.jsonl is one of each with the result: a text with
the assistant's spans in characters, or an error; ids and the assistant's mask if a
tokenizer is named.
"""
import datetime
import json
import os
import sys

sys.path = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))]
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
from transformers import PreTrainedTokenizerFast  # noqa: E402
from transformers.utils import chat_template_utils as utils  # noqa: E402


class Then(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 12, 0, 0)


utils.datetime = Then

TEMPLATES = {
    # One line per message, with markers, and the BOS token once.
    "plain": """{{ bos_token }}{% for message in messages %}
<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}""",

    # A default system text, users and assistants in turn, whitespace trimmed on
    # both sides, loop counters.
    "turns": """{%- if messages[0].role == 'system' -%}
    {%- set system = messages[0].content | trim -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set system = 'You help.' -%}
    {%- set rest = messages -%}
{%- endif -%}
{{- '[SYS]' ~ system ~ '[/SYS]' -}}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('Roles must alternate: ' ~ loop.index ~ ' of ' ~ loop.length) -}}
    {%- endif -%}
    {%- if message.role == 'user' -%}
        {{- '\\n[Q' ~ loop.index ~ '] ' ~ message.content.strip() ~ (' [/Q]' if not loop.last else ' [/Q!]') -}}
    {%- elif message.role == 'assistant' -%}
        {{- '\\n[A' ~ loop.revindex0 ~ '] ' ~ message.content | trim ~ eos_token -}}
    {%- else -%}
        {{- raise_exception('Who is ' + message.role + '?') -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '\\n[A] ' -}}{%- endif -%}""",

    # Tools as JSON, calls with arguments in both forms, answers grouped.
    "tools": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n" ~ (tools | map(attribute='function') | map(attribute='name') | join(', ')) ~ '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>assistant' }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for call in message.tool_calls %}
            {%- if call.function is defined %}{%- set call = call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}{{- call.name }}{{- '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}
            {%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or loop.previtem.role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- message.content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != "tool" %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}""",

    # Thoughts are kept only after the last question; a search from the end with a
    # namespace, text split by methods, a switch of the caller.
    "thoughts": """{%- set ns = namespace(last=messages|length - 1, open=true, count=0) %}
{%- for message in messages[::-1] %}
    {%- set at = messages|length - 1 - loop.index0 %}
    {%- if ns.open and message.role == 'user' and not (message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.open = false %}
        {%- set ns.last = at %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- set ns.count = ns.count + 1 %}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {{- 'A' ~ ns.count ~ ': <think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- 'A' ~ ns.count ~ ': ' + content }}
        {%- endif %}
        {{- eos_token + '\\n' }}
    {%- else %}
        {{- message.role[0] | upper + ': ' + content + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'A' ~ (ns.count + 1) ~ ':' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- ' <think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
{{- '(' ~ ns.last ~ ')' }}""",

    # Contents that are lists of parts, by a macro; documents; a date.
    "parts": """{#- what a content says -#}
{%- macro said(content, sep='') -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content is iterable -%}
        {%- for part in content if part.type != 'audio' -%}
            {%- if not loop.first -%}{{- sep -}}{%- endif -%}
            {%- if part.type == 'image' -%}<image{{ loop.index }}>
            {%- elif 'text' in part -%}{{- part['text'] | trim -}}
            {%- else -%}{{- raise_exception('a part of type ' ~ part.type ~ ' has no text') -}}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{- raise_exception('Invalid content type') -}}
    {%- endif -%}
{%- endmacro -%}
{{- strftime_now('%d %b %Y') if date_string is not defined else date_string }}
{% if documents %}
{% for d in documents %}
[{{ loop.index }}/{{ loop.length }}] {{ d.title|default('untitled', true) }}: {{ d.text | replace('\\n', ' ') }}
{% endfor %}
{% endif %}
{% for m in messages %}
{{ m.role | title }} says "{{ said(m.content, sep=' + ') }}"
{% endfor %}
{% if add_generation_prompt %}
Assistant says "{% endif %}""",

    # The assistant's words marked: with its end token, through if and for.
    "marked": """{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- generation %}
        {{- message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '<call>' ~ call.function.name ~ '</call>' }}
        {%- endfor %}
        {{- '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}""",

    # The same without the end token and with the surrounding blanks.
    "marked_bare": """{{ bos_token }}
{% for m in messages %}
{{ m.role }}:{% if m.role == 'assistant' %}{% generation %} {{ m.content }}{% endgeneration %}
{% else %} {{ m.content }}{% endif %}{{ eos_token if m.role == 'assistant' }}
{% endfor %}
{% if add_generation_prompt %}assistant:{% endif %}""",

    # Whitespace control of every kind.
    "blanks": """  {% for m in messages %}
  <{{ m.role }}>
    {%+ if m.content %}
      {{ m.content }}
    {%+ endif %}
  {#- a remark -#}
  {{- '|' -}}
   {% raw %}{{ not }} {% if %}{% endraw %}

    {%- set x = 1 +%}
  </{{ m.role }}>

  {% endfor -%}

  {% if add_generation_prompt %}  >{% endif +%}
  end
""",

    # Filters and tests on tools and messages.
    "filters": """{%- set users = messages | selectattr('role', 'equalto', 'user') | list %}
{%- set others = messages | rejectattr('role', 'in', ['user']) | map(attribute='role') | unique | list %}
{{- users | length }}/{{ messages | length }} {{ others | sort | join('+') }} {{ others | tojson }}
{%- for m in messages %}
  {{- '\\n' ~ loop.cycle('-', '*') ~ ' ' ~ (m.content if m.content is string else m.content | tojson) | replace('\\n', '/') | indent(2) }}
{%- endfor %}
{%- if tools is not none %}
  {%- for tool in tools %}
    {%- set f = tool.function %}
    {{- '\\n' ~ f.name | upper ~ ': ' ~ f.description | capitalize }}
    {%- for name, p in f.parameters.properties | dictsort %}
      {{- '\\n  ' ~ name ~ ' ' ~ p.type | default('any') ~ (' required' if name in f.parameters.required else '') }}
      {%- if p.enum is defined %}{{- ' of ' ~ p.enum | map('string') | join('|') }}{%- endif %}
    {%- endfor %}
  {%- endfor %}
  {{- '\\n' ~ tools[0] | tojson(indent=2) }}
{%- endif %}
{%- if not add_generation_prompt %}{{- '\\n' ~ (messages | last).items() | map('first') | list }}{%- endif %}""",
}

WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "the weather at a PLACE", "parameters": {
        "type": "object", "properties": {"place": {"type": "string"}, "days": {"enum": [1, 2.5, True, None]}}, "required": ["place"]}}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "é 時 <&> \"'", "parameters": {"type": "object", "properties": {}, "required": []}}}


def user(text):
    return {"role": "user", "content": text}


def bot(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


CALLS = [{"type": "function", "function": {"name": "weather", "arguments": {"place": "Köln", "days": 2}}},
         {"function": {"name": "clock", "arguments": "{\"a\": 1}"}}]
CONTEXTS = {
    "one": {"messages": [user("the quick fox")]},
    "system": {"messages": [system(" Be brief.\n"), user("Hi?"), bot("Hello world.")]},
    "turns": {"messages": [user("1 + 1?"), bot("2"), user(" and 3.14 * 2?\n"), bot("It's 6.28")]},
    "unicode": {"messages": [system("é 你好"), user("  naïve\tcafé 🙂\n\n"), bot("Привет 世界 ½ "), user("e\u0301'")]},
    "empty": {"messages": [system(""), user(""), bot("")]},
    "tools": {"messages": [system("Use tools."), user("weather?")], "tools": [WEATHER, CLOCK]},
    "calls": {"messages": [user("weather in Köln?"), bot("", tool_calls=CALLS), {"role": "tool", "content": "12 °C"},
                           {"role": "tool", "content": "{\"h\": 9}"}, bot("It is 12 °C.")], "tools": [WEATHER]},
    "thinks": {"messages": [user("a"), bot("<think>\nfirst\n</think>\n\nb"), user("c"), bot("<think>x</think>d")]},
    "reasons": {"messages": [user("a"), bot("b", reasoning_content="because"), user("<r>no question</r>"), bot("d", reasoning_content="so")]},
    "no_thoughts": {"messages": [user("a")], "enable_thinking": False},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": " see "}, {"type": "image"}, {"type": "audio"}]},
                           bot([{"type": "text", "text": "a fox"}])], "date_string": "today"},
    "documents": {"messages": [user("sum up")], "documents": [{"title": "T", "text": "one\ntwo"}, {"title": "", "text": "3"}]},
    "bad_part": {"messages": [{"role": "user", "content": [{"type": "video"}]}]},
    "no_content": {"messages": [user("a"), {"role": "assistant", "content": None, "tool_calls": CALLS[:1]}]},
    "two_users": {"messages": [user("a"), user("b")]},
    "stranger": {"messages": [user("a"), {"role": "oracle", "content": "b"}]},
}
TOKENS = {"qwen2": ("<s>", "</s>"), "llama3": ("<|begin_of_text|>", "<|eot_id|>"), "mistral_first": ("<s>", "</s>"), "stories": ("<s>", "</s>")}


def render(template, context, prompt, **more):
    try:
        texts, spans = utils.render_jinja_template(
            [context["messages"]], tools=context.get("tools"), documents=context.get("documents"), chat_template=template,
            return_assistant_tokens_mask=not more and "endgeneration" in template, add_generation_prompt=prompt, bos_token="<s>",
            eos_token="</s>", **{k: v for k, v in context.items() if k not in ("messages", "tools", "documents")}, **more)
    except Exception as error:  # texts of raise_exception are compared; of others only the failure
        return {"message": str(error) if type(error).__name__ == "TemplateError" else ""}
    out = {"text": texts[0]}
    if "endgeneration" in template:
        out["spans"] = [list(s) for s in spans[0]] if not more else None
    return out


def token_row(folder, kind, template, context, prompt):
    tok = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, kind, "tokenizer.json"), bos_token=TOKENS[kind][0], eos_token=TOKENS[kind][1])
    tok.chat_template = TEMPLATES[template]
    more = {k: v for k, v in CONTEXTS[context].items() if k not in ("messages", "tools", "documents")}
    out = tok.apply_chat_template(CONTEXTS[context]["messages"], tools=CONTEXTS[context].get("tools"), tokenize=True, return_dict=True,
                                  return_assistant_tokens_mask="endgeneration" in TEMPLATES[template], add_generation_prompt=prompt, **more)
    row = {"template": template, "context": context, "prompt": prompt, "tokenizer": kind, "bos": TOKENS[kind][0], "eos": TOKENS[kind][1], "ids": out["input_ids"]}
    if "assistant_masks" in out:
        row["mask"] = out["assistant_masks"]
    return row


def rows(folder):
    for t, template in TEMPLATES.items():
        for c, context in CONTEXTS.items():
            for prompt in (False, True):
                if prompt != (len(t + c) % 2 == 0) and c not in ("one", "turns", "calls"):
                    continue
                yield {"template": t, "context": c, "prompt": prompt, **render(template, context, prompt)}
    for t in ("plain", "turns", "tools", "thoughts", "marked", "blanks"):
        for c in ("system", "turns", "calls", "thinks", "empty"):
            out = render(TEMPLATES[t], CONTEXTS[c], False, continue_final_message=True)
            out.pop("spans", None)
            yield {"template": t, "context": c, "prompt": False, "continue": True, **({"message": ""} if "message" in out else out)}
    for kind in TOKENS:
        for t, c in (("marked", "turns"), ("marked", "unicode"), ("marked", "empty"), ("marked", "calls"), ("marked_bare", "turns"), ("marked_bare", "unicode"),
                     ("marked_bare", "system"), ("plain", "unicode"), ("tools", "calls")):
            row = token_row(folder, kind, t, c, (len(t + c) + len(kind)) % 2 == 0)
            # If a span begins with a blank that post-processing removed from the
            # offsets, transformers finds no token and marks none; X-ray marks them.
            if any(row.get("mask", [1])) or c == "empty":
                yield row


def main():
    folder = sys.argv[1]
    with open(os.path.join(folder, "chat.json"), "w", encoding="utf-8") as out:
        json.dump({"templates": TEMPLATES, "contexts": CONTEXTS}, out, ensure_ascii=False, indent=1)
        out.write("\n")
    with open(os.path.join(folder, "chat.jsonl"), "w", encoding="utf-8") as out:
        for row in rows(folder):
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
