#!/bin/sh
# Upload the model: HOST=https://search.example:9200 sh upload.sh
set -eu
: "${HOST:?set it to the address of the server}"
cd "$(dirname "$0")"
if grep -q REPLACE_ME feature_extractors.json; then
  echo "Replace every REPLACE_ME in feature_extractors.json first." >&2
  exit 2
fi
# Insert the feature extractors behind the first character of model.json.
{
  printf '{"inference_config":{"learning_to_rank":{"feature_extractors":'
  cat feature_extractors.json
  printf '}},'
  tail -c +2 model.json
} | curl -sS --fail-with-body -X PUT -H 'Content-Type: application/json' --data-binary @- \
  "$HOST/_ml/trained_models/MODEL_NAME"
