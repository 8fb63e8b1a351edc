#!/usr/bin/env bash
# examples/quickstart/run.sh: from nothing to a model that writes SQL: corpus, training, score, an answer.
set -euo pipefail
cd "$(dirname "$0")/../.."
weft=build/weft
run=examples/quickstart/run.yaml
dir=runs/quickstart
data=runs/quickstart-data

echo "--- a corpus from a grammar: questions and the SQL that answers them"
$weft corpus "$data" --seed 1 --train 5600 --test 600
head -n 2 "$data/train.jsonl"

echo "--- training (resolved run file: $dir/run.yaml)"
$weft train "$run" --overwrite

echo "--- the loss curve (pictures: $dir/loss.png, $dir/loss.svg)"
$weft plot "$dir"

echo "--- 600 questions held out from training"
if grep -qxFf "$data/test.jsonl" "$data/train.jsonl"; then
  echo "a test question is in the training text" >&2
  exit 1
fi
score=$($weft eval "$run" --model "$dir/final" --json)
echo "$score"
exact=$(sed 's/.*"exact_match": *\([0-9.]*\).*/\1/' <<<"$score")
if ! awk "BEGIN { exit !($exact >= 0.8) }"; then
  echo "exact match is $exact, wanted 0.8 or more" >&2
  exit 1
fi

question=$(sed -n '7s/.*"question": *"\([^"]*\)".*/\1/p' "$data/test.jsonl")
echo "--- one of them, answered"
echo "$question"
printf '%s\n\n' "$question" | $weft generate "$dir/final" --max-new-tokens 64
