/* SPDX-License-Identifier: Apache-2.0
 *
 * How two ranks prove to each other that they belong to the same run before
 * anything else is read from a connection. Each rank has a random key that only
 * the ranks know, from the gather of the setup; it never goes over the network.
 *
 *     connector -> listener   hello: who it is, which line, a random number
 *     listener -> connector   answer: a random number, and the code of both
 *                             under the listener's key
 *     connector -> listener   proof: another code of both
 *
 * A code that was heard earlier is of no use, since both numbers are new.
 */
#ifndef TCP_HELLO_H
#define TCP_HELLO_H

#include <stdint.h>

#define TCP_KEY 32u
#define TCP_NONCE 32u
#define TCP_MAC 32u
#define TCP_CONTROL 0u /* the line of notes */
#define TCP_CALLS 1u   /* the line of calls and data */
#define TCP_LINES 2u

typedef struct tcp_hello {
    uint64_t magic;
    uint32_t version;
    uint32_t from; /* rank of the connector */
    uint32_t to;   /* rank of the listener */
    uint32_t line;
    uint8_t nonce[TCP_NONCE];
} tcp_hello;

typedef struct tcp_answer {
    uint8_t nonce[TCP_NONCE];
    uint8_t mac[TCP_MAC];
} tcp_answer;

_Static_assert(sizeof(tcp_hello) == 56 && sizeof(tcp_answer) == 64,
               "no padding");

/* Fills with random bytes. Returns 1 on success; otherwise errno is set. */
int tcp_random(uint8_t *out, uint32_t bytes);

int tcp_hello_make(uint32_t from, uint32_t to, uint32_t line, tcp_hello *out);
/* NULL if rank `self` of `size` ranks may answer the hello, otherwise why
 * not. */
const char *tcp_hello_refuse(const tcp_hello *hello, uint32_t self,
                             uint32_t size);
/* Fills the answer's code; its nonce is there. */
void tcp_answer_sign(const uint8_t key[TCP_KEY], const tcp_hello *hello,
                     tcp_answer *answer);
int tcp_answer_is_true(const uint8_t key[TCP_KEY], const tcp_hello *hello,
                       const tcp_answer *answer);
void tcp_proof_make(const uint8_t key[TCP_KEY], const tcp_hello *hello,
                    const tcp_answer *answer, uint8_t out[TCP_MAC]);

#endif
