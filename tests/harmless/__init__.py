"""Programs of many kinds, each run bare and under trainmon: their results and what they need must be the same."""
