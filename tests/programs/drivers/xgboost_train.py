"""XGBoost's `train`, as its guide shows: a training without steps of an optimizer."""

import numpy as np
import xgboost as xgb

drawn = np.random.default_rng(0)
data = xgb.DMatrix(drawn.normal(size=(20000, 20)), label=drawn.integers(0, 2, 20000))
xgb.train({"max_depth": 6, "objective": "binary:logistic"}, data, num_boost_round=100, evals=[(data, "train")])
