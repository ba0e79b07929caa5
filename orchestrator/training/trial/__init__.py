"""What a model is, as far as exactness goes, found by playing it on real rows before any worker is invoked.

    playing.py   one forward and backward, with all random numbers from one seed
    mixing.py    do rows interact, and in which layer?
    keeping.py   what does a pass leave behind: parameters, buffers, attributes, hidden state?
    outcome.py   what follows: exact and silent, one line of warning, or a refusal with advice
    clean.py     the same in a process that has nothing but what is shipped

Knows neither jobs nor stores. Read next: `outcome.py`.
"""
