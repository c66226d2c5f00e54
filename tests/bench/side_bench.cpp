// EchoTrain's side of comparisons: prepares what a line of its input asks for, then runs it as
// often as asked, so that a program which has the other side (kernel_bench.py, gpu_train_bench.py)
// measures both in turns.
//
//   side_bench [--device D] [--kernels automatic|cpu|tiled|matrix]
//
// A line of JSON each way: {"case": "product", "m": 512, "n": 512, "k": 512} makes it ready and
// gives what side.h says; {"run": 20} runs it 20 times and gives {"seconds", "device_seconds"};
// {"save": FILE} writes what it has trained; {"case": "devices"} and {"case": "roof"} need no run.
// What goes wrong is {"error": "..."}, and the next line is served.
#include <cstring>
#include <iostream>
#include <map>

#include "core/error.h"
#include "core/log.h"
#include "core/options.h"
#include "core/platform.h"
#include "gpu/wide_vectors.h"
#include "side.h"
#include "train/profile.h"

namespace etr::bench {
namespace {

gpu::DeviceOptions options_of(int argc, char** argv) {
  gpu::DeviceOptions options;
  options.cache_directory = platform::cache_directory();
  options.compare = gpu::Compare::kernels;
  const std::map<std::string, gpu::KernelFamily> families = {
      {"automatic", gpu::KernelFamily::automatic},
      {"cpu", gpu::KernelFamily::cpu},
      {"tiled", gpu::KernelFamily::tiled},
      {"matrix", gpu::KernelFamily::matrix}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--device"))
      options.selector = argv[i + 1];
    else if (!std::strcmp(argv[i], "--kernels") && families.count(argv[i + 1]))
      options.family = families.at(argv[i + 1]);
    else
      fail(Code::invalid_argument, "'", argv[i], " ", argv[i + 1], "' is not understood");
  }
  return options;
}

Json json_of(const gpu::DeviceInfo& info) {
  Json units = Json::array();
  for (const gpu::MatrixUnit& unit : info.matrix_units)
    units.push_back({{"element", unit.bfloat16 ? "bfloat16" : "float16"},
                     {"m", unit.m},
                     {"n", unit.n},
                     {"k", unit.k}});
  return {{"index", info.index},
          {"name", info.name},
          {"driver", info.driver},
          {"kind", gpu::device_kind_name(info.kind)},
          {"vulkan", cat(info.api_major, ".", info.api_minor)},
          {"memory_bytes", info.memory_bytes},
          {"max_storage_bytes", info.max_storage_bytes},
          {"max_storage_buffers", info.max_storage_buffers},
          {"max_groups", info.max_groups},
          {"max_shared_bytes", info.max_shared_bytes},
          {"max_workgroup", info.max_workgroup},
          {"subgroup_size", info.subgroup_size},
          {"subgroup_broadcast", info.subgroup_broadcast},
          {"buffer_addresses", info.buffer_addresses},
          {"imports_memory", info.imports_memory},
          {"matrix_units", units},
          {"timestamp_period_ns", info.timestamp_period_ns},
          {"timestamp_bits", info.timestamp_bits}};
}

class Server {
 public:
  explicit Server(gpu::DeviceOptions options) : options_(std::move(options)) {}

  Json answer(const Json& request) {
    if (request.contains("run")) {
      if (!side_) fail(Code::state, "nothing is ready to run: a case comes first");
      return side_->run(request["run"].get<int>());
    }
    if (request.contains("save")) {
      if (!side_) fail(Code::state, "nothing has weights to save: a case comes first");
      side_->save(request["save"].get<std::string>());
      return Json::object();
    }
    const std::string what = request.at("case");
    side_.reset();  // its memory goes before the next takes some
    if (what == "devices") return devices();
    if (what == "roof") {
      const train::Roof roof = train::measure_roof(*kernels());
      return {{"flops_per_s", roof.flops_per_s}, {"bytes_per_s", roof.bytes_per_s}};
    }
    if (what == "kernels") return kernel_times(kernels(), request);
    side_ = make(what, request);
    return side_->describe();
  }

 private:
  std::unique_ptr<Side> make(const std::string& what, const Json& request) {
    if (what == "training") return make_training(options_, request);
    if (what == "product") return make_product(kernels(), request);
    if (what == "convolution") return make_convolution(kernels(), request);
    if (what == "attention") return make_attention(kernels(), request);
    if (what == "memory") return make_memory(kernels(), request);
    fail(Code::not_found, "there is no case '", what, "'");
  }

  const KernelsPtr& kernels() {
    if (!kernels_)
      kernels_ = std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(options_));
    return kernels_;
  }

  Json devices() {
    Json all = Json::array();
    for (const gpu::DeviceInfo& info : gpu::list_devices()) all.push_back(json_of(info));
    static const char* const kFamilies[] = {"automatic", "cpu", "tiled", "matrix"};
    return {{"devices", all},
            {"chosen", json_of(kernels()->device()->info())},
            {"kernels", kFamilies[static_cast<int>(kernels()->device()->family())]}};
  }

  const gpu::DeviceOptions options_;
  KernelsPtr kernels_;
  std::unique_ptr<Side> side_;
};

}  // namespace
}  // namespace etr::bench

int main(int argc, char** argv) {
  using namespace etr;
  gpu::prefer_wide_cpu_vectors();
  set_log_hook([](LogLevel level, const char* message) {
    if (level >= LogLevel::warning) std::cerr << message << std::endl;
  });
  try {
    bench::Server server(bench::options_of(argc, argv));
    for (std::string line; std::getline(std::cin, line);) {
      Json answer;
      try {
        answer = server.answer(parse_json(line, "the request"));
      } catch (const std::exception& error) {
        answer = {{"error", error.what()}};
      }
      std::cout << answer.dump() << std::endl;
    }
  } catch (const std::exception& error) {
    std::cerr << "side_bench: " << error.what() << std::endl;
    return 1;
  }
}
