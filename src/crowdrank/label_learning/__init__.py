"""Training targets and weights learned from a small expert set: what a crowd label is worth, and how much it counts.

`label_features.py` says what is known of every label; `gls_gradients.py` how a measure of the ranker moves with every
label; `objectives.py` which measure; `remap.py` and `boosted.py` learn the functions from label to target and weight.
"""
