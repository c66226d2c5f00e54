// Files that earlier versions have written are read for ever, or as long as docs/compatibility.md
// says.
//
//   golden_files write FOLDER       writes a set as this version does; FOLDER must not exist
//   golden_files check FOLDER...    reads every set; FOLDERs are those of one set each
//   golden_files check-all FOLDER   the sets in FOLDER, of which there must be one
//
// For a new version: golden_files write tests/golden_files/MAJOR.MINOR. Sets that are there are
// never written again.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <set>

#include "golden_files/set.h"
#include "support/temp_dir.h"

namespace golden {
namespace {

namespace fs = std::filesystem;

std::vector<Kind> kinds() {
  std::vector<Kind> out;
  for (auto* of : {runs, samples, records})
    for (Kind& kind : of()) out.push_back(std::move(kind));
  return out;
}

// Shared caches belong to files of certain times, which Git does not keep.
void set_times() {
  using namespace std::chrono;
  const sys_seconds new_year = sys_days(2026y / January / 1);
  for (const auto& entry : fs::recursive_directory_iterator("data"))
    if (entry.is_regular_file())
      fs::last_write_time(entry.path(), file_clock::from_sys(new_year));
}

void write_set(const fs::path& folder) {
  expect(!fs::exists(folder),
         "'" + folder.string() + "' exists; what a version has written is never written again");
  fs::create_directories(folder);
  fs::current_path(folder);
  write_data();
  set_times();
  Json cases{{"version", et::version()}};
  for (const Kind& kind : kinds()) {
    std::printf("writes %s\n", kind.name);
    std::fflush(stdout);
    cases[kind.name] = kind.write();
  }
  write_text("cases.json", cases.dump(1) + "\n");
}

// Counts the kinds that are not read as they should be.
int check_set(const fs::path& folder) {
  const etr::test::TempDir copy;  // resuming a run writes into its folder
  fs::copy(folder, copy.path("set"), fs::copy_options::recursive);
  const fs::path before = fs::current_path();
  fs::current_path(copy.path("set"));
  set_times();
  const Json cases = Json::parse(read_text("cases.json"));
  const std::string version = cases.at("version");
  int failures = 0;
  std::set<std::string> known{"version"};
  for (const Kind& kind : kinds()) {
    known.insert(kind.name);
    const auto expected = cases.find(kind.name);
    try {
      if (expected == cases.end()) continue;  // a kind that this version did not write
      expect(!expected->empty(), "there is no case");
      kind.check(*expected, version);
      std::printf("%s: %s: %zu cases\n", version.c_str(), kind.name, expected->size());
    } catch (const std::exception& error) {
      ++failures;
      std::printf("%s: %s: FAILED: %s\n", version.c_str(), kind.name, error.what());
    }
    std::fflush(stdout);
  }
  for (const auto& [name, of] : cases.items()) {
    if (known.contains(name)) continue;
    ++failures;
    std::printf("%s: %s: FAILED: this program has no kind of that name\n", version.c_str(),
                name.c_str());
  }
  fs::current_path(before);
  return failures;
}

int check_all(const fs::path& folder) {
  int failures = 0, sets = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    if (fs::exists(entry.path() / "cases.json")) {
      ++sets;
      failures += check_set(fs::absolute(entry.path()));
    }
  expect(sets > 0, "there is no set in '" + folder.string() + "'");
  std::printf("%d sets, %d failures\n", sets, failures);
  return failures;
}

int main_of(const std::vector<std::string>& words) {
  if (words.size() == 2 && words[0] == "write") {
    write_set(words[1]);
    return 0;
  }
  if (words.size() == 2 && words[0] == "check-all") return check_all(words[1]) ? 1 : 0;
  expect(words.size() >= 2 && words[0] == "check",
         "usage: golden_files write FOLDER | check FOLDER... | check-all FOLDER");
  int failures = 0;
  for (size_t i = 1; i < words.size(); ++i) failures += check_set(fs::absolute(words[i]));
  return failures ? 1 : 0;
}

}  // namespace
}  // namespace golden

int main(int count, char** words) {
  try {
    return golden::main_of({words + 1, words + count});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "golden_files: %s\n", error.what());
    return 1;
  }
}
