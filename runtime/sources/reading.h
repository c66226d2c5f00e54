// How sources read local and remote files, according to the pipeline's options.
#pragma once

#include <algorithm>

#include "io/byte_stream.h"
#include "io/http.h"
#include "pipeline/stage.h"

namespace etr::sources {

inline io::RemoteOptions remote_options(const pipeline::StageContext& context) {
  io::RemoteOptions remote;
  if (context.interrupt)
    remote.cancelled = [interrupt = context.interrupt] { return interrupt->stopped(); };
  if (!context.pipeline) return remote;
  const Options& options = *context.pipeline;
  remote.connections = static_cast<int>(options.integer("remote_connections"));
  remote.part_bytes = static_cast<uint64_t>(options.integer("remote_part_bytes"));
  remote.retries = static_cast<int>(options.integer("remote_retries"));
  remote.low_speed_s = options.number("remote_low_speed_s");
  remote.timeout_s = options.number("remote_timeout_s");
  remote.cache_dir = options.string("remote_cache_dir");
  remote.budget_bytes = budget_bytes(context);
  if (has_budget(context)) {  // a quarter of it for what all sources read ahead
    constexpr uint64_t kLeast = uint64_t{64} << 10;
    const uint64_t share = remote.budget_bytes / 4 / context.sharers / (remote.parts_ahead() + 1);
    remote.part_bytes = std::min(remote.part_bytes, std::max(share, kLeast));
  }
  remote.cache_bytes = static_cast<uint64_t>(options.integer("remote_cache_bytes"));
  return remote;
}

inline io::ReadOptions read_options(const pipeline::StageContext& context) {
  io::ReadOptions out;
  out.remote = remote_options(context);
  out.interrupt = context.interrupt;
  out.budget_bytes = budget_bytes(context);
  out.only_files = context.trial;
  return out;
}

// The memory limit of a record without a more specific option.
constexpr uint64_t kMostRecordBytes = uint64_t{1} << 31;
inline io::SizeLimit record_limit(const pipeline::StageContext& context) {
  return {kMostRecordBytes, "the limit of a record", budget_bytes(context)};
}

// The memory limit of a record: the option of this name, or the budget if less.
inline io::SizeLimit size_limit(const Options& options, const char* option,
                                const pipeline::StageContext& context) {
  return {static_cast<uint64_t>(options.integer(option)), option, budget_bytes(context)};
}

}  // namespace etr::sources
