// Which ranks go on when others are lost, and keys that can be created only once.
#include "exchange/succession.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>

#include "exchange/failure.h"
#include "exchange/ranks.h"
#include "support/error_text.h"
#include "support/free_port.h"
#include "support/temp_dir.h"

namespace etr::test {
namespace {

using exchange::Store;
using exchange::Succession;

std::unique_ptr<Succession> member(const TempDir& dir, double timeout_s) {
  return std::make_unique<Succession>(exchange::file_store(dir.path("store")), "g", timeout_s);
}

std::vector<std::unique_ptr<Succession>> group(const TempDir& dir, int size, double timeout_s) {
  std::vector<std::unique_ptr<Succession>> out;
  std::vector<std::string> names;
  for (int rank = 0; rank < size; ++rank) {
    out.push_back(member(dir, timeout_s));
    names.push_back(out.back()->id());
  }
  for (auto& one : out) one->begin(names);
  return out;
}

struct Outcome {
  Succession::Place place;
  std::string error;
};

std::future<Outcome> succeed(Succession& one, std::vector<int> lost, int least = 1) {
  return std::async(std::launch::async, [&one, lost, least] {
    Outcome out;
    out.error = error_text([&] { out.place = one.succeed(lost, least); });
    return out;
  });
}

TEST(Succession, SurvivorsTakeTheNextPlacesInTheirOrder) {
  TempDir dir;
  const auto ranks = group(dir, 4, 30);
  std::vector<std::future<Outcome>> outcomes;
  for (const size_t rank : {0, 2, 3}) outcomes.push_back(succeed(*ranks[rank], {1}));
  std::string name;
  for (int next = 0; next < 3; ++next) {
    const Outcome outcome = outcomes[static_cast<size_t>(next)].get();
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.place.rank, next);
    EXPECT_EQ(outcome.place.size, 3);
    if (next == 0) name = outcome.place.group;
    EXPECT_EQ(outcome.place.group, name);
  }
}

TEST(Succession, TheNextGroupFormsHoweverLongTheNameOfTheFirst) {
  TempDir dir;
  exchange::World world;
  world.name = std::string(100, 'n');
  exchange::open_group(world);  // the longest name that there is
  Succession one(exchange::file_store(dir.path("store")), world.name, 30);
  one.begin({one.id(), "lost"});
  world.name = one.succeed({1}, 1).group;
  EXPECT_EQ(error_text([&] { exchange::open_group(world); }), "");
}

// Each part thinks that the other one is dead, and both see the store.
TEST(Succession, OfTwoPartsOneGoesOn) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    TempDir dir;
    const auto ranks = group(dir, 5, 30);
    std::vector<std::future<Outcome>> outcomes;
    for (size_t rank = 0; rank < 5; ++rank)
      outcomes.push_back(
          succeed(*ranks[rank], rank < 2 ? std::vector<int>{2, 3, 4} : std::vector<int>{0, 1}));
    for (int rank = 0; rank < 5; ++rank) {
      const Outcome outcome = outcomes[static_cast<size_t>(rank)].get();
      if (rank < 2) {
        EXPECT_NE(outcome.error.find("the run continues without this rank"), std::string::npos)
            << outcome.error;
      } else {
        EXPECT_EQ(outcome.error, "") << "the majority";
        EXPECT_EQ(outcome.place.size, 3);
      }
    }
  }
}

// A minority goes on if it hears nothing from the majority until the time-out.
TEST(Succession, AMinorityWaitsForTheOthers) {
  TempDir dir;
  const auto ranks = group(dir, 3, 0.5);
  const auto began = std::chrono::steady_clock::now();
  const Outcome alone = succeed(*ranks[2], {0, 1}).get();
  EXPECT_EQ(alone.error, "");
  EXPECT_EQ(alone.place.size, 1);
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(500));
}

// Rank 2 is lost. Rank 0 learns of it first and leaves the group, so rank 1 thinks that rank 0 is
// lost, too.
TEST(Succession, WhoHasLeftToGoOnIsNotLost) {
  TempDir dir;
  const auto ranks = group(dir, 3, 30);
  auto first = succeed(*ranks[0], {2}), second = succeed(*ranks[1], {0, 2});
  EXPECT_EQ(first.get().place.size, 2);
  EXPECT_EQ(second.get().place.rank, 1);
}

// Rank 2 comes back after the others have gone on.
TEST(Succession, WhoComesLateLearnsThatTheOthersHaveGoneOn) {
  TempDir dir;
  const auto ranks = group(dir, 3, 30);
  auto first = succeed(*ranks[0], {2}), second = succeed(*ranks[1], {2});
  EXPECT_EQ(first.get().error, "");
  EXPECT_EQ(second.get().error, "");
  EXPECT_NE(succeed(*ranks[2], {0, 1}).get().error.find("continues without this rank"),
            std::string::npos);
}

TEST(Succession, TooFewDoNotGoOn) {
  TempDir dir;
  const auto ranks = group(dir, 3, 0.5);
  const std::string error = succeed(*ranks[0], {1, 2}, 2).get().error;
  EXPECT_NE(error.find("ranks 1 and 2 of 3 are lost: 1 rank would go on, and min_ranks is 2"),
            std::string::npos)
      << error;
}

TEST(Succession, NewcomersJoinWhenTheyAreCalled) {
  TempDir dir;
  const auto ranks = group(dir, 2, 30);
  const auto joins = [&dir] {
    const auto one = member(dir, 30);
    return one->join(30);
  };
  auto one = std::async(std::launch::async, joins), other = std::async(std::launch::async, joins);
  std::vector<std::string> came;
  while (came.size() < 2)
    for (const std::string& word : ranks[0]->newcomers()) came.push_back(word);
  ranks[0]->admit(came);
  for (int rank = 0; rank < 2; ++rank) {
    const auto place = ranks[static_cast<size_t>(rank)]->follow();
    EXPECT_EQ(place.rank, rank);
    EXPECT_EQ(place.size, 4);
  }
  EXPECT_EQ(one.get().rank + other.get().rank, 2 + 3);
}

// The first rank may save a checkpoint between the call and the admission, for however long.
TEST(Succession, ANewcomerThatWasCalledIsAdmittedLater) {
  TempDir dir;
  const auto ranks = group(dir, 1, 0.1);
  auto joins = std::async(std::launch::async, [&dir] {
    Outcome out;
    out.error = error_text([&] { out.place = member(dir, 0.1)->join(60); });
    return out;
  });
  std::vector<std::string> came;
  while (came.empty()) came = ranks[0]->newcomers();
  std::this_thread::sleep_for(std::chrono::milliseconds(3600));  // it waits for 3.1 s
  ranks[0]->admit(came);
  EXPECT_EQ(ranks[0]->follow().size, 2);
  const Outcome newcomer = joins.get();
  EXPECT_EQ(newcomer.error, "");
  EXPECT_EQ(newcomer.place.rank, 1);
  EXPECT_TRUE(ranks[0]->newcomers().empty()) << "it is a member, though it is on the list again";
}

// Counts how often the answers of newcomers are looked for.
class CountingStore : public Store {
 public:
  CountingStore(std::unique_ptr<Store> store, int& looks)
      : store_(std::move(store)), looks_(looks) {}
  void set(const std::string& key, const std::string& value) override { store_->set(key, value); }
  bool create(const std::string& key, const std::string& value) override {
    return store_->create(key, value);
  }
  std::optional<std::string> get(const std::string& key) override {
    if (key.find(".here.") != std::string::npos) ++looks_;
    return store_->get(key);
  }
  void remove(const std::string& key) override { store_->remove(key); }

 private:
  const std::unique_ptr<Store> store_;
  int& looks_;
};

// The other ranks wait for the first one, and would take it for lost after their time-out. It looks
// every 10 ms, on a busy machine less often.
TEST(Succession, ANewcomerThatDiedKeepsTheRanksForLessThanTheTimeOut) {
  TempDir dir;
  int looks = 0;
  Succession first(std::make_unique<CountingStore>(exchange::file_store(dir.path("store")), looks),
                   "g", 0.2);
  first.begin({first.id()});
  exchange::file_store(dir.path("store"))->set("g." + first.id() + ".list.0", "dead");
  EXPECT_TRUE(first.newcomers().empty());
  EXPECT_LT(looks, 20);
}

TEST(Succession, NewcomersAreToldThatThereIsNoRun) {
  TempDir dir;
  EXPECT_NE(error_text([&] { member(dir, 1)->join(0.05); }).find("there was no run to join"),
            std::string::npos);
  const auto ranks = group(dir, 1, 1);
  auto waiting =
      std::async(std::launch::async, [&] { return error_text([&] { member(dir, 1)->join(60); }); });
  const auto is_listed = [&] {
    for (const auto& file : std::filesystem::directory_iterator(dir.path("store")))
      if (file.path().filename().string().find(".list.0") != std::string::npos) return true;
    return false;
  };
  while (!is_listed()) std::this_thread::yield();
  ranks[0]->end();
  EXPECT_NE(waiting.get().find("ended before it admitted"), std::string::npos);
}

// Of many that try to create the same key, exactly one succeeds.
void expect_given_once(const std::function<std::unique_ptr<Store>()>& open) {
  std::vector<std::future<bool>> attempts;
  for (int i = 0; i < 8; ++i)
    attempts.push_back(std::async(
        std::launch::async, [&open, i] { return open()->create("name", std::to_string(i)); }));
  int given = 0, by = -1;
  for (int i = 0; i < 8; ++i)
    if (attempts[static_cast<size_t>(i)].get()) {
      ++given;
      by = i;
    }
  EXPECT_EQ(given, 1);
  EXPECT_EQ(open()->get("name"), std::to_string(by));
}

TEST(Stores, GiveANameOnce) {
  TempDir dir;
  expect_given_once([&] { return exchange::file_store(dir.path("store")); });
  for (const auto& file : std::filesystem::directory_iterator(dir.path("store")))
    EXPECT_EQ(file.path().filename(), "name") << "nothing else is left";
  const std::string address = cat("127.0.0.1:", free_port());
  const auto server = exchange::tcp_store(address, true, 10);
  expect_given_once([&] { return exchange::tcp_store(address, false, 10); });
}

// A client that goes too far is dropped. The others' values remain, and there is room again.
TEST(Stores, AValueThatFindsNoRoomChangesNothing) {
  const std::string address = cat("127.0.0.1:", free_port());
  const auto server = exchange::tcp_store(address, true, 10);
  const std::string part(1000000, 'x');
  const auto fill = [&] {
    const auto store = exchange::tcp_store(address, false, 10);
    for (int i = 0; i < 270; ++i) store->set(cat("part", i), part);
  };
  server->set("name", "here");
  EXPECT_NE(error_text(fill), "");
  const auto other = exchange::tcp_store(address, false, 10);
  EXPECT_NE(error_text([&] { other->set("name", part); }), "");
  EXPECT_EQ(server->get("name"), "here");
  server->remove("part0");
  EXPECT_EQ(error_text([&] { server->set("name", part); }), "");
}

// The store of rank 0 while its process is stopped, as by a debugger.
TEST(Stores, OneThatDoesNotAnswerIsNotAskedAgain) {
  const std::string address = cat("127.0.0.1:", free_port());
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t rank_0 = ::fork();
  if (rank_0 == 0) {
    ::alarm(300);
    const auto store = exchange::tcp_store(address, /*serve=*/true, 60);
    while (::write(ready[1], "", 1) == 1) ::pause();
    ::_exit(0);
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  constexpr double kPatience = 8;  // seconds
  constexpr int kKeys = 20;
  const auto store = exchange::tcp_store(address, /*serve=*/false, kPatience);
  store->set("name", "here");
  ::kill(rank_0, SIGSTOP);
  ASSERT_EQ(::waitpid(rank_0, nullptr, WUNTRACED), rank_0);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kKeys; ++i) {
    const std::string error = error_text([&] { store->get("name"); });
    EXPECT_NE(error.find(cat("the store of rank 0 at ", address, " does not answer")),
              std::string::npos)
        << error;
    store->remove("name");
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), kKeys * kPatience) << "each question waited";
  ::kill(rank_0, SIGKILL);
  ::waitpid(rank_0, nullptr, 0);
  for (const int end : ready) ::close(end);
}

}  // namespace
}  // namespace etr::test
