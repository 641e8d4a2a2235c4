"""Training targets and weights of labels, learned from a small set of expert grades (REMAP, MGBDT).

`label_features.py` computes features of every label, `gls_gradients.py` the gradient of a ranking measure in every
label, and `objectives.py` the measures. `linear.py` and `boosted.py` have functions from label features to targets and
weights, which `gradient_ascent.py` learns; `remapper.py` has the estimator.
"""
