#!/usr/bin/env bash
# Installs what the tests need and this machine lacks: by apt, as root, on
# Debian or Ubuntu. Elsewhere it says what to install. What is there is left
# alone. The container engine and its images look after themselves: see
# containers/engine.sh and containers/images.sh.
set -euo pipefail

missing=()
say() { echo "setup.sh: $*" >&2; }

# need PACKAGES REASON TEST...: PACKAGES are wanted where TEST fails.
need() {
	local packages=$1 reason=$2
	shift 2
	if "$@" >/dev/null 2>&1; then return; fi
	say "missing: $packages ($reason)"
	missing+=("$packages")
}

has() { command -v "$1"; }
has_chromium() { has chromium || has chromium-browser || has google-chrome; }
has_venv() { python3 -c 'import ensurepip, venv'; }
has_postgres() { has initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb'; }

has go >/dev/null || { say "Go is missing: install it from https://go.dev/dl"; exit 1; }
need make "what you call, .ci/run too" has make
need "gcc libc6-dev" "the race detector" has "${CC:-gcc}"
need "python3 python3-venv" "the readers of the formats in Python" has_venv
need python3-venv "schemathesis, for the gateway of feeds" python3 -c 'import ensurepip, venv'
need postgresql "examples/postgres" has_postgres
need "chromium fonts-inter" "the page of serve in a browser" has_chromium
need kcat "a lane as other programs read it" has kcat
need prometheus "promtool, for the rules in deploy" has promtool

if [[ ${#missing[@]} == 0 ]]; then exit; fi
if [[ $(id -u) != 0 ]] || ! has apt-get >/dev/null; then
	say "install them, or run this as root on Debian or Ubuntu"
	exit 1
fi
apt-get update -qq >/dev/null || say "apt-get update failed, going on with the lists there are"
# shellcheck disable=SC2086,SC2068 # several packages in one
if ! log=$(DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ${missing[@]} 2>&1); then
	echo "$log" >&2
	say "could not install ${missing[*]}: install them another way"
	exit 1
fi
say "installed ${missing[*]}"
