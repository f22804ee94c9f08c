/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the chat template of a model and renders the conversations of input
 * lines.
 */
#include "core/cli/chat.h"

#include <stdlib.h>

#include "core/base/str.h"
#include "core/data/data.h"

void cli_chat_open(const char *dir, const xr_data_section *data, cli_chat *out)
{
    const char *file = data ? data->chat_template : "";
    const char *date = data ? data->chat_date : XR_CHAT_DATE;
    const char *kwargs = data ? data->chat_template_kwargs : "";
    *out = (cli_chat){ .system = xr_strdup(data ? data->system_prompt : "") };
    if (xr_data_now(date, &out->why, &out->now) != XRAY_OK ||
        xr_data_kwargs(kwargs, &out->why, &out->kwargs) != XRAY_OK)
        return;
    if (*file)
        (void)xm_chat_open_file(file, dir, &out->why, &out->chat);
    else
        (void)xm_chat_open(dir, NULL, &out->why, &out->chat);
}

void cli_chat_close(cli_chat *chat)
{
    xm_chat_close(chat->chat);
    cJSON_Delete(chat->kwargs);
    free(chat->system);
    *chat = (cli_chat){ .chat = NULL };
}

xray_status cli_chat_render(const cli_chat *chat, const cJSON *object,
                            const char *where, int generate, xr_err *err,
                            xm_chat_text *out)
{
    const cJSON *messages = xr_json_get(object, "messages");
    const cJSON *variables = xr_json_get(object, "chat_template_kwargs");
    if (!chat->chat)
        return xr_fail(err, XRAY_E_CONFIG, "%s: %s", where,
                       chat->why.text[0] ? chat->why.text
                                         : "the model has no chat template");
    if (!cJSON_IsArray(messages))
        return xr_fail(err, XRAY_E_ARG, "%s: \"messages\" must be a list",
                       where);
    if (!messages->child)
        return xr_fail(err, XRAY_E_ARG, "%s: \"messages\" is an empty list",
                       where);
    if (variables && !cJSON_IsObject(variables))
        return xr_fail(err, XRAY_E_ARG,
                       "%s: \"chat_template_kwargs\" must be an object", where);
    xray_status status = xr_json_bool_or(object, "add_generation_prompt",
                                         generate, where, err, &generate);
    if (status != XRAY_OK)
        return status;
    cJSON *list =
        chat->system ? xr_data_messages(chat->system, messages) : NULL;
    if (!list)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    xm_chat_call call = { .messages = list,
                          .tools = xr_json_get(object, "tools"),
                          .documents = xr_json_get(object, "documents"),
                          .variables = variables ? variables : chat->kwargs,
                          .add_generation_prompt = generate,
                          .now = chat->now };
    status = xm_chat_render(chat->chat, &call, where, err, out);
    cJSON_Delete(list);
    return status;
}
