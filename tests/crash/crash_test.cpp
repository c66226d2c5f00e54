// Power is lost between any two changes of the disk, and every call that changes it fails once: no
// checkpoint, document or shard is ever loaded wrongly, and what was saved stays saved.
//
// ECHOTRAIN_TEST_CRASHES sets how many random states of the disk are tried after each change.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include "checkpoint/store.h"
#include "core/error.h"
#include "core/platform_files.h"
#include "disk.h"
#include "io/fast_shard.h"
#include "io/tar_writer.h"
#include "support/error_text.h"
#include "support/temp_dir.h"

namespace etr::crash {
namespace {

namespace fs = std::filesystem;

constexpr int kSaves = 4;

int random_states() {
  const char* text = std::getenv("ECHOTRAIN_TEST_CRASHES");
  return text ? std::atoi(text) : 6;
}

// What is saved one after another, numbered from 1, and how it is loaded again.
struct Saved {
  std::function<void(const std::string& root, int number)> save;
  std::function<std::optional<int>(const std::string& root)> load;  // nothing: there is none
};

checkpoint::Files files_of(int number) {
  checkpoint::Files files;
  checkpoint::put_text(files, "state.json", "{\"number\": " + std::to_string(number) + "}");
  checkpoint::put_text(files, "weights.safetensors", std::string(static_cast<size_t>(500 * number), 'w'));
  return files;
}

// Checkpoints in a folder whose parents do not exist at first, as a new job's.
Saved checkpoints() {
  const auto store = [](const std::string& root) {
    return checkpoint::Store(root + "/runs/job/checkpoints");
  };
  return {[=](const std::string& root, int number) {
            store(root).save(static_cast<uint64_t>(10 * number), files_of(number));
          },
          [=](const std::string& root) -> std::optional<int> {
            const auto loaded = store(root).load_latest();
            if (!loaded) return std::nullopt;
            const int number = static_cast<int>(loaded->step) / 10;
            EXPECT_EQ(loaded->files, files_of(number)) << "a checkpoint is loaded wrongly";
            return number;
          }};
}

std::string document(int number) { return std::string(static_cast<size_t>(300 * number), 'd'); }

// A position or a study's description: one file that is replaced.
Saved documents() {
  return {[](const std::string& root, int number) {
            const std::string text = document(number);
            platform::write_file_atomic(root + "/position.json", std::as_bytes(std::span(text)));
          },
          [](const std::string& root) -> std::optional<int> {
            if (!fs::exists(root + "/position.json")) return std::nullopt;
            const std::string text = platform::read_file(root + "/position.json");
            const int number = static_cast<int>(text.size()) / 300;
            EXPECT_EQ(text, document(number)) << "a document is loaded wrongly";
            return number;
          }};
}

// A shard that is packed anew: one file that is written in pieces.
Saved shards(const std::function<void(const std::string& path, int number)>& write) {
  std::vector<std::string> made;
  for (int number = 1; number <= kSaves + 1; ++number) {
    const test::TempDir dir;
    write(dir.path("shard"), number);
    made.push_back(platform::read_file(dir.path("shard")));
  }
  return {[=](const std::string& root, int number) { write(root + "/shard", number); },
          [=](const std::string& root) -> std::optional<int> {
            if (!fs::exists(root + "/shard")) return std::nullopt;
            const auto same =
                std::find(made.begin(), made.end(), platform::read_file(root + "/shard"));
            EXPECT_NE(same, made.end()) << "a shard is there that is not whole";
            return static_cast<int>(same - made.begin()) + 1;
          }};
}

Saved tar_shards() {
  return shards([](const std::string& path, int number) {
    const std::string text = document(number);
    io::TarWriter writer(path, 0);
    writer.add("1.txt", std::as_bytes(std::span(text)));
    writer.finish();
  });
}

Saved fast_shards() {
  return shards([](const std::string& path, int number) {
    const std::string text = document(number);
    io::FastShardWriter writer(path);
    const io::FastShardWriter::Field fields[] = {{"txt", std::as_bytes(std::span(text)), 0}};
    writer.add("1", fields);
    writer.finish();
  });
}

// Loads what a crash has left, of which the saves up to `saved` had returned.
void check_state(const Tree& tree, const Saved& what, int saved, const std::string& where) {
  SCOPED_TRACE(where);
  const test::TempDir dir;
  const std::string root = dir.path("disk");
  put(tree, root);
  int loaded = 0;
  try {
    loaded = what.load(root).value_or(0);
  } catch (const Error& error) {
    if (saved > 0) ADD_FAILURE() << error.what();
  }
  EXPECT_GE(loaded, saved) << "what was saved is lost";
  what.save(root, kSaves + 1);
  EXPECT_EQ(what.load(root), kSaves + 1) << "nothing can be saved after the crash";
}

void crash_everywhere(const Saved& what) {
  const test::TempDir dir;
  const std::string root = dir.path("disk");
  fs::create_directory(root);
  std::vector<size_t> returned;  // changes after which a save had returned
  Disk disk(root);
  for (int number = 1; number <= kSaves; ++number) {
    what.save(root, number);
    returned.push_back(disk.changes());
  }
  std::vector<std::pair<Tree, std::string>> states;
  std::vector<int> saved;
  std::mt19937 random(1);
  for (size_t count = 0; count <= disk.changes(); ++count) {
    const auto done = std::upper_bound(returned.begin(), returned.end(), count);
    const auto add = [&](Tree tree, const std::string& which) {
      states.emplace_back(std::move(tree), "after " + std::to_string(count) + " changes, " + which);
      saved.push_back(static_cast<int>(done - returned.begin()));
    };
    add(disk.after_crash(count, false), "with only what was flushed");
    add(disk.after_crash(count, true), "with everything");
    for (int i = 0; i < random_states(); ++i)
      add(disk.after_crash(count, random), "random state " + std::to_string(i));
  }
  std::printf("%zu changes, %zu states\n", disk.changes(), states.size());
  ASSERT_GT(disk.changes(), 20u);
  for (size_t i = 0; i < states.size(); ++i)
    check_state(states[i].first, what, saved[i], states[i].second);
}

// Returns whether all saves got through to the last without a call failing. The disk may lose its
// power after them.
bool fail_once(const Saved& what, const Fault& fault) {
  const test::TempDir dir;
  const std::string root = dir.path("disk");
  fs::create_directory(root);
  int saved = 0;
  bool reached = false;
  std::vector<Tree> left;
  {
    Disk disk(root, fault);
    for (int number = 1; number <= kSaves; ++number) try {
        what.save(root, number);
        saved = number;
      } catch (const Error& error) {
        EXPECT_NE(fault.error, 0) << "a short write is no error, but: " << error.what();
        EXPECT_EQ(error.code(), Code::io) << error.what();
        EXPECT_NE(std::string(error.what()).find(root), std::string::npos)
            << "the error names no file: " << error.what();
      }
    reached = disk.calls() >= fault.at;
    std::mt19937 random(static_cast<uint32_t>(fault.at));
    left = {disk.after_crash(disk.changes(), false), disk.after_crash(disk.changes(), random)};
  }
  for (const Tree& tree : left) check_state(tree, what, saved, "after a loss of power");
  // A save that failed may have been complete before the call that failed.
  const int loaded = what.load(root).value_or(0);
  EXPECT_GE(loaded, saved);
  what.save(root, kSaves + 1);
  EXPECT_EQ(what.load(root), kSaves + 1);
  return !reached;
}

void fail_everywhere(const Saved& what) {
  int64_t runs = 0;
  for (const int error : {ENOSPC, EIO, EDQUOT, 0})
    for (const bool persists : {false, true})
      for (int64_t at = 1;; ++at) {
        SCOPED_TRACE("call " + std::to_string(at) + ", errno " + std::to_string(error) +
                     (persists ? ", and all later ones" : ""));
        if (fail_once(what, {at, error, persists})) break;
        ++runs;
      }
  std::printf("%lld runs\n", static_cast<long long>(runs));
  EXPECT_GT(runs, 100);
}

// Saves where every flush of a folder gives `error`. Returns the errors of the saves.
std::string save_without_folders(const Saved& what, int error) {
  const test::TempDir dir;
  const std::string root = dir.path("disk");
  fs::create_directory(root);
  const Disk disk(root, {.of_folders = error});
  const std::string said = test::error_text([&] {
    for (int number = 1; number <= kSaves; ++number) what.save(root, number);
  });
  EXPECT_TRUE(!said.empty() || what.load(root) == kSaves);
  return said;
}

// As network and FUSE file systems do, which write the names of a folder themselves.
TEST(Crash, AFileSystemMayNotFlushFolders) {
  for (const Saved& what : {checkpoints(), documents(), tar_shards(), fast_shards()}) {
    for (const int error : {EINVAL, ENOTSUP}) EXPECT_EQ(save_without_folders(what, error), "");
    EXPECT_NE(save_without_folders(what, EIO), "");
  }
}

TEST(Crash, CheckpointsSurvivePowerLoss) { crash_everywhere(checkpoints()); }
TEST(Crash, DocumentsSurvivePowerLoss) { crash_everywhere(documents()); }
TEST(Crash, ShardsSurvivePowerLoss) {
  crash_everywhere(tar_shards());
  crash_everywhere(fast_shards());
}
TEST(Crash, CheckpointsSurviveFailingCalls) { fail_everywhere(checkpoints()); }
TEST(Crash, DocumentsSurviveFailingCalls) { fail_everywhere(documents()); }
TEST(Crash, ShardsSurviveFailingCalls) {
  fail_everywhere(tar_shards());
  fail_everywhere(fast_shards());
}

// The harness itself: what is not flushed may be lost, and what is flushed may not.
TEST(Disk, LosesWhatIsNotFlushed) {
  const test::TempDir dir;
  const std::string root = dir.path("disk");
  fs::create_directory(root);
  const std::string text = "text";
  Disk disk(root);
  platform::write_file_synced(root + "/a", std::as_bytes(std::span(text)));
  EXPECT_EQ(disk.after_crash(disk.changes(), true), (Tree{{"a", "text"}}));
  EXPECT_EQ(disk.after_crash(disk.changes(), false), Tree{}) << "the folder was not flushed";
  platform::sync_directory(root);
  EXPECT_EQ(disk.after_crash(disk.changes(), false), (Tree{{"a", "text"}}));
  {
    platform::OutputFile file(root + "/b", platform::OutputFile::Mode::replace, "b");
    file.write(std::as_bytes(std::span(text)));
  }
  platform::sync_directory(root);
  EXPECT_EQ(disk.after_crash(disk.changes(), false), (Tree{{"a", "text"}, {"b", ""}}))
      << "the file was not flushed";
  fs::rename(root + "/a", root + "/b");
  EXPECT_EQ(disk.after_crash(disk.changes(), false), (Tree{{"a", "text"}, {"b", ""}}));
  EXPECT_EQ(disk.after_crash(disk.changes(), true), (Tree{{"b", "text"}}));
}

}  // namespace
}  // namespace etr::crash
