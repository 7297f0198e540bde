// SPDX-License-Identifier: Apache-2.0
#include "workload/allocations.h"

#include <algorithm>

#include "base/status_macros.h"
#include "workload/models.h"
#include "workload/resnet50.h"
#include "workload/tape.h"

namespace gpushare::workload {
namespace workload_internal {

Tape::Buffer Tape::Take(int64_t bytes) {
  const auto buffer = static_cast<Buffer>(sizes_.size());
  sizes_.push_back(static_cast<uint64_t>(bytes));
  pattern_.buffers = buffer + 1;
  pattern_.steps.push_back({buffer, sizes_.back()});
  live_ += sizes_.back();
  pattern_.peak = std::max(pattern_.peak, live_);
  return buffer;
}

void Tape::Drop(Buffer buffer) {
  live_ -= sizes_[buffer];
  sizes_[buffer] = 0;
  pattern_.steps.push_back({buffer, 0});
}

absl::Status CheckLoop(const char* model, const TrainingLoop& loop) {
  GPUSHARE_RETURN_IF_ERROR(CheckRange(model, "iterations", loop.iterations, 1, 10'000));
  GPUSHARE_RETURN_IF_ERROR(CheckRange(model, "evaluate_every", loop.evaluate_every, 0, 10'000));
  return CheckRange(model, "short_batch_every", loop.short_batch_every, 0, 10'000);
}

}  // namespace workload_internal

namespace {

using workload_internal::CheckLoop;
using workload_internal::CheckRange;
using workload_internal::Convolution;
using workload_internal::RunLoop;
using workload_internal::Tape;

// Buffers that are freed together.
class Kept {
 public:
  explicit Kept(Tape* tape) : tape_(tape) {}
  void Take(int64_t bytes) { buffers_.push_back(tape_->Take(bytes)); }
  // Frees the last first, as automatic differentiation does.
  void DropAll() {
    for (size_t i = buffers_.size(); i-- > 0;) tape_->Drop(buffers_[i]);
    buffers_.clear();
  }

 private:
  Tape* const tape_;
  std::vector<Tape::Buffer> buffers_;
};

// 16-bit weights, with Adam's two moments and a 32-bit master copy, for the whole loop.
void TakeWeights(int64_t weights, Tape* tape) {
  tape->Take(2 * weights);
  for (int copy = 0; copy < 3; ++copy) tape->Take(4 * weights);
}

// One block of the decoder. `kept` gets what its backward pass needs.
void BlockForward(const TransformerTrainingOptions& shape, int64_t samples, bool training,
                  Tape* tape, Kept* kept) {
  const int64_t tokens = samples * shape.sequence, row = tokens * shape.hidden;
  const int64_t scores = samples * shape.heads * shape.sequence * shape.sequence;
  Kept inner(tape);
  Kept* const saved = training ? kept : &inner;
  const auto layer_norm = [&] {
    saved->Take(2 * row);
    saved->Take(4 * tokens);  // mean
    saved->Take(4 * tokens);  // deviation
  };
  const auto residual = [&] {
    const Tape::Buffer product = tape->Take(2 * row);
    if (training) saved->Take(row);  // the dropout mask
    saved->Take(2 * row);
    tape->Drop(product);
  };
  layer_norm();
  saved->Take(2 * 3 * row);  // queries, keys, values
  const Tape::Buffer raw = tape->Take(2 * scores);
  saved->Take(2 * scores);  // after softmax
  tape->Drop(raw);
  if (training) {
    saved->Take(scores);
    saved->Take(2 * scores);  // after dropout
  }
  saved->Take(2 * row);  // values weighted by attention
  residual();
  layer_norm();
  saved->Take(2 * 4 * row);
  saved->Take(2 * 4 * row);  // after the activation
  residual();
  inner.DropAll();
}

void BlockBackward(const TransformerTrainingOptions& shape, int64_t samples, Tape* tape, Kept* kept,
                   Kept* gradients) {
  const int64_t row = samples * shape.sequence * shape.hidden, square = shape.hidden * shape.hidden;
  const int64_t scores = samples * shape.heads * shape.sequence * shape.sequence;
  const Tape::Buffer input = tape->Take(2 * row);  // gradient of the block's input
  gradients->Take(2 * 4 * square);
  const Tape::Buffer inner = tape->Take(2 * 4 * row);
  const Tape::Buffer activation = tape->Take(2 * 4 * row);
  tape->Drop(inner);
  gradients->Take(2 * 4 * square);
  tape->Use(2 * row);
  tape->Drop(activation);
  gradients->Take(2 * square);
  const Tape::Buffer attention = tape->Take(2 * row);
  const Tape::Buffer probabilities = tape->Take(2 * scores);
  tape->Use(2 * scores);
  const Tape::Buffer qkv = tape->Take(2 * 3 * row);
  tape->Drop(probabilities);
  tape->Drop(attention);
  gradients->Take(2 * 3 * square);
  for (int vector = 0; vector < 6; ++vector) gradients->Take(2 * shape.hidden);  // norms, biases
  tape->Drop(qkv);
  tape->Drop(input);
  kept->DropAll();
}

}  // namespace

absl::StatusOr<AllocationPattern> TransformerTraining(const TransformerTrainingOptions& options) {
  constexpr char kModel[] = "transformer training";
  GPUSHARE_RETURN_IF_ERROR(CheckRange(kModel, "layers", options.layers, 1, 256));
  GPUSHARE_RETURN_IF_ERROR(CheckRange(kModel, "hidden", options.hidden, 64, 65'536));
  GPUSHARE_RETURN_IF_ERROR(CheckRange(kModel, "heads", options.heads, 1, 1024));
  GPUSHARE_RETURN_IF_ERROR(CheckRange(kModel, "sequence", options.sequence, 1, 65'536));
  GPUSHARE_RETURN_IF_ERROR(CheckRange(kModel, "vocabulary", options.vocabulary, 1, 10'000'000));
  GPUSHARE_RETURN_IF_ERROR(CheckRange(kModel, "batch", options.batch, 1, 4096));
  GPUSHARE_RETURN_IF_ERROR(CheckLoop(kModel, options.loop));

  Tape tape("transformer_training_b" + std::to_string(options.batch));
  TakeWeights(options.vocabulary * options.hidden, &tape);
  const int64_t square = options.hidden * options.hidden;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    for (const int64_t part : {3, 1, 4, 4}) TakeWeights(part * square, &tape);
    for (int vector = 0; vector < 6; ++vector) TakeWeights(options.hidden, &tape);
  }
  RunLoop(options.loop, options.batch, &tape, [&](int64_t samples, bool training) {
    const int64_t tokens = samples * options.sequence, row = tokens * options.hidden;
    Kept whole(&tape), gradients(&tape);
    std::vector<Kept> blocks(static_cast<size_t>(options.layers), Kept(&tape));
    whole.Take(8 * tokens);  // these tokens and the next ones
    whole.Take(8 * tokens);
    whole.Take(2 * row);  // embeddings
    for (Kept& block : blocks) BlockForward(options, samples, training, &tape, &block);
    whole.Take(2 * row);  // the last normalisation
    const Tape::Buffer logits = tape.Take(2 * tokens * options.vocabulary);
    const Tape::Buffer likelihoods = tape.Take(4 * tokens * options.vocabulary);
    whole.Take(4);  // the loss
    if (training) {
      const Tape::Buffer gradient = tape.Take(2 * tokens * options.vocabulary);
      tape.Drop(likelihoods);
      tape.Drop(logits);
      gradients.Take(2 * options.vocabulary * options.hidden);
      tape.Use(2 * row);
      tape.Drop(gradient);
      for (size_t i = blocks.size(); i-- > 0;) {
        BlockBackward(options, samples, &tape, &blocks[i], &gradients);
      }
      tape.Use(4 * options.vocabulary * options.hidden);  // workspace of the optimizer
      gradients.DropAll();
    } else {
      tape.Drop(likelihoods);
      tape.Drop(logits);
    }
    whole.DropAll();
  });
  return std::move(tape).Finish();
}

absl::StatusOr<AllocationPattern> ConvolutionTraining(const ConvolutionTrainingOptions& options) {
  constexpr char kModel[] = "convolution training";
  GPUSHARE_RETURN_IF_ERROR(CheckRange(kModel, "batch", options.batch, 1, 4096));
  GPUSHARE_RETURN_IF_ERROR(CheckLoop(kModel, options.loop));

  const std::vector<Convolution> convs = workload_internal::Convolutions();
  Tape tape("resnet50_training_b" + std::to_string(options.batch));
  const auto weights = [](const Convolution& conv) {
    return conv.in * conv.out * conv.kernel * conv.kernel;
  };
  for (const Convolution& conv : convs) {
    TakeWeights(weights(conv), &tape);
    for (int vector = 0; vector < 2; ++vector) TakeWeights(conv.out, &tape);
  }
  TakeWeights(2048 * 1000, &tape);
  RunLoop(options.loop, options.batch, &tape, [&](int64_t samples, bool training) {
    const auto output = [samples](const Convolution& conv) {
      return 2 * samples * conv.out_size() * conv.out_size() * conv.out;
    };
    Kept whole(&tape), gradients(&tape);
    std::vector<Kept> layers(convs.size(), Kept(&tape));
    const int64_t images = 2 * samples * 3 * 224 * 224;
    whole.Take(images);  // these and the next ones
    whole.Take(images);
    for (size_t i = 0; i < convs.size(); ++i) {
      const Tape::Buffer workspace = tape.Take(output(convs[i]) / 2);
      layers[i].Take(output(convs[i]));
      tape.Drop(workspace);
      layers[i].Take(output(convs[i]));  // normalised; the activation works in place
      for (int vector = 0; vector < 2; ++vector) layers[i].Take(4 * convs[i].out);
      // Without a backward pass, a layer's input is freed once its output is there.
      if (!training && i > 0) layers[i - 1].DropAll();
    }
    whole.Take(2 * samples * 2048);
    whole.Take(2 * samples * 1000);
    if (training) {
      for (size_t i = convs.size(); i-- > 0;) {
        const Tape::Buffer gradient = tape.Take(output(convs[i]));
        tape.Use(output(convs[i]) / 2);
        gradients.Take(2 * weights(convs[i]));
        for (int vector = 0; vector < 2; ++vector) gradients.Take(2 * convs[i].out);
        if (i > 0) {  // gradient of its input
          tape.Use(2 * samples * convs[i].in_size * convs[i].in_size * convs[i].in);
        }
        tape.Drop(gradient);
        layers[i].DropAll();
      }
      gradients.DropAll();
    } else {
      layers.back().DropAll();
    }
    whole.DropAll();
  });
  return std::move(tape).Finish();
}

}  // namespace gpushare::workload
