"""What the benchmark's owners published for 30 queries, to hold the generator against.

Fresh tokens in millions of one engine, Qwen3 4B FP8, scale factor 0.1, as printed: two or
three digits. It computes each alias's documents once, nothing in common between rows, and
partner heading, partner and cue anew for every pair.
"""

from __future__ import annotations

FRESH_MILLIONS = {
    "IMDB-1": 1.76,
    "IMDB-2": 2.42,
    "IMDB-3": 2.56,
    "IMDB-4": 2.00,
    "IMDB-5": 1.93,
    "IMDB-6": 1.77,
    "IMDB-7": 1.80,
    "IMDB-8": 2.92,
    "IMDB-9": 5.34,
    "IMDB-10": 5.48,
    "BIO-1": 2.06,
    "BIO-2": 10.37,
    "BIO-3": 6.63,
    "FEV-1": 0.033,
    "FEV-2": 3.25,
    "FEV-3": 2.40,
    "FEV-4": 0.53,
    "FEV-5": 1.52,
    "FEV-6": 0.40,
    "FEV-7": 6.10,
    "FEV-8": 9.48,
    "FEV-9": 4.31,
    "FEV-10": 0.19,
    "LEP-1": 0.13,
    "LEP-2": 15.10,
    "LEP-3": 10.81,
    "LEP-4": 4.64,
    "LEP-5": 4.56,
    "AGENT-1": 17.39,
    "AGENT-2": 17.43,
}
# Regret in millions, by which the minimum follows: fresh minus regret. Newest definition.
REGRET_MILLIONS = {
    "IMDB-1": 0.02,
    "IMDB-2": 0.41,
    "IMDB-3": 0.36,
    "IMDB-4": 0.12,
    "IMDB-5": 0.08,
    "IMDB-6": 0.02,
    "IMDB-7": 0.02,
    "IMDB-8": 0.68,
    "IMDB-9": 2.91,
    "IMDB-10": 2.85,
    "BIO-1": 0.0,
    "BIO-2": 4.15,
    "BIO-3": 2.28,
    "FEV-1": 0.0,
    "FEV-2": 0.96,
    "FEV-3": 0.69,
    "FEV-4": 0.08,
    "FEV-5": 0.41,
    "FEV-6": 0.05,
    "FEV-7": 1.94,
    "FEV-8": 5.05,
    "FEV-9": 2.28,
    "FEV-10": 0.0,
    "LEP-1": 0.0,
    "LEP-2": 1.56,
    "LEP-3": 1.11,
    "LEP-4": 0.47,
    "LEP-5": 0.46,
    "AGENT-1": 11.89,
    "AGENT-2": 11.89,
}
