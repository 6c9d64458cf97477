# Where the private server lives and as whom it runs; sourced by up, down, env and check.
set -eu
umask 022
unset MAKEFLAGS MFLAGS MAKELEVEL

: "${PG_CONFIG:=/usr/lib/postgresql/15/bin/pg_config}"
export PG_CONFIG

source_dir=$(cd "$(dirname "$0")/.." && pwd -P)
home=${QUEEN_HOME:-$source_dir/.queen}
case $home in
    /*) ;;
    *) home=$PWD/$home ;;
esac
[ ! -d "$home" ] || home=$(cd "$home" && pwd -P)
# Out of a directory that the service user may not enter: its programs would complain.
cd /
pg_port=${QUEEN_PG_PORT:-5632}
http_port=${QUEEN_HTTP_PORT:-6632}

die() {
    echo "queen: $*" >&2
    exit 1
}

# PostgreSQL refuses to run as root: for root, servers run as the user of Debian's package.
service_user=
drop=
if [ "$(id -u)" = 0 ]; then
    service_user=postgres
    drop='setpriv --reuid=postgres --regid=postgres --init-groups'
fi

# A directory for the service user alone.
private_dir() {
    mkdir -p "$1"
    chmod 700 "$1"
    [ -z "$service_user" ] || chown "$service_user:" "$1"
}

# An empty file for the service user alone.
private_file() {
    (umask 077 && : >"$1")
    [ -z "$service_user" ] || chown "$service_user:" "$1"
}

# True when the environment names a server of the operator's own. What "make env" printed
# names the private one, which shows in its password file.
own_server() {
    [ -z "${QUEEN_DSN:-}" ] || return 0
    [ -n "${PGHOST:-}" ] && [ "$(readlink -m "${PGPASSFILE:-/}")" != "$(readlink -m "$home/pgpass")" ]
}

pg_bin() {
    echo "$home/pg$("$PG_CONFIG" --bindir)"
}

server_running() {
    [ -s "$home/data/postmaster.pid" ] && $drop "$(pg_bin)/pg_ctl" -D "$home/data" status >/dev/null
}

server_port() {
    sed -n 4p "$home/data/postmaster.pid"
}

# Its program is looked at as well: a process id may have been used again since.
frontend_running() {
    [ -s "$home/frontend.pid" ] || return 1
    case $(readlink "/proc/$(cat "$home/frontend.pid")/exe") in
        */queen-frontend*) return 0 ;;
        *) return 1 ;;
    esac
}
