#!/usr/bin/env bash
# Throughput of every full-size shape on one GPU, in under eight minutes: bf16 and float32, eager and then compiled, as
# far as the time goes. Every series that is measured is recorded at once; the same command goes on where this one ended.
# Needs Python 3.11 or later with torch and timm (and transformers for the two models of text), no installation and no
# network.
#
#   OUT=gpu-records   folder for the records; what is there is kept and not measured again
#   DEVICE=cuda       or cpu
#   PROFILE=gpu       or smoke, cpu: batch sizes and durations
#   LIMIT=440         seconds for everything
#   PYTHON=python3    the interpreter that has torch
#
# Exit code 0 where everything was measured, 1 where time ran out or a part failed, 2 where nothing can run.
set -euo pipefail

OUT=$(realpath -m -- "${OUT:-gpu-records}")
PYTHON=${PYTHON:-python3}
[[ $PYTHON != */* ]] || PYTHON=$(realpath -m -s -- "$PYTHON")
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

DEVICE=${DEVICE:-cuda}
PROFILE=${PROFILE:-gpu}
LIMIT=${LIMIT:-440}

refuse() {
  echo "gpu_throughput: $1" >&2
  exit 2
}

[[ $LIMIT =~ ^[1-9][0-9]*$ ]] || refuse "LIMIT is '$LIMIT': give a whole number of seconds"
[[ $DEVICE == cuda || $DEVICE == cpu ]] || refuse "DEVICE is '$DEVICE': use cuda or cpu"
command -v "$PYTHON" >/dev/null || refuse "PYTHON is '$PYTHON': no such program"
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1

precisions=(bf16 fp32)
[[ $DEVICE == cuda ]] || precisions=(fp32)
modes=(eager compiled)
[[ $PROFILE != smoke ]] || modes=(eager)

failed=0
for mode in "${modes[@]}"; do
  for precision in "${precisions[@]}"; do
    left=$((LIMIT - SECONDS))
    if ((left <= 0)); then
      echo "== $precision, $mode: left out, $LIMIT s are over"
      failed=1
      continue
    fi
    echo "== $precision, $mode: at most $left s"
    code=0
    timeout --signal=INT --kill-after=10 "$left" "$PYTHON" -W ignore -c \
      'import sys; from heads_for_depth.cli.main import main; sys.exit(main())' throughput \
      --profile "$PROFILE" --device "$DEVICE" --precision "$precision" --mode "$mode" --results "$OUT" || code=$?
    ((code != 2)) || refuse "$precision, $mode cannot be measured here (see above)"
    ((code == 0)) || failed=1
  done
done
echo "== records in $OUT ($SECONDS s)"
exit "$failed"
