// Studies: running, results, reports.
#include <atomic>
#include <mutex>

#include "functions.h"
#include "handles.h"
#include "study/report.h"
#include "study/runner.h"
#include "text_lists.h"

using namespace etr;
using namespace etr::capi;

struct etr_study {
  explicit etr_study(study::Study of) : spec(std::move(of)) {}
  const study::Study spec;
  std::unique_ptr<study::Runner> runner;
  std::atomic<study::Runner*> running{nullptr};  // the same pointer, for signal handlers
  bool ended = false;
  mutable std::mutex report;  // serializes the writing of reports
  mutable Occupancy occupancy;

  // The folder that a call means: the one it names, or that of etr_study_start, or the study's own.
  std::string folder(const char* directory) const {
    if (directory) return path_of(directory, "directory");
    const study::Runner* const started = running.load();
    return started ? started->folder() : spec.folder();
  }
};

int32_t etr_study_load(const char* path, const char* const* overrides, int32_t count,
                       etr_study** study) {
  return guarded([&] {
    hand_out(study,
             std::make_unique<etr_study>(study::Study::load(
                 path_of(path, "path"), strings_of(overrides, count, "overrides"))),
             "study");
  });
}

int32_t etr_study_json(const etr_study* study, char** json) {
  return guarded([&] { hand_out(json, any_thread(study, "study").spec.json().dump(2), "json"); });
}

int32_t etr_study_output_dir(const etr_study* study, char** directory) {
  return guarded(
      [&] { hand_out(directory, any_thread(study, "study").spec.folder(), "directory"); });
}

int32_t etr_study_start(etr_study* study, etr_runtime* runtime, const char* directory,
                        int32_t parallel, int32_t overwrite) {
  return guarded([&] {
    etr_study& s = required(study, "study");
    if (s.runner) fail(Code::state, "this study was started before; load it again to run it again");
    if (parallel < -1 || parallel > 1024)
      fail(Code::invalid_argument, "argument 'parallel' is ", parallel, "; it is from -1 to 1024");
    if (overwrite != 0 && overwrite != 1)
      fail(Code::invalid_argument, "argument 'overwrite' is ", overwrite, "; it is 0 or 1");
    const etr_runtime& device = shared(runtime, "runtime");
    study::RunOptions options{s.folder(directory), overwrite == 1, {}, device.open};
    if (parallel >= 0) options.parallel = static_cast<uint64_t>(parallel);
    s.runner = std::make_unique<study::Runner>(device.kernels, s.spec, options);
    s.running = s.runner.get();
  });
}

int32_t etr_study_next_event(etr_study* study, double seconds, char** json) {
  return guarded([&]() -> int32_t {
    etr_study& s = required(study, "study");
    if (!(seconds >= 0 && seconds <= 1e6))
      fail(Code::invalid_argument, "seconds is ", seconds, "; expected 0 to 1e6");
    required(json, "json");
    if (!s.runner) fail(Code::state, "the study was not started (etr_study_start)");
    if (s.ended) return ETR_END;
    const study::Event event = s.runner->next_event(seconds);
    hand_out(json, study::to_json(event, s.spec).dump(), "json");
    s.ended = event.kind == study::EventKind::end;
    return ETR_OK;
  });
}

int32_t etr_study_stop(etr_study* study) {
  study::Runner* const running = study ? study->running.load() : nullptr;
  if (!running) return ETR_INVALID_ARGUMENT;  // no message, no handle entered: signal handlers
  running->stop();
  return ETR_OK;
}

int32_t etr_study_results(const etr_study* study, const char* directory, char** json) {
  return guarded([&] {
    const etr_study& s = any_thread(study, "study");
    hand_out(json, study::results(s.spec, s.folder(directory)).dump(), "json");
  });
}

int32_t etr_study_write_report(const etr_study* study, const char* directory) {
  return guarded([&] {
    const etr_study& s = any_thread(study, "study");
    const std::string folder = s.folder(directory);
    const std::lock_guard lock(s.report);
    study::write_study_report(study::outline_of(s.spec), study::records_of(s.spec, folder), folder);
  });
}

void etr_study_destroy(etr_study* study) {
  if (!study) return;
  guarded([&] {
    // The last call to leave frees the study: this one, or an etr_study_next_event of another
    // thread, which stopping ends.
    etr_study& s = any_thread(study, "study");
    s.occupancy.destroy();
    if (study::Runner* const running = s.running.load()) running->stop();
  });
}
