#include "train/profile.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "core/error.h"
#include "core/format_text.h"
#include "core/json.h"
#include "gpu/recording.h"
#include "ops/op.h"

namespace etr::train {
namespace {

struct Row {
  std::string op, kernel;
  int calls = 0;
  double seconds = 0, flops = 0, bytes = 0;
};

// Returns the label, kernel, operations and bytes of one command.
Row command_row(const gpu::Command& command) {
  if (const auto* dispatch = std::get_if<gpu::Dispatch>(&command)) {
    Row row{dispatch->label, gpu::kernel_name(*dispatch->kernel), 1, 0, dispatch->flops, 0};
    for (const gpu::Binding& binding : dispatch->bindings)
      row.bytes += static_cast<double>(binding.buffer.size_bytes) *
                   (binding.access == gpu::Access::read_write ? 2 : 1);
    return row;
  }
  if (const auto* copy = std::get_if<gpu::Copy>(&command))
    return {"copies", "copy", 1, 0, 0, 2.0 * static_cast<double>(copy->from.size_bytes)};
  return {"copies", "fill", 1,
          0,        0,      static_cast<double>(std::get<gpu::Fill>(command).to.size_bytes)};
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Returns the median time of each command over the runs.
std::vector<double> times_of(gpu::Kernels& kernels, const gpu::CommandList& commands, int runs) {
  gpu::Recording recording(kernels.device(), commands, /*timed=*/true,
                           gpu::parts_for(*kernels.device(), commands, 0));
  std::vector<std::vector<double>> seconds(commands.size());
  for (int run = -1; run < runs; ++run) {  // the first compiles
    recording.submit();
    recording.wait();
    if (recording.command_seconds().size() != commands.size())
      fail(Code::unsupported, "device '", kernels.device()->info().name,
           "' has no timestamps: there is nothing to profile by");
    for (size_t i = 0; run >= 0 && i < commands.size(); ++i)
      seconds[i].push_back(recording.command_seconds()[i]);
  }
  std::vector<double> out;
  for (const auto& of_command : seconds) out.push_back(median(of_command));
  return out;
}

// Returns the highest rate of a command that does so much `work`. A GPU that was idle takes some
// tenths of a second until its clocks have risen.
double rate_of(gpu::Kernels& kernels, const gpu::Command& command, double work) {
  using Clock = std::chrono::steady_clock;
  const bool cpu = kernels.device()->info().kind == gpu::DeviceKind::cpu;
  const auto begin = Clock::now();
  const auto passed = [&](double seconds) {
    return Clock::now() - begin > std::chrono::duration<double>(seconds);
  };
  double best = 0;
  for (bool settled = false; !settled;) {
    const double rate = work / times_of(kernels, {command}, 5).front();
    settled = cpu || (passed(1) && rate < 1.02 * best) || passed(3);
    best = std::max(best, rate);
  }
  return best;
}

}  // namespace

Roof measure_roof(gpu::Kernels& kernels) {
  const bool cpu = kernels.device()->info().kind == gpu::DeviceKind::cpu;
  gpu::Arena arena(kernels.device(), gpu::MemoryUse::device);
  gpu::CommandList commands;
  ops::Emitter emit(kernels, arena, commands);
  const uint32_t invocations = cpu ? 1 << 14 : 1 << 20, count = cpu ? 250 : 1000;
  const ops::DeviceTensor y = emit.scratch({invocations});
  const struct {
    uint32_t count;
    float scale;
  } push{count, 0.5f};
  emit.dispatch("roof", {ops::writes(y)}, push, {invocations / 64, 1, 1});
  const int64_t floats = cpu ? 8 << 20 : 64 << 20;
  const uint64_t most = kernels.device()->info().max_storage_bytes / 4;
  const ops::DeviceTensor a = emit.scratch({std::min(floats, static_cast<int64_t>(most))});
  const ops::DeviceTensor b = emit.scratch(a.shape);
  const auto vectors = static_cast<uint32_t>(a.count() / 4);
  if (kernels.device()->family() == gpu::KernelFamily::cpu)
    emit.add(gpu::Copy{a.buffer, b.buffer});
  else  // an NVIDIA driver's own copies reach a fifth of this
    emit.for_each("roof_copy", {ops::reads(a), ops::writes(b)}, vectors, vectors);
  return {rate_of(kernels, commands[0], 2.0 * 128 * count * invocations),
          rate_of(kernels, commands[1], 2.0 * static_cast<double>(a.buffer.size_bytes))};
}

Json profile_commands(gpu::Kernels& kernels, const gpu::CommandList& commands, int runs) {
  const Roof roof = measure_roof(kernels);
  const std::vector<double> seconds = times_of(kernels, commands, runs);
  std::map<std::pair<std::string, std::string>, Row> rows;
  Json events = Json::array();
  double total = 0;
  for (size_t i = 0; i < commands.size(); ++i) {
    const Row row = command_row(commands[i]);
    Row& sum = rows[{row.op, row.kernel}];
    sum.op = row.op, sum.kernel = row.kernel;
    sum.calls += 1;
    sum.seconds += seconds[i];
    sum.flops += row.flops;
    sum.bytes += row.bytes;
    events.push_back({{"name", row.op + ": " + row.kernel},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", 1},
                      {"ts", total * 1e6},
                      {"dur", seconds[i] * 1e6}});
    total += seconds[i];
  }
  std::vector<Row> sorted;
  for (const auto& [key, row] : rows) sorted.push_back(row);
  std::sort(sorted.begin(), sorted.end(),
            [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  Json ops = Json::array();
  for (const Row& row : sorted) {
    const double time = std::max(row.seconds, 1e-9);
    const double flops = row.flops / time, bytes = row.bytes / time;
    ops.push_back({{"op", row.op},
                   {"kernel", row.kernel},
                   {"calls", row.calls},
                   {"seconds", row.seconds},
                   {"flops_per_s", flops},
                   {"bytes_per_s", bytes},
                   {"of_roof", std::max(flops / roof.flops_per_s, bytes / roof.bytes_per_s)}});
  }
  return {{"device", kernels.device()->info().name},
          {"seconds", total},
          {"roof", {{"flops_per_s", roof.flops_per_s}, {"bytes_per_s", roof.bytes_per_s}}},
          {"ops", std::move(ops)},
          {"traceEvents", std::move(events)}};
}

namespace {

constexpr size_t kShown = 20;  // rows of the text table

double number(const Json& row, const char* key) { return row[key].get<double>(); }

// Sums up the rows with the same kernel; rates are those of the sum.
Json by_kernel(const Json& profile) {
  std::map<std::string, Json> sums;
  for (const Json& row : profile["ops"]) {
    Json& sum = sums[row["kernel"].get<std::string>()];
    if (sum.is_null())
      sum = {{"kernel", row["kernel"]},
             {"calls", 0},
             {"seconds", 0.0},
             {"flops", 0.0},
             {"bytes", 0.0}};
    sum["calls"] = sum["calls"].get<int>() + row["calls"].get<int>();
    sum["flops"] = number(sum, "flops") + number(row, "flops_per_s") * number(row, "seconds");
    sum["bytes"] = number(sum, "bytes") + number(row, "bytes_per_s") * number(row, "seconds");
    sum["seconds"] = number(sum, "seconds") + number(row, "seconds");
  }
  Json rows = Json::array();
  for (auto& [name, sum] : sums) {
    const double seconds = std::max(number(sum, "seconds"), 1e-9);
    sum["flops_per_s"] = number(sum, "flops") / seconds;
    sum["bytes_per_s"] = number(sum, "bytes") / seconds;
    sum["of_roof"] = std::max(number(sum, "flops_per_s") / number(profile["roof"], "flops_per_s"),
                              number(sum, "bytes_per_s") / number(profile["roof"], "bytes_per_s"));
    rows.push_back(sum);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Json& x, const Json& y) {
    return number(x, "seconds") > number(y, "seconds");
  });
  return rows;
}

std::string table(const Json& rows, double total, const char* title) {
  std::string out = format_text("%9s %6s %6s %9s %7s %6s  %s\n", "ms", "share", "calls", "GFLOP/s",
                                "GB/s", "roof", title);
  for (size_t i = 0; i < std::min(rows.size(), kShown); ++i) {
    const Json& row = rows[i];
    const double flops = number(row, "flops_per_s");
    const std::string rate = flops > 0 ? format_text("%.1f", flops * 1e-9) : "";
    const std::string kernel = row["kernel"].get<std::string>();
    const std::string name =
        row.contains("op") ? row["op"].get<std::string>() + ": " + kernel : kernel;
    out +=
        format_text("%9.3f %5.1f%% %6d %9s %7.1f %5.0f%%  %s\n", number(row, "seconds") * 1e3,
                    100 * number(row, "seconds") / total, row["calls"].get<int>(), rate.c_str(),
                    number(row, "bytes_per_s") * 1e-9, 100 * number(row, "of_roof"), name.c_str());
  }
  if (rows.size() > kShown) out += cat("          and ", rows.size() - kShown, " more\n");
  return out;
}

}  // namespace

std::string profile_text(const Json& profile) {
  const double total = profile["seconds"];
  const std::string head = format_text(
      "a step on %s: %.1f ms in kernels, one after another\n"
      "roof: %.0f GFLOP/s, %.1f GB/s, reached by kernels that do nothing else\n\n",
      profile["device"].get<std::string>().c_str(), total * 1e3,
      number(profile["roof"], "flops_per_s") * 1e-9, number(profile["roof"], "bytes_per_s") * 1e-9);
  return head + table(by_kernel(profile), total, "kernel") + "\n" +
         table(profile["ops"], total, "op: kernel");
}

}  // namespace etr::train
