#!/bin/sh
# A program in another language, whose loss does not move.
step=0
while [ $step -lt 60 ]; do
    step=$((step + 1))
    sleep 0.1
    echo "iter $step/60 | loss: 2.302585 | lr: 0.001 | 100 ms"
done
