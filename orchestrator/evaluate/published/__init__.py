"""The papers' wait rule for thousands of parameter sets at once, as published with sequential gradient coding.

The rule. Round t goes out to n workers; the fastest answers after kappa seconds. Workers that have not answered at the
cut, (1 + mu) kappa, are stragglers. The round closes there if these stragglers, after those of the rounds before, are
inside the straggler model that the scheme was designed for: then every job decodes in time, whatever the code. If they
are not, the round waits on: until the model admits those that are left (`wait_out = "until"`), or for all of them
("all").
Late answers do not count. Models: at most s in a round (`gc`); in every window of W rounds at most lambda distinct
stragglers, each within B consecutive rounds (bursty); in every window of W' rounds at most lambda, each in at most N
(arbitrary); for `sr-sgc` also what its repeats make up for.

Why it is quick. A load L shifts all delays of a round by the same slope (L - base), so the order of arrival is one for
all parameter sets, the stragglers at the cut are the last k of it, and k falls as the load rises: a larger kappa moves
the cut further out. The model, too, is monotone: what lambda admits, lambda + 1 admits. So parameter sets, sorted by
load and lambda, that have decided alike so far make an interval; whether all of it decides alike is asked of its two
ends; and one that does not is parted by bisection. A class costs one union of bit sets a round, its columns nothing.
A run's length is a constant of the class plus another times the column's load.

By hand, n = 3, one round, delays 1, 2 and 5 s, mu = 1, slope 6 s, base load 1/3. At load 1/3 the cut is at 2 s and
worker 2 is late. At load 2/3 the delays are 3, 4 and 7 s, the cut is at 6 s, and worker 2 is late by 1 s only. At load
1 they are 5, 6 and 9 s, the cut is at 10 s, and no worker is late: gc with s = 2 closes after 9 s, with all answers.

    unions.py     sliding unions of sets;  models.py: straggler models, which answer by their least lambda
    mu_rule.py    who is late at the cut, and how many of them a model lets go
    classes.py    sets of parameters that decided alike;  game.py: one round after the other for these
    ledger.py     what that makes for each parameter set
    one_round_mu.py   uncoded, gc, which have no memory;  multiplexed_mu.py: m-sgc;  repeat_mu.py: sr-sgc

Why all this equals the loop, step by step: docs/published-rule.md.

Source: Krishnan, Ebrahimi, Khisti 2023 (arXiv 2211.13802), sections 2 and 4, and its code. Read next: `mu_rule.py`.
"""
