#!/bin/sh
# A program in C++, say, whose profiler adds up scopes that lie within each other: 185 % in all.
step=0
while [ $step -lt 40 ]; do
    step=$((step + 1))
    sleep 0.15
    echo "step $step/40 | loss 3.$((99 - step)) | 150 ms"
    if [ $((step % 10)) -eq 0 ]; then
        echo "Timing breakdown - Forward: 1.28s (85.0%), Loss: 0.60s (40.0%), Backward: 0.75s (50.0%), Optimizer: 0.15s (10.0%)"
    fi
done
