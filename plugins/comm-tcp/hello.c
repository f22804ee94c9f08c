/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes and checks the messages by which ranks prove who they are.
 */
#define _GNU_SOURCE
#include "plugins/comm-tcp/hello.h"

#include <string.h>
#include <sys/random.h>

#include "core/base/sha256.h"

#define HELLO_MAGIC 0x6f6c6c65486d6358u
#define HELLO_VERSION 1u

int tcp_random(uint8_t *out, uint32_t bytes)
{
    return getrandom(out, bytes, 0) == (ssize_t)bytes;
}

int tcp_hello_make(uint32_t from, uint32_t to, uint32_t line, tcp_hello *out)
{
    *out = (tcp_hello){ .magic = HELLO_MAGIC,
                        .version = HELLO_VERSION,
                        .from = from,
                        .to = to,
                        .line = line };
    return tcp_random(out->nonce, sizeof(out->nonce));
}

const char *tcp_hello_refuse(const tcp_hello *hello, uint32_t self,
                             uint32_t size)
{
    if (hello->magic != HELLO_MAGIC)
        return "its first bytes are no hello of a rank";
    if (hello->version != HELLO_VERSION)
        return "its hello is of another version";
    if (hello->to != self || hello->from <= self || hello->from >= size ||
        hello->line >= TCP_LINES)
        return "its hello is for another rank";
    return NULL;
}

/* The code of a word, the hello and the answer's nonce. */
static void compute_code(const uint8_t key[TCP_KEY], const char *word,
                         const tcp_hello *hello, const uint8_t *nonce,
                         uint8_t out[TCP_MAC])
{
    uint8_t text[16 + sizeof(*hello) + TCP_NONCE] = { 0 };
    memcpy(text, word, strlen(word));
    memcpy(text + 16, hello, sizeof(*hello));
    memcpy(text + 16 + sizeof(*hello), nonce, TCP_NONCE);
    xr_hmac_sha256(key, TCP_KEY, text, sizeof(text), out);
}

void tcp_answer_sign(const uint8_t key[TCP_KEY], const tcp_hello *hello,
                     tcp_answer *answer)
{
    compute_code(key, "listener", hello, answer->nonce, answer->mac);
}

int tcp_answer_is_true(const uint8_t key[TCP_KEY], const tcp_hello *hello,
                       const tcp_answer *answer)
{
    uint8_t code[TCP_MAC];
    compute_code(key, "listener", hello, answer->nonce, code);
    return xr_mac_is_equal(code, answer->mac);
}

void tcp_proof_make(const uint8_t key[TCP_KEY], const tcp_hello *hello,
                    const tcp_answer *answer, uint8_t out[TCP_MAC])
{
    compute_code(key, "connector", hello, answer->nonce, out);
}
