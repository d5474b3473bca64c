"""What a framework adapter takes on itself, so that the boundary patches do not say it a second time."""

loss = False  # the framework logs the loss itself
counts = False  # the framework's adapter says when a fetched batch is used, and counts it then
aside = 0  # evaluations and the like that a framework told and that are open now: what they fetch makes no step
told = 0  # phases that a framework told and that are open now (generation, log_probs): forwards are part of them
ahead = 0  # batches that a framework may fetch before it uses the first of them
