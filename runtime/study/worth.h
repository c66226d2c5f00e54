// The value of a repeated example: the table on which predictions are based.
#pragma once

#include <span>

namespace etr::study {

// How the copies of an echo node differ.
enum class Variant { before_augmentation, after_augmentation, batch };

// F_1 / F_e: by what factor fewer fresh examples reached the target when each was used `factor`
// times.
struct Worth {
  Variant variant;
  double batch, factor, fewer;
};

// Measured on one workload (samples/studies/echo_variants.json): CIFAR-10 at 16 x 16, an MLP with
// 128 hidden units, Nesterov momentum, crop and flip, rates tuned for each row, a buffer of 10,000
// uses (batches: unshuffled). Medians of three or five searches. Other data and models differ, so
// predictions from it are estimates.
std::span<const Worth> worth_table();
inline constexpr const char* kWorthSource =
    "CIFAR-10 at 16 x 16 with a small MLP, rates tuned for each factor; other data and models "
    "differ";

// Interpolates between rows: linear in the logarithms of factor and batch, constant outside the
// range of batches and beyond the largest factor. `drawn_anew`, the share of augmentations that
// every copy passes anew, interpolates between before and after augmentation (an assumption); it is
// ignored for batches. Returns 1 for a factor of 1.
double fewer_fresh(double drawn_anew, bool is_batch, double factor, double batch);

// Returns the largest factor to advise for such copies: 8 before augmentation, 2 after, in
// proportion between these, and 1 for unshuffled batches, or 2 if the batch is at least the
// gradient noise scale. `noise_scale` 0: unknown.
double most_factor(double drawn_anew, bool is_batch, double batch, double noise_scale);

}  // namespace etr::study
