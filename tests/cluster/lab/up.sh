#!/bin/bash
# Bring the lab up: a switch namespace, 'head' (slurmctld, munged, where you run things) and node1..N
# (sshd + slurmd), each with its own network, host name, IPC and mount namespace; nodes also own PIDs.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"; . ./lab.env
[ -n "${LAB_LOCKED:-}" ] || LAB_LOCKED=1 exec flock -o "$LAB.lock" "./${0##*/}" "$@"   # one at a time
T0=$(date +%s.%N)
say() { printf '%6.2fs %s\n' "$(echo "$(date +%s.%N) $T0" | awk '{print $1-$2}')" "$*"; }
die() { echo "up.sh: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || die "needs root (network namespaces)"
for c in slurmctld slurmd srun munged sshd ssh-keygen ip tc nsenter unshare flock; do
  command -v $c >/dev/null || die "$c missing: apt-get install -y --no-install-recommends slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libpmix-dev openssh-server openssh-client iproute2 iputils-ping"
done
if [ -e "$LAB/up" ] && ./lab --check >/dev/null 2>&1; then say "already up"; exit 0; fi
./down.sh >/dev/null 2>&1 || true
mkdir -p "$LAB"/{run,log,ssh,etc,munge,state,spool,dev,jobs,local}; chmod 755 "$LAB"; chmod 711 "$LAB/munge"

# ---- files --------------------------------------------------------------------------------------
cat >"$LAB/etc/hosts" <<X
127.0.0.1 localhost
$(for h in $(lab_hosts); do echo "$(lab_ip $h) $h"; done)
X
[ -e "$LAB/ssh/id_ed25519" ] || ssh-keygen -q -t ed25519 -N '' -f "$LAB/ssh/id_ed25519"
[ -e "$LAB/ssh/host_ed25519" ] || ssh-keygen -q -t ed25519 -N '' -f "$LAB/ssh/host_ed25519"
cp "$LAB/ssh/id_ed25519.pub" "$LAB/ssh/authorized_keys"
for h in $(lab_hosts); do echo "$h,$(lab_ip $h) $(cut -d' ' -f1,2 "$LAB/ssh/host_ed25519.pub")"; done >"$LAB/ssh/known_hosts"
cat >"$LAB/ssh/config" <<X
Host *
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 5
  LogLevel ERROR
X
cat >"$LAB/ssh/sshd_config" <<X
Port 22
HostKey $LAB/ssh/host_ed25519
AuthorizedKeysFile $LAB/ssh/authorized_keys
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
UseDNS no
PrintMotd no
MaxStartups 100
PidFile none
AcceptEnv LANG LC_* LAB* OMPI_* PRTE_* PMIX_* MPI4PY_* FI_* UCX_*
X
chmod 600 "$LAB"/ssh/*
cat >"$LAB/etc/slurm.conf" <<X
ClusterName=fedlab
SlurmctldHost=head($(lab_ip head))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$LAB/munge/munge.sock,cred_expire=5
CredType=cred/munge
StateSaveLocation=$LAB/state
SlurmdSpoolDir=$LAB/spool/%n
SlurmctldPidFile=$LAB/run/slurmctld.pid
SlurmdPidFile=$LAB/run/slurmd.%n.pid
SlurmctldLogFile=$LAB/log/slurmctld.log
SlurmdLogFile=$LAB/log/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=info
MpiDefault=none
TmpFS=$LAB/local
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=5
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$LAB/log/jobcomp.txt
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=100000,batch_sched_delay=0
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
MessageTimeout=10
KillWait=5
WaitTime=10
UnkillableStepTimeout=30
MinJobAge=3600
OverTimeLimit=0
JobRequeue=1
DefMemPerCPU=500
SlurmdParameters=config_overrides
NodeName=node[1-$LAB_NODES] CPUs=$LAB_CPUS RealMemory=$LAB_MEM Gres=gpu:$LAB_GPUS State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
X
for i in $(seq 0 $((LAB_GPUS-1))); do [ -e "$LAB/dev/nvidia$i" ] || mknod -m 666 "$LAB/dev/nvidia$i" c 1 3; done  # Slurm insists on device nodes
echo "NodeName=node[1-$LAB_NODES] Name=gpu File=$LAB/dev/nvidia[0-$((LAB_GPUS-1))]" >"$LAB/etc/gres.conf"
echo "AutoDetect=off" | cat - "$LAB/etc/gres.conf" >"$LAB/etc/g" && mv "$LAB/etc/g" "$LAB/etc/gres.conf"
[ -e "$LAB/munge/key" ] || (umask 077; head -c 128 /dev/urandom >"$LAB/munge/key")
say "files written"

# ---- switch -------------------------------------------------------------------------------------
ip netns add $LAB_SW
ip -n $LAB_SW link add br0 mtu "$LAB_MTU" type bridge stp_state 0 forward_delay 0
ip -n $LAB_SW link set br0 up

# ---- hosts --------------------------------------------------------------------------------------
cat >"$LAB/run/init" <<'X'
#!/bin/bash
# first process of a host: sets the place up, reaps orphans, waits to be killed
hostname "$1"
mount -t tmpfs -o size=8g tmpfs /dev/shm
mount -t tmpfs -o size=2g,mode=1777 tmpfs "$LAB/local"      # node-local scratch; the rest of the file system is "shared"
mount --bind "$LAB/etc/hosts" /etc/hosts
mkdir -p $HOME/.ssh /run/sshd; mount -t tmpfs -o mode=700 tmpfs $HOME/.ssh
cp "$LAB"/ssh/{id_ed25519,known_hosts,config} $HOME/.ssh/; chmod 600 $HOME/.ssh/*
[ ! -f $HOME/.bashrc ] || mount --bind /dev/null $HOME/.bashrc   # ssh reads it; what it starts may be killed with a host
ip link set lo up
trap 'exit 0' TERM
: >"$LAB/run/$1.ready"
while :; do sleep 3600 & wait $!; done
X
chmod 755 "$LAB/run/init"
for h in $(lab_hosts); do lab_start_host $h || die "$h did not start: $(cat "$LAB/log/$h.log")"; done
say "hosts: $(lab_hosts | tr '\n' ' ')"

# ---- daemons ------------------------------------------------------------------------------------
export SLURM_CONF=$LAB/etc/slurm.conf
./lab head munged --key-file="$LAB/munge/key" --socket="$LAB/munge/munge.sock" --pid-file="$LAB/munge/munged.pid" \
  --log-file="$LAB/munge/munged.log" --seed-file="$LAB/munge/seed" --num-threads=4
./lab head slurmctld
for h in $(lab_hosts); do lab_start_daemons $h; done
say "munged, slurmctld, sshd, slurmd started"
for _ in $(seq 300); do
  n=$(./lab head sinfo -h -N -t idle -o %n 2>/dev/null | sort -u | wc -l)
  [ "$n" = "$LAB_NODES" ] && break; sleep 0.1
done
[ "$n" = "$LAB_NODES" ] || { ./lab head sinfo -N -l >&2; die "only $n nodes are idle; see $LAB/log"; }
for h in $(lab_hosts | grep -v head); do ./lab head ssh $h true || die "ssh $h failed"; done
: >"$LAB/up"
say "up: $n nodes idle, ssh works"
