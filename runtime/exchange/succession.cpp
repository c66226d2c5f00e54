#include "exchange/succession.h"

#include <algorithm>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "core/text.h"
#include "exchange/failure.h"
#include "exchange/word.h"

namespace etr::exchange {
namespace {

constexpr auto kCallPoll = std::chrono::milliseconds(10);  // how often the store is polled
constexpr auto kSettle = std::chrono::milliseconds(300);   // for ranks that were taken for lost
constexpr auto kAnswer = std::chrono::seconds(3);          // for newcomers to answer a call

size_t place_of(const std::vector<std::string>& list, const std::string& word) {
  return static_cast<size_t>(std::find(list.begin(), list.end(), word) - list.begin());
}

bool has(const std::vector<std::string>& list, const std::string& word) {
  return place_of(list, word) < list.size();
}

}  // namespace

Succession::Succession(std::unique_ptr<Store> store, std::string name, double timeout_s)
    : store_(std::move(store)),
      name_(std::move(name)),
      id_(new_word()),
      timeout_(clock_duration(timeout_s)) {}

std::string Succession::claim_key(uint64_t generation) const {
  return key(cat(generation, ".members"));
}

std::string Succession::ready_key(uint64_t generation, const std::string& member) const {
  return key(cat(generation, ".ready.", member));
}

std::string Succession::here_key(uint64_t generation, const std::string& member) const {
  return key(cat(generation, ".here.", member));
}

void Succession::begin(std::vector<std::string> members) {
  members_ = std::move(members);
  run_ = members_.front();
  if (run_ == id_) store_->set(run_key(), run_);
}

// Returns whether `part` is a majority. Half of the ranks are one if they include the first.
bool Succession::is_majority(const std::vector<std::string>& part) const {
  const size_t twice = 2 * part.size();
  return twice > members_.size() || (twice == members_.size() && has(part, members_.front()));
}

void Succession::claim(const std::vector<std::string>& members) {
  std::string text = std::to_string(next_place_);
  for (const std::string& member : members) text += " " + member;
  store_->create(claim_key(generation_ + 1), text);
}

std::optional<Succession::Place> Succession::claimed(uint64_t generation) {
  const auto text = store_->get(claim_key(generation));
  if (!text) return std::nullopt;
  auto words = words_of(*text);
  if (words.empty()) fail(Code::corrupt_data, "the list of a group's members is damaged: ", *text);
  std::vector<std::string> members(words.begin() + 1, words.end());
  const size_t own = place_of(members, id_);
  if (own == members.size()) return Place{"", -1, static_cast<int>(members.size())};
  next_place_ = static_cast<uint64_t>(parse_integer(words[0], "a list's length"));
  generation_ = generation;
  members_ = std::move(members);
  // The run's word is unique. With the first group's name, which may be as long as a name can be,
  // this name would be too long.
  return Place{cat(run_, ".", generation_), static_cast<int>(own),
               static_cast<int>(members_.size())};
}

// Returns for each member whether it is ready to go on. A member counts as absent only if this rank
// and that member have each lost the other.
std::vector<bool> Succession::present(const std::vector<bool>& lost) {
  std::vector<bool> out;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    const auto theirs = store_->get(ready_key(generation_ + 1, members_[rank]));
    out.push_back(theirs && !(lost[rank] && has(words_of(*theirs), id_)));
  }
  return out;
}

Succession::Place Succession::succeed(const std::vector<int>& lost, int least) {
  std::vector<bool> is_lost(members_.size());
  std::string names;
  for (const int rank : lost) is_lost.at(static_cast<size_t>(rank)) = true;
  if (is_lost[place_of(members_, id_)]) is_lost.assign(members_.size(), false);
  for (size_t rank = 0; rank < members_.size(); ++rank)
    if (is_lost[rank]) names += " " + members_[rank];
  store_->set(ready_key(generation_ + 1, id_), names);
  const auto began = Clock::now();
  auto complete = Clock::time_point::max();  // when all ranks not taken for lost were present
  while (true) {
    if (const auto place = claimed(generation_ + 1)) {
      if (place->rank >= 0) return *place;
      throw RankLost(
          cat("the run continues without this rank: the others, now ", counted(place->size, "rank"),
              ", considered it lost and formed a group of their own"),
          lost);
    }
    const std::vector<bool> here = present(is_lost);
    std::vector<std::string> part;
    std::vector<int> absent;
    bool all = true;
    for (size_t rank = 0; rank < here.size(); ++rank) {
      if (here[rank])
        part.push_back(members_[rank]);
      else
        absent.push_back(static_cast<int>(rank));
      all = all && (here[rank] || is_lost[rank]);
    }
    const auto now = Clock::now();
    complete = all ? std::min(complete, now) : Clock::time_point::max();
    const auto due = std::min(complete, began + timeout_) +
                     (is_majority(part) ? Clock::duration(kSettle) : timeout_);
    if (now < due) {
      std::this_thread::sleep_for(kCallPoll);
      continue;
    }
    if (static_cast<int>(part.size()) < least)
      throw RankLost(cat(ranks_text(absent), " of ", members_.size(),
                         absent.size() == 1 ? " is lost: " : " are lost: ",
                         counted(static_cast<int64_t>(part.size()), "rank"),
                         " would go on, and min_ranks is ", least),
                     absent);
    claim(part);
  }
}

std::vector<std::string> Succession::newcomers() {
  std::vector<std::string> called, came;
  while (const auto word = store_->get(key(cat("list.", next_place_)))) {
    if (!has(members_, *word)) called.push_back(*word);
    ++next_place_;
  }
  const uint64_t next = generation_ + 1;
  for (const std::string& word : called) store_->set(key("call." + word), std::to_string(next));
  // Meanwhile the other ranks wait to be told how many came, for the time-out at most.
  for (const auto deadline = Clock::now() + std::min<Clock::duration>(kAnswer, timeout_ / 2);
       came.size() < called.size() && Clock::now() < deadline;
       std::this_thread::sleep_for(kCallPoll))
    for (const std::string& word : called)
      if (!has(came, word) && store_->get(here_key(next, word))) came.push_back(word);
  return came;
}

void Succession::admit(const std::vector<std::string>& newcomers) {
  std::vector<std::string> all = members_;
  all.insert(all.end(), newcomers.begin(), newcomers.end());
  claim(all);
}

Succession::Place Succession::follow() {
  for (const auto deadline = Clock::now() + timeout_; Clock::now() < deadline;
       std::this_thread::sleep_for(kCallPoll))
    if (const auto place = claimed(generation_ + 1); place && place->rank >= 0) return *place;
  throw RankLost("rank 0 did not say who belongs to the next group", {0});
}

void Succession::enter_list() {
  for (uint64_t place = 0; !store_->create(key(cat("list.", place)), id_);) ++place;
}

// Returns nothing if it is not admitted by then. It may be later, while it waits for another call:
// the first rank may save a checkpoint in between.
std::optional<Succession::Place> Succession::answer_call(Clock::time_point deadline) {
  const auto called = store_->get(key("call." + id_));
  if (called) {
    store_->remove(key("call." + id_));
    called_ = static_cast<uint64_t>(parse_integer(*called, "a generation"));
    store_->set(here_key(called_, id_), "1");
    const auto due = std::min(deadline, Clock::now() + kAnswer + timeout_);
    while (!store_->get(claim_key(called_)) && Clock::now() < due)
      std::this_thread::sleep_for(kCallPoll);
  }
  const auto place = called_ > 0 ? claimed(called_) : std::nullopt;
  if (place && place->rank >= 0) return place;
  if (called) {
    store_->remove(here_key(called_, id_));
    enter_list();
  }
  if (place) called_ = 0;  // the generation formed without this process
  return std::nullopt;
}

Succession::Place Succession::join(double timeout_s) {
  const auto deadline = deadline_after(timeout_s);
  for (; Clock::now() < deadline; std::this_thread::sleep_for(kCallPoll)) {
    const auto run = store_->get(run_key());
    if (!run && !run_.empty())
      fail(Code::state,
           "the run that this rank was waiting to join ended before it admitted the rank");
    if (!run) continue;
    if (run_ != *run) {
      run_ = *run;
      called_ = 0;
      enter_list();
    }
    if (const auto place = answer_call(deadline)) return *place;
  }
  fail(Code::io, run_.empty() ? "there was no run to join" : "no run admitted this rank",
       " within ", timeout_s,
       " s: runs admit ranks at the end of an epoch (parallel.join_timeout)");
}

void Succession::end() noexcept {
  try {
    store_->remove(run_key());
  } catch (const std::exception&) {
    // The store has already gone.
  }
}

}  // namespace etr::exchange
