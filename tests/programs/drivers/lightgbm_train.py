"""LightGBM's `train`, as its guide shows."""

import lightgbm as lgb
import numpy as np

drawn = np.random.default_rng(0)
data = lgb.Dataset(drawn.normal(size=(20000, 20)), label=drawn.integers(0, 2, 20000))
parameters = {"objective": "binary", "verbose": -1}
lgb.train(parameters, data, num_boost_round=100, valid_sets=[data], callbacks=[lgb.log_evaluation(10)])
