/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes chat templates: the text up to the first NUL is compiled and rendered
 * with fixed messages, or with the JSON after the NUL: an array of messages, or
 * an object with "messages", "tools", "documents", "variables", "prompt" and
 * "continue". A text that begins with {" is tokenizer_config.json instead.
 */
#include "model/chat/chat.h"
#include "tests/fuzz/fuzz.h"

static const char preset[] =
    "[{\"role\":\"system\",\"content\":\"Be brief.\"},"
    "{\"role\":\"user\",\"content\":\"1 < 2?\"},"
    "{\"role\":\"assistant\",\"content\":\"<think>x</think>Yes\","
    "\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
    "\"arguments\":{\"a\":[1,2.5,null,true]}}}]},"
    "{\"role\":\"tool\",\"content\":\"\xC3\xA9\"}]";

static cJSON *parse(const char *text, size_t size)
{
    cJSON *json = NULL;
    xr_err err = { "" };
    if (xr_json_parse(text, size, "messages", &err, &json))
        fuzz_said(&err);
    return json;
}

static void render_messages(const xm_chat *chat, const cJSON *given)
{
    const cJSON *messages =
        cJSON_IsArray(given) ? given : xr_json_get(given, "messages");
    const cJSON *variables = xr_json_get(given, "variables");
    xr_err err = { "" };
    xm_chat_text out = { 0 };
    xm_chat_call call = {
        .messages = messages,
        .tools = xr_json_get(given, "tools"),
        .documents = xr_json_get(given, "documents"),
        .variables = cJSON_IsObject(variables) ? variables : NULL,
        .add_generation_prompt = !cJSON_IsFalse(xr_json_get(given, "prompt")),
        .continue_final_message = cJSON_IsTrue(xr_json_get(given, "continue")),
        .now = 1700000000
    };
    if (!cJSON_IsArray(messages))
        return;
    if (xm_chat_render(chat, &call, "row", &err, &out))
        fuzz_said(&err);
    else
        fuzz_saw("text", xr_str_text(&out.text), out.text.size);
    for (size_t i = 0; i < out.span_count; i++) {
        FUZZ_CHECK(out.spans[i].from <= out.spans[i].to &&
                   out.spans[i].to <= out.text.size);
        fuzz_saw_u64("from", out.spans[i].from);
        fuzz_saw_u64("to", out.spans[i].to);
    }
    fuzz_saw_u64("generation", (uint64_t)out.has_generation);
    xm_chat_text_free(&out);
}

static xray_status open_template(const fuzz_two *in, xr_err *err, xm_chat **out)
{
    const char *text = (const char *)in->first;
    if (in->first_size < 2 || memcmp(text, "{\"", 2) != 0)
        return xm_chat_compile(text, in->first_size, "template", err, out);
    (void)fuzz_write("tokenizer_config.json", text, in->first_size);
    return xm_chat_open(fuzz_dir(), NULL, err, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_two in = fuzz_split(data, size);
    xr_err err = { "" };
    xm_chat *chat = NULL;
    if (open_template(&in, &err, &chat)) {
        fuzz_said(&err);
        return 0;
    }
    if (!chat)
        return 0;
    cJSON *messages = in.second_size
                          ? parse((const char *)in.second, in.second_size)
                          : parse(preset, sizeof(preset) - 1);
    render_messages(chat, messages);
    cJSON_Delete(messages);
    xm_chat_close(chat);
    return 0;
}
