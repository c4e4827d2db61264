#!/usr/bin/env bash
# The images of the end-to-end tests: builds what is missing, and prints the
# name of the image to run as its only line on stdout.
#
#   images.sh kafka VERSION
#   images.sh postgres
#   images.sh all            builds whatever the tests use, before they start
#
# FLUSSO_E2E_KAFKA_IMAGE ({version} in it is replaced) and
# FLUSSO_E2E_POSTGRES_IMAGE name an image to use instead.
#
# Kafka's image is always built here, from the jars of Maven Central: that gives
# the very version asked for, on every machine, in the layout of
# confluentinc/confluent-local, which the kafka module of testcontainers wants.
# What is under it depends: Debian's image where a registry answers, else a
# debootstrap from the mirror that apt uses.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state=${TMPDIR:-/tmp}/flusso-e2e-$(id -u)
mkdir -p "$state"

packages=default-jre-headless,postgresql,procps
public_base=debian:bookworm-slim
public_postgres=postgres:17

say() { echo "images.sh: $*" >&2; }
die() { say "$*"; exit 1; }

# hash: of what comes in; macOS has only the second.
hash() { { sha256sum 2>/dev/null || shasum -a 256; } | cut -c1-12; }
# recipe DIR: the hash of all that makes the image of DIR what it is.
recipe() { (cd "$here" && echo "$packages $public_base" && find "$1" -type f | LC_ALL=C sort | xargs cat images.sh) | hash; }
# logged NAME CMD...: the output is for when it fails.
logged() {
	local log=$state/$1.log
	shift
	"$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2; die "failed: $*"; }
}
present() { docker image inspect "$1" >/dev/null 2>&1; }

# A registry that cannot be reached may take minutes to say so.
registry_answers() {
	if [[ -z ${registry:-} ]]; then
		registry=no
		local limit=()
		if command -v timeout >/dev/null; then limit=(timeout 20); fi
		if ${limit[@]+"${limit[@]}"} docker pull -q hello-world >/dev/null 2>&1; then registry=yes; fi
		say "a public image registry answers: $registry"
	fi
	[[ $registry == yes ]]
}

can_install() { [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; }

# apt_install COMMAND PACKAGE: where the command is missing.
apt_install() {
	if command -v "$1" >/dev/null; then return; fi
	can_install || die "$1 is missing: install it"
	say "installing $2"
	apt-get update -qq >/dev/null || true
	DEBIAN_FRONTEND=noninteractive logged apt apt-get install -y -qq --no-install-recommends "$2"
}

# base: makes the image that holds a JRE and PostgreSQL, shared by all that are
# built here, and leaves its name in $tag_of_base. It prints nothing: in a
# $(base), set -e would not hold.
base() {
	local tag
	tag=flusso-e2e-base:$({ echo "$packages $public_base" && declare -f base debootstrap_base; } | hash)
	if ! present "$tag"; then
		if registry_answers; then
			say "building $tag from $public_base"
			printf 'FROM %s\nLABEL flusso-e2e.base=registry\nRUN apt-get update && apt-get install -y --no-install-recommends %s && rm -rf /var/lib/apt/lists/*\n' "$public_base" "${packages//,/ }" |
				logged build docker build -t "$tag" -
		else
			debootstrap_base "$tag"
		fi
	fi
	tag_of_base=$tag
}

debootstrap_base() {
	can_install ||
		die "no image registry answers, and only root on Debian or Ubuntu can do without: pull $public_base, or set FLUSSO_E2E_KAFKA_IMAGE and FLUSSO_E2E_POSTGRES_IMAGE"
	apt_install debootstrap debootstrap
	local suite mirror root
	# shellcheck disable=SC1091 # of the machine
	suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
	# The mirror of this machine's own sources: the one known to be reachable.
	# shellcheck disable=SC2016 # apt's variable
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $suite" 'Component: main' | head -n 1)
	[[ -n $mirror ]] || die "apt's sources name no mirror for $suite"
	root=$(mktemp -d)
	chmod 755 "$root" # it becomes the image's /, which not only root must enter
	say "building $1 by a debootstrap of $suite (about a minute)"
	logged debootstrap debootstrap --variant=minbase --include="$packages" "$suite" "$root" "$mirror"
	rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale} "$root"/var/lib/postgresql/*
	tar -C "$root" -c . | docker import --change 'LABEL flusso-e2e.base=debootstrap' --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8' - "$1" >/dev/null
	rm -rf "$root"
}

# jars VERSION DIR: Kafka, its tools and all they need.
jars() {
	# Kafka 3 logs by reload4j, which it brings; Kafka 4 by log4j 2, whose
	# binding it leaves to us.
	local exclude=none
	[[ $1 != 3.* ]] || exclude=log4j-slf4j-impl,log4j-api,log4j-core
	local goal=(-q -B "-Dkafka.version=$1" dependency:copy-dependencies -DincludeScope=runtime "-DexcludeArtifactIds=$exclude")
	if ! command -v mvn >/dev/null && registry_answers; then
		logged maven docker run --rm -v "$here/kafka/pom.xml:/pom.xml:ro" -v "$2:/jars" maven:3-eclipse-temurin-17 \
			mvn -f /pom.xml "${goal[@]}" -DoutputDirectory=/jars
	else
		apt_install mvn maven
		logged maven mvn -f "$here/kafka/pom.xml" "${goal[@]}" "-DoutputDirectory=$2"
	fi
}

kafka() {
	if [[ -n ${FLUSSO_E2E_KAFKA_IMAGE:-} ]]; then
		say "Kafka $1: FLUSSO_E2E_KAFKA_IMAGE"
		echo "${FLUSSO_E2E_KAFKA_IMAGE//\{version\}/$1}"
		return
	fi
	local name=flusso-e2e-kafka:$1 tag context
	tag=$name-$(recipe kafka)
	if present "$tag"; then
		say "Kafka $1: $tag, built here before"
	else
		say "Kafka $1: building $tag"
		base
		context=$(mktemp -d)
		cp -r "$here/kafka/." "$context"
		mkdir "$context/jars"
		jars "$1" "$context/jars"
		logged build docker build -t "$tag" -t "$name" --build-arg "BASE=$tag_of_base" --build-arg "VERSION=$1" "$context"
		rm -rf "$context"
	fi
	echo "$tag"
}

postgres() {
	if [[ -n ${FLUSSO_E2E_POSTGRES_IMAGE:-} ]]; then
		say "PostgreSQL: FLUSSO_E2E_POSTGRES_IMAGE"
		echo "$FLUSSO_E2E_POSTGRES_IMAGE"
		return
	fi
	local name=flusso-e2e-postgres tag
	tag=$name:$(recipe postgres)
	if present "$tag"; then
		say "PostgreSQL: $tag, built here before"
	elif present "$public_postgres" || { registry_answers && docker pull -q "$public_postgres" >/dev/null; }; then
		say "PostgreSQL: $public_postgres of the public registry"
		tag=$public_postgres
	else
		say "PostgreSQL: building $tag"
		base
		logged build docker build -t "$tag" -t "$name:latest" --build-arg "BASE=$tag_of_base" "$here/postgres"
	fi
	echo "$tag"
}

# Test binaries run side by side: one builds, the others wait.
if command -v flock >/dev/null; then
	exec 9>"$state/images.lock"
	flock 9
fi

case ${1:-} in
kafka) kafka "${2:?images.sh kafka VERSION}" ;;
postgres) postgres ;;
all)
	kafka 4.3.1
	kafka 3.9.1
	postgres
	;;
*) die "usage: images.sh kafka VERSION | postgres | all" ;;
esac
