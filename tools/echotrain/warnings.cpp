#include "warnings.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "echotrain/echotrain.h"
#include "rank.h"
#include "terminal.h"

namespace cli {
namespace {

enum class Verdict { drop, print, print_as_last };  // as_last: the last bad record that is shown

// Called from many threads.
Verdict verdict_on(const std::string& message, BadRecords bad_records) {
  static std::mutex mutex;
  static std::set<std::string> shown;
  static size_t bad_ones = 0;
  constexpr size_t kMostBadOnes = 20, kMost = 1000;
  const bool is_bad_record = etr_log_subject() == ETR_LOG_ABOUT_BAD_RECORD;
  if (is_bad_record && bad_records == BadRecords::hidden) return Verdict::drop;
  const std::scoped_lock lock(mutex);
  if (is_bad_record && bad_ones == kMostBadOnes) return Verdict::drop;
  if (shown.size() == kMost) return Verdict::print;
  if (!shown.insert(message).second) return Verdict::drop;
  return is_bad_record && ++bad_ones == kMostBadOnes ? Verdict::print_as_last : Verdict::print;
}

void print_log(void* user_data, int32_t level, const char* message) {
  if (level < ETR_LOG_WARNING && etr_log_subject() != ETR_LOG_ABOUT_PARTITION) return;
  const Verdict verdict = verdict_on(message, *static_cast<const BadRecords*>(user_data));
  if (verdict == Verdict::drop) return;
  const bool over_progress = errors_are_on_terminal() && output_is_terminal();
  std::fprintf(stderr, "%s%sechotrain: %s\n", over_progress ? "\r\033[K" : "",
               rank_prefix().c_str(), message);
  if (verdict == Verdict::print_as_last)
    std::fprintf(stderr, "echotrain: many bad records; further ones are counted and not shown\n");
}

}  // namespace

void print_warnings(BadRecords bad_records) {
  // static, because threads may still read the old one
  static BadRecords choices[] = {BadRecords::shown, BadRecords::hidden};
  etr_set_log_hook(print_log, &choices[bad_records == BadRecords::hidden], nullptr);
}

}  // namespace cli
