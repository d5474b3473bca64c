// A small language model in plain C++: it reads the last characters of a text and learns to tell the next one.
//
//   trainer [--iters N] [--log-every N] [--eval-every N] [--batch N] [--seed N] [--save FILE] [TEXT...]
//
// A multilayer perceptron with learned character embeddings (Bengio et al., 2003), its gradients written out by hand,
// trained with Adam under a cosine learning rate. Without a text it learns its own source. It prints what such programs
// print; built with -DTRAINMON it also tells trainmon its exact steps and phases, and nothing else differs.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef TRAINMON
#include "trainmon.hpp"
#else
namespace trainmon {  // the same names, doing nothing
struct Step { Step() {} };
struct Phase { explicit Phase(const char*) {} };
inline void init(const char*, long long) {}
inline void metric(const char*, double) {}
inline void count(long long, long long) {}
}  // namespace trainmon
#endif

namespace {

constexpr int kContext = 16, kEmbedding = 24, kInput = kContext * kEmbedding, kHidden = 192;
constexpr float kLearningRate = 3e-3F, kWeightDecay = 0.01F;

struct Options {
  int iterations = 15000, log_every = 100, eval_every = 1000, batch = 128;
  unsigned seed = 1;
  std::string save;
  std::vector<std::string> texts;
};

using Vector = std::vector<float>;

// A matrix of weights with what Adam remembers of its gradients.
struct Weights {
  Vector value, gradient, mean, square;

  Weights(int size, float scale, std::mt19937& dice) : value(size), gradient(size), mean(size), square(size) {
    std::normal_distribution<float> normal(0.0F, 1.0F);
    for (float& each : value) each = scale * normal(dice);
  }
  void adam(float rate, float mean_left, float square_left) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      mean[i] = 0.9F * mean[i] + 0.1F * gradient[i];
      square[i] = 0.99F * square[i] + 0.01F * gradient[i] * gradient[i];
      value[i] -= rate * (mean[i] / mean_left / (std::sqrt(square[i] / square_left) + 1e-8F) + kWeightDecay * value[i]);
      gradient[i] = 0.0F;
    }
  }
};

// out[rows, wide] = in[rows, deep] * weights[deep, wide]
void multiply(const float* in, const float* weights, float* out, int rows, int deep, int wide) {
  std::fill(out, out + rows * wide, 0.0F);
  for (int row = 0; row < rows; ++row)
    for (int k = 0; k < deep; ++k)
      for (int j = 0; j < wide; ++j) out[row * wide + j] += in[row * deep + k] * weights[k * wide + j];
}

// Given the gradient of `out` above: adds that of `weights`, and sets that of `in`.
void multiply_back(const float* in, const Vector& weights, const float* out_gradient, float* in_gradient,
                   Vector& weights_gradient, int rows, int deep, int wide) {
  for (int row = 0; row < rows; ++row)
    for (int k = 0; k < deep; ++k) {
      float sum = 0.0F;
      for (int j = 0; j < wide; ++j) {
        const float gradient = out_gradient[row * wide + j];
        weights_gradient[k * wide + j] += in[row * deep + k] * gradient;
        sum += gradient * weights[k * wide + j];
      }
      in_gradient[row * deep + k] = sum;
    }
}

// Characters as small numbers. The last tenth of the text is kept for validation.
struct Corpus {
  std::vector<int> ids;
  int characters = 0;
  int split = 0;

  explicit Corpus(const std::string& text) {
    std::array<int, 256> id_of{};
    id_of.fill(-1);
    for (const unsigned char character : text) {
      if (id_of[character] < 0) id_of[character] = characters++;
      ids.push_back(id_of[character]);
    }
    split = static_cast<int>(ids.size()) * 9 / 10;
    if (split <= kContext || static_cast<int>(ids.size()) - split <= kContext)
      throw std::runtime_error("the text is too short: some 200 characters are the least");
  }
};

struct Batch {
  std::vector<int> contexts, targets;
};

Batch draw(const Corpus& corpus, int size, bool validation, std::mt19937& dice) {
  const int first = validation ? corpus.split : 0;
  const int last = validation ? static_cast<int>(corpus.ids.size()) : corpus.split;
  std::uniform_int_distribution<int> place(first, last - kContext - 1);
  Batch batch;
  for (int row = 0; row < size; ++row) {
    const auto begin = corpus.ids.begin() + place(dice);
    batch.contexts.insert(batch.contexts.end(), begin, begin + kContext);
    batch.targets.push_back(begin[kContext]);
  }
  return batch;
}

class Model {
 public:
  Model(int characters, int batch, std::mt19937& dice)
      : characters_(characters),
        embedding_(characters * kEmbedding, 1.0F, dice),
        hidden_(kInput * kHidden, 1.0F / std::sqrt(static_cast<float>(kInput)), dice),
        output_(kHidden * characters, 0.1F / std::sqrt(static_cast<float>(kHidden)), dice),
        input_(batch * kInput), active_(batch * kHidden), chances_(batch * characters),
        input_gradient_(batch * kInput), active_gradient_(batch * kHidden) {}

  // The mean cross-entropy of the batch, in nats a character. Keeps what `backward` needs.
  float forward(const Batch& batch) {
    const int rows = static_cast<int>(batch.targets.size());
    for (int i = 0; i < rows * kContext; ++i)
      std::copy_n(&embedding_.value[batch.contexts[i] * kEmbedding], kEmbedding, &input_[i * kEmbedding]);
    multiply(input_.data(), hidden_.value.data(), active_.data(), rows, kInput, kHidden);
    for (int i = 0; i < rows * kHidden; ++i) active_[i] = std::tanh(active_[i]);
    multiply(active_.data(), output_.value.data(), chances_.data(), rows, kHidden, characters_);
    float loss = 0.0F;
    for (int row = 0; row < rows; ++row) loss -= softmax(&chances_[row * characters_], batch.targets[row]);
    return loss / static_cast<float>(rows);
  }

  void backward(const Batch& batch) {
    const int rows = static_cast<int>(batch.targets.size());
    for (int row = 0; row < rows; ++row) chances_[row * characters_ + batch.targets[row]] -= 1.0F;
    for (int i = 0; i < rows * characters_; ++i) chances_[i] /= static_cast<float>(rows);
    multiply_back(active_.data(), output_.value, chances_.data(), active_gradient_.data(), output_.gradient, rows,
                  kHidden, characters_);
    for (int i = 0; i < rows * kHidden; ++i) active_gradient_[i] *= 1.0F - active_[i] * active_[i];
    multiply_back(input_.data(), hidden_.value, active_gradient_.data(), input_gradient_.data(), hidden_.gradient, rows,
                  kInput, kHidden);
    for (int i = 0; i < rows * kContext; ++i)
      for (int j = 0; j < kEmbedding; ++j)
        embedding_.gradient[batch.contexts[i] * kEmbedding + j] += input_gradient_[i * kEmbedding + j];
  }

  void update(int iteration, float rate) {
    const float mean_left = 1.0F - std::pow(0.9F, static_cast<float>(iteration));
    const float square_left = 1.0F - std::pow(0.99F, static_cast<float>(iteration));
    for (Weights* weights : {&embedding_, &hidden_, &output_}) weights->adam(rate, mean_left, square_left);
  }

  void save(const std::string& path) const {
    std::ofstream file(path, std::ios::binary);
    for (const Weights* weights : {&embedding_, &hidden_, &output_})
      file.write(reinterpret_cast<const char*>(weights->value.data()),
                 static_cast<std::streamsize>(weights->value.size() * sizeof(float)));
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
  }

 private:
  // Scores made into probabilities, in place; returns the logarithm of the target's.
  float softmax(float* scores, int target) const {
    const float highest = *std::max_element(scores, scores + characters_);
    float sum = 0.0F;
    for (int j = 0; j < characters_; ++j) sum += scores[j] = std::exp(scores[j] - highest);
    for (int j = 0; j < characters_; ++j) scores[j] /= sum;
    return std::log(std::max(scores[target], 1e-30F));
  }

  int characters_;
  Weights embedding_, hidden_, output_;
  Vector input_, active_, chances_, input_gradient_, active_gradient_;  // of the batch at hand
};

// Warm-up over the first twentieth, then a cosine down to a tenth.
float learning_rate(int iteration, int iterations) {
  const float done = static_cast<float>(iteration) / static_cast<float>(iterations);
  if (done < 0.05F) return kLearningRate * done / 0.05F;
  return kLearningRate * (0.55F + 0.45F * std::cos(3.14159265F * (done - 0.05F) / 0.95F));
}

float evaluate(Model& model, const Corpus& corpus, int batch) {
  std::mt19937 dice(7);  // the same examples each time
  float loss = 0.0F;
  for (int i = 0; i < 8; ++i) loss += model.forward(draw(corpus, batch, true, dice)) / 8.0F;
  return loss;
}

float train_step(Model& model, const Corpus& corpus, const Options& options, int iteration, std::mt19937& dice) {
  trainmon::Step step;
  Batch batch;
  float loss = 0.0F;
  const float rate = learning_rate(iteration, options.iterations);
  {
    trainmon::Phase phase("data");
    batch = draw(corpus, options.batch, false, dice);
  }
  {
    trainmon::Phase phase("forward");
    loss = model.forward(batch);
  }
  {
    trainmon::Phase phase("backward");
    model.backward(batch);
  }
  {
    trainmon::Phase phase("optimizer");
    model.update(iteration, rate);
  }
  trainmon::metric("loss", loss);
  trainmon::metric("lr", rate);
  trainmon::count(options.batch, options.batch);  // a token is a character that was to be told
  return loss;
}

void train(Model& model, const Corpus& corpus, const Options& options, std::mt19937& dice) {
  using Clock = std::chrono::steady_clock;
  auto since = Clock::now();
  int logged = 0;
  for (int iteration = 1; iteration <= options.iterations; ++iteration) {
    const float loss = train_step(model, corpus, options, iteration, dice);
    if (iteration % options.log_every == 0) {
      const double elapsed = std::chrono::duration<double>(Clock::now() - since).count();
      std::printf("Iter %d/%d | Loss: %.2f | LR: %.2e | Tok/s: %.0f\n", iteration, options.iterations, loss,
                  learning_rate(iteration, options.iterations), (iteration - logged) * options.batch / elapsed);
      std::fflush(stdout);
      since = Clock::now();
      logged = iteration;
    }
    if (iteration % options.eval_every == 0) {
      const auto paused = Clock::now();
      float loss_there = 0.0F;
      {
        trainmon::Phase phase("eval");
        loss_there = evaluate(model, corpus, options.batch);
      }
      trainmon::metric("val_loss", loss_there);
      std::printf("Iter %d/%d | Val loss: %.2f\n", iteration, options.iterations, loss_there);
      since += Clock::now() - paused;
    }
  }
  if (!options.save.empty()) {
    trainmon::Phase phase("checkpoint");
    model.save(options.save);
  }
}

std::string read_texts(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    text.append(std::istreambuf_iterator<char>(file), {});
  }
  return text;
}

int positive(const char* text) {
  char* end = nullptr;
  const long number = std::strtol(text, &end, 10);
  if (*end != '\0' || number < 1 || number > 1'000'000'000)
    throw std::runtime_error(std::string("not a count: ") + text);
  return static_cast<int>(number);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--", 0) != 0) {
      options.texts.push_back(word);
      continue;
    }
    if (++i == argc) throw std::runtime_error(word + " needs a value");
    if (word == "--save") options.save = argv[i];
    else if (word == "--iters") options.iterations = positive(argv[i]);
    else if (word == "--log-every") options.log_every = positive(argv[i]);
    else if (word == "--eval-every") options.eval_every = positive(argv[i]);
    else if (word == "--batch") options.batch = positive(argv[i]);
    else if (word == "--seed") options.seed = static_cast<unsigned>(positive(argv[i]));
    else throw std::runtime_error("unknown option " + word);
  }
  if (options.texts.empty()) options.texts.push_back(__FILE__);
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    trainmon::init("char-mlp", options.iterations);
    std::string text;
    {
      trainmon::Phase phase("load data");
      text = read_texts(options.texts);
    }
    const Corpus corpus(text);
    std::mt19937 dice(options.seed);
    Model model(corpus.characters, options.batch, dice);
    std::printf("%zu characters, %d different ones\n", corpus.ids.size(), corpus.characters);
    train(model, corpus, options, dice);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainer: %s\n", error.what());
    return 2;
  }
}
