#!/usr/bin/env bash
# Two ranks under a real srun: Slurm's daemons on this machine, on the loopback interface and in a folder of their own.
#
#   tests/slurm.sh BUILD DIRECTORY
#
# As root, with Debian's slurmctld, slurmd, slurm-client and munge; without them it says so and ends with 77. The daemons that run
# here already are left alone, and those that it starts are ended.
set -euo pipefail
[ $# = 2 ] || { echo "usage: slurm.sh BUILD DIRECTORY" >&2; exit 2; }
build=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
skip() { echo "slurm is SKIPPED: $1" >&2; exit 77; }
export PATH=$PATH:/usr/sbin
for program in slurmctld slurmd srun munged; do
  command -v "$program" >/dev/null || skip "there is no $program (packages slurmctld, slurmd, slurm-client, munge)"
done
[ "$(id -u)" = 0 ] || skip "slurmd runs as root"
rm -rf "${work:?}"/*
mkdir -p "$work/state" "$work/spool" "$work/munge"
chmod 700 "$work/munge"
node=$(hostname -s)

daemons=()
end_daemons() {
  local pid
  for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${daemons[@]}"; do wait "$pid" 2>/dev/null || true; done
}
trap end_daemons EXIT
free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

dd if=/dev/urandom of="$work/munge/key" bs=1024 count=1 status=none
chmod 600 "$work/munge/key"
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
  --log-file="$work/munge/log" --seed-file="$work/munge/seed" >"$work/munged.log" 2>&1 &
daemons+=($!)

cat >"$work/slurm.conf" <<END
ClusterName=echotrain
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$node Default=YES State=UP
END
export SLURM_CONF=$work/slurm.conf
slurmctld -D -i >"$work/slurmctld.log" 2>&1 &
daemons+=($!)
slurmd -D >"$work/slurmd.log" 2>&1 &
daemons+=($!)

logs() { tail -n 20 "$work"/*.log >&2; exit 1; }
for _ in $(seq 120); do
  [ "$(sinfo -h -o %t 2>/dev/null)" = idle ] && break
  sleep 0.5
done
[ "$(sinfo -h -o %t)" = idle ] || { echo "slurm: the node does not become idle" >&2; logs; }

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
timeout 240 srun -n 2 --overcommit "$echotrain" train job.json --set output.dir=slurm >srun.log 2>&1 || logs
"$echotrain" launch -n 2 job.json --set output.dir=launch >launch.log 2>&1 || logs
[ "$(losses slurm | wc -l)" = 20 ] && [ "$(losses slurm)" = "$(losses launch)" ] ||
  { echo "slurm: the losses are not those of 'echotrain launch'" >&2; logs; }
# One rank fails, and the job step ends.
if timeout 240 srun -n 2 --overcommit bash -c 'exec "$0" train job.json --set output.dir=failed --set train.steps=1000000 \
     $([ "$SLURM_PROCID" = 1 ] && echo --set pipeline.stages.0.root=nowhere)' "$echotrain" >failed.log 2>&1; then
  echo "slurm: a step with a rank that failed succeeded" >&2
  logs
fi
grep -q nowhere failed.log || { echo "slurm: the ranks do not say which of them failed, and why" >&2; logs; }
echo "slurm: two ranks of srun trained as those of 'echotrain launch' do, to the bit"
