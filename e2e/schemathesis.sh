#!/usr/bin/env bash
# Installs schemathesis, pinned, into a virtual environment of its own, unless it
# is there, and prints the path of the program.
set -euo pipefail

version=4.32.5
home=${XDG_CACHE_HOME:-$HOME/.cache}/flusso-kafka/schemathesis-$version
if [[ ! -x $home/bin/schemathesis ]]; then
	python3 -m venv --clear "$home" >&2
	"$home/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$version" >&2
fi
echo "$home/bin/schemathesis"
