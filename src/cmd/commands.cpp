// cmd/commands.cpp: the table of commands, in the order in which a user needs them.
#include "cmd/command.h"

namespace weft {

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"train", "train the model of a run file; run again, it resumes", add_train},
      {"verify", "train in several layouts and compare; exit 1 where a tolerance is exceeded",
       add_verify},
      {"plan", "memory, traffic and time per step, without a device", add_plan},
      {"eval", "loss, perplexity, exact and SQL match of a model", add_eval},
      {"generate", "continue a prompt", add_generate},
      {"export", "write a checkpoint as a Hugging Face folder", add_export},
      {"inspect", "what a checkpoint, safetensors file, data file or tokenizer holds", add_inspect},
      {"hash", "one line per logical tensor: name, shape, dtype, hash", add_hash},
      {"diff", "compare two models tensor by tensor; exit 1 where they differ", add_diff},
      {"tokenize", "text to token ids and back", add_tokenize},
      {"status", "who is where: ranks, hosts, step, speed, restarts", add_status},
      {"agent", "serve a node of a run: start its ranks there", add_agent},
      {"dashboard", "web page over the runs below a folder", nullptr},
      {"doctor", "what this machine has, and what a build lacks", add_doctor},
      {"corpus", "write the text-to-SQL corpus of the quickstart", add_corpus},
      {"plot", "the loss curve of a run, in the terminal and as a picture", add_plot},
      {"cache", "list or clear token caches and measured speeds", add_cache},
  };
  return table;
}

}  // namespace weft
