"""Steps along a run: their times, baselines, series, pace and totals. Pure."""
