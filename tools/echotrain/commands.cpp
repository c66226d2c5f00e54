#include "commands.h"

#include <algorithm>

#include "cli.h"

namespace cli {
namespace {

constexpr Option kSet{
    "set", "KEY=VALUE",
    "changes a key of the job (train.epochs=3, pipeline.stages.4.factor=2) or sets one of "
    "its variables (data=/path/to/shards); may be given several times"};
constexpr Option kDevice{"device", "DEVICE", "number or part of a name from 'echotrain devices'"};
constexpr Option kKernels{"kernels", "automatic|cpu|tiled|matrix", "family of kernels"};
constexpr Option kTuning{"tuning", "FILE", "measured kernels, from 'tune-kernels --out FILE'"};
constexpr Option kValidation{"validation-layer", "", "run under the Vulkan validation layers", 0,
                             "validation"};
constexpr Option kStep{"step-ms", "MS",
                       "what a training step takes, in milliseconds: the consumer waits so long "
                       "for each batch; 0 without it",
                       0, "step"};
constexpr Option kJson{"json", "", "print JSON"};

std::vector<Option> job_options(std::vector<Option> more = {}) {
  std::vector<Option> out = {kSet, kDevice, kKernels, kTuning};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

const std::vector<Command> kCommands = {
    {"demo",
     "[FOLDER]",
     "shows on data of its own what an echo node does, in about two minutes",
     "It draws a data set of digits, slows its reading down to a quarter of the training speed, as "
     "a slow network would, and trains a small network to 93 % test accuracy, without and with an "
     "echo node. FOLDER (echotrain-demo unless named) keeps the data, the runs and report.html; "
     "running it again replaces the runs.\n\n"
     "How soon a run reaches the target varies from seed to seed: with --seeds 3 each is run three "
     "times, and the table shows medians.",
     {{"seeds", "N", "runs without and with echo; 1 without it"},
      {"seconds", "S", "limit of each run; without it 90, or what 200 steps take on a slow device"},
      kDevice,
      kKernels,
      kTuning},
     command_demo},
    {"init",
     "FOLDER [JOB.json]",
     "writes a job that trains on a folder of images or of shards",
     "FOLDER holds a folder for each class (FOLDER/cat/1.jpg), the same below train/ and "
     "validation/, or the shards and classes.txt that 'pack' wrote. Classes are counted and "
     "up to 1000 images of each set decoded; the job gets a model of that size, augmentation, and "
     "an evaluation. What is no image, or damaged, is named, and the job leaves it out. "
     "Without a validation set, every tenth image of each class is held back as one; shards "
     "need one of their own ('pack --validation 0.1', or shards named validation-*, valid-*, val-* "
     "or test-* beside train-*; NAME-test-* goes with NAME-train-*).\n\n"
     "The job is JSON (job.json unless named) and meant to be edited.",
     {{"epochs", "N", "epochs to train; 20 without it"},
      {"overwrite", "", "replace a job file that exists"}},
     command_init},
    {"train", "JOB.json", "trains, and writes metrics and checkpoints into the job's output.dir",
     "The length of a run and all else is in the job; --set changes it for this run "
     "(--set train.epochs=3).\n\n"
     "Relative paths in a job are resolved from the folder in which the command is run, not from "
     "the "
     "job file's.\n\n"
     "Ctrl-C ends the run in order, with a checkpoint, and the exit status is 130; a second "
     "one ends it at once.",
     job_options({{"resume", "", "continue from the newest checkpoint, bit for bit"},
                  {"overwrite", "", "start again, and replace the run that output.dir holds"},
                  kValidation}),
     command_train},
    {"launch", "JOB.json", "trains a job on several ranks of this machine, a process each",
     "Each rank takes its part of every batch, and all update with the mean of their gradients: N "
     "ranks with a batch of B train as one with a batch of N B. The job needs no change; its "
     "section "
     "'parallel' says how ranks find each other where there are several machines, which mpirun, "
     "torchrun and srun start.\n\n"
     "The first rank shows the progress and writes output.dir; what others say on standard error "
     "has "
     "'rank N:' in front. When one rank fails, all end; with "
     "--set parallel.elastic=true the others continue from the newest checkpoint.\n\n"
     "With a parameter server (--servers, or parallel.algorithm) the ranks are its workers: when "
     "one "
     "fails, the others go on.\n\n"
     "  echotrain launch -n 2 job.json --device 0 --device 1\n"
     "  echotrain launch -n 4 job.json --set parallel.mesh.pipeline=2\n"
     "  echotrain launch -n 2 job.json --set parallel.zero_stage=1\n"
     "  echotrain launch -n 4 job.json --restarts 3 --set parallel.elastic=true\n"
     "  echotrain launch -n 3 job.json --servers 2\n\n"
     "'echotrain job parallel' prints all options of the section. With several --device rank r "
     "takes the r-th of them, and begins with the first again where there are fewer.",
     job_options(
         {{"ranks", "N", "how many ranks train together", 'n'},
          {"restarts", "N",
           "of an elastic run (parallel.elastic): start a rank again when it has failed, N times "
           "in all; it joins the others at the end of an epoch. 0 without it"},
          {"servers", "N", "shards of a parameter server to start beside them"},
          {"resume", "", "continue from the newest checkpoint, bit for bit"},
          {"overwrite", "", "start again, and replace the run that output.dir holds"},
          kValidation}),
     command_launch},
    {"parameter-server",
     "JOB.json",
     "serves one shard of the job's parameter server",
     "A parameter server is as many shards as the job's parallel.servers says, a process each, "
     "which "
     "hold a part of the parameters each. parallel.algorithm is downpour or easgd, and "
     "parallel.rendezvous says where shards and workers meet: file:FOLDER, or tcp://HOST:PORT of "
     "the "
     "machine of shard 0. Workers are started by 'echotrain train' with the same job, in any order "
     "and "
     "at any time; 'echotrain launch --servers' starts all of it on one machine.\n\n"
     "It says who joins and who leaves, and ends when the last worker has finished. Where no "
     "worker "
     "comes for parallel.timeout seconds, it ends with an error.",
     {kSet, {"shard", "N", "which shard this is, 0 to parallel.servers - 1; 0 without it"}},
     command_parameter_server,
     "serve"},
    {"eval", "JOB.json", "evaluates the newest checkpoint", "", job_options({kValidation}),
     command_eval},
    {"predict", "JOB.json FILE...",
     "says what the trained model sees on images, with probabilities",
     "A FILE may be a folder: all PNG and JPEG images below it. Images go through the stages "
     "of the job's evaluation; of a job without one, through those stages of its training that "
     "are not random, with the middle of the image in place of a random crop.",
     job_options({{"top", "N", "classes to print for each image; 3 without it"}, kJson}),
     command_predict},
    {"pack",
     "FOLDER PREFIX",
     "packs the images FOLDER/CLASS/NAME, PNG or JPEG, into shards named PREFIX-*",
     "The shards are PREFIX-000000.tar.zst and so on. Samples are shuffled over all shards "
     "and keep their names: CLASS/NAME is the key. The names of the classes are written to "
     "classes.txt beside the shards; where that file exists, its numbers are used, so that a "
     "training and a test set agree. What is not a PNG or JPEG image is left out, and said. PREFIX "
     "must not lie in FOLDER, whose sub-folders are the classes.",
     {{"format", "webdataset|fast",
       "tar archives, or fast shards (.ets): images that decode several times as fast as PNGs"},
      {"validation", "SHARE",
       "share of each class to set aside, in validation-* beside the other shards"},
      {"per-shard", "N", "samples in a shard; 1000 without it"},
      {"level", "L", "zstd's level, 0 to 19; 0 writes plain .tar; 3 without it"},
      {"seed", "N", "of the order of the samples"},
      {"orientation", "exif|stored",
       "turn the PNGs of fast shards as their EXIF data says, which is usual, or not"},
      {"overwrite", "", "replace shards of an earlier packing"}},
     command_pack},
    {"explain",
     "JOB.json",
     "runs the job's pipeline alone and says what limits it",
     "",
     {kSet,
      {"seconds", "S", "how long it runs; 5 without it"},
      kStep,
      {"svg", "FILE", "draw the pipeline, coloured by load"},
      {"trace", "FILE", "write a Chrome trace of the work, thread by thread"},
      kJson},
     command_explain},
    {"advise", "JOB.json",
     "says whether echoing helps the job, where and how much, and what helps first",
     "It runs the pipeline alone, then training steps on batches already in memory, and predicts "
     "for "
     "an "
     "echo node after each stage how fast the job would be and what its repeats would be worth. "
     "Nothing is written but the file of --apply.\n\n"
     "  echotrain advise job.json --check\n"
     "  echotrain advise job.json --apply changed.json && echotrain train changed.json",
     job_options(
         {{"seconds", "S", "how long each measurement takes; 3 without it"},
          {"apply", "FILE", "write the job with the recommended echo node and threads"},
          {"overwrite", "", "replace the file of --apply if it exists"},
          {"check", "", "run the job and the changed one in turns: predictions beside outcomes"},
          kJson}),
     command_advise},
    {"tune-pipeline",
     "JOB.json",
     "finds threads, connections and prefetching by trying",
     "",
     {kSet,
      {"seconds", "S", "how long each trial runs; 2 without it"},
      kStep,
      {"out", "FILE", "where to write the settings; tuned.json without it"}},
     command_tune_pipeline,
     "tune"},
    {"profile", "JOB.json", "says where a training step's time goes on the device", "",
     job_options({{"steps", "N", "steps to measure; 10 without it"},
                  {"trace", "FILE", "write a step as a Chrome trace"},
                  kJson}),
     command_profile},
    {"tune-kernels", "JOB.json",
     "finds the fastest kernels for the job's model on the device by trying",
     "The result is kept for all later runs; with --out only in FILE, for --tuning FILE.",
     job_options({{"out", "FILE", "where to write the result"}}), command_tune_kernels},
    {"export", "JOB.json FILE.onnx", "writes the newest checkpoint as an ONNX model", "",
     job_options(), command_export},
    {"report",
     "RUN...",
     "compares runs by their metrics.jsonl, as one HTML file",
     "A RUN is a run's folder or its metrics.jsonl, and is called as its folder is; NAME=RUN gives "
     "it "
     "another name. Runs of one name are repetitions, which share a row.",
     {{"out", "FILE", "where to write it; report.html without it"},
      {"title", "TEXT", "its title"},
      {"target", "ACCURACY", "accuracy that the runs are to reach, 0 to 1"}},
     command_report},
    {"study", "STUDY.json",
     "runs many trials of jobs, searches hyperparameters for each condition, and compares the "
     "conditions",
     "A study names a job, conditions (values of its keys that are to be compared), and a space of "
     "hyperparameters, which is searched for each condition by itself. Each trial is a run of the "
     "job that ends "
     "when an evaluation reaches the target or the budget is spent. docs/studies.md says what the "
     "file holds.\n\n"
     "Every finished trial is kept in the study's folder. The same command continues a study that "
     "was interrupted or killed. It also runs the trials, searches and conditions that you have "
     "added to the file since. Ctrl-C ends the study within a moment, with exit status 130; trials "
     "that were running then start again from the beginning.\n\n"
     "  echotrain study study.json --set data=shards --plan\n"
     "  echotrain study study.json --set data=shards\n"
     "  echotrain study study.json --report",
     job_options(
         {{"out", "FOLDER",
           "where to write. Default: runs/studies/STEM, where STEM is the file's name"},
          {"overwrite", "",
           "run all trials again; what the folder holds is moved to 'replaced' in it"},
          {"parallel", "N",
           "trials at once; 0: as many as the device has room for. Default: what the study says"},
          {"plan", "", "train nothing: print the conditions, their trials, and what each changes"},
          {"report", "",
           "train nothing: print the results of the trials so far, and write the report"},
          kValidation}),
     command_study},
    {"devices", "", "lists the Vulkan devices", "", {}, command_devices},
    {"stages",
     "[NAME...]",
     "prints the stages of pipelines, or the named ones, with all options",
     "",
     {kJson},
     command_schema},
    {"layers",
     "[NAME...]",
     "prints the layers of models with all options",
     "",
     {kJson},
     command_schema},
    {"models",
     "[NAME...]",
     "prints the ready-made models with all options",
     "",
     {kJson},
     command_schema},
    {"optimizers",
     "[NAME...]",
     "prints the optimizers with all options",
     "",
     {kJson},
     command_schema},
    {"job",
     "[KEY...]",
     "prints the keys of a job's sections; a KEY is 'train' or 'train.steps'",
     "",
     {kJson},
     command_schema},
    {"completion",
     "bash|zsh|fish",
     "prints the completion for a shell",
     "An installed EchoTrain has them in place. Otherwise: source <(echotrain completion bash)",
     {},
     command_completion},
    {"manual", "", "prints the manual page, for 'man'", "", {}, command_manual},
    {"version", "", "prints the version", "", {}, command_version},
    {"help", "[COMMAND]", "prints this, or a command's help", "", {}, command_help},
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace

const std::vector<Command>& commands() { return kCommands; }

const Command& find_command(const std::string& name) {
  std::vector<std::string> known;
  for (const Command& command : commands()) {
    if (name == command.name) return command;
    if (*command.former && name == command.former) {
      tell_new_name(name, command.name);
      return command;
    }
    known.push_back(command.name);
  }
  throw UsageError("unknown command '" + name + "'" + suggestion(name, known) +
                   "; see 'echotrain help'");
}

size_t least_operands(const Command& command) {
  const auto words = split(command.operands, ' ');
  return static_cast<size_t>(std::count_if(words.begin(), words.end(),
                                           [](const std::string& word) { return word[0] != '['; }));
}

size_t most_operands(const Command& command) {
  const std::string operands = command.operands;
  return operands.find("...") != std::string::npos ? SIZE_MAX : split(operands, ' ').size();
}

std::vector<std::string> choices_of(const std::string& value) {
  if (value.find('|') == std::string::npos) return {};
  return split(value, '|');
}

}  // namespace cli
