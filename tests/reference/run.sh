#!/usr/bin/env bash
# Compares Trefoil with the compressed-tensors package, at the version of the padded layout and at two of the dense one.
#   tests/reference/run.sh BUILD_FOLDER [CHECKPOINT...]
# BUILD_FOLDER holds the built trefoil_reference_data; further checkpoints (an output of quantize) are compared as well.
# Everything it installs and writes lies under build/reference (about 2 GB; 0.6 GB are downloaded, most of it torch).
# TREFOIL_REFERENCE_PYTHON names a Python that already has torch >= 2.10, transformers, safetensors, pydantic, loguru and
# psutil; then only the three compressed-tensors wheels (0.8 MB) are downloaded.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tests/reference
data=$(realpath "${1:?usage: run.sh BUILD_FOLDER [CHECKPOINT...]}")/tests/reference/trefoil_reference_data
shift
versions=(0.17.1 0.18.0 0.20.1)
work=build/reference
mkdir -p "$work"
started=$SECONDS

not_run() {
  echo "reference: NOT RUN: $1" >&2
  exit 1
}

# The Python everything runs with.
python=${TREFOIL_REFERENCE_PYTHON:-}
if [ -z "$python" ]; then
  python=$work/venv/bin/python
  stamp=$work/venv/installed-$(sha256sum $here/requirements.txt $here/torch_without_cuda.py | sha256sum | cut -c1-16)
  if [ ! -e "$stamp" ]; then
    rm -rf "$work/venv"
    /usr/bin/env python3 -m venv "$work/venv" || not_run "cannot make a virtual environment (Debian: apt install python3-venv)"
    "$python" -m pip install --quiet --no-deps -r $here/requirements.txt || not_run "pip could not install $here/requirements.txt"
    site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    "$python" $here/torch_without_cuda.py "$site/torch/lib" "$site"/nvidia/*/lib || not_run "no stand-ins for the CUDA libraries"
    touch "$stamp"
  fi
fi
"$python" -c 'import torch, transformers, safetensors' || not_run "$python cannot import torch, transformers and safetensors"
for version in "${versions[@]}"; do
  folder=$work/compressed-tensors-$version
  [ -e "$folder" ] && continue
  rm -rf "$folder.partial"
  "$python" -m pip install --quiet --no-deps --target "$folder.partial" "compressed-tensors==$version" ||
    not_run "pip could not install compressed-tensors $version"
  mv "$folder.partial" "$folder"
done
installed=$((SECONDS - started))

# What Trefoil says.
arguments=("$work/tables.safetensors")
"$data" tables "$work/tables.safetensors"
add() {
  "$data" decode "$1" "$work/$(basename "$1").decoded.safetensors"
  arguments+=("$1" "$work/$(basename "$1").decoded.safetensors")
}
for form in "3 padded" "3 dense" "4 dense" "2 dense" "8 dense"; do
  folder=$work/rtn-w${form/ /-}
  rm -rf "$folder"
  # shellcheck disable=SC2086  # two arguments
  "$data" make models/tiny-k3 "$folder" $form
  add "$folder"
done
add models/tiny-k3
for checkpoint in "$@"; do add "${checkpoint%/}"; done

# What the package says.
failed=0
for version in "${versions[@]}"; do
  PYTHONPATH=$work/compressed-tensors-$version TORCH_LOGS=-all TRANSFORMERS_VERBOSITY=error \
    "$python" $here/compressed_tensors_reference.py "${arguments[@]}" 2>"$work/stderr-$version" |
    tee "$work/result-$version" || { failed=$((failed + 1)); cat "$work/stderr-$version" >&2; }
done
equal=$(cat "$work"/result-* | grep -c '^  ok ' || true)
differ=$(cat "$work"/result-* | grep -c '^  FAIL ' || true)
echo "reference: ${#versions[@]} versions of compressed-tensors, $equal comparisons equal, $differ differ, $failed versions failed" \
  "(install ${installed} s, all $((SECONDS - started)) s)"
[ "$failed" -eq 0 ]
