// Files that are shortened, written to, replaced or removed while a pipeline reads them: errors of
// their records, to which the policy for bad records applies. No sample is ever wrong, the epoch
// ends, and what is intact again can be read.
//
// ECHOTRAIN_TEST_CHANGES sets how many times each case is tried.
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "core/log.h"
#include "sources/changing_cases.h"

namespace etr::test {
namespace {

namespace fs = std::filesystem;

constexpr double kPatienceS = 120;  // for one sample, on a machine that is busy

int tries() {
  const char* text = std::getenv("ECHOTRAIN_TEST_CHANGES");
  return text ? std::atoi(text) : 4;
}

// A folder with the files of one version. Their times are old: a change later is one.
void write_version(const ChangingCase& c, const std::string& folder, int version) {
  fs::create_directories(folder);
  c.write(folder, version);
  const auto time =
      fs::file_time_type::clock::now() - std::chrono::hours(24) + std::chrono::seconds(version);
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) fs::last_write_time(entry.path(), time);
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) out.push_back(entry.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

// All bytes of a sample.
std::string content(const Item& item) {
  std::string out;
  for (const auto& field : item.fields) {
    const auto bytes = field.tensor.bytes();
    out +=
        field.name + ":" + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return out;
}

using Contents = std::map<std::string, int>;  // and how often each came

Contents all_of(const Json& spec) {
  Contents out;
  for (const Item& item : read_all(spec)) ++out[content(item)];
  return out;
}

// Changes -----------------------------------------------------------------------------------------

struct Change {
  const char* name;
  std::function<void(const std::string& path, const std::string& other, std::mt19937&)> make;
  bool is_pipe = false;
};

void write_over(const std::string& path, const std::string& bytes, std::ios::openmode mode) {
  std::ofstream(path, std::ios::binary | mode) << bytes;
}

std::string noise(size_t size, std::mt19937& random) {
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

const Change kChanges[] = {
    {"shortened",
     [](const std::string& path, const std::string&, std::mt19937& random) {
       fs::resize_file(path, random() % fs::file_size(path));
     }},
    {"emptied",
     [](const std::string& path, const std::string&, std::mt19937&) { fs::resize_file(path, 0); }},
    {"removed",
     [](const std::string& path, const std::string&, std::mt19937&) { fs::remove(path); }},
    {"replaced by another version",
     [](const std::string& path, const std::string& other, std::mt19937&) {
       fs::copy_file(other, path + ".new");
       fs::rename(path + ".new", path);
     }},
    {"replaced by noise",
     [](const std::string& path, const std::string&, std::mt19937& random) {
       write_over(path + ".new", noise(fs::file_size(path), random), std::ios::trunc);
       fs::rename(path + ".new", path);
     }},
    {"overwritten with another version",
     [](const std::string& path, const std::string& other, std::mt19937&) {
       write_over(path, platform::read_file(other), std::ios::trunc);
     }},
    {"overwritten with noise",
     [](const std::string& path, const std::string&, std::mt19937& random) {
       write_over(path, noise(fs::file_size(path), random), std::ios::in);
     }},
    {"replaced by a folder",
     [](const std::string& path, const std::string&, std::mt19937&) {
       fs::remove(path);
       fs::create_directory(path);
     }},
    {"replaced by a pipe that nobody writes to",
     [](const std::string& path, const std::string&, std::mt19937&) {
       fs::remove(path);
       ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
     },
     true},
    {"replaced by a link that leads nowhere",
     [](const std::string& path, const std::string&, std::mt19937&) {
       fs::remove(path);
       fs::create_symlink("nowhere", path);
     }},
};

// The files of both versions, and what they hold.
struct Versions {
  TempDir dir;
  Contents right, other;

  explicit Versions(const ChangingCase& c) {
    for (const int version : {0, 1}) write_version(c, folder(version), version);
    const auto spec = [&](int version) {
      return Json{{"epochs", 1}, {"stages", c.stages(folder(version))}};
    };
    right = all_of(spec(0));
    other = all_of(spec(1));
  }
  std::string folder(int version) const { return dir.path(std::to_string(version)); }
};

// One try -----------------------------------------------------------------------------------------

struct Try {
  const ChangingCase& c;
  const Change& change;
  std::mt19937 random;
  TempDir dir;
  std::string policy;

  std::string folder() const { return dir.path("data"); }
  // A text is not opened again: nobody could tell that it is not the one that it was.
  int epochs() const { return c.reading == Reading::text ? 1 : 2; }
  Json spec() const {
    Json out = c.more;
    out.update({{"epochs", epochs()},
                {"queue_items", 4},
                {"threads", 2},
                {"on_error", policy},
                {"quarantine_dir", dir.path("bad")},
                {"stages", c.stages(folder())}});
    return out;
  }
};

struct Outcome {
  Contents samples;
  std::string error;  // "": none ended the pipeline
  int64_t bad = 0;    // occurrences of bad records
};

// Reads all epochs. Calls `at` when so many samples have been read.
Outcome read_on(const Try& t, int64_t most, int when, const std::function<void()>& at) {
  Outcome out;
  Pipeline p(t.spec());
  Item item;
  int64_t read = 0;
  try {
    for (int epochs = 0; epochs < t.epochs();) {
      if (!p.wait(kPatienceS)) {
        ADD_FAILURE() << "no sample, no error and no end for two minutes";
        return out;
      }
      if (p.next(item) == Pipeline::Next::end_of_epoch) {
        ++epochs;
        continue;
      }
      ++out.samples[content(item)];
      if (++read == when) at();
      if (read > most) {
        ADD_FAILURE() << "the epoch does not end";
        return out;
      }
    }
  } catch (const Error& error) {
    out.error = error.what();
  }
  out.bad = p.stats()["bad_record_times"].get<int64_t>();
  return out;
}

int64_t count_of(const Contents& samples) {
  int64_t count = 0;
  for (const auto& [sample, times] : samples) count += times;
  return count;
}

int times_in(const Contents& samples, const std::string& sample) {
  const auto found = samples.find(sample);
  return found == samples.end() ? 0 : found->second;
}

// Every sample is one of the original or, where files were opened after the change, of the other
// version, and none comes too often.
void check_samples(const Try& t, const Outcome& got, const Versions& versions) {
  for (const auto& [sample, times] : got.samples) {
    const int known = times_in(versions.right, sample) + times_in(versions.other, sample);
    ASSERT_GT(known, 0) << "a sample that no file had: " << sample.substr(0, 100);
    ASSERT_TRUE(times <= t.epochs() * known || t.policy == "substitute")
        << "a sample comes too often: " << sample.substr(0, 50);
  }
}

void check_policy(const Try& t, const Outcome& got, const Versions& versions,
                  const std::string& path) {
  if (!got.error.empty()) {
    EXPECT_EQ(t.policy, "fail") << got.error;
    EXPECT_HAS(got.error, fs::path(path).filename().string());
    return;
  }
  EXPECT_TRUE(t.policy != "fail" || got.bad == 0);
  const int64_t count = count_of(got.samples), all = t.epochs() * count_of(versions.right);
  EXPECT_TRUE(got.bad > 0 || count >= all) << all - count << " samples are missing, none is bad";
  const bool set_aside = t.policy == "quarantine" && got.bad > 0;
  EXPECT_EQ(fs::exists(t.dir.path("bad/bad_records.jsonl")), set_aside);
}

// Which file is changed; of texts the one that is open.
std::string victim(Try& t) {
  const auto files = files_in(t.folder());
  return files[t.c.reading == Reading::text ? 0 : t.random() % files.size()];
}

const Change& change_for(const ChangingCase& c, std::mt19937& random) {
  while (true) {
    const Change& change = kChanges[random() % std::size(kChanges)];
    if (!change.is_pipe || c.reading == Reading::once || c.reading == Reading::by_position)
      return change;
  }
}

struct Counts {
  int tries = 0, errors = 0, bad = 0, unharmed = 0;
};

void copy_with_times(const std::string& from, const std::string& to) {
  fs::remove_all(to);
  fs::copy(from, to, fs::copy_options::recursive);
  for (const std::string& file : files_in(from))
    fs::last_write_time(to + file.substr(from.size()), fs::last_write_time(file));
}

void try_once(const ChangingCase& c, const Versions& versions, unsigned number, Counts& counts) {
  constexpr const char* kPolicies[] = {"fail", "skip", "quarantine", "substitute"};
  std::mt19937 random(number);
  const Change& change = change_for(c, random);
  const char* const policy = kPolicies[random() % std::size(kPolicies)];
  Try t{c, change, random, {}, policy};
  copy_with_times(versions.folder(0), t.folder());
  const std::string path = victim(t);
  const std::string other = versions.folder(1) + path.substr(t.folder().size());
  const bool on_its_own = t.random() % 3 == 0;  // by a thread, at no particular sample
  const int when = 1 + static_cast<int>(t.random() % (kRecords / 3));
  const std::chrono::microseconds pause(t.random() % 3000);
  SCOPED_TRACE(cat(c.name, ", try ", number, ": '", path, "' is ", change.name, " at sample ", when,
                   on_its_own ? ", by a thread" : "", ", on_error ", t.policy));
  std::thread thread;
  const auto make = [&] { change.make(path, other, t.random); };
  const auto at = [&] {
    if (!on_its_own) return make();
    thread = std::thread([&] {
      std::this_thread::sleep_for(pause);
      make();
    });
  };
  const Outcome got = read_on(t, 4 * count_of(versions.right), when, at);
  if (thread.joinable()) thread.join();
  check_samples(t, got, versions);
  check_policy(t, got, versions, path);
  ++counts.tries;
  counts.errors += !got.error.empty();
  counts.bad += got.error.empty() && got.bad > 0;
  counts.unharmed += got.error.empty() && got.bad == 0;
  copy_with_times(versions.folder(0), t.folder());
  EXPECT_EQ(all_of({{"epochs", 1}, {"stages", c.stages(t.folder())}}), versions.right)
      << "what is intact again cannot be read";
}

class ChangingFiles : public testing::TestWithParam<int> {};

TEST_P(ChangingFiles, AreErrorsOfTheirRecords) {
  const ChangingCase c = changing_cases()[static_cast<size_t>(GetParam())];
  const Versions versions(c);
  ASSERT_GE(versions.right.size(), size_t{kRecords}) << c.name;
  set_log_hook(nullptr);
  Counts counts;
  for (int i = 0; i < tries() && !HasFailure(); ++i)
    try_once(c, versions, static_cast<unsigned>(1000 * GetParam() + i), counts);
  std::printf("%s: %d changes: %d ended the run, %d were bad records, %d changed nothing\n", c.name,
              counts.tries, counts.errors, counts.bad, counts.unharmed);
  const int noticed = counts.errors + counts.bad;
  if (c.reading == Reading::once) {
    EXPECT_EQ(noticed, 0);
  } else if (counts.tries >= 20) {
    EXPECT_GT(noticed, 0);
  }
}

std::string name_of(const testing::TestParamInfo<int>& info) {
  std::string name = changing_cases()[static_cast<size_t>(info.param)].name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Sources, ChangingFiles,
                         testing::Range(0, static_cast<int>(changing_cases().size())), name_of);

}  // namespace
}  // namespace etr::test
