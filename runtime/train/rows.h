// Writes a run's rows into its folder: metrics.jsonl and TensorBoard's scalars.
#pragma once

#include "train/progress.h"
#include "train/run_folder.h"

namespace etr::train {

void write_step(RunFolder& folder, const StepMetrics& step, const Progress& progress);
void write_evaluation(RunFolder& folder, const Event& event);

}  // namespace etr::train
