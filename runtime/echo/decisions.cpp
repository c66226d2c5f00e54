#include "echo/decisions.h"

#include <fstream>

#include "core/error.h"
#include "core/json.h"
#include "core/options.h"
#include "core/packed.h"

namespace etr::echo {

void Decisions::start_epoch(uint64_t epoch) {
  std::scoped_lock lock(mutex_);
  read_replay();
  epoch_ = epoch;
  made_[epoch] = {};
}

// A restored run writes on where it was restored: lines of the run it replaces that lie further on do not
// count any more.
void Decisions::read_replay() {
  if (replay_path_.empty() || std::exchange(replay_read_, true)) return;
  std::ifstream in(replay_path_);
  if (!in) fail(Code::io, "echo: cannot open the decisions to replay, '", replay_path_, "'");
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    const std::string where = cat("'", replay_path_, "', line ", ++number);
    try {
      const Json row = parse_json(line, where);
      const auto epoch = row.at("epoch").get<uint64_t>(), after = row.at("after").get<uint64_t>();
      Made& made = replay_[epoch];
      made.erase(made.lower_bound(after), made.end());
      replay_.erase(replay_.upper_bound(epoch), replay_.end());
      made[after] = row.at("value").get<uint64_t>();
    } catch (const nlohmann::json::exception&) {
      fail(Code::corrupt_data, where, " is not a decision of an echo node: ", line);
    }
  }
}

std::optional<uint64_t> Decisions::due(uint64_t after) {
  std::scoped_lock lock(mutex_);
  const auto epoch = replay_.find(epoch_);
  if (epoch == replay_.end()) return std::nullopt;
  const auto it = epoch->second.find(after);
  return it == epoch->second.end() ? std::nullopt : std::optional(it->second);
}

bool Decisions::replaying(uint64_t after) {
  std::scoped_lock lock(mutex_);
  if (!replay_path_.empty()) return true;
  const auto epoch = replay_.find(epoch_);
  return epoch != replay_.end() && epoch->second.lower_bound(after) != epoch->second.end();
}

void Decisions::note(uint64_t after, uint64_t value, const Json& details) {
  std::scoped_lock lock(mutex_);
  Made& made = made_[epoch_];
  if (made.empty() || made.rbegin()->first != after) write_line();
  made[after] = value;
  if (log_path_.empty()) return;
  Json row{{"epoch", epoch_}, {"after", after}, {"value", value}};
  if (details.is_object()) row.update(details);
  line_ = row.dump();
}

void Decisions::end_epoch() {
  std::scoped_lock lock(mutex_);
  write_line();
}

void Decisions::write_line() {
  if (line_.empty()) return;
  if (!log_) log_.emplace(log_path_, platform::OutputFile::Mode::append);
  log_->write(line_ + "\n");
  log_->flush();  // a run that is ended from outside leaves its decisions
  line_.clear();
}

Json Decisions::save(uint64_t epoch) const {
  std::scoped_lock lock(mutex_);
  std::vector<uint64_t> numbers;
  if (const auto it = made_.find(epoch); it != made_.end()) {
    uint64_t last = 0;
    for (const auto& [after, value] : it->second) {
      numbers.push_back(after - std::exchange(last, after));
      numbers.push_back(value);
    }
  }
  return pack_numbers(numbers);
}

void Decisions::load(uint64_t epoch, const Json& saved) {
  const std::vector<uint64_t> numbers = unpack_numbers(saved.get<std::string>());
  if (numbers.size() % 2 != 0)
    fail(Code::corrupt_data, "the saved decisions of an echo node are damaged");
  std::scoped_lock lock(mutex_);
  Made& made = replay_[epoch] = {};
  uint64_t after = 0;
  for (size_t i = 0; i < numbers.size(); i += 2) made[after += numbers[i]] = numbers[i + 1];
}

void Decisions::forget_before(uint64_t epoch) {
  std::scoped_lock lock(mutex_);
  made_.erase(made_.begin(), made_.lower_bound(epoch));
}

}  // namespace etr::echo
