/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes chat templates: the text up to the first NUL is compiled and rendered
 * with fixed messages or with the JSON array after the NUL.
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

static void render_messages(const xm_chat *chat, const cJSON *messages)
{
    xr_err err = { "" };
    xm_chat_text out = { 0 };
    xm_chat_call call = { .messages = messages,
                          .add_generation_prompt = 1,
                          .now = 1700000000 };
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_two in = fuzz_split(data, size);
    xr_err err = { "" };
    xm_chat *chat = NULL;
    if (xm_chat_compile((const char *)in.first, in.first_size, "template", &err,
                        &chat)) {
        fuzz_said(&err);
        return 0;
    }
    cJSON *messages = in.second_size
                          ? parse((const char *)in.second, in.second_size)
                          : parse(preset, sizeof(preset) - 1);
    if (cJSON_IsArray(messages))
        render_messages(chat, messages);
    cJSON_Delete(messages);
    xm_chat_close(chat);
    return 0;
}
