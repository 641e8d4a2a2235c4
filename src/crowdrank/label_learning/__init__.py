"""Training targets and weights of labels, learned from a small set of expert grades (REMAP, MGBDT).

`label_features.py` computes features of every label, `objectives.py` measures of the ranking, and `expert_folds.py`
divides the expert-graded queries into folds. `gradient_ascent.py` learns functions from label features to targets and
weights: linear ones (`linear_remapper.py`) or boosted trees (`boosted_remapper.py`). `remapper.py` has the estimator.
"""
