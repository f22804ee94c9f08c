/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of graders. A grader is one file that defines rule_grader_NAME, and
 * one line here; keys of its own go into rule_config and rule_options.
 */
#ifndef RULE_GRADERS_H
#define RULE_GRADERS_H

/* NAME is the value of the key `grader`; the text is its line of help. */
#define RULE_GRADERS(X)                                                \
    X(exact, "the response is the ground truth")                       \
    X(numeric, "a number of the response is near it")                  \
    X(regex, "what a pattern finds is the ground truth")               \
    X(gsm8k, "verl's GSM8K scorer")                                    \
    X(math, "MATH: the last box, normalised as its authors do")        \
    X(math_minerva, "Minerva: the final answer, normalised as there")  \
    X(math_prm800k, "PRM800K: the last box, normalised and evaluated") \
    X(math_dapo, "DAPO: the line behind \"Answer:\", or a strict box") \
    X(math_slime, "slime's math_dapo, which drops end tokens")         \
    X(math_verify, "any box, formula or number of the same value")     \
    X(math_areal, "AReaL's: the truth is read as a response is")       \
    X(choice, "the letter of a multiple-choice answer")                \
    X(gpqa, "the same, as slime finds it")                             \
    X(qa, "exact match or F1 of SQuAD, best of several ground truths") \
    X(search_r1, "verl's Search-R1: qa on the last <answer>")          \
    X(format, "a form with tags or a box, as open-r1's and TRL's")     \
    X(tag_count, "a quarter for each tag, as open-r1")                 \
    X(reasoning_steps, "marks of steps, as open-r1")                   \
    X(length, "caps, linear shaping and L1's target length")           \
    X(overlong, "DAPO's soft overlong punishment")                     \
    X(length_group, "Kimi k1.5's length reward within a group")        \
    X(cosine, "cosine-scaled reward of right and wrong by length")     \
    X(repetition, "penalty for repeated n-grams")                      \
    X(language, "the share of words in a language's script")           \
    X(ifeval, "IFEval's verifiable instructions")

#endif
