// exchange_bench [RANKS]: all-reduce of a group on Gloo, in its helper process, beside Gloo called directly, in the same processes in
// turn. Ranks are processes of this machine, connected by its loopback interface.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "bench.h"
#include "exchange/world.h"
#include "support/temp_dir.h"

namespace {

std::shared_ptr<gloo::Context> plain_gloo(int rank, int size, const std::string& folder) {
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  context->connectFullMesh(store, device);
  return context;
}

void reduce_plainly(const std::shared_ptr<gloo::Context>& context, std::vector<float>& values) {
  gloo::AllreduceOptions options(context);
  options.setOutput(values.data(), values.size());
  using Sum = void (*)(void*, const void*, const void*, size_t);
  options.setReduceFunction(static_cast<Sum>(&gloo::sum<float>));
  gloo::allreduce(options);
}

void run(int rank, int size, const std::string& folder) {
  etr::exchange::World world;
  world.rank = rank, world.size = size;
  world.rendezvous = "file:" + folder + "/group";
  world.engines = ETR_ENGINES;
  etr::exchange::Group group = etr::exchange::open_group(world);
  const auto context = plain_gloo(rank, size, folder + "/plain");
  if (rank == 0)
    std::printf("%d ranks\n%10s %14s %14s %10s %10s\n", size, "bytes", "Group", "plain Gloo",
                "MB/s", "of plain");
  for (size_t count : {size_t{1}, size_t{1} << 10, size_t{1} << 14, size_t{1} << 18,
                       size_t{1} << 20, size_t{1} << 22, size_t{1} << 24}) {
    std::vector<float> values(count);
    const auto times = etr::bench::time_in_turn(
        {[&] { group.all_reduce(std::span(values)); }, [&] { reduce_plainly(context, values); }},
        count < 1 << 20 ? 101 : 15);
    const double ours = times[0], plain = times[1];
    if (rank == 0)
      std::printf("%10zu %11.1f us %11.1f us %10.0f %9.0f%%\n", count * 4, ours * 1e6, plain * 1e6,
                  static_cast<double>(count) * 4e-6 / ours, 100 * plain / ours);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int size = argc > 1 ? std::atoi(argv[1]) : 2;
  const etr::test::TempDir folder;
  std::filesystem::create_directory(folder.path("plain"));
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      run(rank, size, folder.path());
      std::fflush(stdout);
      _exit(0);
    }
    ranks.push_back(child);
  }
  int failed = 0;
  for (const pid_t rank : ranks) {
    int status = 0;
    waitpid(rank, &status, 0);
    failed += status != 0;
  }
  return failed ? 1 : 0;
}
