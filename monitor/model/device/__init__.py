"""GPUs: what the device took over the steps, activity, throttle events. Pure."""
