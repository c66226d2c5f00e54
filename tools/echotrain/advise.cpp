// echotrain advise: whether echo helps a job, where and how much, and what would help first.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "console.h"
#include "job.h"

namespace cli {
namespace {

// `user_data` is the progress line; nullptr if standard output is for JSON.
int32_t show(void* user_data, const char* what) {
  if (*what && user_data)
    static_cast<ProgressLine*>(user_data)->show(std::string("measuring: ") + what);
  return interrupted() == 0;
}

std::string advised(const Arguments& arguments, const Job& job, const Runtime& runtime) {
  ProgressLine line;
  const InterruptGuard guard;
  char* json = nullptr;
  const int32_t status = etr_job_advise(runtime.get(), job.get(), arguments.number("seconds", 3),
                                        arguments.flag("check") ? 1 : 0, show,
                                        arguments.flag("json") ? nullptr : &line, &json);
  line.erase();
  if (interrupted()) throw Interrupted{};
  check(status);
  return take_string(json);
}

// The job file may have comments, which list the changes.
std::string changed_job(const Json& advice) {
  std::string text = advice["changes"].empty() ? "// 'echotrain advise' has changed nothing.\n"
                                               : "// Changed by 'echotrain advise':\n";
  for (const Json& change : advice["changes"]) text += "//   " + change.get<std::string>() + "\n";
  return text + advice["job"].dump(2) + "\n";
}

// Called before the measurements, which take a while. Leaves no new file behind.
void check_can_be_written(const std::string& path, bool overwrites) {
  namespace fs = std::filesystem;
  if (path.empty())
    throw Failure("--apply is empty: give it the name of the file for the changed job");
  std::error_code none;  // a missing path is not a folder
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, none))
    throw Failure("--apply " + path + ": there is no folder '" + folder.string() +
                  "'; make the folder first");
  if (fs::is_directory(path, none))
    throw Failure("--apply " + path + ": that is a folder; name a file in it");
  // Others, such as /dev/stdout, hold nothing that would be lost.
  if (fs::is_regular_file(path, none) && !overwrites)
    throw Failure("--apply: '" + path +
                  "' exists; name another file, or replace it with --overwrite");
  const bool is_new = !fs::exists(path, none);
  if (is_new && fs::is_symlink(path, none))
    throw Failure("--apply: '" + path +
                  "' is a link to a file that does not exist; name another file");
  if (fs::is_fifo(path, none)) return;  // opening a pipe waits for its reader
  errno = 0;
  if (!std::ofstream(fs::path(path), std::ios::app))
    throw Failure("--apply: cannot write '" + path + "'" +
                  (errno ? std::string(": ") + std::strerror(errno) : ""));
  if (is_new) fs::remove(path, none);
}

}  // namespace

int command_advise(const Arguments& arguments) {
  const bool applies = !arguments.values("apply").empty();
  const std::string path = arguments.value("apply");
  if (arguments.flag("overwrite") && !applies)
    throw UsageError("--overwrite replaces the file of --apply; give --apply FILE too");
  Job job;
  load_job(arguments, job);
  if (applies) check_can_be_written(path, arguments.flag("overwrite"));
  Runtime runtime;
  open_runtime(arguments, job, runtime);
  const Json advice = Json::parse(advised(arguments, job, runtime));
  if (arguments.flag("json"))
    std::printf("%s\n", advice.dump(1).c_str());
  else
    std::printf("\n%s", advice["text"].get<std::string>().c_str());
  if (!applies) return 0;
  if (advice["changes"].empty())
    std::fprintf(stderr, "there is nothing to change: %s is the same job\n", path.c_str());
  write_file(path, changed_job(advice), arguments.flag("json") ? stderr : stdout);
  Job changed;  // checks what a run would read
  check(etr_job_load(path.c_str(), nullptr, 0, changed.out()));
  return 0;
}

}  // namespace cli
