// cmd/corpus.cpp: weft corpus OUT_DIR.
#include "data/corpus.h"

#include "base/error.h"
#include "cmd/command.h"

namespace weft {

RunCommand add_corpus(CommandOptions& app) {
  struct Words {
    std::string out;
    uint64_t seed = 1;
    int64_t train = 20000, test = 600;
  };
  auto w = std::make_shared<Words>();
  app.add_option("OUT_DIR", w->out, "folder (or s3:// URI) for train.jsonl and test.jsonl")
      ->required();
  app.add_option("--seed", w->seed, "of the questions; default: 1");
  app.add_option("--train", w->train, "questions to train on; default: 20000")
      ->check(at_least(1), "N");
  app.add_option("--test", w->test, "questions held out from training; default: 600")
      ->check(at_least(1), "N");
  return [w] {
    write_sql_corpus(w->out, w->seed, w->train, w->test);
    fmt::print("{}: {} questions to train on, {} to test\n", w->out, w->train, w->test);
    return 0;
  };
}

}  // namespace weft
