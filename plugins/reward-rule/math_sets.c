/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares sets of the real line and relations of one variable by which
 * numbers they contain: at their ends and beside them, between them, on a
 * grid, and on both sides of every point at which one of them changes.
 */
#include <math.h>

#include "plugins/reward-rule/math_equal.h"

#define ENDS 40     /* end points of the sets that are kept */
#define POINTS 512  /* numbers at which the sets are compared */
#define GRID 25     /* points of the grid on each side of 0 */
#define HALVINGS 60 /* steps of the search for a change */

typedef struct line {
    rule_tree *tree;
    uint16_t node[2];
    int ends;
    int points;
    double end[ENDS];
    double point[POINTS];
} line;

static double get_tolerance(double x)
{
    return 1e-9 * (fabs(x) > 1 ? fabs(x) : 1);
}

static int is_inequality(const rule_tree *tree, const rule_node *n)
{
    if (n->kind != RULE_CHAIN)
        return 0;
    for (uint16_t link = tree->node[n->first].next; link;
         link = tree->node[link].next)
        if (tree->node[link].op != RULE_EQ && tree->node[link].op != RULE_NEAR)
            return 1;
    return 0;
}

int rule_is_relation(const rule_tree *tree, uint16_t node)
{
    const rule_node *n = &tree->node[node];
    if (n->kind != RULE_LIST || !n->first)
        return is_inequality(tree, n);
    for (uint16_t child = n->first; child; child = tree->node[child].next)
        if (!rule_is_relation(tree, child))
            return 0;
    return 1;
}

static int is_interval_node(const rule_node *n)
{
    return n->kind == RULE_TUPLE && n->count == 2 && n->op != '<';
}

static int is_set_node(rule_tree *tree, uint16_t node)
{
    const rule_node *n = &tree->node[node];
    tree->steps++;
    if (is_interval_node(n) || n->kind == RULE_SET ||
        rule_is_real_line(tree, n) || is_inequality(tree, n))
        return 1;
    int joined = n->kind == RULE_LIST || n->kind == RULE_UNION ||
                 n->kind == RULE_INTERSECTION || n->kind == RULE_WITHOUT;
    if (!joined || !n->first)
        return 0;
    for (uint16_t child = n->first; child; child = tree->node[child].next)
        if (!is_set_node(tree, child))
            return 0;
    return 1;
}

int rule_is_plain_set(rule_tree *tree, uint16_t node)
{
    const rule_node *n = &tree->node[node];
    if (n->kind == RULE_LIST)
        return n->first && rule_is_plain_set(tree, n->first);
    return n->kind == RULE_UNION || n->kind == RULE_INTERSECTION ||
           n->kind == RULE_WITHOUT || is_inequality(tree, n) ||
           rule_is_real_line(tree, n);
}

int rule_is_set(rule_tree *tree, uint16_t node)
{
    if (!is_set_node(tree, node) ||
        (rule_contents(tree, node) & (RULE_HAS_OPAQUE | RULE_HAS_MATRIX)))
        return 0;
    uint64_t names = rule_find_names(tree, node);
    for (uint16_t i = 0; i < tree->names; i++)
        if (tree->name[i] == rule_hash_name(rule_text_of("\\mathbb{R}")))
            names &= ~((uint64_t)1 << i);
    return !(names & (names - 1));
}

static int evaluate_real(rule_tree *tree, uint16_t node, double x, double *out)
{
    double complex z = 0;
    rule_point point = rule_point_of(0, 1, 1);
    point.bound = 1;
    point.value = x;
    if (!rule_evaluate(tree, node, &point, &z) ||
        fabs(cimag(z)) > get_tolerance(creal(z)))
        return 0;
    *out = creal(z);
    return 1;
}

static int contains_number(rule_tree *tree, uint16_t node, double x);

static int compare_related(int op, double a, double b)
{
    double eps = get_tolerance(fabs(a) > fabs(b) ? a : b);
    int same = fabs(a - b) <= eps;
    switch (op) {
    case RULE_LT:
        return !same && a < b;
    case RULE_GT:
        return !same && a > b;
    case RULE_LE:
        return same || a < b;
    case RULE_GE:
        return same || a > b;
    case RULE_NE:
        return !same;
    default:
        return same;
    }
}

static int chain_contains(rule_tree *tree, const rule_node *n, double x)
{
    double left = 0;
    double right = 0;
    int known = evaluate_real(tree, n->first, x, &left);
    for (uint16_t link = tree->node[n->first].next; link;
         link = tree->node[link].next) {
        if (tree->node[link].op == RULE_IN) {
            if (!contains_number(tree, tree->node[link].first, x))
                return 0;
            continue;
        }
        int next = evaluate_real(tree, link, x, &right);
        if (!known || !next ||
            !compare_related(tree->node[link].op, left, right))
            return 0;
        left = right;
    }
    return 1;
}

static int interval_contains(rule_tree *tree, const rule_node *n, double x)
{
    double low = 0;
    double high = 0;
    if (!evaluate_real(tree, n->first, x, &low) ||
        !evaluate_real(tree, tree->node[n->first].next, x, &high))
        return 0;
    return compare_related(n->op == '[' ? RULE_LE : RULE_LT, low, x) &&
           compare_related(n->close == ']' ? RULE_LE : RULE_LT, x, high);
}

static int union_contains(rule_tree *tree, const rule_node *n, double x,
                          int all)
{
    for (uint16_t child = n->first; child; child = tree->node[child].next)
        if (contains_number(tree, child, x) != all)
            return !all;
    return all;
}

static int set_contains(rule_tree *tree, const rule_node *n, double x)
{
    double value = 0;
    for (uint16_t child = n->first; child; child = tree->node[child].next)
        if (evaluate_real(tree, child, x, &value) &&
            compare_related(RULE_EQ, value, x))
            return 1;
    return 0;
}

static int contains_number(rule_tree *tree, uint16_t node, double x)
{
    const rule_node *n = &tree->node[node];
    if (tree->steps++ > RULE_STEPS)
        return 0;
    switch (n->kind) {
    case RULE_TUPLE:
        return interval_contains(tree, n, x);
    case RULE_SET:
        return set_contains(tree, n, x);
    case RULE_UNION:
        return union_contains(tree, n, x, 0);
    case RULE_INTERSECTION:
        return union_contains(tree, n, x, 1);
    case RULE_WITHOUT:
        return contains_number(tree, n->first, x) &&
               !contains_number(tree, tree->node[n->first].next, x);
    case RULE_LIST:
        return union_contains(tree, n, x, n->op == 'a');
    case RULE_CHAIN:
        return chain_contains(tree, n, x);
    default:
        return rule_is_real_line(tree, n);
    }
}

static void add_point(line *l, double x)
{
    if (l->points == POINTS || fabs(x) > 1e100)
        return;
    int at = l->points++;
    for (; at > 0 && l->point[at - 1] > x; at--)
        l->point[at] = l->point[at - 1];
    l->point[at] = x;
}

/* Collects the numbers in an answer, because a set can change at these. */
static void add_end_points(line *l, uint16_t node)
{
    rule_tree *tree = l->tree;
    double value = 0;
    if (l->ends + 2 > ENDS || tree->steps++ > RULE_STEPS)
        return;
    if (!(rule_contents(tree, node) & RULE_HAS_NAME) &&
        evaluate_real(tree, node, 0, &value) && fabs(value) < 1e100) {
        l->end[l->ends++] = value;
        l->end[l->ends++] = -value;
        return;
    }
    for (uint16_t child = tree->node[node].first; child;
         child = tree->node[child].next)
        add_end_points(l, child);
}

static void add_sample_points(line *l)
{
    for (int i = -GRID; i <= GRID; i++)
        add_point(l, 0.37 * i + 0.011 * i * i * i);
    for (int i = 0; i < l->ends; i++) {
        double x = l->end[i];
        double step = 1e-6 * (fabs(x) > 1 ? fabs(x) : 1);
        add_point(l, x);
        add_point(l, x - step);
        add_point(l, x + step);
    }
    int count = l->points;
    double middle[POINTS];
    for (int i = 0; i + 1 < count; i++)
        middle[i] = l->point[i] + (l->point[i + 1] - l->point[i]) / 2;
    for (int i = 0; i + 1 < count; i++)
        add_point(l, middle[i]);
}

static int agree_at_point(const line *l, double x)
{
    return contains_number(l->tree, l->node[0], x) ==
           contains_number(l->tree, l->node[1], x);
}

/* Finds, by bisection, where the set `node` changes between two points, and
 * compares the sets on both sides of the change. */
static int agree_at_change(const line *l, uint16_t node, double low,
                           double high)
{
    int at_low = contains_number(l->tree, node, low);
    for (int i = 0; i < HALVINGS; i++) {
        double middle = low + (high - low) / 2;
        if (contains_number(l->tree, node, middle) == at_low)
            low = middle;
        else
            high = middle;
    }
    double step = 1e-7 * (fabs(low) > 1 ? fabs(low) : 1);
    return agree_at_point(l, low - step) && agree_at_point(l, high + step);
}

int rule_equal_sets(rule_tree *tree, uint16_t a, uint16_t b)
{
    line l = { .tree = tree, .node = { a, b } };
    add_end_points(&l, a);
    add_end_points(&l, b);
    add_sample_points(&l);
    for (int i = 0; i < l.points; i++)
        if (!agree_at_point(&l, l.point[i]))
            return 0;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i + 1 < l.points; i++) {
            int changes = contains_number(tree, l.node[k], l.point[i]) !=
                          contains_number(tree, l.node[k], l.point[i + 1]);
            if (changes &&
                !agree_at_change(&l, l.node[k], l.point[i], l.point[i + 1]))
                return 0;
        }
    return tree->steps <= RULE_STEPS;
}
