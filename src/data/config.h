// data/config.h: the `data:` section of a run file, as plain fields with their defaults.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct DataConfig {
  std::vector<std::string> train;   // files, globs, folders, URIs
  std::vector<std::string> eval;    // the same; or eval_fraction
  double eval_fraction = 0.0;       // of the training rows, chosen by seed
  std::string format = "auto";      // auto | text | jsonl | csv | parquet | arrow (idx: not built)
  std::string text;                 // template; none of text, source, target: "{text}"
  std::string source;               // template of the prompt, never a label
  std::string target;               // template of the answer
  std::string messages;             // chat rows: the column of {role, content}
  std::string tokenizer = "auto";   // auto | bytes | PATH
  int64_t seq_length = 1024;        // positions fed
  int64_t target_length = 128;      // encoder-decoder only
  std::string layout = "pad";       // pad | dynamic | pack
  bool mask_padding = true;         // padding is never a label
  bool drop_empty = true;           // rows of one token or less are dropped
  std::string append_eos = "auto";  // auto | true | false
  double fraction = 1.0;            // of the rows, the first ones in file order
  int64_t limit = 0;                // rows; 0 = all
  std::string max_row_bytes = "16MB";  // a longer row is refused
  bool shuffle = true;
};

}  // namespace weft
