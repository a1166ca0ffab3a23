#!/bin/sh
# Make the workbook's own environment from requirements.lock (hashes checked): setup.sh PYTHON VENV
# uv does it in seconds where it is installed, pip in about a minute elsewhere.
set -eu
python=$1 venv=$2

"$python" - <<'CHECK' || exit 2
import sys
if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit(f"Enginebook needs Python 3.11, 3.12 or 3.13; this is {sys.version.split()[0]}.\n"
             "  remedy: make study PYTHON=python3.12")
CHECK

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
    "$@" >"$log" 2>&1 || { cat "$log" >&2; echo "setup failed at: $*" >&2; exit 1; }
}

echo "setting up $venv (about a minute, once)"
# uv leaves an environment of another Python alone, venv mixes them: start anew then.
if [ -x "$venv/bin/python" ] && ! "$venv/bin/python" -c "
import sys, subprocess
want = subprocess.check_output([sys.argv[1], '-c', 'import sys; print(sys.version_info[:2])'], text=True)
sys.exit(want.strip() != str(sys.version_info[:2]))" "$python" 2>/dev/null; then
    rm -rf "$venv"
fi
"$python" -m venv "$venv"
if command -v uv >/dev/null 2>&1; then
    quietly uv pip install --python "$venv/bin/python" --require-hashes -r requirements.lock
else
    quietly "$venv/bin/python" -m pip install --require-hashes --no-deps -r requirements.lock
fi
quietly "$venv/bin/python" -m pip install --no-deps --no-build-isolation --no-index --editable .

# Outputs never land in git: the filter that .gitattributes names, for this checkout alone.
if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ]; then
    git config filter.nbstripout.clean "\"$PWD/$venv/bin/python\" -m nbstripout --keep-id" || :
    git config filter.nbstripout.smudge cat || :
fi
