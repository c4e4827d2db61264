#!/bin/bash
# As much of the official image's entry point as the tests use: POSTGRES_USER,
# POSTGRES_PASSWORD, POSTGRES_DB, and the server's own arguments.
set -euo pipefail

user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH

[[ ${1:-} == postgres ]] || exec "$@"
shift

as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"; }

install -d -o postgres -g postgres /run/postgresql
install -d -o postgres -g postgres -m 700 "$PGDATA"
if [[ ! -s $PGDATA/PG_VERSION ]]; then
	password=$(mktemp)
	echo "${POSTGRES_PASSWORD:?}" >"$password"
	chown postgres "$password"
	as_postgres initdb --no-sync -D "$PGDATA" -U "$user" --pwfile="$password" --encoding=UTF8 --locale=C.UTF-8 \
		--auth-local=trust --auth-host=scram-sha-256
	rm "$password"
	echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
	if [[ $database != postgres ]]; then
		echo "CREATE DATABASE \"$database\"" | as_postgres postgres --single -D "$PGDATA" postgres
	fi
fi
exec setpriv --reuid=postgres --regid=postgres --init-groups -- postgres -D "$PGDATA" -c 'listen_addresses=*' "$@"
