/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists the graders. A grader is one file that defines rule_grader_NAME and
 * one line here; its own keys go into rule_config and rule_options.
 */
#ifndef RULE_GRADERS_H
#define RULE_GRADERS_H

/* The name is the value of the key `grader`; the text is its line of help. */
#define RULE_GRADERS(X)                                                \
    X(exact, "the response equals the ground truth")                   \
    X(numeric, "a number in the response is close to the truth")       \
    X(regex, "what a pattern finds equals the ground truth")           \
    X(gsm8k, "verl's GSM8K scorer")                                    \
    X(math, "MATH: the last box, normalised as by its authors")        \
    X(math_minerva, "Minerva: the final answer, normalised its way")   \
    X(math_prm800k, "PRM800K: the last box, normalised and evaluated") \
    X(math_dapo, "DAPO: the line after \"Answer:\", or a strict box")  \
    X(math_slime, "slime's math_dapo, which drops end tokens")         \
    X(math_verify, "any box, formula or number of the same value")     \
    X(math_areal, "AReaL's: the truth is read like a response")        \
    X(choice, "the letter of a multiple-choice answer")                \
    X(gpqa, "the same, found as in slime")                             \
    X(qa, "exact match or F1 of SQuAD, best of several ground truths") \
    X(search_r1, "verl's Search-R1: qa on the last <answer>")          \
    X(format, "a form with tags or a box, as in open-r1 and TRL")      \
    X(tag_count, "a quarter per tag, as in open-r1")                   \
    X(reasoning_steps, "marks of reasoning steps, as in open-r1")      \
    X(length, "caps, linear shaping and L1's target length")           \
    X(overlong, "DAPO's soft overlong punishment")                     \
    X(length_group, "Kimi k1.5's length reward within a group")        \
    X(cosine, "cosine-scaled reward of right and wrong by length")     \
    X(repetition, "penalty for repeated n-grams")                      \
    X(language, "the share of words in a language's script")           \
    X(ifeval, "IFEval's verifiable instructions")

#endif
