#!/usr/bin/env bash
# Runs blocks of the pages that need more than a build: those that install, build or format, in a Debian with nothing installed; those of
# several machines; and those that need PyTorch 2, torchvision, WebDataset or TensorFlow, which pip fetches (6 GB).
#
#   tests/pages.sh DIRECTORY      receives the system (bare_debian.sh), about 15 GB. As root, with debootstrap.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/support/blocks.sh
if [ "${1:-}" != --inside ]; then
  [ $# = 1 ] || { echo "usage: pages.sh DIRECTORY" >&2; exit 2; }
  exec bash tests/bare_debian.sh "$1" "bash tests/pages.sh --inside"
fi
root=$PWD
begin() { echo "pages.sh: $1 (after $((SECONDS / 60)) min)"; }

begin "installing and building"
apt-get update -qq
apt-get install -y -qq --no-install-recommends sudo >/dev/null
echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/90yes  # where the reader is asked
run_block docs/c.md "bash tests/setup.sh"
/opt/echotrain/bin/echotrain version
run_block docs/java.md "bash tests/setup.sh"
ls ~/.m2/repository/io/echotrain/echotrain/*/*.jar
run_block docs/csharp.md "bash tests/setup.sh"
ls build/bindings/csharp/EchoTrain.*.nupkg
run_block docs/python.md "bash tests/setup.sh"
test -s echotrain-demo/report.html
run_block docs/tutorials/feed_pytorch.md "bash tests/setup.sh"

begin "beside PyTorch, WebDataset and TensorFlow"
pip install -q torchvision webdataset tensorflow-cpu
tutorials() { # arguments: none of the pages may be skipped
  python tests/docs/tutorials.py "$@" | tee /tmp/tutorials.log
  ! grep SKIPPED /tmp/tutorials.log || exit 1
}
tutorials build /tmp/pages docs/tutorials/feed_pytorch.md
tutorials --run-by tests/pages.sh build /tmp/migration docs/migration/pytorch_dataloader.md docs/migration/webdataset.md \
  docs/migration/tf_data.md

# Two machines: their processes share a network of their own, whose one interface is called eth0 and has the pages' address.
begin "a network of machines"
on_network() { # script
  unshare --net bash -euc "ip link set lo name eth0; ip address add 10.0.0.1/24 dev eth0; ip link set eth0 up; $1"
}
apt-get install -y -qq --no-install-recommends iproute2 >/dev/null
page=docs/tutorials/distributed.md
mkdir /tmp/machines
cd /tmp/machines
PATH=$root/build/tools/echotrain:$root/build/samples:$PATH
draw digits 640 1
draw digits-test 160 2
block "$root/$page" "// digits.json" | grep -v '^//' >digits.json
first=$(block "$root/$page" "echotrain train digits.json --set 'parallel={\"rank\": 0, \"size\": 2, \"rendezvous\": \"tcp://10.0.0.1")
second=$(block "$root/$page" "echotrain train digits.json --set 'parallel={\"rank\": 1, \"size\": 2, \"rendezvous\": \"tcp://10.0.0.1")
on_network "$second & $first; wait \$!" | tee two.log
grep -q '^2 ranks: ' two.log

# The page has the section `parallel` of the job, and one line for each machine: two servers, then a worker, of which there are three here.
page=$root/docs/parameter_server.md
parallel=$(block "$page" '"parallel": {"algorithm": "downpour", "servers": 2')
sed "1s|{|{ $parallel,|" digits.json >job.json
readarray -t machines < <(block "$page" "echotrain parameter-server job.json --shard 0" | sed 's/ *#.*//')
[ ${#machines[@]} = 3 ] || { echo "pages.sh: not three machines, but ${machines[*]}" >&2; exit 1; }
on_network "${machines[0]} >server0.log & server0=\$!; ${machines[1]} >server1.log & server1=\$!
  for worker in 1 2 3; do ${machines[2]} --set output.dir=runs/downpour >worker\$worker.log 2>&1 & workers+=(\$!); done
  for process in \$server0 \$server1 \${workers[@]}; do wait \$process; done"
tail -n 1 server?.log worker?.log
for log in server0.log server1.log; do
  grep -q ': 3 workers, ' $log || { echo "pages.sh: $log does not have its three workers" >&2; exit 1; }
done

begin "PyTorch's launcher"
cp digits.json job.json
script=$(block "$root/docs/distributed.md" torchrun)
on_network "$script" 2>&1 | tee torchrun.log
grep -q '^2 ranks: ' torchrun.log

begin "formatting"
cd "$root"
apt-get install -y -qq --no-install-recommends git >/dev/null
git init -q
git add -A
git -c user.name=Reader -c user.email=reader@localhost commit -q -m "what is committed"
sed -i '1i int  x ;' runtime/core/error.cpp
run_block CONTRIBUTING.md "pip install clang-format"
[ "$(head -n 1 runtime/core/error.cpp)" = "int x;" ] || { echo "pages.sh: the changed line was not formatted" >&2; exit 1; }
begin "all passed"
