#!/usr/bin/env bash
# The container engine of the end-to-end tests.
#
#   engine.sh up         an engine that answers: the one that runs, else one
#                        that is started here (root on Debian or Ubuntu)
#   engine.sh down       stops the engine, if `up` started it, and its containers
#   engine.sh status     says what answers, and who started it
#   engine.sh env        prints the variables that the tests need, NAME=value
#   engine.sh with CMD   up, CMD with these variables, and down if this very
#                        call started the engine: what `make test` wants
set -euo pipefail

# Not of a user or a session: whoever runs the tests asks here who started the
# engine, and only root ever does.
state=/run/flusso-e2e
pidfile=$state/dockerd.pid
log=$state/dockerd.log
containerd=/var/run/docker/containerd/containerd.pid

say() { echo "engine.sh: $*" >&2; }
die() { say "$*"; exit 1; }

answers() { docker info >/dev/null 2>&1; }
address() { echo "${DOCKER_HOST:-$(docker context inspect -f '{{.Endpoints.docker.Host}}' 2>/dev/null || echo unix:///var/run/docker.sock)}"; }

# runs NAME PIDFILE: the file alone proves nothing, its pid may be another
# process's by now.
runs() { [[ -s $2 ]] && [[ $(cat "/proc/$(cat "$2")/comm" 2>/dev/null) == "$1" ]]; }
ours() { runs dockerd "$pidfile"; }

# Of containers there may be others in the engine's store than the tests'.
remove_containers() { docker ps -aq --filter label=org.testcontainers=true | xargs -r docker rm -f -v >/dev/null; }

install_engine() {
	[[ $(id -u) == 0 ]] || die "no container engine answers at $(address), and only root can start one: start Docker, or run this as root"
	[[ -z ${DOCKER_HOST:-} ]] || die "no container engine answers at DOCKER_HOST=$DOCKER_HOST: start it, or unset DOCKER_HOST"
	mkdir -p "$state"
	if command -v dockerd >/dev/null && command -v docker >/dev/null; then return; fi
	command -v apt-get >/dev/null || die "no container engine answers at $(address), and this is no Debian or Ubuntu, where one could be installed: install and start Docker"
	say "installing docker.io"
	apt-get update -qq >/dev/null || say "apt-get update failed, going on with the lists there are"
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker.io iptables >"$state/apt.log" 2>&1 ||
		die "docker.io could not be installed, see $state/apt.log: install and start Docker"
}

# try FLAGS: one attempt at starting dockerd; leaves none behind where it fails.
try() {
	say "starting dockerd $*"
	# setsid: a Ctrl-C meant for the tests must not reach the engine under them.
	setsid dockerd --pidfile="$pidfile" "$@" >"$log" 2>&1 </dev/null &
	local pid=$!
	for ((i = 0; i < 150; i++)); do
		if answers; then return 0; fi
		kill -0 "$pid" 2>/dev/null || return 1
		sleep 0.2
	done
	kill "$pid"
	wait "$pid" || true
	return 1
}

up() {
	if answers; then say "using the engine that runs at $(address)"; return; fi
	install_engine
	# Where systemd runs, the package has started its engine by itself.
	if answers; then say "using the engine that the package started"; return; fi
	# What a killed engine left: dockerd waits in vain for a containerd whose pid
	# is another process's now.
	ours || rm -f "$pidfile"
	runs containerd "$containerd" || rm -f "$containerd"
	# overlay2 needs a file system that can carry it, iptables a kernel that can
	# do NAT. Without NAT published ports still work, through docker-proxy, and
	# the tests need no more.
	# The best is tried twice: what a killed engine held may be free a moment later.
	for flags in "--storage-driver=overlay2" "--storage-driver=overlay2" "--storage-driver=overlay2 --iptables=false --ip6tables=false" \
		"--storage-driver=vfs" "--storage-driver=vfs --iptables=false --ip6tables=false"; do
		# shellcheck disable=SC2086 # several flags
		if try $flags; then
			say "dockerd answers"
			remove_containers
			return
		fi
		sleep 2
	done
	tail -n 5 "$log" >&2
	die "dockerd would not start, see $log: start Docker another way"
}

down() {
	if ! ours; then say "no engine of ours runs, nothing to stop"; return; fi
	local pid
	pid=$(cat "$pidfile")
	remove_containers
	kill "$pid"
	while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
	rm -f "$pidfile"
	say "stopped dockerd"
}

status() {
	answers || die "no container engine answers at $(address): run \"make test\", which starts one, or start Docker"
	if ours; then say "answers at $(address), started by engine.sh up"; else say "answers at $(address), not ours"; fi
}

env_() {
	answers || status
	# The reaper of testcontainers is an image from a public registry. An engine
	# of ours has none, nor has one that had to take its base from a debootstrap,
	# and there the tests' own cleanups must do.
	if ours || [[ -n $(docker images -q --filter label=flusso-e2e.base=debootstrap) ]]; then
		echo TESTCONTAINERS_RYUK_DISABLED=true
	fi
	# In a container testcontainers takes published ports to be at its gateway.
	# An engine of ours runs in the same container as the tests do.
	if ours && [[ -e /.dockerenv ]]; then echo TESTCONTAINERS_HOST_OVERRIDE=127.0.0.1; fi
}

with() {
	local started=no
	if ! answers; then started=yes; fi
	# Not a trap on EXIT before up: what up could not start needs no down.
	up
	if [[ $started == yes ]]; then trap down EXIT; fi
	local name
	while read -r name; do export "${name?}"; done < <(env_)
	"$@"
}

case ${1:-} in
up | down | status) "$1" ;;
env) env_ ;;
with) shift; with "$@" ;;
*) die "usage: engine.sh up|down|status|env|with CMD..." ;;
esac
