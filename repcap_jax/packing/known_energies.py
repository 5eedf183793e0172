"""Published values to compare with: least energies of the Thomson problem, and spherical codes."""

from __future__ import annotations

# Wales and Ulker 2006 (Phys. Rev. B 74, 212101) and the tables that grew from it; putative minima but for N = 2 to 6
# and 12, which are proven. Each was reached from random starts; `tests/packing/test_energy.py` does so up to 32.
_PUBLISHED = """
2 0.5
3 1.732050808
4 3.674234614
5 6.474691495
6 9.985281374
7 14.452977414
8 19.675287861
9 25.759986531
10 32.716949460
11 40.596450510
12 49.165253058
13 58.853230612
14 69.306363297
15 80.670244114
16 92.911655302
17 106.050404829
18 120.084467447
19 135.089467557
20 150.881568334
21 167.641622399
22 185.287536149
23 203.930190663
24 223.347074052
25 243.812760299
26 265.133326317
27 287.302615033
28 310.491542358
29 334.634439920
30 359.603945904
31 385.530838063
32 412.261274651
33 440.204057448
34 468.904853281
35 498.569872491
36 529.122408375
37 560.618887731
38 593.038503566
39 626.389009017
40 660.675278835
41 695.916744342
42 732.078107544
43 769.190846459
44 807.174263085
45 846.188401061
46 886.167113639
47 927.059270680
48 968.713455344
49 1011.557182654
50 1055.182314726
"""

_ENERGIES = {int(count): float(energy) for count, energy in map(str.split, _PUBLISHED.strip().splitlines())}


def published_thomson_energy(k: int) -> float | None:
    """The least published Thomson energy of k points; `None` beyond the table, which goes from 2 to 50.

    Args:
      k: number of points.
    Source: Wales and Ulker 2006, Phys. Rev. B 74, 212101; the values are to 9 decimals.
    """
    return _ENERGIES.get(k)


# Cohn's tables of spherical codes: largest cosine of the best k points known on the unit sphere of R^d, by (d, k).
_CODES = {
    (3, 7): 0.2101383,
    (3, 8): 0.2612039,
    (3, 9): 1 / 3,
    (3, 10): 0.4043943,
    (5, 16): 0.2,
    (6, 27): 0.25,
    (7, 56): 1 / 3,
    (8, 240): 0.5,
    (21, 162): 1 / 7,
    (22, 100): 1 / 11,
    (22, 275): 1 / 6,
    (23, 552): 0.2,
    (23, 4600): 1 / 3,
}


def published_code(k: int, d: int) -> float | None:
    """The largest cosine of the best spherical code known of k points in R^d; `None` beyond this short table.

    Args:
      k: number of points.
      d: dimension.
    Source: Cohn, "Table of spherical codes"; those of R^5 and up are sharp and proven to be best.
    """
    return _CODES.get((d, k))
