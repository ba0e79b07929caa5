"""Models and losses of many kinds, each trained in this process by the real worker and by a plain loop.

    here.py      one case: refused by the trial, or trained under several schemes and compared with `Reference`
    cases.py     models of our own, by kind
    libraries.py models of other libraries, where these are installed
    drawn.py     random small networks

Read next: `here.py`. `python -m scripts.exactness_table` writes the table in docs/exactness.md.
"""
