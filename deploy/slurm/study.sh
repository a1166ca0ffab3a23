#!/bin/sh
# A study whose stages are Slurm jobs of their own. Run it on a login node (in tmux, say): it only
# submits and waits. Outputs, checkout and cache lie on disks that all nodes share.
#
#   sh deploy/slurm/study.sh params/h200_8b.yaml gpu h200
set -eu
params=$1 partition=$2 feature=$3
exec enginebook run "$params" --executor slurm \
  --cluster "partition=$partition" --cluster "constraint=$feature" \
  --exclusive --output "${ENGINEBOOK_OUTPUTS:-$PWD/outputs}"
