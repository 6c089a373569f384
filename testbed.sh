#!/usr/bin/env bash
# Set-up and entry point of the testbed: `sudo ./testbed.sh demo`, `sudo ./testbed.sh test`, `./testbed.sh <testbed command>`.
# Why it does what it does: docs/decisions/0001-set-up.md. What to do when it fails: docs/troubleshooting.md.
set -euo pipefail

ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
VENV=$ROOT/.venv
STAMP=$VENV/testbed-stamp
LOG=$ROOT/build/setup.log
PYTHON=${PYTHON:-/usr/bin/python3}
POLICY=/usr/sbin/policy-rc.d
POLICY_MARK='# written by testbed.sh for the time of one apt-get install'

# A plain `su`, and users on Debian, have no sbin in PATH; tc, ethtool and ovs-vswitchd are there.
export PATH=$PATH:/usr/sbin:/sbin

# Exit codes, as docs/architecture.md lists them.
readonly EXIT_USAGE=2 EXIT_HOST=3

# What must be there: apt package, and the command or file that shows it (so that a build from source counts too).
NEEDS='
openvswitch-switch  ovs-vswitchd
frr                 /usr/lib/frr/bgpd
mininet             mnexec
iproute2            tc
ethtool             ethtool
net-tools           ifconfig
procps              sysctl
iputils-ping        ping
iperf3              iperf3
clang               clang
libbpf-dev          /usr/include/bpf/bpf_helpers.h
linux-libc-dev      /usr/include/linux/bpf.h
'
# In CI this script is checked too, and no check is skipped there.
[[ ${CI:-} != true ]] || NEEDS+='shellcheck shellcheck'
readonly NEEDS
# Services that come with those packages and would start, now or at the next boot, on a host that only needs the programs.
readonly SERVICES='openvswitch-switch frr'

usage() {
    cat <<'TEXT'
Usage: sudo ./testbed.sh demo [options of `testbed run`]   set up, then run the flagship scenario (construction-site)
       sudo ./testbed.sh test [pytest arguments]           set up, then ruff, mypy and every test
       sudo ./testbed.sh setup [--again]                   set up only; --again: from scratch
       ./testbed.sh <testbed command> ...                  anything else goes to `testbed`; start with: ./testbed.sh list

Variables: PYTHON=/path/to/python3              the interpreter for the virtual environment (default /usr/bin/python3)
           TESTBED_ANY_DISTRIBUTION=1           try on a distribution that is not Debian 12/13 or Ubuntu 22.04/24.04
           TESTBED_WITHOUT_RYU=1                set up without Ryu (the arms that need it will refuse to run)
TEXT
}

# --- saying things ---------------------------------------------------------------------------------------------------

say() { printf 'testbed.sh: %s\n' "$*" >&2; }

die() { # die <exit code> <sentence>...
    local code=$1
    shift
    printf 'testbed.sh: %s\n' "$@" >&2
    exit "$code"
}

step() { printf '[%4d s] %s\n' "$SECONDS" "$*" >&2; }

# Runs a command with its output in the log; on failure shows the end of it and what to do.
logged() { # logged <what> <what to do> <command>...
    local what=$1 advice=$2 status=0 first
    shift 2
    printf '\n$ %s\n' "$*" >>"$LOG"
    first=$(wc -l <"$LOG")
    "$@" >>"$LOG" 2>&1 </dev/null || status=$?
    ((status == 0)) && return
    say "$what failed with status $status. Its last lines:"
    tail -n "+$((first + 1))" "$LOG" | tail -n 15 | sed 's/^/    /' >&2
    die "$EXIT_HOST" "The whole output: $LOG" "What to do: $advice"
}

is_root() { ((EUID == 0)); }

need_root() { # need_root <for what> <arguments of testbed.sh>
    is_root || die "$EXIT_HOST" "$1 needs root. Run: sudo ./testbed.sh $2"
}

# --- what is there ---------------------------------------------------------------------------------------------------

present() { # present <command or absolute file>
    if [[ $1 == /* ]]; then [[ -e $1 ]]; else command -v -- "$1" >/dev/null; fi
}

missing_packages() {
    local package shown_by
    while read -r package shown_by; do
        [[ -z $package ]] || present "$shown_by" || printf '%s\n' "$package"
    done <<<"$NEEDS"
    # Debian keeps ensurepip, which venv needs, in a package of its own.
    [[ $PYTHON != /usr/bin/python3 ]] || "$PYTHON" -c 'import ensurepip' 2>/dev/null || echo python3-venv
}

os_release() ( # os_release <field>; in a subshell, because the file sets many variables
    # shellcheck source=/dev/null
    [[ ! -r /etc/os-release ]] || . /etc/os-release
    printf '%s' "${!1:-unknown}"
)

check_distribution() {
    case "$(os_release ID) $(os_release VERSION_ID)" in
    'debian 12' | 'debian 13' | 'ubuntu 22.04' | 'ubuntu 24.04') return ;;
    esac
    local here
    here="this is $(os_release PRETTY_NAME); the set-up is made for Debian 12 and 13 and Ubuntu 22.04 and 24.04"
    [[ -n ${TESTBED_ANY_DISTRIBUTION:-} ]] || die "$EXIT_HOST" "$here. To try all the same: TESTBED_ANY_DISTRIBUTION=1"
    say "$here; trying, as TESTBED_ANY_DISTRIBUTION asks"
}

check_python() {
    local version
    version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>&1) ||
        die "$EXIT_HOST" "PYTHON=$PYTHON does not run: $version" "Set PYTHON to a Python of version 3.10 or later."
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        die "$EXIT_HOST" "PYTHON=$PYTHON is version $version; 3.10 or later is needed. Set PYTHON to another one."
}

# What the virtual environment depends on; a change of any of it means a new set-up. The place counts: scripts in it hold its path.
stamp_now() {
    {
        printf '%s\n' "$ROOT" "without-ryu=${TESTBED_WITHOUT_RYU:-}"
        "$PYTHON" -c 'import sys; print(sys.executable, sys.version)'
        cat -- "$ROOT/setup.py" "$ROOT/pyproject.toml" "$ROOT/testbed.sh"
    } | sha256sum
}

venv_is_fresh() { [[ -f $STAMP && -x $VENV/bin/testbed && $(<"$STAMP") == "$(stamp_now)" ]]; }

# --- apt -------------------------------------------------------------------------------------------------------------

readonly APT_ADVICE='check the network and the proxy (apt reads http_proxy, sudo drops it: sudo -E), that no package is held
(apt-mark showhold) and that no other apt runs; then run the same command again. A half-done install is mended by: apt-get -f install'

policy_is_ours() { [[ -f $POLICY ]] && grep -qxF -- "$POLICY_MARK" "$POLICY"; }

drop_policy() { if policy_is_ours; then rm -f -- "$POLICY"; fi; }

# Debian's own switch against services that start at install time; a file of the administrator's stays as it is.
hold_services() {
    drop_policy # left by a set-up that was killed
    [[ ! -e $POLICY ]] || return 0
    trap drop_policy EXIT
    printf '#!/bin/sh\n%s\nexit 101\n' "$POLICY_MARK" >"$POLICY"
    chmod 755 "$POLICY"
}

# A package that we brought must not start its daemons at the next boot either.
disable_new_services() { # disable_new_services <new package>...
    command -v systemctl >/dev/null || return 0
    local service
    for service in $SERVICES; do
        [[ " $* " == *" $service "* ]] || continue
        logged "disabling the new service $service" "run: systemctl disable $service" systemctl disable "$service"
    done
}

apt_get() {
    DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"
}

install_packages() { # install_packages <package>...
    is_root || die "$EXIT_HOST" "these apt packages are missing: $*" "Installing them needs root. Run: sudo ./testbed.sh setup"
    command -v apt-get >/dev/null || die "$EXIT_HOST" "there is no apt-get here; install by hand what these packages bring: $*"
    step "apt: refreshing the package lists"
    logged 'apt-get update' "$APT_ADVICE" apt_get update
    step "apt: installing $*"
    (
        exec 8</var/lib/dpkg
        flock 8 # two clones may be set up at once; policy-rc.d is one file for both
        hold_services
        logged 'apt-get install' "$APT_ADVICE" apt_get install --no-install-recommends "$@"
        disable_new_services "$@"
    )
}

# --- Python ----------------------------------------------------------------------------------------------------------

readonly PIP_ADVICE='check the network and the proxy (pip reads https_proxy and PIP_INDEX_URL; sudo drops them: sudo -E), and the free disk
space; then run the same command again.'
readonly RYU_ADVICE='Ryu 4.34 builds only with setuptools<68 (docs/decisions/0001-set-up.md). To go on without the arms that need it:
TESTBED_WITHOUT_RYU=1 ./testbed.sh setup'

pip() {
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1 "$VENV/bin/python" -m pip "$@"
}

make_venv() {
    step "python: new virtual environment with $PYTHON"
    logged 'making the virtual environment' "$PYTHON needs the modules venv and ensurepip (apt: python3-venv)" \
        "$PYTHON" -m venv --clear -- "$VENV"
}

# From inside, because a path before [test] may hold characters that pip reads as its own.
pip_install_clone() (cd -- "$ROOT" && pip install -e '.[test]')

install_python_packages() {
    step "pip: installing the testbed and the packages it needs"
    logged 'pip install' "$PIP_ADVICE" pip_install_clone
}

# Old pip takes the constraint of the build environment from PIP_CONSTRAINT, new pip from PIP_BUILD_CONSTRAINT. Both split at spaces,
# so the file lies in /tmp, not in the clone.
build_ryu() {
    local constraint=$1 wheels=$2
    PIP_CONSTRAINT=$constraint PIP_BUILD_CONSTRAINT=$constraint \
        pip wheel --use-pep517 --no-deps --wheel-dir "$wheels" 'ryu==4.34'
}

install_ryu() {
    if [[ -n ${TESTBED_WITHOUT_RYU:-} ]]; then
        say 'set up WITHOUT Ryu, as TESTBED_WITHOUT_RYU asks: the arms that need it will refuse to run'
        return
    fi
    step "pip: building and installing Ryu 4.34"
    local wheels
    wheels=$(mktemp -d /tmp/testbed-ryu.XXXXXX)
    # shellcheck disable=SC2064  # the folder's name is known now and gone later
    trap "rm -rf -- '$wheels'" EXIT
    printf 'setuptools<68\n' >"$wheels/constraint.txt"
    logged 'building Ryu' "$RYU_ADVICE" build_ryu "$wheels/constraint.txt" "$wheels"
    logged 'installing Ryu' "$RYU_ADVICE" pip install "$wheels"/ryu-*.whl 'eventlet>=0.38.2'
    logged 'importing Ryu' "$RYU_ADVICE" "$VENV/bin/python" -W ignore -c "$RYU_PROBE"
    # Ryu's maintained fork, beside it. Ryu has brought what it needs here; the rest serves parts that we do not use.
    logged 'installing os-ken' "$PIP_ADVICE" pip install --no-deps 'os-ken==4.2.2'
}
# Ryu asks eventlet for a name that later versions dropped; it only compares with it.
readonly RYU_PROBE='
import eventlet.wsgi
eventlet.wsgi.ALREADY_HANDLED = getattr(eventlet.wsgi, "ALREADY_HANDLED", object())
import ryu.base.app_manager, ryu.controller.ofp_handler, ryu.ofproto.ofproto_v1_3
'

# --- set-up ----------------------------------------------------------------------------------------------------------

# Nothing is left to compile at run time, when the CPU is being measured (and root would write into somebody's clone).
compile_everything() {
    step "compiling the link program and the Python modules"
    logged 'compiling the link program' "clang and libbpf-dev must fit each other (docs/troubleshooting.md)" \
        "$VENV/bin/python" -c "$BUILD_LINK_PROGRAM"
    logged 'compiling the Python modules' 'git status shows what was changed here; a module has a syntax error' \
        "$VENV/bin/python" -m compileall -q "$ROOT/testbed" "$ROOT/topologies" "$ROOT/hosts"
}
readonly BUILD_LINK_PROGRAM='
from testbed.fabric.bpf import build_bpf
build_bpf()
'

# As root in somebody's clone: what we made belongs to that somebody, so that `rm -r` and a later run without root work.
give_back() {
    local owner
    owner=$(stat -c %u:%g -- "$ROOT")
    if is_root && [[ $owner != 0:* ]]; then
        find "$ROOT" -xdev -uid 0 -exec chown -h -- "$owner" {} +
    fi
}

start_log() {
    { mkdir -p -- "$ROOT/build" && : >"$LOG"; } 2>/dev/null && return
    die "$EXIT_HOST" "cannot write $LOG: the clone is not yours, or an earlier set-up ran as root. Run: sudo ./testbed.sh setup"
}

set_up_locked() { # set_up_locked <again?>
    local missing
    check_distribution
    mapfile -t missing < <(missing_packages)
    if ((${#missing[@]} == 0)) && [[ -z $1 ]] && venv_is_fresh; then return; fi
    trap give_back EXIT
    start_log
    ((${#missing[@]} == 0)) || install_packages "${missing[@]}"
    check_python
    make_venv
    install_python_packages
    (install_ryu)
    compile_everything
    stamp_now >"$STAMP"
    step "set-up done"
}

set_up() {
    (
        flock -n 9 || { step "waiting for another set-up of this clone" && flock 9; }
        set_up_locked "${1:-}"
    ) 9<"$ROOT"
}

# --- commands --------------------------------------------------------------------------------------------------------

# exec, so that a signal sent to this script reaches the testbed, which heals and cleans up.
testbed() { exec "$VENV/bin/testbed" "$@"; }

demo() {
    need_root 'The demo' demo
    set_up
    testbed run construction-site --results "$ROOT/results" "$@"
}

stage() { # stage <name> <command>...; remembers a failure and goes on
    local name=$1 status=0
    shift
    printf '\n== %s\n' "$name"
    (cd -- "$ROOT" && "$@") || status=$?
    ((status == 0)) || FAILED+=("$name (status $status)")
}

run_tests() {
    FAILED=()
    set_up
    stage ruff "$VENV/bin/python" -m ruff check .
    stage mypy "$VENV/bin/python" -m mypy
    stage pytest "$VENV/bin/python" -m pytest --timeout=600 "$@"
    give_back
    ((${#FAILED[@]} == 0)) || die 1 "failed: ${FAILED[*]}"
}

pass_through() {
    if ! venv_is_fresh; then
        is_root || die "$EXIT_HOST" "this clone is not set up, or has changed since. Run: sudo ./testbed.sh setup"
        set_up
    fi
    testbed "$@"
}

main() {
    case ${1:-} in
    '') usage >&2 && exit "$EXIT_USAGE" ;;
    -h | --help | help) usage ;;
    setup)
        [[ ${2:-} =~ ^(--again)?$ && $# -le 2 ]] || { usage >&2 && exit "$EXIT_USAGE"; }
        set_up "${2:-}"
        ;;
    demo) demo "${@:2}" ;;
    test) run_tests "${@:2}" ;;
    *) pass_through "$@" ;;
    esac
}

# The tests source this file to try its parts one by one.
[[ ${BASH_SOURCE[0]} != "$0" ]] || main "$@"
