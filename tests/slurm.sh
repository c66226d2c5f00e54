#!/usr/bin/env bash
# Two ranks on two nodes of a real Slurm, and the batch script of docs/distributed.md: its daemons on this machine, on a network and in
# a folder of their own.
#
#   tests/slurm.sh BUILD DIRECTORY
#
# As root, with Debian's slurmctld, slurmd, slurm-client, munge and iproute2; without them it says so and ends with 77. The daemons that
# run here already are left alone, and those that it starts are ended.
set -euo pipefail
[ $# = 2 ] || [ "${3:-}" = --inside ] || { echo "usage: slurm.sh BUILD DIRECTORY" >&2; exit 2; }
skip() { echo "slurm is SKIPPED: $1" >&2; exit 77; }
export PATH=$PATH:/usr/sbin
for program in slurmctld slurmd srun munged ip; do
  command -v "$program" >/dev/null || skip "there is no $program (packages slurmctld, slurmd, slurm-client, munge, iproute2)"
done
[ "$(id -u)" = 0 ] || skip "slurmd runs as root"
# Slurm's daemons listen on every address, so they get a network of nothing but the loopback interface, which is called as in the batch
# script and has an address for each node. All processes end with this script.
[ "${3:-}" = --inside ] || exec unshare --net --mount --pid --fork --kill-child --mount-proc bash "$0" "$@" --inside
source=$(cd "$(dirname "$0")/.." && pwd)
. "$source/tests/support/blocks.sh"
build=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
rm -rf "${work:?}"/*
mkdir -p "$work"/{state,first,second,munge}
chmod 700 "$work/munge"
ip link set lo name eth0
ip link set eth0 up
for address in 10.0.0.1 10.0.0.2; do ip address add $address/32 dev eth0; done
{ cat /etc/hosts; printf '%s\n' "10.0.0.1 first" "10.0.0.2 second"; } >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts

daemons=()

dd if=/dev/urandom of="$work/munge/key" bs=1024 count=1 status=none
chmod 600 "$work/munge/key"
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
  --log-file="$work/munge/log" --seed-file="$work/munge/seed" >"$work/munged.log" 2>&1 &
daemons+=($!)

cat >"$work/slurm.conf" <<END
ClusterName=echotrain
SlurmctldHost=$(hostname -s)(10.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
SlurmctldPort=6817
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
NodeName=first NodeHostname=$(hostname -s) NodeAddr=10.0.0.1 Port=6818 CPUs=$(nproc) State=UNKNOWN
NodeName=second NodeHostname=$(hostname -s) NodeAddr=10.0.0.2 Port=6819 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=first,second Default=YES State=UP
END
export SLURM_CONF=$work/slurm.conf
slurmctld -D -i >"$work/slurmctld.log" 2>&1 &
daemons+=($!)
for node in first second; do
  slurmd -D -N $node >"$work/$node.log" 2>&1 &
  daemons+=($!)
done

logs() { tail -n 20 "$work"/*.log >&2; exit 1; }
nodes() { timeout 10 sinfo -h -o '%t %D' 2>/dev/null || true; }
for _ in $(seq 120); do
  [ "$(nodes)" = "idle 2" ] && break
  for pid in "${daemons[@]}"; do kill -0 "$pid" 2>/dev/null || { echo "slurm: a daemon has ended" >&2; logs; }; done
  sleep 0.5
done
[ "$(nodes)" = "idle 2" ] || { echo "slurm: the nodes do not become idle" >&2; logs; }

cd "$work"
"$build/samples/draw" png 64 1
cat >job.json <<END
{"seed": 3, "parallel": {},
 "pipeline": {"stages": [{"stage": "folder", "root": "$work/png"}, {"stage": "label"}, {"stage": "decode"},
                         {"stage": "batch", "size": 8}, {"stage": "normalize"}]},
 "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 10}]},
 "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.02},
 "train": {"steps": 20}, "output": {"tensorboard": false, "checkpoint_every_steps": 10}}
END
echotrain=$build/tools/echotrain/echotrain
losses() { sed -n 's/.*"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
# Slurm starts no MPI: the ranks find each other by Gloo, at the first node.
timeout 240 srun -N 2 "$echotrain" train job.json --set output.dir=slurm >srun.log 2>&1 || logs
"$echotrain" launch -n 2 job.json --set output.dir=launch >launch.log 2>&1 || logs
[ "$(losses slurm | wc -l)" = 20 ] && [ "$(losses slurm)" = "$(losses launch)" ] ||
  { echo "slurm: the losses are not those of 'echotrain launch'" >&2; logs; }
# One rank fails, and the job step ends.
status=0
timeout 240 srun -N 2 bash -c 'exec "$0" train job.json --set output.dir=failed --set train.steps=1000000 \
  $([ "$SLURM_PROCID" = 1 ] && echo --set pipeline.stages.0.root=nowhere)' "$echotrain" >failed.log 2>&1 || status=$?
case $status in
  0) echo "slurm: a step with a rank that failed succeeded" >&2; logs ;;
  124) echo "slurm: a step with a rank that failed did not end" >&2; logs ;;
esac
grep -q nowhere failed.log || { echo "slurm: the ranks do not say which of them failed, and why" >&2; logs; }
block "$source/docs/distributed.md" "#SBATCH" >script.sh
PATH=$(dirname "$echotrain"):$PATH timeout 240 sbatch --wait --output=batch.log script.sh || logs
[ "$(losses runs/job)" = "$(losses launch)" ] || { echo "slurm: the losses of the batch script differ" >&2; logs; }
echo "slurm: two ranks of srun trained as those of 'echotrain launch' do, to the bit"
