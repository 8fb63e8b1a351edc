// model/family.h: a family of models: its name in config.json, its factory, and what others than
// its own code know of its files.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"

namespace weft {

// The names in a family's config.json and files that checkpoints, exports, commands and messages
// use, and defaults of fields that a file may lack.
struct FamilyTraits {
  bool is_unknown = false;                   // the union of all families' names
  bool is_head_tied = true;                  // where config.json has no tie_word_embeddings
  std::string head = "lm_head.weight";       // where it is not tied
  std::vector<std::string> embeddings = {};  // its names in files, of which each has one
  std::vector<std::string> layer_keys = {};  // numbers of layers; the first has no default
  std::vector<std::string> size_keys = {};   // other sizes that two models may differ in
  std::string base_prefix = {};              // of names, which some published files lack
  std::vector<std::string> stray_ends = {};  // of tensors in old files that are no parameters
  std::vector<std::string> embedding_copies =
      {};  // that files may hold; one that differs is refused
  // Whether a head that the files lack, or that equals the embedding, is tied although
  // config.json has tie_word_embeddings: false.
  bool is_head_decided_by_files = false;
  bool overflows_fp16 = false;  // activations of trained weights exceed 65504
  std::string scale_key = {};   // a flag for scaled logits, whose default is a tied head
};

struct Family {
  const char* architecture;  // the first of config.json's architectures
  const char* model_type;    // where there are none
  std::unique_ptr<Model> (*make)(const Json& config, const ModelOverrides& overrides);
  const FamilyTraits& (*traits)();
};

std::span<const Family> known_families();  // model/registry.cpp
// The model_type of the family that config.json names, of an unknown one what the file has; "none"
// where it names none.
std::string family_name(const Json& config);

// Of the family that config.json names. Of an unknown one, whose files commands read too:
// transformers' defaults, and every name that a known family has.
const FamilyTraits& traits_of(const Json& config);
// The keys of config.json that have its sizes: vocab_size, and the family's own.
std::vector<std::string> size_keys(const Json& config);
// Among others than the known families.
FamilyTraits traits_of(const Json& config, std::span<const Family> families);

}  // namespace weft
