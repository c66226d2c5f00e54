#include "exchange/meeting.h"

#include <algorithm>
#include <thread>

#include "core/text.h"
#include "exchange/word.h"

namespace etr::exchange {

namespace {

constexpr auto kJoinPoll = std::chrono::milliseconds(5);  // how often the store is polled

}  // namespace

Meeting::Meeting(Store& store, std::string name, int rank, int size)
    : store_(store), name_(std::move(name)), rank_(rank), size_(size) {}

std::string Meeting::join_key(int rank) const { return key(cat("join.", rank)); }

void Meeting::write(const std::string& what, const std::string& value) {
  store_.set(what, value);
  if (std::find(written_.begin(), written_.end(), what) == written_.end()) written_.push_back(what);
}

std::string Meeting::agree(Deadline deadline, double timeout_s) {
  word_ = new_word();
  write(join_key(rank_), cat(word_, " ", size_));
  while (true) {
    if (rank_ == 0 && absent().empty()) open_session();
    if (enter_session()) return session_;
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(kJoinPoll);
  }
  std::vector<int> missing = absent();
  if (missing.empty()) missing = {0};
  throw RankLost(cat(ranks_text(missing), " did not come to the group '", name_, "' of ", size_,
                     " within ", timeout_s, " s", other_size(missing)),
                 missing);
}

// Says of the first of these ranks that has an entry for another number of ranks that it has one.
std::string Meeting::other_size(const std::vector<int>& ranks) const {
  for (const int rank : ranks) {
    const auto parts = words_of(store_.get(join_key(rank)).value_or(""));
    if (parts.size() == 2 && parts[1] != std::to_string(size_))
      return cat(". The rendezvous has an entry of rank ", rank, " for a group of ", parts[1],
                 ": unless an earlier run left it, start all ranks with the same size");
  }
  return "";
}

// Returns whether the rank's word is newer than that of the last session. An entry for another
// number of ranks may be one that an earlier run left.
bool Meeting::has_joined(int rank) const {
  const auto joined = store_.get(join_key(rank));
  if (!joined) return false;
  const auto parts = words_of(*joined);
  if (parts.size() != 2 || parts[1] != std::to_string(size_)) return false;
  return words_.empty() || parts[0] != words_[static_cast<size_t>(rank)];
}

std::vector<int> Meeting::absent() const {
  std::vector<int> out;
  for (int r = 0; r < size_; ++r)
    if (!has_joined(r)) out.push_back(r);
  return out;
}

void Meeting::open_session() {
  std::string text = new_word();
  for (int r = 0; r < size_; ++r)
    text += " " + words_of(store_.get(join_key(r)).value_or("?")).at(0);
  write(key("session"), text);
}

bool Meeting::enter_session() {
  const auto opened = store_.get(key("session"));
  if (!opened) return false;
  auto parts = words_of(*opened);
  if (parts.size() != static_cast<size_t>(size_) + 1 ||
      parts[static_cast<size_t>(rank_) + 1] != word_)
    return false;
  session_ = parts[0];
  words_.assign(parts.begin() + 1, parts.end());
  return true;
}

// A rank that was restarted cannot mark the session. Rank 0 recognises it by its new word.
bool Meeting::given_up() const {
  if (const auto failed = get("failed")) {
    const int64_t rank = parse_integer(failed->substr(0, failed->find(' ')), "a rank");
    throw NeverJoins("rank " + *failed, {static_cast<int>(rank)});
  }
  if (get("given_up")) return true;
  if (rank_ != 0) return false;
  for (int r = 1; r < size_; ++r)
    if (store_.get(join_key(r)) && has_joined(r)) return true;
  return false;
}

void Meeting::give_up() { set("given_up", "1"); }

void Meeting::give_up_for_good(const std::string& why) {
  if (!get("failed")) set("failed", cat(rank_, " cannot join the group: ", why));
}

void Meeting::mark(const std::string& what) { set(cat(what, ".", rank_), "1"); }

std::vector<int> Meeting::unmarked(const std::string& what) const {
  std::vector<int> out;
  for (int r = 0; r < size_; ++r)
    if (!get(cat(what, ".", r))) out.push_back(r);
  return out;
}

void Meeting::set(const std::string& what, const std::string& value) {
  write(key(session_ + "." + what), value);
}

std::optional<std::string> Meeting::get(const std::string& what) const {
  return store_.get(key(session_ + "." + what));
}

void Meeting::set_formed() { store_.set(key(session_ + ".formed"), "1"); }

bool Meeting::formed() const { return get("formed").has_value(); }

void Meeting::forget(bool all) {
  if (all) store_.remove(key(session_ + ".formed"));
  for (const std::string& what : written_) store_.remove(what);
  written_.clear();
}

}  // namespace etr::exchange
