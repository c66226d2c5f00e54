// All-reduce of a group on Gloo, in its helper process, beside Gloo called directly and beside MPI,
// in the same processes in turn.
// Ranks are processes of this machine: Gloo connects them by the loopback interface, MPI by shared
// memory.
//
//   exchange_bench [RANKS]                  without MPI
//   exchange_bench sums                     how long sums of each type take, in one thread
//   mpirun -n RANKS exchange_bench          with the MPI whose launcher this is
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
#include <optional>
#include <string>
#include <vector>

#include "bench.h"
#include "core/error.h"
#include "exchange/numbers.h"
#include "exchange/world.h"
#include "support/temp_dir.h"

namespace {

using etr::exchange::Group;

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

// Numbers in a group's own memory.
struct Array {
  Array(Group& group, size_t count)
      : memory(group.allocate(count * sizeof(float))),
        values(reinterpret_cast<float*>(memory.bytes().data()), count) {}

  etr::exchange::Buffer memory;
  std::span<float> values;
};

void print_row(size_t count, const std::vector<etr::bench::Times>& times) {
  const double bytes = static_cast<double>(count) * sizeof(float);
  std::printf("%10.0f", bytes);
  for (const auto& side : times) std::printf(" %10.1f us", side.median() * 1e6);
  for (size_t i = 1; i < times.size(); ++i) {
    const etr::bench::Times ratio = times[0].over(times[i]);
    std::printf(" %5.0f%% (%.0f to %.0f)", 100 * ratio.median(), 100 * ratio.quantile(0.25),
                100 * ratio.quantile(0.75));
  }
  std::printf("  %6.0f MB/s\n", bytes * 1e-6 / times[1].median());
  std::fflush(stdout);
}

void run(int rank, int size, const std::string& folder, Group* mpi, const char* mpi_name) {
  etr::exchange::World world;
  world.rank = rank, world.size = size;
  world.rendezvous = "file:" + folder + "/group";
  world.engines = ETR_ENGINES;
  Group group = etr::exchange::open_group(world);
  const auto context = plain_gloo(rank, size, folder + "/plain");
  if (rank == 0) {
    std::printf(
        "%d ranks; medians of rounds in turn; share of plain Gloo's speed, and the middle half of "
        "the rounds\n%10s",
        size, "bytes");
    for (const char* name : {"plain Gloo", "Group", "other memory", mpi_name})
      if (name) std::printf(" %13s", name);
    std::printf("\n");
  }
  for (size_t count : {size_t{1}, size_t{1} << 10, size_t{1} << 14, size_t{1} << 18,
                       size_t{1} << 20, size_t{1} << 22, size_t{1} << 24}) {
    std::vector<float> values(count);
    const Array own(group, count);
    std::vector<std::function<void()>> sides = {[&] { reduce_plainly(context, values); },
                                                [&] { group.all_reduce(own.values); },
                                                [&] { group.all_reduce(std::span(values)); }};
    std::optional<Array> of_mpi;
    if (mpi) {
      of_mpi.emplace(*mpi, count);
      sides.push_back([&] { mpi->all_reduce(of_mpi->values); });
    }
    const auto times = etr::bench::times_in_turn(sides, count < 1 << 20 ? 101 : 25);
    if (rank == 0) print_row(count, times);
  }
}

// One of the ranks that an MPI's launcher has started: the first one's folder is that of all.
void run_with_mpi(etr::exchange::World world) {
  world.engines = ETR_ENGINES;
  Group mpi = etr::exchange::open_group(world);
  std::optional<etr::test::TempDir> folder;
  char path[256] = "";
  if (world.rank == 0) {
    folder.emplace();
    std::filesystem::create_directory(folder->path("plain"));
    std::snprintf(path, sizeof path, "%s", folder->path().c_str());
  }
  mpi.broadcast(std::as_writable_bytes(std::span(path)), 0);
  run(world.rank, world.size, path, &mpi, world.engine.c_str());
  mpi.barrier();
}

int measure_sums() {
  using namespace etr::exchange;
  constexpr size_t kCount = size_t{1} << 20;
  std::vector<std::vector<std::byte>> arrays;
  std::vector<std::function<void()>> sides;
  const std::vector<Number> numbers = {Number::f32, Number::bf16, Number::f16};
  for (const Number number : numbers) {
    auto& all = arrays.emplace_back(2 * kCount * number_size(number));
    std::byte* mine = all.data();
    sides.push_back([=] {
      reduce(number, Reduction::sum, mine, mine, mine + kCount * number_size(number), kCount);
    });
  }
  const auto times = etr::bench::times_in_turn(sides, 101);
  const char* names[] = {"f32", "bf16", "fp16"};
  for (size_t i = 0; i < numbers.size(); ++i)
    std::printf("%-5s %5.2f ns a number, %4.1f times f32\n", names[i],
                times[i].median() / kCount * 1e9, 1 / times[0].over(times[i]).median());
  return 0;
}

int run_alone(int size) {
  const etr::test::TempDir folder;
  std::filesystem::create_directory(folder.path("plain"));
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      run(rank, size, folder.path(), nullptr, nullptr);
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

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1 && std::string(argv[1]) == "sums") return measure_sums();
  const auto world =
      etr::exchange::world_from([](const char* name) -> const char* { return std::getenv(name); });
  if (!world || world->engine.find("mpi") != 0) return run_alone(argc > 1 ? std::atoi(argv[1]) : 2);
  run_with_mpi(*world);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "exchange_bench: %s\n", error.what());
  return 1;
}
