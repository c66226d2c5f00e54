#include "warnings.h"

#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "echotrain/echotrain.h"

namespace cli {
namespace {

// Whether to print it. Called from many threads.
bool is_news(const std::string& message, BadRecords bad_records) {
  static std::mutex mutex;
  static std::set<std::string> shown;
  static size_t bad_ones = 0;
  constexpr size_t kMostBadOnes = 20, kMost = 1000;
  const bool is_bad_record = message.rfind("bad record", 0) == 0;
  if (is_bad_record && bad_records == BadRecords::hidden) return false;
  const std::scoped_lock lock(mutex);
  if (is_bad_record && bad_ones == kMostBadOnes) return false;
  if (shown.size() == kMost) return true;
  if (!shown.insert(message).second) return false;
  if (is_bad_record && ++bad_ones == kMostBadOnes)
    std::fprintf(stderr, "echotrain: many bad records; further ones are counted and not shown\n");
  return true;
}

template <BadRecords bad_records>
void print_log(void*, int32_t level, const char* message) {
  if (level < ETR_LOG_WARNING || !is_news(message, bad_records)) return;
  const bool over_progress = ::isatty(STDERR_FILENO) && ::isatty(STDOUT_FILENO);
  std::fprintf(stderr, "%sechotrain: %s\n", over_progress ? "\r\033[K" : "", message);
}

}  // namespace

void print_warnings(BadRecords bad_records) {
  const bool shown = bad_records == BadRecords::shown;
  etr_set_log_hook(shown ? print_log<BadRecords::shown> : print_log<BadRecords::hidden>, nullptr,
                   nullptr);
}

}  // namespace cli
