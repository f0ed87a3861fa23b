#!/usr/bin/env bash
# What one GPU can check in under eight minutes: the tests marked `cuda`, the training benchmark, and as many records of
# the gpu profile as fit into the time left. Needs Python 3.11 or later with torch and timm, no installation and no
# network. Each part has a time limit of its own and does not depend on the others.
#
#   OUT=gpu-records   folder for the records; what is there is kept and not run again
#   DEVICE=cuda       or cpu
#   PROFILE=gpu       or smoke, cpu
#   SEEDS=2           seeds per cell, fewer than the profile declares
#   LIMIT=440         seconds for everything; the last part may take 30 more
#   PARTS=...         some of: tests bench records
#   PYTHON=python3    the interpreter that has torch
#   WHEELS=           folder of wheels to use where Python packages are missing
#
# Exit code 0 where every part that could run succeeded, 1 where one failed, 2 where nothing could run.
set -euo pipefail

OUT=$(realpath -m -- "${OUT:-gpu-records}")
WHEELS=${WHEELS:+$(realpath -m -- "$WHEELS")}
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

DEVICE=${DEVICE:-cuda}
PROFILE=${PROFILE:-gpu}
SEEDS=${SEEDS:-2}
LIMIT=${LIMIT:-440}
PARTS=${PARTS:-tests bench records}
PYTHON=${PYTHON:-python3}

refuse() {
  echo "gpu_check: $1" >&2
  exit 2
}

[[ $LIMIT =~ ^[1-9][0-9]*$ ]] || refuse "LIMIT is '$LIMIT': give a whole number of seconds"
[[ $SEEDS =~ ^[1-9][0-9]*$ ]] || refuse "SEEDS is '$SEEDS': give a whole number of at least 1"
read -ra parts <<<"$PARTS"
for name in "${parts[@]}"; do
  [[ $name =~ ^(tests|bench|records)$ ]] || refuse "PARTS names '$name': use some of tests, bench, records"
done
[[ $DEVICE == cuda || $DEVICE == cpu ]] || refuse "DEVICE is '$DEVICE': use cuda or cpu"
command -v "$PYTHON" >/dev/null || refuse "PYTHON is '$PYTHON': no such program"

extra=$(mktemp -d)
trap 'rm -rf -- "$extra"' EXIT
export PYTHONPATH="$PWD/src:$extra${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

if [[ -n $WHEELS ]]; then
  "$PYTHON" -m pip install --quiet --no-index --no-deps --target "$extra" "$WHEELS"/*.whl ||
    refuse "WHEELS is '$WHEELS': pip cannot install the wheels there"
fi

probed=$("$PYTHON" -W ignore scripts/gpu_probe.py "$DEVICE" "$PROFILE" "${parts[@]}") ||
  refuse "$PYTHON cannot run the package"

# What was said of one part.
said() { sed -n "s/^$1://p" <<<"$probed" | head -n 1; }

reason=$(said records)
[[ -z $reason ]] || refuse "$reason. Where there is a network, \`pip download --no-deps --dest wheels\` the packages \
that are missing; copy the folder here and set WHEELS=wheels"
reason=$(said refused)
[[ -z $reason ]] || refuse "$reason"
said machine

summary=()
failed=0
running=
trap '[[ -z $running ]] || kill "$running"; exit 130' INT TERM

left_out() {
  echo "== $1: left out, $2"
  summary+=("$(printf '%-10s %-30s %6s' "$1" "left out" "0 s")")
}

# part NAME SECONDS COMMAND...
part() {
  local name=$1 limit=$2 started=$SECONDS state=ok code=0
  shift 2
  echo "== $name: at most $limit s"
  timeout --kill-after=10 "$limit" "$@" &
  running=$!
  wait "$running" || code=$?
  running=
  if ((code == 124 || code == 137)); then
    state="failed: stopped after $limit s"
  elif ((code)); then
    state="failed: exit code $code"
  fi
  ((code == 0)) || failed=1
  summary+=("$(printf '%-10s %-30s %6s' "$name" "$state" "$((SECONDS - started)) s")")
}

wanted() { [[ " ${parts[*]} " == *" $1 "* ]]; }

mapfile -t marked < <(grep -l 'pytest\.mark\.cuda' tests/test_*.py || true)
reason=$(said tests)
if ! wanted tests; then
  left_out tests "PARTS does not name it"
elif [[ -n $reason ]]; then
  left_out tests "$reason"
elif ((${#marked[@]} == 0)); then
  left_out tests "no test is marked cuda"
else
  part tests $((LIMIT / 3)) "$PYTHON" -m pytest -q -m cuda -p no:cacheprovider -rs \
    -o addopts= -o filterwarnings=default "${marked[@]}"
fi

reason=$(said bench)
if ! wanted bench; then
  left_out bench "PARTS does not name it"
elif [[ -n $reason ]]; then
  left_out bench "$reason"
else
  quick=()
  [[ $PROFILE != smoke ]] || quick=(--quick)
  part bench $((LIMIT / 4)) "$PYTHON" -c 'import sys; from heads_for_depth.cli import main; sys.exit(main())' \
    bench --only training --repeats 3 --results "$OUT" "${quick[@]}"
fi

left=$((LIMIT - SECONDS))
((left > 20)) || left=20
if ! wanted records; then
  left_out records "PARTS does not name it"
else
  # It ends by itself, well before it is stopped, when no further run is expected to fit.
  part records $((left + 30)) "$PYTHON" scripts/gpu_records.py --profile "$PROFILE" --device "$DEVICE" --seeds "$SEEDS" \
    --until $(($(date +%s) + left)) --out "$OUT"
fi

echo "== summary ($SECONDS s, records in $OUT)"
printf '%s\n' "${summary[@]}"
exit "$failed"
