#include "exchange/failure.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace etr::exchange {

std::string ranks_text(std::span<const int> ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) out += i + 1 == ranks.size() ? " and " : ", ";
    out += std::to_string(ranks[i]);
  }
  return out;
}

std::string absence_text(std::span<const int> missing, const char* operation, uint64_t ordinal,
                         double timeout_s) {
  return cat(ranks_text(missing), " did not come to ", operation, ", operation ", ordinal,
             " of this group, within ", timeout_s, " s");
}

void copy_message(std::string_view message, etr_engine_error* out) {
  size_t size = std::min(message.size(), sizeof out->message - 1);
  if (size < message.size())
    while (size > 0 && (static_cast<unsigned char>(message[size]) & 0xC0) == 0x80) --size;
  std::memcpy(out->message, message.data(), size);
  out->message[size] = '\0';
}

int32_t describe(const std::exception& error, etr_engine_error* out) noexcept {
  copy_message(error.what(), out);
  out->missing_count = 0;
  if (const auto* lost = dynamic_cast<const RankLost*>(&error)) {
    for (const int rank : lost->missing()) {
      if (out->missing_count < ETR_ENGINE_MISSING_MAX) out->missing[out->missing_count] = rank;
      ++out->missing_count;
    }
  }
  if (const auto* typed = dynamic_cast<const Error*>(&error))
    return static_cast<int>(typed->code());
  if (dynamic_cast<const std::bad_alloc*>(&error)) return static_cast<int>(Code::out_of_memory);
  return static_cast<int>(Code::internal);
}

int32_t guarded(etr_engine_error* error, const std::function<void()>& body) noexcept {
  try {
    body();
    return static_cast<int32_t>(Code::ok);
  } catch (const std::exception& thrown) {
    return describe(thrown, error);
  }
}

std::span<const int> missing_of(const etr_engine_error& error) {
  const auto listed = std::clamp<int32_t>(error.missing_count, 0, ETR_ENGINE_MISSING_MAX);
  return {error.missing, static_cast<size_t>(listed)};
}

void raise(int32_t status, const etr_engine_error& error) {
  const size_t length = strnlen(error.message, sizeof error.message);
  const std::string message(error.message, length);
  if (status == static_cast<int32_t>(Code::rank_lost)) {
    const std::span<const int> missing = missing_of(error);
    throw RankLost(message, {missing.begin(), missing.end()});
  }
  throw Error(status < 0 ? static_cast<Code>(status) : Code::internal, message);
}

}  // namespace etr::exchange
