#!/bin/sh
# Upload the model: HOST=https://search.example:9200 sh upload.sh
set -eu
: "${HOST:?set it to the address of the server}"
cd "$(dirname "$0")"
if grep -q REPLACE_ME featureset.json; then
  echo "Replace every REPLACE_ME in featureset.json first." >&2
  exit 2
fi
post() {
  curl -sS --fail-with-body -X POST -H 'Content-Type: application/json' --data-binary "@$1" "$HOST/_ltr/_featureset/$2"
}
# Create the store for features and models; the server reports an error if there is one already.
curl -sS -X PUT "$HOST/_ltr"
post featureset.json MODEL_NAME
post model.json MODEL_NAME/_createmodel
